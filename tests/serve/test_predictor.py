"""Image files to classes, evidence and neighbours, without HTTP."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import photos
from compact_bilinear.evidence import evidence
from compact_bilinear.images import BrokenImage, Transform
from compact_bilinear.images.decode import decode
from compact_bilinear.model import Model
from compact_bilinear.serve import Predictor
from compact_bilinear.serve.neighbours import Neighbours
from compact_bilinear.serve.predictor import Wanted
from serving import Shelf, model, picture

LIMIT = 10**6
ALL = Wanted(3, 2, 4)


def test_is_what_the_model_says() -> None:
    made = model()
    predictor = Predictor(made)
    files = [picture(seed) for seed in range(5)]
    found = predictor([predictor.see(file, ALL, LIMIT) for file in files])
    pixels = torch.stack([made.transform.pixels(decode(file)) for file in files])
    with torch.no_grad():
        scores = made(pixels)
    for row, result in enumerate(found):
        order = scores[row].argsort(descending=True)
        assert [each.label for each in result.classes] == order.tolist()
        assert [each.name for each in result.classes] == [made.classes[label] for label in order]
        np.testing.assert_allclose([each.score for each in result.classes], scores[row, order], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(sum(each.probability for each in result.classes), 1, rtol=1e-5)
        maps = evidence(made, pixels[row : row + 1], order[None, :2])[0]
        for place, each in enumerate(result.evidence):
            assert each.label == order[place]
            np.testing.assert_allclose(each.values, maps[place], rtol=1e-3, atol=1e-4)


def test_each_image_is_given_what_is_asked_for_it() -> None:
    predictor = Predictor(model())
    wanted = [Wanted(), Wanted(classes=1), Wanted(evidence=1), Wanted(classes=3, evidence=3), Wanted(99, 99)]
    found = predictor([predictor.see(picture(1), each, LIMIT) for each in wanted])
    assert [len(each.classes) for each in found] == [0, 1, 0, 3, 3]
    assert [len(each.evidence) for each in found] == [0, 0, 1, 3, 3]


def test_neighbours_are_found_in_the_index(tmp_path: Path) -> None:
    made, folder = model(), photos.photos(tmp_path)
    shelf = Shelf(made, folder)
    predictor = Predictor(made, Neighbours(shelf, made))
    inside = [3, 12, 20]
    files = [(folder / shelf.images.paths[number]).read_bytes() for number in inside]
    found = predictor([predictor.see(file, Wanted(neighbours=k), LIMIT) for file, k in zip(files, (1, 2, 5), strict=True)])
    assert [each.neighbours[0].item for each in found] == inside
    assert [len(each.neighbours) for each in found] == [1, 2, 5]
    first = found[0].neighbours[0]
    assert first.path == shelf.images.paths[3]
    assert first.name == shelf.images.classes[shelf.images.labels[3]]
    assert first.similarity == pytest.approx(1, abs=1e-4)


def test_what_is_not_finite_is_that_images_error() -> None:
    made = model(normalize=False)
    predictor = Predictor(made)
    with torch.no_grad():
        made.backbone.register_forward_hook(
            lambda _, inputs, maps: maps * torch.where(torch.arange(len(maps)) == 1, torch.nan, 1)[:, None, None, None]
        )
    found = predictor([predictor.see(picture(seed), ALL, LIMIT) for seed in range(3)])
    assert [each.error for each in found] == [None, "what the model says of it is not finite", None]
    assert found[1].classes == found[1].evidence == []
    assert len(found[2].classes) == 3


def test_files_that_are_no_images() -> None:
    predictor = Predictor(model())
    with pytest.raises(BrokenImage, match=r"^not an image in a known format$"):
        predictor.see(b"words", ALL, LIMIT)
    with pytest.raises(BrokenImage, match=r"^60×50 pixels are more than the limit of 2999$"):
        predictor.see(picture(0), ALL, 2999)


def test_a_transform_that_draws_is_held_still() -> None:
    made = model()
    made.transform = Transform(size=40, fit="random-crop", flip="random")
    predictor = Predictor(made)
    assert predictor.transform == Transform(size=40, fit="center-crop")


@pytest.mark.parametrize("fit", ["stretch", "center-crop"])
@pytest.mark.parametrize("flip", ["never", "always"])
@pytest.mark.parametrize("size", [(90, 60), (60, 90), (60, 60)])
def test_the_box_is_where_the_transform_cuts(fit: str, flip: str, size: tuple[int, int]) -> None:
    made = model()
    made.transform = Transform(size=40, fit=fit, flip=flip)  # type: ignore[arg-type]
    # an image of its own coordinates: what is cut out of it says where it was
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    stream = io.BytesIO()
    Image.fromarray(np.dstack([x, y, 0 * x]).round().astype(np.uint8)).save(stream, "PNG")
    seen = Predictor(made).see(stream.getvalue(), ALL, LIMIT)
    left, top, right, bottom = seen.box
    pixels = seen.pixels.float() / 255
    cell = 1 / 40  # what is asked for are edges, and what is seen are the middles of pixels
    middle_left, middle_right = left + (right - left) * cell / 2, right - (right - left) * cell / 2
    assert float(pixels[0, 20, 0]) == pytest.approx(middle_left, abs=0.02)
    assert float(pixels[0, 20, -1]) == pytest.approx(middle_right, abs=0.02)
    assert float(pixels[1, 0, 20]) == pytest.approx(top + (bottom - top) * cell / 2, abs=0.02)
    assert float(pixels[1, -1, 20]) == pytest.approx(bottom - (bottom - top) * cell / 2, abs=0.02)


def test_a_model_without_classes_or_without_a_map() -> None:
    bare = Model(model().backbone, "tensor-sketch:64", transform=Transform(size=40)).eval()
    predictor = Predictor(bare)
    predictor.warm_up()
    assert not predictor.has_evidence
    assert predictor([predictor.see(picture(1), Wanted(), LIMIT)])[0].classes == []
    averaging = Model(bare.backbone, "average-pool", ("a", "b"), transform=bare.transform).eval()
    assert Predictor(averaging).has_evidence

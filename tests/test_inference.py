"""A model over files: in order, with what is broken named, and the same however it is cut into batches."""

import pytest
import torch

import photos
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import ImageList, Transform, read_images
from compact_bilinear.inference import answers
from compact_bilinear.model import Model


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageList:
    return read_images(photos.photos(tmp_path_factory.mktemp("inference") / "photos"))


@pytest.fixture(scope="module")
def model(images: ImageList) -> Model:
    made = Model(load_backbone("tiny"), "tensor-sketch:31", images.classes, transform=Transform(size=photos.SIZE))
    draw = torch.Generator().manual_seed(0)
    return made.set_head(torch.randn(3, 31, generator=draw), torch.zeros(3)).eval()


def test_every_image_has_an_answer_in_order_or_is_named(images: ImageList, model: Model) -> None:
    found = list(answers(model, images, batch=4, workers=0))
    places = torch.cat([each.places for each in found]).tolist()
    broken = [each for some in found for each in some.broken]
    assert places == sorted(places)
    assert {images.paths[each.place]: each.reason.rpartition(": ")[2] for each in broken} == photos.BROKEN
    assert sorted(places + [each.place for each in broken]) == list(range(len(images)))


def test_the_size_of_batches_changes_nothing(images: ImageList, model: Model) -> None:
    expected = torch.cat([each.output for each in answers(model, images, batch=1, workers=0)])
    for settings in ({"batch": 7, "workers": 0}, {"batch": 40, "workers": 1, "threads": 1}):
        found = torch.cat([each.output for each in answers(model, images, **settings)])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_some_images_in_another_order(images: ImageList, model: Model) -> None:
    answered = answers(model, images, workers=0)
    whole = {place: row for each in answered for place, row in zip(each.places.tolist(), each.output, strict=True)}
    some = [11, 2, 7]
    found = list(answers(model, images, order=some, workers=0))
    assert torch.cat([each.places for each in found]).tolist() == some
    torch.testing.assert_close(torch.cat([each.output for each in found]), torch.stack([whole[place] for place in some]))


def test_features_in_place_of_scores(images: ImageList, model: Model) -> None:
    features = torch.cat([each.output for each in answers(model, images, features=True, workers=0)])
    scores = torch.cat([each.output for each in answers(model, images, workers=0)])
    assert features.shape == (27, 31)
    with torch.no_grad():
        torch.testing.assert_close(model.scores(features), scores)


def test_what_is_not_finite_is_named(images: ImageList) -> None:
    made = Model(load_backbone("tiny"), "tensor-sketch:31", images.classes, transform=Transform(size=photos.SIZE))
    made.set_head(torch.full((3, 31), torch.nan), torch.zeros(3)).eval()
    (found,) = answers(made, images, order=[1, 2], workers=0)
    assert len(found.places) == len(found.output) == 0
    assert "is not finite" in found.broken[0].reason


@pytest.mark.parametrize(("features", "width"), [(False, 3), (True, 31)])
def test_a_batch_of_broken_images_has_no_rows_but_all_columns(
    images: ImageList, model: Model, features: bool, width: int
) -> None:
    order = [images.paths.index(path) for path in photos.BROKEN]
    (found,) = answers(model, images, features=features, order=order, workers=0)
    assert len(found.broken) == 2
    assert found.output.shape == (0, width)
    assert model.probabilities(found.output).shape == (0, width)

"""Pictures come from the indexed folder and from nowhere else, and an index of another model is refused."""

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import photos
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import Transform
from compact_bilinear.model import Model
from compact_bilinear.serve.neighbours import Neighbours
from serving import Shelf, model, picture


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(model(), photos.photos(tmp_path_factory.mktemp("index")))


def test_a_picture_is_made_anew_and_holds_nothing_else(shelf: Shelf) -> None:
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    file = shelf.folder / shelf.images.paths[1]
    before = file.read_bytes()
    Image.open(io.BytesIO(picture(3))).resize((900, 300)).save(file, exif=exif)
    try:
        jpeg = Neighbours(shelf, model()).picture(1, 320, 10**6)
        assert b"where I live" not in jpeg
        assert Image.open(io.BytesIO(jpeg)).size == (320, 107)
        with pytest.raises(LookupError, match="cannot be read: 900×300 pixels are more than the limit"):
            Neighbours(shelf, model()).picture(1, 320, 1000)
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("number", [-1, 0, 29, 10**30, -(10**30)])  # 0 is broken, and so not in the index
def test_there_are_only_the_items_of_the_index(shelf: Shelf, number: int) -> None:
    with pytest.raises(LookupError, match=f"The index has no item {number}"):
        Neighbours(shelf, model()).content(number)


def test_nothing_outside_of_the_folder_is_given(shelf: Shelf, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(picture(1))
    (shelf.folder / "link.jpg").unlink(missing_ok=True)
    (shelf.folder / "link.jpg").symlink_to(secret)
    try:
        for path in ("link.jpg", str(secret), f"../{secret.parent.name}/secret.jpg", "train/../../secret.jpg"):
            item = SimpleNamespace(path=path, name="", file=shelf.folder / path)
            neighbours = Neighbours(shelf, model())
            neighbours.index = SimpleNamespace(item=lambda _, item=item: item)  # type: ignore[assignment]
            with pytest.raises(LookupError, match="does not lie in the indexed folder"):
                neighbours.content(1)
    finally:
        (shelf.folder / "link.jpg").unlink()


def test_what_is_gone_or_was_never_told(shelf: Shelf) -> None:
    neighbours = Neighbours(shelf, model())
    neighbours.index = SimpleNamespace(item=lambda _: SimpleNamespace(path="gone.jpg", name="", file=shelf.folder / "gone.jpg"))  # type: ignore[assignment]
    with pytest.raises(LookupError, match="is not there any more"):
        neighbours.content(1)
    neighbours.index = SimpleNamespace(item=lambda _: SimpleNamespace(path="a.jpg", name="", file=None))  # type: ignore[assignment]
    with pytest.raises(LookupError, match="does not know where"):
        neighbours.content(1)


def test_a_row_of_zeros_has_no_neighbours(shelf: Shelf) -> None:
    rows = np.stack([np.zeros(64, np.float32), shelf.rows[2]])
    nothing, some = Neighbours(shelf, model()).near(rows, 2)
    assert nothing == []
    assert some[0].item == shelf.numbers[2]


def test_an_index_of_another_model_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    made = model()
    other = Model(load_backbone("tiny"), "tensor-sketch:65", ("a",), transform=Transform(size=40))
    with pytest.raises(
        ValueError, match=r"features of the model, tensor-sketch:65 \(d=65\), but .*\nIndex features of tensor-"
    ):
        Neighbours(shelf, other)
    for number, (what, change) in enumerate(
        (
            ("backbone", lambda model: model.backbone.parameters().__next__().data.add_(1)),
            ("pooling", lambda model: model.pooling.sign.neg_()),
            ("normalisation", lambda model: setattr(model, "normalize", False)),
            ("transform", lambda model: setattr(model, "transform", Transform(size=41))),
        )
    ):
        kept = model()
        with torch.no_grad():
            change(kept)
        kept.save(tmp_path / str(number))
        shelf.model = tmp_path / str(number)  # type: ignore[assignment]
        try:
            with pytest.raises(ValueError, match=rf"was made with another {what}\.\nIndex features of this model's"):
                Neighbours(shelf, made)
        finally:
            shelf.model = None
    made.save(tmp_path / "same")
    shelf.model = tmp_path / "same"  # type: ignore[assignment]
    assert len(Neighbours(shelf, made)) == 27
    shelf.model = None

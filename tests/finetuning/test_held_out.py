"""What is said of an epoch is what the model says to the images held out."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import photos
import tuned
from compact_bilinear.finetuning import FineTuning
from compact_bilinear.finetuning.held_out import measure
from compact_bilinear.finetuning.learner import Learner
from compact_bilinear.finetuning.together import Group
from compact_bilinear.images import ImageList, load_images
from compact_bilinear.processes import Processes


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageList:
    return tuned.images(tmp_path_factory.mktemp("held out"))


def learner() -> Learner:
    made = Learner(tuned.model(), FineTuning(label_smoothing=0.3, flip=True, crop=True), Group(Processes(), tuned.CPU))
    made.begin_epoch()
    return made


def test_error_and_loss_are_those_of_images_that_are_not_augmented(images: ImageList) -> None:
    places = [place for place in range(len(images)) if place % 3]
    assert any(images.paths[place] in photos.BROKEN for place in places)
    checked: list[None] = []
    found = measure(learner(), images, places, 0, lambda: checked.append(None))
    (batch,) = load_images(images, tuned.model().transform, order=places, batch=99, workers=0)
    scores = tuned.model()(batch.pixels).detach()
    assert found["error"] == pytest.approx(float((scores.argmax(1) != batch.labels).double().mean()))
    assert found["loss"] == pytest.approx(float(F.cross_entropy(scores, batch.labels)), rel=1e-5)
    assert len(checked) > 1


def test_nothing_to_measure_on_is_refused(images: ImageList, tmp_path: Path) -> None:
    broken = [place for place, path in enumerate(images.paths) if path in photos.BROKEN]
    with pytest.raises(ValueError, match=r"measured on 2 images held out.*\nMend them, or write hold_out=0\."):
        measure(learner(), images, broken, 0, lambda: None)
    lost = learner()
    with torch.no_grad():
        lost.model.pooling.sign.fill_(float("nan"))
    with pytest.raises(ValueError, match="finite scores"):
        measure(lost, images, range(4), 0, lambda: None)

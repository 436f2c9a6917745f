"""A run from its first step to its last: a function of its settings, whatever happens in between."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import photos
import tuned
from compact_bilinear.finetuning import FineTuning, training_places
from compact_bilinear.finetuning.learner import Learner, losses
from compact_bilinear.images import ImageList, Transform, load_images
from compact_bilinear.inference import answers
from compact_bilinear.model import load_model


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageList:
    return tuned.images(tmp_path_factory.mktemp("tuning"))


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Let the run end as if killed, in the middle of a step: the optimiser has learned, and nobody took note."""
    taken, real = iter(range(10**6)), Learner.step

    def step(self: Learner, *arguments: Any) -> Any:
        result = real(self, *arguments)
        if next(taken) == steps:
            raise error
        return result

    monkeypatch.setattr(Learner, "step", step)


def test_a_run_is_a_function_of_its_settings(images: ImageList, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    first, second, other = (
        tuned.state(tuned.tune(tmp_path / str(number), images, seed=seed)) for number, seed in enumerate((0, 0, 1))
    )
    assert tuned.same(first, second)
    assert tuned.records(tmp_path / "0") == tuned.records(tmp_path / "1")
    for name in ("backbone.module.0.weight", "head.bias"):
        assert not torch.equal(first[name], tuned.model().state_dict()[name]), name
        assert not torch.equal(first[name], other[name]), name
    assert torch.equal(before, torch.get_rng_state()), "what others draw is not touched"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"workers": 1, "checkpoint_minutes": 1e9},
        {"optimizer": "adamw", "rate": 1e-2, "accumulate": 2, "schedule": "cosine", "warm_up": 0.5},
        {"batch_statistics": True, "hold_out": 0.2, "patience": 9},
        {"precision": "float16", "rate": 1e-2, "momentum": 0.0},
    ],
)
@pytest.mark.parametrize("steps", [0, 2, 4])
def test_interrupted_and_resumed_it_ends_with_the_same_bits(
    images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], steps: int
) -> None:
    expected = tuned.state(tuned.tune(tmp_path / "whole", images, **settings))
    with monkeypatch.context() as patched:
        stop_after(patched, steps)
        with pytest.raises(KeyboardInterrupt):
            tuned.tune(tmp_path / "cut", images, **settings)
    resumed = tuned.tune(tmp_path / "cut", images, **settings)
    assert tuned.same(tuned.state(resumed), expected)
    assert tuned.same(tuned.last(tmp_path / "cut"), tuned.last(tmp_path / "whole"))
    assert tuned.records(tmp_path / "cut") == tuned.records(tmp_path / "whole")
    assert all(parameter.requires_grad for parameter in resumed.parameters())
    assert not resumed.training


def test_images_are_drawn_anew_in_every_epoch_but_seen_as_they_are_when_measured(
    images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Transform, Any]] = []

    def spy(where: str) -> Any:
        def load(some: ImageList, transform: Transform, **settings: Any) -> Any:
            epochs = settings.get("epoch", 0)
            if not isinstance(epochs, int):
                settings["epoch"] = epochs = list(epochs)
            asked.append((where, transform, epochs))
            return load_images(some, transform, **settings)

        return load

    monkeypatch.setattr("compact_bilinear.finetuning.loop.load_images", spy("learn"))
    monkeypatch.setattr("compact_bilinear.inference.load_images", spy("measure"))
    tuned.tune(tmp_path, images, seed=3, hold_out=0.2)
    plain = tuned.model().transform
    drawn = Transform(size=photos.SIZE, fit="random-crop", flip="random", seed=3)
    assert asked == [
        ("measure", plain, 0),
        ("learn", drawn, [0, 0, 0, 1, 1, 1]),
        ("measure", plain, 0),
        ("measure", plain, 0),
    ]
    asked.clear()
    tuned.tune(tmp_path / "plain", images, seed=3, crop=False, flip=False, epochs=1)
    assert asked == [("learn", Transform(size=photos.SIZE, fit="center-crop", seed=3), [0, 0, 0])]


def test_a_finished_run_is_read_and_not_run_again(images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tuned.state(tuned.tune(tmp_path, images, hold_out=0.2))
    monkeypatch.setattr(Learner, "step", lambda *_: pytest.fail("it learned"))
    assert tuned.same(tuned.state(tuned.tune(tmp_path, images, hold_out=0.2)), expected)


def test_other_settings_do_not_go_on_with_it(images: ImageList, tmp_path: Path) -> None:
    tuned.tune(tmp_path, images, epochs=1)
    with pytest.raises(ValueError, match=r"changed are epochs: 1 → 2; rate: 0\.1 → 0\.2\.\nGive another folder"):
        tuned.tune(tmp_path, images, rate=0.2)
    tuned.tune(tmp_path, images, epochs=1, workers=1, accumulate=2)


def test_before_the_first_step_it_says_what_the_classifier_says(images: ImageList, tmp_path: Path) -> None:
    weight, bias = torch.randn(3, 16), torch.randn(3)
    begin = tuned.model().set_head(weight, bias)
    features = torch.cat([each.output for each in answers(begin, images, features=True, workers=0)])
    tuned.tune(tmp_path, images, begin, epochs=0)
    scores = torch.cat([each.output for each in answers(begin, images, workers=0)])
    torch.testing.assert_close(scores, features @ weight.T + bias, rtol=1e-5, atol=1e-5)


def test_broken_images_are_skipped_named_and_counted(
    images: ImageList, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned.tune(tmp_path, images)
    said = [line for line in capsys.readouterr().err.splitlines() if "skipped" in line]
    assert len(said) == 1, "once, though it is met in every epoch"
    assert said[0].endswith("train/brick/07.jpg: not an image in a known format")
    steps, epochs = tuned.records(tmp_path, "step"), tuned.records(tmp_path, "epoch")
    assert [step["broken"] for step in steps if "broken" in step] == [["train/brick/07.jpg"]] * 2
    assert sum(step["images"] for step in steps) == 30
    assert [(epoch["images"], epoch["broken"]) for epoch in epochs] == [(15, 1), (15, 1)]


def test_a_batch_of_nothing_but_broken_images_is_no_step(
    images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_broken = images.take([place for place, path in enumerate(images.paths) if path in photos.BROKEN])
    with pytest.raises(ValueError, match=r"all 1 of the split are broken, train/brick/07\.jpg for one"):
        tuned.tune(tmp_path / "all", only_broken)
    taken, real = [], Learner.step

    def step(self: Learner, *arguments: Any) -> Any:
        taken.append(arguments)
        return real(self, *arguments)

    monkeypatch.setattr(Learner, "step", step)
    tuned.tune(tmp_path / "one by one", images, batch=1, epochs=1)
    steps = tuned.records(tmp_path / "one by one", "step")
    assert (len(steps), len(taken)) == (16, 15)
    assert [step["images"] for step in steps if "broken" in step] == [0]


@pytest.mark.parametrize("when", [1, 2, 5])
def test_a_loss_that_is_not_finite_stops_it(
    images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """The weights that remain are those of before, and once the reason is mended it goes on from them."""
    taken = iter(range(1, 1000))

    def planted(scores: Tensor, *arguments: Any) -> Tensor:
        return losses(scores, *arguments) * (float("nan") if next(taken) == when else 1)

    with monkeypatch.context() as patched:
        patched.setattr("compact_bilinear.finetuning.learner.losses", planted)
        with pytest.raises(ValueError, match=f"The loss of step {when} should be finite but is nan; its batch: ") as refused:
            tuned.tune(tmp_path, images)
    first, second = str(refused.value).splitlines()
    last = tmp_path / "checkpoints" / f"step-{when - 1:08}.safetensors"
    assert second == f"The last good checkpoint is {last}: take another folder, and a lower rate, a warm-up, or clip=1."
    (record,) = tuned.records(tmp_path, "not finite")
    assert record["step"] == when
    assert all(file in images.paths for file in record["files"])
    assert ", ".join(record["files"][:3]) in first
    assert max(tmp_path.glob("checkpoints/step-*")) == last
    resumed = tuned.tune(tmp_path, images)
    assert tuned.same(tuned.state(resumed), tuned.state(tuned.tune(tmp_path / "whole", images)))
    assert not tuned.records(tmp_path, "not finite")


def test_weights_that_are_not_finite_are_not_written(
    images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last gradient of a run may be infinite where its loss was not; no step follows that would tell."""
    real = Learner.step

    def step(self: Learner, *arguments: Any) -> Any:
        facts = real(self, *arguments)
        self.model.head.bias.data[0] = float("inf")
        return facts

    monkeypatch.setattr(Learner, "step", step)
    with pytest.raises(ValueError, match=r"After step 1 all numbers"):
        tuned.tune(tmp_path / "held", images, hold_out=0.2, batch=99, checkpoint_minutes=1e9)
    with pytest.raises(ValueError, match=r"step 1 all numbers of the model should be finite but are not; its batch: train/"):
        tuned.tune(tmp_path, images)
    assert [file.name for file in tmp_path.glob("checkpoints/*")] == ["step-00000000.safetensors"]


def test_the_best_epoch_is_kept_which_may_be_the_start(
    images: ImageList, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"hold_out": 0.4, "epochs": 6}
    ruined = tuned.tune(tmp_path / "ruined", images, rate=50.0, momentum=0.0, **settings)
    assert tuned.same(tuned.state(ruined), tuned.model().state_dict())
    assert ruined.made["fine-tuning"]["epoch"] == 0
    assert "the model is the one that it began with, better than all 6 epochs, with an error of" in capsys.readouterr().err
    made = tuned.tune(tmp_path / "run", images, **settings)
    said = capsys.readouterr().err
    epochs = tuned.records(tmp_path / "run", "epoch")
    assert [epoch["epoch"] for epoch in epochs] == list(range(7))
    best = min(epochs, key=lambda epoch: (epoch["held out error"], epoch["held out loss"]))
    assert made.made["fine-tuning"]["epoch"] == best["epoch"] > 0
    assert f"the model is that of epoch {best['epoch']} of 6, with an error of" in said
    held = training_places(images, FineTuning(hold_out=0.4)).held
    wrong = sum(
        int((each.output.argmax(1) != torch.tensor([images.labels[place] for place in each.places])).sum())
        for each in answers(made, images, order=held, workers=0)
    )
    assert wrong / len(held) == pytest.approx(best["held out error"])


def test_patience_ends(images: ImageList, tmp_path: Path) -> None:
    tuned.tune(tmp_path, images, rate=50.0, momentum=0.0, hold_out=0.4, epochs=9, patience=2)
    assert [epoch["epoch"] for epoch in tuned.records(tmp_path, "epoch")] == [0, 1, 2]


@pytest.mark.parametrize("pooling", ["tensor-sketch:16", "random-maclaurin:16", "pca-bilinear:9"])
def test_a_projection_is_learned_and_saved(images: ImageList, tmp_path: Path, pooling: str) -> None:
    begin = tuned.model(pooling=pooling, learnable=True)
    before = tuned.state(begin.pooling)
    made = tuned.tune(tmp_path / "run", images, begin, learn_projection=True, epochs=1)
    after = tuned.state(made.pooling)
    learned = {name for name, _ in made.pooling.named_parameters()}
    assert {name for name in before if not torch.equal(before[name], after[name])} == learned
    made.save(tmp_path / "saved")
    loaded = load_model(tmp_path / "saved", backbone=tuned.model().backbone)
    assert tuned.same(tuned.state(loaded), tuned.state(made))
    assert loaded.made["fine-tuning"]["epoch"] == 1


def test_what_does_not_fit_is_refused(images: ImageList, tmp_path: Path) -> None:
    for wrong, settings, message in (
        (
            tuned.model(learnable=True),
            {},
            r"is not to be trained.*\nWrite Model\(\.\.\., learnable=False\), or learn_projection=True",
        ),
        (tuned.model(), {"learn_projection": True}, r"is to be trained.*was built to stay fixed"),
        (
            tuned.model(classes=("bark", "moss", "brick")),
            {},
            r"has 3, which are not these\.\nBuild it with classes=images\.classes",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            tuned.tune(tmp_path, images, wrong, **settings)
    assert not list(tmp_path.iterdir())


def test_it_says_how_it_goes(images: ImageList, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned.tune(tmp_path, images, hold_out=0.2)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "fine-tune: custom, tensor-sketch:16, on 13 images of 3 classes, 3 held out, 2 epochs"
    assert said[-2].startswith("fine-tune: 26 of 26 images, ")
    assert "; epoch 2/2, loss " in said[-2]
    assert said[-2].endswith(", rate 0.1")
    best = min(epoch["held out error"] for epoch in tuned.records(tmp_path, "epoch"))
    assert said[-1].startswith("fine-tune: the model is ")
    assert said[-1].endswith(f", with an error of {best:.1%} on the images held out")


def test_compiled_it_learns_the_same(images: ImageList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler itself takes too long for here: it is enough that it is asked, and that what it gives is used."""
    asked: list[Any] = []

    def compiled(module: Any) -> Any:
        asked.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compiled)
    expected = tuned.state(tuned.tune(tmp_path / "plain", images))
    assert not asked
    assert tuned.same(tuned.state(tuned.tune(tmp_path / "compiled", images, compile=True)), expected)
    assert len(asked) == 1

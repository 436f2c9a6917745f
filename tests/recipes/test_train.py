"""Training as its users run it: from photographs to a model, again, otherwise, and interrupted."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import photos
from compact_bilinear import cli
from compact_bilinear.classify import LogisticRegression
from compact_bilinear.features import FeatureStore
from compact_bilinear.finetuning import FineTuning, training_places
from compact_bilinear.images import load_images, read_images
from compact_bilinear.model import load_model


def flags(folder: Path, out: Path, *more: str) -> list[str]:
    """A command line that trains on the photographs of a folder."""
    backbone = ["--backbone", "tiny", "--weights", str(folder / "weights.safetensors"), "--size", str(photos.SIZE)]
    return ["train", str(folder / "photos"), "--out", str(out), *backbone, "--workers", "0", *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos.make(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    assert cli.main(flags(folder, folder / "run", "--pool", "tensor-sketch:512")) == 0
    return folder / "run"


def test_the_head_is_the_logistic_regression_of_the_features(trained: Path) -> None:
    store, model = FeatureStore(trained / "features"), load_model(trained)
    x, y = store.read("tensor-sketch:512", "train").astype(np.float32), store.labels[store.rows("train")]
    expected = LogisticRegression(1e-3).fit(x, y)
    with torch.no_grad():
        found = model.probabilities(model.scores(store.tensor("tensor-sketch:512", "test").float()))
    test = store.read("tensor-sketch:512", "test").astype(np.float32)
    torch.testing.assert_close(found.numpy(), expected.predict_proba(test), rtol=1e-2, atol=1e-3, check_dtype=False)
    assert model.made["lambda"] == model.made["lambda used"] == 0.001
    assert model.classes == store.classes


def test_the_model_sees_images_as_extraction_did(folder: Path, trained: Path) -> None:
    model, store = load_model(trained), FeatureStore(trained / "features")
    images = read_images(folder / "photos")
    (batch,) = load_images(images, model.transform, batch=len(images), workers=0)
    with torch.no_grad():
        torch.testing.assert_close(
            model.features(batch.pixels), store.tensor("tensor-sketch:512").float(), rtol=0.01, atol=1e-3
        )


def test_says_how_good_it_is_and_what_to_do_next(folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents_of(trained)
    assert cli.main(flags(folder, trained, "--pool", "tensor-sketch:512", "--lambda", "1e-3")) == 0
    said, noted = capsys.readouterr()
    for path, reason in photos.BROKEN.items():
        assert f"left out: {path}: {reason}\n" in noted
    assert "photos, test: 12 images of 3 classes\n  error " in said
    assert said.endswith(f"Try it: cbp predict {trained} IMAGE\n")
    assert contents_of(trained) == before, "the same command again changes nothing"
    record = json.loads((trained / "evaluation.json").read_text())
    assert f"{record['error']:7.2%}" in said


def contents_of(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in sorted(run.rglob("*")) if file.is_file()}


def test_other_settings_are_not_mixed_in(folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, told in (
        (["--pool", "tensor-sketch:512", "--lambda", "0.1"], "changed are lambda: 0.001 → 0.1"),
        (["--pool", "tensor-sketch:256"], "changed are pooling tensor-sketch:256"),
        (["--pool", "tensor-sketch:512", "--lambda", "-1"], "λ is a number > 0, or auto, but got '-1'"),
    ):
        assert cli.main(flags(folder, trained, *more)) == 2
        assert told in capsys.readouterr().err.splitlines()[-2]


def test_from_features_that_are_there(folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--pool", "tensor-sketch:512", "--pool", "average-pool"]
    assert cli.main(photos.flags(folder, tmp_path / "features", *both)) == 0
    command = ["train", str(tmp_path / "features"), "--weights", str(folder / "weights.safetensors")]
    capsys.readouterr()
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Write --pool average-pool, for instance."
    assert cli.main([*command, "--out", str(tmp_path / "run"), "--pool", "tensor-sketch:512"]) == 0
    one, other = load_model(tmp_path / "run"), load_model(trained)
    assert one.head is not None
    assert other.head is not None
    torch.testing.assert_close(one.head.weight, other.head.weight, rtol=0.05, atol=0.05)  # of batches of other sizes
    assert cli.main([*command, "--out", str(tmp_path / "tuned"), "--pool", "average-pool", "--finetune"]) == 2
    assert "Fine-tuning sees images" in capsys.readouterr().err
    assert cli.main([*command, "--out", str(tmp_path / "other"), "--pool", "tensor-sketch:31"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "It has average-pool, tensor-sketch:512."


def test_a_model_of_other_features_is_not_taken_for_theirs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = ["--pool", "tensor-sketch:64", "--pool", "random-maclaurin:64"]
    assert cli.main(photos.flags(folder, tmp_path / "features", *pools)) == 0
    assert cli.main([*photos.flags(folder, tmp_path / "larger", *pools), "--size", "48"]) == 0

    def train(features: str, pool: str) -> int:
        weights = str(folder / "weights.safetensors")
        given = ["--out", str(tmp_path / "run"), "--weights", weights, "--pool", pool]
        return cli.main(["train", str(tmp_path / features), *given])

    assert train("features", "tensor-sketch:64") == 0
    for features, pool, told in (
        ("features", "random-maclaurin:64", "pooling: tensor-sketch:64 → random-maclaurin:64"),
        ("larger", "tensor-sketch:64", "changed are size: 40 → 48."),
    ):
        assert train(features, pool) == 2
        assert told in capsys.readouterr().err.splitlines()[-2]


def test_lambda_that_was_chosen_is_said_and_kept(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = flags(folder, tmp_path / "run", "--pool", "average-pool", "--lambda", "auto")
    assert cli.main(command) == 0
    used = load_model(tmp_path / "run").made["lambda used"]
    assert f"train: λ = {used:.3g} has the least loss in cross-validation\n" in capsys.readouterr().err
    before = contents_of(tmp_path / "run")
    assert cli.main(command) == 0
    assert contents_of(tmp_path / "run") == before, "the same command again changes nothing"


def test_a_settings_file_that_is_damaged_is_named(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model.json").write_text("{", "utf-8")
    assert cli.main(flags(folder, tmp_path / "run", "--pool", "tensor-sketch:512")) == 2
    assert f"{tmp_path / 'run' / 'model.json'} does not describe a model" in capsys.readouterr().err.splitlines()[-2]


@pytest.mark.parametrize(
    "more", [["--one-vs-rest"], ["--one-vs-rest", "--calibrate"], ["--lambda", "auto"], ["--no-normalize"]]
)
def test_every_kind_of_classifier_gives_a_model(folder: Path, tmp_path: Path, more: list[str]) -> None:
    assert cli.main(flags(folder, tmp_path / "run", "--pool", "average-pool", *more)) == 0
    model = load_model(tmp_path / "run")
    assert model.link == ("sigmoid" if "--one-vs-rest" in more else "softmax")
    assert cli.main(["predict", str(tmp_path / "run"), str(folder / "photos/train/moss/00.jpg")]) == 0


def test_what_is_held_out_is_seen_by_neither_stage(folder: Path, tmp_path: Path) -> None:
    more = ["--pool", "average-pool", "--finetune", "--tune.epochs", "0", "--tune.hold-out", "0.4", "--tune.workers", "0"]
    assert cli.main(flags(folder, tmp_path / "run", *more)) == 0
    held = training_places(read_images(folder / "photos"), FineTuning(hold_out=0.4)).held
    assert held
    store = FeatureStore(tmp_path / "run" / "features")
    seen = np.setdiff1d(store.rows("train"), np.flatnonzero(np.isin(store.indices, held)))
    expected = LogisticRegression(1e-3).fit(store.read("average-pool")[seen].astype(np.float32), store.labels[seen])
    head = load_model(tmp_path / "run" / "before-fine-tuning").head
    assert head is not None
    np.testing.assert_allclose(head.weight.detach().numpy(), expected.coef_, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("pool", ["pca-bilinear:9", "fisher-vector:3", "full-bilinear-triangle"])
def test_baselines_by_one_flag(folder: Path, tmp_path: Path, pool: str) -> None:
    assert cli.main(flags(folder, tmp_path / "run", "--pool", pool)) == 0
    assert str(load_model(tmp_path / "run").named) == pool


def test_what_cannot_be_learned_from_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moss = tmp_path / "one" / "moss"
    moss.mkdir(parents=True)
    for name in ("00.jpg", "01.jpg"):
        shutil.copy(folder / "photos/train/moss" / name, moss)
    for data, out, told in (
        (tmp_path / "one", tmp_path / "run", "tells at least two classes apart, but"),
        (moss, tmp_path / "run", "has none."),
        (folder / "photos", folder / "photos/run", "A model goes beside the images"),
        (folder / "photos", moss / "00.jpg", "is a file."),
    ):
        assert cli.main(["train", str(data), "--out", str(out), "--backbone", "tiny"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert told in lines[0]
        assert len(lines) == 2
    assert not (tmp_path / "run").exists()


TUNE = ["--pool", "tensor-sketch:64", "--finetune", "--tune.epochs", "2", "--tune.batch", "6", "--tune.workers", "0"]


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Path:
    assert cli.main(flags(folder, folder / "tuned", *TUNE)) == 0
    return folder / "tuned"


def test_fine_tuning_starts_from_the_linear_classifier_and_keeps_both(folder: Path, tuned: Path) -> None:
    before, after = load_model(tuned / "before-fine-tuning"), load_model(tuned)
    assert cli.main(flags(folder, folder / "linear", "--pool", "tensor-sketch:64")) == 0
    linear = load_model(folder / "linear")
    assert all(torch.equal(a, b) for a, b in zip(before.state_dict().values(), linear.state_dict().values(), strict=True))
    moved = {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before.state_dict()[name])}
    assert {"head.weight", "backbone.conv1.weight"} <= moved
    assert not {"pooling.sign", "pooling.bucket", "backbone.mean"} & moved
    assert after.made["fine-tuning"]["epochs"] == 2
    assert before.made["fine-tuning"] is None
    results = [json.loads((run / "evaluation.json").read_text()) for run in (tuned, tuned / "before-fine-tuning")]
    assert all((result["images"], result["broken"]) == (12, 1) for result in results)


def test_a_fine_tuned_model_is_not_written_over(folder: Path, tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents_of(tuned)
    assert cli.main(flags(folder, tuned, *TUNE)) == 0
    said = capsys.readouterr().out
    assert said.index("Linear classifier") < said.index("Fine-tuned\n") < said.index("Try it: ")
    assert contents_of(tuned) == before, "the same command again changes nothing"
    for more, told in (
        (["--pool", "tensor-sketch:64"], "holds a fine-tuned model, which a linear classifier would replace"),
        ([*TUNE, "--tune.rate", "0.01"], "rate: 0.001 → 0.01"),
    ):
        assert cli.main(flags(folder, tuned, *more)) == 2
        assert told in capsys.readouterr().err.splitlines()[-2]
    assert contents_of(tuned) == before


def test_fine_tuning_goes_on_from_no_other_classifier(
    folder: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tuned, tmp_path / "run", ignore=shutil.ignore_patterns("model*"))
    shutil.copytree(tuned / "before-fine-tuning", tmp_path / "run/before-fine-tuning", dirs_exist_ok=True)
    before = contents_of(tmp_path / "run")
    assert cli.main(flags(folder, tmp_path / "run", *TUNE, "--lambda", "1")) == 2
    assert "changed are lambda: 0.001 → 1.0." in capsys.readouterr().err.splitlines()[-2]
    assert contents_of(tmp_path / "run") == before


def test_a_model_is_made_even_if_no_test_image_can_be_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "photos/train", tmp_path / "photos/train")
    (tmp_path / "photos/test/moss").mkdir(parents=True)
    (tmp_path / "photos/test/moss/00.jpg").write_bytes(b"")
    (tmp_path / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
    assert cli.main(flags(tmp_path, tmp_path / "run", *TUNE)) == 0
    assert "is not scored, because all 1 test images are broken" in capsys.readouterr().err
    assert load_model(tmp_path / "run").made["fine-tuning"]["epochs"] == 2


def test_a_learned_projection_moves(folder: Path, tmp_path: Path) -> None:
    assert cli.main(flags(folder, tmp_path / "run", *TUNE, "--tune.learn-projection")) == 0
    before, after = load_model(tmp_path / "run" / "before-fine-tuning"), load_model(tmp_path / "run")
    assert before.learnable
    assert after.learnable
    assert not torch.equal(before.pooling.sign, after.pooling.sign)


def test_ctrl_c_at_a_terminal_and_on_again(folder: Path, tuned: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="a terminal is opened through pty, which this system lacks")
    command = [sys.executable, "-m", "compact_bilinear", *flags(folder, tmp_path / "run", *TUNE)]
    parent, child = pty.openpty()
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, start_new_session=True)
    os.close(child)
    # rich draws its bar on a terminal; the first step is under way when the log has a line
    said = _watch(parent, until=(tmp_path / "run" / "log.jsonl").exists)
    os.killpg(process.pid, signal.SIGINT)
    said += _watch(parent, until=lambda: process.poll() is not None)
    os.close(parent)
    assert process.wait(60) == 130, said
    assert "Stopped. The same command goes on from here: cbp train " in said
    assert "Traceback" not in said
    assert cli.main(command[3:]) == 0
    again, whole = load_model(tmp_path / "run"), load_model(tuned)
    for name, tensor in whole.state_dict().items():  # another process, which may have had another number of threads
        torch.testing.assert_close(again.state_dict()[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


def _watch(terminal: int, until: Callable[[], bool]) -> str:
    """What a terminal shows until something holds; nobody would read it otherwise, and its writer would wait."""
    said = b""
    while not until():
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:  # the other side is closed
                break
    return said.decode(errors="replace")

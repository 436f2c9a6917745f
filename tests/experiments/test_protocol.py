"""From a data set, a backbone, a pooling and a stage to an error: against the same done by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import reproductions
from compact_bilinear.experiments import protocol
from compact_bilinear.experiments.ledger import Ledger
from compact_bilinear.experiments.only import Only
from compact_bilinear.experiments.protocol import Wanted, both_stages, linear_error, measure_errors, seeded, tuned_error
from compact_bilinear.experiments.records import Record
from compact_bilinear.experiments.setting import Setting
from compact_bilinear.experiments.sources import find_sources
from compact_bilinear.experiments.stores import stores_of
from compact_bilinear.finetuning import Diverged, FineTuning

TUNING = FineTuning(epochs=1, batch=4, rate=1e-9, workers=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reproductions.make(tmp_path_factory.mktemp("protocol"))


@pytest.fixture
def setting(folder: Path, tmp_path: Path) -> Setting:
    return Setting(
        Ledger(tmp_path / "out"),
        find_sources([folder / "bark-and-brick"]),
        backbones=("tiny",),
        weights=str(folder / "weights.safetensors"),
        size=reproductions.SIZE,
        tuning=TUNING,
        workers=0,
    )


def test_the_linear_stage_is_logistic_regression_on_the_features(setting: Setting) -> None:
    store = stores_of(setting, setting.sources[0], 0, "tiny", ["tensor-sketch:64"])["tensor-sketch:64"]
    x, y = (store.read("tensor-sketch:64", split).astype(np.float64) for split in ("train", "test"))
    labels = store.labels
    # scikit-learn has ½‖w‖² + C Σ losses
    by_hand = LogisticRegression(C=1 / (2 * 1e-3), tol=1e-8, max_iter=10_000).fit(x, labels[store.rows("train")])
    wrong = (by_hand.predict(y) != labels[store.rows("test")]).mean()
    assert linear_error(setting, store, "tensor-sketch:64") == pytest.approx(wrong)
    assert 0 < wrong < 1, "something to agree on"


def test_fine_tuning_begins_with_the_linear_classifier(setting: Setting, tmp_path: Path) -> None:
    source = setting.sources[0]
    store = stores_of(setting, source, 0, "tiny", ["tensor-sketch:64"])["tensor-sketch:64"]
    tuned = tuned_error(setting, store, "tensor-sketch:64", source.images(0), TUNING, tmp_path / "tuning")
    assert tuned == linear_error(setting, store, "tensor-sketch:64"), "a rate of next to nothing changes nothing"


def test_repetitions_draw_from_their_seed_and_take_their_split(setting: Setting) -> None:
    paper = {("bark-and-brick", "tiny", "tensor-sketch:8", "linear"): 12.5}
    measure_errors(setting, "table4", ("vgg16",), [Wanted("tensor-sketch:8", "linear")], paper)
    records = setting.ledger.records
    assert [(record.seed, record.details["split"]) for record in records] == [(0, "split0"), (1, "split1")]
    assert {record.pooling for record in records} == {"tensor-sketch:8"}, "repetitions of one cell"
    assert {record.paper for record in records} == {None}, "the data is not the paper's"
    assert records[0].details["train images"] == records[0].details["test images"] == 9
    store = stores_of(setting, setting.sources[0], 1, "tiny", ["tensor-sketch:8,seed=1"])["tensor-sketch:8,seed=1"]
    assert records[1].value == linear_error(setting, store, "tensor-sketch:8,seed=1")
    as_papers = replace(setting, sources=(replace(setting.sources[0], of_paper=True),))
    measure_errors(as_papers, "table3", ("vgg16",), [Wanted("tensor-sketch:8", "linear")], paper)
    assert [record.paper for record in setting.ledger.records[2:]] == [0.125, 0.125]


def test_what_depends_on_no_draw_is_measured_once(setting: Setting) -> None:
    one = find_sources([setting.sources[0].lists[0]])
    fixed = replace(setting, sources=one, seeds=3)
    measure_errors(fixed, "table4", ("vgg16",), both_stages(["average-pool"]), {})
    found = [(record.stage, record.seed) for record in setting.ledger.records]
    assert found == [("linear", 0), ("fine-tuned", 0), ("fine-tuned", 1), ("fine-tuned", 2)]
    assert [record.made["config"]["tuning"]["seed"] for record in setting.ledger.records[1:]] == [0, 1, 2]


def test_what_another_experiment_measured_is_not_measured_again(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_errors(setting, "table4", ("vgg16",), [Wanted("tensor-sketch:8", "linear")], {})
    monkeypatch.setattr(protocol, "linear_error", lambda *_: pytest.fail("it is known"))
    measure_errors(setting, "fig-dim", ("vgg16",), [Wanted("tensor-sketch:8", "linear")], {})
    first, second = setting.ledger.records[:2], setting.ledger.records[2:]
    assert [replace(record, experiment="table4") for record in second] == first


def test_checkpoints_are_removed_and_features_stay(setting: Setting) -> None:
    once = replace(setting, seeds=1)
    measure_errors(once, "table4", ("vgg16",), both_stages(["tensor-sketch:8"]), {})
    assert list((setting.out / "tuning").iterdir()) == []
    assert len(list((setting.out / "features").iterdir())) == 1


def test_what_diverges_is_left_out_and_said(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge(*_: object, **__: object) -> None:
        raise Diverged("The loss of step 3 should be finite but is nan.\nTake a lower rate.")

    monkeypatch.setattr(protocol, "fine_tune", diverge)
    measure_errors(replace(setting, seeds=1), "table4", ("vgg16",), both_stages(["tensor-sketch:8"]), {})
    assert [record.stage for record in setting.ledger.records] == ["linear"]
    assert "tensor-sketch:8 diverged, and is left out: The loss of step 3" in capsys.readouterr().err


def test_projections_learn_where_the_paper_says_so(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool, int]] = []

    def note(setting: Setting, store: object, pooling: str, images: object, tuning: FineTuning, folder: Path) -> float:
        asked.append((pooling, tuning.learn_projection, tuning.batch))
        folder.mkdir(parents=True)
        return 0.5

    monkeypatch.setattr(protocol, "tuned_error", note)
    wanted = [*both_stages(["tensor-sketch:9", "pca-bilinear:9"]), Wanted("tensor-sketch:9", "fine-tuned, projection learned")]
    measure_errors(replace(setting, seeds=1), "table3", ("vgg16",), wanted, {})
    assert asked == [("tensor-sketch:9", False, 4), ("pca-bilinear:9", True, 4), ("tensor-sketch:9", True, 4)]
    task = Record("table4", "CUB", "vgg16", "tensor-sketch:9", 9, "fine-tuned", "error", 0.0)
    assert protocol._tuning(setting, task).batch == 4, "as asked for"
    assert protocol._tuning(replace(setting, tuning=FineTuning()), task).batch == 8, "the paper's for VGG-16"


def test_only_a_part(setting: Setting) -> None:
    only = replace(setting, only=Only.of(["RM"]), seeds=1, finetune=False)
    measure_errors(only, "table4", ("vgg16",), both_stages(["tensor-sketch:8", "random-maclaurin:8"]), {})
    assert [(record.pooling, record.stage) for record in setting.ledger.records] == [("random-maclaurin:8", "linear")]


def test_seeds_go_to_those_that_draw() -> None:
    assert [seeded(pooling, 3) for pooling in ("pca-bilinear:9", "fisher-vector:2", "random-projection:8,sparse")] == [
        "pca-bilinear:9",
        "fisher-vector:2,seed=3",
        "random-projection:8,seed=3,sparse",
    ]

"""All that is measured of a comparison, as records: what is there already is not measured again."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..classify.metrics import error_rate, mean_average_precision
from ..device import choose_precision, find_device
from ..experiments.ledger import Ledger
from ..experiments.origin import made
from ..experiments.records import Record
from ..features import FeatureStore
from ..images import ImageList
from ..processes import Processes
from ..progress import counting_bar, note
from ..retrieval import retrieval
from .choice import choose, difference
from .cost import BACKBONE, milliseconds
from .measure import FewShots, keep, kept, linear

if TYPE_CHECKING:
    from ..recipes.compare import Compare


def learn(config: "Compare", store: FeatureStore, ledger: Ledger, answers: Path) -> None:
    """What each pooling gets right, with all training images and with a few."""
    lambda_: Any = config.lambda_ if config.lambda_ == "auto" else float(config.lambda_)
    device = find_device(config.device, Processes())
    few = FewShots.of(store, config.draws, config.seed)
    labels = store.labels[(store.splits == "test") & (store.labels >= 0)]
    measured = {each.pooling for each in ledger.records if each.stage == "linear" and each.measure == "error"}
    done = [pooling for pooling in store.poolings if pooling in measured and kept(answers, pooling)]
    if len(done) == len(store.poolings):
        return
    with counting_bar("compare", "poolings", len(done), len(store.poolings)) as advance:
        for pooling in store.poolings:
            if pooling in done:
                continue
            started = time.monotonic()
            found = kept(answers, pooling)
            if found is None:
                found = linear(store, pooling, lambda_)
                keep(answers, pooling, found)
            shown = {"test images": len(labels), "classes": len(store.classes), "lambda": found.lambda_}
            record = _recorder(config, store, pooling, started)
            of_few = [
                record("few-shot", "error", error, {"shots": shots}, draw)
                for shots, draw, error in few.errors(store, pooling, device)
            ]
            for each in (
                record("", "bytes", store.poolings[pooling] * (2 if store.dtype == "float16" else 4)),
                *of_few,
                *_retrieved(record, store, pooling),
                record("linear", "mean AP", mean_average_precision(found.scores, labels), shown),
                record("linear", "error", error_rate(found.scores, labels), shown),  # the last: with it all are there
            ):
                if not ledger.has(each):
                    ledger.keep(each)
            advance(1, pooling)


def _retrieved(record: Callable[..., Record], store: FeatureStore, pooling: str) -> list[Record]:
    """How well the test images of a class find each other; nothing where each class has one."""
    try:
        found = retrieval(store, pooling, "test", "test", ks=(1,))
    except ValueError:
        return []
    shown = {"queries": found.queries}
    return [
        record("retrieval", "recall@1", found.recall[1], shown),
        record("retrieval", "mean AP", found.mean_average_precision, shown),
    ]


def tell_apart(store: FeatureStore, ledger: Ledger, answers: Path) -> None:
    """By how much the error of each pooling is above the smallest, image by image."""
    best = choose(ledger.records).best.pooling
    labels = store.labels[(store.splits == "test") & (store.labels >= 0)]
    wrong = {}
    for pooling in store.poolings:
        found = kept(answers, pooling)
        assert found is not None
        wrong[pooling] = found.scores.argmax(1) != labels
    for each in [each for each in ledger.records if each.stage == "linear" and each.measure == "error"]:
        apart = difference(wrong[each.pooling], wrong[best])
        about: dict[str, str | float] = {"from": best, "standard error": apart.standard_error}
        beside = replace(each, measure="error above the best", value=apart.value, details=about)
        if each.pooling != best and not ledger.has(beside):
            ledger.keep(beside)


def time_poolings(config: "Compare", store: FeatureStore, images: ImageList, ledger: Ledger) -> None:
    """What each pooling costs, all in the same turns."""
    if any(each.measure == "ms" and each.pooling == BACKBONE for each in ledger.records):
        return
    device = find_device(config.device, Processes())
    note("compare: timing the poolings beside the backbone")
    started = time.monotonic()
    times = milliseconds(store, images, config.weights, device=device, precision=choose_precision(config.precision, device))
    for pooling in store.poolings:
        record = _recorder(config, store, pooling, started)
        of_backbone = 100 * times[pooling] / times[BACKBONE]
        for each in (record("", "ms", times[pooling]), record("", "% of the backbone", of_backbone)):
            if not ledger.has(each):
                ledger.keep(each)
    ledger.keep(_recorder(config, store, BACKBONE, started)("", "ms", times[BACKBONE]))  # the last: with it all are there


def _recorder(config: "Compare", store: FeatureStore, pooling: str, started: float) -> Callable[..., Record]:
    """What makes records of one pooling."""
    settings = store.manifest["settings"]
    device = find_device(config.device, Processes())

    def record(
        stage: str, measure: str, value: float, details: Mapping[str, str | int | float] | None = None, seed: int = 0
    ) -> Record:
        d = store.poolings.get(pooling, 0)
        about, origin = details or {}, made(device.type, seconds=round(time.monotonic() - started, 3))
        return Record(
            "compare", settings["data"], settings["backbone"], pooling, d, stage, measure, value, None, seed, about, origin
        )

    return record

"""Planted records: what the paper's tables hold, measured again by nobody, with a spread that is known."""

from collections.abc import Iterator, Sequence

import numpy as np

from compact_bilinear.experiments.records import Record

SEEDS = 3
POOLINGS = {
    "fully-connected": 4096,
    "fisher-vector:64": 65536,
    "full-bilinear": 262144,
    "random-maclaurin:8192": 8192,
    "tensor-sketch:8192": 8192,
}
TABLE_4 = {
    ("CUB", "vgg-m"): ("49.90/42.03", "52.73", "29.41/22.44", "36.42/23.96", "31.53/23.06"),
    ("CUB", "vgg16"): ("42.56/33.88", "35.80", "19.90/16.00", "21.83/16.14", "20.50/16.00"),
    ("DTD", "vgg16"): ("39.89/40.11", "34.47", "32.50/35.04", "36.76/34.43", "32.29/35.49"),
}
TABLE_3 = {
    "pca-bilinear": ("72.5/42.9", "49.7/28.9", "41.3/25.3", "36.2/23.8"),
    "tensor-sketch": ("62.6/32.2", "41.6/25.5", "33.9/23.2", "31.1/22.5"),
}
SHOTS = (1, 2, 3, 7, 14)
TABLE_6 = {"full-bilinear": (12.7, 21.5, 27.4, 41.7, 53.9), "tensor-sketch:8192": (15.6, 24.1, 29.9, 43.1, 54.3)}
MADE = {"torch": "2.13.0", "device": "planted", "commit": None, "date": "2026-11-20", "seconds": 1.0}


def repeated(
    cell: Sequence[object], percent: float, paper: float | None, spread: float = 0.2, **details: object
) -> Iterator[Record]:
    """Repetitions of one cell around a number of percent."""
    draw = np.random.default_rng([len(str(cell)), int(100 * percent)])
    for seed in range(SEEDS):
        value = (percent + spread * draw.standard_normal()) / 100
        yield Record(*cell, value, None if paper is None else paper / 100, seed, details, MADE)  # type: ignore[arg-type]


def table4() -> list[Record]:
    return [
        record
        for (data, net), texts in TABLE_4.items()
        for (pooling, d), text in zip(POOLINGS.items(), texts, strict=True)
        for stage, number in zip(("linear", "fine-tuned"), text.split("/"), strict=False)
        for record in repeated(("table4", data, net, pooling, d, stage, "error"), float(number), float(number))
    ]


def table3() -> list[Record]:
    return [
        record
        for name, texts in TABLE_3.items()
        for d, text in zip((256, 1024, 4096, 16384), texts, strict=True)
        for stage, number in zip(("linear", "fine-tuned"), text.split("/"), strict=True)
        for record in repeated(("table3", "CUB", "vgg-m", f"{name}:{d}", d, stage, "error"), float(number), float(number))
    ]


def table6() -> list[Record]:
    return [
        record
        for pooling, numbers in TABLE_6.items()
        for shots, number in zip(SHOTS, numbers, strict=True)
        for record in repeated(
            ("table6", "CUB", "vgg-m", pooling, POOLINGS[pooling], "few-shot", "mean AP"), number, number, 0.6, shots=shots
        )
    ]


def fig_dim() -> list[Record]:
    """Curves in the shape of the paper's: random Maclaurin ahead at low d, behind above."""
    found = list(repeated(("fig-dim", "CUB", "vgg-m", "full-bilinear", 262144, "linear", "error"), 29.4, 29.41))
    found += repeated(("fig-dim", "CUB", "vgg-m", "full-bilinear", 262144, "fine-tuned", "error"), 22.4, 22.44)
    for d in (32, 128, 512, 2048, 8192, 16384):
        for name, ahead in (("random-maclaurin", 2.0 if d < 2000 else -2.0), ("tensor-sketch", 0.0)):
            for stage, floor, rise in (
                ("linear", 30, 250),
                ("fine-tuned", 22.3, 150),
                ("fine-tuned, projection learned", 22.6, 110),
            ):
                paper = {("linear", 16384): 31.1, ("fine-tuned", 16384): 22.66, ("fine-tuned", 512): 25.54}.get((stage, d))
                cell = ("fig-dim", "CUB", "vgg-m", f"{name}:{d}", d, stage, "error")
                found += repeated(cell, floor + rise / d**0.5 - ahead, paper if name == "tensor-sketch" else None)
    return found


def costs() -> list[Record]:
    counted = {
        "full-bilinear": (262144, 0, 0.77, 1.05, 1048.6),
        "random-maclaurin:8192": (8192, 8388608, 11.2, 33.6, 32.8),
        "tensor-sketch:8192": (8192, 2048, 0.5, 1.1, 32.8),
    }
    measures = ("dimension", "parameters", "ms", "MB", "classifier MB")
    return [
        Record(
            "table2",
            "none",
            "vgg16",
            pooling,
            POOLINGS[pooling],
            "",
            measure,
            value * (1 + 0.02 * seed * (measure == "ms")),
            {"full-bilinear": 0.77}.get(pooling) if measure == "ms" else None,
            seed,
            {},
            MADE,
        )
        for pooling, values in counted.items()
        for measure, value in zip(measures, values, strict=True)
        for seed in range(SEEDS if measure == "ms" else 1)
    ]


def kernel() -> list[Record]:
    found = []
    for name, scale in (("random-maclaurin", 4.0), ("tensor-sketch", 2.5)):
        for d in (32, 128, 512, 2048, 8192):
            draw = np.random.default_rng(d)
            for seed in range(10):
                error = scale / d**0.5 * (1 + 0.1 * draw.standard_normal())
                cell = ("kernel", "made up", "none", f"{name}:{d}", d, "", "kernel error")
                found.append(Record(*cell, error, None, seed, {"theory": scale / d**0.5}, MADE))
    return found

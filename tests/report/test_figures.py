"""Figures: the records' numbers in words and marks, the same bytes again, and nothing that a page could trip over."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import planted_records as planted
from compact_bilinear.experiments.records import Record, summaries
from compact_bilinear.report.drawing import Drawing
from compact_bilinear.report.figures import cost_bars, error_against_dim, few_shot_curves, kernel_error, reliability_diagram

MAKERS = {
    error_against_dim: planted.fig_dim(),
    few_shot_curves: planted.table6(),
    cost_bars: planted.costs(),
    kernel_error: planted.kernel(),
}
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: Drawing) -> list[str]:
    return ["".join(each.itertext()).strip() for each in ElementTree.fromstring(drawing.svg()).iter(f"{SVG}text")]


@pytest.mark.parametrize("make", MAKERS)
def test_the_order_of_records_does_not_matter(make: Callable[..., Drawing]) -> None:
    records = MAKERS[make]
    again = make(random.Random(1).sample(records, len(records)))
    assert again.svg() == make(records).svg()
    assert again.alternative == make(records).alternative


def test_dimension_curves_say_the_records_numbers() -> None:
    drawing = error_against_dim(planted.fig_dim())
    found = {(each.pooling, each.stage): each.mean for each in summaries(planted.fig_dim())}
    ends = [100 * found["tensor-sketch:32", "linear"], 100 * found["tensor-sketch:16384", "linear"]]
    assert f"Tensor Sketch from {ends[0]:.1f} % at d = 32 to {ends[1]:.1f} % at d = 16384;" in drawing.alternative
    assert f"full bilinear, fine-tuned, {100 * found['full-bilinear', 'fine-tuned']:.1f} %" in drawing.alternative
    assert {"Tensor Sketch", "random Maclaurin", "full bilinear", "the paper’s number", "32", "16\u202f384"} <= set(
        texts(drawing)
    )
    alone = error_against_dim([replace(record, paper=None) for record in planted.fig_dim()])
    assert "the paper’s number" not in texts(alone)


def test_another_number_draws_another_figure() -> None:
    records = planted.table6()
    other = [replace(records[0], value=records[0].value + 0.05), *records[1:]]
    assert few_shot_curves(other).svg() != few_shot_curves(records).svg()


def test_bars_are_as_long_as_their_numbers() -> None:
    drawing = cost_bars(planted.costs())
    assert {"FB", "RM", "TS", "ms", "MB", "33.6"} <= set(texts(drawing))
    assert "MB: FB 1.05, RM 33.6, TS 1.1" in drawing.alternative
    paths = [each.get("d", "") for each in ElementTree.fromstring(drawing.svg()).iter(f"{SVG}path")]
    corners = [
        [float(x) for x in re.findall(r"[ML] ([\d.]+) ", path)] for path in paths if path.count("L") == 3 and "z" in path
    ]
    widths = np.sort([max(x) - min(x) for x in corners])[-6:]
    panels = [
        np.array([each.mean for each in summaries(planted.costs()) if each.measure == measure]) for measure in ("ms", "MB")
    ]
    expected = np.sort(np.concatenate([panel / panel.max() for panel in panels]))
    # a panel is drawn to its own largest number; coordinates are written with six decimals
    np.testing.assert_allclose(widths / widths.max(), expected, rtol=2e-3)


def test_curves_bands_and_hollow_marks_are_where_the_records_are() -> None:
    figure = Figure()
    few_shot_curves(planted.table6()).paint(figure)
    (axes,) = figure.axes
    cells = [each for each in summaries(planted.table6()) if each.pooling == "tensor-sketch:8192"]
    cells.sort(key=lambda each: int(str(each.details["shots"])))
    means = np.array([100 * each.mean for each in cells])
    spreads = np.array([100 * (each.spread or 0) for each in cells])
    curve, papers = axes.lines[2:4]  # full bilinear's come first
    np.testing.assert_allclose(curve.get_xydata(), np.column_stack([planted.SHOTS, means]))
    np.testing.assert_allclose(papers.get_xydata(), np.column_stack([planted.SHOTS, planted.TABLE_6["tensor-sketch:8192"]]))
    corners = axes.collections[1].get_paths()[0].vertices
    for shots, low, high in zip(planted.SHOTS, means - spreads, means + spreads, strict=True):
        heights = corners[corners[:, 0] == shots, 1]
        assert (heights.min(), heights.max()) == pytest.approx((low, high))


def test_reliability_by_hand() -> None:
    sure = np.array([0.95, 0.95, 0.55, 0.55, 1.0])
    right = np.array([True, False, True, True, True])
    drawing = reliability_diagram(sure, right)
    gap = (3 * abs((0.95 + 0.95 + 1) / 3 - 2 / 3) + 2 * abs(0.55 - 1)) / 5
    assert drawing.alternative.startswith("Of 5 images 80.0 % are right; it was 80.0 % sure on average")
    assert drawing.alternative.endswith(f"the mean gap is {100 * gap:.1f} points.")


def test_records_of_two_places_are_refused() -> None:
    records = planted.fig_dim()
    with pytest.raises(ValueError, match=r"fig-dim CUB vgg-m; fig-dim MIT vgg-m\.\nPass those of one"):
        error_against_dim([*records, replace(records[0], data="MIT")])
    with pytest.raises(ValueError, match="but got none"):
        kernel_error(records)


def test_dense_and_sparse_projections_are_two_curves() -> None:
    of = {"random-projection:{}": 40.0, "random-projection:{},sparse": 41.0}
    records = [
        Record("alternatives", "CUB", "tiny", name.format(d), d, "linear", "error", percent / 100)
        for name, percent in of.items()
        for d in (512, 8192)
    ]
    said = error_against_dim(records).alternative
    assert "random projection from 40.0 % at d = 512 to 40.0 % at d = 8192; sparse random projection from 41.0 %" in said


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got none with the measure 'error'\.\nMeasure tensor-sketch:1024"):
        error_against_dim([record for record in planted.fig_dim() if record.pooling == "full-bilinear"])
    for sure, right in (([], []), ([0.5], [True, False]), ([1.5], [True])):
        with pytest.raises(ValueError, match=r"\nPass the probability of the class"):
            reliability_diagram(sure, right)

"""Drawings: the same bytes again, and nothing that a page could trip over."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

import planted_records as planted
from compact_bilinear.report.drawing import DARK, Drawing
from compact_bilinear.report.figures import cost_bars, error_against_dim, few_shot_curves, kernel_error

MAKERS = {
    error_against_dim: planted.fig_dim(),
    few_shot_curves: planted.table6(),
    cost_bars: planted.costs(),
    kernel_error: planted.kernel(),
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest) -> Drawing:
    return request.param(MAKERS[request.param])


def test_it_is_an_image_with_words_to_the_page(made: Drawing) -> None:
    root = ElementTree.fromstring(made.svg())
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == made.alternative
    assert re.search(r"\d", made.alternative)
    assert root.get("viewBox")
    assert root.get("width") is None, "its place decides how wide it is"
    assert not root.findall(f".//{SVG}style")
    assert "metadata" not in made.svg()


def test_colours_are_those_of_the_page(made: Drawing) -> None:
    svg = made.svg()
    assert "currentColor" in svg
    outside = re.sub(r"var\(--c[0-9a-f]{6}, #[0-9a-f]{6}\)", "", svg)
    assert re.findall(r"#[0-9a-f]{6}(?![0-9a-f\w-])", outside) == []
    used = set(re.findall(r"var\(--c([0-9a-f]{6})", svg))
    assert used <= {light[1:] for light in DARK}


def test_figures_in_one_page_share_no_identifiers() -> None:
    svgs = [make(records).svg() for make, records in MAKERS.items()] + [few_shot_curves(planted.table6()[:18]).svg()]
    ids = [each for svg in svgs for each in re.findall(r' id="([^"]*)"', svg)]
    assert len(ids) == len(set(ids))
    referred = {each for svg in svgs for each in re.findall(r'(?:url\(#|href="#)([^")]*)', svg)}
    assert referred <= set(ids)
    assert referred


def test_files(tmp_path: Path, made: Drawing) -> None:
    svg, png = made.write(tmp_path, "figure")
    before = svg.read_bytes(), png.read_bytes()
    made.write(tmp_path, "figure")
    assert (svg.read_bytes(), png.read_bytes()) == before
    root = ElementTree.fromstring(before[0])
    assert root.find(f"{SVG}title").text == made.title  # type: ignore[union-attr]
    assert b"var(" not in before[0]
    assert b"currentColor" not in before[0]
    with Image.open(png) as image:
        assert image.width == 920
        assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
        assert len(image.convert("L").getcolors() or []) > 20


def test_a_name_is_no_formula() -> None:
    records = [replace(record, pooling="$a_$<&>") for record in planted.table6() if record.pooling == "full-bilinear"]
    assert "$a_$<&>" in [
        "".join(each.itertext()) for each in ElementTree.fromstring(few_shot_curves(records).svg()).iter(f"{SVG}text")
    ]


def test_matplotlib_is_left_as_it_was() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    cost_bars(planted.costs()).svg()
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):  # of whoever calls
        other = cost_bars(planted.costs()).svg()
    assert other == cost_bars(planted.costs()).svg()

"""The page: whole, alone, readable by everybody, equal to its records, and not to be broken by a name."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import planted_records as planted
from compact_bilinear.experiments.records import summaries
from compact_bilinear.images.textures import texture
from compact_bilinear.report.claims import findings
from compact_bilinear.report.figures import cost_bars, error_against_dim, few_shot_curves
from compact_bilinear.report.page import (
    ClaimSection,
    CommandSection,
    EvidenceSection,
    FigureSection,
    GallerySection,
    Pair,
    PairSection,
    Report,
    SettingSection,
    StripSection,
    TableSection,
    html,
    write_report,
)
from compact_bilinear.report.pictures import Picture
from compact_bilinear.report.tables import data_table, few_shot_table

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
HOSTILE = """</style></script><script>alert(1)</script>"'><img src=x onerror=alert(2)> &amp; {{ 7*7 }} \u202e\x1b\x00\ud800 ü"""
PRINTED = HOSTILE.translate(dict.fromkeys([0x202E, 0x1B, 0, 0xD800], "\ufffd"))
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def picture(number: int, label: str, right: bool | None = None, evidence: bool = False) -> Picture:
    of = np.arange(12.0).reshape(3, 4) - 5 if evidence else None
    return Picture(texture(number, 0, 48), label, f"note {number}", right, of)


def report(name: str = "bark", shuffle: int = 1) -> Report:
    """Every kind of section once."""
    table4, table6, dims = planted.table4()[::shuffle], planted.table6()[::shuffle], planted.fig_dim()[::shuffle]
    named = [replace(record, data=name) for record in table4 if record.data == "DTD"]
    return Report(
        f"Report of {name}",
        [f"On {name} all is well.", "Truly."],
        [
            TableSection("Table 4", data_table([*table4, *named]), f"Of {name}."),
            FigureSection("Figures", [error_against_dim(dims), few_shot_curves(table6), cost_bars(planted.costs())]),
            TableSection("Table 6", few_shot_table(table6)),
            PairSection(
                "Pairs", [Pair(picture(0, name), picture(1, "b"), f"{name} for b"), Pair(picture(2, "c"), picture(0, "d"))]
            ),
            GallerySection("Gallery", {name: [picture(0, name, True), Picture(Path("gone") / "a.jpg", name, right=False)]}),
            EvidenceSection("Evidence", [picture(1, name, evidence=True)]),
            StripSection("Strips", [(picture(0, name), [picture(1, name, True), picture(2, "x", False)])]),
            ClaimSection("Claims", findings([*table4, *planted.table3()[::shuffle]])),
            SettingSection("Settings", {"Configuration": {"data": name, "λ": 0.001}, "Versions": {"torch": "2.13.0"}}),
            CommandSection("Next", f"cbp train {name}"),
        ],
    )


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.fixture(scope="module")
def page() -> str:
    return html(report())


def test_the_same_records_in_another_order_are_the_same_bytes(page: str) -> None:
    assert html(report(shuffle=-1)) == page


def test_it_is_well_formed(page: str) -> None:
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    tree = parsed(page)
    ids = [each.get("id") for each in tree.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    links = [str(each.get("href")) for each in tree.iter(f"{HTML}a")]
    assert len(links) == 10
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert next(each.tag for each in tree.iter() if re.fullmatch(r".*}h\d", each.tag)) == f"{HTML}h1"
    assert len(list(tree.iter(f"{HTML}h1"))) == 1
    assert {each.tag for each in tree.iter()} & {f"{HTML}script", f"{HTML}link", f"{HTML}iframe"} == set()


def test_nothing_comes_from_elsewhere(page: str) -> None:
    addresses = [
        value for each in parsed(page).iter() for key, value in each.items() if key.rpartition("}")[2] in ("src", "href")
    ]
    assert addresses
    assert all(address.startswith(("data:image/jpeg;base64,", "#")) for address in addresses)
    outside = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert outside <= {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_every_image_has_an_alternative(page: str) -> None:
    tree = parsed(page)
    images = list(tree.iter(f"{HTML}img"))
    assert len(images) == 4 + 1 + 2 + 3
    assert all((each.get("alt") or "").strip() for each in images)
    drawn = list(tree.iter(f"{SVG}svg"))
    boxes = [each for each in tree.iter(f"{HTML}div") if each.get("class") == "absent"]
    assert (len(drawn), len(boxes)) == (3, 1)
    assert all(each.get("role") == "img" and each.get("aria-label") for each in drawn + boxes)
    assert words(boxes[0]) == "a.jpg: no such file or directory"


def test_right_and_wrong_are_not_told_by_colour_alone(page: str) -> None:
    marks = [words(each) for each in parsed(page).iter(f"{HTML}span") if (each.get("class") or "").startswith("mark ")]
    assert marks == ["✓ right:", "✗ wrong:", "✓ right:", "✗ wrong:"]


def test_numbers_in_the_page_are_those_of_the_records(page: str) -> None:
    tables = list(parsed(page).iter(f"{HTML}table"))
    shown = [words(cell) for row in tables[0].iter(f"{HTML}tr") if row.get("class") == "ours" for cell in row.iter(f"{HTML}td")]
    records = [*planted.table4(), *(replace(r, data="bark") for r in planted.table4() if r.data == "DTD")]
    expected = {f"{100 * each.mean:.2f} ± {100 * (each.spread or 0):.2f}" for each in summaries(records)}
    assert set(shown) - {"–"} == expected
    assert len([each for each in shown if each != "–"]) == len(summaries(records))
    papers = [
        words(cell) for row in tables[0].iter(f"{HTML}tr") if row.get("class") == "paper" for cell in row.iter(f"{HTML}td")
    ]
    assert set(papers) - {"–"} == {f"{100 * each.paper:.2f}" for each in records if each.paper is not None}
    few = [words(cell) for row in tables[1].iter(f"{HTML}tr") if row.get("class") == "ours" for cell in row.iter(f"{HTML}td")]
    assert few == [f"{100 * each.mean:.1f} ± {100 * (each.spread or 0):.1f}" for each in by_pooling_and_shots()]


def by_pooling_and_shots() -> list:  # type: ignore[type-arg]
    return sorted(summaries(planted.table6()), key=lambda each: (each.pooling, int(str(each.details["shots"]))))


def test_claims_are_told_with_their_verdicts(page: str) -> None:
    told = [
        words(each) for each in parsed(page).iter(f"{HTML}li") if each.get("class") in ("borne-out", "refuted", "undecided")
    ]
    found = findings([*planted.table4(), *planted.table3()])
    assert len(told) == len(found)
    for line, finding in zip(told, found, strict=True):
        assert f" {finding.verdict} {finding.claim}" in line
        assert " ".join(finding.sentence.split()) in line


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = html(report(HOSTILE))
    tree = parsed(text)
    text.encode()
    assert not list(tree.iter(f"{HTML}script"))
    assert [each for each in tree.iter() if any(key.startswith("on") for key in each.keys())] == []  # noqa: SIM118
    assert {each.get("src", "").partition(",")[0] for each in tree.iter(f"{HTML}img")} == {"data:image/jpeg;base64"}
    assert words(next(tree.iter(f"{HTML}h1"))) == f"Report of {' '.join(PRINTED.split())}"
    stubs = ["".join(each.itertext()) for each in tree.iter(f"{HTML}th") if each.get("rowspan") == "3"]
    assert PRINTED in stubs
    alternatives = [each.get("alt", "") for each in tree.iter(f"{HTML}img")]
    assert any(PRINTED in each for each in alternatives)


def test_it_is_no_larger_than_its_images_may_be() -> None:
    pictures = [Picture(np.random.default_rng(k).integers(0, 256, (160, 160, 3)).astype(np.uint8), str(k)) for k in range(60)]
    sections = [GallerySection("Many", {"row": pictures})]
    bound = 200_000
    empty = len(html(Report("r", [], [GallerySection("Many", {"row": []})])))
    text = html(Report("r", [], sections, bound))
    assert len(text) < empty + bound * 4 / 3 + 500 * len(pictures)
    assert len(html(Report("r", [], sections))) > len(text), "there would have been more to show"


def test_an_empty_report_is_a_page() -> None:
    assert words(next(parsed(html(Report("Nothing", []))).iter(f"{HTML}h1"))) == "Nothing"


def test_written_whole(tmp_path: Path, page: str) -> None:
    file = write_report(report(), tmp_path / "report.html")
    assert file.read_text(encoding="utf-8") == page
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_importing_it_draws_nothing_yet() -> None:
    code = "import sys, compact_bilinear.report.page; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "PIL", "sklearn", "pyarrow"} & set(loaded)


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome here to open the page with")


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
def test_it_opens_in_chromium_without_a_word_on_the_console(tmp_path: Path, width: int, page: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    shot = tmp_path / "report.png"
    assert console(file, width, f"--screenshot={shot}")[0] == []
    assert shot.stat().st_size > 20_000, "an empty page would be smaller"
    broken = page.replace("</h1>", '</h1><img src="https://example.invalid/a.jpg"/>')
    file.write_text(broken, encoding="utf-8")
    assert console(file, width, "--dump-dom")[0], "what the page forbids itself would be told"


@needs_chromium
def test_the_page_is_no_wider_than_the_window(tmp_path: Path) -> None:
    many = [picture(k % 3, "a class with a long name", k % 2 == 0) for k in range(12)]
    wide = Report("Wide", [], [*report(HOSTILE).sections, StripSection("Long", [(picture(0, "a"), many)])])
    measure = "<script>document.title = document.documentElement.scrollWidth + ' of ' + innerWidth</script></body>"
    allowed = re.sub(r"<meta http-equiv=[^>]*>", "", html(wide)).replace("</body>", measure)
    file = tmp_path / "wide.html"
    file.write_text(allowed, encoding="utf-8")
    _, dom = console(file, 500, "--dump-dom")  # no window is narrower
    found = re.search(r"<title>(\d+) of (\d+)</title>", dom)
    assert found
    assert int(found[1]) <= int(found[2])


def console(file: Path, width: int, *more: str) -> tuple[list[str], str]:
    """What a browser says of a page, and what it prints."""
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--v=0",
        f"--user-data-dir={file.parent}/p",
    ]
    command = [str(CHROMIUM), *flags, f"--window-size={width},900", *more, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stdout

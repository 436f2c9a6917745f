"""Names and looks: one order, one heading for each pooling, and colours that can be seen."""

import pytest

from compact_bilinear.pooling.by_name import POOLINGS
from compact_bilinear.report.names import LOOKS, headings, look, place


def test_every_pooling_has_a_look_of_its_own() -> None:
    assert set(POOLINGS) <= set(LOOKS)
    for unique in ("name", "short", "marker"):
        assert len({getattr(each, unique) for each in LOOKS.values()}) == len(LOOKS)
    assert look("something-new:3").name == "something-new:3"


def test_the_paper_s_order() -> None:
    poolings = ["tensor-sketch:8192", "tensor-sketch:512", "zzz", "full-bilinear", "random-maclaurin:8192", "fully-connected"]
    assert list(headings(poolings).values()) == ["FC", "FB", "RM", "TS 512", "TS 8192", "zzz"]
    assert sorted(poolings, key=place) == list(headings(poolings))
    assert headings(["random-projection:64,sparse", "random-projection:64"]) == {
        "random-projection:64": "projection",
        "random-projection:64,sparse": "sparse",
    }
    assert list(headings(["tensor-sketch:64,seed=1", "tensor-sketch:64"]).values()) == ["TS 64", "TS 64 seed=1"]


@pytest.mark.parametrize("ground", ["#ffffff", "#14161a"])
def test_colours_can_be_seen(ground: str) -> None:
    def luminance(color: str) -> float:
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for each in LOOKS.values():
        low, high = sorted((luminance(each.light if ground == "#ffffff" else each.dark), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 3, f"{each.name}: WCAG asks for a contrast of 3"
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)

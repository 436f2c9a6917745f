"""The paper's numbers, against the tables of the docstrings and a second transcription of those that matter."""

import re
from types import ModuleType

import pytest

from compact_bilinear.experiments import fig_dim, table2, table3, table4, table5, table6, timing

# typed anew, not copied
TABLE_4 = """
CUB vgg-m 49.90/42.03 52.73 29.41/22.44 36.42/23.96 31.53/23.06
CUB vgg16 42.56/33.88 35.80 19.90/16.00 21.83/16.14 20.50/16.00
MIT vgg-m 39.67/35.64 32.80 29.77/32.95 31.83/32.03 30.71/31.30
MIT vgg16 35.49/32.24 24.43 22.45/28.98 26.11/26.57 23.83/27.27
DTD vgg-m 46.81/43.22 42.58 39.57/40.50 43.03/41.36 39.60/40.71
DTD vgg16 39.89/40.11 34.47 32.50/35.04 36.76/34.43 32.29/35.49
"""
POOLINGS = ("fully-connected", "fisher-vector:64", "full-bilinear", "random-maclaurin:8192", "tensor-sketch:8192")


def test_table_4() -> None:
    typed = {}
    for line in TABLE_4.split("\n")[1:-1]:
        data, backbone, *cells = line.split()
        for pooling, cell in zip(POOLINGS, cells, strict=True):
            for stage, number in zip(("linear", "fine-tuned"), cell.split("/"), strict=False):
                typed[data, backbone, pooling, stage] = float(number)
    assert typed == table4.PAPER


def test_the_others_that_matter() -> None:
    assert table3.PAPER["CUB", "vgg-m", "pca-bilinear:16384", "fine-tuned"] == 23.8
    assert table3.PAPER["CUB", "vgg-m", "pca-bilinear:256", "linear"] == 72.5
    assert table3.PAPER["CUB", "vgg-m", "tensor-sketch:4096", "fine-tuned"] == 23.2
    assert table3.PAPER["CUB", "vgg-m", "tensor-sketch:1024", "linear"] == 41.6
    assert len(table3.PAPER) == 16
    assert dict(zip(table6.SHOTS, table6.PAPER["tensor-sketch:8192"], strict=True))[1] == 15.6
    assert dict(zip(table6.SHOTS, table6.PAPER["full-bilinear"], strict=True)) == {1: 12.7, 2: 21.5, 3: 27.4, 7: 41.7, 14: 53.9}
    assert table5.PAPER["DTD"] == (1880, 3760, 47)
    assert fig_dim.PAPER["CUB", "vgg-m", "tensor-sketch:16384", "fine-tuned"] == 22.66
    assert timing.PAPER == {"full-bilinear": 0.77, "tensor-sketch:4096": 5.03, timing.NETWORK: 312}
    assert table2.PAPER["dimension"] == (262_144, 10_000, 10_000)
    assert table2.PAPER["parameters"] == (0, 10_240_000, 1024)
    assert table2.PAPER["classifier MB"] == (1000, 40, 40)


def test_where_two_tables_agree_so_do_they_here() -> None:
    for stage in ("linear", "fine-tuned"):
        full = ("CUB", "vgg-m", "full-bilinear", stage)
        assert fig_dim.PAPER[full] == table4.PAPER[full]
    at_16k = ("CUB", "vgg-m", "tensor-sketch:16384", "linear")
    assert fig_dim.PAPER[at_16k] == table3.PAPER[at_16k]
    assert fig_dim.PAPER[at_16k] - table4.PAPER["CUB", "vgg-m", "full-bilinear", "linear"] == pytest.approx(1.7, abs=0.05)


@pytest.mark.parametrize("module", [table3, table4, fig_dim, table6, table5, timing], ids=lambda module: module.__name__[-6:])
def test_the_docstring_has_them(module: ModuleType) -> None:
    told = {float(text) for text in re.findall(r"\d+(?:\.\d+)?", str(module.__doc__))}
    for number in module.PAPER.values():
        assert set(number if isinstance(number, tuple) else (number,)) <= told

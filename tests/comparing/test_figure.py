"""The figure has a mark for each pooling, and its words have each number."""

from compact_bilinear.comparing.choice import choose
from compact_bilinear.comparing.figure import error_with_rule
from compact_bilinear.experiments.records import Record


def test_words_have_all_errors_and_what_is_taken() -> None:
    cells = (("average-pool", 192, 0.3), ("tensor-sketch:512", 512, 0.2), ("tensor-sketch:2048", 2048, 0.1))
    records = [
        Record("compare", "bark", "tiny", pooling, d, "linear", "error", error, details={"test images": 100})
        for pooling, d, error in cells
    ]
    records.append(Record("compare", "bark", "tiny", "average-pool", 192, "", "ms", 1.0))
    drawing = error_with_rule(records, choose(records))
    assert drawing.alternative == (
        "Error: average-pool 30.0 % at d = 192; tensor-sketch:512 20.0 % at d = 512; tensor-sketch:2048 10.0 % at d = 2048. "
        "Taken is tensor-sketch:2048."
    )
    svg = drawing.svg()
    assert all(text in svg for text in ("average pooling", "Tensor Sketch", ">192<", ">2048<"))
    assert svg == error_with_rule(records[::-1], choose(records)).svg()

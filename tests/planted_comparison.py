"""Records of a comparison of three poolings, as small as a table needs them."""

from compact_bilinear.experiments.records import Record


def planted() -> list[Record]:
    found = []
    for pooling, d, error in (
        ("average-pool", 192, 0.3),
        ("full-bilinear-triangle", 18528, 0.1),
        ("tensor-sketch:2048", 2048, 0.11),
    ):
        cell = ("compare", "bark", "tiny", pooling, d)
        images = {"test images": 400}
        found += [
            Record(*cell, "linear", "error", error, details=images),
            Record(*cell, "linear", "mean AP", 0.8, details=images),
            Record(*cell, "", "bytes", 2 * d),
            Record(*cell, "", "ms", 1.25),
            Record(*cell, "", "% of the backbone", 12.5),
            *(Record(*cell, "few-shot", "error", 0.5 + draw / 10, seed=draw, details={"shots": 1}) for draw in (0, 1)),
        ]
        if error > 0.1:
            about = {"from": "full-bilinear-triangle", "standard error": 0.012}
            found.append(Record(*cell, "linear", "error above the best", error - 0.1, details=about))
    return found

"""Images listed in a table: columns ``path``, and where they are known ``label`` and ``split``.

::

    path,label,split
    images/bark/000.jpg,bark,train
    images/brick/004.jpg,brick,test

Paths start from the folder of the CSV. Without a column ``split``, a split is drawn from a seed; without a column ``label``
there is nothing to learn from, but to search in and to label. Other columns are passed over. Commas, semicolons or tabs.
"""

import csv
import io
from pathlib import Path

from .image_list import SPLITS, UNLABELLED, ImageList, require_files, stratified


def read(file: Path, *, test_share: float = 0.5, seed: int = 0) -> ImageList:
    """List the images of a CSV.

    Args:
        file: the CSV, in UTF-8.
        test_share: where there is no column ``split``, the part of each class that is tested on.
        seed: what that split is drawn from.
    """
    rows = _rows(file)
    columns = rows[0][1].keys()
    seen: dict[str, int] = {}
    for line, row in rows:
        for column in ("path", "label", "split"):
            if column in columns and not row[column]:
                raise ValueError(f"Line {line} of {file} has no {column}.\nFill it in, or remove the line.")
        if "split" in columns and row["split"].lower() not in SPLITS:
            raise ValueError(f"Line {line} of {file} has the split {row['split']!r}.\nWrite train, test or val.")
        first = seen.setdefault(Path(row["path"]).as_posix(), line)
        if first != line:
            raise ValueError(f"Line {line} of {file} lists {row['path']}, as line {first} does.\nRemove one of the two.")
    paths = tuple(seen)
    classes = tuple(sorted({row["label"] for _, row in rows})) if "label" in columns else ()
    label = {name: number for number, name in enumerate(classes)}
    labels = tuple(label[row["label"]] if classes else UNLABELLED for _, row in rows)
    if "split" in columns:
        splits = tuple(SPLITS[row["split"].lower()] for _, row in rows)
    else:
        splits = stratified(paths, labels, test_share, seed) if classes else ("",) * len(rows)
    images = ImageList(file.stem, file.parent, classes, paths, labels, splits)
    require_files(images, file.name, "Paths start from the folder of the CSV, with / between folders.")
    trained = {label for label, split in zip(labels, splits, strict=True) if split == "train"}
    untrained = set(labels) - trained
    if trained and untrained:
        raise ValueError(
            f"Every class in {file} should have training images, but {len(untrained)} have none, {classes[min(untrained)]} for "
            "one.\nAdd lines of theirs with the split train, or remove the class."
        )
    return images


def _rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Number of the line and its values, stripped, by names of columns in small letters."""
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ValueError(f"{file} is not in UTF-8: {fault.reason} at byte {fault.start}.\nSave it in that encoding.") from fault
    header = text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [value.strip() for value in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as fault:
        raise ValueError(f"Line {reader.line_num} of {file} cannot be read: {fault}.\nMend its quotes.") from fault
    columns = [name.lower() for name in lines[0][1]] if lines else []
    if "path" not in columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"A list of images has columns path, label and split, but the first line of {file} is {header.strip()!r}.\n"
            "Write `path,label,split` there; label and split may be left out."
        )
    for line, values in lines:
        if len(values) != len(columns):
            raise ValueError(
                f"Line {line} of {file} has {len(values)} values for {len(columns)} columns.\n"
                "Put a value that has a comma in it in quotes."
            )
    if len(lines) < 2:
        raise ValueError(f"{file} lists no image.\nAdd a line for each.")
    return [(line, dict(zip(columns, values, strict=True))) for line, values in lines[1:]]

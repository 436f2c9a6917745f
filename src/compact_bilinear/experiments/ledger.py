"""What was measured so far, in a folder: what is there is not measured again, and other settings are not mixed in.

::

    OUT/
    ├── records.jsonl     one number a line, whole or not there
    └── settings.json     all that decides the numbers and may not change between two runs
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..whole_file import undamaged, write_whole
from .records import Record, append_record, read_records

RECORDS, SETTINGS = "records.jsonl", "settings.json"


class Ledger:
    """The records of a folder.

    Args:
        folder: made if need be.

    Attributes:
        records: all that are there, in the order in which they were measured.

    >>> from tempfile import mkdtemp
    >>> ledger = Ledger(Path(mkdtemp()))
    >>> record = Record("table4", "CUB", "vgg16", "tensor-sketch:8192", 8192, "linear", "error", 0.205)
    >>> ledger.has(record)
    False
    >>> ledger.keep(record)
    >>> ledger.has(record)
    True
    """

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"Records go into a folder, but {folder} is a file.\nGive a folder: --out reproduced.")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file = folder, folder / RECORDS
        self.records = read_records(self.file) if self.file.exists() else []
        self._known = {_place(record) for record in self.records}

    def has(self, record: Record) -> bool:
        """Whether there is a record of the same cell and draw, whatever its number."""
        return _place(record) in self._known

    def keep(self, record: Record) -> None:
        """Write a record down."""
        append_record(self.file, record)
        self.records.append(record)
        self._known.add(_place(record))

    def elsewhere(self, record: Record) -> Record | None:
        """The same cell and draw as another experiment measured it."""
        same = (each for each in self.records if _place(each)[1:] == _place(record)[1:])
        return next(same, None)

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Go on if settings are those of before; new ones are noted.

        Args:
            settings: by a name that a reader understands, what JSON can hold.
        """
        file = self.folder / SETTINGS
        before: dict[str, Any] = {}
        if file.exists():
            with undamaged(file):
                before = dict(json.loads(file.read_text("utf-8")))
        changed = [
            f"{name}: {_shown(before[name])} → {_shown(value)}"
            for name, value in settings.items()
            if before.get(name, value) != value
        ]
        if changed:
            raise ValueError(
                f"{self.folder} holds records that were measured otherwise; changed are {'; '.join(changed)}.\n"
                "Give another folder with --out for the new settings, or the old settings to go on."
            )
        if settings.keys() - before.keys():
            together = dict(sorted((before | dict(settings)).items()))
            write_whole(file, json.dumps(together, indent=2, ensure_ascii=False) + "\n")


def _place(record: Record) -> tuple[Any, ...]:
    """What tells a record from others before it is measured: not its number, nor d, which its pooling decides."""
    experiment, data, backbone, pooling, _, stage, measure, apart = record.cell
    return experiment, data, backbone, pooling, stage, measure, apart, record.draw


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"{text[1:13]}…" if isinstance(value, str) and len(value) == 64 else text  # a checksum

"""What happened, step by step and epoch by epoch: a line of JSON each; and the same for TensorBoard, if it is installed."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..whole_file import write_whole

FILE = "log.jsonl"


class Log:
    """``RUN/log.jsonl``, and ``RUN/tensorboard`` where TensorBoard is installed.

    A run that goes on cuts off what was written after its checkpoint, so that nothing is there twice.

    Args:
        folder: of the run; None for processes that write nothing.
        lines: how many to keep.
        step: the step that the run goes on from.
    """

    def __init__(self, folder: Path | None, lines: int, step: int) -> None:
        self.lines = lines
        self.file = self.board = None
        if folder is None:
            return
        path = folder / FILE
        before = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        kept = [line for line in before[:lines] if line.endswith("\n")]  # a power cut may have taken the end
        write_whole(path, "".join(kept))
        self.lines = len(kept)
        self.file = path.open("a", encoding="utf-8", newline="\n")
        self.board = _board(folder / "tensorboard", step)

    def write(self, event: str, step: int, numbers: dict[str, Any]) -> None:
        """One line, which is there at once.

        Args:
            event: "step" or "epoch".
            step: how many steps are done.
            numbers: and whatever else there is to say.
        """
        if self.file is None:
            return
        self.file.write(json.dumps({"event": event, "step": step, **numbers}, ensure_ascii=False) + "\n")
        self.file.flush()
        self.lines += 1
        if self.board is not None:
            for name, value in numbers.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{event}/{name}", value, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)

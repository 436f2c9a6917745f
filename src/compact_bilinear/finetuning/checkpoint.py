"""All that a run needs to go on, in one file: tensors, and a JSON text beside them that says where it was.

::

    RUN/checkpoints/
    ├── step-00001200.safetensors   model/..., optimizer/...; the newest two are kept
    ├── step-00001350.safetensors
    └── best-00007.safetensors      the model after epoch 7, while no other was better on the images held out
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..fingerprint import fingerprint
from ..images import ImageList
from ..model import Model
from ..progress import note
from ..whole_file import WholeFile
from .places import Places
from .settings import FineTuning

FOLDER = "checkpoints"
KEPT = 2  # if the newest was damaged on the disk, there is one more


@dataclass
class State:
    """Where a run is, and the sums of the epoch so far."""

    epoch: int = 0
    """Epochs that are complete."""
    batch: int = 0
    """Batches of the next epoch that are done."""
    step: int = 0
    """Batches that are done, of all epochs."""
    seen: int = 0
    """Images of this epoch so far, without broken ones."""
    broken: int = 0
    """Images of this epoch that gave none."""
    loss: float = 0.0
    """The sum over the images seen."""
    wrong: int = 0
    """How many of them had another class before their step."""
    best: dict[str, float] = field(default_factory=dict)
    """The best epoch on the images held out: epoch, error, loss."""
    worse: int = 0
    """Epochs since then."""
    lines: int = 0
    """Lines of the log."""
    scaler: dict[str, float] = field(default_factory=dict)
    """Of a GradScaler, where there is one."""

    @property
    def best_file(self) -> str:
        """The name of the file with the best epoch's model."""
        return f"best-{self.best['epoch']:05}.safetensors"


def identity(model: Model, images: ImageList, places: Places, settings: FineTuning) -> dict[str, Any]:
    """What a run was begun with and goes on with. The head is not in it: the checkpoint has it."""
    rows = [[(place, images.paths[place], images.labels[place]) for place in some] for some in places]
    return settings.decisive() | {
        "backbone": model.backbone.name,
        "tap": getattr(model.backbone, "tap", None),
        "backbone sha256": fingerprint(model.backbone)[:12],
        "pooling": str(model.named),
        "pooling sha256": fingerprint(model.pooling)[:12],
        "normalize": model.normalize,
        "damping": model.damping,
        "transform": model.transform.to_json(),
        "loss": model.link,
        "classes": len(model.classes),
        "images": len(places.train) + len(places.held),
        "images sha256": hashlib.sha256(json.dumps([rows, model.classes]).encode()).hexdigest()[:12],
    }


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: of the run.
        run: what :func:`identity` gives.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder, self.run = folder / FOLDER, dict(run)

    def find(self) -> int:
        """The step of the newest checkpoint that can be read, -1 if there is none.

        Raises:
            ValueError: the run was begun with other settings, or images, or none of its checkpoints can be read.
        """
        damaged: list[str] = []
        for file in reversed(self._files()):
            try:
                about = _about(file)
            except Exception as fault:  # safetensors has exceptions of its own
                damaged.append(file.name)
                note(f"fine-tune: {file} is damaged ({str(fault).splitlines()[0]}), looking for an older one")
                continue
            self._refuse_changes(about["run"])
            return int(about["state"]["step"])
        if damaged:
            raise ValueError(
                f"Fine-tuning goes on from a checkpoint in {self.folder}, but none of {', '.join(damaged)} can be read.\n"
                "Copy them anew, or remove that folder to begin anew."
            )
        return -1

    def read(self, step: int) -> tuple[State, dict[str, Tensor]]:
        """The checkpoint of a step that :meth:`find` found."""
        from safetensors.torch import load_file

        file = self.file(step)
        return State(**_about(file)["state"]), load_file(file)

    def write(self, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Write the checkpoint of a step, and remove what is older than needed."""
        newest = self.file(state.step)
        for damaged in (file for file in self._files() if file > newest):  # or the run would have gone on from there
            damaged.unlink(missing_ok=True)
        self._write(newest, {"run": self.run, "state": asdict(state)}, tensors)
        old = self._files()[:-KEPT]
        wanted = {State(**_about(file)["state"]).best_file for file in self._files()[-KEPT:] if _about(file)["state"]["best"]}
        for file in [*old, *(each for each in self.folder.glob("best-*.safetensors") if each.name not in wanted)]:
            file.unlink(missing_ok=True)

    def write_best(self, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Write the model that is the best so far; the next checkpoint will name it."""
        self._write(self.folder / state.best_file, {"run": self.run, "best": state.best}, tensors)

    def read_best(self, state: State) -> dict[str, Tensor]:
        """The model that was the best."""
        from safetensors.torch import load_file

        return load_file(self.folder / state.best_file)

    def newest(self) -> str:
        """The newest one, for people."""
        return str(files[-1]) if (files := self._files()) else "none yet"

    def file(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08}.safetensors"

    def _write(self, file: Path, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save

        self.folder.mkdir(parents=True, exist_ok=True)
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with WholeFile(file) as part:
            part.write_bytes(save(plain, {"about": json.dumps(about)}))

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.safetensors"))

    def _refuse_changes(self, before: Mapping[str, Any]) -> None:
        changes = [
            f"{name}: {json.dumps(before.get(name))} → {json.dumps(self.run.get(name))}"
            for name in sorted(before.keys() | self.run.keys())
            if before.get(name) != self.run.get(name)
        ]
        if changes:
            raise ValueError(
                f"{self.folder} is of a run that was begun otherwise; changed are {'; '.join(changes)}.\n"
                "Give another folder for the new settings, or the old settings to go on; remove the folder to begin anew."
            )


def put(target: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a module the tensors ``model/...`` of a checkpoint; its own stay where they are, and in their layout."""
    target.load_state_dict({name.removeprefix("model/"): each for name, each in tensors.items() if name.startswith("model/")})


def taken(source: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module as a checkpoint names them."""
    return {f"model/{name}": tensor for name, tensor in source.state_dict().items()}


def finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values() if tensor.is_floating_point())


def _about(file: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(file, "pt") as tensors:
        about: dict[str, Any] = json.loads(tensors.metadata()["about"])
    return about

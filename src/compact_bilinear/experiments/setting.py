"""What an experiment is asked for, and what it gives to be shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..device import Precision
from ..finetuning.settings import FineTuning
from .ledger import Ledger
from .only import Only
from .origin import made
from .records import Record
from .sources import Source

if TYPE_CHECKING:
    from ..features import FeatureStore
    from ..report.drawing import Drawing
    from ..report.table import Table

REPETITIONS = 3


@dataclass(frozen=True)
class Setting:
    """What is the same for all numbers of a run.

    Args:
        ledger: where records go, and those that are there.
        sources: the images; none where an experiment needs none.
        only: what part of it.
        backbones: which, in place of the paper's for an experiment.
        weights: a file for the one backbone.
        dims: in place of the paper's.
        seeds: repetitions; 0 for three, or one for each split.
        size: side of the images; 0 for what the backbone is meant for.
        lambda_, one_vs_rest, calibrate: of the logistic regression.
        finetune: whether stages after the linear classifier are run.
        tuning: how; its usual batch stands for the paper's.
        device, precision, workers: where, in what, and how many processes decode images.
    """

    ledger: Ledger
    sources: tuple[Source, ...] = ()
    only: Only = field(default_factory=Only)
    backbones: tuple[str, ...] = ()
    weights: str | None = None
    dims: tuple[int, ...] = ()
    seeds: int = 0
    size: int = 0
    lambda_: float = 1e-3
    one_vs_rest: bool = False
    calibrate: bool = False
    finetune: bool = True
    tuning: FineTuning = field(default_factory=FineTuning)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: Precision = "auto"
    workers: int | None = None

    @property
    def out(self) -> Path:
        """The folder of everything that is made."""
        return self.ledger.folder

    def chosen_backbones(self, usual: Sequence[str]) -> tuple[str, ...]:
        """Those that were asked for, or the paper's for an experiment; not those that ``only`` excludes."""
        wanted = self.backbones or tuple(usual)
        return tuple(name for name in wanted if not self.only.backbones or name in self.only.backbones)

    def chosen_sources(self) -> tuple[Source, ...]:
        """Those that ``only`` allows."""
        return tuple(source for source in self.sources if not self.only.data or source.name in self.only.data)

    def repetitions(self, source: Source | None = None, usual: int = REPETITIONS) -> range:
        """The numbers of the repetitions: as asked for, or one for each split of a data set that has several."""
        splits = len(source.lists) if source is not None else 1
        return range(self.seeds or (splits if splits > 1 else usual))

    def config(self, store: "FeatureStore", **more: Any) -> dict[str, Any]:
        """What a record says of its settings, where it is made from features."""
        made = store.manifest["settings"]
        weights = Path(self.weights).name if self.weights else "published"
        config = {"weights": weights} | {name: made[name] for name in ("size", "tap", "fit", "precision")}
        return config | {"lambda": self.lambda_, "one_vs_rest": self.one_vs_rest, "calibrate": self.calibrate} | more

    def made(self, seconds: float, **more: Any) -> dict[str, Any]:
        """What a record says of its origin."""
        return made(self.device.type, seconds=round(seconds, 3), **more)


class Experiment(NamedTuple):
    """One table or figure of the paper."""

    title: str
    measure: Callable[[Setting], None]
    """Measure whatever the ledger has not."""
    tables: Callable[[Sequence[Record]], Mapping[str, "Table"]]
    """Of the experiment's records: tables by the name of their file."""
    drawings: Callable[[Sequence[Record]], Mapping[str, "Drawing"]]
    """Likewise, figures."""
    texts: Mapping[str, str] = MappingProxyType({})
    """What a reader has to know of the numbers: of those of one data set by its name, of all by an empty one."""
    images: bool = True
    """Whether it needs images."""

    def text(self, records: Sequence[Record]) -> str:
        """What a reader has to know of these records."""
        there = {"", *(record.data for record in records)}
        return " ".join(text for data, text in self.texts.items() if data in there)

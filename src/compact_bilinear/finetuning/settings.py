"""All that decides how a model is fine-tuned. The defaults are the paper's, with images flipped at random."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..device import Precision

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["constant", "cosine", "step"]

# they change speed and the last digits, and may be changed between a run and its continuation
FREE = ("accumulate", "channels_last", "compile", "deterministic", "workers", "checkpoint_minutes")


@dataclass(frozen=True)
class FineTuning:
    """How a model is fine-tuned.

    >>> FineTuning(rate=1e-4, schedule="cosine", hold_out=0.2, patience=5).batch
    32
    >>> FineTuning(epochs=-1)
    Traceback (most recent call last):
    ValueError: FineTuning takes epochs ≥ 0, but got -1.
    Leave it out for 50.
    """

    epochs: int = 50
    """How often every training image is seen; the paper stays below 100."""
    batch: int = 32
    """Images a step, in all processes together; the paper has 32 for VGG-M and 8 for VGG-16."""
    optimizer: Optimizer = "sgd"
    """sgd with momentum, as in the paper, or adamw, which wants rates around 1e-5."""
    rate: float = 1e-3
    """The learning rate; the paper's is 1e-3 throughout."""
    momentum: float = 0.9
    """Of sgd; adamw takes it as β₁."""
    weight_decay: float = 5e-4
    """How much weights are drawn to zero: added to the gradient with sgd, apart from it with adamw."""
    decay_biases: bool = True
    """Weight decay is for all numbers, as in the programs of the time, unless this flag leaves out biases and the scales of
    normalisation layers."""
    schedule: Schedule = "constant"
    """How the rate goes on: constant, as in the paper; cosine, down to 0; or step, to a tenth every `step_epochs`."""
    step_epochs: int = 20
    """Epochs after which the schedule step goes down."""
    warm_up: float = 0.0
    """Epochs in which the rate rises from 0 first. The gradients of a fresh optimiser are its noisiest."""
    head_rate: float = 1.0
    """Factor of the rate for the linear classifier on top."""
    projection_rate: float = 1.0
    """Factor of the rate for the projection, if it is learned."""
    backbone_rate: float = 1.0
    """Factor of the rate for the backbone; 0.1 keeps it near its pretrained weights."""
    layer_decay: float = 1.0
    """Factor between the rate of a layer of the backbone and that of the layer before it; 0.8 spares the early layers."""
    freeze: int | Literal["backbone"] = 0
    """How many of the backbone's first layers stay as they are, or all: backbone. For few images, and faster."""
    learn_projection: bool = False
    """Train the projection too: the signs of Tensor Sketch, W of Random Maclaurin, the components of PCA. Pays for small d."""
    batch_statistics: bool = False
    """Where a backbone has batch normalisation, it goes by the images of each batch and keeps a running mean, in place of the
    pretrained statistics; for large batches. Every process goes by its own images."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes."""
    flip: bool = True
    """Exchange left and right of every other image, drawn anew each time."""
    crop: bool = False
    """Cut a random square of each image, drawn anew each time; for models whose images are cut (center-crop) later, too."""
    damping: float | None = None
    """The authors' backward pass of the square root, 0.1 or 0.03; the true derivative, held within bounds, if not given."""
    clip: float = 0.0
    """The longest gradient, in ℓ₂, that a step is taken with; 0 for any."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    accumulate: int = 1
    """Parts in which a process computes its share of a batch, one after the other, where memory is short."""
    channels_last: bool = True
    """The backbone keeps its numbers as GPUs like them."""
    compile: bool = False
    """Let torch.compile make the network faster; the first steps take minutes."""
    deterministic: bool = True
    """On a GPU operations give the same bits each time, unless this flag takes others that may be faster."""
    hold_out: float = 0.0
    """Share of the training images, in every class, that is not trained on but measures every epoch; the best epoch is kept,
    which may be that before the first."""
    patience: int = 0
    """Epochs without a better one, on the images held out, after which it stops; 0 for never."""
    checkpoint_minutes: float = 10.0
    """Minutes after which a checkpoint is written within an epoch. At the end of each epoch there is one anyway."""
    seed: int = 0
    """What the order of the images, crops, flips, dropout and the images held out are drawn from."""
    workers: int | None = None
    """Processes that decode images: with a GPU one for each core, up to 16, and one without."""

    def __post_init__(self) -> None:
        for name, least in {"epochs": 0, "batch": 1, "step_epochs": 1, "accumulate": 1, "patience": 0, "seed": 0}.items():
            self._require(name, f"≥ {least}", getattr(self, name) >= least)
        for name in ("rate", "weight_decay", "warm_up", "head_rate", "projection_rate", "backbone_rate", "clip"):
            self._require(name, "≥ 0", 0 <= getattr(self, name) < float("inf"))
        for name in ("momentum", "label_smoothing", "hold_out"):
            self._require(name, "from 0 to below 1", 0 <= getattr(self, name) < 1)
        self._require("layer_decay", "above 0, up to 1", 0 < self.layer_decay <= 1)
        self._require("checkpoint_minutes", "≥ 0", self.checkpoint_minutes >= 0)
        self._require("damping", "> 0", self.damping is None or self.damping > 0)
        self._require(
            "freeze", "≥ 0 or 'backbone'", self.freeze == "backbone" or (type(self.freeze) is int and self.freeze >= 0)
        )
        self._require("workers", "≥ 0", self.workers is None or self.workers >= 0)
        for name, known in (("optimizer", Optimizer), ("schedule", Schedule), ("precision", Precision)):
            self._require(name, " or ".join(map(repr, get_args(known))), getattr(self, name) in get_args(known))
        if self.patience and not self.hold_out:
            raise ValueError(
                f"Patience looks at images held out, but got patience={self.patience} and hold_out=0.\n"
                "Write hold_out=0.2 beside it, for instance, or leave patience out."
            )

    def _require(self, name: str, what: str, holds: bool) -> None:
        if not holds:
            usual = type(self).__dataclass_fields__[name].default
            raise ValueError(f"FineTuning takes {name} {what}, but got {getattr(self, name)!r}.\nLeave it out for {usual!r}.")

    def decisive(self) -> dict[str, Any]:
        """The settings without which a run would have been another one."""
        return {name: value for name, value in asdict(self).items() if name not in FREE}

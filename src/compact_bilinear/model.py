"""Images to scores, as one module: backbone → pooling → signed square root and ℓ₂ → a linear head.

A model is kept in a folder as two files: ``model.json``, and ``model-<start of its checksum>.safetensors`` which it names. They
hold everything that is needed to use it on another machine, and nothing that would be executed there.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .descriptors import CustomBackbone, empty_backbone
from .descriptors.network import load_network
from .fingerprint import fingerprint
from .images import Transform
from .normalize import signed_sqrt_l2
from .pooling.by_name import NamedPooling, read_pooling
from .whole_file import WholeFile, undamaged, write_whole

if TYPE_CHECKING:  # who uses a model has no need of a store
    from .features import FeatureStore

SETTINGS = "model.json"
FORMAT = "compact-bilinear model"
FORMAT_VERSION = 1

Link = Literal["softmax", "sigmoid"]


class Model(nn.Module):
    """Images (b, 3, h, w) → scores (b, k) of k classes; without classes, features (b, d).

    Args:
        backbone: as :func:`~compact_bilinear.descriptors.load_backbone` gives it; any other module is asked what it gives.
        pooling: as text, "tensor-sketch:8192", so that the model can be saved. PCA and Fisher vectors are still to be fitted.
        classes: names of the k classes. The head begins with zeros: see :meth:`set_head`.
        transform: how image files become pixels; by default stretched to the size that the backbone is meant for.
        normalize: signed square root and ℓ₂ follow the pooling.
        damping: of :func:`~compact_bilinear.signed_sqrt_l2`, the authors' backward pass.
        learnable: the projection of the pooling is to be trained.
        link: what makes probabilities of scores: "softmax", or "sigmoid" for classes that were trained one against the rest.

    >>> from compact_bilinear.descriptors import load_backbone
    >>> model = Model(load_backbone("tiny"), "tensor-sketch:64", classes=("crow", "wren"), transform=Transform(size=40))
    >>> model(torch.zeros(3, 3, 40, 40, dtype=torch.uint8)).shape
    torch.Size([3, 2])
    >>> print(model.describe())
    images (b, 3, 40, 40)
    → tiny, tap conv4          1,356,736 parameters   (b, 192, 5, 5)
    → tensor-sketch:64                 0 parameters   (b, 64)
    → signed square root, ℓ₂                          (b, 64)
    → linear                         130 parameters   (b, 2)
    """

    def __init__(
        self,
        backbone: nn.Module,
        pooling: NamedPooling | str,
        classes: Sequence[str] = (),
        *,
        transform: Transform | None = None,
        normalize: bool = True,
        damping: float | None = None,
        learnable: bool = False,
        link: Link = "softmax",
    ) -> None:
        super().__init__()
        seen: Any = backbone if hasattr(backbone, "channels") else CustomBackbone(backbone)
        self.backbone: Any = seen
        self.named = pooling if isinstance(pooling, NamedPooling) else read_pooling(pooling)
        layer: Any = self.named.build(seen.channels, learnable)
        self.pooling: Any = layer
        self.classes = tuple(classes)
        self.transform = transform or Transform(size=seen.image_size)
        self.normalize, self.damping, self.learnable, self.link = normalize, damping, learnable, link
        self.head = _zero_head(layer.dim, len(self.classes)) if self.classes else None
        self.made: dict[str, Any] = {}  # what its maker wants to be known later; saved as it is

    @classmethod
    def of_features(cls, store: "FeatureStore", pooling: str, weights: Path | str | None = None, **settings: Any) -> Self:
        """The model that computes what a feature store holds.

        Args:
            store: made by ``cbp extract``.
            pooling: one of the store's.
            weights: the file of the backbone's weights, if the store was made with one's own; or the folder of the model, if
                it was made with one.
            settings: ``classes`` and whatever else :class:`Model` takes; without classes it gives features.

        Backbone and pooling are compared with the fingerprints of those that the store was made with.
        """
        if pooling not in store.poolings:
            raise ValueError(f"{store.folder} has no features {pooling!r}.\nIt has {', '.join(store.poolings)}.")
        if weights is not None and (Path(weights) / SETTINGS).is_file():
            trained = load_model(weights)
            settings = {"learnable": trained.learnable, "damping": trained.damping} | settings
            backbone, transform, projection = trained.backbone, trained.transform, trained.pooling.state_dict()
        else:
            backbone, transform = _backbone_of(store, read_pooling(pooling), weights)
            projection = _fitted_of(store, pooling)
        made = store.manifest["settings"]
        if fingerprint(backbone) != made["weights sha256"]:
            raise ValueError(
                f"{store.folder} was made with other weights of {backbone.name} than {weights or 'the published ones'}.\n"
                "Give what the features were made with: --weights FILE, or the folder of the model."
            )
        model = cls(backbone, pooling, transform=transform, normalize=made["normalize"], **settings)
        if projection:
            model.pooling.load_state_dict(projection)
        drawn = store.manifest["poolings"][pooling]["sha256"]
        if fingerprint(model.pooling) != (drawn or store.manifest["fitted"][pooling]):
            raise ValueError(
                f"{store.folder} was made with another {pooling} than {weights or 'that which its seed draws here'}.\n"
                "Give the folder of the model that the features were made with: --weights FOLDER."
            )
        return model.eval()

    def features(self, images: Tensor) -> Tensor:
        """What the head sees: (b, d), in float32 or wider."""
        return self.normalized(self.pooling(self.backbone(images)))

    def normalized(self, y: Tensor) -> Tensor:
        """Pooled y (b, d) to features: signed square root and ℓ₂, unless the model goes without."""
        return signed_sqrt_l2(y, damping=self.damping) if self.normalize else y

    def scores(self, features: Tensor) -> Tensor:
        """Features (b, d) to scores (b, k). In full precision also under autocast: differences of scores are small."""
        if self.head is None:
            raise ValueError("This model has no classes, and so no scores.\nTake `features(images)`, or load one with classes.")
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features.to(self.head.weight.dtype), self.head.weight, self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)
        return features if self.head is None else self.scores(features)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores (b, k) to probabilities that sum to 1."""
        # of sigmoids, relative to the largest: far from all classes each of them may be too small for a number
        return (scores if self.link == "softmax" else F.logsigmoid(scores)).softmax(1)

    @torch.no_grad()
    def set_head(self, weight: Tensor, bias: Tensor, link: Link = "softmax") -> Self:
        """Give the head the weights (k, d) and biases (k,) of a linear classifier."""
        if self.head is None:
            raise ValueError("A head has a row for each class, but this model has no classes.\nBuild it with classes=(...).")
        if weight.shape != self.head.weight.shape or bias.shape != self.head.bias.shape:
            k, d = self.head.weight.shape
            raise ValueError(
                f"The head takes weights (k={k}, d={d}) and biases (k={k},) but got {tuple(weight.shape)} and "
                f"{tuple(bias.shape)}.\nTrain the classifier on features of this model, for all of its classes."
            )
        self.head.weight.copy_(weight)
        self.head.bias.copy_(bias)
        self.link = link
        return self

    def describe(self) -> str:
        """What happens to an image, line by line: shapes, and how many numbers can be trained."""
        side = self.transform.size
        some = next(self.backbone.parameters(), torch.empty(0))
        with torch.no_grad():
            maps = self.backbone(torch.zeros(1, 3, side, side, dtype=torch.uint8, device=some.device))
        tap = f", tap {self.backbone.tap}" if getattr(self.backbone, "tap", None) else ""
        d = self.pooling.dim
        lines = [
            (f"{self.backbone.name}{tap}", _count(self.backbone), tuple(maps.shape[1:])),
            (str(self.named), _count(self.pooling), (d,)),
        ]
        if self.normalize:
            lines.append(("signed square root, ℓ₂", "", (d,)))
        if self.head is not None:
            lines.append(("linear", _count(self.head), (len(self.classes),)))
        width, digits = (max(len(line[column]) for line in lines) for column in (0, 1))
        rows = (
            f"→ {name:<{width}}   {numbers:>{digits}}   (b, {', '.join(map(str, shape))})" for name, numbers, shape in lines
        )
        return "\n".join([f"images (b, 3, {side}, {side})", *rows])

    def save(self, folder: Path | str) -> None:
        """Write it into a folder, over another one if need be; killed in the middle, the old model is still there whole."""
        from safetensors.torch import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        data = save({name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()})
        sha256 = hashlib.sha256(data).hexdigest()
        tensors = folder / f"model-{sha256[:12]}.safetensors"
        with WholeFile(tensors) as part:
            part.write_bytes(data)
        settings = self._settings() | {"tensors": {"file": tensors.name, "bytes": len(data), "sha256": sha256}}
        write_whole(folder / SETTINGS, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
        for old in folder.glob("model-*.safetensors"):
            if old != tensors:
                old.unlink(missing_ok=True)

    def _settings(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "backbone": self.backbone.name,
            "tap": getattr(self.backbone, "tap", None),
            "pooling": str(self.named),
            "learnable": self.learnable,
            "normalize": self.normalize,
            "damping": self.damping,
            "link": self.link,
            "transform": json.loads(self.transform.to_json()),
            "classes": list(self.classes),
            "made": self.made,
        }


def load_model(folder: Path | str, device: torch.device | str = "cpu", backbone: nn.Module | None = None) -> Model:
    """A model that :meth:`Model.save` wrote, in evaluation mode.

    Args:
        folder: with ``model.json`` and the file that it names.
        device: where to.
        backbone: the module, if the model was made with one that has no name; its weights are replaced.
    """
    from safetensors.torch import load

    folder = Path(folder)
    settings = read_settings(folder)
    tensors = folder / Path(settings["tensors"]["file"]).name  # a name, and no way out of the folder
    data = tensors.read_bytes() if tensors.is_file() else b""
    if hashlib.sha256(data).hexdigest() != settings["tensors"]["sha256"]:
        raise ValueError(
            f"{tensors} should have the {settings['tensors']['bytes']} bytes that {SETTINGS} beside it tells of, but has "
            f"{f'{len(data)} that differ' if data else 'none'}.\nCopy the folder anew, or make the model again."
        )
    if backbone is None:
        if settings["backbone"] == "custom":
            raise ValueError(
                f"The model in {folder} was made with a module as its backbone, which has no name to load it by.\n"
                "Write `load_model(folder, backbone=module)`."
            )
        backbone = empty_backbone(settings["backbone"], settings["tap"])
    model = Model(
        backbone,
        settings["pooling"],
        settings["classes"],
        transform=Transform.from_json(json.dumps(settings["transform"])),
        normalize=settings["normalize"],
        damping=settings["damping"],
        learnable=settings["learnable"],
        link=settings["link"],
    )
    model.load_state_dict(load(data), assign=True)
    model.made = settings["made"]
    model.backbone.to(memory_format=torch.channels_last)
    return model.to(device).eval()


def _backbone_of(store: "FeatureStore", named: NamedPooling, weights: Path | str | None) -> tuple[Any, Transform]:
    """The backbone that a store was made with, by its name, and what became of images before it."""
    made = store.manifest["settings"]
    if made["backbone"] == "custom":
        raise ValueError(
            f"The features of {store.folder} were made by a module, which has no name to load it by.\n"
            "Build `Model(module, pooling, ...)` in Python."
        )
    cpu = torch.device("cpu")
    early = named.before_relu
    network = load_network(made["backbone"], weights, made["tap"], before_relu=early, size=made["size"], device=cpu)
    return network.module, Transform(size=network.size, fit=made["fit"])


def _fitted_of(store: "FeatureStore", pooling: str) -> dict[str, Tensor]:
    """What a pooling was fitted to; nothing if it is not of that kind."""
    from safetensors.torch import load_file

    from .features.layout import FITTED

    if pooling not in store.manifest["fitted"]:
        return {}
    with undamaged(store.folder / FITTED):
        tensors = load_file(store.folder / FITTED)
    return {name.removeprefix(f"{pooling}/"): each for name, each in tensors.items() if name.startswith(f"{pooling}/")}


def read_settings(folder: Path) -> Mapping[str, Any]:
    """What ``model.json`` says, without the tensors."""
    file = folder / SETTINGS
    if not file.is_file():
        there = "does not exist" if not folder.exists() else f"has no {SETTINGS}"
        raise ValueError(
            f"A model is a folder that `cbp train` made, but {folder} {there}.\nCheck its name, or train a model into it."
        )
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        kind, version = settings["format"], settings["format_version"]
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(
            f"{file} does not describe a model: {type(fault).__name__}, {fault}.\n"
            "Copy the folder anew, or make the model again."
        ) from fault
    if (kind, version) != (FORMAT, FORMAT_VERSION):
        raise ValueError(
            f"A model of format version {FORMAT_VERSION} can be read, but {file} says {kind!r}, version {version!r}.\n"
            "Read it with the version of compact-bilinear that made it, or make it again."
        )
    result: Mapping[str, Any] = settings
    return result


def _zero_head(d: int, k: int) -> nn.Linear:
    head: nn.Linear = nn.utils.skip_init(nn.Linear, d, k)  # torch would draw numbers that nobody wants
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _count(module: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in module.parameters()):,} parameters"

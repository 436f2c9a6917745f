"""``timm:<name>``: the last feature map, or the tokens, of any model of the timm collection.

timm needs torchvision, whose compiled part has to fit the installed torch; both are the user's to install, as the extra
``[timm]``, and are imported here and nowhere else.
"""

from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from .custom import CustomBackbone
from .weights import fitted, read_tensors


class LastFeatures(nn.Module):
    """What a timm model has before its pooling: a map with the channels second, or tokens without class and register tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        # models that do not say how many of their tokens are none of the image have either one class token or none
        has_class_token = getattr(model, "cls_token", None) is not None
        self.prefix = int(getattr(model, "num_prefix_tokens", has_class_token))
        self.channels_last = str(getattr(model, "output_fmt", "NCHW")).upper().endswith("NHWC")

    def forward(self, x: Tensor) -> Tensor:
        y = self.model.forward_features(x)  # type: ignore[operator]
        if isinstance(y, Tensor) and y.ndim == 4 and self.channels_last:
            return y.permute(0, 3, 1, 2)
        if isinstance(y, Tensor) and y.ndim == 3:
            return y[:, self.prefix :]
        return y  # type: ignore[no-any-return]  # a map, or something that CustomBackbone will refuse


def load_timm(name: str, weights: Path | str | None = None) -> CustomBackbone:
    """A timm model as a backbone, with the mean, scale and image size of its own configuration.

    Args:
        name: as timm calls it, with or without the tag of its weights: "resnet50", "resnet50.a1_in1k".
        weights: a .safetensors or .pth file for this model; None for timm's own, which timm downloads and keeps.
    """
    timm = _timm_with(name)
    if weights is None:
        try:
            model = timm.create_model(name, pretrained=True, num_classes=0)
        except Exception as failure:  # what the hub's client raises without a connection changes from version to version
            raise OSError(
                f"timm could not bring the weights of {name}: {failure}.\n"
                "Go online once, or pass a file of weights for this model."
            ) from failure
    else:
        model = _drawn(name)
        _fill(model, name, Path(weights))
    return _as_backbone(name, model)


def empty_timm(name: str) -> CustomBackbone:
    """A timm model as a backbone whose weights are still to come, drawn at random so far."""
    return _as_backbone(name, _drawn(name))


def _drawn(name: str) -> nn.Module:
    timm = _timm_with(name)
    with torch.random.fork_rng():  # what is drawn is overwritten, and nobody else's numbers shall depend on it
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    return model


def _as_backbone(name: str, model: nn.Module) -> CustomBackbone:
    settings: Any = model.pretrained_cfg
    return CustomBackbone(
        LastFeatures(model),
        f"timm:{name}",
        mean=settings["mean"],
        scale=settings["std"],
        image_size=settings["input_size"][-1],
    ).eval()


def _timm_with(name: str) -> ModuleType:
    timm = _import_timm()
    if not timm.is_model(name):
        close = get_close_matches(name, timm.list_models(pretrained=True) + timm.list_models(), n=5, cutoff=0.4)
        raise ValueError(f"timm has no model {name!r}.\nSimilar names: {', '.join(dict.fromkeys(close)) or 'none'}.")
    return timm


def _fill(model: nn.Module, name: str, path: Path) -> None:
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    classifier = model.pretrained_cfg["classifier"]  # type: ignore[index]
    unused = {classifier} if isinstance(classifier, str) else set(classifier or ())
    remedy = f"Take a file that timm or `timm.create_model({name!r}).state_dict()` made."
    model.load_state_dict(fitted(f"timm:{name}", path, wanted, read_tensors(path), unused, remedy))


def _import_timm() -> ModuleType:
    try:
        import timm
    except ModuleNotFoundError as failure:
        lacking = failure.name or "timm"
        raise ImportError(
            f"Backbones named timm:… take timm, but {lacking} is not installed.\nWrite `pip install 'compact-bilinear[timm]'`."
        ) from failure
    except (
        Exception
    ) as failure:  # torchvision's compiled part raises RuntimeError if it does not find the torch that it expects
        raise ImportError(
            f"Backbones named timm:… take timm, which cannot be imported here: {failure}.\n"
            f"Most likely torchvision was built for another torch than {torch.__version__}: install the two from one place."
        ) from failure
    return timm  # type: ignore[no-any-return]

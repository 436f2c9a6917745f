"""VGG-M, VGG-D and whatever else is convolutions, ReLUs and pools in a row: the layers are a table, the module reads it.

VGG-D is VGG-16, configuration D of Simonyan & Zisserman, *Very Deep Convolutional Networks*, ICLR 2015. VGG-M is CNN-M of
Chatfield et al., *Return of the Devil in the Details*, BMVC 2014. The fully connected layers are written as the convolutions
that they are, so that images larger than 224×224 give a map of them.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from math import prod
from typing import Any, NamedTuple

from torch import Tensor, nn

from .standardize import per_channel, standardized


class Conv(NamedTuple):
    """A convolution and the ReLU after it."""

    name: str
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0


class Norm(NamedTuple):
    """Local response normalisation across neighbouring channels: x / (k + alpha/size · Σ x²)^beta."""

    name: str
    size: int
    k: float
    alpha: float
    beta: float


class Pool(NamedTuple):
    """Max pooling; with ``ceil`` the last window may reach over the edge."""

    name: str
    kernel: int
    stride: int
    ceil: bool = False


Layer = Conv | Norm | Pool


class Architecture(NamedTuple):
    """What tells one network of this kind from another."""

    name: str
    layers: tuple[Layer, ...]
    taps: Mapping[str, str]  # what a user asks for → the last layer that is run; the first is the default
    image_size: Mapping[str, int]  # tap → side of the images that it is meant for


# Layers, strides and paddings: vgg_m in MatConvNet's examples/imagenet/cnn_imagenet_init.m, which agrees with table 1 of the
# paper of 2014. Its pool2 is padded by one row and column at the end, [0 1 0 1]: for windows of 3 at stride 2 that is `ceil`.
# The normalisation is that of the released weights, not of that script, which trains anew: size 5, k 2, alpha 5e-4, beta 0.75
# in their Caffe definition (Detectron's VGG_CNN_M_1024.py has the same), which MatConvNet's utils/import-caffe.py turned
# into param = [5 2 5e-4/5 0.75].
VGG_M = Architecture(
    name="vgg-m",
    layers=(
        Conv("conv1", 96, kernel=7, stride=2),
        Norm("norm1", size=5, k=2.0, alpha=5e-4, beta=0.75),
        Pool("pool1", kernel=3, stride=2),
        Conv("conv2", 256, kernel=5, stride=2, padding=1),
        Norm("norm2", size=5, k=2.0, alpha=5e-4, beta=0.75),
        Pool("pool2", kernel=3, stride=2, ceil=True),
        Conv("conv3", 512, kernel=3, padding=1),
        Conv("conv4", 512, kernel=3, padding=1),
        Conv("conv5", 512, kernel=3, padding=1),
        Pool("pool5", kernel=3, stride=2),
        Conv("fc6", 4096, kernel=6),
        Conv("fc7", 4096, kernel=1),
    ),
    taps={"conv5": "relu5", "conv5-pre-relu": "conv5", "fc6": "relu6", "fc7": "relu7"},
    image_size={"conv5": 448, "conv5-pre-relu": 448, "fc6": 224, "fc7": 224},
)

# Configuration D in table 1 of the paper of 2015; torchvision's vgg16 and vgg_vd in cnn_imagenet_init.m are the same. Caffe
# lets a pool reach over the edge of an odd map, those two do not, and neither does this.
VGG_D = Architecture(
    name="vgg16",
    layers=(
        Conv("conv1_1", 64, kernel=3, padding=1),
        Conv("conv1_2", 64, kernel=3, padding=1),
        Pool("pool1", kernel=2, stride=2),
        Conv("conv2_1", 128, kernel=3, padding=1),
        Conv("conv2_2", 128, kernel=3, padding=1),
        Pool("pool2", kernel=2, stride=2),
        Conv("conv3_1", 256, kernel=3, padding=1),
        Conv("conv3_2", 256, kernel=3, padding=1),
        Conv("conv3_3", 256, kernel=3, padding=1),
        Pool("pool3", kernel=2, stride=2),
        Conv("conv4_1", 512, kernel=3, padding=1),
        Conv("conv4_2", 512, kernel=3, padding=1),
        Conv("conv4_3", 512, kernel=3, padding=1),
        Pool("pool4", kernel=2, stride=2),
        Conv("conv5_1", 512, kernel=3, padding=1),
        Conv("conv5_2", 512, kernel=3, padding=1),
        Conv("conv5_3", 512, kernel=3, padding=1),
        Pool("pool5", kernel=2, stride=2),
        Conv("fc6", 4096, kernel=7),
        Conv("fc7", 4096, kernel=1),
    ),
    taps={"conv5": "relu5_3", "conv5-pre-relu": "conv5_3", "fc6": "relu6", "fc7": "relu7"},
    image_size={"conv5": 448, "conv5-pre-relu": 448, "fc6": 224, "fc7": 224},
)


class VGG(nn.Module):
    """The layers of a table up to a tap, as a backbone: RGB images (b, 3, h, w) → descriptors (b, c, h', w').

    Images are uint8 from 0 to 255 or floating-point from 0 to 1; the mean is subtracted here. What comes after the tap is not
    built, so that 120 of VGG-D's 134 million parameters are there only for those who ask for the fully connected layers.

    Args:
        architecture: ``VGG_M``, ``VGG_D``, or a table of one's own.
        tap: "conv5" (after its ReLU, the paper's descriptors), "conv5-pre-relu" (for Fisher vectors), "fc6" or "fc7" (after
            their ReLUs, for images of 224×224). None for the first in ``architecture.taps``.
        mean: of red, green and blue from 0 to 1, or a mean image (3, h, w). Weights bring their own.
        scale: what images are divided by after that.

    Attributes:
        name, tap: of what it was built from.
        channels: c.
        stride: how many pixels apart its descriptors are.
        image_size: the side of the images that it is meant for; others are welcome.

    >>> backbone = VGG(VGG_M)
    >>> backbone(torch.zeros(2, 3, 100, 120)).shape
    torch.Size([2, 512, 5, 6])
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        architecture: Architecture,
        tap: str | None = None,
        *,
        mean: Tensor | tuple[float, float, float] = (0.485, 0.456, 0.406),
        scale: Tensor | tuple[float, float, float] = (0.229, 0.224, 0.225),
    ) -> None:
        super().__init__()
        self.name, self.tap = architecture.name, read_tap(architecture, tap)
        self.image_size = architecture.image_size[self.tap]
        layers = layers_to(architecture, self.tap)
        self.channels = [layer.channels for layer in layers if isinstance(layer, Conv)][-1]
        self.stride = prod(layer.stride for layer in layers if not isinstance(layer, Norm))
        self.smallest = next(side for side in count(1) if _side_after(layers, side) >= 1)
        self.register_buffer("mean", per_channel(self.name, "mean", mean))
        self.register_buffer("scale", per_channel(self.name, "scale", scale))
        for name, module in _modules(layers):
            self.add_module(name, module)
            if name == architecture.taps[self.tap]:
                break
        self.register_load_state_dict_pre_hook(_make_room_for_mean)

    def forward(self, images: Tensor) -> Tensor:
        x = standardized(self.name, images, self.mean, self.scale, self.smallest)
        for layer in self.children():
            x = layer(x)
        return x

    def extra_repr(self) -> str:
        return f"{self.name}, tap={self.tap!r}, channels={self.channels}, stride={self.stride}"


def read_tap(architecture: Architecture, tap: str | None) -> str:
    """``tap`` as given by the user, or the default."""
    if tap is None:
        return next(iter(architecture.taps))
    if tap not in architecture.taps:
        raise ValueError(f"{architecture.name} has no tap {tap!r}.\nIts taps are {', '.join(architecture.taps)}.")
    return tap


def layers_to(architecture: Architecture, tap: str) -> tuple[Layer, ...]:
    """Those that are needed for a tap."""
    last = architecture.taps[tap]
    end = next(i for i, layer in enumerate(architecture.layers) if last in (layer.name, _relu(layer.name)))
    return architecture.layers[: end + 1]


def _modules(layers: tuple[Layer, ...]) -> Iterator[tuple[str, nn.Module]]:
    c = 3
    for layer in layers:
        match layer:
            case Conv():
                yield layer.name, nn.Conv2d(c, layer.channels, layer.kernel, layer.stride, layer.padding)
                yield _relu(layer.name), nn.ReLU(inplace=True)
                c = layer.channels
            case Norm():
                yield layer.name, nn.LocalResponseNorm(layer.size, layer.alpha, layer.beta, layer.k)
            case Pool():
                yield layer.name, nn.MaxPool2d(layer.kernel, layer.stride, ceil_mode=layer.ceil)


def _relu(conv: str) -> str:
    """relu5_3 of conv5_3, relu6 of fc6."""
    return "relu" + conv.removeprefix("conv").removeprefix("fc")


def _side_after(layers: tuple[Layer, ...], side: int) -> int:
    for layer in layers:
        match layer:
            case Conv():
                side = (side + 2 * layer.padding - layer.kernel) // layer.stride + 1
            case Pool():
                side = (side - layer.kernel + (layer.stride - 1 if layer.ceil else 0)) // layer.stride + 1
        if side < 1:
            return 0
    return side


def _make_room_for_mean(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights may come with a mean colour or with a mean image, of whatever size."""
    mean = state_dict.get(f"{prefix}mean")
    if isinstance(mean, Tensor) and mean.ndim == 3 and len(mean) == 3:
        module.register_buffer("mean", module.get_buffer("mean").new_empty(mean.shape))

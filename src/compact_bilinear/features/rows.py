"""From the images of a batch to the rows of a shard: through the backbone once, and pooled in every way that is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..descriptors.kept_maps import KeptMaps
from ..descriptors.network import Network
from ..images import ImageList
from ..images.loader import Batch as Loaded
from ..normalize import signed_sqrt_l2
from ..pooling.by_name import NamedPooling
from .background import Batch, Rows


@dataclass(frozen=True)
class BatchPooling:
    """Call it with a batch and its images, and it computes the rows.

    What it gives is to be called as well: it waits until the rows are on this side of the GPU.
    """

    images: ImageList
    network: Network
    layers: Mapping[NamedPooling, nn.Module]
    """On the device of the network, fitted."""
    kept: KeptMaps
    """Maps of images that passed the backbone before; they do not pass it again."""
    normalize: bool
    """Signed square root and ℓ₂."""
    dtype: torch.dtype
    """What features are kept in."""
    strict: bool = False
    """Stop at features that are not finite, in place of reporting their image as broken."""

    def __call__(self, work: tuple[Batch, Loaded]) -> Callable[[], Rows]:
        batch, loaded = work
        broken = {each.place: each.reason.removeprefix(f"{self.images.file(each.place)}: ") for each in loaded.broken}
        again, _ = self.kept.split(batch.places)
        places = [*loaded.places.tolist(), *again]
        if not places:
            return lambda: Rows([], {}, broken)
        maps = [self.network.maps(loaded.pixels)] if len(loaded.pixels) else []
        if again:
            maps.append(self.kept.read(again).to(self.network.device))
        x = maps[0]
        if len(maps) > 1:
            x = torch.cat(maps)[sorted(range(len(places)), key=places.__getitem__)]
        features = self._pooled(x)
        finite = _on_its_way(torch.stack([y.isfinite().all(1) for y in features.values()]).all(0))
        arrays = {name: _on_its_way(y) for name, y in features.items()}
        wait = _end_of_what_was_told(self.network.device)

        def rows() -> Rows:
            wait()
            good = finite.numpy()
            computed, stored = (str(dtype).removeprefix("torch.") for dtype in (self.network.precision, self.dtype))
            for place in (place for place, is_good in zip(sorted(places), good, strict=True) if not is_good):
                broken[place] = f"its features are not all finite, computed in {computed} and kept as {stored}"
                if self.strict:
                    raise ValueError(
                        f"{self.images.file(place)}: {broken[place]}.\nTry --precision float32 and --dtype float32."
                    )
            kept = [place for place, is_good in zip(sorted(places), good, strict=True) if is_good]
            return Rows(kept, {name: y.numpy() if good.all() else y.numpy()[good] for name, y in arrays.items()}, broken)

        return rows

    def _pooled(self, x: Tensor) -> dict[str, Tensor]:
        after_relu = x.relu() if self.network.before_relu else x
        features = {}
        for pooling, layer in self.layers.items():
            y = layer(x if pooling.before_relu else after_relu)
            features[str(pooling)] = (signed_sqrt_l2(y) if self.normalize else y).to(self.dtype)
        return features


def _on_its_way(y: Tensor) -> Tensor:
    """A tensor on the CPU that is filled by the time the GPU has done what it was told so far."""
    if y.device.type != "cuda":
        return y.cpu()
    return torch.empty(y.shape, dtype=y.dtype, pin_memory=True).copy_(y, non_blocking=True)


def _end_of_what_was_told(device: torch.device) -> Callable[[], None]:
    """A function that waits until a GPU has done what it was told so far."""
    if device.type != "cuda":
        return lambda: None
    end = torch.cuda.Event()
    end.record()
    return end.synchronize

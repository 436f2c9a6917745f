"""Features of an experiment: every image passes a backbone once, for all poolings and hash seeds that are asked for.

A store is named by what it was made of and by a checksum of its poolings. What some store of the folder has already, from
another experiment perhaps, is taken from there; all that is missing is extracted in one pass.
"""

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..descriptors import load_backbone, taps_of
from ..features import FeatureStore
from ..pooling.by_name import read_pooling
from ..progress import note
from ..recipes import extract
from .setting import Setting
from .sources import Source

FEATURES = "features"


def stores_of(setting: Setting, source: Source, number: int, backbone: str, poolings: Iterable[str]) -> dict[str, FeatureStore]:
    """For each pooling a store that has it, extracted if need be.

    Args:
        setting: of the run.
        source, number: of which images, in which of its splits.
        backbone: which.
        poolings: with their seeds.
    """
    wanted = sorted({str(read_pooling(pooling)) for pooling in poolings})
    start = slug(source.name, source.split(number), backbone)
    found: dict[str, FeatureStore] = {}
    for folder in sorted((setting.out / FEATURES).glob(f"{start}-????????")):
        with suppress(ValueError):  # one that is not complete goes on below, if the same is asked for again
            store = FeatureStore(folder)
            found |= {pooling: store for pooling in wanted if pooling in store.poolings and pooling not in found}
    missing = [pooling for pooling in wanted if pooling not in found]
    # the fully connected layers see images of another size, and are a store of their own
    alone = [pooling for pooling in missing if read_pooling(pooling).tap is not None]
    for together in ([each for each in missing if each not in alone], alone):
        if together:
            digest = hashlib.sha256(" ".join(together).encode()).hexdigest()[:8]
            store = _extract(setting, source, number, backbone, together, setting.out / FEATURES / f"{start}-{digest}")
            found |= dict.fromkeys(together, store)
    return found


def lacks_fully_connected(backbone: str, weights: str | None) -> str | None:
    """Why a backbone has no fully connected layers; None if it has."""
    if "fc7" not in taps_of(backbone):
        return f"{backbone} has none"
    try:
        load_backbone(backbone, weights, "fc7")
    except ValueError as fault:  # weights of the convolutions alone
        return str(fault).splitlines()[0]
    return None


def slug(*parts: str) -> str:
    """Texts as a name of a file.

    >>> slug("CUB, a part", "", "vgg16", "tensor-sketch:8192,seed=1")
    'cub-a-part-vgg16-tensor-sketch-8192-seed-1'
    """
    return "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts if part)


def _extract(setting: Setting, source: Source, number: int, backbone: str, poolings: list[str], folder: Path) -> FeatureStore:
    folder.parent.mkdir(exist_ok=True)
    alone = read_pooling(poolings[0]).tap is not None
    note(f"{source.name} {source.split(number)}".strip() + f", {backbone}: features {', '.join(poolings)}")
    config = extract.Extract(
        data=source.lists[number],
        out=folder,
        pool=tuple(poolings),
        backbone=backbone,
        weights=setting.weights,
        size=0 if alone else setting.size,
        check_counts=source.check_counts,
        device=str(setting.device),
        precision=setting.precision,
        workers=setting.workers,
    )
    store = extract.run(config)
    if store is None:
        raise RuntimeError("an experiment runs in one process, and extraction gives that one its store")
    return store

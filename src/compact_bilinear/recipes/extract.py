"""Extract: from a folder of images to a store of pooled features.

Every image is decoded once and passes the backbone once, whatever is asked for. The work is cut into shards before it begins;
processes take them by turns, and what is finished stays finished: the same command again goes on where it stopped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from tyro.conf import Positional, UseAppendAction

from ..device import Precision, choose_precision, find_device, one_thread, same_bits, side_by_side
from ..fingerprint import fingerprint
from ..pooling.by_name import NamedPooling, read_pooling
from ..pooling.fisher_vector import LIMIT
from ..processes import Processes
from ..progress import counting_bar, note
from ..whole_file import WholeFile, undamaged

if TYPE_CHECKING:  # they are imported in run(): `cbp --help` does without them
    from ..descriptors.kept_maps import KeptMaps
    from ..descriptors.network import Network
    from ..features import FeatureStore
    from ..images import ImageList
    from ..images.loader import Batch as Loaded
    from ..model import Model


@dataclass(frozen=True)
class Extract:
    """Pool the images of a folder into features, to classify, to search, or to read as Parquet.

    For instance, once for two poolings, with the backbone that ships with the package:

        cbp extract photos --backbone tiny --pool tensor-sketch:8192 --pool full-bilinear --out features

    Interrupted, the same command goes on where it stopped. On eight GPUs, with the same result:

        torchrun --nproc-per-node 8 -m compact_bilinear extract photos --out features

    By a model that `cbp train --finetune` made, to search with what it has learned:

        cbp extract photos --model run --out features

    Poolings are tensor-sketch, random-maclaurin and random-projection (:8192, or another d), full-bilinear,
    full-bilinear-triangle, pca-bilinear (:4096, or another square), fisher-vector (:64 Gaussians) and average-pool; and, by
    itself, fully-connected: the network's own last layers but one.
    """

    data: Positional[Path]
    """A folder of images, a CSV that lists them, or an archive; CUB-200-2011, DTD and MIT Indoor are recognised."""
    out: Path
    """The folder for the features."""
    pool: UseAppendAction[tuple[str, ...]] = ()
    """A pooling, NAME[:DIM][,seed=N]; may be repeated, in any order. tensor-sketch:8192 if there is none."""
    model: Path | None = None
    """A folder that `cbp train` made, whose backbone and pooling are taken, as they have been trained."""
    backbone: str = "vgg16"
    """vgg16, vgg-m, tiny, or timm:<name>."""
    weights: str | None = None
    """A file of weights for the backbone, in place of the published ones."""
    tap: str | None = None
    """Which of the backbone's layers; the last convolution, after its ReLU, if not given."""
    size: int = 0
    """Side of the squares that images are made into; 0 is what the backbone is meant for."""
    fit: Literal["stretch", "center-crop"] = "stretch"
    """How images of other proportions become squares: stretched, as in the paper; or resized until their shorter side is 8/7 of
    the square's, which is cut out of the middle."""
    normalize: bool = True
    """Signed square root and ℓ₂ are taken, unless this flag leaves features as they were pooled."""
    dtype: Literal["auto", "float16", "float32"] = "auto"
    """How features are kept: float16 if they are normalised, float32 if not."""
    kind: Literal["auto", "cub", "mit", "dtd", "folder", "csv"] = "auto"
    """Which data set it must be."""
    partition: int = 1
    """Of DTD, which of its ten."""
    check_counts: bool = True
    """CUB, DTD and MIT Indoor must have their numbers of images, unless this flag lets others pass."""
    test_share: float = 0.5
    """Where images have no split, the part of each class that becomes test images."""
    seed: int = 0
    """What that split, and the descriptors that PCA and Fisher vectors are fitted on, are drawn from."""
    fit_images: int = 2000
    """Training images that PCA and Fisher vectors are fitted on. Their maps are in the folder until the end, a few GB."""
    batch: int = 0
    """Images at a time; 0 is 32 on a GPU and 4 on a CPU."""
    shard: int = 1024
    """Images a file."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    deterministic: bool = True
    """On a GPU operations give the same bits each time, unless this flag takes others that may be faster."""
    threads: int = 0
    """On a CPU, batches that are computed at a time, each in a thread; 0 is one for each core."""
    workers: int | None = None
    """Processes that decode images: with a GPU one for each core, up to 16, and one without."""
    decode: Literal["full", "draft"] = "full"
    """draft: decode large JPEGs at 1/2, 1/4 or 1/8 of their size, still no smaller than needed. Faster, slightly different."""
    strict: bool = False
    """Stop at the first broken image, in place of naming it in the end."""


def run(config: Extract, backbone: nn.Module | None = None) -> "FeatureStore | None":
    """Extract features, or what is missing of them.

    Args:
        config: all settings.
        backbone: a module to use in place of the one that ``config.backbone`` names. On a CPU several threads call it at once.

    Returns:
        The store; None in all processes but the first, if there are several.
    """
    from ..descriptors.kept_maps import KeptMaps, draw_places
    from ..descriptors.network import load_network
    from ..features import FeatureWriter
    from ..features.background import BackgroundWriter, batches
    from ..features.layout import MAPS, read_manifest
    from ..features.rows import BatchPooling
    from ..images import read_images
    from ..model import load_model

    _check(config)
    processes = Processes.from_environment()
    model = None
    if config.model is not None:
        model = load_model(config.model)
        backbone, config = model.backbone, _as_trained(config, model)
    poolings = _read_poolings(config.pool)
    images = read_images(
        config.data,
        config.kind,
        partition=config.partition,
        test_share=config.test_share,
        seed=config.seed,
        check_counts=config.check_counts,
    )
    device = find_device(config.device, processes)
    config = _settled(config, device, processes)
    network = load_network(
        backbone or config.backbone,
        config.weights,
        _read_tap(config.tap, poolings),
        before_relu=any(pooling.before_relu for pooling in poolings),
        size=config.size,
        device=device,
        precision=choose_precision(config.precision, device),
    )
    layers = {pooling: model.pooling if model else pooling.build(network.channels) for pooling in poolings}
    to_fit = {pooling: layer for pooling, layer in layers.items() if hasattr(layer, "fitted") and not layer.fitted}
    if processes.first:
        _say_what_is_there(images, network, poolings)
    writer = FeatureWriter(
        config.out,
        images,
        {str(pooling): _facts(pooling, layer, pooling in to_fit) for pooling, layer in layers.items()},
        settings=_settings(config, images, network, bool(to_fit)),
        versions=_versions(bool(to_fit)),
        dtype=config.dtype,
        shard_size=config.shard,
        wait=None if processes.first else partial(processes.wait, what="the manifest"),
    )
    if not writer.missing() and read_manifest(config.out)["complete"]:
        return _complete(config) if processes.first else None

    # what is to be fitted sees some training images first, and their maps are kept for when their turn comes
    places = draw_places(images.splits, config.fit_images, config.seed) if to_fit else []
    kept = KeptMaps(config.out / MAPS, places, config.batch)
    if to_fit:
        _fit(config, images, to_fit, network, kept, processes)
    for layer in layers.values():
        layer.to(device)

    mine, missing = processes.share(writer.shards), set(writer.missing())
    lanes = max(1, min(6, _cores(processes) // 2)) if device.type == "cuda" else 1  # shards that are written at a time
    work = list(batches([shard for shard in mine if shard in missing], config.batch, lanes))
    loaded = _load(config, images, network, (kept.split(batch.places)[1] for batch in work), len(work))
    pool = BatchPooling(images, network, layers, kept, config.normalize, getattr(torch, config.dtype), config.strict)
    total, left = (sum(shard.stop - shard.first for shard in some) for some in (mine, missing.intersection(mine)))
    with (
        same_bits(device, config.deterministic),
        counting_bar("extract", "images", total - left, total) as advance,
        closing(side_by_side(pool, zip(work, loaded, strict=True), config.threads)) as pooled,
        BackgroundWriter(writer, lanes) as writing,
    ):
        for batch, rows in zip(work, pooled, strict=True):
            writing.write(batch, rows)
            advance(len(batch.places))

    if not processes.first:
        return None
    processes.wait(lambda: not writer.missing(), "shards")
    kept.remove()
    writer.complete({"fitted": {str(pooling): fingerprint(layer) for pooling, layer in to_fit.items()}})
    return _complete(config)


def _complete(config: Extract) -> "FeatureStore":
    """The store, unless it lacks what was asked for."""
    from ..features import FeatureStore
    from ..features.layout import cut

    store = FeatureStore(config.out)
    broken = store.broken
    if not len(store):
        raise ValueError(
            f"Features are of images, but all {len(broken)} are broken, {broken[0]['path']} for one: {broken[0]['reason']}.\n"
            f"Mend them, remove {config.out}, and run the same command again."
        )
    if config.strict and broken:
        items, size = store.manifest["items"]["count"], store.manifest["shards"]["size"]
        file = config.out / cut(items, size)[broken[0]["index"] // size].file
        raise ValueError(
            f"With --strict every image has features, but {broken[0]['path']} has none: {broken[0]['reason']}.\n"
            f"Mend it, remove {file}, and run the same command again; or leave --strict out."
        )
    return store


def _settled(config: Extract, device: torch.device, processes: Processes) -> Extract:
    """All that was left to be found out, found out."""
    on_gpu = device.type == "cuda"
    cores = _cores(processes)
    # without a GPU the backbone has work for all cores, and one process decodes faster than it looks
    workers = config.workers if config.workers is not None else min(16, cores) if on_gpu else 1
    return replace(
        config,
        batch=config.batch or (32 if on_gpu else 4),
        threads=0 if on_gpu else config.threads or cores,
        workers=workers,
        # sums of many products are beyond float16
        dtype=config.dtype if config.dtype != "auto" else "float16" if config.normalize else "float32",
    )


def _cores(processes: Processes) -> int:
    from ..images.loader import available_cpus

    return max(1, available_cpus() // processes.local_world)


def _fit(
    config: Extract,
    images: "ImageList",
    layers: Mapping[NamedPooling, nn.Module],
    network: "Network",
    kept: "KeptMaps",
    processes: Processes,
) -> None:
    """Fit PCA and mixtures once, for this run and for those that resume it."""
    from safetensors.torch import load_file, save

    from ..features.layout import FITTED

    def look(some: "Loaded") -> tuple[list[int], Tensor]:
        return some.places.tolist(), network.maps(some.pixels).cpu() if len(some.pixels) else torch.empty(0)

    file = config.out / FITTED
    if not file.exists():
        missing = set(kept.missing())
        mine = [part for part in processes.share(kept.parts) if part in missing]
        loaded = _load(config, images, network, (part.places for part in mine), len(mine))
        with (
            same_bits(network.device, config.deterministic),
            counting_bar("extract, to fit on", "images", 0, sum(len(part.places) for part in mine)) as advance,
            closing(side_by_side(look, loaded, config.threads)) as looked,
        ):
            for part, (places, maps) in zip(mine, looked, strict=True):
                kept.keep(part, places, maps)
                advance(len(part.places))
        if processes.first:
            processes.wait(lambda: not kept.missing(), "descriptors to fit on")
            note("extract: fitting " + " and ".join(map(str, layers)))
            descriptors = kept.descriptors(LIMIT, config.seed)
            after_relu = descriptors.relu() if network.before_relu else descriptors
            with one_thread():
                for pooling, layer in layers.items():
                    pooling.fit(layer, descriptors if pooling.before_relu else after_relu)
            state = {f"{pooling}/{name}": each for pooling in layers for name, each in layers[pooling].state_dict().items()}
            with WholeFile(file) as unnamed:
                unnamed.write_bytes(save(state))
        else:
            processes.wait(file.exists, "what is fitted")
    with undamaged(file):
        state = load_file(file)
    for pooling, layer in layers.items():
        layer.load_state_dict({name: state[f"{pooling}/{name}"] for name in layer.state_dict()})


def _load(
    config: Extract, images: "ImageList", network: "Network", batches: Iterable[Sequence[int]], count: int
) -> "Iterator[Loaded]":
    """Images decoded in ``count`` batches of given places."""
    from ..images import BrokenImage, Transform, load_images

    try:
        yield from load_images(
            images,
            Transform(size=network.size, fit=config.fit),
            batches=batches,
            workers=config.workers if count else 0,
            strict=config.strict,
            draft=config.decode == "draft",
            pin_memory=network.device.type == "cuda",
        )
    except BrokenImage as fault:
        raise BrokenImage(f"{fault}.\nMend or remove it; without --strict such images are named and skipped.") from fault


def _read_poolings(texts: Sequence[str]) -> list[NamedPooling]:
    # sorted, so that the order in which they were asked for changes no byte
    poolings = sorted(read_pooling(text) for text in texts or ("tensor-sketch:8192",))
    twice = next((pooling for place, pooling in enumerate(poolings) if pooling in poolings[:place]), None)
    if twice is not None:
        raise ValueError(
            f"Each pooling is computed once, but {twice} was asked for twice.\nLeave one out, or give it another seed."
        )
    return poolings


def _read_tap(tap: str | None, poolings: Sequence[NamedPooling]) -> str | None:
    """The layer that all poolings take."""
    wanted = {pooling.tap for pooling in poolings if pooling.tap is not None}
    if not wanted:
        return tap
    if len({pooling.tap for pooling in poolings}) > 1 or tap not in (None, *wanted):
        others = ", ".join(str(pooling) for pooling in poolings if pooling.tap is None) or f"--tap {tap}"
        raise ValueError(
            f"fully-connected takes the layer {', '.join(wanted)}, of images of another size, and not that of {others}.\n"
            "Extract it by itself, into a folder of its own."
        )
    return wanted.pop()


def _as_trained(config: Extract, model: "Model") -> Extract:
    """The settings that a model brings along."""
    names = ("pool", "backbone", "weights", "tap", "size", "fit", "normalize")
    given = [name for name in names if getattr(config, name) != getattr(Extract, name)]
    if given:
        flags = ["--no-normalize" if name == "normalize" else f"--{name}" for name in given]
        raise ValueError(
            f"A model knows what becomes of an image on the way to its features, but {flags[0]} was given beside --model.\n"
            f"Leave {' and '.join(flags)} out, or --model."
        )
    if model.transform.fit == "random-crop":
        raise ValueError(
            f"Features are the same each time, but the model in {config.model} cuts images at random.\n"
            "Save it with a transform that does not: Transform(fit='center-crop')."
        )
    return replace(
        config,
        pool=(str(model.named),),
        tap=getattr(model.backbone, "tap", None),
        size=model.transform.size,
        fit=model.transform.fit,
        normalize=model.normalize,
    )


def _facts(pooling: NamedPooling, layer: Any, to_fit: bool) -> dict[str, Any]:
    """What the manifest says of a pooling before anything is computed."""
    return {"dim": layer.dim, "seed": pooling.seed, "sha256": None if to_fit else fingerprint(layer)}


def _settings(config: Extract, images: "ImageList", network: "Network", fits: bool) -> dict[str, str | int | bool | None]:
    """All that decides what the features are and is not in the list of images or the poolings."""
    return {
        "data": images.name,
        "backbone": network.name,
        "weights sha256": fingerprint(network.module),
        "tap": network.tap,
        "size": network.size,
        "fit": config.fit,
        "decode": config.decode,
        "device": network.device.type,
        "precision": str(network.precision).removeprefix("torch."),
        "batch": config.batch,
        "normalize": config.normalize,
    } | ({"fit_images": config.fit_images, "seed": config.seed} if fits else {})


def _versions(fits: bool) -> dict[str, str]:
    import PIL

    versions = {"torch": torch.__version__, "pillow": PIL.__version__}
    if fits:
        import sklearn

        versions["scikit-learn"] = sklearn.__version__
    return versions


def _say_what_is_there(images: "ImageList", network: "Network", poolings: Sequence[NamedPooling]) -> None:
    note(f"{images}; {network.name} at {network.size}×{network.size} on {network.device}")
    if images.left_out:
        count = len(images.left_out)
        note(f"left out are files that are no images by their names, {count} in all, {images.left_out[0]} for one")
    early = network.before_relu or (network.tap or "").endswith("-pre-relu")
    if not early and any(pooling.before_relu for pooling in poolings):
        note(f"Fisher vectors take descriptors before the last ReLU, but {network.name} gives none: they take what it gives")


def _check(config: Extract) -> None:
    at_least = {"shard": 1, "fit_images": 1, "batch": 0, "size": 0, "threads": 0, "workers": 0, "seed": 0}
    for name, least in at_least.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"Extract takes {name} ≥ {least}, but got {value}.\nLeave it out for the usual value.")
    if config.out.exists() and not config.out.is_dir():
        raise ValueError(f"Features go into a folder, but {config.out} is a file.\nGive a folder.")
    # there they would be looked through for images the next time
    if config.data.is_dir() and config.out.resolve().is_relative_to(config.data.resolve()):
        raise ValueError(
            f"Features go beside the images, but {config.out} lies inside {config.data}.\nWrite --out features, for instance."
        )

"""Extract: from a folder of images to a store of pooled features.

Every image is decoded once and passes the backbone once, whatever is asked for. The work is cut into shards before it begins;
processes take them by turns, and what is finished stays finished: the same command again goes on where it stopped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from tyro.conf import Positional, UseAppendAction

from ..device import Precision, choose_precision, find_device, one_thread, same_bits
from ..fingerprint import fingerprint
from ..normalize import signed_sqrt_l2
from ..pooling.by_name import NamedPooling, read_pooling
from ..pooling.fisher_vector import LIMIT
from ..processes import Processes
from ..progress import counting_bar, note
from ..whole_file import WholeFile

if TYPE_CHECKING:  # they are imported in run(): `cbp --help` does without them
    from ..descriptors.kept_maps import KeptMaps
    from ..descriptors.network import Network
    from ..features import FeatureStore
    from ..features.background import Batch, Rows
    from ..images import ImageList
    from ..images.loader import Batch as Loaded

FITTED = "_fitted.safetensors"
MAPS = ".maps"


@dataclass(frozen=True)
class Extract:
    """Pool the images of a folder into features, to classify, to search, or to read as Parquet.

    For instance, once for two poolings, with the backbone that ships with the package:

        cbp extract photos --backbone tiny --pool tensor-sketch:8192 --pool full-bilinear --out features

    Interrupted, the same command goes on where it stopped. On eight GPUs, with the same result:

        torchrun --nproc-per-node 8 -m compact_bilinear extract photos --out features

    Poolings are tensor-sketch, random-maclaurin and random-projection (:8192, or another d), full-bilinear,
    full-bilinear-triangle, pca-bilinear (:4096, or another square), fisher-vector (:64 Gaussians) and average-pool.
    """

    data: Positional[Path]
    """A folder of images, a CSV that lists them, or an archive; CUB-200-2011, DTD and MIT Indoor are recognised."""
    out: Path
    """The folder for the features."""
    pool: UseAppendAction[tuple[str, ...]] = ()
    """A pooling, NAME[:DIM][,seed=N]; may be repeated. tensor-sketch:8192 if there is none."""
    backbone: str = "vgg16"
    """vgg16, vgg-m, tiny, or timm:<name>."""
    weights: str | None = None
    """A file of weights for the backbone, in place of the published ones."""
    tap: str | None = None
    """Which of the backbone's layers; the last convolution, after its ReLU, if not given."""
    size: int = 0
    """Side of the squares that images are made into; 0 is what the backbone is meant for."""
    fit: Literal["stretch", "center-crop"] = "stretch"
    """How images of other proportions become squares; the paper stretches."""
    normalize: bool = True
    """Signed square root and ℓ₂; without, features are as they were pooled."""
    dtype: Literal["auto", "float16", "float32"] = "auto"
    """How features are kept: float16 if they are normalised, float32 if not."""
    kind: Literal["auto", "cub", "mit", "dtd", "folder", "csv"] = "auto"
    """Which data set it must be."""
    partition: int = 1
    """Of DTD, which of its ten."""
    check_counts: bool = True
    """Of CUB, DTD and MIT Indoor, insist on their numbers of images."""
    test_share: float = 0.5
    """Where images have no split, the part of each class that becomes test images."""
    seed: int = 0
    """What that split, and the descriptors that PCA and Fisher vectors are fitted on, are drawn from."""
    fit_images: int = 2000
    """Training images that PCA and Fisher vectors are fitted on. Their maps are in the folder until the end, a few GB."""
    batch: int = 32
    """Images at a time."""
    shard: int = 1024
    """Images a file."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    deterministic: bool = True
    """On a GPU, only operations that give the same bits each time; a little slower."""
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
        backbone: a module to use in place of the one that ``config.backbone`` names.

    Returns:
        The store; None in all processes but the first, if there are several.
    """
    from ..descriptors.kept_maps import KeptMaps, draw_places
    from ..descriptors.network import load_network
    from ..features import MANIFEST, FeatureStore, FeatureWriter
    from ..features.background import BackgroundWriter, batches
    from ..images import read_images

    _check(config)
    processes = Processes.from_environment()
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
    network = load_network(
        backbone or config.backbone,
        config.weights,
        config.tap,
        before_relu=any(pooling.before_relu for pooling in poolings),
        size=config.size,
        device=device,
        precision=choose_precision(config.precision, device),
    )
    layers = {pooling: pooling.build(network.channels) for pooling in poolings}
    to_fit = {pooling: layer for pooling, layer in layers.items() if hasattr(layer, "fitted")}
    if processes.first:
        _say_what_is_there(images, network, poolings)
    else:
        processes.wait((config.out / MANIFEST).exists, "the manifest")
    writer = FeatureWriter(
        config.out,
        images,
        {str(pooling): _facts(pooling, layer) for pooling, layer in layers.items()},
        settings=_settings(config, images, network, bool(to_fit)),
        versions=_versions(bool(to_fit)),
        dtype=_storage(config),
        shard_size=config.shard,
    )

    with torch.inference_mode(), same_bits(device, config.deterministic):
        # what is to be fitted sees some training images first, and their maps are kept for when their turn comes
        places = draw_places(images.splits, config.fit_images, config.seed) if to_fit else []
        kept = KeptMaps(config.out / MAPS, places, config.batch)
        if to_fit:
            _fit(config, images, to_fit, network, kept, processes)
        for layer in layers.values():
            layer.to(device)

        mine, missing = processes.share(writer.shards), set(writer.missing())
        lanes = max(1, min(6, _cpus(processes) // 2)) if device.type == "cuda" else 1  # shards that are written at a time
        work = list(batches([shard for shard in mine if shard in missing], config.batch, lanes))
        loaded = _load(config, images, network, (kept.split(batch.places)[1] for batch in work), len(work), processes)
        total, left = (sum(shard.stop - shard.first for shard in some) for some in (mine, missing.intersection(mine)))
        with counting_bar("extract", "images", total - left, total) as advance, BackgroundWriter(writer, lanes) as writing:
            for batch, some in zip(work, loaded, strict=True):
                writing.write(batch, pool_batch(config, images, layers, network, kept, batch, some))
                advance(len(batch.places))

    if not processes.first:
        return None
    processes.wait(lambda: not writer.missing(), "shards")
    kept.remove()
    writer.complete({"fitted": {str(pooling): fingerprint(layer) for pooling, layer in to_fit.items()}})
    return FeatureStore(config.out)


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

    file = config.out / FITTED
    if not file.exists():
        missing = set(kept.missing())
        mine = [part for part in processes.share(kept.parts) if part in missing]
        loaded = _load(config, images, network, (part.places for part in mine), len(mine), processes)
        with counting_bar("extract, to fit on", "images", 0, sum(len(part.places) for part in mine)) as advance:
            for part, some in zip(mine, loaded, strict=True):
                kept.keep(part, some.places.tolist(), network.maps(some.pixels) if len(some.pixels) else torch.empty(0))
                advance(len(part.places))
        if processes.first:
            processes.wait(lambda: not kept.missing(), "descriptors to fit on")
            note("extract: fitting " + " and ".join(map(str, layers)))
            descriptors = kept.descriptors(LIMIT, config.seed)
            after_relu = descriptors.relu() if network.before_relu else descriptors
            with one_thread():
                for pooling, layer in layers.items():
                    pooling.fit(layer, descriptors if pooling.before_relu else after_relu)
            with WholeFile(file) as unnamed:
                unnamed.write_bytes(
                    save(
                        {f"{pooling}/{name}": each for pooling in layers for name, each in layers[pooling].state_dict().items()}
                    )
                )
        else:
            processes.wait(file.exists, "what is fitted")
    tensors = load_file(file)
    for pooling, layer in layers.items():
        layer.load_state_dict({name: tensors[f"{pooling}/{name}"] for name in layer.state_dict()})


def _load(
    config: Extract,
    images: "ImageList",
    network: "Network",
    batches: Iterable[Sequence[int]],
    count: int,
    processes: Processes,
) -> "Iterator[Loaded]":
    """Images decoded in ``count`` batches of given places."""
    from ..images import BrokenImage, Transform, load_images

    on_gpu = network.device.type == "cuda"
    workers = config.workers
    if workers is None:  # without a GPU the backbone has work for all cores, and one decoder is faster than it
        workers = min(16, _cpus(processes)) if on_gpu else 1
    try:
        yield from load_images(
            images,
            Transform(size=network.size, fit=config.fit),
            batches=batches,
            workers=workers if count else 0,
            strict=config.strict,
            draft=config.decode == "draft",
            pin_memory=on_gpu,
        )
    except BrokenImage as fault:
        raise BrokenImage(f"{fault}.\nMend or remove it; without --strict such images are named and skipped.") from fault


def _cpus(processes: Processes) -> int:
    """How many cores there are for this process."""
    from ..images.loader import available_cpus

    return max(1, available_cpus() // processes.local_world)


def pool_batch(
    config: Extract,
    images: "ImageList",
    layers: Mapping[NamedPooling, nn.Module],
    network: "Network",
    kept: "KeptMaps",
    batch: "Batch",
    loaded: "Loaded",
) -> "Callable[[], Rows]":
    """Begin to compute the rows of a batch. What is returned waits until they are on this side of the GPU."""
    from ..features.background import Rows

    broken = {each.place: each.reason.removeprefix(f"{images.file(each.place)}: ") for each in loaded.broken}
    again, _ = kept.split(batch.places)
    places = [*loaded.places.tolist(), *again]
    if not places:
        return lambda: Rows([], {}, broken)
    maps = [network.maps(loaded.pixels)] if len(loaded.pixels) else []
    if again:
        maps.append(kept.read(again).to(network.device))
    x = maps[0]
    if len(maps) > 1:
        x = torch.cat(maps)[sorted(range(len(places)), key=places.__getitem__)]
    after_relu = x.relu() if network.before_relu else x
    features, finite = {}, []
    for pooling, layer in layers.items():
        y = layer(x if pooling.before_relu else after_relu)
        y = (signed_sqrt_l2(y) if config.normalize else y).to(getattr(torch, _storage(config)))
        features[str(pooling)] = _on_its_way(y)
        finite.append(y.isfinite().all(1))
    whole = _on_its_way(torch.stack(finite).all(0))
    done = torch.cuda.Event() if network.device.type == "cuda" else None
    if done is not None:
        done.record()

    def rows() -> Rows:
        if done is not None:
            done.synchronize()
        good = whole.numpy()
        for place, is_whole in zip(sorted(places), good.tolist(), strict=True):
            if not is_whole:
                broken[place] = f"its features are not all finite in {network.precision}, kept as {_storage(config)}"
                if config.strict:
                    raise ValueError(f"{images.file(place)}: {broken[place]}.\nTry --precision float32 and --dtype float32.")
        return Rows(
            [place for place, is_whole in zip(sorted(places), good.tolist(), strict=True) if is_whole],
            {name: each.numpy() if good.all() else each.numpy()[good] for name, each in features.items()},
            broken,
        )

    return rows


def _on_its_way(y: Tensor) -> Tensor:
    """A tensor on the CPU that is filled by the time the GPU has done what it was told so far."""
    if y.device.type != "cuda":
        return y.cpu()
    return torch.empty(y.shape, dtype=y.dtype, pin_memory=True).copy_(y, non_blocking=True)


def _read_poolings(texts: Sequence[str]) -> list[NamedPooling]:
    poolings = [read_pooling(text) for text in texts or ("tensor-sketch:8192",)]
    twice = next((pooling for place, pooling in enumerate(poolings) if pooling in poolings[:place]), None)
    if twice is not None:
        raise ValueError(
            f"Each pooling is computed once, but {twice} was asked for twice.\nLeave one out, or give it another seed."
        )
    return poolings


def _facts(pooling: NamedPooling, layer: Any) -> dict[str, Any]:
    """What the manifest says of a pooling before anything is computed."""
    return {"dim": layer.dim, "seed": pooling.seed, "sha256": None if hasattr(layer, "fitted") else fingerprint(layer)}


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


def _storage(config: Extract) -> str:
    if config.dtype != "auto":
        return config.dtype
    return "float16" if config.normalize else "float32"  # sums of many products are beyond float16


def _say_what_is_there(images: "ImageList", network: "Network", poolings: Sequence[NamedPooling]) -> None:
    note(f"{images}; {network.name} at {network.size}×{network.size} on {network.device}")
    if images.left_out:
        count = len(images.left_out)
        note(f"left out are files that are no images by their names, {count} in all, {images.left_out[0]} for one")
    if not network.before_relu and any(pooling.before_relu for pooling in poolings):
        note(f"Fisher vectors take descriptors before the last ReLU, but {network.name} gives none: they take what it gives")


def _check(config: Extract) -> None:
    for name, least in (("batch", 1), ("shard", 1), ("fit_images", 1), ("size", 0), ("workers", 0)):
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"Extract takes {name} ≥ {least}, but got {value}.\nLeave it out for the usual value.")

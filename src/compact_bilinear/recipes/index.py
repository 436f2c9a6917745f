"""Index: from a store of features to an index that is searched; and adding to it, deleting from it, compacting it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from ..progress import note

if TYPE_CHECKING:  # they are imported in run(): `cbp --help` does without them
    from ..features import FeatureStore
    from ..search.writer import Done


@dataclass(frozen=True)
class Index:
    """Make an index of features, to find images in that look like others; or change one.

    For instance, with what cbp extract made; and then for an image:

        cbp index features --out birds
        cbp search birds photo.jpg

    Later, with features of more images; with some that are to go; and when much has changed:

        cbp index more-features --out birds --add
        cbp index --out birds --delete crow/07.jpg crow/11.jpg
        cbp index --out birds --compact

    To see what each engine finds and costs on these features, before choosing:

        cbp index features --measure

    Whatever stops it, the index is the old one or the new one, and who searches it meanwhile is not disturbed.
    """

    features: Positional[Path | None] = None
    """The folder of features, to index, to add or to measure on."""
    out: Path | None = None
    """The folder of the index."""
    add: bool = False
    """Add to the index. An image whose path is inside already takes the place of the one that is."""
    replace: bool = False
    """Put another index in the place of the one that is there."""
    delete: tuple[str, ...] = ()
    """Paths of images that are to go, as the search shows them."""
    compact: bool = False
    """Make one part of all that was added, without what was deleted."""
    verify: bool = False
    """Read every file in full, and compare it with its checksum."""
    measure: bool = False
    """Make each kind of index of some of the images, and show what it finds, takes and costs. Nothing is kept."""
    pool: str | None = None
    """Which of the poolings, if there are several."""
    engine: Literal["auto", "flat", "hnsw", "ivf-pq"] = "auto"
    """How neighbours are found: by looking at all, by a graph, in lists; auto chooses by size, and says why."""
    codes: Literal["auto", "float32", "float16", "8-bit", "pq"] = "auto"
    """What is kept of a feature: auto is float16. pq keeps only what ivf-pq searches in, a sixteenth of that."""
    images: Path | None = None
    """The folder that the images lie in, for the search to say where each lies."""
    weights: str | None = None
    """The file of the backbone's weights, if the features were made with one's own."""
    model: bool = True
    """The model that made the features is kept in the index, for images that are not inside, unless this flag leaves it out."""
    measure_images: int = 20_000
    """To measure: images in the index, 0 for all."""
    measure_queries: int = 200
    """To measure: images that ask."""
    format: Literal["text", "csv", "jsonl"] = "text"
    """To measure: lines for people, a table for other programs, or a JSON object a line."""
    seed: int = 0
    """What samples are drawn from."""


def run(config: Index) -> str:
    """Do one of the things that can be done to an index, and say what was done."""
    _check(config)
    from ..features import FeatureStore
    from ..search import Index as Opened
    from ..search import IndexWriter, measure
    from ..search.measure import as_record
    from ..search.output import as_text

    store = None if config.features is None else FeatureStore(config.features)
    if config.measure:
        assert store is not None  # _check has seen to it, here and below
        settings = {"images": config.measure_images, "queries": config.measure_queries, "seed": config.seed}
        return as_text([as_record(each) for each in measure(store, _pooling(config, store), **settings)], config.format)
    assert config.out is not None
    if config.verify:
        index = Opened(config.out)
        index.verify()
        return f"{index}\nall {len(index.manifest['files'])} files are what they were"
    writer = IndexWriter(config.out)
    if config.delete:
        return _said(writer.delete(config.delete))
    if config.compact:
        return _said(writer.compact())
    assert store is not None
    if config.add:
        return _said(writer.add(store, config.images))
    pooling = _pooling(config, store)
    writer.require_room(config.replace)
    return _said(
        writer.make(
            store,
            pooling,
            engine=config.engine,
            codes=config.codes,
            images=config.images,
            save_model=_model_saver(config, store, pooling),
            replace=config.replace,
            seed=config.seed,
        )
    )


def _said(done: "Done") -> str:
    if done.skipped:
        names = ", ".join(done.skipped[:10]) + (", ..." if len(done.skipped) > 10 else "")
        note(f"left out for features that are zero or not finite, {len(done.skipped)} in all: {names}")
    return f"{done.line}\n{done.index}"


def _pooling(config: Index, store: "FeatureStore") -> str:
    if config.pool is None and len(store.poolings) > 1:
        raise ValueError(
            f"An index is of one pooling, but {store.folder} has {', '.join(store.poolings)}.\n"
            f"Write --pool {next(iter(store.poolings))}, for instance."
        )
    return config.pool or next(iter(store.poolings))


def _model_saver(config: Index, store: "FeatureStore", pooling: str) -> Callable[[Path], None] | None:
    """What writes the model, which is made here: before any work, if it cannot be."""
    if not config.model:
        return None
    from ..model import Model

    try:
        return Model.of_features(store, pooling, config.weights).save
    except ValueError as fault:
        first, _, remedy = str(fault).partition("\n")
        raise ValueError(f"{first}\n{remedy} Or write --no-model, to search only for images that are inside.") from fault


def _check(config: Index) -> None:
    asked = [name for name in ("add", "replace", "delete", "compact", "verify", "measure") if getattr(config, name)]
    if len(asked) > 1:
        raise ValueError(f"One thing is done at a time, but got --{' and --'.join(asked)}.\nWrite one after the other.")
    what = asked[0] if asked else ""
    if what != "measure" and config.out is None:
        raise ValueError(f"cbp index {f'--{what}' if what else ''} needs the folder of the index.\nWrite --out INDEX.")
    if what in ("", "add", "replace", "measure") and config.features is None:
        raise ValueError("An index is of features, but none were named.\nWrite `cbp index FEATURES --out INDEX`.")
    if what in ("delete", "compact", "verify") and config.features is not None:
        raise ValueError(
            f"--{what} takes no features, but got {config.features}.\nWrite `cbp index --out {config.out} --{what}`."
        )
    if min(config.measure_images, config.seed) < 0 or config.measure_queries < 1:
        raise ValueError(
            "Index takes measure_images ≥ 0, measure_queries ≥ 1 and seed ≥ 0, but got "
            f"{config.measure_images}, {config.measure_queries} and {config.seed}.\nLeave them out for the usual values."
        )

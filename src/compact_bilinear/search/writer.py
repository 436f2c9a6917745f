"""Writing an index: made, added to, deleted from, compacted; each time there is the old one, and then the new one.

A writer holds the lock, writes files that no manifest names, and in the end the manifest. Killed before, it has changed
nothing, and the next writer removes what it left.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..features import FeatureStore
from ..features.unit_rows import d_of, unit_blocks
from ..lock import alone
from ..progress import counting_bar
from ..whole_file import WholeFile
from .compaction import fill, items_left, retrained
from .engine import FLAT, Engine, sample_size
from .index import Index
from .layout import (
    FORMAT,
    FORMAT_VERSION,
    LOCK,
    MANIFEST,
    OURS,
    Manifest,
    facts_of,
    generation_of,
    may_be_index,
    name_of,
    read_manifest,
    sweep,
    write_manifest,
)
from .segment import items_table
from .segment_writer import SegmentWriter, Trained, resolve, settle, train, trained_as

# what a row does not depend on, or not to more than its last digits
NO_MATTER = ("data", "device", "batch", "precision", "fit_images", "seed")


@dataclass(frozen=True)
class Done:
    """What a writer did."""

    index: Index  # as it is now
    line: str  # for people
    skipped: tuple[str, ...] = ()  # paths of images whose features are zero or not finite


class IndexWriter:
    """The four ways to change an index. Each commits by writing the manifest; readers keep what they have opened.

    Args:
        folder: of the index; made if need be.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def require_room(self, replace: bool) -> None:
        """Refuse a folder that an index cannot be made in, and one that has an index unless it is to be replaced."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"An index is a folder, but {self.folder} is a file.\nGive another name.")
        if not self.folder.exists():
            return
        if may_be_index(self.folder):
            if not replace:
                raise ValueError(
                    f"{self.folder} has an index already.\nWrite --add to add to it, --replace to put another in its place, "
                    "or another --out."
                )
            return
        names = {each.name for each in self.folder.iterdir()}
        # what a writer leaves that was killed lies beside its lock; other files of such names are somebody's
        strange = sorted(name for name in names - {LOCK} if LOCK not in names or not OURS.fullmatch(name))
        if strange:
            raise ValueError(f"An index is made in a new folder, but {self.folder} has {strange[0]}.\nGive another folder.")

    def make(
        self,
        store: FeatureStore,
        pooling: str,
        *,
        engine: str = "auto",
        codes: str = "auto",
        images: Path | None = None,
        save_model: Callable[[Path], None] | None = None,
        replace: bool = False,
        seed: int = 0,
    ) -> Done:
        """Make an index of the features of a store.

        Args:
            store: which; read block after block.
            pooling: which of its poolings.
            engine: flat, hnsw, ivf-pq, or auto: by size.
            codes: float32, float16, 8-bit, or pq: what is kept of a row. auto is float16.
            images: the folder that paths start from, if it is to be known where images lie.
            save_model: writes the model that makes such features into a folder; None to go without.
            replace: an index that is there already.
            seed: what the sample is drawn from that 8-bit codes and IVF-PQ are trained on.
        """
        self.require_room(replace)
        d = d_of(store, pooling)
        chosen, kept, why = settle(engine, codes, len(store), d)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._writing(replace) as (_, generation):
            self.require_room(replace)
            trained = train(chosen, kept, sample(store, pooling, chosen, kept, seed), seed)
            segment, files, skipped = self._segment(
                store, pooling, chosen, trained, generation, store.labels, 0 if images else -1
            )
            model = None
            if save_model is not None:
                model = name_of("model", generation, "")
                save_model(self.folder / model)
                written = sorted(each for each in (self.folder / model).rglob("*") if each.is_file())
                files |= {each.relative_to(self.folder).as_posix(): facts_of(each) for each in written}
            self._commit(
                {
                    "pooling": pooling,
                    "d": d,
                    "engine": engine,
                    "codes": kept,
                    "seed": seed,
                    "features": features_of(store, pooling),
                    "classes": list(store.classes),
                    "images": [str(images.resolve())] if images else [],
                    "model": model,
                },
                generation,
                [segment],
                files,
                None,
            )
        line = f"engine: {chosen}; {why}"
        return Done(Index(self.folder), line, skipped)

    def add(self, store: FeatureStore, images: Path | None = None) -> Done:
        """Add the features of another store, made in the same way. An image whose path is inside takes the other's place."""
        with self._changing() as (index, generation):
            pooling, manifest = index.pooling, index.manifest
            self._refuse_other_features(manifest, store)
            classes = list(dict.fromkeys([*index.classes, *store.classes]))
            new = np.array([classes.index(name) for name in store.classes] + [-1])  # the label -1 stays what it is
            trained = trained_as(index.segments)
            engine, _ = resolve(manifest["engine"], manifest["codes"], len(store), index.d)
            if trained.rows is not None and len(store) * index.d <= FLAT:
                engine = "flat"  # a graph or lists of few rows are slower than looking at them
            if engine == "ivf-pq" and trained.lists is None:
                drawn = sample(store, pooling, engine, manifest["codes"], manifest["seed"])
                trained = Trained(trained.rows, train(engine, "pq", drawn, manifest["seed"]).lists)
            places = list(dict.fromkeys([*manifest["images"], *([str(images.resolve())] if images else [])]))
            place = places.index(str(images.resolve())) if images else -1
            segment, files, skipped = self._segment(store, pooling, engine, trained, generation, new[store.labels], place)
            added = pa.array(sorted(set(store.paths) - set(skipped)), pa.large_string())
            dead = [each.dead | pc.is_in(each.items["path"], value_set=added).to_numpy() for each in index.segments]
            replaced = sum(int(now.sum() - each.dead.sum()) for now, each in zip(dead, index.segments, strict=True))
            dead.append(np.zeros(segment["count"], bool))
            now = manifest | {"classes": classes, "images": places}
            self._commit(now, generation, [*manifest["segments"], segment], manifest["files"] | files, dead)
        line = f"added to {self.folder}: {segment['count'] - replaced} images; replaced: {replaced}"
        return Done(Index(self.folder), line, skipped)

    def delete(self, paths: Sequence[str]) -> Done:
        """Delete images by their paths; all of them are inside, or none is deleted."""
        with self._changing() as (index, generation):
            gone = pa.array(sorted(set(paths)), pa.large_string())
            marked = [pc.is_in(each.items["path"], value_set=gone).to_numpy() & ~each.dead for each in index.segments]
            found = [each.items["path"].filter(pa.array(now)) for each, now in zip(index.segments, marked, strict=True)]
            for path in sorted(set(paths).difference(*(each.to_pylist() for each in found))):
                index.find(path)  # which says that there is none
            dead = [each.dead | now for each, now in zip(index.segments, marked, strict=True)]
            if all(each.all() for each in dead):
                raise ValueError(
                    f"An index has at least one image, but these are all that {self.folder} has.\nRemove the folder instead."
                )
            self._commit(index.manifest, generation, index.manifest["segments"], index.manifest["files"], dead)
        now = Index(self.folder)
        return Done(now, f"deleted from {self.folder}: {len(index) - len(now)} of {len(index)} images")

    def compact(self) -> Done:
        """Make one segment of all, without what was deleted; where the engine is left to the size, it is chosen anew."""
        with self._changing() as (index, generation):
            index.verify()  # before damage is given a checksum that fits
            manifest = index.manifest
            engine, why = resolve(manifest["engine"], manifest["codes"], len(index), index.d)
            with SegmentWriter(self.folder, generation, engine, retrained(index, engine)) as writer:
                fill(writer, index)
                facts, files = writer.finish(items_left(index))
            model = {name: each for name, each in manifest["files"].items() if "/" in name}
            self._commit(manifest, generation, [facts], files | model, None)
        return Done(Index(self.folder), f"engine: {engine}; {why}")

    def _segment(
        self,
        store: FeatureStore,
        pooling: str,
        engine: Engine,
        trained: Trained,
        generation: int,
        labels: NDArray[np.int64],
        place: int,
    ) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]:
        kept = np.zeros(len(store), bool)
        with (
            SegmentWriter(self.folder, generation, engine, trained) as writer,
            counting_bar("index", "images", 0, len(store)) as advance,
        ):
            for block in unit_blocks(store, pooling):
                kept[block.first : block.first + len(block.kept)] = block.kept
                writer.add(block.rows)
                advance(len(block.kept))
            if not kept.any():
                raise _nothing_there(store)
            paths = store.paths
            good = [path for path, is_good in zip(paths, kept, strict=True) if is_good]
            facts, files = writer.finish(items_table(good, labels[kept], store.splits[kept].tolist(), place))
        return facts, files, tuple(path for path, is_good in zip(paths, kept, strict=True) if not is_good)

    def _refuse_other_features(self, manifest: Manifest, store: FeatureStore) -> None:
        pooling = manifest["pooling"]
        if pooling not in store.poolings:
            raise ValueError(
                f"{self.folder} holds {pooling}, but {store.folder} has {', '.join(store.poolings)}.\n"
                f"Extract with --pool {pooling}."
            )
        before, now = manifest["features"], features_of(store, pooling)
        changed = [
            f"{name}: {before.get(name)} → {now.get(name)}"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise ValueError(
                f"{store.folder} was made otherwise than what is in {self.folder}: {'; '.join(changed)}.\n"
                "Extract with the same settings, or make an index of its own."
            )

    @contextmanager
    def _writing(self, replacing: bool = False) -> Iterator[tuple[Index | None, int]]:
        """Alone with the folder: the index as it is, if it is to be changed, and the number of the generation to come."""
        with alone(self.folder / LOCK):
            there = (self.folder / MANIFEST).exists()
            index = Index(self.folder) if there and not replacing else None  # one that is damaged can be replaced
            if not there or index:
                sweep(self.folder, index.manifest if index else None)
            try:
                yield index, 1 + max((generation_of(each.name) for each in self.folder.iterdir()), default=0)
            finally:  # whichever counts now
                if (self.folder / MANIFEST).exists():
                    with suppress(ValueError):
                        sweep(self.folder, read_manifest(self.folder))
                else:
                    sweep(self.folder, None)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Index, int]]:
        """The same for an index that has to be there."""
        read_manifest(self.folder)  # tells what is missing, before anything is made or removed in a folder of something else
        with self._writing() as (index, generation):
            yield Index(self.folder) if index is None else index, generation

    def _commit(
        self,
        manifest: Mapping[str, Any],
        generation: int,
        segments: Sequence[Mapping[str, Any]],
        files: Mapping[str, Any],
        dead: Sequence[NDArray[np.bool_]] | None,
    ) -> None:
        deleted = None
        files = {name: facts for name, facts in files.items() if not name.startswith("deleted-")}
        if dead is not None and any(each.any() for each in dead):
            deleted = name_of("deleted", generation, ".npy")
            with WholeFile(self.folder / deleted) as part, part.open("wb") as opened:
                np.save(opened, np.packbits(np.concatenate(dead)))
            files[deleted] = facts_of(self.folder / deleted)
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "generation": generation}
        write_manifest(
            self.folder, {**head, **manifest, **head, "segments": list(segments), "deleted": deleted, "files": files}
        )


def sample(store: FeatureStore, pooling: str, engine: str, codes: str, seed: int) -> NDArray[np.float32]:
    """Rows to train on, drawn from a seed; none where nothing is to be trained."""
    d = d_of(store, pooling)
    if engine != "ivf-pq" and codes != "8-bit":
        return np.empty((0, d), np.float32)
    drawn = np.zeros(len(store), bool)
    drawn[np.random.default_rng(seed).permutation(len(store))[: sample_size(d)]] = True
    parts = [block.rows[drawn[block.first :][: len(block.kept)][block.kept]] for block in unit_blocks(store, pooling)]
    if not any(map(len, parts)):
        raise _nothing_there(store)
    return np.concatenate(parts)


def _nothing_there(store: FeatureStore) -> ValueError:
    return ValueError(
        f"An index is of features, but all {len(store)} rows of {store.folder} are zero or not finite.\n"
        "Extract them anew; float32 holds what float16 cannot."
    )


def features_of(store: FeatureStore, pooling: str) -> dict[str, Any]:
    """What decides the numbers of a row, and has to be the same for all rows of an index."""
    manifest = store.manifest
    settings = {name: value for name, value in manifest["settings"].items() if name not in NO_MATTER}
    facts = {f"pooling {name}": value for name, value in manifest["poolings"][pooling].items()}
    return settings | facts | {"fitted": manifest.get("fitted", {}).get(pooling)}

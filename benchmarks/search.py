"""How fast an index answers, beside FAISS alone, and what each engine finds, takes and costs.

    python benchmarks/search.py                     100 000 × 2048 features in clusters; up to ten minutes, 4 GB of disk
    python benchmarks/search.py --small             10 000 × 256, some seconds
    python benchmarks/search.py --json > benchmarks/results/search-cpu.jsonl

Indexes are made as `cbp index` makes them, of a store of features, and opened as `cbp search` opens them. Queries are of the
same clusters as the features, and not among them. All engines are timed in turns, for one query after another and for 64 at a
time, with two things that are FAISS and nothing else: its exact index in memory, in float32 and in float16. What an engine
finds is compared with what the first of them finds.

All is done by one thread and timed by the processor's clock: what others do on the machine meanwhile does not count.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from compact_bilinear.device import one_thread
from compact_bilinear.features import FeatureStore, FeatureWriter
from compact_bilinear.search import Index, IndexWriter
from timing import machine, take_turns

BARE, BARE_16 = "FAISS alone: exact, float32", "FAISS alone: exact, float16"
KINDS = (("flat", "float32"), ("flat", "float16"), ("flat", "8-bit"), ("hnsw", "float16"), ("ivf-pq", "float16"))
EFFORTS = {"flat": (None,), "hnsw": (32, 64, 128), "ivf-pq": (16,)}
TOP = 10
ONES, BATCH = 8, 64  # queries that are timed one after the other, and at a time
BLOCK = 4096

Rows = NDArray[np.float32]


def clustered(count: int, d: int, seed: int) -> Iterator[Rows]:
    """Rows of length 1, some at a time, around a thousand centres: of one cluster, their cosine is about a half."""
    centres = np.random.default_rng(0).standard_normal((1000, d), dtype=np.float32)
    draw = np.random.default_rng(seed)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        x = centres[draw.integers(len(centres), size=size)] + draw.standard_normal((size, d), dtype=np.float32)
        yield x / np.linalg.norm(x, axis=1, keepdims=True)


def write_store(folder: Path, count: int, d: int) -> FeatureStore:
    """The rows as ``cbp extract`` would leave them."""
    items = SimpleNamespace(
        classes=(), paths=tuple(f"{row:06}.jpg" for row in range(count)), labels=(-1,) * count, splits=("",) * count
    )
    pooling = f"tensor-sketch:{d}"
    writer = FeatureWriter(folder, items, {pooling: {"dim": d}}, settings={}, shard_size=BLOCK)
    for shard, block in zip(writer.missing(), clustered(count, d, seed=1), strict=True):
        with writer.start(shard) as rows:
            rows.add(range(shard.first, shard.stop), {pooling: block})
    writer.complete()
    return FeatureStore(folder)


def records(folder: Path, count: int, d: int, rounds: int) -> Iterator[dict[str, Any]]:
    """One of each engine, and of FAISS alone."""
    store = write_store(folder / "features", count, d)
    queries = next(clustered(BLOCK, d, seed=2))[:500]
    searches: dict[str, Callable[[Rows], object]] = {}
    facts: dict[str, dict[str, Any]] = {}

    bare, bare_16 = (
        faiss.IndexFlatIP(d),
        faiss.IndexScalarQuantizer(d, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT),
    )
    for block in store.blocks(next(iter(store.poolings))):
        for each in (bare, bare_16):
            each.add(block.astype(np.float32))
    for name, each in ((BARE, bare), (BARE_16, bare_16)):
        searches[name] = partial(each.search, k=TOP)
        facts[name] = {}
    truth = bare.search(queries, TOP)[1]

    for engine, codes in KINDS:
        start = time.process_time()
        made = IndexWriter(folder / f"{engine} {codes}").make(store, next(iter(store.poolings)), engine=engine, codes=codes)
        built = time.process_time() - start
        size = sum(each["bytes"] for each in made.index.manifest["files"].values()) / count
        start = time.perf_counter()
        index = Index(made.index.folder)
        opened = (time.perf_counter() - start) * 1e3
        for effort in EFFORTS[engine]:
            name = f"{engine}, {codes}" + (f", effort {effort}" if effort else "")
            searches[name] = partial(index.search, top=TOP, effort=effort)
            found = index.search(queries, TOP, effort)
            recall = np.mean([np.isin(best, near.numbers).mean() for best, near in zip(truth, found, strict=True)])
            facts[name] = {"recall": float(recall), "seconds_to_build": built, "bytes_an_image": size, "open_ms": opened}

    def one_by_one(search: Callable[[Rows], object]) -> None:
        for place in range(ONES):
            search(queries[place : place + 1])

    turns = partial(take_turns, device="cpu", rounds=rounds, clock=time.process_time)
    one = turns({name: partial(one_by_one, search) for name, search in searches.items()})
    many = turns({name: partial(search, queries[:BATCH]) for name, search in searches.items()})
    for name in searches:
        alone = BARE if "float32" in name else BARE_16
        yield {
            "name": name,
            "n": count,
            "d": d,
            "one_ms": [value / ONES for value in one[name]],
            "batch_ms": [value / BATCH for value in many[name]],
            "faster_one": one["flat, float16"].median / one[name].median,
            "faster_batch": many["flat, float16"].median / many[name].median,
            "speed_of_faiss_one": one[alone].median / one[name].median,
            "speed_of_faiss_batch": many[alone].median / many[name].median,
            **facts[name],
        }


def main() -> None:
    """Print a table, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="10 000 × 256, to see that it runs")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    count, d = (10_000, 256) if arguments.small else (100_000, 2048)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        for record in records(Path(folder), count, d, arguments.rounds):
            if arguments.json:
                print(json.dumps({"benchmark": "search", **machine("cpu"), "faiss": faiss.__version__, **record}), flush=True)
            else:
                cells = (f"{name} {_shown(value)}" for name, value in record.items() if name not in ("name", "n", "d"))
                print(f"{record['name']:<30}{'   '.join(cells)}", flush=True)


def _shown(value: object) -> str:
    if isinstance(value, list):
        middle, low, high = value
        return f"{middle:.4g} ({low:.4g} … {high:.4g})"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

"""The tables of the READMEs, made from the committed records in ``benchmarks`` and ``experiments``: nobody types a number.

    python benchmarks/tables.py            write them anew
    python benchmarks/tables.py --check    fail if what is written differs from the records

A table stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``, NAME a function of this file.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

from pooling import FFT, FLOOR, FULL, PLAIN_MACLAURIN

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(
    ROOT / page for page in ("README.md", "benchmarks/README.md", "docs/search.md", "src/compact_bilinear/descriptors/tiny.md")
)
REFERENCE = {"b": 8, "c": 512, "h": 28, "w": 28, "d": 8192}
SKETCH, MACLAURIN = "TensorSketch(plan='gram')", "RandomMaclaurin(plan='gram')"
EXACT = ("flat, float32", "flat, float16")

Record = dict[str, Any]


def read(name: str, folder: str = "benchmarks") -> list[Record]:
    """The records of one run."""
    lines = (ROOT / folder / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def reference() -> dict[str, Record]:
    """The rows at the shape of VGG-16's last feature map, by name."""
    return {r["name"]: r for r in read("pooling-cpu") if REFERENCE.items() <= r.items()}


def headline() -> str:
    """The README's one sentence."""
    sketch = reference()[SKETCH]["ratio"]
    return (
        f"On {_b_c_h_w(REFERENCE)} with d = 8192, forward and backward, Tensor Sketch takes **{sketch[FULL]:.2f}×** the time "
        f"of full bilinear pooling, **{1 / sketch[FFT]:.0f}× less** than transforms at each location, and "
        f"{sketch[FLOOR]:.2f}× that of the two matrix products it is made of."
    )


def speed() -> str:
    """The README's short table."""
    return _speed_table(reference(), [FULL, SKETCH, FFT, MACLAURIN, PLAIN_MACLAURIN])


def shapes() -> str:
    """Every row of every shape."""
    records = read("pooling-cpu")
    sizes = dict.fromkeys((r["b"], r["c"], r["h"], r["w"], r["d"]) for r in records)
    parts = []
    for size in sizes:
        keys = dict(zip(("b", "c", "h", "w", "d"), size, strict=True))
        rows = {r["name"]: r for r in records if keys.items() <= r.items()}
        parts.append(f"**{_b_c_h_w(keys)}, d = {keys['d']}**\n\n" + _speed_table(rows, list(rows)))
    return "\n\n".join(parts)


def targets() -> str:
    """What the layers were built to reach on a CPU, and what this run shows."""
    rows = reference()
    sketch, maclaurin = rows[SKETCH], rows[MACLAURIN]
    pixels = REFERENCE["h"] * REFERENCE["w"]
    allowed = (REFERENCE["b"] * REFERENCE["c"] ** 2 + REFERENCE["b"] * REFERENCE["c"] * pixels) * 4 / 1e6
    normal = next(r for r in read("normalize-cpu") if r["name"] == "signed_sqrt_l2" and r["d"] == REFERENCE["c"] ** 2)
    worst = max(record["loss"] for method in ("tensor_sketch", "random_maclaurin") for record in read(f"plans-{method}-cpu"))
    added = read("import-cpu")[0]["added_ms"][0]
    index = {r["name"]: r for r in read("search-cpu")}
    graphs = [r for name, r in index.items() if name.startswith("hnsw") and r["recall"] >= 0.95]
    exact = min(index[name][speed] for name in EXACT for speed in ("speed_of_faiss_one", "speed_of_faiss_batch"))
    lines = [
        ("Tensor Sketch over full bilinear", "≤ 0.8", f"{sketch['ratio'][FULL]:.2f}"),
        ("Tensor Sketch over the floor", "≤ 1.3", f"{sketch['ratio'][FLOOR]:.2f}"),
        ("Tensor Sketch faster than the FFT at each location", "≥ 40", f"{1 / sketch['ratio'][FFT]:.0f}"),
        ("random Maclaurin faster than its formula in plain torch", "≥ 2.5", f"{1 / maclaurin['ratio'][PLAIN_MACLAURIN]:.1f}"),
        ("signed_sqrt_l2 faster than plain torch, (8, 262144)", "≥ 2", f"{1 / normal['ratio']:.1f}"),
        ("extra memory of Tensor Sketch over B and x", "≤ 1.5", f"{sketch['extra_mb'] / allowed:.2f}"),
        (
            "extra memory below the FFT at each location",
            "≥ 10×",
            f"{rows[FFT]['extra_mb'] / sketch['extra_mb']:.0f}×",
        ),
        ('plan="auto" over the better plan, at worst', "≤ 1.25", f"{worst:.2f}"),
        ("import compact_bilinear adds to import torch", "< 100 ms", f"{added:.0f} ms"),
        ("HNSW at recall@10 ≥ 0.95 faster than exact search", "≥ 20", f"{max(r['faster_one'] for r in graphs):.0f}"),
        ("exact search over the speed of FAISS alone, at worst", "≥ 0.8", f"{exact:.2f}"),
    ]
    return "| | wanted | measured |\n|---|--:|--:|\n" + "\n".join(f"| {a} | {b} | {c} |" for a, b, c in lines)


def plans() -> str:
    """What the rule of ``plan="auto"`` loses."""
    lines = ["| method | points | took the faster plan | loss, median | loss, worst | at |", "|---|--:|--:|--:|--:|---|"]
    for method in ("tensor_sketch", "random_maclaurin"):
        records = read(f"plans-{method}-cpu")
        worst = max(records, key=lambda record: record["loss"])
        best = sum(record["loss"] == 1 for record in records)
        loss = median(record["loss"] for record in records)
        place = f"c={worst['c']}, n={worst['n']}, d={worst['d']}"
        lines.append(f"| {method} | {len(records)} | {best} | {loss:.2f} | {worst['loss']:.2f} | {place} |")
    return "\n".join(lines)


def normalization() -> str:
    """Signed square root and ℓ₂."""
    lines = ["| | b×d | forward ms | forward + backward ms | faster than plain torch |", "|---|--:|--:|--:|--:|"]
    for record in read("normalize-cpu"):
        size, gain = f"{record['b']}×{record['d']}", 1 / record["ratio"]
        times = f"{record['forward_ms'][0]:.2f} | {record['both_ms'][0]:.2f}"
        lines.append(f"| {record['name']} | {size} | {times} | {gain:.1f}× |")
    return "\n".join(lines)


def extraction() -> str:
    """What extraction adds to the backbone, and what it holds in memory."""
    records = read("extract-cpu")
    lines = ["| | seconds an image | × backbone |", "|---|--:|--:|"]
    lines += [f"| {r['name']} | {r['seconds_an_image'][0]:.3f} | {r['ratio']:.3f} |" for r in records if "ratio" in r]
    lines += ["", "| | most memory held, MB |", "|---|--:|"]
    lines += [f"| {r['name']} | {r['megabytes']:.0f} |" for r in records if "megabytes" in r]
    return "\n".join(lines)


def serving() -> str:
    """What HTTP adds to the model, and what happens under more load than there is time for."""
    alone, *records = read("serve-cpu")
    lines = [
        "| | images a second | × by itself | × one client | ms, median | ms, p99 | processor ms an image | lost or twice |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        f"| {alone['name']} | {alone['images_a_second'][0]:.0f} | 1.00 | | | | {alone['processor_ms']:.1f} | |",
    ]
    for r in records:
        ratios = f"{r['ratio']:.2f} | {r['ratio_to_one_client']:.2f}" if "ratio" in r else " | "
        processor = f"{r['processor_ms']:.1f} + {r['client_ms']:.1f}" if "client_ms" in r else ""
        lines.append(
            f"| {r['name']} | {r['images_a_second'][0]:.0f} | {ratios} | {r['ms'][0]:.0f} | {r['ms'][1]:.0f} | {processor} | "
            f"{r['lost_or_twice']} |"
        )
    many, last = records[-2:]
    told = f"{last['answers']} requests were answered and {last['refused']} told to come again"
    others = f"The machine's load before the run was {alone['load_before']:.1f}, where 0 is a machine of its own."
    lines += [
        "",
        f"Of the last, {told}. {others}",
        "",
        "| | wanted | measured |",
        "|---|--:|--:|",
        f"| {many['name']} over one client | ≥ 1.8 | {many['ratio_to_one_client']:.2f} |",
        f"| {many['name']} over the model by itself | ≥ 0.85 | {many['ratio']:.2f} |",
        f"| requests lost or answered twice | 0 | {sum(r['lost_or_twice'] for r in records)} |",
        f"| p99 under overload, over a full queue and the batches before it | ≤ 1 | {last['ms'][1] / last['bound_ms']:.2f} |",
    ]
    return "\n".join(lines)


def search() -> str:
    """What an index answers, finds, takes and costs."""
    lines = [
        "| | recall@10 | ms a query, alone | × exact | ms a query, of 64 | × exact | bytes an image | minutes to build |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    made, *_ = records = read("search-cpu")
    for r in records:
        cells = [
            f"{r['one_ms'][0]:.2f}",
            f"{_short(r['faster_one'])}×",
            f"{r['batch_ms'][0]:.2f}",
            f"{_short(r['faster_batch'])}×",
        ]
        if "recall" in r:
            cells = [f"{r['recall']:.3f}", *cells, f"{r['bytes_an_image']:.0f}", f"{r['seconds_to_build'] / 60:.1f}"]
        else:
            cells = ["–", *cells, "–", "–"]
        lines.append(f"| {r['name']} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"{made['device']}, threads: {made['threads']}, FAISS {made['faiss']}, {made['date']}."])


def duplicates() -> str:
    """From which similarity on changed images are found, and others too."""
    records = read("duplicates", "experiments")
    thresholds = list(records[0]["found"])
    lines = [f"| | | {' | '.join(f'≥ {threshold}' for threshold in thresholds)} |", "|---|---" + "|--:" * len(thresholds) + "|"]
    lines += [
        f"| {r['backbone']} | {r['change']} | {' | '.join(f'{share:.0f}' for share in r['found'].values())} |" for r in records
    ]
    return "\n".join(lines)


def logistic() -> str:
    """Logistic regression beside scikit-learn's."""
    lines = [
        "| | m×d, k | threads | seconds | of which Gram matrix | faster | gap | iterations | most memory, MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in read("logistic-cpu"):
        seconds = r["seconds"][0] if isinstance(r["seconds"], list) else r["seconds"]
        gram = f"{r['gram_seconds']:.2f}" if "gram_seconds" in r else "–"
        faster = f"{r['faster']:.1f}×" if "faster" in r else "–"
        memory = f"{r['megabytes']:.0f}" if "megabytes" in r else "–"
        size = f"{r['m']}×{r['d']}, {r['k']}"
        gap = f"{r['gap']:.1e}"
        cells = (r["name"], size, r["threads"], f"{seconds:.2f}", gram, faster, gap, r["iterations"], memory)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def tiny_on_materials() -> str:
    """How good the small trunk is that ships with the package."""
    rows = [
        f"| {record['backbone']} | {record['weights']} | {record['error']:.1f} ± {record['spread']:.1f} |"
        for record in read("tiny_on_materials", "experiments")
    ]
    return "\n".join(["| backbone | weights | error % |", "|---|---|--:|", *rows])


def machine() -> str:
    """Where the records were made."""
    record = read("pooling-cpu")[0]
    return f"{record['device']}, {record['threads']} threads, float32, torch {record['torch']}, {record['date']}."


def _speed_table(rows: dict[str, Record], names: list[str]) -> str:
    lines = [
        "| | forward + backward ms | × full bilinear | × floor | faster than FFT | extra MB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        record = rows[name]
        ratio = record["ratio"]
        memory = f"{record['extra_mb']:.0f}" if "extra_mb" in record else "–"
        cells = [f"{record['both_ms'][0]:.1f}", _short(ratio[FULL]), _short(ratio[FLOOR]), _short(1 / ratio[FFT]) + "×", memory]
        label = f"`{name}`" if "(" in name or name in ("AveragePool", "FullBilinear", "RandomProjection") else name
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2f}"


def _b_c_h_w(keys: dict[str, int]) -> str:
    return "×".join(str(keys[letter]) for letter in "bchw")


TABLES = {
    made.__name__: made
    for made in (
        headline,
        speed,
        shapes,
        targets,
        plans,
        normalization,
        extraction,
        logistic,
        search,
        serving,
        duplicates,
        tiny_on_materials,
        machine,
    )
}


def fill(page: str) -> str:
    """A page with every table in it written anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- begin {name} -->\n{TABLES[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (?P<name>\w+) -->\n.*?<!-- end (?P=name) -->", table, page, flags=re.DOTALL)


def main() -> int:
    """Write the pages, or say which differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not that of the records")
    arguments = parser.parse_args()
    stale = 0
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        made = fill(page)
        if made != page and arguments.check:
            print(f"{path.relative_to(ROOT)}: a table is not what the records say. Write `make tables`.")
            stale = 1
        elif made != page:
            path.write_text(made, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written anew")
    return stale


if __name__ == "__main__":
    sys.exit(main())

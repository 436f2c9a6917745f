"""Few-shot: how well a few images of each class teach a classifier, for each pooling of a feature store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from ..device import find_device, same_bits
from ..processes import Processes
from ..progress import counting_bar, note

if TYPE_CHECKING:  # they are imported in run(): `cbp --help` does without them
    from rich.console import RenderableType

    from ..classify.few_shot import Draws, Score
    from ..features import FeatureStore


@dataclass(frozen=True)
class FewShot:
    """Train on a few images of each class, score on the test images, and repeat with others.

    For instance, from features that `cbp extract photos --pool tensor-sketch:8192 --pool full-bilinear --out features` made:

        cbp fewshot features --shots 1 2 3 --draws 10

    Images are drawn from the training split and scored on all of the test split; without a test split they are drawn from all
    images and scored on those that are not drawn. Draws are nested, so that two images of each class are the one and another,
    and they are the same for all poolings. Scores are mean average precision, as in the paper, and accuracy: their mean over
    the draws ± their standard deviation from one draw to another.
    """

    features: Positional[Path]
    """The folder that `cbp extract` made."""
    shots: tuple[int, ...] = ()
    """Images of each class; without it 1 2 3 7 14, as in the paper, as far as the smallest class has so many."""
    draws: int = 5
    """How often images are drawn anew."""
    pool: UseAppendAction[tuple[str, ...]] = ()
    """A pooling of the store; may be repeated. All of them if there is none."""
    classifier: Literal["both", "logistic", "one-vs-rest", "nearest-mean"] = "both"
    """Logistic regression, the nearest class mean, or both of them; or logistic regression of each class against the rest, as
    the authors of the paper have it."""
    lambda_: Annotated[float, arg(name="lambda")] = 1e-3
    """How strongly weights are held small, λ‖w‖² + a sum of losses."""
    seed: int = 0
    """What the draws are drawn from."""
    json: bool = False
    """Print a JSON object a line in place of the table, with the scores of each draw."""
    device: str = "auto"
    """Where features are multiplied: cpu or cuda."""


def run(config: FewShot) -> "FewShotTable | str":
    """Train and score classifiers for every pooling, number of images and draw.

    Returns:
        A table; or its records, a JSON object a line, if the configuration says so.
    """
    from ..classify.few_shot import CLASSIFIERS, Draws, Products, few_shot
    from ..features import FeatureStore

    _check(config)
    store = FeatureStore(config.features)
    poolings = _poolings(config, store)
    device = find_device(config.device, Processes.from_environment())
    shots = _shots(config, store)
    draws = Draws.of(store, max(shots), config.draws, config.seed)
    classifiers = CLASSIFIERS if config.classifier == "both" else (config.classifier,)
    unknown = int((store.labels < 0).sum())
    if unknown:
        note(f"{unknown} images whose class is not known are neither drawn nor scored")
    scores: dict[str, list[Score]] = {}
    for pooling in poolings:
        with same_bits(device), counting_bar(f"fewshot, {pooling}", "images", 0, len(draws.rows)) as advance:
            products = Products.of(store, pooling, draws, device, advance)
        with counting_bar(f"fewshot, {pooling}", "draws", 0, config.draws) as advance:
            scores[pooling] = few_shot(products, draws, shots, classifiers, config.lambda_, advance)
    records = [
        _record(config, store, draws, pooling, [score for score in some if (score.classifier, score.shots) == (name, count)])
        for pooling, some in scores.items()
        for name in classifiers
        for count in shots
    ]
    if config.json:
        return "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return FewShotTable(f"{store.folder}: {_told(draws, shots)}", tuple(records))


@dataclass(frozen=True)
class FewShotTable:
    """What came out, as a table for people."""

    title: str
    """What was drawn and scored."""
    records: tuple[dict[str, Any], ...]
    """For each pooling, classifier and number of images: means and standard deviations over draws, and the scores of each."""

    def __str__(self) -> str:
        """Plain text."""
        lines = [self.title]
        for name, rows in self._tables():
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            lines += ["", name]
            lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    def __rich__(self) -> "RenderableType":
        """The same with lines and weight."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        tables = []
        for name, (head, *rows) in self._tables():
            table = Table(*head, title=Text(name), title_justify="left")
            for row in rows:
                table.add_row(*map(Text, row))
            tables.append(table)
        return Group(Text(self.title), *tables)

    def _tables(self) -> list[tuple[str, list[list[str]]]]:
        """For each table its name and its rows, with a heading."""
        shots = sorted({record["shots"] for record in self.records})
        entries = {(record["pooling"], record["classifier"], record["shots"]): record for record in self.records}
        lines = list(dict.fromkeys((pooling, classifier) for pooling, classifier, _ in entries))
        first = lines[0][0]
        head = ["pooling", "classifier", *map(str, shots)]
        tables = []
        for key, name in (("mean_average_precision_by_draw", "mean average precision, %"), ("accuracy_by_draw", "accuracy, %")):
            tables.append((name, [head, *([*line, *(_shown(entries[*line, s][key]) for s in shots)] for line in lines)]))
        others = [line for line in lines if line[0] != first]
        if others:
            rows = [
                [*line, *(_shown_beside(entries[*line, count], entries[first, line[1], count]) for count in shots)]
                for line in others
            ]
            tables.append((f"mean average precision, %, less that of {first} in the same draws", [head, *rows]))
        return tables


def _shown(values: Sequence[float], sign: str = "") -> str:
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):{sign}.1f}{spread}"


def _shown_beside(record: dict[str, Any], other: dict[str, Any]) -> str:
    pairs = zip(record["mean_average_precision_by_draw"], other["mean_average_precision_by_draw"], strict=True)
    return _shown([one - another for one, another in pairs], "+")


def _record(config: FewShot, store: "FeatureStore", draws: "Draws", pooling: str, scores: Sequence["Score"]) -> dict[str, Any]:
    first = scores[0]
    record: dict[str, Any] = {
        "pooling": pooling,
        "d": store.poolings[pooling],
        "classifier": first.classifier,
        "shots": first.shots,
        "classes": draws.drawn.shape[2],
        "draws": len(scores),
        "seed": config.seed,
        "scored": len(draws.scored[0]),
        "scored_on": "test" if draws.test_split else "not drawn",
    }
    if first.classifier != "nearest-mean":
        record["lambda"] = config.lambda_
    for key in ("mean_average_precision", "accuracy"):
        values = [getattr(score, key) for score in scores]
        # of the draws that there might have been, as far as these can tell: one of them tells nothing
        record |= {key: mean(values), f"{key}_sd": stdev(values) if len(values) > 1 else None, f"{key}_by_draw": values}
    return record


def _told(draws: "Draws", shots: Sequence[int]) -> str:
    number, _, k = draws.drawn.shape
    source, scored = ("the training images", "test images") if draws.test_split else ("all images", "images that are not drawn")
    times = "drawn once" if number == 1 else f"drawn {number} times"
    counts = ", ".join(map(str, shots))
    return f"{counts} images of each of {k} classes, {times} from {source}, scored on {len(draws.scored[0])} {scored}"


def _shots(config: FewShot, store: "FeatureStore") -> list[int]:
    """The numbers of images, ascending. What nobody asked for and the store has not is left out."""
    from ..classify.few_shot import SHOTS, most_shots

    if config.shots:
        return sorted(set(config.shots))
    most = most_shots(store)
    fitting = [count for count in SHOTS if count <= most]
    if len(fitting) < len(SHOTS):
        left_out = ", ".join(str(count) for count in SHOTS if count > most)
        note(f"left out are {left_out} images of each class: the smallest class has {most} to draw from")
    return fitting


def _poolings(config: FewShot, store: "FeatureStore") -> list[str]:
    asked = list(dict.fromkeys(config.pool)) or list(store.poolings)
    for pooling in asked:
        if pooling not in store.poolings:
            raise ValueError(
                f"{store.folder} has no features {pooling!r}.\n"
                f"It has {', '.join(store.poolings)}; others go into a folder of their own."
            )
    return asked


def _check(config: FewShot) -> None:
    if any(count < 1 for count in config.shots):
        raise ValueError(f"Few-shot takes at least one image of each class, but got {min(config.shots)}.\nWrite --shots 1 2 3.")
    if config.draws < 1:
        raise ValueError(f"Few-shot takes at least one draw, but got {config.draws}.\nWrite --draws 5.")
    if config.seed < 0:
        raise ValueError(f"Few-shot takes a seed ≥ 0, but got {config.seed}.\nWrite --seed 0.")
    if not 0 < config.lambda_ < float("inf"):
        raise ValueError(f"Logistic regression takes λ > 0, but got {config.lambda_}.\nWrite --lambda 1e-3, as in the paper.")

"""Search: images of an index that look like others; and those that are in it twice."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tyro.conf import Positional

from ..progress import note

if TYPE_CHECKING:  # they are imported in run(): `cbp --help` does without them
    from ..search import Found, Index


@dataclass(frozen=True)
class Search:
    """Find images of an index that look like others, or all that are in it twice.

    For instance, like a photograph; like all in a folder; like one that is inside; and the near-duplicates:

        cbp search birds photo.jpg
        cbp search birds new-photos --top 3 --format csv
        cbp search birds crow/07.jpg
        cbp search birds --duplicates

    An image that is broken is named and skipped, and the exit code is 1 then.
    """

    index: Positional[Path]
    """The folder of the index."""
    queries: Positional[tuple[str, ...]] = ()
    """Images, or folders of them; or paths of images that are inside, which do not find themselves."""
    top: int = 10
    """How many are found for each."""
    effort: int | None = None
    """More finds more, and takes longer: rows that hnsw keeps in sight (64), or lists that ivf-pq looks into (16)."""
    duplicates: bool = False
    """Find groups of images in the index that are the same, or nearly."""
    threshold: float = 0.95
    """The least similarity of two images that count as the same."""
    format: Literal["text", "csv", "jsonl"] = "text"
    """Lines for people, a table for other programs, or a JSON object a line."""
    device: str = "auto"
    """cpu or cuda, for the model."""
    batch: int = 0
    """Images at a time; 0 is 32 on a GPU and 4 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


class _Query(NamedTuple):
    name: str
    number: int | None  # of an item inside


def run(config: Search) -> None:
    """Print what is found, query after query."""
    _check(config)
    from ..search import Index
    from ..search.output import group_as_text

    index, first = Index(config.index), True
    broken: list[str] = []
    groups = _duplicates(config, index) if config.duplicates else _answers(config, index, broken)
    for title, name, rows in groups:
        try:
            sys.stdout.write(group_as_text(title, name, rows, config.format, first=first) + "\n")
            sys.stdout.flush()  # as it is found
        except BrokenPipeError:  # who read, as `head` does, has read enough
            return
        first = False
    if broken:
        raise OSError(
            f"Images that gave no features: {len(broken)}; the first is {broken[0]}.\n"
            "Mend or remove what is named above; for all else is printed what was found."
        )


Group = tuple[dict[str, Any], str, list[dict[str, Any]]]


def _duplicates(config: Search, index: "Index") -> Iterator[Group]:
    from ..search import duplicates

    found = duplicates(index, config.threshold)
    count = sum(len(group.numbers) for group in found)
    note(f"groups with a similarity of {config.threshold} or more: {len(found)}, of {count} of {len(index)} images")
    for place, group in enumerate(found, start=1):
        yield {"group": place}, "images", _rows(index, group.similarities.tolist(), group.numbers.tolist())


def _answers(config: Search, index: "Index", broken: list[str]) -> Iterator[Group]:
    """What each query finds, in their order; and into ``broken`` the reasons of those that could ask nothing."""
    queries = [query for name in config.queries for query in _read(name, index)]
    found = _of_files([query.name for query in queries if query.number is None], config, index)
    for query in queries:
        near = next(found) if query.number is None else index.neighbours(query.number, config.top, config.effort)
        if isinstance(near, str):
            note(f"left out: {near}")
            broken.append(near)
            continue
        rows = _rows(index, near.similarities.tolist(), near.numbers.tolist())
        yield {"query": query.name}, "neighbours", [{"rank": rank, **row} for rank, row in enumerate(rows, start=1)]


def _read(name: str, index: "Index") -> list[_Query]:
    """The images that a query means."""
    from ..images.folder import images_below

    path = Path(name)
    if path.is_dir():
        images, _ = images_below(path)
        if not images:
            raise ValueError(f"{name} has no images.\nName a folder that holds some, or an image.")
        return [_Query(str(path / each), None) for each in images]
    return [_Query(name, None if path.exists() else index.find(name))]


def _of_files(files: Sequence[str], config: Search, index: "Index") -> "Iterator[Found | str]":
    """What each image file finds, or why it finds nothing."""
    if not files:
        return
    if index.model is None:
        raise ValueError(
            f"{config.index} has no model, which {files[0]} would need: it was made with --no-model.\n"
            "Search for images that are inside, or make the index anew with its model."
        )
    from ..device import find_device
    from ..images import ImageList
    from ..inference import answers
    from ..model import load_model
    from ..processes import Processes

    model = load_model(index.model, find_device(config.device, Processes()))
    images = ImageList("queries", Path(), (), tuple(files), (-1,) * len(files), ("",) * len(files))
    for answer in answers(model, images, features=True, batch=config.batch, workers=config.workers):
        said: dict[int, Found | str] = dict(answer.broken)
        if len(answer.places):
            features = answer.output.numpy()
            directed = (features != 0).any(axis=1)  # a grey image may have features that are all zero
            near = iter(index.search(features[directed], config.top, config.effort))
            for place, has_direction in zip(answer.places.tolist(), directed.tolist(), strict=True):
                said[place] = next(near) if has_direction else f"{files[place]}: its features are zero"
        yield from (said[place] for place in sorted(said))


def _rows(index: "Index", similarities: Sequence[float], numbers: Sequence[int]) -> list[dict[str, Any]]:
    items = [index.item(number) for number in numbers]
    return [
        {"similarity": round(similarity, 6), "class": item.name, "path": item.path, "split": item.split}
        | ({} if item.file is None else {"file": str(item.file)})
        for similarity, item in zip(similarities, items, strict=True)
    ]


def _check(config: Search) -> None:
    if config.duplicates == bool(config.queries):
        raise ValueError(
            "A search is for images like others, or for duplicates, but "
            f"{'both were' if config.duplicates else 'neither was'} asked for.\n"
            f"Write `cbp search {config.index} IMAGE`, or `cbp search {config.index} --duplicates`."
        )
    if config.top < 1 or (config.effort is not None and config.effort < 1) or config.batch < 0:
        raise ValueError(
            f"Search takes top ≥ 1, effort ≥ 1 and batch ≥ 0, but got {config.top}, {config.effort} and {config.batch}.\n"
            "Leave them out for the usual values."
        )

"""How well images of a class find each other: recall and mean average precision of an exact search by cosine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import FeatureStore
from .features.unit_rows import unit_blocks

RANKED = 2**25  # similarities that are ranked at a time, 128 MB
HELD = 2**30  # bytes of queries that are held while the gallery passes by


@dataclass(frozen=True)
class Retrieval:
    """What the queries found, as means over them."""

    recall: dict[int, float]
    """k → the part of the queries that have an image of their class among the k nearest."""
    mean_average_precision: float
    """The mean over all images of its class of the precision down to where it is found, and of that over the queries."""
    queries: int
    """How many there were."""
    gallery: int
    """In how many images they searched."""
    left_out: int
    """Images of the query split that ask nothing: no label, nobody of their class to be found, or no finite features."""

    def to_record(self) -> dict[str, Any]:
        """As JSON has it."""
        recall = {f"recall@{k}": value for k, value in self.recall.items()}
        return {**recall, "mAP": self.mean_average_precision, "queries": self.queries, "gallery": self.gallery}

    def __str__(self) -> str:
        """One line for people, in %."""
        recalls = ", ".join(f"recall@{k} {100 * value:.1f}" for k, value in self.recall.items())
        return f"{recalls}, mAP {100 * self.mean_average_precision:.1f} % ({self.queries} queries in {self.gallery} images)"


def retrieval(
    store: FeatureStore,
    pooling: str,
    query_split: str | None = None,
    gallery_split: str | None = None,
    ks: Sequence[int] = (1, 5, 10),
) -> Retrieval:
    r"""Recall and mean average precision, exact, without ever holding much more than a block of similarities.

    For a query with :math:`r` images of its class in the gallery, found at the ranks :math:`\rho_1 < \dots < \rho_r`,

    .. math:: \mathrm{AP} = \frac1r \sum_{i=1}^r \frac{i}{\rho_i}

    Equal similarities are ranked in the order of the store.

    Args:
        store: with labels.
        pooling: which features; they are scaled to length 1.
        query_split: whose images ask; None for all.
        gallery_split: in whose images is searched; None for all. Where it is the same split each image asks for the others,
            and is not found itself (leave one out).
        ks: how many nearest count.
    """
    if not ks or min(ks) < 1:
        raise ValueError(f"Recall is taken at one or more k ≥ 1, but got ks={tuple(ks)}.\nWrite ks=(1, 5, 10).")
    asking, searched = store.rows(query_split), store.rows(gallery_split)
    gallery_kept = np.concatenate([block.kept for block in unit_blocks(store, pooling, gallery_split)])
    gallery = searched[gallery_kept]
    sizes = np.bincount(store.labels[gallery][store.labels[gallery] >= 0], minlength=len(store.classes) + 1)
    found: list[NDArray[np.float64]] = []
    for rows, x in _queries(store, pooling, query_split, asking, max(1, RANKED // max(1, len(gallery)))):
        labels = store.labels[rows]
        myself = gallery[None] == rows[:, None]
        asks = (labels >= 0) & (sizes[labels] > myself.any(1))
        similarities = np.concatenate([x @ block.rows.T for block in unit_blocks(store, pooling, gallery_split)], axis=1)
        similarities[myself] = -np.inf  # comes last, where it is of no class
        order = np.argsort(-similarities, axis=1, kind="stable")
        relevant = np.take_along_axis((store.labels[gallery][None] == labels[:, None]) & ~myself, order, axis=1)[asks]
        precision = np.cumsum(relevant, axis=1) / np.arange(1, len(gallery) + 1)
        average = (precision * relevant).sum(1) / relevant.sum(1)
        found.append(np.stack([average, *(relevant[:, :k].any(1) for k in ks)], axis=1).astype(np.float64))
    scores = np.concatenate(found) if found else np.empty((0, 1 + len(ks)))
    if not len(scores):
        raise ValueError(
            f"Retrieval needs queries with images of their class to be found, but {store.folder} has none"
            f"{f' from {query_split!r} in {gallery_split!r}' if query_split or gallery_split else ''}.\n"
            "Give the images classes: a folder for each, or a CSV."
        )
    mean = scores.mean(0).tolist()
    return Retrieval(dict(zip(ks, mean[1:], strict=True)), mean[0], len(scores), len(gallery), len(asking) - len(scores))


def _queries(
    store: FeatureStore, pooling: str, split: str | None, asking: NDArray[np.int64], size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows of the store, and their features, as many at a time as can be held: for each time the whole gallery is read."""
    size = max(1, min(size, HELD // (4 * store.poolings[pooling])))
    numbers, waiting = np.empty(0, np.int64), list[NDArray[np.float32]]()
    for block in unit_blocks(store, pooling, split):
        numbers = np.concatenate([numbers, asking[block.first : block.first + len(block.kept)][block.kept]])
        waiting.append(block.rows)
        while len(numbers) >= size:
            rows = np.concatenate(waiting)
            yield numbers[:size], rows[:size]
            numbers, waiting = numbers[size:], [rows[size:]]
    if len(numbers):
        yield numbers, np.concatenate(waiting)

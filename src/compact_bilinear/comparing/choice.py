r"""Which pooling to take: the one with the fewest numbers among those that are as good as the best, for all that can be seen.

The error of each pooling is a share of the same m test images. That of the best, e, has the standard error

.. math:: \mathrm{s.e.} = \sqrt{e (1 - e) / m}

had the test images been drawn at random, and a pooling counts as equally good if its error is not above e + s.e. Of those the
one with the smallest d is taken; of several with the same d that with the smaller error.

Whether one pooling is better than another is said by what they do to the same images. With :math:`w_i` and :math:`w'_i` telling
whether each gets image i wrong, the difference of the errors is the mean of :math:`w_i - w'_i`, and its standard error that of
this mean: images that both get right, or both wrong, do not count, as in McNemar's test.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..experiments.records import Record
from ..report.names import BEFORE, place


class Candidate(NamedTuple):
    """How a pooling did."""

    pooling: str
    d: int
    error: float
    images: int
    """Those that it was tested on."""

    @property
    def standard_error(self) -> float:
        """Of the error."""
        return math.sqrt(self.error * (1 - self.error) / self.images)


class Choice(NamedTuple):
    """The pooling to take, and the one with the smallest error: often the same."""

    taken: Candidate
    best: Candidate

    @property
    def limit(self) -> float:
        """The largest error that counts as equally good."""
        return self.best.error + self.best.standard_error


def choose(records: Iterable[Record]) -> Choice:
    """Apply the rule.

    Args:
        records: of one comparison; those that are no errors of linear classifiers are passed over.

    >>> cell = {"stage": "linear", "measure": "error", "details": {"test images": 400}}
    >>> def of(pooling: str, d: int, error: float) -> Record:
    ...     return Record("compare", "bark", "tiny", pooling, d, value=error, **cell)
    >>> full, compact = of("full-bilinear", 36864, 0.20), of("tensor-sketch:2048", 2048, 0.21)
    >>> choose([full, compact, of("average-pool", 192, 0.30)]).taken.pooling
    'tensor-sketch:2048'
    """
    found = [
        Candidate(each.pooling, each.d, each.value, int(str(each.details["test images"])))
        for each in records
        if each.measure == "error" and each.stage == BEFORE
    ]
    best = min(found, key=lambda each: (each.error, each.d, place(each.pooling)))
    limit = Choice(best, best).limit
    equal = [each for each in found if each.error <= limit]
    return Choice(min(equal, key=lambda each: (each.d, each.error, place(each.pooling))), best)


class Difference(NamedTuple):
    """By how much the error of one pooling is above that of another, on the same images."""

    value: float
    standard_error: float


def difference(wrong: ArrayLike, other: ArrayLike) -> Difference:
    """Compare two poolings image by image.

    Args:
        wrong: (m,), whether the one gets each image wrong.
        other: (m,), whether the other does.

    >>> difference([True, True, False, False], [False, True, False, False])
    Difference(value=0.25, standard_error=0.25)
    """
    apart = np.asarray(wrong, float) - np.asarray(other, float)
    spread = float(apart.std(ddof=1)) if len(apart) > 1 else 0.0
    return Difference(float(apart.mean()), spread / math.sqrt(len(apart)))

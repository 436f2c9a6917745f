"""Which algorithm runs: the one place where it is chosen, and where the choice can be asked for its reason.

Sum pooling is linear, so Tensor Sketch and Random Maclaurin can each be had in two ways, with the same result:

=====================  =======================================================  ================================
plan                   operations an image                                      best with
=====================  =======================================================  ================================
"gram" (both)          2nc² for B; then c² scattered numbers (Tensor Sketch),   many locations
                       or 2c²d (Random Maclaurin)
"fft" (Tensor Sketch)  n(c + d log d): two transforms a location, one inverse   few locations, many channels
                       an image
"direct" (RM)          4ncd: both projections of each location                  n < c/2 or so
=====================  =======================================================  ================================

The rule is that table with measured nanoseconds (forward and backward together) in place of operations. It does not look at b:
both sides grow with it, and a plan that changed with the batch would change the last digits of an image's features.
``benchmarks/plans.py`` measures both plans over a grid of shapes and says what the rule loses against the better one. The
factors for the CPU come from two cores of a server with AVX-512, those for every other device from single operations on one
H200 in float32, timed before these layers were written. What counts is their ratio, which moves less from machine to machine.
"""

from collections.abc import Callable
from math import log2
from typing import NamedTuple

import torch

from .locations import Locations

TENSOR_SKETCH = ("gram", "fft")
RANDOM_MACLAURIN = ("gram", "direct")


class Shape(NamedTuple):
    """What a plan depends on."""

    n: int
    c: int
    c2: int
    d: int
    device: str

    @classmethod
    def of(cls, seen: Locations, d: int) -> "Shape":
        return cls(seen.x.shape[2], seen.x.shape[1], seen.other.shape[1], d, seen.x.device.type)


Costs = Callable[[Shape], dict[str, float]]


def tensor_sketch_costs(shape: Shape) -> dict[str, float]:
    """Nanoseconds an image, forward and backward."""
    n, c, c2, d, device = shape
    pairs, channels, transform = c * c2, (c + c2) / 2, d * log2(d)
    if device == "cpu":
        # products; scatter and gather, which miss the caches more as d grows | sketches and transforms; what n = 1 costs too
        return {
            "gram": 0.015 * n * pairs + (2 + d / 20_000) * pairs + 5 * d,
            "fft": n * (13 * channels + 0.35 * transform) + 12 * d + 10_000,
        }
    return {"gram": 9e-5 * n * pairs + 0.04 * pairs, "fft": n * (0.06 * channels + 0.0028 * transform)}


def random_maclaurin_costs(shape: Shape) -> dict[str, float]:
    """Nanoseconds an image, forward and backward."""
    n, c, c2, d, device = shape
    # B is projected once each way; the locations by both projections, whose products are b·n·d numbers to write and read
    through_b, each_location = 4 * c * c2 * d, 4 * n * (c + c2) * d
    if device == "cpu":
        return {
            "gram": 0.0046 * through_b + 0.015 * n * c * c2 + 0.3 * max(c, c2) * d,
            "direct": 0.004 * each_location + 4 * n * d,
        }
    return {"gram": 2.7e-5 * through_b + 9e-5 * n * c * c2, "direct": 2.4e-5 * each_location}


def read_plan(owner: str, plan: str, known: tuple[str, str]) -> str:
    """``plan`` as given by the user."""
    if plan != "auto" and plan not in known:
        raise ValueError(
            f'{owner} has the plans "auto", "{known[0]}" and "{known[1]}" but got {plan!r}.\n'
            'Write plan="auto" to let the shapes decide; `pool.explain(x)` says what that takes.'
        )
    return plan


def refuse_plan(owner: str, plan: str, unable: str, because: str, able: str) -> None:
    """An explicit plan never falls back: where it cannot do what is asked, the reason is raised."""
    if plan == unable:
        raise ValueError(
            f'{owner} gives every location by itself, but plan="{unable}" {because}.\n'
            f'Build the layer with plan="{able}", or with plan="auto", which takes "{able}" here.'
        )


def choose(plan: str, costs: Costs, shape: Shape) -> str:
    """The plan that runs: the one asked for, or the cheaper one."""
    if plan != "auto":
        return plan
    if isinstance(shape.n, torch.SymInt):
        # exported for any number of locations: both plans are right for all of them, and this one keeps one graph
        return "gram"
    (first, cost), (second, other_cost) = costs(shape).items()
    return first if cost <= other_cost else second


def explain(plan: str, costs: Costs, shape: Shape) -> str:
    """The choice and its reason in a sentence."""
    estimate = costs(shape)
    taken, cheaper = choose(plan, costs, shape), choose("auto", costs, shape)
    numbers = " and ".join(f'"{name}" at about {_milliseconds(cost)}' for name, cost in estimate.items())
    channels = f"c={shape.c}" if shape.c == shape.c2 else f"c={shape.c}, c2={shape.c2}"
    here = f"for n={shape.n}, {channels}, d={shape.d} on {shape.device} the rule puts {numbers} an image, forward and backward"
    if plan == "auto":
        return f'plan="auto" takes "{taken}": {here}.'
    verdict = "would take the same" if taken == cheaper else f'would take "{cheaper}"'
    return f'"{taken}" runs because plan="{plan}" was asked for; "auto" {verdict}: {here}.'


def _milliseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.3g} ms"

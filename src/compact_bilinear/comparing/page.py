"""The sections of a page that shows a comparison: the table first, then pictures, and last how it was made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..experiments.records import Record
from ..model import Model
from ..report.drawing import Drawing
from ..report.figures import cost_bars, few_shot_curves, reliability_diagram
from ..report.names import BEFORE, method
from ..report.page import (
    CommandSection,
    EvidenceSection,
    FigureSection,
    GallerySection,
    PairSection,
    Section,
    SettingSection,
    StripSection,
    TableSection,
)
from ..report.table import as_text
from .choice import Choice
from .examples import Examples
from .figure import error_with_rule
from .table import comparison_table

CURVES = ("average-pool", "full-bilinear-triangle", "fisher-vector", "pca-bilinear", "tensor-sketch")  # kinds of few images


WIDE = 0.03  # standard errors above which few test images are worth a word


def doubts(choice: Choice) -> list[str]:
    """What is to be said where there are few test images."""
    error = choice.best.standard_error
    if error <= WIDE:
        return []
    known = f"With {choice.best.images} test images an error is known to ± {_points(error)} points"
    return [f"{known}: more of them would tell more poolings apart."]


def recommendation(choice: Choice) -> str:
    """What to take, and why, in words."""
    taken, best = choice
    if taken == best:
        return (
            f"Take {taken.pooling}: it has the smallest error, {_percent(taken.error)} ± {_points(taken.standard_error)}, with "
            f"{as_text(taken.d, 0)} numbers an image. All that is shorter is worse by more than one standard error."
        )
    return (
        f"Take {taken.pooling}: it errs in {_percent(taken.error)} ± {_points(taken.standard_error)} with "
        f"{as_text(taken.d, 0)} numbers an image. {best.pooling} has the smallest error, {_percent(best.error)} ± "
        f"{_points(best.standard_error)} with {as_text(best.d, 0)}; of all within one standard error of it, what you take is "
        "the shortest."
    )


def sections(
    records: Sequence[Record],
    choice: Choice,
    command: str,
    examples: Examples,
    model: Model | None,
    settings: Mapping[str, Mapping[str, object]],
) -> list[Section]:
    """All sections, in the order in which they are read.

    Args:
        records: of the comparison.
        choice: made from them.
        command: that trains what is taken.
        examples: of what is taken.
        model: the same, where it can say which places in an image speak for a class.
        settings: how all was made.
    """
    of_poolings = [each for each in records if each.pooling != "backbone"]
    taken = choice.taken.pooling
    m = len(examples.labels)
    found: list[Section] = [
        TableSection("All poolings", comparison_table(records, choice), _how(m)),
        FigureSection("What length buys", _lengths(records, choice)),
        CommandSection("Train it", command, f"A model with {taken}, from the same images."),
    ]
    pairs = examples.confused()
    if pairs:
        text = (
            f"What {taken} takes for something else most often: the surest mistake of each kind, and the training image of "
            "the other class that is most like it."
        )
        found.append(PairSection("What is confused", pairs, text))
    found.append(GallerySection("How sure it is", examples.by_confidence(), "Test images, each with the class that it is of."))
    if model is not None:
        text = (
            "The score of a class is a sum over places in the image. Orange places raised the score of the class that was "
            "named, blue ones lowered it. The first test image of several classes."
        )
        found.append(EvidenceSection("Where the evidence lies", examples.evidence(model), text))
    text = "The training images whose features are most similar to those of a test image. No classifier takes part."
    found.append(StripSection("What looks alike", examples.neighbours(), text))
    reliable = reliability_diagram(examples.confidence, examples.right)
    found.append(FigureSection("What it costs, and whether to believe it", [_times(of_poolings), reliable]))
    found.append(SettingSection("How it was made", settings))
    return found


def _times(records: Sequence[Record]) -> Drawing:
    bars = cost_bars(records, ("ms",))
    caption = "Pooling and normalisation of one image, without the backbone; on a CPU with one core."
    return replace(bars, title="Milliseconds an image", caption=caption)


def _how(images: int) -> str:
    return (
        f"Every image passed the backbone once; a logistic regression learned from the training images, and {images} test "
        "images were scored. The rule takes the shortest feature whose error is within one standard error of the smallest."
    )


def _lengths(records: Sequence[Record], choice: Choice) -> list[Drawing]:
    """Errors with all training images, and with a few, of what is taken and of the best of each other kind."""
    errors = {each.pooling: each.value for each in records if each.stage == BEFORE and each.measure == "error"}
    kinds = {kind: [each for each in errors if method(each) == kind] for kind in CURVES}
    shown = {min(some, key=lambda each: errors[each]) for some in kinds.values() if some} | {choice.taken.pooling}
    few = [each for each in records if each.stage == "few-shot" and each.pooling in shown]
    drawings = [error_with_rule(records, choice)]
    if few:
        caption = (
            "The same draws of training images for all poolings, scored on all test images; bands are ± one sample standard "
            "deviation of the draws."
        )
        title = "Error from a few images of each class"
        drawings.append(replace(few_shot_curves(few, "error"), title=title, caption=caption))
    return drawings


def _percent(share: float) -> str:
    return f"{as_text(100 * share, 1)} %"


def _points(share: float) -> str:
    return as_text(100 * share, 1)

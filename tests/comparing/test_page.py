"""What is said of a choice, in words."""

from compact_bilinear.comparing.choice import Candidate, Choice
from compact_bilinear.comparing.page import doubts, recommendation

FULL, LARGE = "full-bilinear-triangle", "tensor-sketch:8192"


def test_the_best_is_taken() -> None:
    best = Candidate(FULL, 18528, 0.10, 400)
    assert recommendation(Choice(best, best)) == (
        f"Take {FULL}: it has the smallest error, 10.0 % ± 1.5, with 18\u202f528 numbers an image. All that is shorter is "
        "worse by more than one standard error."
    )


def test_something_shorter_is_taken() -> None:
    assert recommendation(Choice(Candidate(LARGE, 8192, 0.1149, 400), Candidate(FULL, 18528, 0.10, 400))) == (
        f"Take {LARGE}: it errs in 11.5 % ± 1.6 with 8192 numbers an image. {FULL} has the smallest error, 10.0 % ± 1.5 with "
        "18\u202f528; of all within one standard error of it, what you take is the shortest."
    )


def test_few_test_images_are_worth_a_word() -> None:
    many, few = (Candidate(LARGE, 8192, 0.1, images) for images in (400, 25))
    assert doubts(Choice(many, many)) == []
    (said,) = doubts(Choice(few, few))
    assert said.startswith("With 25 test images an error is known to ± 6.0 points")

"""Class scores that can be compared: the calibration which the paper's authors apply after logistic regression."""

import torch
from torch import Tensor


def median_calibration(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """A scale and a shift for each class, so that the median score of its negatives is 0 and that of its positives 1.

    Calibrated scores are ``scores * scale + shift``. Within a class their order stays, and with it average precision; between
    classes it changes, and with it accuracy. A class whose positives do not score above its negatives is only shifted.

    Args:
        scores: (m, k), of training images.
        targets: (m, k), 1 where the image is of the class, 0 elsewhere. Each class has both.

    Returns:
        Scale and shift, (k,), in float64.

    >>> scores = torch.tensor([[-4.0], [-3.0], [-2.0], [1.0], [5.0]])
    >>> median_calibration(scores, torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0]]))
    (tensor([0.1667], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    scores = scores.double()
    negative, positive = (scores.where(targets == which, torch.nan).nanquantile(0.5, 0) for which in (0, 1))
    distance = positive - negative
    scale = torch.where(distance > 0, 1 / distance, 1.0)
    return scale, -negative * scale

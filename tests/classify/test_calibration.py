"""Medians by hand."""

import torch

from compact_bilinear.classify.calibration import median_calibration


def test_medians_of_each_class() -> None:
    scores = torch.tensor([[3.0, 0.0], [5.0, 1.0], [9.0, 2.0], [1.0, 7.0], [2.0, 9.0]])
    targets = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 1]])
    scale, shift = median_calibration(scores, targets)
    calibrated = scores * scale + shift
    torch.testing.assert_close(calibrated[:3, 0].median().item(), 1.0)
    torch.testing.assert_close(calibrated[3:, 0].mean().item(), 0.0, atol=1e-12, rtol=0)  # of two numbers: their middle
    torch.testing.assert_close(calibrated[3:, 1].mean().item(), 1.0)
    torch.testing.assert_close(calibrated[1, 1].item(), 0.0, atol=1e-12, rtol=0)


def test_a_class_that_is_not_told_apart_is_only_shifted() -> None:
    scores, targets = torch.tensor([[4.0], [4.0], [1.0]]), torch.tensor([[0.0], [0.0], [1.0]])
    scale, shift = median_calibration(scores, targets)
    assert scale.tolist() == [1]
    assert shift.tolist() == [-4]

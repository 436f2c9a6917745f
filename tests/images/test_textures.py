"""Procedural textures: what classes share, what they do not, and that second-order pooling tells them apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from compact_bilinear import AveragePool, FullBilinear, signed_sqrt_l2
from compact_bilinear.images import read_images
from compact_bilinear.images import textures as module
from compact_bilinear.images.decode import decode
from compact_bilinear.images.textures import texture, textures, write_textures


@pytest.fixture(scope="module")
def data() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return textures(classes=8, images_per_class=24, size=64, seed=0)


def error(features: Tensor, labels: Tensor, first: Tensor) -> float:
    """Error on the other images of ridge regression to the classes' indicators, at the best of several strengths."""
    features = features - features[first].mean(0)
    targets = F.one_hot(labels).double() - 1 / (labels.max() + 1)
    train, errors = features[first], []
    for strength in (1e-4, 1e-3, 1e-2, 1e-1):
        gram = train @ train.mT
        dual = torch.linalg.solve(gram + strength * gram.trace() / len(gram) * torch.eye(len(gram)), targets[first])
        guess = (features[~first] @ train.mT @ dual).argmax(1)
        errors.append((guess != labels[~first]).double().mean().item())
    return min(errors)


def responses(images: NDArray[np.uint8], channels: int = 32) -> Tensor:
    """Rectified responses of random 5×5 filters, each without response to a plain colour."""
    draw = torch.Generator().manual_seed(1)
    filters = torch.randn(channels, 3, 5, 5, generator=draw)
    filters -= filters.mean((2, 3), keepdim=True)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 45
    return F.conv2d(x, filters).relu()


def test_average_pooling_is_clearly_behind_bilinear_pooling(data: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> None:
    images, labels = data
    x, y = responses(images), torch.from_numpy(labels)
    first = torch.arange(len(y)) % 24 < 12
    average = error(signed_sqrt_l2(AveragePool(32)(x)).double(), y, first)
    bilinear = error(signed_sqrt_l2(FullBilinear(32, triangle=True)(x)).double(), y, first)
    # guessing is wrong in 7 of 8 cases
    assert bilinear < 0.25
    assert average > 1.5 * bilinear + 0.05
    assert average < 0.7


def test_one_colour_alone_knows_nothing(data: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> None:
    """With one colour in all three channels, bilinear pooling is reduced to guessing: 7/8, to three standard errors."""
    images, labels = data
    x, y = responses(images[..., :1].repeat(3, axis=3)), torch.from_numpy(labels)
    first = torch.arange(len(y)) % 24 < 12
    features = signed_sqrt_l2(FullBilinear(32, triangle=True)(x)).double()
    # the best of four strengths is a little luckier than one
    assert error(features, y, first) > 7 / 8 - 3 * np.sqrt(7 / 8 * 1 / 8 / 96) - 0.02


def test_colours_share_mean_and_variance(data: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> None:
    images, labels = data
    for moment, off in ((images.mean((1, 2)), 1.5), (images.std((1, 2)), 1.5)):
        of_class = np.stack([moment[labels == label].mean(0) for label in range(8)])
        spread = moment.std(0) / np.sqrt(24)
        assert (np.abs(of_class - of_class.mean(0)) < 4 * spread).all()
        assert np.abs(of_class.mean(0) - (module.MEAN if moment.mean() > 100 else module.CONTRAST)).max() < off


def test_colours_share_their_spectrum(data: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> None:
    images, labels = data
    power = np.abs(np.fft.fft2(images.astype(float) - 128, axes=(1, 2))) ** 2
    bands = np.stack([(power * (a[None, ..., None] > 0)).sum((1, 2)) for a in module._amplitudes(64)], 1)  # (n, K, 3)
    of_class = np.stack([bands[labels == label].mean(0) for label in range(8)])
    standard_error = np.stack([bands[labels == label].std(0, ddof=1) for label in range(8)]) / np.sqrt(24)
    z = (of_class - bands.mean(0)) / standard_error
    assert np.abs(z).max() < 6  # the largest of 8 · 18 · 3, each like Student's t of 23 degrees
    assert np.abs(z).mean() < 1


def test_classes_differ_in_how_colours_go_together(data: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> None:
    images, labels = data
    x = np.fft.fft2(images.astype(float) - 128, axes=(1, 2))
    cross = (x[..., 0] * x[..., 1].conj()).real
    bands = np.stack([(cross * (a > 0)).sum((1, 2)) for a in module._amplitudes(64)], 1)
    of_class = np.stack([bands[labels == label].mean(0) for label in range(8)])
    standard_error = np.stack([bands[labels == label].std(0, ddof=1) for label in range(8)]) / np.sqrt(24)
    assert np.abs((of_class - bands.mean(0)) / standard_error).mean() > 2


def test_noise_that_distributes_the_threads_is_standard() -> None:
    m = module._where(18, 96, np.random.default_rng(0))
    assert np.square(m).sum(0) == pytest.approx(1)
    z = np.log(m) * module.SHARPNESS
    z -= z.mean(0)  # the softmax forgot what they had in common: 17/18 of the variance is left
    assert z.var() == pytest.approx(17 / 18, rel=0.15)


@pytest.mark.parametrize("size", [32, 33, 47, 101])
def test_threads_have_the_same_variance_at_any_size(size: int) -> None:
    theta = 2 * np.pi * np.random.default_rng(0).random((18, size, size))
    threads = np.fft.ifft2(module._amplitudes(size) * np.exp(1j * theta)).real
    # over the torus, cosines of different frequencies are orthogonal, and each has the variance a²/2
    assert threads.var((1, 2)) == pytest.approx(np.ones(18), rel=1e-6)


def test_more_of_them_leave_the_others_as_they_are() -> None:
    few, _ = textures(classes=2, images_per_class=2, size=32, seed=5)
    many, labels = textures(classes=3, images_per_class=4, size=32, seed=5)
    assert np.array_equal(few, many[[0, 1, 4, 5]])
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert np.array_equal(texture(2, 3, 32, 5), many[11])
    assert len({each.tobytes() for each in many}) == 12
    other, _ = textures(classes=2, images_per_class=2, size=32, seed=6)
    assert not np.array_equal(few, other)


def test_more_jitter_is_harder() -> None:
    errors = []
    for jitter in (0.2, 1.5):
        images, labels = textures(classes=4, images_per_class=16, size=48, jitter=jitter)
        x, y = responses(images), torch.from_numpy(labels)
        first = torch.arange(len(y)) % 16 < 8
        errors.append(error(signed_sqrt_l2(FullBilinear(32, triangle=True)(x)).double(), y, first))
    assert errors[0] < 0.2
    assert errors[1] > 0.4


def test_writes_a_folder(tmp_path: Path) -> None:
    folder = write_textures(tmp_path / "deep" / "woven", classes=2, images_per_class=5, size=32, seed=1, test_share=0.4)
    images = read_images(folder)
    assert str(images) == "woven: 10 images of 2 classes (6 train, 4 test)"
    assert images.classes == ("texture-00", "texture-01")
    assert images.paths[0] == "test/texture-00/0003.png"
    assert np.array_equal(np.asarray(decode(images.file(0))), texture(0, 3, 32, 1))
    assert [each.name for each in folder.parent.iterdir()] == ["woven"]


def test_writes_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(label: int, *_: object, **__: object) -> NDArray[np.uint8]:
        if label:
            raise KeyboardInterrupt
        return np.zeros((32, 32, 3), np.uint8)

    monkeypatch.setattr(module, "texture", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_textures(tmp_path / "woven", classes=2, images_per_class=2, size=32)
    assert not list(tmp_path.iterdir())


def test_does_not_write_over_anything(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is there already\.\nRemove it, or name another"):
        write_textures(tmp_path)


@pytest.mark.parametrize("settings", [{"classes": 0}, {"images_per_class": 0}, {"size": 31}, {"jitter": -1}])
def test_refuses(settings: dict[str, int]) -> None:
    with pytest.raises(
        ValueError, match=r"(?s)at least one class of one image, of 32 pixels.*Write textures\(10, 40, size=64\)"
    ):
        textures(**settings)  # type: ignore[arg-type]


def test_refuses_a_split_with_nothing_on_one_side(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"leaves 0 to train on and 3 to test on"):
        write_textures(tmp_path / "woven", classes=1, images_per_class=3, size=32, test_share=0.9)

"""Times are of the layers that made the features, and each pooling has one."""

from pathlib import Path

import pytest
import torch

import photos
from compact_bilinear import signed_sqrt_l2
from compact_bilinear.comparing.cost import BACKBONE, fitted, milliseconds
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.features import FeatureStore
from compact_bilinear.images import ImageList, Transform, load_images, read_images
from compact_bilinear.recipes import extract

POOL = ("average-pool", "fisher-vector:2", "pca-bilinear:9", "tensor-sketch:64")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[FeatureStore, ImageList, str]:
    folder = photos.make(tmp_path_factory.mktemp("cost"))
    weights = str(folder / "weights.safetensors")
    store = extract.run(
        extract.Extract(folder / "photos", folder / "features", POOL, weights=weights, dtype="float32", **photos.SETTINGS)  # type: ignore[arg-type]
    )
    assert store is not None
    return store, read_images(folder / "photos"), weights


def test_every_pooling_and_the_backbone_have_a_time(made: tuple[FeatureStore, ImageList, str]) -> None:
    store, images, weights = made
    threads = torch.get_num_threads()
    found = milliseconds(store, images, weights, device=torch.device("cpu"), precision=torch.float32, rounds=2)
    assert set(found) == {BACKBONE, *POOL}
    assert all(0 < each < 60_000 for each in found.values())
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("pooling", POOL)
def test_layers_are_those_of_the_store(made: tuple[FeatureStore, ImageList, str], pooling: str) -> None:
    store, images, weights = made
    tap = "conv4-pre-relu" if pooling.startswith("fisher") else "conv4"
    backbone = load_backbone("tiny", Path(weights), tap)
    (batch,) = load_images(images, Transform(size=photos.SIZE), batch=3, order=store.indices[:3].tolist(), workers=0)
    with torch.inference_mode():
        y = signed_sqrt_l2(fitted(store, pooling, 192)(backbone(batch.pixels)))
    torch.testing.assert_close(y, store.tensor(pooling)[:3], rtol=1e-4, atol=1e-5)

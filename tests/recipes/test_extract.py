"""Extraction in this process: what features are, who looks at an image how often, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import photos
from compact_bilinear import FisherVector, PCABilinear, TensorSketch, signed_sqrt_l2
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.features import FeatureStore
from compact_bilinear.images import BrokenImage, Transform, load_images, read_images
from compact_bilinear.model import Model, load_model
from compact_bilinear.recipes.extract import Extract, run
from stores import contents

Make = Callable[..., Extract]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos.make(tmp_path_factory.mktemp("extract"))


@pytest.fixture
def config(folder: Path, tmp_path: Path) -> Make:
    def make(*pool: str, out: str = "out", **settings: object) -> Extract:
        weights = str(folder / "weights.safetensors")
        arguments = photos.SETTINGS | {"weights": weights, "pool": pool or ("tensor-sketch:64",)} | settings
        return Extract(folder / "photos", tmp_path / out, **arguments)

    return make


def all_pixels(folder: Path) -> Tensor:
    images = read_images(folder / "photos")
    return torch.cat([batch.pixels for batch in load_images(images, Transform(size=photos.SIZE), workers=0)])


def described(folder: Path, tap: str) -> Tensor:
    """Maps of all whole images, without anything that is tested here."""
    backbone = load_backbone("tiny", folder / "weights.safetensors", tap).eval()
    with torch.inference_mode():
        return backbone(all_pixels(folder))


class Counting(nn.Module):
    """A backbone that counts how often it sees each image."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.channels, self.image_size = "counting", 6, photos.SIZE
        self.seen: list[int] = []
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen += [hash(image.numpy().tobytes()) for image in images]
        self.sizes.append(len(images))
        return images.float().unfold(2, 8, 8).unfold(3, 8, 8).flatten(4).std(4).repeat(1, 2, 1, 1) / 50 - 0.3


def test_features_are_what_they_should_be(folder: Path, config: Make) -> None:
    store = run(config("tensor-sketch:64", "full-bilinear", "average-pool", dtype="float32"))
    assert store is not None
    images = read_images(folder / "photos")
    whole = [place for place, path in enumerate(images.paths) if path not in photos.BROKEN]
    assert store.indices.tolist() == whole
    assert store.paths == [images.paths[place] for place in whole]
    assert store.labels.tolist() == [images.labels[place] for place in whole]
    assert store.splits.tolist() == [images.splits[place] for place in whole]
    assert store.classes == images.classes == ("bark", "brick", "moss")
    maps = described(folder, "conv4")
    for name, pooled in (
        ("tensor-sketch:64", TensorSketch(192, 64)(maps)),
        ("full-bilinear", (maps.flatten(2) @ maps.flatten(2).mT).flatten(1)),
        ("average-pool", maps.mean((2, 3))),
    ):
        torch.testing.assert_close(store.tensor(name), signed_sqrt_l2(pooled), rtol=1e-4, atol=1e-5)


def test_without_normalisation_features_are_as_pooled_and_in_float32(folder: Path, config: Make) -> None:
    store = run(config("tensor-sketch:64", normalize=False))
    assert store is not None
    assert store.dtype == "float32"
    expected = TensorSketch(192, 64)(described(folder, "conv4"))
    torch.testing.assert_close(store.tensor("tensor-sketch:64"), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_half_precision_is_the_default_for_storing(config: Make) -> None:
    half, full = run(config(out="half")), run(config(out="full", dtype="float32"))
    assert half is not None
    assert full is not None
    assert half.dtype == "float16"
    assert np.array_equal(half.read("tensor-sketch:64"), full.read("tensor-sketch:64").astype("float16"))


def test_pca_sees_descriptors_after_the_relu_and_fisher_vectors_those_before(folder: Path, config: Make) -> None:
    store = run(config("pca-bilinear:16", "fisher-vector:3", "tensor-sketch:64", dtype="float32"))
    assert store is not None
    before = described(folder, "conv4-pre-relu")
    training = before[torch.from_numpy(store.rows("train"))]
    pca, fisher = PCABilinear(192, 16, learnable=False).fit(training.relu()), FisherVector(192, 3)
    torch.testing.assert_close(store.tensor("pca-bilinear:16"), signed_sqrt_l2(pca(before.relu())), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        store.tensor("tensor-sketch:64"), signed_sqrt_l2(TensorSketch(192, 64)(before.relu())), rtol=1e-4, atol=1e-5
    )
    tensors = photos.read_fitted(store.folder, "fisher-vector:3")
    fisher.load_state_dict(tensors)
    assert float(fisher.means.min()) < 0, "after the ReLU no mean would be negative"
    expected = training.flatten(2).mT.reshape(-1, 192).mean(0)
    torch.testing.assert_close(fisher.mixture @ fisher.means, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(store.tensor("fisher-vector:3"), signed_sqrt_l2(fisher(before)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fit_images", [1, 4, 7, 100])
def test_each_image_passes_the_backbone_once(config: Make, fit_images: int) -> None:
    counting = Counting()
    pool = ("pca-bilinear:4", "fisher-vector:2", "full-bilinear-triangle")
    store = run(config(*pool, fit_images=fit_images, dtype="float32"), counting)
    assert store is not None
    assert len(store) == len(counting.seen) == len(set(counting.seen)) == 27
    assert max(counting.sizes) <= 3
    assert not list(store.folder.glob(".*")), "the maps that were kept"
    plain = run(config("full-bilinear-triangle", out="plain", dtype="float32"), Counting())
    assert plain is not None
    name = "full-bilinear-triangle"
    assert np.array_equal(store.read(name), plain.read(name)), "rows in another order, or another image's maps"


def test_resuming_asks_only_for_what_is_missing(config: Make) -> None:
    settings = config("pca-bilinear:4", fit_images=5)
    run(settings, Counting())
    before = contents(settings.out)
    (settings.out / "shard-00001-of-00006.parquet").unlink()
    counting = Counting()
    run(settings, counting)
    assert contents(settings.out) == before
    assert len(counting.seen) == 5
    counting = Counting()
    run(settings, counting)
    assert counting.seen == []
    assert contents(settings.out) == before


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # torch's, where there is one CPU
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(config: Make, workers: int) -> None:
    pool = ("tensor-sketch:64", "pca-bilinear:4")
    first, second = config(*pool, out="first"), config(*pool, out="second", workers=workers)
    run(first)
    run(second)
    assert contents(first.out) == contents(second.out)


@pytest.mark.parametrize("threads", [0, 2, 5])
def test_threads_change_nothing(config: Make, threads: int) -> None:
    pool = ("tensor-sketch:64", "pca-bilinear:100", "fisher-vector:4")
    first, second = config(*pool, out="first"), config(*pool, out="second", threads=threads)
    run(first)
    torch.set_num_threads(3)
    try:
        run(second)
    finally:
        torch.set_num_threads(1)
    assert contents(first.out) == contents(second.out)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"batch": 4}, "batch: 3 → 4"),
        ({"size": 48}, "size: 40 → 48"),
        ({"tap": "conv4-pre-relu"}, 'tap: "conv4" → "conv4-pre-relu"'),
        ({"normalize": False, "dtype": "float16"}, "normalize: yes → no"),
        ({"dtype": "float32"}, 'dtype: "float16" → "float32"'),
        ({"decode": "draft"}, 'decode: "full" → "draft"'),
        ({"fit": "center-crop"}, 'fit: "stretch" → "center-crop"'),
        ({"precision": "bfloat16"}, 'precision: "float32" → "bfloat16"'),
        (
            {"pool": ("tensor-sketch:64,seed=1",)},
            "pooling tensor-sketch:64: yes → no; pooling tensor-sketch:64,seed=1: no → yes",
        ),
        ({"shard": 4}, "shards count: 6 → 8; shards size: 5 → 4"),
    ],
)
def test_a_changed_setting_is_refused(config: Make, changed: dict, told: str) -> None:
    settings = config()
    run(settings)
    before = contents(settings.out)
    with pytest.raises(ValueError, match=f"made otherwise; changed are {told}"):
        run(replace(settings, **changed))
    assert contents(settings.out) == before


def test_other_weights_or_images_are_refused(folder: Path, config: Make, tmp_path: Path) -> None:
    settings = config()
    run(settings)
    torch.manual_seed(5)
    weights = photos.weights(tmp_path / "other.safetensors", seed=4)
    with pytest.raises(ValueError, match=r"weights sha256: [0-9a-f]{12} → [0-9a-f]{12}\."):
        run(replace(settings, weights=str(weights)))
    copy = photos.photos(tmp_path / "photos")
    run(replace(settings, data=copy))  # the same images in another place are the same
    (copy / "train/brick/07.jpg").unlink()
    with pytest.raises(ValueError, match="items count: 29 → 28; items sha256"):
        run(replace(settings, data=copy))


def test_what_has_no_influence_may_change(config: Make) -> None:
    settings = config()
    run(settings)
    before = contents(settings.out)
    run(replace(settings, workers=1, threads=2, deterministic=False, seed=7, fit_images=3))
    assert contents(settings.out) == before


def test_broken_images_are_named_counted_and_skipped(config: Make) -> None:
    store = run(config("tensor-sketch:64", "pca-bilinear:4"))
    assert store is not None
    assert {each["path"]: each["reason"] for each in store.broken} == photos.BROKEN
    assert store.manifest["broken"] == 2


@pytest.mark.parametrize("pool", ["tensor-sketch:64", "pca-bilinear:4"])
def test_strict_stops_at_the_first_broken_image(config: Make, pool: str) -> None:
    settings = config(pool, strict=True)
    with pytest.raises(BrokenImage, match=r"0\d.jpg: (the file is empty|not an image)"):
        run(settings)
    with pytest.raises(ValueError, match="so far"):
        FeatureStore(settings.out)


def test_strict_is_not_content_with_broken_images_of_an_earlier_run(config: Make, tmp_path: Path) -> None:
    data = photos.photos(tmp_path / "photos")
    settings = replace(config(), data=data)
    run(settings)
    with pytest.raises(ValueError, match=r"04.jpg has none: the file is empty.\nMend it, remove .*00000-of-00006.parquet, and"):
        run(replace(settings, strict=True))
    for name in photos.BROKEN:
        (data / name).write_bytes((data / "train/moss/00.jpg").read_bytes())
    for report in settings.out.glob("_broken-*"):
        report.with_name(report.name.replace("_broken", "shard").replace("jsonl", "parquet")).unlink()
    store = run(replace(settings, strict=True))
    assert store is not None
    assert (len(store), store.broken) == (29, [])


class Overflowing(Counting):
    """Gives the last image of each batch numbers whose squares float16 cannot hold."""

    def forward(self, images: Tensor) -> Tensor:
        maps = super().forward(images)
        maps[-1] *= 1e4
        return maps


def test_features_that_are_not_finite_are_reported_as_broken(config: Make) -> None:
    settings = config("full-bilinear", normalize=False, dtype="float16")
    store = run(settings, Overflowing())
    assert store is not None
    reasons = [each["reason"] for each in store.broken]
    assert reasons.count("its features are not all finite, computed in float32 and kept as float16") > 5
    assert np.isfinite(store.read("full-bilinear")).all()
    assert len(store) + len(reasons) == 29
    with pytest.raises(ValueError, match=r"jpg: its features are not all finite.*\nTry --precision float32"):
        run(
            replace(settings, out=settings.out / "strict", strict=True, data=without_broken(settings.out.parent)), Overflowing()
        )


def without_broken(folder: Path) -> Path:
    made = photos.photos(folder / "whole")
    for name in photos.BROKEN:
        (made / name).unlink()
    return made


def test_no_image_can_be_read(config: Make, tmp_path: Path) -> None:
    for name in ("train/a/1.jpg", "train/a/2.jpg", "test/a/3.jpg"):
        (tmp_path / "all broken" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all broken" / name).touch()
    with pytest.raises(ValueError, match="none of those drawn could be read"):
        run(replace(config("pca-bilinear:4"), data=tmp_path / "all broken"))
    for _ in "ab":  # the second time there is nothing left to do
        with pytest.raises(ValueError, match=r"all 3 are broken, test/a/3.jpg for one: the file is empty.\nMend them, remove"):
            run(replace(config(out="none"), data=tmp_path / "all broken"))


def test_a_backbone_without_a_relu_to_undo_is_said(config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run(config("fisher-vector:2"), Counting())
    assert "Fisher vectors take descriptors before the last ReLU, but counting gives none" in capsys.readouterr().err
    run(config("fisher-vector:2", out="early", tap="conv4-pre-relu"))
    assert "Fisher vectors take" not in capsys.readouterr().err


def test_any_module_is_a_backbone(config: Make) -> None:
    store = run(config("full-bilinear", size=32), nn.Conv2d(3, 5, 8, 8))
    assert store is not None
    assert store.poolings == {"full-bilinear": 25}
    assert store.manifest["settings"]["backbone"] == "custom"


def test_tokens_are_pooled_too(config: Make) -> None:
    class Tokens(Counting):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images).flatten(2).mT

    pool = ("pca-bilinear:4", "tensor-sketch:9")
    maps, tokens = run(config(*pool, out="maps"), Counting()), run(config(*pool, out="tokens"), Tokens())
    assert maps is not None
    assert tokens is not None
    for name in maps.poolings:
        np.testing.assert_allclose(maps.read(name), tokens.read(name), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"pool": ("tensor-sketch:64", "tensor-sketch:64,seed=0")}, "tensor-sketch:64 was asked for twice"),
        ({"pool": ("pca-bilinear:60",)}, r"dim = k².*\nWrite dim=49"),
        ({"batch": -1}, "batch ≥ 0, but got -1"),
        ({"shard": 0}, "shard ≥ 1, but got 0"),
        ({"fit_images": 0}, "fit_images ≥ 1"),
        ({"size": -1}, "size ≥ 0"),
        ({"workers": -1}, "workers ≥ 0"),
        ({"threads": -1}, "threads ≥ 0"),
        ({"seed": -1}, "seed ≥ 0, but got -1"),
        ({"size": 4}, r"tiny takes images of at least 8×8 pixels, but got size 4.\nWrite --size 8 or more"),
        ({"device": "tpu"}, r"no device 'tpu'.\nWrite cpu, cuda or auto"),
        ({"backbone": "alexnet"}, "no backbone 'alexnet'"),
        ({"tap": "conv9"}, "tiny has no tap 'conv9'"),
        ({"kind": "cub"}, "should be of the kind cub"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(config: Make, settings: dict, told: str) -> None:
    asked = config(**settings)
    with pytest.raises(ValueError, match=told):
        run(asked)
    assert not asked.out.exists()


def test_features_go_into_a_folder_beside_the_images(folder: Path, config: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"features lies inside .*photos.\nWrite --out features"):
        run(config(out=str(folder / "photos" / "features")))
    assert not (folder / "photos" / "features").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file is a file.\nGive a folder"):
        run(config(out="file"))


def test_a_mistake_found_while_fitting_can_be_mended_in_the_same_folder(config: Make) -> None:
    with pytest.raises(ValueError, match="takes at least"):
        run(config("fisher-vector:999"))
    run(config("fisher-vector:2"))
    run(config("fisher-vector:2", out="fresh"))
    assert contents(config().out) == contents(config(out="fresh").out)


def test_the_order_of_poolings_changes_nothing(config: Make) -> None:
    run(config("tensor-sketch:64", "average-pool", out="first"))
    run(config("average-pool", "tensor-sketch:64", out="second"))
    assert contents(config(out="first").out) == contents(config(out="second").out)


def test_damaged_files_are_named_with_what_to_do(config: Make) -> None:
    settings = config("pca-bilinear:4")
    run(settings)
    before = contents(settings.out)
    shard, fitted = settings.out / "shard-00001-of-00006.parquet", settings.out / "_fitted.safetensors"
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"00006.parquet should have \d+ bytes, but has \d+.\n.*remove it"):
        run(settings)
    shard.unlink()
    fitted.write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"_fitted.safetensors is damaged: .*\nRemove it, and run the same command again"):
        run(settings)
    fitted.unlink()
    run(settings)
    assert contents(settings.out) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(config: Make) -> None:
    with pytest.raises(ValueError, match=r"torch finds no GPU.\nWrite cpu or auto"):
        run(config(device="cuda"))


def test_progress_is_told_in_lines_where_nobody_watches(config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run(config("pca-bilinear:4"))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "photos: 29 images of 3 classes (16 train, 13 test); tiny at 40×40 on cpu"
    assert said[1] == "left out are files that are no images by their names, 1 in all, train/brick/notes.txt for one"
    assert said[2].startswith("extract, to fit on: 16 of 16 images, ")
    assert said[3] == "extract: fitting pca-bilinear:4"
    assert said[4].startswith("extract: 29 of 29 images, ")


def test_fully_connected_is_of_another_layer_and_by_itself(config: Make) -> None:
    for wrong in (config("fully-connected", "tensor-sketch:8"), config("fully-connected", tap="conv4")):
        with pytest.raises(ValueError, match="Extract it by itself"):
            run(wrong)
    with pytest.raises(ValueError, match="tiny has no tap 'fc7'"):
        run(config("fully-connected"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose backbone and projection nobody has but itself."""
    model = Model(load_backbone("tiny"), "tensor-sketch:64", ("a", "b"), transform=Transform(size=photos.SIZE), learnable=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    model.save(folder := tmp_path_factory.mktemp("trained"))
    return folder


def test_a_trained_model_describes_as_it_was_trained(config: Make, trained: Path) -> None:
    made = config(model=trained, weights=None, size=0, backbone="vgg16", pool=(), out="features")
    store = run(replace(made, pool=()))
    assert store is not None
    model = load_model(trained)
    images = read_images(made.data)
    (batch,) = load_images(images, model.transform, batch=len(images), workers=0)
    with torch.no_grad():
        torch.testing.assert_close(store.tensor("tensor-sketch:64").float(), model.features(batch.pixels), rtol=0.01, atol=1e-3)
    again = Model.of_features(store, "tensor-sketch:64", trained)
    with torch.no_grad():
        torch.testing.assert_close(again(batch.pixels), model.features(batch.pixels), rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="--weights FILE, or the folder of the model"):
        Model.of_features(store, "tensor-sketch:64")


def test_a_model_brings_all_settings_along(config: Make, trained: Path) -> None:
    with pytest.raises(ValueError, match="Leave --backbone and --weights and --size out, or --model"):
        run(replace(config(model=trained), pool=()))
    with pytest.raises(ValueError, match=r"but --fit was given beside --model\.\nLeave --fit and --no-normalize out"):
        run(Extract(Path("photos"), Path("features"), model=trained, fit="center-crop", normalize=False))

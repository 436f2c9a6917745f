"""Images to scores as one module, saved and loaded; the pooling and the backbone have tests of their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import photos
from compact_bilinear import FullBilinear, signed_sqrt_l2
from compact_bilinear.descriptors import CustomBackbone, load_backbone
from compact_bilinear.features import FeatureStore
from compact_bilinear.images import Transform, load_images, read_images
from compact_bilinear.model import Model, load_model
from compact_bilinear.pooling.by_name import POOLINGS
from compact_bilinear.recipes import extract

CLASSES = ("crow", "wren", "Zaunkönig")
SIDE = 40


def pixels(b: int = 3, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(256, (b, 3, SIDE, SIDE), dtype=torch.uint8, generator=draw)


def model(pooling: str = "tensor-sketch:31", **settings: object) -> Model:
    made = Model(load_backbone("tiny"), pooling, CLASSES, transform=Transform(size=SIDE), **settings)  # type: ignore[arg-type]
    if hasattr(made.pooling, "fitted"):
        draw = torch.Generator().manual_seed(1)
        made.pooling.fit(torch.randn(1000, 192, generator=draw))
    draw = torch.Generator().manual_seed(2)
    weight = torch.randn(3, made.pooling.dim, generator=draw)
    return made.set_head(weight, torch.tensor([0.3, -0.2, 0.1])).eval()


def test_is_what_its_parts_are_in_a_row() -> None:
    made, backbone, pool = model("full-bilinear"), load_backbone("tiny"), FullBilinear(192)
    assert made.head is not None
    features = signed_sqrt_l2(pool(backbone(pixels())))
    torch.testing.assert_close(made.features(pixels()), features)
    torch.testing.assert_close(made(pixels()), features @ made.head.weight.T + made.head.bias)


def test_can_leave_out_the_normalisation_and_the_classes() -> None:
    bare = Model(load_backbone("tiny"), "average-pool", normalize=False, transform=Transform(size=SIDE))
    torch.testing.assert_close(bare(pixels()), load_backbone("tiny")(pixels()).mean((2, 3)))
    with pytest.raises(ValueError, match="no classes, and so no scores"):
        bare.scores(bare(pixels()))
    with pytest.raises(ValueError, match=r"Build it with classes=\(\.\.\.\)"):
        bare.set_head(torch.zeros(2, 192), torch.zeros(2))


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_probabilities_sum_to_one_and_keep_the_order(link: str) -> None:
    made = model(link=link)
    made.link = link  # type: ignore[assignment]  # set_head has set it
    scores = torch.tensor([[1.0, -2.0, 0.5], [-300.0, -200.0, -400.0]])
    probabilities = made.probabilities(scores)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(2))
    assert probabilities[0].argsort().tolist() == scores[0].argsort().tolist()
    assert probabilities[1].argmax() == 1, "also where each sigmoid alone is less than any number"


def test_scores_are_in_full_precision_under_autocast() -> None:
    made = model()
    with torch.autocast("cpu", torch.bfloat16):
        features = made.features(pixels())
        scores = made(pixels())
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, made.scores(features), rtol=0, atol=0)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_saved_and_loaded(pooling: str, tmp_path: Path) -> None:
    small = {"tensor-sketch": ":31,seed=4", "random-maclaurin": ":31", "random-projection": ":7,sparse", "pca-bilinear": ":9"}
    made = model(pooling + small.get(pooling, ":3" if pooling == "fisher-vector" else ""))
    made.made = {"lambda": 0.001}
    made.save(tmp_path)
    loaded = load_model(tmp_path)
    assert not loaded.training
    assert (loaded.classes, loaded.transform, loaded.made) == (made.classes, made.transform, made.made)
    assert str(loaded.named) == str(made.named)
    torch.testing.assert_close(loaded(pixels()), made(pixels()), rtol=1e-4, atol=1e-4)  # other memory layouts, other roundings
    for name, tensor in made.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


@pytest.mark.parametrize("pooling", ["tensor-sketch:31", "random-maclaurin:31", "pca-bilinear:9"])
def test_a_learned_projection_is_saved_as_it_was_learned(pooling: str, tmp_path: Path) -> None:
    made = model(pooling, learnable=True)
    learned = [parameter for parameter in made.pooling.parameters() if parameter.requires_grad]
    assert learned
    with torch.no_grad():
        for parameter in learned:
            parameter.mul_(1.5)
    made.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.learnable
    assert all(parameter.requires_grad for parameter in loaded.pooling.parameters())
    torch.testing.assert_close(loaded.features(pixels()), made.features(pixels()), rtol=1e-4, atol=1e-6)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(ValueError, match="Take pca-bilinear, random-maclaurin, tensor-sketch, or leave it fixed"):
        model("full-bilinear", learnable=True)


def test_saving_again_replaces_the_old_one_and_leaves_nothing(tmp_path: Path) -> None:
    model().save(tmp_path)
    other = model(seed := "tensor-sketch:31,seed=5")
    other.save(tmp_path)
    assert str(load_model(tmp_path).named) == seed
    assert len(list(tmp_path.iterdir())) == 2


def test_killed_between_its_two_files_the_old_model_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model().save(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compact_bilinear.model.write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        model("full-bilinear").save(tmp_path)
    monkeypatch.undo()
    assert str(load_model(tmp_path).named) == "tensor-sketch:31"
    model().save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_backbone_without_a_name_is_handed_over(tmp_path: Path) -> None:
    def convolution(seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Conv2d(3, 6, 8, 8)

    made = Model(convolution(0), "tensor-sketch:16", CLASSES, transform=Transform(size=SIDE))
    made.save(tmp_path)
    with pytest.raises(ValueError, match=r"Write `load_model\(folder, backbone=module\)`"):
        load_model(tmp_path)
    loaded = load_model(tmp_path, backbone=CustomBackbone(convolution(1), image_size=SIDE))
    torch.testing.assert_close(loaded.features(pixels()), made.features(pixels()))


def test_damage_and_strangers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        load_model(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"has no model\.json"):
        load_model(tmp_path)
    model().save(tmp_path / "good")
    for damage, message in (
        (lambda folder: (folder / "model.json").write_text("{"), "does not describe a model"),
        (
            lambda folder: (folder / "model.json").write_text('{"format": "onnx", "format_version": 1}'),
            "says 'onnx', version 1",
        ),
        (lambda folder: next(folder.glob("*.safetensors")).unlink(), "but has none"),
        (lambda folder: _flip(next(folder.glob("*.safetensors"))), "that differ"),
    ):
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "good", folder)
        damage(folder)
        with pytest.raises(ValueError, match=message):
            load_model(folder)


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_a_settings_file_leads_nowhere_else(tmp_path: Path) -> None:
    model().save(tmp_path / "run")
    file = tmp_path / "run" / "model.json"
    settings = json.loads(file.read_text())
    outside = tmp_path / settings["tensors"]["file"]
    next((tmp_path / "run").glob("*.safetensors")).rename(outside)
    settings["tensors"]["file"] = f"../{outside.name}"
    file.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="but has none"):
        load_model(tmp_path / "run")


def test_loading_draws_nothing_and_needs_no_weights_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model().save(tmp_path)
    monkeypatch.setattr("compact_bilinear.descriptors.weights.read_tensors", lambda *_: pytest.fail("read other weights"))
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_loaded_by_another_process_it_says_the_same(tmp_path: Path) -> None:
    made = model()
    made.save(tmp_path)
    made.eval()
    code = (
        "import sys, torch; from compact_bilinear.model import load_model; torch.set_num_threads(1);"
        "draw = torch.Generator().manual_seed(0);"
        f"x = torch.randint(256, (3, 3, {SIDE}, {SIDE}), dtype=torch.uint8, generator=draw);"
        "print(load_model(sys.argv[1])(x).tolist())"
    )
    said = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True).stdout
    torch.testing.assert_close(torch.tensor(json.loads(said)), made(pixels()).detach(), rtol=1e-4, atol=1e-5)


def test_the_head_fits_or_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes weights \(k=3, d=31\) and biases \(k=3,\) but got \(3, 30\)"):
        model().set_head(torch.zeros(3, 30), torch.zeros(3))


def test_is_described_with_its_shapes() -> None:
    lines = model().describe().splitlines()
    assert lines[0] == "images (b, 3, 40, 40)"
    assert [line.rpartition("(")[2] for line in lines[1:]] == ["b, 192, 5, 5)", "b, 31)", "b, 31)", "b, 3)"]
    assert "1,356,736 parameters" in lines[1]
    assert "96 parameters" in lines[4]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FeatureStore]:
    folder = photos.make(tmp_path_factory.mktemp("model"))
    config = extract.Extract(
        data=folder / "photos",
        out=folder / "features",
        pool=("tensor-sketch:31", "pca-bilinear:9", "fisher-vector:3"),
        weights=str(folder / "weights.safetensors"),
        dtype="float32",
        fit_images=7,
        **photos.SETTINGS,  # type: ignore[arg-type]
    )
    store = extract.run(config)
    assert store is not None
    return folder, store


@pytest.mark.parametrize("pooling", ["tensor-sketch:31", "pca-bilinear:9", "fisher-vector:3"])
def test_of_features_computes_what_the_store_holds(features: tuple[Path, FeatureStore], pooling: str) -> None:
    folder, store = features
    made = Model.of_features(store, pooling, folder / "weights.safetensors")
    images = read_images(folder / "photos")
    (batch,) = load_images(images, made.transform, batch=len(images), workers=0)
    with torch.no_grad():
        found = made(batch.pixels)
    torch.testing.assert_close(found, store.tensor(pooling), rtol=1e-3, atol=1e-4)


def test_of_features_wants_the_weights_that_it_was_made_with(features: tuple[Path, FeatureStore]) -> None:
    folder, store = features
    with pytest.raises(ValueError, match="Give what the features were made with: --weights FILE, or the folder"):
        Model.of_features(store, "tensor-sketch:31")
    with pytest.raises(ValueError, match=r"It has fisher-vector:3, pca-bilinear:9, tensor-sketch:31"):
        Model.of_features(store, "full-bilinear", folder / "weights.safetensors")

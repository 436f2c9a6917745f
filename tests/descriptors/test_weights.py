"""Files of weights: torchvision's, our own, half ones, broken ones, foreign ones, and ones that would like to be executed."""

import http.server
import pickle
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from compact_bilinear.descriptors import VGG, VGG_M, cache_folder, load_vgg
from compact_bilinear.descriptors import weights as module
from compact_bilinear.descriptors.weights import FILES, SOURCES, Source, find_weights, read_tensors
from compact_bilinear.download import DownloadError
from narrow import NARROW_D, NARROW_M

WIDTHS = [layer.channels for layer in NARROW_D.layers if hasattr(layer, "channels")]


def torchvision_vgg16() -> nn.Module:
    """The module of torchvision with its names, in the widths of NARROW_D and with ten classes."""
    features: list[nn.Module] = []
    c, widths = 3, iter(WIDTHS)
    for depth in (2, 2, 3, 3, 3):
        for _ in range(depth):
            width = next(widths)
            features += [nn.Conv2d(c, width, 3, padding=1), nn.ReLU()]
            c = width
        features.append(nn.MaxPool2d(2))
    network = nn.Module()
    network.features = nn.Sequential(*features)
    w6, w7 = widths
    network.classifier = nn.Sequential(
        nn.Linear(c * 49, w6), nn.ReLU(), nn.Dropout(), nn.Linear(w6, w7), nn.ReLU(), nn.Dropout(), nn.Linear(w7, 10)
    )
    for parameter in network.parameters():  # torch's own would let the signal die on its way
        parameter.data.mul_(3)
    return network.eval()


def torchvision_input(x: Tensor) -> Tensor:
    return (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def write(path: Path, state: dict[str, Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=path.suffix == ".pt")
    return path


@pytest.mark.parametrize("name", ["vgg16.pth", "vgg16.pt", "VGG16.SAFETENSORS", "vgg16.safetensors"])
def test_torchvision_s_weights_give_torchvision_s_descriptors(name: str, tmp_path: Path) -> None:
    network, x = torchvision_vgg16(), torch.rand(2, 3, 224, 224)
    path = write(tmp_path / name.lower(), network.state_dict()).rename(tmp_path / name)
    maps = network.features[:30](torchvision_input(x))
    assert maps.std() > 1e-3
    torch.testing.assert_close(load_vgg(NARROW_D, path)(x), maps)
    before = network.features[:29](torchvision_input(x))
    torch.testing.assert_close(load_vgg(NARROW_D, path, "conv5-pre-relu")(x), before)
    flat = network.features(torchvision_input(x)).flatten(1)
    torch.testing.assert_close(load_vgg(NARROW_D, path, "fc6")(x).flatten(1), network.classifier[:2](flat))
    torch.testing.assert_close(load_vgg(NARROW_D, path, "fc7")(x).flatten(1), network.classifier[:5](flat))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_weights_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    network = torchvision_vgg16()
    rounded = {name: tensor.to(dtype) for name, tensor in network.state_dict().items()}
    backbone = load_vgg(NARROW_D, write(tmp_path / "half.safetensors", rounded))
    for name, parameter in backbone.named_parameters():
        assert parameter.dtype == torch.float32, name
        assert parameter.requires_grad
    assert backbone.mean.dtype == backbone.scale.dtype == torch.float32
    network.load_state_dict(rounded)
    x = torch.rand(1, 3, 64, 70)
    torch.testing.assert_close(backbone(x), network.features[:30](torchvision_input(x)))


def test_our_own_files_keep_everything(tmp_path: Path) -> None:
    saved = VGG(NARROW_M, "fc7", mean=torch.rand(3, 9, 8), scale=(0.1, 0.2, 0.3))
    path = write(tmp_path / "own.safetensors", saved.state_dict())
    x = torch.rand(1, 3, 230, 224)
    assert torch.equal(load_vgg(NARROW_M, path, "fc7")(x), saved(x))
    assert load_vgg(NARROW_M, path).tap == "conv5"
    colours = saved.state_dict() | {"mean": torch.tensor([0.1, 0.2, 0.3]), "scale": torch.tensor([0.5, 0.5, 0.5])}
    assert load_vgg(NARROW_M, write(tmp_path / "flat.pth", colours)).mean.shape == (3, 1, 1)


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "own.safetensors", VGG(NARROW_M).state_dict())
    before = torch.get_rng_state()
    load_vgg(NARROW_M, path)
    assert torch.equal(torch.get_rng_state(), before)


# --- what is refused ---


def test_the_fully_connected_layers_are_missed_when_they_are_asked_for(tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in torchvision_vgg16().state_dict().items() if name.startswith("features")}
    path = write(tmp_path / "convs.safetensors", state)
    assert load_vgg(NARROW_D, path).channels == WIDTHS[12]
    with pytest.raises(
        ValueError,
        match=r"vgg16 at tap fc7 takes fc6.weight, fc6.bias, fc7.weight, fc7.bias from a file but convs.safetensors lacks them"
        r".\nTake a file that has them: vgg16-397923af.pth or imagenet-vgg-verydeep-16.mat; without it, take tap='conv5'.",
    ):
        load_vgg(NARROW_D, path, "fc7")


def test_other_networks_are_refused(tmp_path: Path) -> None:
    state = torchvision_vgg16().state_dict()
    first, last = state["features.0.weight"], "features.28.weight"
    for changed, message in (
        (
            {"features.1.running_mean": torch.zeros(5)},
            r"has no features.1.running_mean, which net.pth holds.\nThe file belongs",
        ),
        ({f"extra.{i}": first for i in range(6)}, "has no extra.0, extra.1, extra.2, extra.3 and 2 more, which"),
        (
            {"features.0.weight": first.mT[..., :1]},
            r"conv1_1.weight of shape \(5, 3, 3, 3\) but net.pth has \(5, 3, 3, 1\).\nThe",
        ),
        ({last: torch.full_like(state[last], torch.nan)}, "conv5_3.weight in net.pth holds NaN or inf.\nThe file is damaged"),
    ):
        path = write(tmp_path / "net.pth", state | changed)
        with pytest.raises(ValueError, match=message):
            load_vgg(NARROW_D, path)
    del state[last]
    with pytest.raises(ValueError, match=r"takes conv5_3.weight from a file but net.pth lacks them"):
        load_vgg(NARROW_D, write(tmp_path / "net.pth", state))
    with pytest.raises(
        ValueError, match=r"vgg-m at tap conv5 takes conv1.weight, conv1.bias, conv2.weight, conv2.bias and 6 more"
    ):
        load_vgg(NARROW_M, path)
    bare = {name: tensor for name, tensor in VGG(NARROW_M).state_dict().items() if name not in ("mean", "scale")}
    with pytest.raises(ValueError, match=r"takes mean, scale from a file .*\nTake a file that has them: imagenet-vgg-m.mat\."):
        load_vgg(NARROW_M, write(tmp_path / "bare.safetensors", bare))
    with pytest.raises(ValueError, match=r"odd.pth takes mean as three numbers, .* but got \(4,\)"):
        load_vgg(NARROW_M, write(tmp_path / "odd.pth", VGG(NARROW_M).state_dict() | {"mean": torch.zeros(4)}))


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.pth", torchvision_vgg16().state_dict()).read_bytes()
    for name, content in (("cut.pth", whole[:5000]), ("page.safetensors", b"<html>404</html>"), ("empty.pt", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} could not be read as tensors and nothing else .*\nIf it was downloaded"):
            load_vgg(NARROW_D, tmp_path / name)
    torch.save({"epoch": 3, "state_dict": {}}, tmp_path / "checkpoint.pth")
    with pytest.raises(ValueError, match=r"holds something else than named tensors.\nSave `module.state_dict\(\)`"):
        read_tensors(tmp_path / "checkpoint.pth")
    (tmp_path / "weights.h5").touch()
    with pytest.raises(ValueError, match=r"from .safetensors, .pth, .pt or .mat files but got .*weights.h5.\nConvert it"):
        load_vgg(NARROW_D, tmp_path / "weights.h5")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "nowhere.pth")


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors", ".mat"])
def test_nothing_is_executed(suffix: str, tmp_path: Path) -> None:
    crime, path = tmp_path / "crime", tmp_path / f"weights{suffix}"
    pickle.loads(pickle.dumps(Evil(crime)))
    assert crime.exists(), "the file that is to be refused would have done nothing"
    crime.rmdir()
    hidden = {"features.0.weight": Evil(crime)}
    for write_evil in (
        lambda: path.write_bytes(pickle.dumps(hidden)),
        lambda: torch.save(hidden, path),
        lambda: torch.save(hidden, path, _use_new_zipfile_serialization=False),
        lambda: torch.save(Evil(crime), path),
    ):
        write_evil()
        with pytest.raises(ValueError, match=path.name):
            load_vgg(NARROW_D, path)
        assert not crime.exists()


# --- where files come from ---


def test_the_cache_is_where_the_user_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMPACT_BILINEAR_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("COMPACT_BILINEAR_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "compact-bilinear"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "compact-bilinear"


def test_published_files_are_the_right_ones() -> None:
    for name, files in FILES.items():
        assert name in ("vgg16", "vgg-m")
        for file in files:
            source = SOURCES[file]
            assert source.url.rpartition("/")[2] == file
            assert source.url.startswith("https://")
            assert (len(source.sha256 or "") == 64) != (len(source.md5 or "") == 32)
    # torchvision writes the first eight digits of the sum into the name
    assert (SOURCES["vgg16-397923af.pth"].sha256 or "").startswith("397923af")


def test_a_file_of_one_s_own_needs_no_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "download", None)
    path = tmp_path / "imagenet-vgg-m.mat"
    path.touch()
    assert find_weights("vgg-m", path) == find_weights("vgg-m", str(path)) == path
    with pytest.raises(
        FileNotFoundError,
        match=r"no file .*lost.pth with weights for vgg16.\nCheck the path, .*: vgg16-397923af.pth, imagenet-vgg-verydeep",
    ):
        find_weights("vgg16", tmp_path / "lost.pth")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server of this machine publishes in place of the real ones, and an empty cache."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("COMPACT_BILINEAR_CACHE", str(tmp_path / "cache"))
    url = f"http://127.0.0.1:{server.server_address[1]}/vgg.safetensors"
    content = write(folder / "vgg.safetensors", VGG(NARROW_M).state_dict()).read_bytes()
    monkeypatch.setitem(SOURCES, "vgg.safetensors", Source(url, size=len(content), sha256=sha256(content).hexdigest()))
    monkeypatch.setitem(FILES, "vgg-m", ("vgg.safetensors",))
    yield folder
    server.shutdown()
    server.server_close()


def test_published_files_are_brought_once(served: Path, tmp_path: Path) -> None:
    path = find_weights("vgg-m")
    assert path == tmp_path / "cache" / "vgg.safetensors"
    assert load_vgg(NARROW_M, path)(torch.zeros(1, 3, 80, 80)).isfinite().all()
    (served / "vgg.safetensors").unlink()
    assert find_weights("vgg-m") == find_weights("vgg-m", "vgg.safetensors") == path


def test_a_published_file_that_changed_is_not_taken(served: Path, tmp_path: Path) -> None:
    content = (served / "vgg.safetensors").read_bytes()
    (served / "vgg.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DownloadError, match=r"its sha256 is .* in place of .*\nRun it again, or download the file by hand"):
        find_weights("vgg-m")
    assert not (tmp_path / "cache" / "vgg.safetensors").exists()


def test_vgg_m_has_no_second_source() -> None:
    assert VGG_M.name in FILES
    assert FILES["vgg-m"] == ("imagenet-vgg-m.mat",)

"""A model as an ONNX file."""

from pathlib import Path

import pytest
import torch

from compact_bilinear.descriptors import load_backbone
from compact_bilinear.export import export_onnx
from compact_bilinear.images import Transform
from compact_bilinear.model import Model

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, to run what is exported")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")


def model(pooling: str) -> Model:
    made = Model(load_backbone("tiny"), pooling, ("crow", "wren"), transform=Transform(size=40))
    draw = torch.Generator().manual_seed(0)
    return made.set_head(torch.randn(2, made.pooling.dim, generator=draw), torch.tensor([0.5, -0.5])).eval()


@pytest.mark.parametrize("pooling", ["tensor-sketch:31", "full-bilinear"])
def test_onnxruntime_says_what_the_model_says(pooling: str, tmp_path: Path) -> None:
    made = model(pooling)
    assert export_onnx(made, tmp_path / "model.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    draw = torch.Generator().manual_seed(1)
    for b in (1, 5):  # neither was the size of the batch that it was exported with
        images = torch.randint(256, (b, 3, 40, 40), dtype=torch.uint8, generator=draw)
        (found,) = session.run(["output"], {"images": images.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(found), made(images), rtol=1e-3, atol=1e-4)


def test_what_onnx_has_no_operator_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"random-projection:9 draws .*\nTrain it with random-projection:9,sparse, or"):
        export_onnx(model("random-projection:9"), tmp_path / "model.onnx")


def test_a_file_that_disagrees_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="but differs by"):
        export_onnx(model("average-pool"), tmp_path / "model.onnx", tolerance=0.0)
    assert not list(tmp_path.iterdir())

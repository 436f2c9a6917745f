"""Every layer exported to ONNX for batches of any size, and run by onnxruntime."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import promises
from compact_bilinear import (
    AveragePool,
    FisherVector,
    FullBilinear,
    PCABilinear,
    RandomMaclaurin,
    RandomProjection,
    SpatialPyramid,
    TensorSketch,
    signed_sqrt_l2,
)
from contract import descriptors

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, to run what is exported")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")


class Normalized(nn.Module):
    """What follows a pooling in every model."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        return signed_sqrt_l2(self.pool(x))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "tensor_sketch-gram": lambda: TensorSketch(7, 11, plan="gram"),
    "tensor_sketch-fft": lambda: TensorSketch(7, 16, plan="fft"),
    "tensor_sketch-normalized": lambda: Normalized(TensorSketch(7, 11, learnable=True)),
    "random_maclaurin-gram": lambda: RandomMaclaurin(7, 11, plan="gram"),
    "random_maclaurin-direct": lambda: RandomMaclaurin(7, 11, plan="direct"),
    "full_bilinear": lambda: FullBilinear(7),
    "full_bilinear-triangle": lambda: FullBilinear(7, triangle=True),
    "spatial_pyramid": lambda: SpatialPyramid(TensorSketch(7, 11, plan="gram"), levels=(1, 2)),
    "fisher_vector": lambda: FisherVector(7, components=3).fit(descriptors(1, 60)),
    "pca_bilinear": lambda: PCABilinear(7, 9).fit(descriptors(1, 60)),
    "average_pool": lambda: AveragePool(7),
    "random_projection-sparse": lambda: RandomProjection(7, 11, sparse=True),
}
every = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())


def exported(layer: nn.Module, x: Tensor, *axes: str) -> "onnxruntime.InferenceSession":
    """A session for inputs like ``x`` whose leading axes, named ``axes``, may have any length."""
    sizes = {axis: torch.export.Dim(name) for axis, name in enumerate(axes)}
    program = torch.onnx.export(layer.eval(), (x,), dynamo=True, dynamic_shapes=(sizes,), verbose=False)
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def check_runs(session: "onnxruntime.InferenceSession", layer: nn.Module, x: Tensor) -> None:
    (given,) = session.get_inputs()
    (y,) = session.run(None, {given.name: x.numpy()})
    expected = layer(x).detach()
    scale = expected.abs().max()  # a Fourier transform rounds each number as it rounds the largest
    torch.testing.assert_close(torch.from_numpy(y) / scale, expected / scale)


@every
def test_maps(make: Callable[[], nn.Module]) -> None:
    layer = make()
    session = exported(layer, promises.feature_map().float(), "batch")
    for b in (1, 5):
        check_runs(session, layer, promises.feature_map(b, seed=1).float())


def test_more_channels_than_one_block_of_rows() -> None:
    layer = TensorSketch(300, 16, plan="gram")
    check_runs(exported(layer, descriptors(2, 3, 300).float(), "batch"), layer, descriptors(3, 3, 300, seed=1).float())


@pytest.mark.parametrize(
    "layer",
    [TensorSketch(7, 11), TensorSketch(7, 16, plan="fft"), RandomMaclaurin(7, 11), AveragePool(7)],
    ids=["tensor_sketch-auto", "tensor_sketch-fft", "random_maclaurin-auto", "average_pool"],
)
def test_tokens_of_any_number(layer: nn.Module) -> None:
    session = exported(layer, descriptors(3, 5).float(), "batch", "n")
    for b, n in ((1, 1), (2, 9)):
        check_runs(session, layer, descriptors(b, n, seed=1).float())


def test_auto_is_exported_as_the_plan_that_it_takes() -> None:
    fusion, x = TensorSketch(2048, 8192), descriptors(2, 1, 2048).float()
    assert 'takes "fft"' in fusion.explain(x)
    check_runs(exported(fusion, x, "batch"), fusion, descriptors(3, 1, 2048, seed=1).float())


@pytest.mark.xfail(reason="onnxruntime keeps three or four digits of a Fourier transform whose length is no power of two")
def test_fft_of_any_length() -> None:
    layer, x = TensorSketch(7, 1009, plan="fft"), descriptors(3, 5).float()
    check_runs(exported(layer, x, "batch"), layer, x)


def test_a_dense_random_projection_cannot_be_exported() -> None:
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match="Failed to convert the exported program"):
        exported(RandomProjection(7, 11), promises.feature_map().float(), "batch")

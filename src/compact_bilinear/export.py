"""A model as one ONNX file, which runs without Python, and the proof that it says the same there."""

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor

from .model import Model
from .pooling import RandomProjection, TensorSketch
from .whole_file import WholeFile


def export_onnx(model: Model, file: Path | str, images: Tensor | None = None, tolerance: float = 1e-3) -> float:
    """Write a model as ONNX: images (b, 3, S, S) in uint8, for any b, → scores (b, k), or features without a head.

    Mean and scale, normalisation and head are inside; only decoding and resizing to S×S are left to who uses it.

    Args:
        model: any, but for one with a dense random projection: ONNX has nothing that draws the same numbers.
        file: ``model.onnx``. It is not written if onnxruntime does not agree.
        images: (b, 3, S, S), what the two are compared on; None for random ones.
        tolerance: largest difference, as a share of the largest number that the model gives.

    Returns:
        The difference that there was.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  # torch exports through it
    except ImportError as absent:
        raise ImportError(
            f"A model is exported with onnxscript and checked with onnxruntime, but {absent.name} is not installed.\n"
            'Write `pip install "compact-bilinear[onnx]"`.'
        ) from absent

    if isinstance(model.pooling, RandomProjection) and not model.pooling.sparse:
        raise ValueError(
            f"A model is exported as what ONNX has operators for, but {model.named} draws its numbers anew in every pass.\n"
            f"Train it with {model.named},sparse, or with tensor-sketch."
        )
    side = model.transform.size
    if images is None:
        draw = torch.Generator().manual_seed(0)
        images = torch.randint(256, (3, 3, side, side), dtype=torch.uint8, generator=draw)
    copy = deepcopy(model).cpu().eval()
    if isinstance(copy.pooling, TensorSketch):  # onnxruntime's Fourier transform keeps three or four digits
        copy.pooling.plan = "gram"
    batch = {0: torch.export.Dim("images")}
    program = torch.onnx.export(
        copy, (images,), dynamo=True, dynamic_shapes=(batch,), input_names=["images"], output_names=["output"], verbose=False
    )
    if program is None:
        raise RuntimeError("torch.onnx.export gave no program")
    with WholeFile(Path(file)) as part:
        part.write_bytes(program.model_proto.SerializeToString())
        session = onnxruntime.InferenceSession(str(part), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"images": images.cpu().numpy()})
        with torch.inference_mode():
            expected = copy(images.cpu())
        difference = float((torch.from_numpy(found) - expected).abs().max() / expected.abs().max().clamp_min(1e-30))
        if not difference <= tolerance:
            raise ValueError(
                f"onnxruntime should say what the model says to {tolerance:g}, but differs by {difference:.2g} of the largest "
                f"number.\nWrite a larger tolerance if that will do; {model.named} may have a plan that exports better."
            )
    return difference

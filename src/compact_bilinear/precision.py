"""Where precision is decided: sums run in float32 or wider, whatever the inputs and whatever autocast says."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def accumulation_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float32 for half inputs, and the widest dtype among the tensors otherwise."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor is not None:
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off for the device of ``x``: it would run these matrix products, and round their sums, in half.

    Where autocast is off already nothing is entered, so that exported graphs stay plain.
    """
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()

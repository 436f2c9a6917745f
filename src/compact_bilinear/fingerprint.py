"""A short text that is the same for two modules if, and only if, all their numbers are."""

import hashlib

import torch
from torch import nn


def fingerprint(module: nn.Module) -> str:
    """SHA-256 of a module's parameters and buffers, as they are saved: names, shapes, types and numbers.

    >>> layer = torch.nn.Linear(2, 3)
    >>> fingerprint(layer) == fingerprint(torch.nn.Linear(2, 3))
    False
    """
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        numbers = tensor.detach().cpu().contiguous()
        sha.update(f"{name} {numbers.dtype} {tuple(numbers.shape)} ".encode())
        sha.update(numbers.flatten().view(torch.uint8).numpy())
    return sha.hexdigest()

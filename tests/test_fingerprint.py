"""Fingerprints: equal for equal numbers, and for nothing else."""

import torch
from torch import nn

from compact_bilinear import RandomProjection
from compact_bilinear.fingerprint import fingerprint


def test_every_difference_shows() -> None:
    layer = nn.Linear(3, 2)
    same, transposed, wide, changed = nn.Linear(3, 2), nn.Linear(2, 3), nn.Linear(3, 2).double(), nn.Linear(3, 2)
    for other in (same, wide, changed):
        other.load_state_dict(layer.state_dict())
    transposed.weight.data = layer.weight.data.reshape(3, 2)
    transposed.bias.data = layer.bias.data
    changed.weight.data[1, 2] = torch.nextafter(changed.weight[1, 2], torch.tensor(9.0))
    assert fingerprint(layer) == fingerprint(same)
    assert len({fingerprint(each) for each in (layer, transposed, wide, changed, nn.Sequential(layer))}) == 5


def test_neither_memory_format_nor_a_buffer_without_axes_matter() -> None:
    layer = nn.Conv2d(3, 4, 2)
    before = fingerprint(layer)
    assert fingerprint(layer.to(memory_format=torch.channels_last)) == before
    assert fingerprint(RandomProjection(3, 5, seed=1)) != fingerprint(RandomProjection(3, 5, seed=2))

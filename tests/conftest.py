"""A stricter world for every test: one thread, ``torch.empty`` filled with NaN, the same numbers every run."""

import os

import pytest
import torch

torch.set_num_threads(1)
# without it CUDA refuses to be deterministic; read when CUDA starts
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# numbers that an algorithm forgot to write become NaN in place of luck
torch.use_deterministic_algorithms(True)


@pytest.fixture(autouse=True)
def _same_numbers_every_run() -> None:
    torch.manual_seed(0)

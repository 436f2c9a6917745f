"""What the package offers, and what importing it brings along: torch, and nothing that torch did not bring."""

import importlib
import pkgutil
import subprocess
import sys
from functools import cache
from importlib.resources import files
from inspect import getmembers, isclass, isfunction

import pytest
from torch import nn

import compact_bilinear

# where the layers are; the road around them may need more than torch
MODULES = ["compact_bilinear.normalize", "compact_bilinear.precision", "compact_bilinear.pooling"]
MODULES += [module.name for module in pkgutil.walk_packages(compact_bilinear.pooling.__path__, "compact_bilinear.pooling.")]


@cache
def imported_by(code: str) -> set[str]:
    """Every module that a fresh process has after running ``code``."""
    code += "\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("name", ["compact_bilinear", "compact_bilinear.pooling"])
def test_public_names_are_sorted_and_there(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__ == sorted(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)
    for public in package.__all__:
        assert getattr(package, public).__doc__, public


def test_every_layer_is_public() -> None:
    layers = {
        name
        for module in map(importlib.import_module, MODULES)
        for name, layer in getmembers(module, isclass)
        if issubclass(layer, nn.Module) and layer.__module__ == module.__name__
    }
    assert layers == {name for name in compact_bilinear.__all__ if isclass(getattr(compact_bilinear, name))}
    functions = {name for name in compact_bilinear.__all__ if isfunction(getattr(compact_bilinear, name))}
    assert functions == {"signed_sqrt_l2"}


def test_every_layer_has_its_function_beside_it() -> None:
    pooling = importlib.import_module("compact_bilinear.pooling")
    # a random matrix is too large to be an argument, and a pyramid takes a layer
    alone = {"RandomProjection", "SpatialPyramid"}
    for layer in {name for name in pooling.__all__ if isclass(getattr(pooling, name))} - alone:
        module = getattr(pooling, layer).__module__.removeprefix("compact_bilinear.pooling.")
        assert module in pooling.__all__, layer
        assert module.replace("_", "") == layer.lower()


def test_importing_it_imports_nothing_that_torch_does_not() -> None:
    with_torch, with_us = imported_by("import torch"), imported_by("import compact_bilinear")
    new = {name.partition(".")[0] for name in with_us - with_torch}
    assert new == {"compact_bilinear"}
    # not even what torch itself loads when it is first needed
    for heavy in ("torch._dynamo", "torch._inductor", "torch.onnx", "torch.export", "torch.distributed.tensor"):
        assert (heavy in with_us) == (heavy in with_torch), heavy


def test_neither_modules_nor_layers_need_more_than_torch() -> None:
    modules = "\n".join(f"import {name}" for name in MODULES)
    layers = (
        "from compact_bilinear import *; FisherVector(7); TensorSketch(7, 16)(compact_bilinear.normalize.torch.ones(1, 2, 7))"
    )
    new = imported_by(f"{modules}\n{layers}") - imported_by("import torch")
    assert {name.partition(".")[0] for name in new} <= {"compact_bilinear", "torch", *sys.stdlib_module_names}


def test_says_that_it_is_typed() -> None:
    assert files("compact_bilinear").joinpath("py.typed").is_file()


def test_says_its_version() -> None:
    major, minor, patch = compact_bilinear.__version__.split(".")
    assert (int(major), int(minor), int(patch)) >= (0, 1, 0)

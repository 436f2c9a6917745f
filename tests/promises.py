"""What every pooling layer promises, linear in B or not. Each check takes a layer in float64."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck


def feature_map(b: int = 3, c: int = 7, h: int = 4, w: int = 5, seed: int = 0) -> Tensor:
    """A map (b, c, h, w) in float64."""
    return torch.randn(b, c, h, w, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive_weights(b: int = 3, h: int = 4, w: int = 5, seed: int = 9) -> Tensor:
    """Weights (b, h, w) in float64."""
    return 0.1 + torch.rand(b, h, w, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_layouts(pool: nn.Module, tokens: bool = True) -> None:
    """Any memory layout of a map, and tokens, give the same."""
    x, weights = feature_map(), positive_weights()
    expected = pool(x, weights=weights)
    layouts = {
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "strided": torch.cat([x, x], dim=1)[:, :7],
        "transposed": x.mT.contiguous().mT,
    }
    for name, layout in layouts.items():
        torch.testing.assert_close(pool(layout, weights=weights), expected, rtol=1e-10, atol=1e-10, msg=name)
    if tokens:
        torch.testing.assert_close(pool(x.flatten(2).mT, weights=weights.flatten(1)), expected, rtol=1e-10, atol=1e-10)


def check_images_do_not_see_each_other(pool: nn.Module) -> None:
    """Alone or in a batch an image has the same features; NaN in one reaches neither features nor gradients of another."""
    clean, weights = feature_map(), positive_weights()
    together = pool(clean, weights=weights)
    for image in range(3):
        alone = pool(clean[image : image + 1], weights=weights[image : image + 1])
        torch.testing.assert_close(alone[0], together[image], rtol=1e-10, atol=1e-10)
    broken = clean.clone()
    broken[1, 2, 3, 4] = torch.nan
    gradients = []
    for x in (clean, broken):
        leaf = x.clone().requires_grad_()
        y = pool(leaf, weights=weights)
        torch.testing.assert_close(y[[0, 2]], together[[0, 2]], rtol=1e-10, atol=1e-10)
        (gradient,) = torch.autograd.grad(y.square().sum(), leaf)
        gradients.append(gradient[[0, 2]])
        assert gradients[-1].abs().max() > 0
    assert y[1].isnan().any()
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def check_no_images(pool: nn.Module) -> None:
    """A batch of no images has no features, of the right length."""
    assert pool(feature_map()[:0]).shape == (0, pool.dim)


def check_precision(pool: nn.Module) -> None:
    """Half inputs and autocast give float32 features which are those of float32 inputs, and gradients as well."""
    pool = pool.float()
    for dtype in (torch.float16, torch.bfloat16):
        half = feature_map().to(dtype)
        leaf, wide = half.clone().requires_grad_(), half.float().requires_grad_()
        expected = pool(wide)
        assert expected.dtype == torch.float32
        (gradient,) = torch.autograd.grad(expected.square().sum(), wide)
        y = pool(leaf)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, expected)
        (half_gradient,) = torch.autograd.grad(y.square().sum(), leaf)
        assert half_gradient.dtype == dtype
        torch.testing.assert_close(half_gradient, gradient.to(dtype))
        with torch.autocast("cpu", dtype=dtype):
            y = pool(wide)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, expected)
        (autocast_gradient,) = torch.autograd.grad(y.square().sum(), wide)
        torch.testing.assert_close(autocast_gradient, gradient)


def check_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """First and second derivatives, in float64."""
    leaves = tuple(each.detach().clone().requires_grad_() for each in inputs)
    assert gradcheck(function, leaves)
    assert gradgradcheck(function, leaves)


def check_transforms(pool: nn.Module) -> None:
    """``torch.func``: vmap is a loop, grad is autograd, and one inside the other is both."""
    x = torch.stack([feature_map(2, seed=seed) for seed in range(3)])
    torch.testing.assert_close(torch.func.vmap(pool)(x), torch.stack([pool(each) for each in x]), rtol=1e-10, atol=1e-10)

    def loss(image: Tensor) -> Tensor:
        return pool(image.unsqueeze(0)).square().sum()

    leaf = x[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(pool(leaf).square().sum(), leaf)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x[0]), expected, rtol=1e-10, atol=1e-10)


def check_compiles(pool: nn.Module) -> None:
    """In one graph, forward and backward, for batches of any size."""
    torch.compiler.reset()
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    for b in (3, 2, 5):
        x, weights = feature_map(b), positive_weights(b)
        results = []
        for run in (pool, compiled):
            leaf = x.clone().requires_grad_()
            y = run(leaf, weights=weights)
            results.append((y, *torch.autograd.grad(y.square().sum(), leaf)))
        torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-10)


def check_exports(pool: nn.Module) -> None:
    """As a program that takes batches of any size."""
    batch = torch.export.Dim("batch")
    program = torch.export.export(pool.eval(), (feature_map(),), dynamic_shapes=({0: batch},))
    for b in (2, 5):
        x = feature_map(b, seed=1)
        torch.testing.assert_close(program.module()(x), pool(x), rtol=1e-10, atol=1e-10)

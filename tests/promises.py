"""What every pooling layer promises, linear in B or not. Each check takes a layer in float64."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode


def feature_map(b: int = 3, c: int = 7, h: int = 4, w: int = 5, seed: int = 0) -> Tensor:
    """A map (b, c, h, w) in float64."""
    return torch.randn(b, c, h, w, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive_weights(b: int = 3, h: int = 4, w: int = 5, seed: int = 9) -> Tensor:
    """Weights (b, h, w) in float64."""
    return 0.1 + torch.rand(b, h, w, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that anything inside writes."""

    numbers = 0

    def __torch_dispatch__(self, function: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


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
    """Alone or in a batch an image has the same features. NaN or inf in one reach neither features nor gradients of another."""
    clean, weights = feature_map(), positive_weights()
    together, *expected = features_and_gradients(pool, clean, weights=weights)
    for image in range(3):
        alone = pool(clean[image : image + 1], weights=weights[image : image + 1])
        torch.testing.assert_close(alone[0], together[image], rtol=1e-10, atol=1e-10)
    for bad in (torch.nan, torch.inf):
        broken = clean.clone()
        broken[1, 2, 3, 4] = bad
        y, *gradients = features_and_gradients(pool, broken, weights=weights)
        assert not y[1].isfinite().all()
        torch.testing.assert_close(y[[0, 2]], together[[0, 2]], rtol=1e-10, atol=1e-10)
        for gradient, clean_gradient in zip(gradients, expected, strict=True):
            assert clean_gradient.abs().max() > 0
            torch.testing.assert_close(gradient[[0, 2]], clean_gradient[[0, 2]], rtol=1e-10, atol=1e-10)


def check_no_images(pool: nn.Module) -> None:
    """A batch of no images has no features, of the right length."""
    assert pool(feature_map()[:0]).shape == (0, pool.dim)


def check_zeros(pool: nn.Module) -> None:
    """Maps of nothing but zeros have finite features and finite gradients."""
    for each in features_and_gradients(pool, torch.zeros_like(feature_map()), weights=positive_weights()):
        assert each.isfinite().all()


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
    """``torch.func``: vmap is a loop, grad is autograd, one inside the other is both, and so is the whole Jacobian matrix."""
    x = torch.stack([feature_map(2, seed=seed) for seed in range(3)])
    torch.testing.assert_close(torch.func.vmap(pool)(x), torch.stack([pool(each) for each in x]), rtol=1e-10, atol=1e-10)

    def alone(image: Tensor) -> Tensor:
        return pool(image.unsqueeze(0)).squeeze(0)

    def loss(image: Tensor) -> Tensor:
        return alone(image).square().sum()

    _, expected = features_and_gradients(pool, x[0])
    torch.testing.assert_close(torch.func.grad(loss)(x[0, 0]), expected[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x[0]), expected, rtol=1e-10, atol=1e-10)
    jacobian = torch.func.jacrev(alone)(x[0, 0])
    torch.testing.assert_close(torch.einsum("d,dchw->chw", 2 * alone(x[0, 0]), jacobian), expected[0], rtol=1e-10, atol=1e-10)


def check_compiles(pool: nn.Module, *batches: tuple[Tensor, ...]) -> None:
    """In one graph, forward and backward: compiled once for the first shape, and then once for all others.

    Each batch is a tuple of inputs, the last of them weights. Without any given, they are maps in batches of any size.
    """
    batches = batches or tuple((feature_map(b), positive_weights(b)) for b in (3, 2, 5, 4))
    torch.compiler.reset()
    compile_graph = torch._dynamo.lookup_backend("aot_eager")
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return compile_graph(graph, inputs)

    compiled = torch.compile(pool, fullgraph=True, backend=count)
    learned = tuple(pool.parameters())
    for *inputs, weights in batches:
        ours, expected = (features_and_gradients(run, *inputs, weights=weights, learned=learned) for run in (compiled, pool))
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    assert len(graphs) <= 2, f"compiled {len(graphs)} times for {len(batches)} shapes"


def check_exports(pool: nn.Module, tokens: bool = True) -> None:
    """As a program that takes batches of any size, and tokens of any number of locations."""
    batch, n = torch.export.Dim("batch"), torch.export.Dim("n")
    program = torch.export.export(pool.eval(), (feature_map(),), dynamic_shapes={"x": {0: batch}})
    for b in (2, 5):
        x = feature_map(b, seed=1)
        torch.testing.assert_close(program.module()(x), pool(x), rtol=1e-10, atol=1e-10)
    if not tokens:
        return
    x, weights = feature_map().flatten(2).mT, positive_weights().flatten(1)
    any_size = {0: batch, 1: n}
    program = torch.export.export(pool, (x,), {"weights": weights}, dynamic_shapes={"x": any_size, "weights": any_size})
    for b, h in ((2, 4), (5, 9), (1, 1)):
        x, weights = feature_map(b, h=h).flatten(2).mT, positive_weights(b, h).flatten(1)
        torch.testing.assert_close(program.module()(x, weights=weights), pool(x, weights=weights), rtol=1e-10, atol=1e-10)


def features_and_gradients(
    run: Callable[..., Tensor], *inputs: Tensor, weights: Tensor | None = None, learned: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """Features y, then the gradients of Σ y² by the inputs, by the weights if there are any, and by what is learned."""
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    options = {} if weights is None else {"weights": weights.detach().clone().requires_grad_()}
    y = run(*leaves, **options)
    return y, *torch.autograd.grad(y.square().sum(), [*leaves, *options.values(), *learned])

"""Random Maclaurin pooling: Algorithm 1 of Gao et al., *Compact Bilinear Pooling*, CVPR 2016 (after Kar & Karnick, 2012)."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from ..precision import accumulation_dtype, full_precision
from .gram import gram
from .locations import Locations, is_tensor_or_tensors, read_channels, read_dim, read_locations, read_seed
from .plan import RANDOM_MACLAURIN, Shape, choose, explain, random_maclaurin_costs, read_plan, refuse_plan

# rows of W taken at a time: W₁B of all of them would be c/n times as large as the (b, n, d) tensor that "gram" avoids
ROWS = 512


def random_maclaurin(
    x: Tensor,
    w: Tensor | Sequence[Tensor],
    z: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    plan: str = "auto",
) -> Tensor:
    r"""Sum over locations of the products of two random projections.

    .. math:: y = \frac{1}{\sqrt d} \sum_s a_s\, (W_1 x_s) \circ (W_2 z_s)
        = \frac{1}{\sqrt d} \operatorname{rowsum}\bigl((W_1 B) \circ W_2\bigr),
        \qquad B = \sum_s a_s\, x_s z_s^\top

    With entries ±1 drawn at random :math:`\mathbb{E}\langle y, y'\rangle = \langle B, B'\rangle`, the kernel of full bilinear
    pooling, and the error shrinks as :math:`1/\sqrt d`. Differentiable in ``x``, ``z``, ``weights`` and ``w``.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        w: W₁ and W₂: a tensor (2, d, c), or two, (d, c) and (d, c2).
        z: a second input over the same locations, with c2 channels; None for ``x`` again.
        weights: (b, h, w) or (b, n), one factor a location.
        plan: "gram", "direct" or "auto" (:mod:`~compact_bilinear.pooling.plan`); same numbers, other costs.

    Returns:
        (b, d), in float32 or wider.

    Projections (3, −1, 3, 1) and (1, 3, 3, −1) of one descriptor, multiplied and divided by √4:

    >>> w1 = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    >>> w2 = torch.tensor([[-1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> random_maclaurin(torch.tensor([[[1.0, 2.0]]]), (w1, w2))
    tensor([[ 1.5000, -1.5000,  4.5000, -0.5000]])
    """
    read_plan("random_maclaurin", plan, RANDOM_MACLAURIN)
    _check_projections("random_maclaurin", w)
    seen = read_locations("random_maclaurin", (w[0].shape[1], w[1].shape[1]), x, z, weights)
    return _pooled(seen, w[0], w[1], plan)


def _pooled(seen: Locations, w1: Tensor, w2: Tensor, plan: str) -> Tensor:
    d = len(w1)
    dtype = accumulation_dtype(seen.x, seen.z, seen.weights)
    w1, w2 = w1.to(dtype), w2.to(dtype)
    if choose(plan, random_maclaurin_costs, Shape.of(seen, d)) == "gram":
        forms: Tensor = _BilinearForms.apply(gram(*seen[:3]), w1, w2)
        return forms / sqrt(d)
    x = seen.x.mT.to(dtype)
    # x is widened once: both of its gradients are then added up before they are rounded
    z = x if seen.z is None else seen.z.mT.to(dtype)
    if seen.weights is not None:
        x = x * seen.weights.to(dtype).unsqueeze(2)
    with full_precision(x):
        return ((x @ w1.mT) * (z @ w2.mT)).sum(1) / sqrt(d)


class _BilinearForms(torch.autograd.Function):
    r"""yⱼ = w₁ⱼᵀ B w₂ⱼ, a block of rows of W at a time: autograd would keep W₁B, (b, d, c), for the backward pass.

    .. math:: \partial B = W_1^\top \operatorname{diag}(g)\, W_2
        \qquad
        \partial W_1 = \sum_b \operatorname{diag}(g)\, W_2 B^\top
        \qquad
        \partial W_2 = \sum_b \operatorname{diag}(g)\, W_1 B
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        with full_precision(matrix):
            return torch.cat([((a @ matrix) * b).sum(-1) for a, b in _blocks(w1, w2)], dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        matrix, w1, w2 = ctx.saved_tensors
        need_matrix, need_w1, need_w2 = ctx.needs_input_grad
        d_matrix = d_w1 = d_w2 = None
        with full_precision(g):
            blocks = [(a, b, g_rows.unsqueeze(-1)) for (a, b), g_rows in zip(_blocks(w1, w2), g.split(ROWS, -1), strict=True)]
            if need_matrix:
                d_matrix = torch.zeros_like(matrix)
                for a, b, g_rows in blocks:
                    d_matrix = torch.baddbmm(d_matrix, (a * g_rows).mT, b.expand(g.shape[0], *b.shape))
            if need_w1:
                d_w1 = torch.cat([((b @ matrix.mT) * g_rows).sum(0) for _, b, g_rows in blocks])
            if need_w2:
                d_w2 = torch.cat([((a @ matrix) * g_rows).sum(0) for a, _, g_rows in blocks])
        return d_matrix, d_w1, d_w2


def _blocks(w1: Tensor, w2: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(w1.split(ROWS), w2.split(ROWS), strict=True))


def random_maclaurin_matrix(w: Tensor | Sequence[Tensor]) -> Tensor:
    """The definition written out: P (d, c·c2) with ``random_maclaurin(x) == vec(B(x)) @ P.T``."""
    return (w[0].unsqueeze(2) * w[1].unsqueeze(1)).flatten(1) / sqrt(len(w[0]))


class RandomMaclaurin(nn.Module):
    """:func:`random_maclaurin` as a layer that draws and keeps its two projections: (b, c, h, w) or (b, n, c) → (b, d).

    Args:
        channels: c, or (c, c2) for two different inputs.
        dim: d; "2000 to 8000 is appropriate" (the paper).
        seed: what the projections are drawn from; the same on every machine.
        learnable: train both projections. The paper found it worth while at extremely low d.
        w: given projections in place of drawn ones.
        plan: "gram", "direct" or "auto". :meth:`explain` says what "auto" takes for an input, and why.

    ``w`` is (2, d, c). With two different inputs the matrix of the narrower one is filled up with zeros.

    >>> RandomMaclaurin(512, 1000)(torch.zeros(2, 512, 7, 7)).shape
    torch.Size([2, 1000])
    """

    additive = True
    w: Tensor

    def __init__(
        self,
        channels: int | tuple[int, int],
        dim: int,
        seed: int = 0,
        learnable: bool = False,
        *,
        w: Tensor | Sequence[Tensor] | None = None,
        plan: str = "auto",
    ) -> None:
        super().__init__()
        self.channels = read_channels("RandomMaclaurin", channels)
        self.dim = read_dim("RandomMaclaurin", dim)
        self.seed = read_seed("RandomMaclaurin", seed)
        self.plan = read_plan("RandomMaclaurin", plan, RANDOM_MACLAURIN)
        if w is None:
            # on the CPU whatever the default device is: the numbers are the same everywhere
            draw = torch.Generator("cpu").manual_seed(self.seed)
            drawn = [torch.randint(2, (self.dim, c), generator=draw, device="cpu") * 2.0 - 1.0 for c in self.channels]
        given = drawn if w is None else w
        _check_projections("RandomMaclaurin", given, self.channels, self.dim)
        width = max(self.channels)
        projections = torch.stack([nn.functional.pad(each.detach(), (0, width - each.shape[1])) for each in given])
        if learnable:
            self.w = nn.Parameter(projections)
        else:
            self.register_buffer("w", projections)
        if w is None:
            self.to(torch.get_default_device())

    def forward(self, x: Tensor, z: Tensor | None = None, *, weights: Tensor | None = None) -> Tensor:
        return _pooled(read_locations("RandomMaclaurin", self.channels, x, z, weights), *self._projections(), self.plan)

    def local(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """Each location's own products, not pooled: (b, d, h, w) or (b, n, d)."""
        refuse_plan("RandomMaclaurin.local", self.plan, "gram", "sums over the locations before it projects", "direct")
        seen = read_locations("RandomMaclaurin", self.channels, x, z)
        w1, w2 = self._projections()
        x, z = seen.widened()
        with full_precision(x):
            products = (w1.to(x.dtype) @ x) * (w2.to(x.dtype) @ z)
        return seen.restore(products / sqrt(self.dim))

    def matrix(self) -> Tensor:
        """The definition: ``pool(x) == vec(B(x)) @ pool.matrix().T``."""
        return random_maclaurin_matrix(self._projections())

    def explain(self, x: Tensor, z: Tensor | None = None) -> str:
        """Which plan runs for this input, and why, in a sentence."""
        seen = read_locations("RandomMaclaurin", self.channels, x, z)
        return explain(self.plan, random_maclaurin_costs, Shape.of(seen, self.dim))

    def _projections(self) -> tuple[Tensor, Tensor]:
        c, c2 = self.channels
        return self.w[0, :, :c], self.w[1, :, :c2]

    def extra_repr(self) -> str:
        return f"channels={self.channels}, dim={self.dim}, learnable={isinstance(self.w, nn.Parameter)}, plan={self.plan!r}"


def _check_projections(
    owner: str, w: Tensor | Sequence[Tensor], channels: tuple[int, int] | None = None, d: int | None = None
) -> None:
    if not is_tensor_or_tensors(w):
        raise ValueError(
            f"{owner} takes w as a tensor, or two of them, but got {type(w).__name__}.\nPass `torch.as_tensor(w)`."
        )
    shapes = [tuple(each.shape) for each in w]
    two_matrices = len(shapes) == 2 and all(len(shape) == 2 for shape in shapes) and shapes[0][0] == shapes[1][0]
    if not two_matrices or (channels is not None and shapes != [(d, c) for c in channels]):
        wanted = " and ".join(f"({d}, {c})" for c in channels) if channels else "(d, c) and (d, c2)"
        raise ValueError(
            f"{owner} takes w as two matrices {wanted}, but got shapes {shapes}.\n"
            "Pass w=(first, second), a tensor each, or one tensor (2, d, c)."
        )
    if not all(each.is_floating_point() for each in w):
        raise ValueError(f"{owner} takes floating-point projections but got {w[0].dtype} and {w[1].dtype}.\nPass `w.float()`.")

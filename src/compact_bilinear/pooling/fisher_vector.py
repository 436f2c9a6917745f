"""Fisher vectors: how an image's descriptors would pull at a mixture of Gaussians (Perronnin, Sánchez & Mensink, ECCV 2010)."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from ..precision import accumulation_dtype, full_precision
from .average_pool import shares
from .locations import read_descriptors, read_one_input, read_single_channels

# descriptors that a mixture is fitted on at most: the authors' number
LIMIT = 500_000


def fisher_vector(x: Tensor, mixture: Tensor, means: Tensor, variances: Tensor, *, weights: Tensor | None = None) -> Tensor:
    r"""Mean over locations of the gradients of a Gaussian mixture's log-likelihood, each scaled to unit variance.

    With k Gaussians of weights π, means μ and diagonal variances σ², and the posterior :math:`\gamma_i(s) \propto \pi_i\,
    \mathcal N(x_s; \mu_i, \sigma_i^2)`,

    .. math::
        u_i = \frac{1}{n\sqrt{\pi_i}} \sum_s \gamma_i(s)\, \frac{x_s - \mu_i}{\sigma_i}
        \qquad\qquad
        v_i = \frac{1}{n\sqrt{2\pi_i}} \sum_s \gamma_i(s) \left[\frac{(x_s - \mu_i)^2}{\sigma_i^2} - 1\right]

    and with weights every sum has the factor :math:`a_s`, and n is :math:`\sum_s a_s`. All comes from three sums over the
    locations, :math:`\sum\gamma`, :math:`\sum\gamma x` and :math:`\sum\gamma x^2`. They are taken about the mixture's own mean,
    so that no digits cancel where descriptors are far from zero.

    This is the Fisher vector. The *improved* Fisher vector of the paper is ``signed_sqrt_l2(fisher_vector(...))``: as every
    pooling here, it is followed by :func:`~compact_bilinear.signed_sqrt_l2`. The paper takes descriptors before their ReLU.
    Differentiable in everything.

    Args:
        x: feature map (b, c, h, w) or tokens (b, n, c).
        mixture: π, (k,), positive and with the sum 1.
        means: μ, (k, c).
        variances: σ², (k, c), positive.
        weights: (b, h, w) or (b, n), one factor a location.

    Returns:
        (b, 2·k·c), in float32 or wider: u of one Gaussian after the other, then v. Zeros where all weights of an
        image are zero.

    One Gaussian, so that every γ is 1. Descriptors lie 1 and 3 standard deviations above its mean: u is (1 + 3)/2, and v is
    (0 + 8)/2 divided by √2.

    >>> mixture, means, variances = torch.tensor([1.0]), torch.tensor([[10.0]]), torch.tensor([[4.0]])
    >>> fisher_vector(torch.tensor([[[12.0], [16.0]]]), mixture, means, variances)
    tensor([[2.0000, 2.8284]])
    """
    _check_mixture("fisher_vector", mixture, means, variances)
    return _pooled(*read_one_input("fisher_vector", means.shape[1], x, weights), mixture, means, variances)


def _pooled(columns: Tensor, weights: Tensor | None, mixture: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    dtype = accumulation_dtype(columns, weights)
    mixture, means, variances = mixture.to(dtype), means.to(dtype), variances.to(dtype)
    with full_precision(columns):
        centre = mixture @ means
        x, means = columns.mT.to(dtype) - centre, means - centre
        squares = x.square()
        # log π − ½ Σ (log σ² + (x − μ)²/σ²), multiplied out: with (x − μ)² itself it would be (b, n, k, c)
        of_gaussian = mixture.log() - (variances.log() + means.square() / variances).sum(1) / 2
        log_joint = of_gaussian + x @ (means / variances).mT - squares @ (0.5 / variances).mT
        share = 1 / max(x.shape[1], 1) if weights is None else shares(weights.to(dtype)).unsqueeze(2)
        gamma = log_joint.softmax(2) * share
        s0 = gamma.sum(1).unsqueeze(2)  # (b, k, 1)
        s1 = gamma.mT @ x  # (b, k, c)
        s2 = gamma.mT @ squares
    scale = mixture.unsqueeze(1)
    u = (s1 - s0 * means) / (scale * variances).sqrt()
    v = ((s2 - 2 * means * s1 + means.square() * s0) / variances - s0) / (2 * scale).sqrt()
    return torch.cat([u.flatten(1), v.flatten(1)], 1)


class FisherVector(nn.Module):
    """:func:`fisher_vector` as a layer that finds its mixture with :meth:`fit`: (b, c, h, w) or (b, n, c) → (b, d).

    d is 2·components·channels. Until :meth:`fit`, or weights of a fitted layer, the variances are zero and the layer refuses to
    run. For the improved Fisher vector, apply :func:`~compact_bilinear.signed_sqrt_l2` to what it gives.

    Args:
        channels: c.
        components: k, how many Gaussians; the paper has 64.

    >>> descriptors = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> pool = FisherVector(8, components=2).fit(descriptors)
    >>> pool(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 32])
    """

    mixture: Tensor
    means: Tensor
    variances: Tensor

    def __init__(self, channels: int, components: int = 64) -> None:
        super().__init__()
        self.channels = read_single_channels("FisherVector", channels)
        if isinstance(components, bool) or not isinstance(components, int) or components < 1:
            raise ValueError(
                f"FisherVector takes components ≥ 1, the number of Gaussians, but got {components!r}.\n"
                f"Write FisherVector({channels}, components=64), as in the paper."
            )
        self.components = components
        self.dim = 2 * components * self.channels
        self.fitted = False
        self.register_buffer("mixture", torch.zeros(components, dtype=torch.float32))
        for name in ("means", "variances"):
            self.register_buffer(name, torch.zeros(components, self.channels, dtype=torch.float32))
        self.register_load_state_dict_post_hook(_note_whether_fitted)

    @torch.no_grad()
    def fit(self, descriptors: Tensor, seed: int = 0) -> Self:
        """Fit the mixture with scikit-learn, in float64, variances not below 1e-4.

        Args:
            descriptors: (m, c), or all those in maps (b, c, h, w) or tokens (b, n, c). Beyond 500 000 of them so many are taken
                at random.
            seed: what that choice, and where the mixture starts from, is drawn from.
        """
        try:
            from sklearn.mixture import GaussianMixture
        except ImportError as absent:
            raise ImportError(
                "FisherVector.fit takes scikit-learn to fit its mixture, but it cannot be imported.\n"
                "Write `pip install 'compact-bilinear[fit]'`, or `pip install scikit-learn`."
            ) from absent
        rows = read_descriptors("FisherVector", descriptors, self.channels)
        if len(rows) < max(self.components, 2):
            raise ValueError(
                f"FisherVector.fit takes at least {max(self.components, 2)} descriptors to fit k={self.components} Gaussians, "
                f"but got {len(rows)}.\nPass the descriptors of more images, or fewer components."
            )
        if len(rows) > LIMIT:
            draw = torch.Generator(device="cpu").manual_seed(seed)
            rows = rows[torch.randperm(len(rows), generator=draw, device="cpu")[:LIMIT].to(rows.device)]
        model = GaussianMixture(self.components, covariance_type="diag", reg_covar=1e-4, random_state=seed)
        model.fit(rows.double().cpu().numpy())
        self.mixture.copy_(torch.from_numpy(model.weights_))
        self.means.copy_(torch.from_numpy(model.means_))
        self.variances.copy_(torch.from_numpy(model.covariances_))
        self.fitted = True
        return self

    def forward(self, x: Tensor, *, weights: Tensor | None = None) -> Tensor:
        if not self.fitted:
            raise ValueError(
                "FisherVector encodes with a mixture of Gaussians, but has not been fitted.\n"
                "Call `.fit(descriptors)` with descriptors (m, c) of training images, or load the weights of a fitted layer."
            )
        columns, weights = read_one_input("FisherVector", self.channels, x, weights)
        return _pooled(columns, weights, self.mixture, self.means, self.variances)

    def extra_repr(self) -> str:
        return f"channels={self.channels}, components={self.components}, dim={self.dim}, fitted={self.fitted}"


def _note_whether_fitted(pool: FisherVector, _: Any) -> None:
    # once, when weights arrive: a look at the numbers in forward() would stop torch.compile and torch.export
    pool.fitted = bool(pool.variances.any())


def _check_mixture(owner: str, mixture: Tensor, means: Tensor, variances: Tensor) -> None:
    if mixture.ndim != 1 or means.ndim != 2 or len(means) != len(mixture) or variances.shape != means.shape:
        raise ValueError(
            f"{owner} takes a mixture (k,), means (k, c) and variances (k, c), but got {tuple(mixture.shape)}, "
            f"{tuple(means.shape)} and {tuple(variances.shape)}.\n"
            "Pass scikit-learn's `weights_`, `means_` and `covariances_` of a mixture with covariance_type='diag'."
        )
    if not all(each.is_floating_point() for each in (mixture, means, variances)):
        raise ValueError(
            f"{owner} takes a floating-point mixture, means and variances, but got {mixture.dtype}, {means.dtype} and "
            f"{variances.dtype}.\nPass each as `.float()`."
        )

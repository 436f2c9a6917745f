"""The public door: images come in as maps or tokens, are checked here once, and go on as columns (b, c, n).

Inside, nothing is checked again.
"""

from numbers import Integral
from typing import NamedTuple

from torch import Tensor

from ..precision import accumulation_dtype


class Locations(NamedTuple):
    """What a pooling sees of its input: descriptors as columns, and what is needed to lay results out again."""

    x: Tensor  # (b, c, n); a view of the map or of the tokens in either memory format, never a copy
    z: Tensor | None  # (b, c2, n)
    weights: Tensor | None  # (b, n)
    grid: tuple[int, int] | None  # (h, w) of a map, None for tokens

    @property
    def other(self) -> Tensor:
        """The second factor of every product: z, or x again."""
        return self.x if self.z is None else self.z

    def widened(self) -> tuple[Tensor, Tensor]:
        """Both factors in float32 or wider. One input is widened once: its gradients are added up before they are rounded."""
        x = self.x.to(accumulation_dtype(self.x, self.z))
        return x, x if self.z is None else self.z.to(x.dtype)

    def restore(self, columns: Tensor) -> Tensor:
        """Columns (b, d, n) as a map (b, d, h, w) or as tokens (b, n, d), as the input was."""
        return columns.mT if self.grid is None else columns.unflatten(2, self.grid)


def read_locations(
    owner: str,
    channels: tuple[int | None, int | None],
    x: Tensor,
    z: Tensor | None = None,
    weights: Tensor | None = None,
) -> Locations:
    """Check one or two inputs and their weights, and turn them into columns.

    Args:
        owner: the name the user called, for messages.
        channels: how many channels ``x`` and ``z`` must have; None for any number.
        x: feature map (b, c, h, w) or tokens (b, n, c).
        z: a second input over the same locations.
        weights: (b, h, w) or (b, n).
    """
    if z is None and channels[0] != channels[1]:
        raise ValueError(
            f"{owner} was built for two inputs, of {channels[0]} and {channels[1]} channels, but got one.\n"
            "Pass both, `pool(x, z)`, or build it with one number of channels."
        )
    columns, grid = _columns(owner, "x", x, channels[0])
    other = None
    if z is not None:
        other, other_grid = _columns(owner, "z", z, channels[1])
        if other.shape[0] != columns.shape[0]:
            raise ValueError(
                f"{owner} takes two inputs over the same images, but x has b={columns.shape[0]} and z b={other.shape[0]}.\n"
                "Pass as many of each; `z.expand(b, ...)` repeats a single one."
            )
        grids_differ = grid is not None and other_grid is not None and grid != other_grid
        if other.shape[2] != columns.shape[2] or grids_differ:
            raise ValueError(
                f"{owner} takes two inputs over the same locations, but x has {_count_locations(columns, grid)} and z has "
                f"{_count_locations(other, other_grid)}.\n"
                "Resize one map to the other's (h, w), or repeat a single vector over all locations with `z.expand(...)`."
            )
    if weights is not None:
        weights = _flat_weights(owner, weights, columns, grid)
    return Locations(columns, other, weights, grid)


def read_one_input(owner: str, channels: int | None, x: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """:func:`read_locations` for poolings of a single input, of any number of channels where that is None."""
    seen = read_locations(owner, (channels, channels), x, None, weights)
    return seen.x, seen.weights


def read_channels(owner: str, channels: int | tuple[int, int]) -> tuple[int, int]:
    """``channels`` as given by the user, one number or a pair, as a pair."""
    pair = tuple(channels) if isinstance(channels, (tuple, list)) else (channels, channels)
    if len(pair) != 2 or not all(_is_count(c) for c in pair):
        raise ValueError(
            f"{owner} takes channels as a positive integer, or two of them, but got {channels!r}.\n"
            f"Write {owner}(512, ...), or {owner}((512, 256), ...) for two different inputs."
        )
    return int(pair[0]), int(pair[1])


def read_single_channels(owner: str, channels: int) -> int:
    """``channels`` of a pooling that takes one input only."""
    if not _is_count(channels):
        raise ValueError(
            f"{owner} takes channels as a positive integer, but got {channels!r}.\n"
            f"Write {owner}(512, ...): it pools one input, with one number of channels."
        )
    return int(channels)


def read_dim(owner: str, dim: int) -> int:
    """``dim`` as given by the user."""
    if not _is_count(dim):
        raise ValueError(
            f"{owner} takes an output dimension d ≥ 1, an integer, but got {dim!r}.\nUsual values are dim=2048 to dim=8192."
        )
    return int(dim)


def read_seed(owner: str, seed: int) -> int:
    """``seed`` as given by the user."""
    # beyond 32 bits torch's generator on the CPU draws what it draws for the rest of the division by 2³²
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(
            f"{owner} takes a seed from 0 to 2³² − 1, an integer, but got {seed!r}.\nWrite seed=0, or leave it out."
        )
    return int(seed)


def is_tensor_or_tensors(given: object) -> bool:
    """Whether drawn numbers were given as one tensor or as several."""
    if isinstance(given, Tensor):
        return given.ndim > 0
    return isinstance(given, (tuple, list)) and all(isinstance(each, Tensor) for each in given)


def read_descriptors(owner: str, descriptors: Tensor, c: int) -> Tensor:
    """Samples to fit on, as rows (m, c): given as rows, as a map or as tokens."""
    given_as_rows = isinstance(descriptors, Tensor) and descriptors.ndim == 2
    if given_as_rows:
        if descriptors.shape[1] != c:
            came = tuple(descriptors.shape)
            raise ValueError(
                f"{owner}.fit takes descriptors as rows (m, c={c}), as a map or as tokens, but got {came}.\n"
                f"It was built for {c} channels: build it for {came[1]}, or pass `descriptors.T` if they are columns."
            )
        descriptors = descriptors[None]
    columns, _ = _columns(f"{owner}.fit", "descriptors", descriptors, c)
    rows = columns.mT.reshape(-1, c)
    if not bool(rows.isfinite().all()):
        raise ValueError(
            f"{owner}.fit takes finite descriptors but {int((~rows.isfinite()).any(1).sum())} of {len(rows)} hold NaN or inf.\n"
            f"Leave those images out: `descriptors[descriptors.isfinite(){'' if given_as_rows else '.flatten(1)'}.all(1)]`."
        )
    return rows


def _is_count(number: object) -> bool:
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= 1


def _count_locations(columns: Tensor, grid: tuple[int, int] | None) -> str:
    return f"n={columns.shape[2]}" if grid is None else f"(h, w) = {grid}"


def _columns(owner: str, name: str, x: Tensor, c: int | None) -> tuple[Tensor, tuple[int, int] | None]:
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{owner} takes a tensor but {name} is {type(x).__name__}.\nPass `torch.as_tensor({name})`, or a module's output."
        )
    if not x.is_floating_point():
        raise ValueError(
            f"{owner} takes floating-point descriptors but {name} is {x.dtype}.\n"
            f"Pass `{name}.float()`, after the network's own scaling."
        )
    if x.ndim == 4 and (c is None or x.shape[1] == c):
        grid = x.shape[2], x.shape[3]
        # a single location as a column of a matrix: matrix products take the strides that flatten(2) gives the slow way
        return x.flatten(1).unsqueeze(1).mT if grid == (1, 1) else x.flatten(2), grid
    if x.ndim == 3 and (c is None or x.shape[2] == c):
        return x.mT, None
    if x.ndim == 4 and x.shape[3] == c:
        remedy = f"Channels come second in a map: pass `{name}.permute(0, 3, 1, 2)`."
    elif x.ndim == 3 and x.shape[1] == c:
        remedy = f"Channels come last in tokens: pass `{name}.mT`."
    elif x.ndim == 3 and x.shape[0] == c:
        remedy = f"This is the map of one image: pass `{name}[None]`."
    elif x.ndim == 2:
        remedy = f"This is one image, or one location of each: pass `{name}[None]` or `{name}[:, None]`."
    elif x.ndim in (3, 4):
        found = x.shape[1] if x.ndim == 4 else x.shape[2]
        remedy = f"It was built for {c} channels: build it for {found}, or check which layer {name} comes from."
    else:
        remedy = f"Flatten the axes of {name} until it is a map or tokens."
    wanted = "c" if c is None else f"c={c}"
    raise ValueError(
        f"{owner} takes a feature map (b, {wanted}, h, w) or tokens (b, n, {wanted}) but {name} is {tuple(x.shape)}.\n{remedy}"
    )


def _flat_weights(owner: str, weights: Tensor, columns: Tensor, grid: tuple[int, int] | None) -> Tensor:
    b, n = columns.shape[0], columns.shape[2]
    expected = (b, n) if grid is None else (b, *grid)
    if not isinstance(weights, Tensor):
        raise ValueError(
            f"{owner} takes weights as a tensor but got {type(weights).__name__}.\nPass `torch.as_tensor(weights)`."
        )
    if weights.shape != expected:
        letters = "(b, n)" if grid is None else "(b, h, w)"
        raise ValueError(
            f"{owner} takes weights {letters} = {expected}, one number a location, but got {tuple(weights.shape)}.\n"
            f"Pass `weights.reshape{expected}` if the order of the locations is the same, or `weights.expand{expected}`."
        )
    if not weights.is_floating_point():
        raise ValueError(f"{owner} takes floating-point weights but got {weights.dtype}.\nPass a mask as `mask.to(x.dtype)`.")
    return weights.flatten(1)

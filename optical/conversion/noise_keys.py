"""Keys from which a converted model draws: a seed, a step, and a place in the global batch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from simulator.errors import ParameterError
from simulator.keys import mix_key

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class NoiseKey:
    """Source of all draws of one pass through a model, forward and backward."""

    seed: int
    """Of the whole run."""
    step: int = 0
    """Of training, or the number of a batch or token: each new step draws anew."""
    part: int = 0
    """Which of the equal parts of the global batch this pass works on: a data-parallel process takes
    its place among the processes; with n microbatches, n times that plus the number of the microbatch."""
    alike: bool = True
    """Whether a product has equally many rows in all parts. If not, as where each part is padded to its own
    longest sequence, parts still share no draw, but none draws what one process would."""
    numbers: np.ndarray = field(init=False, repr=False, compare=False)
    """Value and part, shape [2]: an input of compiled graphs, which so follow the step without another
    compilation, and no buffer, which replicas would overwrite."""

    def __post_init__(self) -> None:
        for name in ("seed", "step", "part"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                msg = f"NoiseKey: {name} must be a whole number of at least 0; got {value!r}"
                raise ParameterError(msg)
        signed = self.value - 2**64 if self.value >= 2**63 else self.value
        object.__setattr__(self, "numbers", np.array((signed, self.part), dtype=np.int64))

    @property
    def value(self) -> int:
        """The key of all parts, in [0, 2**64)."""
        return mix_key(self.seed, self.step)


@dataclass(frozen=True, eq=False)
class TensorKey:
    """A key that is an input of a model, of whose value a compiler knows nothing."""

    numbers: torch.Tensor
    """Value and part, int64, shape [2], on the CPU."""
    alike: bool = True
    """As in `NoiseKey`."""

    @property
    def value(self) -> int:
        """The key of all parts, in [0, 2**64)."""
        return self._read()[0] % 2**64

    def _read(self) -> list[int]:
        """Return the numbers, unseen by conversions, to which reading a tensor says that rows hang on it."""
        import torch  # noqa: PLC0415 - slow, and rarely needed

        with torch._C.DisableTorchFunction():
            return self.numbers.tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorKey) and self._read() == other._read()

    def __hash__(self) -> int:
        return hash(self.value)


KeyT = TypeVar("KeyT", NoiseKey, TensorKey)


@dataclass(kw_only=True)
class _Open(threading.local):
    """The open key of this thread; compilers see through it, as they do not through a context variable."""

    key: NoiseKey | TensorKey | None = None
    """The innermost key."""


_OPEN = _Open()


def noise_key(
    seed: int, step: int = 0, *, part: int = 0, alike: bool = True
) -> contextlib.AbstractContextManager[NoiseKey]:
    """Give the products of converted models their draws; it goes before the key of a model.

    Parameters
    ----------
    seed, step, part, alike : int or bool
        As in `NoiseKey`. Row blocks are counted from the part on, so that parts in different processes draw
        what one process draws, if each product's part is a whole number of row blocks. Where rows are picked
        by the values of tensors, as experts do, each part has numbers of its own.

    Raises
    ------
    ParameterError
        If a number is not whole, or below 0.
    """
    return opened(NoiseKey(seed=seed, step=step, part=part, alike=alike))


@contextlib.contextmanager
def opened(key: KeyT) -> Iterator[KeyT]:
    """Give the products of converted models their draws from a key."""
    before, _OPEN.key = _OPEN.key, key
    try:
        yield key
    finally:
        _OPEN.key = before


def open_key() -> NoiseKey | TensorKey | None:
    """Return the innermost open key of this thread, or None."""
    return _OPEN.key

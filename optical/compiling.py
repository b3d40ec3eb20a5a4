"""How functions are compiled by numba, and how they reach the memory of tensors.

Memory is given by address: to wrap a tensor as an array takes as long as a small product.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

Array = Any
Numbers = tuple[Any, ...]
LONG = 2**40
"""Length of memory whose end is not asked for."""
compiled = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
compiled_in_order = numba.njit(nogil=True, cache=True, fastmath={"nsz"})
"""Without a choice of its own a function would take that of its caller."""


@intrinsic  # type: ignore[untyped-decorator]
def _address(typing: Any, address: Any) -> Any:  # noqa: ANN401
    """Return an address as a pointer."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = _address
"""The same, of which a type checker knows nothing."""


@compiled
def floats(address: int, count: int) -> Array:
    """Return float32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.float32)


@compiled
def integers(address: int, count: int) -> Array:
    """Return int32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int32)


@compiled
def small_integers(address: int, count: int) -> Array:
    """Return int8 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int8)

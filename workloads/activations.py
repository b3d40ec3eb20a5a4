"""The functions between the products of a feed-forward part, and what each costs an element."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Activation(StrEnum):
    """A feed-forward part's function; a gated part multiplies it with its second branch."""

    GELU = "gelu"
    SILU = "silu"
    RELU = "relu"
    SQUARED_RELU = "squared relu"


FLOPS: Mapping[Activation, int] = {
    Activation.GELU: 8,
    Activation.SILU: 5,
    Activation.RELU: 1,
    Activation.SQUARED_RELU: 2,
}
"""Operations per element: each sum, product, comparison, exponential and quotient counts one (a GELU in its
tanh form)."""

PUBLISHED: Mapping[str, Activation] = {
    "gelu": Activation.GELU,
    "gelu_10": Activation.GELU,
    "gelu_accurate": Activation.GELU,
    "gelu_fast": Activation.GELU,
    "gelu_new": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU,
    "quick_gelu": Activation.GELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "relu": Activation.RELU,
    "relu2": Activation.SQUARED_RELU,
}
"""Names in published ``config.json`` files; every form of a GELU counts as its tanh form."""

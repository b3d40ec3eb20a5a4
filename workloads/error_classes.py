"""What the errors of a product have in common, which decides how a model feels them."""

from __future__ import annotations

from enum import StrEnum


class ErrorClass(StrEnum):
    """Where an error of C = A B sits: how many outputs share one draw.

    Notes
    -----
    The same noise to signal in another class costs a model another loss: attention averages what is drawn
    anew for every output, and does not average what every row meets alike.
    """

    OUTPUT = "output"
    """Anew for every output: receivers, converters behind them."""
    FIRST = "first operand"
    """On elements of A, so that all outputs of a row share it: encoding and rounding of A, or loading it."""
    SECOND = "second operand"
    """On elements of B, so that all rows share it: the error of a loaded weight while it is held."""

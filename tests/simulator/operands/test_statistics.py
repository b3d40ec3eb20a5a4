"""Moments of operands that are scaled and rounded, against elements that are drawn."""

import numpy as np
import pytest

from simulator.operands.statistics import Element, OperandLaw, even_codes, scaled_moments

LENGTH = 256


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("element", Element)
def test_rows_in_even_codes_err_as_drawn_ones_do(element, spread):
    """As far as two million elements tell."""
    law = OperandLaw(element=element, element_spread=spread)
    x = law.draw(np.random.default_rng(1), 8000, LENGTH)
    scale = np.abs(x).max(1, keepdims=True)
    error = np.rint(x / scale * 127.0) * scale / 127.0 - x
    square, overlap = np.mean(x**2), np.mean(x * error)
    drawn = (np.mean(error**2) - overlap**2 / square) * square / (square + overlap) ** 2
    found = scaled_moments(law, LENGTH, even_codes(127))
    assert found.rounding == pytest.approx(drawn, rel=0.02)
    assert found.scale_square == pytest.approx(np.mean(scale**2), rel=0.02)

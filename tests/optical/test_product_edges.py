"""What hardly ever happens in a product, and what only a rare call of it meets."""

import dataclasses

import pytest
import torch

from optical import fused
from optical.analog import AnalogSpec, Rounding, Scale
from optical.draws import Draws
from optical.numerics import AnalogNumerics
from optical.operands import encode

EIGHT_BITS = dataclasses.replace(
    AnalogSpec.ideal(), dac_bits=8.0, analog_length=64, rounding=Rounding.STOCHASTIC, scale=Scale.TENSOR
)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_clipping_at_either_end_of_the_range_is_counted_once(sign):
    """All samples are alike, so their rms is each of them, and a range of 0.9 rms clips every one."""
    spec = dataclasses.replace(
        AnalogSpec.ideal(), adc_bits=8.0, adc_enob_bits=8.0, adc_range_sigma=0.9, analog_length=64
    )
    a, b = torch.ones(1, 8, 64), torch.full((1, 64, 8), sign)
    assert AnalogNumerics(spec).clipped_fraction(a, b) == pytest.approx(1.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_no_dither_reaches_beyond_the_last_code(compiled, monkeypatch):
    """One dither in 65536 is half a step, which would round the last code, -127, to -128."""
    if not compiled:
        monkeypatch.setattr(fused, "fuses", lambda x: False)
    x = torch.full((1, 2**10, 2**10), -1.0)
    codes = encode(x, -1, EIGHT_BITS, Draws(5, x.device), loaded=False).codes
    assert codes.min() == -127

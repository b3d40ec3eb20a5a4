"""A core's converters alone, bit by bit: arithmetics whose only errors are those of rounding and clipping."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from experiments.accuracy import Arithmetic
from heliograph.errors import ParameterError
from heliograph.operators import Phase
from optical.analog import AnalogSpec

BITS = (8, 7, 6, 5, 4)
"""Bits of one converter, the other being exact."""


def converter_ladder(arithmetics: Iterable[Arithmetic]) -> tuple[Arithmetic, ...]:
    """Return arithmetics with output or operand converters of so many bits, and no other error.

    Parameters
    ----------
    arithmetics : iterable of Arithmetic
        The first photonic one gives length of a sample, scale, rounding and range of the output converter.

    Raises
    ------
    ParameterError
        If none is of a photonic core that reads its sums with a converter.
    """
    for one in arithmetics:
        spec = one.analog[Phase.FORWARD] if one.analog is not None else None
        if spec is not None and spec.residues is None:
            return tuple(_converter(spec, one, kind, bits) for kind in ("ADC", "DAC") for bits in BITS)
    msg = "converters are turned on a photonic core that reads its sums; name one with --system, as crossbar"
    raise ParameterError(msg)


def _converter(spec: AnalogSpec, one: Arithmetic, kind: str, bits: int) -> Arithmetic:
    alone = dataclasses.replace(
        AnalogSpec.ideal(), analog_length=spec.analog_length, scale=spec.scale, rounding=spec.rounding
    )
    if kind == "ADC":
        alone = dataclasses.replace(
            alone,
            adc_bits=float(bits),
            adc_enob_bits=float(bits),
            adc_range_sigma=spec.adc_range_sigma,
        )
    else:
        alone = dataclasses.replace(alone, dac_bits=float(bits))
    return dataclasses.replace(
        one, label=f"{kind} {bits} bits", analog=dict.fromkeys(one.analog or {}, alone)
    )


def with_electronic(arithmetics: Iterable[Arithmetic], products: tuple[str, ...]) -> tuple[Arithmetic, ...]:
    """Return the arithmetics with some products electronic and exact, the model's names for them.

    Raises
    ------
    ParameterError
        If the model has no product of that name.
    """
    known = ("qkv", "scores", "values", "projection", "up", "down", "head")
    for name in products:
        if name not in known:
            msg = f"there is no product '{name}' to keep electronic; take one or more of {', '.join(known)}"
            raise ParameterError(msg)
    if not products:
        return tuple(arithmetics)
    return tuple(
        dataclasses.replace(one, label=f"{one.label}, {'+'.join(products)} digital", exact_products=products)
        for one in arithmetics
    )

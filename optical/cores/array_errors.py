"""Errors that a core's array adds to the record of its products: of the chip, of shared light, of counting.

A core states the record of one output by itself; this module says which outputs share parts and lines.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

from optical.devices import device_table
from optical.execution import AnalogSpec
from optical.execution.spec import Shot
from optical.noise.chip import (
    Chip,
    ChipErrors,
    CommonEncoding,
    CommonNoise,
    EncodingNoise,
    LaserNoise,
    LineGrid,
    NodeCoupler,
)
from optical.noise.link_budget import LinkBudget
from simulator.checks import check_range


@cache
def default_chip() -> Chip:
    """Return the chip of today's parts, taken to be calibrated without noise unless told otherwise."""
    return device_table().build(Chip, "chip")


@cache
def default_interfering_chip(*, on_lines: bool) -> Chip:
    """Return the same of a core whose operands interfere, on one wavelength or on the lines of a comb."""
    table = device_table()
    grid = table.build(LineGrid, "comb_lines") if on_lines else None
    return dataclasses.replace(default_chip(), coupler=table.build(NodeCoupler, "node_coupler"), grid=grid)


@dataclass(frozen=True, kw_only=True)
class ArrayShape:
    """Parts that products of an array have for themselves, and outputs that see one line."""

    rows: int
    """Rows of the first operand with modulators of their own, or vectors that pass at once."""
    columns: int
    """Columns of the second operand, or outputs of held weights."""
    length: int
    """Products of a sum with modulators of their own."""
    holds_weights: bool = False
    """Whether the second operand is loaded."""
    lit_rows: int = 1
    """Rows, or vectors, on one line in one symbol."""
    lines: int = 1
    """Wavelengths that interfere in one coupler."""
    lit_length: int = 1
    """Products of a sum on one line in one symbol."""

    def __post_init__(self) -> None:
        check_range(self, "rows", "columns", "length", "lit_rows", "lit_length", "lines", low=1)


def on_chip(
    spec: AnalogSpec,
    chip: Chip,
    array: ArrayShape,
    *,
    seed: int,
    rin_ratio: float,
    repeated_variance: float = 0.0,
    cell_gain: float = 0.0,
) -> AnalogSpec:
    """Return a record with what an array's outputs and loads have in common.

    Parameters
    ----------
    spec : AnalogSpec
        The record of one output, all noise counted as if drawn for it alone.
    chip : Chip
        How unlike parts are, and whether outputs fluctuate together.
    array : ArrayShape
        Parts and lines.
    seed : int
        Which chip it is.
    rin_ratio : float
        Variance of a line's relative power, which `spec.rin_variance` contains.
    repeated_variance : float
        Error of a loaded element that chip and loaded operand settle together, in full scales squared.
    cell_gain : float
        Variance of the gain of a weight's cell, fixed per chip.

    Notes
    -----
    A gain is read with one product at full scale and all others dark (`AnalogSpec.reading_variance`), the
    same for modulators and receivers; each modulator is taken to be read by one receiver, though all of its
    row would tell of it. Where weights are held, only the streamed operand has a converter that errs anew in
    every symbol; the other's share of `encoding_variance` stays with each output.
    """
    reading = spec.reading_variance
    modulator = chip.gain_variance(chip.modulator_gain, reading)
    errors = ChipErrors(
        seed=seed,
        rows=array.rows,
        columns=array.columns,
        length=array.length,
        holds_weights=array.holds_weights,
        first_gain=modulator,
        second_gain=cell_gain if array.holds_weights else modulator + cell_gain,
        output_gain=chip.gain_variance(chip.receiver_gain, reading),
        imbalance=chip.node_imbalance(reading),
        edge_imbalance=chip.edge_imbalance(array.lines),
        lines=array.lines,
        repeated_variance=repeated_variance,
    )
    encoding = CommonEncoding(
        rows=1 if array.holds_weights else array.rows,
        columns=array.columns,
        holds_weights=array.holds_weights,
    )
    spec = dataclasses.replace(
        spec,
        chip=None if errors.is_empty else errors,
        encoding=encoding if chip.encoding_noise is EncodingNoise.COMMON else None,
    )
    if chip.laser_noise is LaserNoise.INDEPENDENT or rin_ratio == 0.0:
        return spec
    common = CommonNoise(
        variance=rin_ratio,
        rows=array.lit_rows,
        columns=array.columns,
        length=array.lit_length,
        holds_weights=array.holds_weights,
    )
    return dataclasses.replace(spec, rin_variance=max(0.0, spec.rin_variance - rin_ratio), common=common)


def counted(spec: AnalogSpec, link: LinkBudget, shot: Shot) -> AnalogSpec:
    """Return the record of a coherent dot product whose photons are counted, if they are.

    Notes
    -----
    Only shot noise is a number of photons. The intensity noise that a pair fails to reject follows the same
    a^2 + b^2 and moves over to the encoding error, which does; each pair draws its own, whatever outputs
    share of their converters' errors.
    """
    if shot is Shot.GAUSSIAN:
        return spec
    pure = link.shot_current_a2 / link.product_current_a**2
    moved, shared = spec.shot_variance - pure, spec.encoding
    return dataclasses.replace(
        spec,
        shot=shot,
        shot_variance=pure,
        encoding_variance=spec.encoding_variance + moved,
        encoding=None if shared is None else dataclasses.replace(shared, own_variance=moved),
    )


def mismatch_ratio(spec: AnalogSpec) -> dict[str, float]:
    """Return noise over signal of a full-scale sample by what is unlike on a chip, if anything is.

    Notes
    -----
    Gains of a sum's positions are independent, that of the receiver is one for all of them. What a
    cell or a load adds is named by its core. Couplers do not show: all operands at full scale, a^2 = b^2.
    """
    chip = spec.chip
    if chip is None:
        return {}
    modulators = chip.first_gain * (1.0 if chip.holds_weights else 2.0)
    return {"unlike parts": chip.output_gain + modulators / min(chip.length, spec.analog_length)}

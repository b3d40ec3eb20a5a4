"""Errors that outputs do not draw independently: fixed for a chip, or shared by several outputs.

Like parts of a chip differ as made. A calibration measures the differences, `Chip.averages` times each, with
receivers as noisy as the core's own, and the digital side corrects for the result. The remainder
(`posterior_variance`) is drawn once, from the chip's seed. Variances are relative, or in the units of
`optical.execution.AnalogSpec`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from optical.devices.parts import Named
from simulator.errors import check_choices, check_range, check_whole
from simulator.units import SPEED_OF_LIGHT_M_PER_S


class Mismatch(StrEnum):
    """Part of the differences between like parts of a chip that reaches its products."""

    NONE = "none"
    """None: parts are alike, or calibrated without noise."""
    CALIBRATED = "calibrated"
    """Remainder after a calibration with the core's own noisy receivers."""
    RAW = "raw"
    """All differences: no calibration."""


class LaserNoise(StrEnum):
    """Outputs to which the intensity noise of a line is common."""

    INDEPENDENT = "independent"
    """None: each draws its own, of the right variance."""
    COMMON = "common"
    """All that light of the line reaches in one symbol. Execution takes a second product where this is more
    than 1 % of the noise."""


class EncodingNoise(StrEnum):
    """Outputs to which the error of an operand's converter is common."""

    INDEPENDENT = "independent"
    """None: each draws its own, of the right variance, which harms a trained model a third too little."""
    COMMON = "common"
    """All that one modulator's light reaches in one symbol."""


@dataclass(frozen=True, kw_only=True)
class NodeCoupler(Named):
    """50:50 coupler in which two operands interfere."""

    angle_error_rad: float
    """Standard deviation of the coupling angle from pi/4, fixed per chip."""

    def __post_init__(self) -> None:
        check_range(self, "angle_error_rad")

    @property
    def imbalance_variance(self) -> float:
        """Variance of 2 k - 1, k the share of power that crosses: (2 angle)^2 for small errors."""
        return 4.0 * self.angle_error_rad**2


@dataclass(frozen=True, kw_only=True)
class LineGrid(Named):
    """Wavelengths of a comb's lines, which a coupler does not divide alike."""

    spacing_m: float
    """Distance of the lines in wavelength."""
    wavelength_m: float
    """Of their middle, where couplers divide evenly."""
    dispersion: float
    """Exponent of a coupling angle over wavelength, dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "spacing_m", "dispersion")
        check_range(self, "wavelength_m", open_low=True)

    @property
    def spacing_hz(self) -> float:
        """Distance of the lines in frequency."""
        return SPEED_OF_LIGHT_M_PER_S * self.spacing_m / self.wavelength_m**2

    def edge_imbalance(self, lines: int) -> float:
        """Return 2 k - 1 of the outermost of a number of lines, k = sin^2((pi/4)(wavelength ratio)^p)."""
        ratio = 1.0 + 0.5 * (lines - 1) * self.spacing_m / self.wavelength_m
        return math.sin(0.5 * math.pi * (ratio**self.dispersion - 1.0))


@dataclass(frozen=True, kw_only=True)
class Chip(Named):
    """Spread of like parts of one chip, its calibration, and the share that reaches products."""

    modulator_gain: float
    """Standard deviation of the swing between modulators, relative."""
    receiver_gain: float
    """Standard deviation of the gain between receivers, responsivity and amplifier together, relative."""
    averages: int
    """Readings of each gain, or of each coupling between parts, in a calibration; 0 measures nothing."""
    coupler: NodeCoupler | None = None
    """Coupler of a node, where two operands interfere in one."""
    grid: LineGrid | None = None
    """Lines of the comb, where they interfere in the same coupler."""
    mismatch: Mismatch = Mismatch.NONE
    """Part of the differences that reaches the products."""
    laser_noise: LaserNoise = LaserNoise.COMMON
    """Whether outputs fluctuate together."""
    encoding_noise: EncodingNoise = EncodingNoise.COMMON
    """Whether outputs err together by an operand's converter."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "averages")
        check_whole(self, "averages")
        check_range(self, "modulator_gain", "receiver_gain", high=1.0)

    @property
    def readings(self) -> int:
        """Readings of each quantity in a calibration; 0 without calibration."""
        return 0 if self.mismatch is Mismatch.RAW else self.averages

    def gain_variance(self, deviation: float, reading_variance: float) -> float:
        """Return the variance of a gain that reaches products, relative.

        Parameters
        ----------
        deviation : float
            Standard deviation of the gain between parts as made.
        reading_variance : float
            Variance of one reading of it (`reading_variance`).
        """
        if self.mismatch is Mismatch.NONE:
            return 0.0
        return posterior_variance(deviation**2, reading_variance, self.readings)

    def node_imbalance(self, reading_variance: float) -> float:
        """Return the variance of a coupler's 2 k - 1 that reaches products.

        Notes
        -----
        One operand alone at full scale reads half of it.
        """
        if self.coupler is None or self.mismatch is Mismatch.NONE:
            return 0.0
        return posterior_variance(self.coupler.imbalance_variance, 4.0 * reading_variance, self.readings)

    def edge_imbalance(self, lines: int) -> float:
        """Return 2 k - 1 of the outermost line; 0 with a calibration, which corrects it by design."""
        return self.grid.edge_imbalance(lines) if self.grid and self.mismatch is Mismatch.RAW else 0.0


def posterior_variance(variance: float, reading_variance: float, readings: float) -> float:
    """Return the variance of a quantity that remains after a number of noisy readings of it.

    Parameters
    ----------
    variance : float
        Variance of the quantity from chip to chip.
    reading_variance : float
        Variance of one reading, in the same unit.
    readings : float
        Independent readings; 0 leaves all, infinitely many nothing.

    Notes
    -----
    Posterior variance of a Gaussian quantity, 1 / (1/variance + readings/reading_variance): never more than
    was there, and no less than the noise of the mean.

    References
    ----------
    S. M. Kay, "Fundamentals of Statistical Signal Processing: Estimation Theory" (1993), example 10.1.
    """
    if variance == 0.0 or (reading_variance == 0.0 and readings > 0):
        return 0.0
    return variance / (1.0 + (readings * variance / reading_variance if readings else 0.0))


@dataclass(frozen=True, kw_only=True)
class ChipErrors:
    """Errors drawn from a chip's seed alone, by position in its array; no key of a step moves them.

    Notes
    -----
    A sum over K meets the positions 0 .. `length` - 1 in turn; outputs meet rows and columns alike. For a
    core that holds weights, rows are vectors that pass at once, columns its outputs, and the product is
    turned if A is loaded (`optical.execution.spec.loads_second`); otherwise rows belong to A and columns to
    B. A coupler that does not divide evenly adds (2 k - 1)(a^2 - b^2)/2 to each product of its node. Every
    array of an accelerator is taken to be a copy of this one.
    """

    seed: int
    """Key of the chip."""
    rows: int
    """Rows of A, or vectors of the streamed operand, that have parts of their own."""
    columns: int
    """Columns of B, or of the loaded operand."""
    length: int
    """Products of a sum that have parts of their own."""
    holds_weights: bool
    """Whether the second operand is loaded."""
    first_gain: float = 0.0
    """Variance of the gain of each modulator of the first (streamed) operand, by row and position."""
    second_gain: float = 0.0
    """Variance of the gain of each part that sets the second (loaded) operand, by position and column."""
    output_gain: float = 0.0
    """Variance of the gain of each receiver, by row and column."""
    imbalance: float = 0.0
    """Variance of 2 k - 1 of each node's coupler, by row and column."""
    edge_imbalance: float = 0.0
    """2 k - 1 of the last of `lines` wavelengths, minus that of the first; in between on a straight line."""
    lines: int = 1
    """Wavelengths that products of a sum take in turn."""
    repeated_variance: float = 0.0
    """Error of a loaded element that chip and loaded operand settle together, in the unit of
    `optical.execution.AnalogSpec.load_variance`: the same whenever this chip loads the same, another for
    anything else."""

    def __post_init__(self) -> None:
        check_range(self, "seed")
        check_range(self, "rows", "columns", "length", "lines", low=1)
        check_range(self, "first_gain", "second_gain", "output_gain", "repeated_variance", "imbalance")
        check_range(self, "edge_imbalance", low=-1.0, high=1.0)

    @property
    def is_empty(self) -> bool:
        """Whether all errors are zero."""
        variances = (self.element_gain, self.output_gain, self.repeated_variance, self.imbalance)
        return not any(variances) and self.edge_imbalance == 0.0

    @property
    def node_variance(self) -> float:
        """Mean square of 2 k - 1 over nodes and lines, lines taken to be many."""
        return self.imbalance + self.edge_imbalance**2 / 3.0

    @property
    def element_gain(self) -> float:
        """Variance of both operands' gains together."""
        return self.first_gain + self.second_gain


@dataclass(frozen=True, kw_only=True)
class CommonNoise:
    """Intensity noise that all outputs of a line share in a symbol; drawn anew for every symbol.

    Notes
    -----
    Product k of output (m, n) is multiplied by 1 + r, one Gaussian r for each block of `rows` by `columns`
    outputs and `length` products: the lines of a comb fluctuate apart (`length` 1), inputs of one laser
    together.
    """

    variance: float
    """Variance of the relative intensity within the noise bandwidth."""
    rows: int
    """Rows of A, or vectors of the streamed operand, that share a line."""
    columns: int
    """Columns of B, or of the loaded operand."""
    length: int
    """Products of a sum that share it."""
    holds_weights: bool
    """Whether the second operand is loaded; then the product may be turned."""

    def __post_init__(self) -> None:
        check_range(self, "variance")
        check_range(self, "rows", "columns", "length", low=1)


@dataclass(frozen=True, kw_only=True)
class CommonEncoding:
    """Outputs that share the error of an operand's converter; drawn anew for every symbol.

    Notes
    -----
    An element of A has the same error for `columns` outputs of its row, an element of B for `rows` outputs of
    its column: those for which its modulator is set once. The next block of outputs is another symbol. The
    variance of the error is `optical.execution.AnalogSpec.encoding_variance`.
    """

    rows: int
    """Rows of A, or vectors of the streamed operand, that meet one setting of the second operand."""
    columns: int
    """Columns of B, or of the loaded operand, that meet one setting of the first operand."""
    holds_weights: bool
    """Whether the second operand is loaded; then the product may be turned."""
    own_variance: float = 0.0
    """Part of `encoding_variance` that is no error of a converter and independent for each output."""

    def __post_init__(self) -> None:
        check_range(self, "rows", "columns", low=1)
        check_range(self, "own_variance")

    @property
    def serves_one(self) -> bool:
        """Whether a setting of either operand serves a single output, whose error is then independent."""
        return min(self.rows, self.columns) == 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationCost:
    """Cost of learning the errors of a chip, once; a chip that drifts pays it again."""

    settings: float = 0.0
    """Settings of slow parts, such as heaters, one after the other."""
    readings: float = 0.0
    """Symbols that are read, after all settings."""
    time_s: float = 0.0
    """Time of both."""
    energy_j: float = 0.0
    """Static power over that time, and the conversions."""

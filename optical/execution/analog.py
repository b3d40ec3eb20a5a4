"""What of a photonic core reaches its products: a frozen, printable record without torch.

A core derives an `AnalogSpec` from its link budget and converters (`Core.analog(phase)`);
`optical.execution.numerics` executes it. All variances are in units where one full-scale product, |a| = |b| =
1, is 1, and refer to one analog sample, that is to the sum of `analog_length` products that one ADC
conversion reads.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from optical.execution.residues import Residues, largest_mantissa
from optical.noise.chip import ChipErrors, CommonEncoding, CommonNoise
from simulator.amounts import Amount, Flag
from simulator.checks import check_positive, check_range
from simulator.errors import ParameterError


class Scale(StrEnum):
    """Over which elements of an operand one full scale is shared."""

    TENSOR = "tensor"
    ROW = "row"
    BLOCK = "block"
    """As ROW, anew for each analog sample: block floating point."""


class Rounding(StrEnum):
    """How an operand reaches the converter's grid."""

    NEAREST = "nearest"
    STOCHASTIC = "stochastic"


class Shot(StrEnum):
    """How shot noise is drawn."""

    GAUSSIAN = "gaussian"
    """Of the right variance: right where a sample holds many photons."""
    COUNTED = "counted"
    """Photons of both detectors of a balanced pair are counted, each a Poisson number."""


@dataclass(frozen=True, kw_only=True)
class AnalogSpec:
    """How one product of a photonic core comes out.

    Notes
    -----
    With operands scaled to [-1, 1] by ``Scale``, a sample of n = `analog_length` products has the variance

    ``thermal_variance + shot_variance * sum(a^2 + b^2) + rin_variance * sum((a b)^2)
    + encoding_variance * (sum(a^2) + sum(b^2))``

    with the sums over its n products, is then clipped to the ADC's range and rounded to its codes. The range
    is `adc_range_sigma` times the rms of the samples (a gain stage set per product), never above n.

    A weight-stationary core loads one operand (`loads_second`): each element of it is wrong by a draw of
    `load_variance`, and all vectors of the product meet the same wrong element. Grid and encoding error of
    the streamed operand's converter are put on it too, which is a little too much: they are finer.

    Records of their own say what is not redrawn with every output: `chip` what is fixed for a chip, `common`
    the intensity noise that outputs share, `encoding` which of them share `encoding_variance`, `shot` whether
    photons are counted. Counted, a sample of
    the exact sum y has N+ and N- photons in its two detectors, Poisson numbers of means (sum(a^2 + b^2) +- 2
    g y) / (8 v), v being `shot_variance` and g `product_gain`, and reads 2 v (N+ - N-): mean g y and the
    variance above.
    """

    dac_bits: float
    """Bits of the operand converters; ``math.inf`` for exact operands."""
    adc_bits: float
    """Nominal bits of the output converter; ``math.inf`` for none."""
    adc_enob_bits: float
    """Effective bits of the output converter, at most `adc_bits`; the gap is Gaussian converter noise."""
    adc_range_sigma: float
    """Half of the ADC's range in units of the samples' rms, dimensionless."""
    analog_length: int
    """Products that are summed in the analog domain before one conversion."""
    thermal_variance: float
    """Receiver noise per sample, in full-scale products squared."""
    shot_variance: float
    """Shot noise per unit of a^2 + b^2."""
    rin_variance: float
    """Laser intensity noise per unit of (a b)^2."""
    encoding_variance: float
    """Error of setting an operand, per unit of the other operand squared."""
    load_variance: float = 0.0
    """Error of an element of the loaded operand, in full scales squared; drawn once per load."""
    product_gain: float = 1.0
    """Mean of the product over phase errors, exp(-s^2/2), dimensionless; calibration does not undo it."""
    scale: Scale = Scale.ROW
    """Granularity of the operands' full scale."""
    rounding: Rounding = Rounding.NEAREST
    """Rounding of the operands."""
    residues: Residues | None = None
    """Residue numbers in which blocks are multiplied; they take the place of all other errors of a sample."""
    chip: ChipErrors | None = None
    """What is fixed for the chip."""
    common: CommonNoise | None = None
    """Intensity noise that outputs share, beside `rin_variance`, which they do not."""
    encoding: CommonEncoding | None = None
    """Which outputs share the errors of `encoding_variance`; none do without."""
    shot: Shot = Shot.GAUSSIAN
    """How shot noise is drawn."""

    def __post_init__(self) -> None:
        check_positive(self, "dac_bits", "adc_bits", "adc_enob_bits", "adc_range_sigma")
        check_range(self, "analog_length", low=1)
        check_range(self, "thermal_variance", "shot_variance", "rin_variance", "encoding_variance")
        check_range(self, "load_variance")
        for name in ("thermal", "shot", "rin", "encoding", "load"):
            if math.isinf(getattr(self, f"{name}_variance")):
                msg = f"AnalogSpec: {name}_variance must be finite; got inf, light that carries no signal"
                raise ParameterError(msg)
        check_range(self, "product_gain", low=0.0, high=1.0, open_low=True)
        check_range(self, "adc_enob_bits", high=self.adc_bits)
        if self.residues is not None and (self.scale is not Scale.BLOCK or math.isinf(self.dac_bits)):
            msg = "AnalogSpec: residues need scale 'block' and finite dac_bits, those of the mantissas"
            raise ParameterError(msg)
        if self.residues is not None:
            self.residues.check_sums(self.analog_length * largest_mantissa(self.dac_bits) ** 2)

    def __hash__(self) -> int:
        """Return a hash that is worked out once: specifications stand in the keys of caches."""
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, one.name) for one in fields(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of; a hash is good for one process only."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def reading_variance(self) -> float:
        """Variance of reading one full-scale product with all else dark, relative to it, ADC included."""
        light = self.thermal_variance + 2.0 * self.shot_variance + self.fluctuation
        return light + 4.0**-self.adc_enob_bits / 3.0

    @property
    def fluctuation(self) -> float:
        """Variance per unit of (a b)^2, shared with other outputs or not."""
        return self.rin_variance + (self.common.variance if self.common is not None else 0.0)

    @property
    def needs_energy(self) -> bool:
        """Whether any error hangs on the squares of the operands."""
        return self.shot_variance + self.encoding_variance + self.fluctuation > 0.0 or self.chip is not None

    @classmethod
    def ideal(cls) -> AnalogSpec:
        """Return the limit of infinite bits and power: the exact product."""
        return cls(
            dac_bits=math.inf,
            adc_bits=math.inf,
            adc_enob_bits=math.inf,
            adc_range_sigma=math.inf,
            analog_length=1,
            thermal_variance=0.0,
            shot_variance=0.0,
            rin_variance=0.0,
            encoding_variance=0.0,
        )


def loads_second(m: Amount, n: Amount) -> Flag:
    """Return whether a weight-stationary core loads B of C = A B, and streams A, rather than the reverse.

    Parameters
    ----------
    m, n : float or numpy.ndarray
        Rows of A and columns of B.

    Notes
    -----
    Loading B takes ~KN/(tile) loads past which M vectors stream; C^T = B^T A^T makes the reverse possible at
    the same number of products. The one with fewer loads streams more vectors past each.
    """
    return m >= n

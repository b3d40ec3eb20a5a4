"""Every term of an executed record alone: its law as variance, tails and correlations, by hand.

Operands are full scale unless a term says otherwise, so that laws are numbers. Outputs count row by row.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import torch
from scipy.special import ndtr

from optical.execution import AnalogSpec, Rounding, Scale
from optical.execution.spec import Residues, Shot
from optical.noise.chip import ChipErrors, CommonEncoding, CommonNoise

ROWS, COLUMNS, LENGTH = 12, 10, 16
HEIGHT, WIDTH = 4, 5
"""Rows and columns of outputs that share a line or a part of the chip."""
CODE, STEP, ABOVE = 3.3, 1.0 / 7.0, 0.3
"""An operand between two codes, the step of a converter of 4 bits, and the part above the lower code."""
RESIDUES = Residues(moduli=(3, 4, 5, 7), sigmas=(0.3, 0.25, 0.3, 0.8))


def ones(rows=ROWS, columns=COLUMNS):
    return torch.ones(rows, LENGTH).double(), torch.ones(LENGTH, columns).double()


def first_between_codes(rows=ROWS, columns=COLUMNS):
    a, b = ones(rows, columns)
    a[:, 1:] = CODE * STEP
    return a, b


def second_between_codes(rows=ROWS, columns=COLUMNS):
    a, b = ones(rows, columns)
    b[1:] = CODE * STEP
    return a, b


def alternating(rows=ROWS, columns=COLUMNS):
    """Sums of zero, so that misread ones seldom leave the dynamic range."""
    a, b = ones(rows, columns)
    a[:, 1::2] = -1.0
    return a, b


def uneven(rows=ROWS, columns=COLUMNS):
    """Σa² - Σb² = -LENGTH/2 in full scales."""
    a, b = ones(rows, columns)
    a[:, LENGTH // 2 :] = 0.0
    return a, b


def places(rows, columns):
    """Row and column of each output, and of each other output, for comparison."""
    m, n = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
    return m[:, None], m[None], n[:, None], n[None]


def alone(rows, columns):
    return torch.eye(rows * columns).double()


def in_rows(rows, columns):
    m, other, _, _ = places(rows, columns)
    return (m == other).double()


def in_columns(rows, columns):
    _, _, n, other = places(rows, columns)
    return (n == other).double()


def on_a_line(rows, columns):
    m, m2, n, n2 = places(rows, columns)
    return ((m // HEIGHT == m2 // HEIGHT) & (n // WIDTH == n2 // WIDTH)).double()


def of_a_converter(rows, columns):
    """Errors of A, half of the variance, meet WIDTH outputs of a row, those of B HEIGHT of a column."""
    m, m2, n, n2 = places(rows, columns)
    of_a = (m == m2) & (n // WIDTH == n2 // WIDTH)
    of_b = (n == n2) & (m // HEIGHT == m2 // HEIGHT)
    return 0.5 * of_a.double() + 0.5 * of_b.double()


def of_first_parts(rows, columns):
    m, m2, _, _ = places(rows, columns)
    return (m % HEIGHT == m2 % HEIGHT).double()


def of_second_parts(rows, columns):
    _, _, n, n2 = places(rows, columns)
    return (n % WIDTH == n2 % WIDTH).double()


def of_nodes(rows, columns):
    return of_first_parts(rows, columns) * of_second_parts(rows, columns)


def misread_moments():
    """Mean, variance, skewness and excess kurtosis of what misreading adds to a sum of zero, in steps."""
    whole, ways = RESIDUES.product, []
    for sigma in RESIDUES.sigmas:
        ways.append(
            [(step, ndtr((step + 0.5) / sigma) - ndtr((step - 0.5) / sigma)) for step in range(-3, 4)]
        )
    value, chance = [], []
    for steps in itertools.product(*ways):
        shift = sum(step * weight for (step, _), weight in zip(steps, RESIDUES.weights, strict=True))
        value.append(shift - whole * round(shift / whole))
        chance.append(math.prod(each for _, each in steps))
    value, chance = torch.tensor(value).double(), torch.tensor(chance).double()
    mean = (chance * value).sum()
    second, third, fourth = (((value - mean) ** order * chance).sum().item() for order in (2, 3, 4))
    return mean.item(), second, third / second**1.5, fourth / second**2 - 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """One kind of error, with the statistics that it must have."""

    changes: dict
    """Fields of an ideal record that bring it about."""
    variance: float
    """Of each output, in full-scale products squared."""
    correlation: Callable = alone
    """Of outputs of one product."""
    mean: float = 0.0
    """In full-scale products."""
    skewness: float = 0.0
    excess: float = 0.0
    """Excess kurtosis."""
    operands: Callable = ones
    """Makes both operands."""

    @property
    def spec(self):
        return dataclasses.replace(AnalogSpec.ideal(), analog_length=LENGTH, **self.changes)


V = 1e-3
PHOTONS = 4.0
"""In the one detector that full-scale operands light: N+ has the mean (2 n + 2 n) / (8 v)."""
SHOT = LENGTH / (2.0 * PHOTONS)
LINE = CommonNoise(variance=V, rows=HEIGHT, columns=WIDTH, length=1, holds_weights=False)
CONVERTER = CommonEncoding(rows=HEIGHT, columns=WIDTH, holds_weights=False)
CHANCE = {"rounding": Rounding.STOCHASTIC, "dac_bits": 4}
SPREAD = ABOVE * (1.0 - ABOVE)
ROUNDED = {
    "variance": (LENGTH - 1) * STEP**2 * SPREAD,
    "skewness": (1.0 - 2.0 * ABOVE) / math.sqrt(SPREAD * (LENGTH - 1)),
    "excess": (1.0 - 6.0 * SPREAD) / SPREAD / (LENGTH - 1),
}
"""A sum of Bernoulli numbers, up with the chance of the part above the lower code."""
MISREAD = misread_moments()
MANTISSA = 1.0 / 3.0
"""Step of three bits; sums of 16 products reach 144 of the 210 to either side that the moduli tell apart."""

PER_USE = {
    "thermal": Term(changes={"thermal_variance": V}, variance=V),
    "shot": Term(changes={"shot_variance": V}, variance=2 * LENGTH * V),
    "shot_counted": Term(
        changes={"shot_variance": SHOT, "shot": Shot.COUNTED},
        variance=2 * LENGTH * SHOT,
        skewness=PHOTONS**-0.5,
        excess=1.0 / PHOTONS,
    ),
    "laser": Term(changes={"rin_variance": V}, variance=LENGTH * V),
    "laser_common": Term(changes={"common": LINE}, variance=LENGTH * V, correlation=on_a_line),
    "encoding": Term(changes={"encoding_variance": V}, variance=2 * LENGTH * V),
    "encoding_common": Term(
        changes={"encoding_variance": V, "encoding": CONVERTER},
        variance=2 * LENGTH * V,
        correlation=of_a_converter,
    ),
    "missing_bits": Term(changes={"adc_enob_bits": 4.0}, variance=(2 * LENGTH / 2**4) ** 2 / 12),
    "rounded_first": Term(changes=CHANCE, correlation=in_rows, operands=first_between_codes, **ROUNDED),
    "misread": Term(
        changes={"scale": Scale.BLOCK, "dac_bits": 3, "residues": RESIDUES},
        mean=MISREAD[0] * MANTISSA**2,
        variance=MISREAD[1] * MANTISSA**4,
        skewness=MISREAD[2],
        excess=MISREAD[3],
        operands=alternating,
    ),
}
"""Drawn anew for every output's use."""
PER_LOAD = {
    "load": Term(changes={"load_variance": V}, variance=LENGTH * V, correlation=in_columns),
    "rounded_second": Term(changes=CHANCE, correlation=in_columns, operands=second_between_codes, **ROUNDED),
}
"""Drawn once for all rows that meet one load of the second operand."""


def chip(seed, **errors):
    return ChipErrors(seed=seed, rows=HEIGHT, columns=WIDTH, length=LENGTH, holds_weights=False, **errors)


PER_CHIP = {
    "repeated": Term(
        changes={"chip": chip(0, repeated_variance=V)}, variance=LENGTH * V, correlation=in_columns
    ),
    "first_gain": Term(
        changes={"chip": chip(0, first_gain=V)}, variance=LENGTH * V, correlation=of_first_parts
    ),
    "second_gain": Term(
        changes={"chip": chip(0, second_gain=V)}, variance=LENGTH * V, correlation=of_second_parts
    ),
    "output_gain": Term(
        changes={"chip": chip(0, output_gain=V)}, variance=LENGTH**2 * V, correlation=of_nodes
    ),
    "imbalance": Term(
        changes={"chip": chip(0, imbalance=V)},
        variance=(LENGTH / 4) ** 2 * V,
        correlation=of_nodes,
        operands=uneven,
    ),
}
"""Settled with the chip."""

"""Number formats of matrix engines: executed products, and their predicted signal-to-noise ratio.

Formats are executed in numpy, bit for bit as specified; `electronic.numerics` has the formats of training in
torch.

Shape suffixes: M rows of A, K summed, N columns of B.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import numpy as np

from simulator.amounts import Reals
from simulator.errors import Checked, ParameterError, Positive, nearest
from simulator.operands.statistics import (
    Codes,
    Element,
    OperandLaw,
    Operands,
    Precision,
    Scaled,
    blocks_of,
    mean_of,
    product_rounding,
    scaled_moments,
)
from simulator.operators import Phase
from simulator.tables import Table, read_table

ROUNDING = "rounding of operands"
RESULT = "rounding of the result"
"""Causes of noise."""
_PLACES = 32
"""Points per octave at which the error of floats is tabulated; a choice."""
_DEEPEST, _HIGHEST = -24, 4
"""Lowest and highest octave of elements, relative to their scale, that are counted; choices. Elements of
others have negligible power."""
_SMALLEST_SCALE = 2.0**-126
"""Least scale, so that rows of zeros stay zero."""
_E8M0_BIAS = 127
"""Exponent bias of the scale format E8M0."""


@functools.cache
def format_table() -> Table:
    """Return the table of number formats that ships with the package."""
    return read_table(Path(__file__).parent / "parameters" / "number_formats.csv")


@dataclass(frozen=True, kw_only=True)
class ElementFormat(Checked):
    """Format of one element: floating point, or integer if it has no exponent."""

    name: str
    """Name in the table."""
    exponent_bits: float
    """Bits of the exponent; 0 for integers."""
    mantissa_bits: float
    """Bits of the mantissa without sign and hidden bit."""
    largest: Positive
    """Largest number, dimensionless."""

    def rounded(self, x: Reals) -> Reals:
        """Return numbers rounded to the nearest of the format, ties to even, clipped at the largest."""
        step = np.ones_like(x)
        if self.exponent_bits:
            least = 2.0 - 2.0 ** (self.exponent_bits - 1.0)
            exponent = np.maximum(np.frexp(x)[1] - 1.0, least)
            step = np.exp2(exponent - self.mantissa_bits)
        rounded: Reals = np.clip(np.rint(x / step) * step, -self.largest, self.largest)
        return rounded

    @functools.cached_property
    def codes(self) -> Codes:
        """All magnitudes of the format, relative to the largest."""
        if not self.exponent_bits:
            return Codes(values=np.arange(self.largest + 1.0) / self.largest)
        least_exponent, mantissas = 2 - 2 ** (int(self.exponent_bits) - 1), int(2**self.mantissa_bits)
        fractions = np.arange(mantissas) / mantissas
        octaves = np.exp2(np.arange(least_exponent, math.floor(math.log2(self.largest)) + 1))
        subnormal = fractions * octaves[0]
        values = np.concatenate((subnormal, np.outer(octaves, 1.0 + fractions).ravel()))
        return Codes(values=values[values <= self.largest] / self.largest)

    def rounding(self, law: OperandLaw, length: int) -> float:
        """Return the noise-to-signal ratio of rounding elements of a distribution to floats without a scale.

        Notes
        -----
        The relative error of a float depends on the position of the element's scale within an octave. The
        range of the format is taken to suffice.
        """
        log_scales, power = law.scales(length)
        error = np.interp(log_scales % 1.0, *_errors_in_octave(law.element)) @ power
        return float(error) * 4.0**-self.mantissa_bits

    def rounding_at(self, deviation: float) -> float:
        """Return the noise-to-signal ratio of rounding Gaussian numbers of a standard deviation to floats."""
        error = np.interp(math.log2(deviation) % 1.0, *_errors_in_octave(Element.GAUSSIAN))
        return float(error) * 4.0**-self.mantissa_bits


@functools.cache
def _errors_in_octave(shape: Element) -> tuple[Reals, Reals]:
    """Return the square error of floats over the elements' mean square, by the scale of the elements.

    The scale is 2^x with x from 0 to 1, as a power of two changes nothing. Returns x and the errors, shape
    [`_PLACES` + 1] each. The errors are those of a mantissa of no bits; each bit divides them by four.

    Notes
    -----
    Within an octave floats are spaced by d and elements have a mean square error of d^2/12, so that only
    the probability of each octave matters.
    """
    octaves, places = np.arange(_DEEPEST, _HIGHEST), np.arange(_PLACES + 1)
    edges = np.arange((_DEEPEST - 1) * _PLACES, _HIGHEST * _PLACES + 1)
    below = np.array([shape.below(2.0 ** (edge / _PLACES)) for edge in edges])
    starts = (octaves[:, None] - _DEEPEST + 1) * _PLACES - places
    error = 4.0**octaves / 12.0 @ (below[starts + _PLACES] - below[starts])
    return places / _PLACES, error / (4.0 ** (places / _PLACES) * shape.mean_square)


class Shared(StrEnum):
    """Elements of an operand that share a scale."""

    NOTHING = "nothing"
    """No scale."""
    TENSOR = "tensor"
    ROW = "row"
    """A row of A, or a column of B."""
    BLOCK = "block"
    """A block of neighbours along the sum."""


class ScaleRule(StrEnum):
    """Number format of scales."""

    ANY = "any"
    """Float32; the largest element becomes the largest number of the element format."""
    POWER_OF_TWO = "power of two"
    """E8M0, rounded up, so that no element is clipped."""
    E4M3 = "e4m3"
    """E4M3 times a float32 number of the tensor, which makes the largest scale 448."""


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """Format of both operands of a product and of its result; sums are exact, as float32 nearly is."""

    name: str
    """Name."""
    element: ElementFormat
    """Format of weights and activations."""
    gradient: ElementFormat
    """Format of gradients."""
    shared: Shared
    """Elements that share a scale."""
    block: int = 0
    """Elements of a block along the sum, if blocks share a scale."""
    square_weights: bool = False
    """Whether blocks of weights are square: `block` columns of B share a scale, too, in the products with a
    weight."""
    rule: ScaleRule = ScaleRule.ANY
    """Number format of scales."""
    result: str = "bfloat16"
    """Name of the element format of the result."""

    @property
    def narrow(self) -> bool:
        """Whether an element takes one byte or less."""
        return self.element.exponent_bits + self.element.mantissa_bits < 8

    def product(self, a_MK: Reals, b_KN: Reals, phase: Phase = Phase.FORWARD) -> Reals:
        """Return a product executed in this format, float64 of shape [M, N].

        Parameters
        ----------
        a_MK, b_KN : numpy.ndarray
            Operands, shapes [M, K] and [K, N].
        phase : Phase
            Phase, by which A (gradient of the input) or B (gradient of the weight) is a gradient.
        """
        first, second = self._elements(phase)
        a = self._rounded(np.asarray(a_MK, dtype=np.float64), first, 1)
        weights = self.square_weights and phase is not Phase.GRAD_WEIGHT
        b = self._rounded(np.asarray(b_KN, dtype=np.float64).T, second, self.block if weights else 1)
        return element_format(self.result).rounded(a @ b.T)

    def _elements(self, phase: Phase) -> tuple[ElementFormat, ElementFormat]:
        """Return the formats of the elements of A and of B."""
        a = self.gradient if phase is Phase.GRAD_INPUT else self.element
        return a, self.gradient if phase is Phase.GRAD_WEIGHT else self.element

    def _rounded(self, x: Reals, element: ElementFormat, lines: int) -> Reals:
        """Return an operand, shape [rows, K], rounded; blocks that share a scale are `lines` rows high."""
        if self.shared is Shared.NOTHING:
            return element.rounded(x)
        size = np.abs(x)
        if self.shared is Shared.TENSOR:
            scale = size.max(keepdims=True)
        elif self.shared is Shared.ROW:
            scale = size.max(1, keepdims=True)
        else:
            scale = _block_maxima(size, lines, self.block)
        rule = self.full_scale(element, float(size.max()))
        scale = np.maximum(scale if rule is None else rule(scale), _SMALLEST_SCALE)
        return element.rounded(x / scale * element.largest) * (scale / element.largest)

    def full_scale(self, element: ElementFormat, of_tensor: float) -> FullScale | None:
        """Return the rounding of full scales, given a tensor's largest magnitude; None for float32 scales."""
        if self.rule is ScaleRule.ANY:
            return None
        return FullScale(rule=self.rule, element=element, of_tensor=of_tensor)

    def predicted(
        self,
        operands: Operands,
        length: int,
        *,
        rows: int = 128,
        columns: int = 128,
        phase: Phase = Phase.FORWARD,
    ) -> Precision:
        """Return the predicted precision of products in this format.

        Parameters
        ----------
        operands : Operands
            Statistics of A and B.
        length : int
            Length of the sum, K.
        rows, columns : int
            M and N, which matter if rows share a scale.
        phase : Phase
            Phase, by which an operand is a gradient.

        Raises
        ------
        ParameterError
            If a size is below 1.
        """
        of_a, of_b = self.operand_rounding(operands, length, rows=rows, columns=columns, phase=phase)
        squares = operands.a.mean_square(length) * operands.b.mean_square(length)
        result = math.sqrt(length * squares * operands.coherence)
        noise = {
            ROUNDING: product_rounding(of_a, of_b) / operands.coherence,
            RESULT: element_format(self.result).rounding_at(result),
        }
        return Precision(noise={cause: ratio for cause, ratio in noise.items() if ratio > 0.0})

    def operand_rounding(
        self, operands: Operands, length: int, *, rows: int, columns: int, phase: Phase
    ) -> tuple[float, float]:
        """Return the noise-to-signal ratios of rounding A and B; parameters as in `predicted`."""
        if min(length, rows, columns) < 1:
            msg = f"a product needs at least one row, product and column; got {rows}, {length} and {columns}"
            raise ParameterError(msg)
        first, second = self._elements(phase)
        if self.shared is Shared.NOTHING:
            return first.rounding(operands.a, length), second.rounding(operands.b, length)
        weights = self.square_weights and phase is not Phase.GRAD_WEIGHT
        of_a = self._moments(operands.a, length, rows, first, 1).rounding
        of_b = self._moments(operands.b, length, columns, second, self.block if weights else 1).rounding
        return of_a, of_b

    def _moments(self, law: OperandLaw, length: int, rows: int, element: ElementFormat, lines: int) -> Scaled:
        """Return the moments of an operand of `rows` rows; blocks with one scale are `lines` rows high."""
        if self.shared is Shared.ROW:
            return scaled_moments(law, length, element.codes)
        if self.shared is Shared.TENSOR and not element.exponent_bits:
            return scaled_moments(law, length, element.codes, rows=rows)
        whole, outlier_count = law.without_rows(), rows * law.outliers(length)
        if self.shared is Shared.TENSOR:
            # Floats are as precise at any full scale, so that rows need not be told apart.
            return scaled_moments(whole, length * rows, element.codes, outliers=outlier_count)
        of_tensor = 0.0
        if self.rule is ScaleRule.E4M3:
            tensor = scaled_moments(whole, length * rows, None, outliers=outlier_count)
            of_tensor = math.sqrt(tensor.scale_square)
        rule = self.full_scale(element, of_tensor)
        height = min(lines, rows)
        parts = []
        for count, width, outliers in blocks_of(law, length, self.block):
            block_law = whole if height > 1 else law
            moments = scaled_moments(
                block_law, width * height, element.codes, outliers=outliers * height, full_scale=rule
            )
            parts.append((count * width, moments))
        return mean_of(parts)


def _block_maxima(size: Reals, lines: int, block: int) -> Reals:
    """Return the largest magnitude in the block of each element, in the shape of `size`.

    A block is `lines` rows high and `block` elements wide.
    """
    rows, length = size.shape
    padded = np.pad(size, ((0, -rows % lines), (0, -length % block)))
    tiles = padded.reshape(padded.shape[0] // lines, lines, padded.shape[1] // block, block)
    largest = tiles.max((1, 3), keepdims=True)
    maxima: Reals = np.broadcast_to(largest, tiles.shape).reshape(padded.shape)[:rows, :length]
    return maxima


@dataclass(frozen=True, kw_only=True)
class FullScale:
    """Full scale of a block, the magnitude of its largest code, as a function of its largest magnitude."""

    rule: ScaleRule
    """Number format of scales."""
    element: ElementFormat
    """Format of an element."""
    of_tensor: float
    """Largest magnitude of the tensor."""

    @property
    def jumps(self) -> Reals:
        """Magnitudes of the largest element at which the full scale, or that element's code, jumps."""
        if self.rule is ScaleRule.E4M3:  # the largest element is always at the largest code
            return element_format("e4m3").codes.middles * self.of_tensor
        upper = self.element.codes.middles
        within_octave = self.element.largest * np.append(upper[upper > 0.5], 1.0)
        return np.outer(np.exp2(np.arange(-_E8M0_BIAS, _E8M0_BIAS + 1.0)), within_octave).ravel()

    def __call__(self, largest: Reals) -> Reals:
        """Return the full scale of each largest magnitude, in the same shape."""
        top, safe = self.element.largest, np.maximum(largest, _SMALLEST_SCALE)
        if self.rule is ScaleRule.POWER_OF_TWO:
            powers: Reals = np.exp2(np.ceil(np.log2(safe / top))) * top
            return powers
        scales = element_format("e4m3")
        largest_scale = np.maximum(safe, self.of_tensor)  # no block is larger than its tensor
        unit = largest_scale / (top * scales.largest)
        return scales.rounded(safe / top / unit) * unit * top


@functools.cache
def element_format(name: str) -> ElementFormat:
    """Return the format of an element by its name in the table."""
    return format_table().build(ElementFormat, name)


def _format(
    name: str, element: str, shared: Shared, gradient: str | None = None, result: str = "bfloat16"
) -> NumberFormat:
    """Return a format with float32 scales, or none, from names of element formats in the table."""
    return NumberFormat(
        name=name,
        element=element_format(element),
        gradient=element_format(gradient or element),
        shared=shared,
        result=result,
    )


def _in_blocks(name: str, element: str, rule: ScaleRule, *, square_weights: bool = False) -> NumberFormat:
    """Return a format with a scale per block, whose length is in the table."""
    return NumberFormat(
        name=name,
        element=element_format(element),
        gradient=element_format(element),
        shared=Shared.BLOCK,
        block=next(int(row.value) for row in format_table().of(name) if row.parameter == "block"),
        square_weights=square_weights,
        rule=rule,
    )


FORMATS: Mapping[str, NumberFormat] = MappingProxyType(
    {
        number_format.name: number_format
        for number_format in (
            _format("fp32", "float32", Shared.NOTHING, result="float32"),
            _format("tf32", "tf32", Shared.NOTHING, result="float32"),
            _format("fp16", "float16", Shared.NOTHING, result="float16"),
            _format("bf16", "bfloat16", Shared.NOTHING),
            _format("fp8", "e4m3", Shared.TENSOR),
            _format("fp8_hybrid", "e4m3", Shared.TENSOR, "e5m2"),
            _in_blocks("fp8_block", "e4m3", ScaleRule.ANY, square_weights=True),
            _format("int8", "int8", Shared.ROW),
            _format("int8_tensor", "int8", Shared.TENSOR),
            _in_blocks("mxfp8", "e4m3", ScaleRule.POWER_OF_TWO),
            _in_blocks("nvfp4", "e2m1", ScaleRule.E4M3),
            _in_blocks("nvfp4_square", "e2m1", ScaleRule.E4M3, square_weights=True),
        )
    }
)
"""Number formats by name. Of equally fast recipes the more precise one has the plain name: fp8 is E4M3 in all
products, fp8_hybrid has E5M2 for gradients (Micikevicius et al., section 3); nvfp4 scales weights in rows
(MLPerf's 405B), nvfp4_square in squares, with the same numbers forward and backward (arXiv:2509.25149)."""


def format_named(name: str) -> NumberFormat:
    """Return a number format by its name.

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    if name not in FORMATS:
        msg = f"no number format '{name}'; {nearest(name, FORMATS, noun='format')}"
        raise ParameterError(msg)
    return FORMATS[name]

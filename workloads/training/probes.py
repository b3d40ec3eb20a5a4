"""Probes of a model's products: noise of a set strength, gains, and errors measured against exact products.

A product's noise-to-signal ratio (NSR) is the mean square of its error over that of its exact result. Errors
are told apart by how many outputs share one draw, which decides how a model feels them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from simulator.errors import ParameterError, WorkloadError, check_range
from simulator.interfaces import Numerics
from simulator.keys import mix_key
from workloads.training.gpt import (
    Corpus,
    Gpt,
    GptConfig,
    ProductName,
    Products,
    TrainingConfig,
    validation_batches,
)


class ErrorClass(StrEnum):
    """Class of an error of C = A B, by how many outputs share one draw.

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


@runtime_checkable
class SetsOperands(Protocol):
    """Numerics that tells what became of its operands."""

    def set_operands(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as they were multiplied for this key."""
        ...


_BINS, _MIDDLE, _AN_OCTAVE = 128, 80, 4.0
"""Bins of `Transfer`, the one that begins where an output is its full scale, and bins of an octave."""


class Scaled(NamedTuple):
    """Operands as a core sets them, and the full scales on which it does."""

    a_BMK: torch.Tensor
    """First operand: without what is multiplied electronically, rotated; L of its K are left."""
    b_BKN: torch.Tensor
    """Second operand."""
    a_scale: torch.Tensor
    """Full scale of each element of A, to be expanded to its shape."""
    b_scale: torch.Tensor
    """Full scale of each element of B."""

    @classmethod
    def by_row(cls, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> Scaled:
        """Return operands as they stand, each row of A and each column of B on its largest element."""
        return cls(a_BMK, b_BKN, a_BMK.abs().amax(2, keepdim=True), b_BKN.abs().amax(1, keepdim=True))

    @property
    def outputs(self) -> torch.Tensor:
        """Full scales of outputs, over samples with scales of their own their root mean square, [B, M, N]."""
        if self.a_scale.shape[2] == 1 and self.b_scale.shape[1] == 1:
            return self.a_scale * self.b_scale
        squares = (
            x.expand_as(of).square() for x, of in ((self.a_scale, self.a_BMK), (self.b_scale, self.b_BKN))
        )
        return torch.bmm(*squares).div_(self.a_BMK.shape[2]).sqrt_()

    def noise(self, error_class: ErrorClass, generator: torch.Generator) -> torch.Tensor:
        """Return what Gaussian noise in full scales makes of the product, shape [B, M, N]."""
        of = {ErrorClass.FIRST: self.a_BMK, ErrorClass.SECOND: self.b_BKN}.get(error_class)
        if of is None:
            scale_BMN = self.outputs
            return torch.empty_like(scale_BMN).normal_(generator=generator).mul_(scale_BMN)
        noise = torch.empty_like(of).normal_(generator=generator)
        if error_class is ErrorClass.FIRST:
            return torch.bmm(noise.mul_(self.a_scale), self.b_BKN)
        return torch.bmm(self.a_BMK, noise.mul_(self.b_scale))


@runtime_checkable
class ScalesOperands(Protocol):
    """Numerics that tells what of its operands it sets, and on which full scales."""

    def entering(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands behind all that is done to them electronically."""
        ...

    def full_scales(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the full scale of each element of such operands, to be expanded to their shapes."""
        ...


def scaling_of(numerics: Numerics) -> Scaling:
    """Return how numerics scales operands: by row, unless it tells otherwise."""
    if not isinstance(numerics, ScalesOperands):
        return Scaled.by_row
    told: ScalesOperands = numerics

    def scaled(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> Scaled:
        pair = told.entering(a_BMK, b_BKN)
        return Scaled(*pair, *told.full_scales(*pair))

    return scaled


Scaling = Callable[[torch.Tensor, torch.Tensor], Scaled]
"""Operands as a core sets them."""


@dataclass(eq=False)
class Transfer:
    """Mean error of a product by the size of its exact output: what clipping and saturation do. Grows.

    Notes
    -----
    A receiver's range is a fixed share of the core's own full scale, behind its rotation, and it reads no
    product that is made electronically: so outputs are told apart by the size of what is in light over that
    scale, in bins of a quarter of an octave. Errors that are no function of the output average away.
    """

    along: torch.Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """Sum of error times full scale, signed as the output, by bin."""
    scale: torch.Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """Sum of squared full scales by bin."""
    power: float = 0.0
    """Sum of squared exact outputs."""

    def read(self, error_BMN: torch.Tensor, exact_BMN: torch.Tensor, scaled: Scaled) -> None:
        """Note the errors of a product."""
        light_BMN, scale_BMN = torch.bmm(scaled.a_BMK, scaled.b_BKN), scaled.outputs
        bins = _bins(light_BMN, scale_BMN).flatten()
        along = (error_BMN * light_BMN.sign() * scale_BMN).double().flatten()
        self.along += torch.bincount(bins, along, _BINS).cpu()
        self.scale += torch.bincount(bins, scale_BMN.square().double().flatten(), _BINS).cpu()
        self.power += float(exact_BMN.double().square().sum())

    def __add__(self, other: Transfer) -> Transfer:
        return Transfer(self.along + other.along, self.scale + other.scale, self.power + other.power)

    @property
    def mean(self) -> torch.Tensor:
        """Mean error over full scale by bin, signed as the output; zero where there was none."""
        return torch.where(self.scale > 0.0, self.along / self.scale.clamp_min(1e-300), 0.0)

    @property
    def explained(self) -> float:
        """Mean square of the error that it tells, over that of exact outputs."""
        return float((self.mean * self.along).sum()) / self.power if self.power > 0.0 else 0.0

    def of(self, scaled: Scaled) -> torch.Tensor:
        """Return the mean error of outputs, shape [B, M, N]."""
        light_BMN, scale_BMN = torch.bmm(scaled.a_BMK, scaled.b_BKN), scaled.outputs
        mean = self.mean.to(light_BMN)[_bins(light_BMN, scale_BMN)]
        return mean * light_BMN.sign() * scale_BMN


def _bins(exact_BMN: torch.Tensor, scale_BMN: torch.Tensor) -> torch.Tensor:
    """Return the bin of each output."""
    size = exact_BMN.abs() / scale_BMN.clamp_min(torch.finfo(scale_BMN.dtype).tiny)
    return (_AN_OCTAVE * size.clamp_min(1e-12).log2() + _MIDDLE).floor().long().clamp_(0, _BINS - 1)


@dataclass(eq=False)
class Meter:
    """Sums of a core's errors, over all products that it has seen. Grows as it measures."""

    transfer: Transfer = field(default_factory=Transfer)
    """Mean error by the size of the output."""
    ratios: dict[ErrorClass, list[float]] = field(default_factory=lambda: {one: [] for one in ErrorClass})
    """NSR of each product by class, its gain taken out."""
    gains: list[float] = field(default_factory=list)
    """Mean gain of each product: its projection on the exact result."""

    @property
    def nsr(self) -> dict[ErrorClass, float]:
        """Mean noise-to-signal ratio by class; none where nothing was multiplied."""
        return {one: math.fsum(values) / max(1, len(values)) for one, values in self.ratios.items()}

    @property
    def gain(self) -> float:
        """Mean gain; one without systematic error."""
        return math.fsum(self.gains) / len(self.gains) if self.gains else 1.0

    def read(self, error_class: ErrorClass, error: torch.Tensor, exact: torch.Tensor) -> float:
        """Note an error's NSR and return its gain."""
        power = exact.square().sum()
        gain = float((error * exact).sum() / power)
        self.ratios[error_class].append(float((error - gain * exact).square().sum() / power))
        return gain


@dataclass(frozen=True, eq=False)
class Error:
    """Error of a core in one product."""

    gain: float
    """The part along the exact result, relative to it."""
    rest_BMN: torch.Tensor
    """The rest."""

    @classmethod
    def of(cls, error_BMN: torch.Tensor, exact_BMN: torch.Tensor) -> Error:
        """Return an error in these parts."""
        power = float(exact_BMN.square().sum())
        gain = float((error_BMN * exact_BMN).sum()) / power if power > 0.0 else 0.0
        return cls(gain, error_BMN - gain * exact_BMN)


@dataclass(frozen=True, eq=False)
class MeasuredProducts:
    """A core's products, each compared with the exact one, and its errors told apart by class.

    Notes
    -----
    With the operands A + a and B + b that the core has set, its error is ``a B`` (first operand), ``A b``
    (second operand) and the rest (outputs), which holds ``a b`` too. Numerics that does not tell its
    operands has errors of the outputs alone.
    """

    numerics: Numerics
    """The core's."""
    meter: Meter = field(default_factory=Meter)
    """Where the comparison is written."""
    errors: dict[int, Error] = field(default_factory=dict)
    """The error of every product that was run, by its key; for the mirror image. Grows."""
    metered: bool = True
    """Whether errors are told apart, or only kept."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the core's product, shape [B, M, N]."""
        exact_BMN, c_BMN = torch.bmm(a_BMK, b_BKN), self.numerics.matmul(a_BMK, b_BKN, key)
        error_BMN = c_BMN - exact_BMN
        self.errors[key] = Error.of(error_BMN, exact_BMN)
        if self.metered and bool(exact_BMN.any()):
            self._measure(a_BMK, b_BKN, key, exact_BMN, error_BMN)
        return c_BMN

    def _measure(
        self,
        a_BMK: torch.Tensor,
        b_BKN: torch.Tensor,
        key: int,
        exact_BMN: torch.Tensor,
        error_BMN: torch.Tensor,
    ) -> None:
        gain = 1.0
        self.meter.transfer.read(error_BMN, exact_BMN, scaling_of(self.numerics)(a_BMK, b_BKN))
        if isinstance(self.numerics, SetsOperands):
            set_a, set_b = self.numerics.set_operands(a_BMK, b_BKN, key)
            first, second = torch.bmm(set_a - a_BMK, b_BKN), torch.bmm(a_BMK, set_b - b_BKN)
            gain += self.meter.read(ErrorClass.FIRST, first, exact_BMN)
            gain += self.meter.read(ErrorClass.SECOND, second, exact_BMN)
            error_BMN = error_BMN - first - second
        gain += self.meter.read(ErrorClass.OUTPUT, error_BMN, exact_BMN)
        self.meter.gains.append(gain)


@dataclass(frozen=True, eq=False)
class MirroredProducts:
    """Exact products less the errors that a core has made in the same products.

    Notes
    -----
    Run anew on operands that upstream errors of the other sign have moved, a core that rounds would round
    otherwise: its errors would be other draws, and what is odd in them would not cancel. So the very errors
    are kept. A gain is applied to the operands as they now are, so that gains of products in a row multiply.
    """

    errors: Mapping[int, Error]
    """By key, as of `MeasuredProducts`."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the mirrored product, shape [B, M, N].

        Raises
        ------
        WorkloadError
            If the core has not run the product with this key.
        """
        error = self.errors.get(key)
        if error is None:
            msg = f"no error is kept of the product with key {key}; run the core's own products first"
            raise WorkloadError(msg)
        return torch.bmm(a_BMK, b_BKN).mul_(1.0 - error.gain).sub_(error.rest_BMN)


@dataclass(frozen=True, eq=False)
class RecordedProducts:
    """Exact products whose operands are kept."""

    rows: int
    """Rows of a single matrix that are kept at most."""
    operands: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Both operands of every product that was run. Grows."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]."""
        del key
        kept = a_BMK[:, : self.rows] if len(a_BMK) == 1 else a_BMK
        self.operands.append((kept.clone(), b_BKN.clone()))
        return torch.bmm(a_BMK, b_BKN)


@dataclass(frozen=True)
class ExactProducts:
    """Products as torch computes them in the operands' own precision; the reference of every comparison."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]; nothing is random."""
        del key
        return torch.bmm(a_BMK, b_BKN)


EXACT_PRODUCTS = Products.same(ExactProducts())
"""Every product exact."""


@dataclass(frozen=True, kw_only=True)
class MisreadProducts:
    """Exact products of which a few samples are misread: seldom, and far off.

    Notes
    -----
    A sample's sum is a whole number that is told from its remainders. One that is misread shifts it, modulo
    the range: with shifts of nearly half the range all but small sums come out far off with the other sign.
    What that adds to an output has the scales of the sample's two blocks.
    """

    length: int
    """Products in a sample, hence elements of a block, which has a scale of its own."""
    mantissa: int
    """Largest code of an operand."""
    numbers: int
    """Whole numbers that the remainders tell apart."""
    shifts: tuple[float, ...]
    """Sizes of shifts, in steps of the whole number; either sign is as likely."""
    chances: tuple[float, ...]
    """How likely a sample is shifted so, by size."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]; its operands are not rounded."""
        c_BMN = torch.bmm(a_BMK, b_BKN)
        generator = torch.Generator(c_BMN.device).manual_seed(key % 2**63)
        rows, columns, short = a_BMK.shape[1], b_BKN.shape[2], -a_BMK.shape[2] % self.length
        a_BMTW = torch.nn.functional.pad(a_BMK, (0, short)).unflatten(2, (-1, self.length))
        b_BNTW = torch.nn.functional.pad(b_BKN.mT, (0, short)).unflatten(2, (-1, self.length))
        samples = c_BMN.numel() * a_BMTW.shape[2]
        rate = torch.full((), samples * math.fsum(self.chances), device=c_BMN.device)
        count = int(torch.poisson(rate, generator=generator))
        if count == 0:
            return c_BMN
        place = torch.randint(samples, (count,), generator=generator, device=c_BMN.device)
        output, sample = place // a_BMTW.shape[2], place % a_BMTW.shape[2]
        batch, row, column = output // (rows * columns), output // columns % rows, output % columns
        a, b = a_BMTW[batch, row, sample].double(), b_BNTW[batch, column, sample].double()
        step = a.abs().amax(1) * b.abs().amax(1) / self.mantissa**2
        exact = (a * b).sum(1) / step.clamp_min(torch.finfo(step.dtype).tiny)
        chosen = torch.multinomial(
            torch.tensor(self.chances, device=c_BMN.device), count, replacement=True, generator=generator
        )
        sign = 2 * torch.randint(2, (count,), generator=generator, device=c_BMN.device) - 1
        found = exact + sign * torch.tensor(self.shifts, dtype=step.dtype, device=c_BMN.device)[chosen]
        found -= (found / self.numbers).round() * self.numbers
        return c_BMN.view(-1).index_add_(0, output, ((found - exact) * step).to(c_BMN.dtype)).view_as(c_BMN)


@dataclass(frozen=True)
class GaussianProducts:
    """Exact products plus Gaussian noise, a set share of each result's mean square.

    Notes
    -----
    Uneven, the deviation of an output goes with the largest element of its row of A and of its column of B,
    as that of receiver and converter noise does where every row and column has a full scale of its own.
    """

    nsr: float
    """Noise-to-signal ratio, dimensionless power ratio."""
    sign: int = 1
    """1, or -1 for the mirror image of the same draws."""
    uneven: bool = False
    """Whether the noise follows the full scales of rows and columns."""

    def __post_init__(self) -> None:
        check_range(self, "nsr")

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        c_BMN = torch.bmm(a_BMK, b_BKN)
        generator = torch.Generator(c_BMN.device).manual_seed(key % 2**63)
        if self.uneven:
            error_BMN = Scaled.by_row(a_BMK, b_BKN).noise(ErrorClass.OUTPUT, generator)
        else:
            error_BMN = torch.empty_like(c_BMN).normal_(generator=generator)
        return _with_error(c_BMN, error_BMN, self.nsr, self.sign)


@dataclass(frozen=True)
class OperandProducts:
    """Exact products plus what Gaussian noise on one operand makes of them, a set share of their mean square.

    Notes
    -----
    The deviation of an element goes with the largest of its row of A, or of its column of B, its full scale
    in cores that scale by row. Draws are anew for every call, hence for every batch of windows.
    """

    nsr: float
    """Noise-to-signal ratio of the result, dimensionless power ratio."""
    operand: ErrorClass
    """First or second."""
    sign: int = 1
    """1, or -1 for the mirror image of the same draws."""

    def __post_init__(self) -> None:
        check_range(self, "nsr")
        if self.operand is ErrorClass.OUTPUT:
            msg = "OperandProducts: errors of the class 'output' are on no operand; take GaussianProducts"
            raise ParameterError(msg)

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        generator = torch.Generator(a_BMK.device).manual_seed(key % 2**63)
        error_BMN = Scaled.by_row(a_BMK, b_BKN).noise(self.operand, generator)
        return _with_error(torch.bmm(a_BMK, b_BKN), error_BMN, self.nsr, self.sign)


_POOL = 2**22
"""Numbers that draws are cut from, at least; twice as many as the largest draw has."""


@functools.cache
def _pool(seed: int, size: int) -> torch.Tensor:
    """Return so many Gaussian numbers, [P]."""
    return torch.randn(size, generator=torch.Generator("cpu").manual_seed(mix_key(seed)))


@dataclass(frozen=True, kw_only=True)
class PooledNoise:
    """Exact products plus Gaussian noise cut from a pool, a set share of each result's mean square.

    Notes
    -----
    As `GaussianProducts`, at a fifth of its cost: a draw is a stretch of four million numbers that begins
    where its key says, so that two draws may overlap, shifted.
    """

    nsr: float
    """Noise-to-signal ratio, dimensionless power ratio."""
    seed: int = 0
    """Of the pool."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        c_BMN = torch.bmm(a_BMK, b_BKN)
        count = c_BMN.numel()
        size = max(_POOL, 1 << (2 * count).bit_length())
        begin = key % (size - count)
        scale = torch.linalg.vector_norm(c_BMN) * (self.nsr / count) ** 0.5
        return torch.addcmul(c_BMN, _pool(self.seed, size)[begin : begin + count].view_as(c_BMN), scale)


def _with_error(c_BMN: torch.Tensor, error_BMN: torch.Tensor, nsr: float, sign: int = 1) -> torch.Tensor:
    """Return a product, written to, plus errors of a set noise-to-signal ratio."""
    power = error_BMN.square().mean()
    if float(power) == 0.0:
        return c_BMN
    return c_BMN.addcmul_(error_BMN, (nsr * c_BMN.square().mean() / power).sqrt(), value=sign)


def probe(error_class: ErrorClass, nsr: float, sign: int, *, uneven: bool) -> Numerics:
    """Return exact products with errors of one class; the keyword is of `GaussianProducts`."""
    if error_class is ErrorClass.OUTPUT:
        return GaussianProducts(nsr, sign, uneven)
    return OperandProducts(nsr, error_class, sign)


@dataclass(frozen=True)
class ModelledErrors:
    """Exact products with errors of all classes: a core, told by their strength and its transfer."""

    nsr: Mapping[ErrorClass, float]
    """Noise-to-signal ratio by class, dimensionless power ratios."""
    transfer: Transfer = field(default_factory=Transfer)
    """Mean error by the size of the output; none if empty."""
    misread: MisreadProducts | None = None
    """Samples that are misread, in place of noise of outputs."""
    scaling: Scaling = Scaled.by_row
    """Full scales that noise and transfer go with."""

    @classmethod
    def of(
        cls,
        nsr: Mapping[ErrorClass, float],
        gain: float,
        transfer: Transfer,
        scaling: Scaling = Scaled.by_row,
    ) -> ModelledErrors:
        """Return the errors of a core as they were measured.

        Parameters
        ----------
        nsr : mapping of ErrorClass to float
            Noise to signal by class, its gain taken out, as of `Meter`.
        gain : float
            The gain.
        transfer : Transfer
            Mean errors, of which all but the gain are in the noise of outputs.
        scaling : Scaling
            The core's.
        """
        told = transfer.explained - (gain - 1.0) ** 2
        rest = max(0.0, nsr[ErrorClass.OUTPUT] - max(0.0, told))
        return cls({**nsr, ErrorClass.OUTPUT: rest}, transfer, scaling=scaling)

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product with its errors, shape [B, M, N]."""
        exact_BMN, scaled = torch.bmm(a_BMK, b_BKN), self.scaling(a_BMK, b_BKN)
        found = exact_BMN + self.transfer.of(scaled)
        total = math.fsum(self.nsr.values())
        for index, (error_class, nsr) in enumerate(self.nsr.items()):
            own_key = mix_key(key, index)
            if error_class is ErrorClass.OUTPUT and self.misread is not None:
                found += self.misread.matmul(a_BMK, b_BKN, own_key) - exact_BMN
            elif nsr > _LEAST_SHARE * total:
                generator = torch.Generator(exact_BMN.device).manual_seed(own_key % 2**63)
                error_BMN = scaled.noise(error_class, generator)
                found += _with_error(exact_BMN.clone(), error_BMN, nsr) - exact_BMN
        return found


_LEAST_SHARE = 1e-3
"""Share of a product's noise below which a class of errors is left out of `ModelledErrors`."""


@dataclass(frozen=True)
class RepeatedProducts:
    """The mean of several executions of each product, each with draws of its own."""

    numerics: Numerics
    """What executes them."""
    passes: int
    """How often."""

    def __post_init__(self) -> None:
        check_range(self, "passes", low=1)

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the mean product, shape [B, M, N]."""
        total = self.numerics.matmul(a_BMK, b_BKN, mix_key(key, 0))
        for index in range(1, self.passes):
            total = total + self.numerics.matmul(a_BMK, b_BKN, mix_key(key, index))
        return total / self.passes


def repeated(numerics: Numerics, passes: int) -> Numerics:
    """Return numerics that executes each product so many times; once is the numerics itself."""
    return numerics if passes == 1 else RepeatedProducts(numerics, passes)


def only(product: ProductName, numerics: Numerics) -> Products:
    """Return products of which one is not exact."""
    return _with({product: numerics})


def _with(chosen: Mapping[ProductName, Numerics]) -> Products:
    exact = EXACT_PRODUCTS.forward
    return Products(
        forward=exact,
        grad_input=exact,
        grad_weight=exact,
        exceptions={product.name.lower(): Products.same(one) for product, one in chosen.items()},
    )


Sites = dict[str, tuple[int, ProductName]]
"""Every product of a model by name, ``up.0`` or ``head``: its layer (the head's is behind all) and kind."""


def sites(config: GptConfig) -> Sites:
    """Return every product of a model, layer by layer."""
    inner = [product for product in ProductName if product is not ProductName.HEAD]
    found = {
        f"{product.name.lower()}.{layer}": (layer, product)
        for layer in range(config.layers)
        for product in inner
    }
    return found | {ProductName.HEAD.name.lower(): (config.layers, ProductName.HEAD)}


def place(model: Gpt, chosen: Mapping[str, Numerics]) -> None:
    """Run products at these sites by the given numerics and all others exactly."""
    known = sites(model.config)
    layers: list[dict[ProductName, Numerics]] = [{} for _ in range(model.config.layers + 1)]
    for name, numerics in chosen.items():
        layer, product = known[name]
        layers[layer][product] = numerics
    model.use_each([_with(one) for one in layers])


@dataclass(frozen=True, kw_only=True)
class _GainedProducts(Products):
    """Exact products times gains through which gradients of any order pass."""

    gains: Mapping[ProductName, torch.Tensor]
    """By product; dimensionless."""

    def run(
        self, product: ProductName, a_BMK: torch.Tensor, b_BKN: torch.Tensor, *, key: int, weight: bool
    ) -> torch.Tensor:
        """Return the scaled product, shape [B, M, N]."""
        del key, weight
        return torch.bmm(a_BMK, b_BKN) * self.gains[product]


@dataclass(frozen=True, kw_only=True)
class GainResponse:
    """Response of a clean model's loss to the gains of its products."""

    first: dict[str, float]
    """Derivative of the loss to the gain of a site, nats."""
    second: dict[str, dict[str, float]]
    """Second derivative to the gains of two sites, nats; a core's gains err alike, so that pairs count."""


def gain_response(model: Gpt, config: TrainingConfig, corpus: Corpus) -> GainResponse:
    """Return gradient and Hessian of the validation loss to the gain of each product, by differentiation."""
    known = sites(model.config)
    names = list(known)
    gradient, hessian = torch.zeros(len(names)), torch.zeros(len(names), len(names))
    for tokens_BT, targets_BT in validation_batches(model, config, corpus):
        share = len(tokens_BT) / config.validation_windows
        gains = torch.ones(len(names), requires_grad=True)
        layers: list[dict[ProductName, torch.Tensor]] = [{} for _ in range(model.config.layers + 1)]
        for gain, (layer, product) in zip(gains.unbind(), known.values(), strict=True):
            layers[layer][product] = gain
        exact = ExactProducts()
        model.use_each(
            [_GainedProducts(forward=exact, grad_input=exact, grad_weight=exact, gains=one) for one in layers]
        )
        (slope,) = torch.autograd.grad(model(tokens_BT, targets_BT), gains, create_graph=True)
        gradient += share * slope.detach()
        for index, one in enumerate(slope):
            (row,) = torch.autograd.grad(one, gains, retain_graph=index + 1 < len(names))
            hessian[index] += share * row
    return GainResponse(
        first=dict(zip(names, gradient.tolist(), strict=True)),
        second={
            name: dict(zip(names, row, strict=True))
            for name, row in zip(names, hessian.tolist(), strict=True)
        },
    )

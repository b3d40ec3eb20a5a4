"""Products with errors of known strength, and measurements of the errors of a core's products.

The noise-to-signal ratio (NSR) of a product is the mean square of its error over that of its exact result.
Errors have a class (`ErrorClass`): the outputs that share one draw, on which it depends how much loss they
cost a model.

`MeasuredProducts` runs a core beside exact products and measures its errors by class; `ModelledErrors` is a
core as such measurements describe it. `GaussianProducts` and `MisreadProducts` have one kind of error each,
`MirroredProducts` the errors of a run with the other sign. `place` puts numerics at single products of a
model.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from simulator.errors import WorkloadError, check_range
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
    """Class of an error of C = A B, by the outputs that share one draw.

    Notes
    -----
    The same NSR in another class costs a model another loss: attention averages errors that are drawn for
    every output, and does not average those that all rows share.
    """

    OUTPUT = "output"
    """Drawn for every output: receivers, converters behind them."""
    FIRST = "first operand"
    """Drawn for elements of A, so that all outputs of a row share it: encoding, rounding or loading of A."""
    SECOND = "second operand"
    """Drawn for elements of B, so that all rows share it: the error of a loaded weight while it is held."""


@runtime_checkable
class SetsOperands(Protocol):
    """Numerics that can return the operands as it has set them."""

    def set_operands(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as they were multiplied for this key."""
        ...


_BINS, _MIDDLE, _AN_OCTAVE = 128, 80, 4.0
"""Bins of `Transfer`, the one that begins where an output is its full scale, and bins of an octave."""


class Scaled(NamedTuple):
    """Operands as a core sets them, and their full scales."""

    a_BMK: torch.Tensor
    """First operand, after rotation and without the K elements that are multiplied electronically."""
    b_BKN: torch.Tensor
    """Second operand, likewise."""
    a_scale: torch.Tensor
    """Full scale of each element of A, to be expanded to its shape."""
    b_scale: torch.Tensor
    """Full scale of each element of B."""

    @classmethod
    def by_row(cls, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> Scaled:
        """Return unchanged operands; full scales are the largest of each row of A and each column of B."""
        return cls(a_BMK, b_BKN, a_BMK.abs().amax(2, keepdim=True), b_BKN.abs().amax(1, keepdim=True))

    @property
    def outputs(self) -> torch.Tensor:
        """Full scales of outputs, [B, M, N]; of samples with scales of their own the root mean square."""
        if self.a_scale.shape[2] == 1 and self.b_scale.shape[1] == 1:
            return self.a_scale * self.b_scale
        squares = (
            x.expand_as(of).square() for x, of in ((self.a_scale, self.a_BMK), (self.b_scale, self.b_BKN))
        )
        return torch.bmm(*squares).div_(self.a_BMK.shape[2]).sqrt_()

    def noise(self, error_class: ErrorClass, generator: torch.Generator) -> torch.Tensor:
        """Return the error of the product from Gaussian noise of one full scale, shape [B, M, N]."""
        operand = {ErrorClass.FIRST: self.a_BMK, ErrorClass.SECOND: self.b_BKN}.get(error_class)
        if operand is None:
            scale_BMN = self.outputs
            return torch.empty_like(scale_BMN).normal_(generator=generator).mul_(scale_BMN)
        noise = torch.empty_like(operand).normal_(generator=generator)
        if error_class is ErrorClass.FIRST:
            return torch.bmm(noise.mul_(self.a_scale), self.b_BKN)
        return torch.bmm(self.a_BMK, noise.mul_(self.b_scale))


@runtime_checkable
class ScalesOperands(Protocol):
    """Numerics that can return the operands that it multiplies in light, and their full scales."""

    def entering(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands after all electronic processing."""
        ...

    def full_scales(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the full scale of each element of such operands, to be expanded to their shapes."""
        ...


def scaling_of(numerics: Numerics) -> Scaling:
    """Return the scaling of a numerics: its own, or by row if it has none."""
    if not isinstance(numerics, ScalesOperands):
        return Scaled.by_row
    scaling: ScalesOperands = numerics

    def scaled(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> Scaled:
        pair = scaling.entering(a_BMK, b_BKN)
        return Scaled(*pair, *scaling.full_scales(*pair))

    return scaled


Scaling = Callable[[torch.Tensor, torch.Tensor], Scaled]
"""Gives operands as a core sets them."""


@dataclass(eq=False)
class Transfer:
    """Mean error of a product by the size of its exact output: clipping and saturation. `read` adds to it.

    Notes
    -----
    Outputs are binned by the size of their optical part over its full scale, in quarters of an octave, for
    the range of a receiver is a fixed share of the core's full scale, after rotation, and the electronic part
    does not pass it. Errors that are no function of the output average to zero.
    """

    along: torch.Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """Sum of error times full scale, signed as the output, by bin."""
    scale: torch.Tensor = field(default_factory=lambda: torch.zeros(_BINS, dtype=torch.float64))
    """Sum of squared full scales by bin."""
    power: float = 0.0
    """Sum of squared exact outputs."""

    def read(self, error_BMN: torch.Tensor, exact_BMN: torch.Tensor, scaled: Scaled) -> None:
        """Add the errors of a product."""
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
        """Mean square of the mean errors over that of exact outputs."""
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
    """Errors of a core over all products that were read."""

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
        """Add the NSR of an error and return its gain."""
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
        """Return an error split into these parts."""
        power = float(exact_BMN.square().sum())
        gain = float((error_BMN * exact_BMN).sum()) / power if power > 0.0 else 0.0
        return cls(gain, error_BMN - gain * exact_BMN)


@dataclass(frozen=True, eq=False)
class MeasuredProducts:
    """Products of a core, whose errors against exact products are measured by class.

    Notes
    -----
    With the operands A + a and B + b that the core has set, its error is ``a B`` (first operand), ``A b``
    (second operand) and the rest (outputs), in which ``a b`` is. Numerics that is no `SetsOperands` has
    errors of outputs only.
    """

    numerics: Numerics
    """Numerics of the core."""
    meter: Meter = field(default_factory=Meter)
    """Measurements, to which every product adds."""
    errors: dict[int, Error] = field(default_factory=dict)
    """Error of every product so far, by its key, for `MirroredProducts`."""
    metered: bool = True
    """Whether errors are measured, or only stored."""

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
        """Add the errors of a product to the meter."""
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
    """Exact products minus the errors of a core in the same products.

    Notes
    -----
    The mean of a run and its mirror image is free of effects that are odd in the errors. The errors are those
    of the first run: a core that rounds would make others on operands that have moved. A gain is applied to
    the present operands, so that gains of products in a row multiply.
    """

    errors: Mapping[int, Error]
    """Error of each product by its key (`MeasuredProducts.errors`)."""

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
    """Exact products whose operands are recorded."""

    rows: int
    """Most rows of a single matrix that are recorded."""
    operands: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Both operands of every product so far."""

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
    """Exact products with rare large errors: a misread remainder of a residue core.

    Notes
    -----
    The sum of a sample is a whole number that follows from its remainders. A misread remainder shifts the
    number, modulo the range: with shifts of nearly half the range all but small sums change their sign and
    are far off. The error of the output is the shift times the scales of the sample's two blocks.
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
    """Probability of each size of shift for a sample."""

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
    """Exact products plus the error from Gaussian noise of one class, of a set NSR.

    Notes
    -----
    The deviation of an operand's element is in proportion to the largest of its row of A, or of its column of
    B: its full scale in cores that scale by row. That of an output is the same for all, or if `uneven` in
    proportion to both, as that of receiver and converter noise is where every row and column has a full scale
    of its own. Every call, hence every batch of windows, has new draws.
    """

    nsr: float
    """Noise-to-signal ratio of the result, dimensionless power ratio."""
    sign: int = 1
    """1, or -1 for the same draws with the other sign."""
    uneven: bool = False
    """Whether noise of outputs follows the full scales of rows and columns."""
    error_class: ErrorClass = ErrorClass.OUTPUT
    """Outputs that share one draw: noise of outputs, or of an operand."""

    def __post_init__(self) -> None:
        check_range(self, "nsr")

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        c_BMN = torch.bmm(a_BMK, b_BKN)
        generator = torch.Generator(c_BMN.device).manual_seed(key % 2**63)
        if self.uneven or self.error_class is not ErrorClass.OUTPUT:
            error_BMN = Scaled.by_row(a_BMK, b_BKN).noise(self.error_class, generator)
        else:
            error_BMN = torch.empty_like(c_BMN).normal_(generator=generator)
        return _with_error(c_BMN, error_BMN, self.nsr, self.sign)


_POOL = 2**22
"""Least numbers in a pool; it has twice as many as the largest draw needs."""


@functools.cache
def _pool(seed: int, size: int) -> torch.Tensor:
    """Return a pool of Gaussian numbers, shape [size]."""
    return torch.randn(size, generator=torch.Generator("cpu").manual_seed(mix_key(seed)))


@dataclass(frozen=True, kw_only=True)
class PooledNoise:
    """Exact products plus Gaussian noise of a set NSR, cut from a pool of numbers.

    Notes
    -----
    As `GaussianProducts`, at a fifth of its cost: a draw is a stretch of a pool of four million numbers,
    which begins at a place that its key gives, so that two draws may overlap.
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
    """Add errors, scaled to a noise-to-signal ratio, to a product in place, and return it."""
    power = error_BMN.square().mean()
    if float(power) == 0.0:
        return c_BMN
    return c_BMN.addcmul_(error_BMN, (nsr * c_BMN.square().mean() / power).sqrt(), value=sign)


def probe(error_class: ErrorClass, nsr: float, sign: int, *, uneven: bool) -> Numerics:
    """Return exact products with errors of one class; `uneven` as in `GaussianProducts`."""
    return GaussianProducts(nsr, sign, uneven, error_class)


@dataclass(frozen=True)
class ModelledErrors:
    """Exact products with errors of all classes: a core as its measured NSR and transfer describe it."""

    nsr: Mapping[ErrorClass, float]
    """Noise-to-signal ratio by class, dimensionless power ratios."""
    transfer: Transfer = field(default_factory=Transfer)
    """Mean error by the size of the output; zero by default."""
    misread: MisreadProducts | None = None
    """Misread samples, in place of Gaussian errors of outputs."""
    scaling: Scaling = Scaled.by_row
    """Gives the full scales to which noise and transfer are in proportion."""

    @classmethod
    def of(
        cls,
        nsr: Mapping[ErrorClass, float],
        gain: float,
        transfer: Transfer,
        scaling: Scaling = Scaled.by_row,
    ) -> ModelledErrors:
        """Return the errors of a core from its measurements.

        Parameters
        ----------
        nsr : mapping of ErrorClass to float
            NSR by class without the gain (`Meter.nsr`). That of outputs has the mean errors of `transfer`,
            which are taken off it here.
        gain : float
            Mean gain (`Meter.gain`).
        transfer : Transfer
            Mean errors, gain included.
        scaling : Scaling
            Scaling of the core.
        """
        explained = transfer.explained - (gain - 1.0) ** 2
        rest = max(0.0, nsr[ErrorClass.OUTPUT] - max(0.0, explained))
        return cls({**nsr, ErrorClass.OUTPUT: rest}, transfer, scaling=scaling)

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product with its errors, shape [B, M, N]."""
        exact_BMN, scaled = torch.bmm(a_BMK, b_BKN), self.scaling(a_BMK, b_BKN)
        product_BMN = exact_BMN + self.transfer.of(scaled)
        total = math.fsum(self.nsr.values())
        for index, (error_class, nsr) in enumerate(self.nsr.items()):
            own_key = mix_key(key, index)
            if error_class is ErrorClass.OUTPUT and self.misread is not None:
                product_BMN += self.misread.matmul(a_BMK, b_BKN, own_key) - exact_BMN
            elif nsr > _LEAST_SHARE * total:
                generator = torch.Generator(exact_BMN.device).manual_seed(own_key % 2**63)
                error_BMN = scaled.noise(error_class, generator)
                product_BMN += _with_error(exact_BMN.clone(), error_BMN, nsr) - exact_BMN
        return product_BMN


_LEAST_SHARE = 1e-3
"""Share of the total NSR below which `ModelledErrors` leaves out a class of errors; a choice."""


@dataclass(frozen=True)
class RepeatedProducts:
    """The mean of several executions of each product, each with draws of its own."""

    numerics: Numerics
    """Numerics of one execution."""
    passes: int
    """Executions."""

    def __post_init__(self) -> None:
        check_range(self, "passes", low=1)

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the mean product, shape [B, M, N]."""
        total = self.numerics.matmul(a_BMK, b_BKN, mix_key(key, 0))
        for index in range(1, self.passes):
            total = total + self.numerics.matmul(a_BMK, b_BKN, mix_key(key, index))
        return total / self.passes


def repeated(numerics: Numerics, passes: int) -> Numerics:
    """Return numerics that averages `passes` executions of each product."""
    return numerics if passes == 1 else RepeatedProducts(numerics, passes)


def only(product: ProductName, numerics: Numerics) -> Products:
    """Return products of which one kind has the given numerics, and all others are exact."""
    return _with({product: numerics})


def _with(chosen: Mapping[ProductName, Numerics]) -> Products:
    """Return products of which some kinds have the given numerics, and all others are exact."""
    exact = EXACT_PRODUCTS.forward
    return Products(
        forward=exact,
        grad_input=exact,
        grad_weight=exact,
        exceptions={product.name.lower(): Products.same(one) for product, one in chosen.items()},
    )


Sites = dict[str, tuple[int, ProductName]]
"""Layer and kind of every product of a model, by name: ``up.0`` or ``head``, whose layer follows the last
one."""


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
    """Give the products of a model at some sites numerics, by name of the site, and make all others exact."""
    known = sites(model.config)
    layers: list[dict[ProductName, Numerics]] = [{} for _ in range(model.config.layers + 1)]
    for name, numerics in chosen.items():
        layer, product = known[name]
        layers[layer][product] = numerics
    model.use_each([_with(one) for one in layers])


@dataclass(frozen=True, kw_only=True)
class _GainedProducts(Products):
    """Exact products times gains, with gradients of any order to the gains."""

    gains: Mapping[ProductName, torch.Tensor]
    """Gain of each kind of product; dimensionless."""

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
    """Derivative of the loss to the gain of each site, nats."""
    second: dict[str, dict[str, float]]
    """Second derivative to the gains of each two sites, nats; pairs count, for the gains of a core err
    alike."""


def gain_response(model: Gpt, config: TrainingConfig, corpus: Corpus) -> GainResponse:
    """Return gradient and Hessian of the validation loss to the gains of all products, at gains of one."""
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
            [_GainedProducts(forward=exact, grad_input=exact, grad_weight=exact, gains=own) for own in layers]
        )
        (slope,) = torch.autograd.grad(model(tokens_BT, targets_BT), gains, create_graph=True)
        gradient += share * slope.detach()
        for index, derivative in enumerate(slope):
            (row,) = torch.autograd.grad(derivative, gains, retain_graph=index + 1 < len(names))
            hessian[index] += share * row
    return GainResponse(
        first=dict(zip(names, gradient.tolist(), strict=True)),
        second={
            name: dict(zip(names, row, strict=True))
            for name, row in zip(names, hessian.tolist(), strict=True)
        },
    )

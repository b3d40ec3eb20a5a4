"""Law of loss over size, tokens and noise: the sweep of trainings, the fit, and where it fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.study import Row

if TYPE_CHECKING:
    import torch

    from simulator.interfaces import Numerics
    from workloads.training.gpt import GptConfig, Products
    from workloads.training.noise_law import LawTraining

DECIBEL = 10.0
"""Decibels in a power ratio of ten."""


class NoiseKind(StrEnum):
    """Error of products in a run of the law."""

    EXACT = "exact"
    WHITE = "white"
    """Gaussian, a set share of each result's mean square."""
    NEAREST = "nearest"
    """Operands rounded to nearest, one scale per row and column."""
    STOCHASTIC = "stochastic"
    """The same, rounded stochastically."""
    FP8 = "fp8"
    """E4M3, gradients in E5M2, one scale per tensor."""
    NVFP4 = "nvfp4"
    """E2M1 in blocks of 16 with scales in E4M3, gradients rounded stochastically."""


class Where(StrEnum):
    """Products that err."""

    ALL = "all"
    BLOCKS = "blocks"
    """Those of blocks with weights, as in training in fp8 and nvfp4; attention and head are exact."""


@dataclass(frozen=True, kw_only=True)
class LawJob:
    """One run of the sweep."""

    width: int
    """Width of the model."""
    kind: NoiseKind = NoiseKind.EXACT
    """Error of its products."""
    level: float = 0.0
    """Signal to noise in dB of white noise; bits of rounding; else 0."""
    where: Where = Where.ALL
    """Products that err."""
    seed: int = 0
    """Of the run."""
    longest: float = math.inf
    """Most tokens a parameter, below those of its size."""

    @property
    def shape(self) -> GptConfig:
        """Shape of the model."""
        from workloads.training.gpt import GptConfig  # noqa: PLC0415 - torch, only to execute

        return GptConfig(layers=LAYERS, width=self.width, heads=max(2, self.width // 32), context=CONTEXT)

    @property
    def training(self) -> LawTraining:
        """Recipe of its training."""
        from workloads.training.noise_law import LawTraining  # noqa: PLC0415 - torch, only to execute

        ratios = tuple(one for one in SIZES[self.width] if one <= self.longest)
        return LawTraining(tokens_per_parameter=ratios, seed=self.seed)


LAYERS, CONTEXT = 2, 64
"""Layers and positions of all models of the sweep: sizes differ in width."""
SIZES: Mapping[int, tuple[float, ...]] = MappingProxyType(
    {24: (5.0, 10.0, 20.0, 40.0), 40: (5.0, 10.0, 20.0), 64: (5.0, 10.0, 20.0), 96: (5.0, 10.0)}
)
"""Widths, and tokens a parameter at which runs of each are judged; the widest is held out of the fit."""


@dataclass(frozen=True)
class RoundedNumerics:
    """Exact products of operands rounded to whole codes, one full scale per row of A and column of B."""

    bits: float
    """Bits of an operand, its sign included."""
    stochastic: bool
    """Whether rounding is stochastic."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]."""
        import torch  # noqa: PLC0415 - only to execute

        from workloads.training.noise_law import exact_product  # noqa: PLC0415 - torch

        generator = torch.Generator("cpu").manual_seed(key % 2**63)

        def rounded(x: torch.Tensor, dim: int) -> torch.Tensor:
            step = x.abs().amax(dim, keepdim=True).clamp_(min=1e-30) / (2.0 ** (self.bits - 1.0) - 1.0)
            codes = x / step
            if self.stochastic:
                return codes.add_(torch.rand(codes.shape, generator=generator)).floor_() * step
            return codes.round_() * step

        with torch.no_grad():
            return exact_product(rounded(a_BMK, 2), rounded(b_BKN, 1))


def products_of(job: LawJob) -> Products:
    """Return what executes the products of a run, forward and backward."""
    from electronic.numerics import Float8, Float8Numerics, Nvfp4Numerics  # noqa: PLC0415 - torch
    from workloads.training.gpt import Products  # noqa: PLC0415 - torch
    from workloads.training.noise_law import EXACT, PooledNoise  # noqa: PLC0415 - torch

    phases: tuple[Numerics, Numerics, Numerics]
    match job.kind:
        case NoiseKind.EXACT:
            phases = (EXACT,) * 3
        case NoiseKind.WHITE:
            phases = (PooledNoise(nsr=10.0 ** (-job.level / DECIBEL), seed=job.seed),) * 3
        case NoiseKind.NEAREST | NoiseKind.STOCHASTIC:
            phases = (RoundedNumerics(job.level, job.kind is NoiseKind.STOCHASTIC),) * 3
        case NoiseKind.FP8:
            phases = (
                Float8Numerics(),
                Float8Numerics(a_format=Float8.E5M2),
                Float8Numerics(b_format=Float8.E5M2),
            )
        case NoiseKind.NVFP4:
            phases = (
                Nvfp4Numerics(),
                Nvfp4Numerics(stochastic=(True, False)),
                Nvfp4Numerics(stochastic=(False, True)),
            )
    exact = Products.same(EXACT)
    exceptions = dict.fromkeys(("scores", "values", "head"), exact) if job.where is Where.BLOCKS else {}
    forward, grad_input, grad_weight = phases
    return Products(
        forward=forward, grad_input=grad_input, grad_weight=grad_weight, exceptions=exceptions
    )


def run_job(job: LawJob) -> list[Row]:
    """Train one run and return a row for each number of tokens and schedule."""
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.corpora import python_source  # noqa: PLC0415 - read in the worker
    from workloads.training.noise_law import parameters_in_products, train_points  # noqa: PLC0415 - torch

    torch.set_num_threads(1)
    points = train_points(job.training, job.shape, products_of(job), python_source())
    head: dict[str, Any] = {
        "width": job.width,
        "parameters": parameters_in_products(job.shape),
        "kind": str(job.kind),
        "level": job.level,
        "products": str(job.where),
        "seed": job.seed,
    }
    return [
        head
        | {
            "tokens": point.tokens,
            "tokens_per_parameter": point.tokens_per_parameter,
            "schedule": str(point.schedule),
            "loss": point.loss,
            "exact_loss": point.exact_loss,
        }
        for point in points
    ]

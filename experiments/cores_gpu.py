"""What GPUs take for the products on which photonic cores are compared, at every width of operands."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from electronic.gpu import Gpu, gpu_names, load_gpu
from experiments.core import INPUTS
from experiments.square_products import square_product
from heliograph.amounts import Reals
from heliograph.operators import Elementwise, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandFormat:
    """A width of floating-point operands."""

    name: str
    """What it is called in print."""
    significand_bits: float
    """Bits of the significand, the hidden one included."""
    element_bytes: int
    """Bytes of a stored element."""


FORMATS = (
    OperandFormat(name="8 bit", significand_bits=4.0, element_bytes=1),
    OperandFormat(name="16 bit", significand_bits=8.0, element_bytes=2),
    OperandFormat(name="32 bit", significand_bits=11.0, element_bytes=4),
)
"""E4M3 (Micikevicius et al., arXiv:2209.05433, table 1), bfloat16, and TF32, which is stored in 32 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuPrice:
    """Energy and time of a GPU at each reuse, with one width of operands."""

    gpu: str
    """The GPU."""
    format: str
    """Width of the operands."""
    significand_bits: float
    """Bits of their significand."""
    j_per_mac: Reals
    """Energy per multiply-accumulate at each reuse, idle power included."""
    s_per_mac: Reals
    """Time per multiply-accumulate at each reuse."""

    @property
    def name(self) -> str:
        """GPU and width."""
        return f"{self.gpu} {self.format}"


def storage_bytes(bits: float) -> int:
    """Return the bytes of a stored element that holds so many bits: those of the narrowest format.

    Parameters
    ----------
    bits : float
        Effective bits; more than any significand are stored in the widest.
    """
    return next(
        (one.element_bytes for one in FORMATS if one.significand_bits >= bits), FORMATS[-1].element_bytes
    )


def gpu_prices(reuse: Sequence[int]) -> tuple[GpuPrice, ...]:
    """Return every GPU of the table in every format that it has units for, narrow formats first.

    Parameters
    ----------
    reuse : sequence of int
        Products that each element takes part in.
    """
    return tuple(
        gpu_price(load_gpu(name), one, reuse)
        for name in gpu_names()
        for one in FORMATS
        if one.element_bytes > 1 or _has_bytes(load_gpu(name))
    )


def _has_bytes(gpu: Gpu) -> bool:
    """Return whether 8-bit operands run faster than 16-bit ones, hence have units of their own."""
    return gpu.chip.byte_flops_per_cycle > gpu.chip.flops_per_cycle


def gpu_price(gpu: Gpu, operands: OperandFormat, reuse: Sequence[int]) -> GpuPrice:
    """Return a GPU's energy and time per multiply-accumulate at each reuse, of the faster of two kernels.

    Notes
    -----
    Tiles of tensor cores are wasted on a few vectors; there a library streams the operands past the vector
    lanes, which reads much and writes little, so that the memory need not turn around.
    """
    found = [_faster(gpu, operands, uses) for uses in reuse]
    return GpuPrice(
        gpu=gpu.name,
        format=operands.name,
        significand_bits=operands.significand_bits,
        j_per_mac=np.array([energy for energy, _ in found]),
        s_per_mac=np.array([time for _, time in found]),
    )


def _faster(gpu: Gpu, operands: OperandFormat, uses: int) -> tuple[float, float]:
    """Return energy and time per multiply-accumulate."""
    product = square_product(uses, operands.element_bytes)
    streamed = Elementwise(
        name="streamed product",
        layer="",
        phase=Phase.FORWARD,
        flops=product.flops,
        read_bytes=product.batch * 2 * uses * INPUTS * operands.element_bytes,
        written_bytes=product.batch * uses**2 * operands.element_bytes,
    )
    reading = dataclasses.replace(gpu, memory=dataclasses.replace(gpu.memory, turnaround_efficiency=1.0))
    cost = min((gpu.cost(product), reading.cost(streamed)), key=lambda one: one.time_s)
    idle_w = gpu.static_w + gpu.memory.static_w
    energy_j = math.fsum(cost.energy_j.values()) + idle_w * cost.time_s
    return energy_j / product.macs, cost.time_s / product.macs

"""Which core takes least, where a GPU takes less, and which points of a study stand for the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.cores import CoresStudy, Outcome, Variant
from experiments.cores_gpu import GpuPrice
from heliograph.amounts import Reals
from optical.cores import CORES

GENERATIONS = ("a100", "h100", "b200")
"""GPUs that are drawn, one of each generation; all of the table are written down."""
DRAWN_BITS = 8.0
"""Widest significand that is drawn."""
TIE = 0.05
"""Cores that differ by less are alike, as their number is a whole one: the one listed first is shown."""
NOBODY = -1
"""Winner where no core reaches the bits."""
MEMORY = len(CORES)
"""Winner where the memory, which all share, sets the time of the fastest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Winners:
    """Who takes least, over bits and reuse; arrays of shape (bits, reuse)."""

    core: NDArray[np.int_]
    """Place of the core in `CORES`; `NOBODY` where none reaches the bits, `MEMORY` where all are alike."""
    least: Reals
    """What it takes per multiply-accumulate; NaN where none does."""
    gpu: Reals
    """What the GPU takes with the narrowest operands that hold the bits; NaN where none do."""

    @property
    def gpu_wins(self) -> NDArray[np.bool_]:
        """Whether the GPU takes less than every core that reaches the bits."""
        wins: NDArray[np.bool_] = (self.core != NOBODY) & (self.gpu < self.least)
        return wins


def winners(found: CoresStudy, quantity: str) -> Winners:
    """Return who takes least of a quantity.

    Parameters
    ----------
    found : CoresStudy
        What was found.
    quantity : str
        ``j_per_mac`` or ``s_per_mac``; time is that of accelerators of one power, or area, by the basis.

    Notes
    -----
    An accelerator of which not even one cluster has room wins nothing.
    """
    shape = (len(CORES), len(found.bits), len(found.reuse))
    fits = np.array([one.outcome is Outcome.WORKS for one in found.maps]).reshape(*shape[:2], 1)
    taken = np.array([getattr(one, quantity) for one in found.maps]).reshape(shape)
    taken = np.where(fits, taken, np.inf)
    best = taken.min(axis=0)
    first = np.argmax(taken <= (1.0 + TIE) * best, axis=0)
    memory = np.array([one.memory_bound for one in found.maps]).reshape(shape)
    waits = np.take_along_axis(memory, first[None], axis=0)[0] & (quantity == "s_per_mac")
    nothing = np.full(shape[2], np.nan)
    return Winners(
        core=np.where(np.isfinite(best), np.where(waits, MEMORY, first), NOBODY),
        least=np.where(np.isfinite(best), best, np.nan),
        gpu=np.array([nothing if one is None else getattr(one, quantity) for one in found.rivals]),
    )


def present(found: CoresStudy, name: str) -> Variant:
    """Return a core in the size that it has."""
    return sizes_of(found, name)[1.0]


def sizes_of(found: CoresStudy, name: str) -> dict[float, Variant]:
    """Return a core in all sizes, by its sides over those of today."""
    return {one.factor: one for one in found.sizes if one.core == name}


def best_size(found: CoresStudy, name: str, place: int) -> Variant | None:
    """Return the size of a core with the least energy at a place of the reuse, of those with room."""
    fitting = [one for one in sizes_of(found, name).values() if one.outcome is Outcome.WORKS]
    return min(fitting, key=lambda one: float(one.j_per_mac[place]), default=None)


def shown_gpus(found: CoresStudy) -> list[GpuPrice]:
    """Return one GPU of each generation, and the one that is replaced, in the widths for training."""
    names = dict.fromkeys((*GENERATIONS, found.gpu))
    return [
        price
        for name in names
        for price in found.gpus
        if price.gpu == name and price.significand_bits <= DRAWN_BITS
    ]

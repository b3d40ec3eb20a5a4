"""Readouts behind an amplifier: what is done with a photocurrent in each symbol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optical.devices.parts import Device, Domain
from simulator.checks import check_positive, check_range


@dataclass(frozen=True, kw_only=True)
class Integrator(Device):
    """Capacitor that a current charges through a gate which is open for a part of every symbol.

    Notes
    -----
    Open for the share w of a symbol, it lets in noise of the bandwidth f/(2 w). Without a gate it would let
    in f/2, and with it all edges between symbols.
    """

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    window: float
    """Share of a symbol for which the gate is open, between the middles of its edges."""
    edge_s: float
    """Time in which the gate opens, or closes."""
    jitter_s: float
    """Standard deviation of its clock."""
    sample_energy_j: float
    """Energy of gating and emptying it, per sample."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_range(self, "window", high=1.0, open_low=True)
        check_range(self, "edge_s", "jitter_s", "sample_energy_j", "area_m2")

    def poles_hz(self, rate_hz: float) -> tuple[float, ...]:
        """Return no poles: what it averages over is in its weights."""
        return ()

    def weights(self, rate_hz: float, steps: int) -> NDArray[np.float64]:
        """Return the weight of each step of time up to the moment it closes, which sum to 1.

        Parameters
        ----------
        rate_hz : float
            Symbols per second.
        steps : int
            Steps of a symbol.
        """
        opened = np.ones(max(1, round(self.window * steps)))
        edge = np.ones(max(1, round(self.edge_s * rate_hz * steps)))
        weights = np.convolve(opened, edge)
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True, kw_only=True)
class Sampler(Device):
    """Track-and-hold that reads one instant of every symbol, behind a filter of its own.

    Notes
    -----
    Its noise bandwidth is (pi/2) of its pole, less with the amplifier's.
    """

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    bandwidth_ratio: float
    """3 dB bandwidth while it tracks, over the symbol rate, dimensionless."""
    jitter_s: float
    """Standard deviation of its clock."""
    sample_energy_j: float
    """Energy per sample, beyond that of the converter."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "bandwidth_ratio")
        check_range(self, "jitter_s", "sample_energy_j", "area_m2")

    def poles_hz(self, rate_hz: float) -> tuple[float, ...]:
        """Return the pole of its tracking."""
        return (self.bandwidth_ratio * rate_hz,)

    def weights(self, rate_hz: float, steps: int) -> NDArray[np.float64]:
        """Return all the weight at one step."""
        return np.ones(1)

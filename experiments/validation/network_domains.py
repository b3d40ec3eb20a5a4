"""Price of a ring of switching transceivers over a switched domain: InfiniteHBD against NVL-72."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from electronic.devices import load_scale_up
from electronic.fabrics.nvlink import SwitchedDomain
from experiments.validation.cells import Record
from optical.fabrics.transceiver_ring import TransceiverRing
from simulator.tables import read_table

Rule = Callable[[Record, "re.Match[str]"], tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class DomainParts:
    """What a paper counts for one accelerator of a scale-up domain, and what it pays for it."""

    name: str = "paper"
    """Paper and domain."""
    rate_bytes_per_s: float
    """Rate of an accelerator by which the paper divides."""
    switches: float = 0.0
    """Packet switches for each accelerator; dimensionless."""
    switch_usd: float = 0.0
    """A packet switch."""
    transceivers: float = 0.0
    """Switching transceivers for each accelerator; dimensionless."""
    transceiver_usd: float = 0.0
    """A switching transceiver."""
    cables: float = 0.0
    """Copper cables for each accelerator; dimensionless."""
    cable_usd: float = 0.0
    """A copper cable."""
    fibres: float = 0.0
    """Fibres for each accelerator; dimensionless."""
    fibre_usd: float = 0.0
    """A fibre."""

    @property
    def usd(self) -> float:
        """Price for each accelerator."""
        packets = self.switches * self.switch_usd + self.transceivers * self.transceiver_usd
        return packets + self.cables * self.cable_usd + self.fibres * self.fibre_usd


@cache
def paper_parts(name: str) -> DomainParts:
    """Return what a paper counts: ``nvl-72`` or ``infinite-hbd``."""
    return read_table(Path(__file__).parent / "reference" / "paper_parts.csv").build(DomainParts, name)


def hbd_ratios() -> dict[str, float]:
    """Return the price of a ring of switching transceivers over a switched domain of 72, each an accelerator.

    First by the paper's parts and prices, for each byte a second. Then by the bills of the fabrics that ship,
    for as many accelerators: as they are, and by the rate at which an accelerator sends; and what either
    bill costs for an accelerator, in USD.
    """
    domain = load_scale_up("nvlink5-72")
    switched, ring = SwitchedDomain(endpoints=domain.size), TransceiverRing(endpoints=domain.size)
    # A ring sends both ways around, over the lanes of either end of a node.
    ring_rate = 2 * ring.lanes * ring.optics.bandwidth_bytes_per_s
    as_built = ring.cost_usd / switched.cost_usd
    theirs, rival = paper_parts("infinite-hbd"), paper_parts("nvl-72")
    return {
        "paper": (theirs.usd / theirs.rate_bytes_per_s) / (rival.usd / rival.rate_bytes_per_s),
        "as built": as_built,
        "same rate": as_built * domain.bandwidth_bytes_per_s / ring_rate,
        "ring": ring.cost_usd / domain.size,
        "domain": switched.cost_usd / domain.size,
    }


def _infinite_hbd(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the price of a ring of switching transceivers over that of a switched domain of 72."""
    ratios, ring, rival = hbd_ratios(), paper_parts("infinite-hbd"), paper_parts("nvl-72")
    record.assume(
        "the paper's parts and prices for each GB/s (recalled): 18 switches and 5184 cables, 4 transceivers"
    )
    hint = (
        f"{ratios['as built']:.0%} by the bills of hbd_ring and nvlink, {ratios['same rate']:.0%} at the "
        f"same rate: our ring costs {ratios['ring']:.0f} USD an accelerator (theirs {ring.usd:.0f}), our "
        f"domain {ratios['domain']:.0f} (theirs {rival.usd:.0f})"
    )
    return ratios["paper"], hint


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType({("InfiniteHBD$", "cost vs NVL-72$"): _infinite_hbd})
"""How system and metric of a row read, and what predicts it."""

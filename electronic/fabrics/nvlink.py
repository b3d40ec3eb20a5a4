"""One switched scale-up domain around all accelerators, without any network card."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from electronic.devices import load_scale_up
from simulator.checks import check_range
from simulator.errors import ParameterError
from simulator.fabric import NodeFabric, Traits
from simulator.interfaces import Flows, Wiring
from simulator.topology.clos import Clos
from simulator.topology.graphs import NO_LINK, GraphFabric, bundle, joined, packed
from simulator.topology.scale_up import BillItem, ScaleUp


@dataclass(frozen=True, kw_only=True)
class SwitchedDomain(NodeFabric, GraphFabric):
    """All accelerators under NVLink switches, as inside a node or a rack.

    Notes
    -----
    Every accelerator has a link to each switch chip of a layer, so the chips act as one switch of as many
    ports as one has: up to `radix` accelerators under one level, beyond that two or three levels, whose
    ports cost the same power and price each as those at the accelerators.
    """

    name: str = "nvlink domain"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp = field(default_factory=lambda: load_scale_up("nvlink5-72"))
    """The domain; its size must be that of the system."""
    radix: int = 72
    """Ports of a switch chip (NVLink 5 Switch); dimensionless."""
    oversubscription: float = 1.0
    """Links below over links above a switch of the first level, at least 1; dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "endpoints", low=1)
        if self.scale_up.size != self.endpoints:
            msg = (
                f"a domain of {self.scale_up.size} ('{self.scale_up.name}') must hold all {self.endpoints} "
                "accelerators of this fabric; leave its size alone, or take a fabric between nodes"
            )
            raise ParameterError(msg)
        _ = self.clos

    @cached_property
    def traits(self) -> Traits:
        """Library of the domain."""
        return Traits(scale_up=self.scale_up)

    @cached_property
    def clos(self) -> Clos:
        """Levels of switches."""
        return Clos(ports=self.endpoints, radix=self.radix, oversubscription=self.oversubscription)

    @cached_property
    def wiring(self) -> Wiring:
        """Links from accelerators to switches, back, and between switches."""
        every = np.arange(self.endpoints)
        switches = self.endpoints + self.clos.leaf_of(every)
        rate, half_s = self.scale_up.capacity_bytes_per_s, self.scale_up.latency_s / 2
        return joined(
            [
                bundle(every, switches, rate_bytes_per_s=rate, latency_s=half_s),
                bundle(switches, every, rate_bytes_per_s=rate, latency_s=half_s),
                self.clos.wiring(first_vertex=self.endpoints, rate_bytes_per_s=rate, latency_s=half_s),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        between = [
            np.where(links != NO_LINK, links + 2 * self.endpoints, NO_LINK)
            for links in self.clos.paths(sources, destinations)
        ]
        return packed([sources, *between, self.endpoints + destinations])

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return {"scale-up": self.scale_up.item(self.endpoints + 2 * self.clos.trunks)}

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, over one switch or several."""
        moving = flows.sources != flows.destinations
        crossed = self.paths(flows.sources[moving], flows.destinations[moving]) != NO_LINK
        # A row's energy is that of two hops, to a switch and from it.
        hops = crossed.sum(axis=1) / 2
        return self.scale_up.transfer_energy_j(flows.part(moving).moved_bytes(hops))

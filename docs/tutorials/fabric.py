"""A fabric of your own: one switch that never blocks, as the least that a fabric must say."""

from dataclasses import dataclass

import numpy as np

import heliograph as hg
from simulator.fabric import Fabric
from simulator.interfaces import LinkGraph
from simulator.topology.graphs import NO_LINK
from simulator.topology.scale_up import BillItem

RATE_BYTES_PER_S, LATENCY_S, PORT_J_PER_BYTE = 50e9, 1e-6, 1e-10


@dataclass(frozen=True, kw_only=True)
class Hub(Fabric):
    """One port of 400 Gb/s into and out of each endpoint, and nothing that blocks between them."""

    name: str = "hub"
    endpoints: int

    def graph(self, circuits):
        """Return the links: the way in of each endpoint, then the way out."""
        links = 2 * self.endpoints
        return LinkGraph(
            capacity_bytes_per_s=np.full(links, RATE_BYTES_PER_S), latency_s=np.full(links, LATENCY_S)
        )

    def route(self, circuits, flows):
        """Return the links that each flow crosses, shape [flows, 2]."""
        links = np.stack([flows.sources, self.endpoints + flows.destinations], axis=1)
        links[flows.sources == flows.destinations] = NO_LINK
        return links

    def transfer_energy_j(self, flows):
        """Return the energy of the bytes that leave their endpoint."""
        return flows.moved_bytes(flows.sources != flows.destinations) * PORT_J_PER_BYTE

    def bill(self):
        """Return the parts, each with its power and price."""
        return {"port": BillItem(count=self.endpoints, w_each=5.0, usd_each=100.0)}


hg.register_fabric("hub", Hub)
plan = "tp=8,dp=8,global_batch=64,sequence_length=2048"
print(hg.compare(["gpu_packet", "gpu_packet@hub", "gpu_packet@torus"], "llama-3-8b", plan))

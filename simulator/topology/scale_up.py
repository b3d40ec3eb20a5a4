"""Parts of a network that do not depend on its fabric: scale-up domain, library protocols, cards and cables.

Also the bill of materials that lists them, and the loss budget by which a link of pluggable optics closes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simulator.errors import Checked, Count, Efficiency, LinkError, ParameterError, Positive
from simulator.interfaces import Flows
from simulator.tables import Shelf
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class HopBudget:
    """Power budget of one link of pluggable optics."""

    losses_db: tuple[tuple[str, float], ...]
    """Name and loss of each element of the link, the margin last."""
    allowed_loss_db: float
    """Loss that the optics may have between them."""

    @property
    def loss_db(self) -> float:
        """Loss of the whole link, margin included."""
        return sum(loss for _, loss in self.losses_db)

    @property
    def spare_db(self) -> float:
        """Loss that may be added; the link closes if it is not negative."""
        return self.allowed_loss_db - self.loss_db


@dataclass(frozen=True, kw_only=True)
class OpticalHop(Checked):
    """Class of pluggable optics, and the passive elements between two of them.

    Notes
    -----
    The channel insertion loss of a standard is the difference of transmitter power and receiver sensitivity
    less the penalties of modulation, reflections and dispersion; connectors, fibre and all other passive
    elements have to fit into it.
    """

    name: str = "hop"
    """Name shown in tables."""
    allowed_loss_db: float
    """Channel insertion loss of the standard."""
    connectors: int
    """Mated connectors in the link."""
    connector_loss_db: float
    """Loss of one."""
    fibre_loss_db_per_m: float
    """Loss of the fibre at the standard's wavelengths."""
    margin_db: float
    """Loss kept for ageing and repair."""

    def budget(self, fibre_m: float) -> HopBudget:
        """Return the loss budget of a link."""
        losses = (
            ("connectors", self.connectors * self.connector_loss_db),
            ("fibre", fibre_m * self.fibre_loss_db_per_m),
            ("margin", self.margin_db),
        )
        return HopBudget(losses_db=losses, allowed_loss_db=self.allowed_loss_db)

    def closed(self, between: str, fibre_m: float) -> HopBudget:
        """Return the loss budget of a link that closes.

        Raises
        ------
        LinkError
            If more light is lost than may be; names the element that loses most.
        """
        found = self.budget(fibre_m)
        if found.spare_db < 0.0:
            what, greatest_db = max(found.losses_db, key=lambda one: one[1])
            msg = (
                f"the link between {between} does not close: its way loses {found.loss_db:.2f} dB and "
                f"'{self.name}' optics allow {self.allowed_loss_db:g}; the greatest loss is {what} "
                f"({greatest_db:.2f} dB; {fibre_m:g} m of fibre, {self.connectors} connectors); try less of "
                "it, or optics of longer reach ('fr4', 'lr4')"
            )
            raise LinkError(msg)
        return found


load_hop = Shelf(OpticalHop, Path(__file__).parents[1] / "parameters" / "optical_hops.csv")
"""Classes of pluggable optics and their channels, e.g. ``"dr4"``."""


@dataclass(frozen=True, kw_only=True)
class Protocol(Checked):
    """Protocol of a communication library, of low latency or of high bandwidth."""

    name: str = "protocol"
    """Name shown in records."""
    start_s: float
    """Time to start a collective, once."""
    hop_s: float
    """Time each step takes inside a node beyond that of the path: flags, fences, the fill of a chunk."""
    efficiency: Efficiency
    """Share of a node's port rate that the payload gets, 0 to 1."""
    network_hop_s: float
    """The same as `hop_s` for a step between nodes."""
    tree_hop_s: float
    """The same for a step between nodes up or down a tree, where it meets another node's."""
    network_efficiency: Efficiency
    """The same as `efficiency` for a step between nodes, 0 to 1."""
    chunk_bytes: Positive = math.inf
    """Part of the vector that all channels have under way at once. Levels of a collective inside nodes and
    between them work on different chunks at the same time; on one after the other if it is infinite."""
    network_bytes_per_s: Positive = math.inf
    """Highest rate of a rank between nodes whatever its card, where a host has to look at every flag."""
    post_s: float = 0.0
    """Time in which a host posts a message to another node; that of a step's first message is in the hop."""


@dataclass(frozen=True, kw_only=True)
class Adder(Checked):
    """Reduction in switches by a communication library, in short chunks or in long ones."""

    name: str = "adder"
    """Name shown in records."""
    start_s: float
    """Time to start a collective and fill its first chunks, once."""
    efficiency: Efficiency
    """Share of a node's port rate that the payload gets, 0 to 1."""
    chunk_bytes: Positive = math.inf
    """Part of the vector that is under way at once, as in `Protocol`."""


@dataclass(frozen=True, kw_only=True)
class NodeAdder(Adder):
    """Reduction in the switches of a node, whose sums may go on to other nodes."""

    tree_wait_s: float = 0.0
    """Further time of each part under way (`chunk_bytes`) if its sum goes on between nodes."""

    def feeding_trees(self, port_bytes_per_s: float) -> NodeAdder:
        """Return the adder with sums that go on between nodes, given the rate of a port."""
        longer = self.tree_wait_s * port_bytes_per_s / self.chunk_bytes
        efficiency = 1.0 / (1.0 / self.efficiency + longer)
        return replace(self, start_s=self.start_s + self.tree_wait_s, efficiency=efficiency)


@dataclass(frozen=True, kw_only=True)
class BillItem(Checked):
    """One line of a bill of materials."""

    count: int
    """Number of parts."""
    w_each: float
    """Power of one, watt."""
    usd_each: float
    """Price of one, US dollar."""
    fibre_ends: int = 0
    """Fibres that end at one part."""
    fibre_m: float = 0.0
    """Length of fibre that one part lights, its half of each link."""
    untold: tuple[str, ...] = ()
    """Names of the numbers that were not given; they count as zero."""


@dataclass(frozen=True, kw_only=True)
class ScaleUp(Checked):
    """The switched domain inside a node: every accelerator reaches every other at full bandwidth."""

    name: str = "scale-up"
    """Name shown in tables."""
    size: Count
    """Accelerators in one domain, which is one node."""
    bandwidth_bytes_per_s: Positive
    """Line rate of one accelerator, one way."""
    efficiency: Efficiency
    """Share of the line rate that a long transfer reaches, 0 to 1."""
    latency_s: float
    """Time from one accelerator to another."""
    energy_j_per_bit: float
    """Dynamic energy of one bit from accelerator to accelerator."""
    static_w: float
    """Power of the domain's switches, per accelerator."""
    price_usd: float
    """Price of the domain's switches, per accelerator."""
    copy_bytes_per_s: Positive = math.inf
    """Rate at which an accelerator passes a vector between memory and port, beside the transfer itself."""
    protocols: tuple[Protocol, ...] = ()
    """Protocols of the communication library; the fastest for the size is taken. Without any, steps cost
    latency and bandwidth alone, and every algorithm may be used."""
    adders: tuple[NodeAdder, ...] = ()
    """Reductions inside the switches; none if the switches do not add."""

    @property
    def capacity_bytes_per_s(self) -> float:
        """Rate of one accelerator's port that a long transfer reaches, one way."""
        return self.bandwidth_bytes_per_s * self.efficiency

    def node_of(self, endpoints: np.ndarray) -> np.ndarray:
        """Return the node of each endpoint, same shape."""
        return endpoints // self.size

    def rail_of(self, endpoints: np.ndarray) -> np.ndarray:
        """Return the place of each endpoint within its node, same shape."""
        return endpoints % self.size

    def carriers(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the endpoint in each source's node that stands on the destination's rail, same shape."""
        return self.node_of(sources) * self.size + self.rail_of(destinations)

    def nodes(self, endpoints: int) -> int:
        """Return the number of nodes that hold some endpoints.

        Raises
        ------
        ParameterError
            If the last of several nodes would be incomplete.
        """
        if endpoints < 1 or (endpoints > self.size and endpoints % self.size):
            below = max(1, endpoints // self.size) * self.size
            even = next(size for size in range(self.size, 0, -1) if endpoints % size == 0)
            msg = (
                f"endpoints ({endpoints}) must fill nodes of {self.size} ('{self.name}'); "
                f"try {below} or {below + self.size}, or nodes of {even} (scale_up.size={even})"
            )
            raise ParameterError(msg)
        return math.ceil(endpoints / self.size)

    def item(self, accelerators: int) -> BillItem:
        """Return the switches of some accelerators as a line of a bill of materials."""
        return BillItem(count=accelerators, w_each=self.static_w, usd_each=self.price_usd)

    def transfer_energy_j(self, moved_bytes: float) -> float:
        """Return the dynamic energy of moving bytes from accelerator to accelerator."""
        return moved_bytes * BITS_PER_BYTE * self.energy_j_per_bit

    def off_node(self, flows: Flows) -> np.ndarray:
        """Return whether each flow leaves its node, shape [F]."""
        return self.node_of(flows.sources) != self.node_of(flows.destinations)


@dataclass(frozen=True, kw_only=True)
class Nic(Checked):
    """A network card: one per accelerator."""

    name: str = "nic"
    """Name shown in tables."""
    bandwidth_bytes_per_s: Positive
    """Line rate, one way."""
    efficiency: Efficiency
    """Share of the line rate that a long transfer reaches, 0 to 1."""
    latency_s: float
    """Time from memory to wire, or from wire to memory."""
    energy_j_per_bit: float
    """Dynamic energy of one bit through the card."""
    static_w: float
    """Power drawn all the time."""
    price_usd: float
    """Price of a card."""

    def item(self, count: int) -> BillItem:
        """Return some cards as a line of a bill of materials."""
        return BillItem(count=count, w_each=self.static_w, usd_each=self.price_usd)

    def transfer_energy_j(self, moved_bytes: float) -> float:
        """Return the dynamic energy of the two cards through which bytes pass."""
        return 2 * moved_bytes * BITS_PER_BYTE * self.energy_j_per_bit


load_nic = Shelf(Nic, Path(__file__).parents[1] / "parameters" / "nics.csv")
"""Network cards, e.g. ``"connectx-7"``."""


def bill_power_w(bill: Mapping[str, BillItem]) -> float:
    """Return the power of everything on a bill."""
    return math.fsum(item.count * item.w_each for item in bill.values())


def bill_price_usd(bill: Mapping[str, BillItem]) -> float:
    """Return the price of everything on a bill."""
    return math.fsum(item.count * item.usd_each for item in bill.values())


@dataclass(frozen=True, kw_only=True)
class CablePlant(Checked):
    """Single-mode fibre, and the patch panels through which it goes.

    Notes
    -----
    A bill gives the fibres that end at each optical part, and the length of fibre that the part lights, its
    half of each link. Each end of a fibre takes `panels` places in patch panels.
    """

    name: str = "cables"
    """Name shown in tables."""
    fibre_usd_per_m: float
    """Price of one fibre, in trunk cables."""
    panels: int
    """Places in panels that each end of a fibre takes."""
    port_usd: float
    """Price of a place in a panel."""
    port_w: float
    """Power of a place in a panel."""

    def bill(self, parts: Mapping[str, BillItem]) -> dict[str, BillItem]:
        """Return fibres, by the metre, and places in panels that the parts of a fabric need.

        Parameters
        ----------
        parts : mapping of str to BillItem
            Bill of a fabric; parts that are not optical need none.
        """
        fibre_m = sum(item.count * item.fibre_m for item in parts.values())
        ends = sum(item.count * item.fibre_ends for item in parts.values())
        if not ends:
            return {}
        return {
            "fibre (m)": BillItem(count=round(fibre_m), w_each=0.0, usd_each=self.fibre_usd_per_m),
            "patch panel place": BillItem(
                count=ends * self.panels, w_each=self.port_w, usd_each=self.port_usd
            ),
        }


load_cables = Shelf(CablePlant, Path(__file__).parents[1] / "parameters" / "cables.csv")
"""Cable plants, e.g. ``"panels"``."""

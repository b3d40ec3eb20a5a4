"""Optical circuit switches and the lanes through them: time to turn, power budgets, chassis and failures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

import numpy as np

from optical.fabrics.circuits import CircuitFabric
from simulator.errors import (
    Checked,
    Count,
    Dbm,
    Efficiency,
    FromOne,
    LinkError,
    ParameterError,
    Positive,
    check_range,
)
from simulator.fabric import NodeFabric
from simulator.tables import Shelf
from simulator.topology.scale_up import BillItem, Nic
from simulator.units import SPEED_OF_LIGHT_M_PER_S, watts_from_dbm

PARAMETERS = Path(__file__).parents[1] / "parameters"
NORMAL = NormalDist()
MOST_LANES = 1024
"""Most lanes of a card or an accelerator that is accepted; a choice, far beyond the eight of today's."""


@dataclass(frozen=True, kw_only=True)
class OpticalSwitch(Checked):
    """Switch that joins fibres optically: N inputs to N outputs, at any lane rate, without packets.

    Notes
    -----
    From the decision to the next bit pass the time of the control plane, of the motion, and of the receivers
    to lock again: ``reconfiguration_s = control_s + switch_s max(1, positions / 2) + relock_s``. A rotor
    steps through its `positions` one by one and reaches the wanted one after half of them on average; whether
    it has the wanted matching at all is not checked.
    """

    name: str = "switch"
    """Name shown in tables."""
    ports: Count
    """Inputs, and as many outputs."""
    spare_ports: int
    """Ports kept for repair and test."""
    insertion_loss_db: float
    """Loss of one pass."""
    switch_s: float
    """Time of one motion of a port; its median, where motions differ."""
    positions: Count
    """Settings it steps through one by one; 1 when it goes straight to any."""
    relock_s: float
    """Time until receivers have found the new signal."""
    control_s: float
    """Time from the decision to the command at the switch."""
    static_w: float
    """Power of one chassis."""
    move_energy_j: float
    """Energy of moving one port."""
    port_price_usd: float
    """Price per port (one input and one output)."""
    switch_tail: FromOne = 1.0
    """99th percentile of the time of a motion over its median; 1 if all motions take the same, or unknown.
    Dimensionless."""
    command_s: float = 0.0
    """Time from one port's command to the next one's on a chassis; 0 where all go out together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "spare_ports", high=self.ports - 1)

    @property
    def usable_ports(self) -> int:
        """Ports left for traffic."""
        return self.ports - self.spare_ports

    @property
    def reconfiguration_s(self) -> float:
        """Time in which a moving circuit carries nothing, that of one port."""
        return self.turn_s(1)

    def turn_s(self, ports: int) -> float:
        """Return the median time until light passes the last of a number of ports that turn together.

        Notes
        -----
        Motions are taken as independent and lognormal, so that the median of the slowest of n is the
        2^(-1/n) quantile of one. A controller commands the ports of its chassis one after the other, which
        the ports that turn are taken to fill; all of them wait for the last.
        """
        share = NORMAL.inv_cdf(0.5 ** (1 / max(1, ports))) / NORMAL.inv_cdf(0.99)
        motion_s = self.switch_s * max(1.0, self.positions / 2) * self.switch_tail**share
        commands_s = (min(max(1, ports), self.ports) - 1) * self.command_s
        return self.control_s + commands_s + motion_s + self.relock_s

    @property
    def step_s(self) -> float:
        """Time in which a circuit carries nothing while the switch goes to its next setting."""
        return self.control_s + self.switch_s + self.relock_s

    def item(self, count: int) -> BillItem:
        """Return a number of chassis as a line of a bill of materials."""
        return BillItem(count=count, w_each=self.static_w, usd_each=self.ports * self.port_price_usd)


@dataclass(frozen=True, kw_only=True)
class LaneOptics(Checked):
    """Transmitter, receiver and fibre of one optical lane."""

    name: str = "lane"
    """Name shown in tables."""
    bandwidth_bytes_per_s: Positive
    """Line rate of one lane, one way."""
    sensitivity_dbm: Dbm
    """Power the receiver needs."""
    margin_db: float
    """Penalties and ageing."""
    connector_loss_db: float
    """Loss of one mated connector."""
    circulators: int
    """Circulators on the way (two when one fibre carries both directions)."""
    circulator_loss_db: float
    """Loss of one circulator."""
    multiplexer_loss_db: float
    """Loss of one wavelength multiplexer; one stands at each end of a lane."""
    fibre_m: float
    """Fibre from transmitter to receiver."""
    fibre_loss_db_per_m: float
    """Loss of the fibre."""
    group_index: FromOne
    """Group index of the fibre, dimensionless."""
    launch_max_dbm: Dbm
    """Most power the transmitter launches."""
    laser_efficiency: Efficiency
    """Light in the fibre over electrical power of the laser, 0 to 1."""
    electronics_w: float
    """Power of one lane without its laser."""
    latency_s: float
    """Time through one transceiver with its error correction."""
    price_usd: float
    """Price of one lane, both its transmitter and its receiver."""

    @property
    def link_latency_s(self) -> float:
        """Time from electrical input to electrical output: two transceivers and the fibre."""
        return 2 * self.latency_s + self.fibre_m * self.group_index / SPEED_OF_LIGHT_M_PER_S

    def shared_bytes_per_s(self, nic: Nic, lanes: int) -> float:
        """Return the rate that a long transfer reaches over one of a card's lanes, one way."""
        return min(self.bandwidth_bytes_per_s, nic.bandwidth_bytes_per_s / lanes) * nic.efficiency

    @property
    def fibres(self) -> int:
        """Fibres that end at a lane's transceiver: with circulators one, which carries both directions."""
        return 1 if self.circulators else 2

    def item(self, count: int, laser_w: float) -> BillItem:
        """Return a number of lanes, with the electrical power of each laser, as a line of a bill."""
        return BillItem(
            count=count,
            w_each=self.electronics_w + laser_w,
            usd_each=self.price_usd,
            fibre_ends=self.fibres,
            fibre_m=self.fibres * self.fibre_m / 2,
        )

    @property
    def idle_numbers(self) -> dict[str, str]:
        """Numbers that change nothing, by name, each with the reason (`simulator.fabric.Traits`)."""
        if self.circulators:
            return {}
        reason = (
            f"'{self.name}' has no circulators, since each fibre carries one way; "
            "set fabric.optics.circulators too, or take duplex lanes (optics=lane-100g-duplex)"
        )
        return {"circulator_loss_db": reason}


@dataclass(frozen=True, kw_only=True)
class LaneBudget:
    """Power budget of one optical lane."""

    losses_db: tuple[tuple[str, float], ...]
    """Names of elements, each with its loss."""
    launch_dbm: float
    """Power that must be launched for the receiver to get what it needs."""
    laser_w: float
    """Electrical power of the laser that launches it."""

    @property
    def loss_db(self) -> float:
        """Loss of the whole path, margin included."""
        return sum(loss for _, loss in self.losses_db)


def lane_budget(
    optics: LaneOptics, switch: OpticalSwitch, passes: int, *, fibres: int | None = None
) -> LaneBudget:
    """Return the power budget of a lane through optical switches.

    Parameters
    ----------
    optics : LaneOptics
        The lane.
    switch : OpticalSwitch
        Every switch on its way.
    passes : int
        Switches on its way, at least 1.
    fibres : int, optional
        Fibres on its way, each with a connector at both ends; one more than the switches unless said.

    Returns
    -------
    LaneBudget
        Losses; launch = sensitivity + losses, in dB; the laser's electrical power.

    Raises
    ------
    LinkError
        If the transmitter cannot launch that much; names the greatest loss and what is missing.
    """
    connectors = 2 * (passes + 1 if fibres is None else fibres)
    losses = (
        ("optical switches", passes * switch.insertion_loss_db),
        ("connectors", connectors * optics.connector_loss_db),
        ("circulators", optics.circulators * optics.circulator_loss_db),
        ("multiplexers", 2 * optics.multiplexer_loss_db),
        ("fibre", optics.fibre_m * optics.fibre_loss_db_per_m),
        ("margin", optics.margin_db),
    )
    launch_dbm = optics.sensitivity_dbm + sum(loss for _, loss in losses)
    missing_db = launch_dbm - optics.launch_max_dbm
    if missing_db > 0.0:
        what, greatest_db = max(losses, key=lambda item: item[1])
        times = "one pass of" if passes == 1 else f"{passes} passes of"
        msg = (
            f"the link does not close: {times} '{switch.name}' with '{optics.name}' lacks "
            f"{missing_db:.1f} dB; the greatest loss is {what} ({greatest_db:.1f} dB); try less "
            "insertion loss, lanes that launch more ('lane-100g-boosted'), or rails short enough for one pass"
        )
        raise LinkError(msg)
    return LaneBudget(
        losses_db=losses, launch_dbm=launch_dbm, laser_w=watts_from_dbm(launch_dbm) / optics.laser_efficiency
    )


def switch_stages(switch: OpticalSwitch, rail: int) -> int:
    """Return the number of switches that a circuit passes if any of `rail` endpoints reaches any other.

    Parameters
    ----------
    switch : OpticalSwitch
        The switch.
    rail : int
        Endpoints to join.

    Returns
    -------
    int
        1 if they fit one switch, 3 for a Clos network of inputs, middles and outputs.

    Raises
    ------
    ParameterError
        If even three stages have too few ports.
    """
    ports = switch.usable_ports
    if rail <= ports:
        return 1
    if rail <= ports * ports:
        return 3
    msg = (
        f"a rail of {rail} endpoints exceeds three stages of '{switch.name}' ({ports} usable ports, so "
        f"{ports * ports}); try a larger switch or larger nodes"
    )
    raise ParameterError(msg)


def switch_chassis(switch: OpticalSwitch, rail: int, planes: int) -> int:
    """Return the number of chassis of all planes.

    Parameters
    ----------
    switch : OpticalSwitch
        The switch.
    rail : int
        Endpoints of one rail.
    planes : int
        Rails times lanes; each is a network of its own, and small ones share a chassis.
    """
    ports = switch.usable_ports
    if switch_stages(switch, rail) == 1:
        return -(-planes // (ports // rail))
    edges = -(-rail // ports)
    middles = -(-ports // (ports // edges))
    return planes * (2 * edges + middles)


load_switch = Shelf(OpticalSwitch, PARAMETERS / "switches.csv")
"""Optical switches, e.g. ``"palomar-mems"``."""


def switch_names() -> tuple[str, ...]:
    """Return the optical switches of the table."""
    return load_switch.table.names


load_optics = Shelf(LaneOptics, PARAMETERS / "transceivers.csv")
"""Optics of a lane, e.g. ``"lane-100g"``."""


def chassis_of(switch: OpticalSwitch, rail: int, planes: int) -> np.ndarray:
    """Return the chassis behind each port of each plane, shape [planes, rail].

    Parameters
    ----------
    switch : OpticalSwitch
        The switches, all alike.
    rail : int
        Ends that a plane joins.
    planes : int
        Planes; small ones share a chassis.

    Notes
    -----
    Numbered as `optical.fabrics.switches.switch_chassis` counts them; in a plane of three stages, inputs come
    first, then outputs, then middles. There the input's chassis is given; the output's is `edges` further.
    """
    ports, plane = switch.usable_ports, np.arange(planes)[:, None]
    place = np.arange(rail)[None, :]
    if switch_stages(switch, rail) == 1:
        return np.broadcast_to(plane // (ports // rail), (planes, rail)).copy()
    return plane * (switch_chassis(switch, rail, planes) // planes) + place // ports


def chassis_ports(switch: OpticalSwitch, rail: int, planes: int, chassis: int) -> np.ndarray:
    """Return plane and place of every port that fails with a chassis, shape [n, 2].

    Notes
    -----
    A port whose light is cut in one direction is down in both. A plane of three stages with m middle switches
    carries any matching of m ports for each edge switch (Clos, Bell Syst. Tech. J. 32, 1953; rearrangeable by
    König's theorem), so with fewer middles the last ports of each full edge go dark.
    """
    first = chassis_of(switch, rail, planes)
    if switch_stages(switch, rail) == 1:
        return np.argwhere(first == chassis)
    ports = switch.usable_ports
    plane, kind = divmod(chassis, switch_chassis(switch, rail, planes) // planes)
    edges = -(-rail // ports)
    if kind < 2 * edges:
        places = np.flatnonzero(np.arange(rail) // ports == kind % edges)
    else:
        held = min(ports // edges, ports - (kind - 2 * edges) * (ports // edges))
        places = np.flatnonzero(np.arange(rail) % ports >= ports - held)
    return np.stack([np.full(places.size, plane), places], axis=1)


def spare_time_s(switch: OpticalSwitch, chassis: Sequence[int]) -> float:
    """Return the time until spare ports have replaced failed ones, whose chassis are given.

    Raises
    ------
    ParameterError
        If a chassis has too few spare ports.
    """
    for number in sorted(set(chassis)):
        wanted = list(chassis).count(number)
        if wanted > switch.spare_ports:
            msg = (
                f"{wanted} ports of switch {number} should be replaced, and '{switch.name}' keeps "
                f"{switch.spare_ports} spare ports (fabric.switch.spare_ports); replace fewer, or repair them"
            )
            raise ParameterError(msg)
    return switch.reconfiguration_s


class SwitchedCircuits(NodeFabric, CircuitFabric, Protocol):
    """Nodes whose circuits pass optical switches in planes, each of which is a network of its own."""

    switch: OpticalSwitch
    optics: LaneOptics

    @property
    @abstractmethod
    def joined(self) -> int:
        """Ends that one plane joins."""
        ...

    @property
    @abstractmethod
    def planes(self) -> int:
        """Planes of the whole fabric."""
        ...

    @property
    @abstractmethod
    def port_chassis(self) -> np.ndarray:
        """Optical switch behind each lane of each port, shape [ports, lanes of a port]."""
        ...

    @cached_property
    def stages(self) -> int:
        """Optical switches that a circuit passes: one, or three in a Clos network."""
        return switch_stages(self.switch, self.joined)

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane.

        Raises
        ------
        LinkError
            If its light does not arrive; names the element that loses most.
        """
        return lane_budget(self.optics, self.switch, self.stages)

    @property
    def switches(self) -> int:
        """Number of optical switches."""
        return switch_chassis(self.switch, self.joined, self.planes)

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports of the switches have replaced failed ports [n]."""
        return spare_time_s(self.switch, self.port_chassis[ports].ravel().tolist())

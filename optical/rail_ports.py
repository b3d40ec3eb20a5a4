"""Ports of circuit-switched rails: whose they are, and which optical switches hold them."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from heliograph.scale_up import ScaleUp
from optical.failed_ports import chassis_of, chassis_ports, check_spares
from optical.switches import OpticalSwitch, switch_chassis


class RailPorts(Protocol):
    """Endpoints with `lanes` ports each; lane l of rail r is on the switches of plane (r, l).

    Notes
    -----
    A port is the switch's with its fibre: light ends there both ways. A spare port of the switch takes its
    place once the fibre has been moved.
    """

    endpoints: int
    scale_up: ScaleUp
    switch: OpticalSwitch
    lanes: int

    @property
    def nodes(self) -> int:
        """Nodes, which is also the endpoints of one rail."""
        ...

    @property
    def node_size(self) -> int:
        """Endpoints that share a node, which is also the rails."""
        ...

    @property
    def ports(self) -> int:
        """Ports that lanes begin and end on."""
        return self.endpoints * self.lanes

    @property
    def port_lanes(self) -> int:
        """Ports of each endpoint: its lanes."""
        return self.lanes

    @property
    def port_owner(self) -> str:
        """Endpoints have the ports."""
        return "endpoint"

    def port_name(self, port: int) -> str:
        """Return what a port is called in messages."""
        return f"port {port % self.lanes} of endpoint {port // self.lanes}"

    @cached_property
    def port_chassis(self) -> np.ndarray:
        """Optical switches whose port each port is, shape [E lanes, 1]."""
        every = np.arange(self.endpoints)
        planes = self.scale_up.rail_of(every)[:, None] * self.lanes + np.arange(self.lanes)
        chassis = chassis_of(self.switch, self.nodes, self.node_size * self.lanes)
        return chassis[planes, self.scale_up.node_of(every)[:, None]].reshape(-1, 1)

    @property
    def switches(self) -> int:
        """Optical switches."""
        return switch_chassis(self.switch, self.nodes, self.node_size * self.lanes)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the ports that are lost with an optical switch, shape [n]."""
        lost = chassis_ports(self.switch, self.nodes, self.node_size * self.lanes, switch)
        endpoints = lost[:, 1] * self.scale_up.size + lost[:, 0] // self.lanes
        ports: np.ndarray = (endpoints * self.lanes + lost[:, 0] % self.lanes)[endpoints < self.endpoints]
        return ports

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports of the switches carry what failed ports [n] did.

        Raises
        ------
        ParameterError
            If a switch has fewer spare ports.
        """
        check_spares(self.switch, self.port_chassis[ports].ravel().tolist())
        return self.switch.reconfiguration_s

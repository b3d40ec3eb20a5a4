"""Which unit of a node runs which operator, and what a run of operators costs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from heliograph.errors import WorkloadError
from heliograph.host import Host
from heliograph.interfaces import ComputeUnit, Cost
from heliograph.memory import Memory
from heliograph.operators import Elementwise, HostWork, MatMul, Transfer


@dataclass(frozen=True, kw_only=True)
class Node:
    """One accelerator: its compute units in order of preference, and the memory they share."""

    name: str
    """Name shown in tables and traces."""
    units: tuple[ComputeUnit, ...]
    """Units; the first that accepts an operator runs it."""
    memory: Memory
    """Memory that all units share; its static power is charged once."""
    peak_flop_per_s: float
    """Rate of matrix products that utilisation refers to."""
    static_parts_w: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Static power by part; must add up to the units' static power."""
    host: Host | None = None
    """Server that carries it, or None where nothing is moved off the accelerator."""

    @cached_property
    def _costs(self) -> dict[MatMul | Elementwise, Cost]:
        return {}

    @property
    def static_w(self) -> float:
        """Power drawn all the time: units and memory, and its share of the host if there is one."""
        host_w = self.host.static_w if self.host else 0.0
        return sum(unit.static_w for unit in self.units) + self.memory.static_w + host_w

    def static_by_part_w(self) -> dict[str, float]:
        """Return the static power by part, which adds up to `static_w`."""
        parts = dict(self.static_parts_w) or {unit.name: unit.static_w for unit in self.units}
        parts |= {"memory static": self.memory.static_w}
        return parts | ({"host static": self.host.static_w} if self.host else {})

    def place(self, operator: MatMul | Elementwise) -> ComputeUnit:
        """Return the unit that runs an operator.

        Raises
        ------
        WorkloadError
            If no unit accepts it.
        """
        for unit in self.units:
            if unit.accepts(operator):
                return unit
        names = ", ".join(unit.name for unit in self.units)
        msg = f"no unit of '{self.name}' ({names}) runs '{operator.name}'; add one that accepts it"
        raise WorkloadError(msg)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run on the unit that takes it."""
        known = self._costs.get(operator)
        if known is None:
            known = self._costs[operator] = self.place(operator).cost(operator)
        return known

    def host_cost(self, operator: Transfer | HostWork) -> Cost:
        """Return time and dynamic energy of what the host does for this accelerator.

        Raises
        ------
        WorkloadError
            If no host is described.
        """
        if self.host is None:
            msg = (
                f"the plan needs a host for '{operator.name}', and '{self.name}' has none described; keep "
                "parameters and optimizer on the accelerator, or describe its host"
            )
            raise WorkloadError(msg)
        return self.host.cost(operator)

"""Schedules of optical circuits for one demand: which policy, how long, how dark, how far from the bound."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heliograph.errors import ParameterError, nearest
from heliograph.files import read_text
from heliograph.paths import replace_at
from optical.scheduling.plant import CircuitPlant
from optical.scheduling.policies import SchedulePolicy, schedule
from optical.scheduling.schedule import CircuitSchedule
from optical.switches import load_optics, load_switch

ALL = "all"
"""Name that stands for every policy."""
MOST_PORTS = 512
"""Most ports of a demand."""
SWITCH = "silicon-photonic-mzi"
"""Switch whose reconfiguration time is the delay where nobody gives one."""
OPTICS = "lane-100g"
"""Transceiver whose line rate a circuit has where nobody gives one."""


def plant_of(switch: str, planes: int, quantities: Mapping[str, str]) -> CircuitPlant:
    """Return switches side by side.

    Parameters
    ----------
    switch : str
        Technology that sets the delay.
    planes : int
        How many.
    quantities : mapping of str to str
        Fields of the plant with a quantity and its unit, instead of the parts' own; empty for those.

    Raises
    ------
    ParameterError
        If there is no such switch, or a quantity cannot be read, or cannot be.
    """
    plant = CircuitPlant(
        rate_bytes_per_s=load_optics(OPTICS).bandwidth_bytes_per_s,
        delay_s=load_switch(switch).reconfiguration_s,
        switches=planes,
    )
    for name, text in quantities.items():
        plant = replace_at(plant, name, text) if text else plant
    return plant


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked, in the user's words."""

    demand: Path
    """CSV of bytes from each input (row) to each output (column)."""
    policy: str = ALL
    """Policies by name, separated by commas, or `ALL`."""
    switch: str = SWITCH
    """Switch technology that sets the delay."""
    delay: str = ""
    """Delay with its unit, instead of the switch's."""
    rate: str = ""
    """Rate of a circuit with its unit, instead of the transceiver's."""
    packet_rate: str = ""
    """Rate of each port into a packet switch with its unit; none if empty."""
    planes: int = 1
    """Circuit switches side by side."""

    def plant(self) -> CircuitPlant:
        """Return the switches.

        Raises
        ------
        ParameterError
            If a quantity cannot be read, or cannot be.
        """
        return plant_of(
            self.switch,
            self.planes,
            {
                "delay_s": self.delay,
                "rate_bytes_per_s": self.rate,
                "packet_rate_bytes_per_s": self.packet_rate,
            },
        )

    def policies(self) -> tuple[SchedulePolicy, ...]:
        """Return the policies, in the order of the list.

        Raises
        ------
        ParameterError
            If there is none of a name.
        """
        wanted = [name.strip() for name in self.policy.split(",") if name.strip()] or [ALL]
        known = [*map(str, SchedulePolicy), ALL]
        for name in wanted:
            if name not in known:
                msg = f"no policy '{name}'; {nearest(name, known, noun='policy')}"
                raise ParameterError(msg)
        return tuple(one for one in SchedulePolicy if ALL in wanted or str(one) in wanted)


def request_of(arguments: argparse.Namespace) -> Request:
    """Return what the command line asks."""
    return Request(
        demand=arguments.demand,
        policy=arguments.policy,
        switch=arguments.switch,
        delay=arguments.delay,
        rate=arguments.rate,
        packet_rate=arguments.packet_rate,
        planes=arguments.planes,
    )


@dataclass(frozen=True, kw_only=True)
class CircuitStudy:
    """One demand under several policies."""

    name: str
    """What the demand is called."""
    plant: CircuitPlant
    """Switches."""
    schedules: tuple[CircuitSchedule, ...]
    """A schedule of each policy."""

    @property
    def best(self) -> CircuitSchedule:
        """The schedule of least makespan."""
        return min(self.schedules, key=lambda one: one.makespan_s)

    def record(self) -> dict[str, Any]:
        """Return the numbers of all schedules as plain data."""
        return {
            "demand": self.name,
            "ports": self.best.ports,
            "demand_bytes": float(self.best.demand.sum()),
            "plant": self.plant,
            "bound_s": self.best.bound_s,
            "best": self.best.policy,
            "policies": [summary(one) for one in self.schedules],
        }


def summary(one: CircuitSchedule) -> dict[str, Any]:
    """Return the numbers of a schedule as plain data."""
    return {
        "policy": one.policy,
        "configurations": one.configurations,
        "makespan_s": one.makespan_s,
        "circuits_s": one.circuit_makespan_s,
        "packets_s": one.packet_s,
        "dark_s": one.configurations * one.delay_s,
        "duty": one.duty,
        "over_bound": one.over_bound,
        "residue_bytes": one.residue_bytes,
    }


def study(request: Request, progress: Callable[[str, int, int], None] | None = None) -> CircuitStudy:
    """Return schedules of a demand from a file.

    Parameters
    ----------
    request : Request
        What is asked.
    progress : callable, optional
        Called with the policy, how many are done, and of how many.

    Raises
    ------
    ParameterError
        If the file holds no demand, or a name or quantity cannot be read.
    """
    policies, plant = request.policies(), request.plant()
    demand = read_demand(request.demand)
    schedules = []
    for index, policy in enumerate(policies):
        if progress is not None:
            progress(str(policy), index, len(policies))
        schedules.append(schedule(demand, policy, plant))
    return CircuitStudy(name=request.demand.stem, plant=plant, schedules=tuple(schedules))


def read_demand(path: Path) -> np.ndarray:
    """Return a demand, shape [N, N], bytes from input (row) to output (column).

    Parameters
    ----------
    path : pathlib.Path
        CSV of N rows of N numbers. A first row of names is skipped, and so is a first column of names.

    Raises
    ------
    ParameterError
        Naming file and line: if a cell is no number or cannot be a demand, or the matrix is not square.
    """
    lines = list(enumerate(csv.reader(read_text(path).splitlines()), start=1))
    rows = [(f"{path.name}:{line}", [cell.strip() for cell in cells]) for line, cells in lines if any(cells)]
    if not rows:
        msg = f"{path.name}: holds no row"
        raise ParameterError(msg)
    if not any(_number(cell) is not None for cell in rows[0][1][1:] or rows[0][1]):
        rows = rows[1:]
    named = len(rows) > 0 and all(_number(cells[0]) is None for _, cells in rows)
    body = [(where, cells[1:] if named else cells) for where, cells in rows]
    size = len(body)
    if size < 2 or size > MOST_PORTS:
        msg = f"{path.name}: holds {size} rows of numbers; a demand has 2 to {MOST_PORTS}"
        raise ParameterError(msg)
    return np.array([_row(where, cells, size) for where, cells in body])


def _row(where: str, cells: Sequence[str], size: int) -> list[float]:
    if len(cells) != size:
        msg = f"{where}: has {len(cells)} numbers, and the file {size} rows; a demand is square"
        raise ParameterError(msg)
    found = []
    for column, cell in enumerate(cells, start=1):
        value = _number(cell)
        if value is None or not math.isfinite(value) or value < 0.0:
            msg = f"{where}: column {column} is '{cell[:40]}'; it must be bytes, finite and at least 0"
            raise ParameterError(msg)
        found.append(value)
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None

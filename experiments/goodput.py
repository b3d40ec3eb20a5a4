"""Goodput of a training job against its size: machines that place it, and failures that stop it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from experiments.fabrics import FABRICS, build_fabric, check_fabric
from heliograph.cubes import TPU_V4
from heliograph.errors import HeliographError, ParameterError
from heliograph.goodput import (
    best_effective_share,
    best_interval_s,
    best_spares,
    fixed_share,
    spared_share,
    spliced_share,
)
from heliograph.paths import parse_assignment, replace_at
from heliograph.reliability import HostReliability, PartReliability, job_mtbf_s, load_hosts, load_parts


class Splicing(StrEnum):
    """What may take the place of a failed host."""

    HOST = "any host"
    """Any healthy host of the machine."""
    CUBE = "any cube"
    """A host takes its cube with it; circuits join any healthy cubes."""
    FIXED = "nothing"
    """A job has a fixed place, which waits for repair."""


SPLICING: Mapping[str, Splicing] = MappingProxyType({"torus": Splicing.FIXED})
"""What fabrics allow that do not reach every host from every other by switches."""
CUBES = "cubes"
"""What the names of fabrics have that join cubes by circuits."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The reliability of everything, as ``--set`` changes it."""

    hosts: HostReliability
    """Hosts, checkpoints and restarts."""
    parts: tuple[PartReliability, ...]
    """Parts of fabrics."""

    @property
    def by_name(self) -> Mapping[str, PartReliability]:
        """The parts by their items on a bill."""
        return {part.name: part for part in self.parts}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One size of job on one fabric."""

    fabric: str
    """The fabric."""
    splicing: Splicing
    """What may take a failed host's place."""
    accelerators: int
    """Accelerators of the job."""
    mtbf_s: float
    """Mean time between its interruptions."""
    hosts_mtbf_s: float
    """The same if only hosts failed."""
    interval_s: float
    """Best time between its checkpoints."""
    effective: float
    """Share of its time that computes what lasts; dimensionless."""
    placed: float
    """Share of the machine that such jobs fill; dimensionless."""
    spares: int
    """Spare hosts of its own that serve it best, without the rest of the machine."""
    spared: float
    """Share of its hosts and these spares that works; dimensionless."""

    @property
    def goodput(self) -> float:
        """Useful part of the whole machine: placed, and computing what lasts."""
        return self.placed * self.effective

    def record(self) -> dict[str, Any]:
        """Return the point as plain data."""
        return dataclasses.asdict(self) | {"splicing": self.splicing.value, "goodput": self.goodput}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    machine: int
    """Accelerators of the machine."""
    fabrics: tuple[str, ...] = tuple(FABRICS)
    """Fabrics."""
    hosts: str = "llama-3"
    """Fleet of hosts."""
    gpu: str = "h100"
    """GPU whose nodes a fabric joins."""
    assignments: tuple[str, ...] = ()
    """Changes of the fleet, each ``path=value``."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Goodput by fabric and size."""

    request: Request
    """What was asked for."""
    fleet: Fleet
    """Its reliability."""
    points: tuple[Point, ...]
    """Fabric after fabric, sizes ascending."""
    refused: tuple[str, ...]
    """Fabrics that cannot join some size, in words."""

    def of(self, fabric: str) -> Sequence[Point]:
        """Return the points of a fabric."""
        return [point for point in self.points if point.fabric == fabric]

    def record(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return {
            "machine": self.request.machine,
            "hosts": dataclasses.asdict(self.fleet.hosts),
            "parts": [dataclasses.asdict(part) for part in self.fleet.parts],
            "points": [point.record() for point in self.points],
            "refused": list(self.refused),
        }


def study(request: Request) -> Study:
    """Return the goodput of jobs of the machine's size, its halves and three quarters of each.

    Raises
    ------
    HeliographError
        If something is unknown or out of range, or no fabric can be built.
    """
    fleet = _fleet(request)
    sizes = _sizes(request.machine, fleet.hosts.accelerators)
    points, refused = [], []
    for name in request.fabrics:
        check_fabric(name)
        for size in sizes:
            try:
                points.append(_point(request, fleet, name, size))
            except HeliographError as error:
                refused.append(f"{name}, {size} accelerators: {error}")
    if not points:
        msg = f"no goodput to tell; {refused[0]}"
        raise ParameterError(msg)
    return Study(request=request, fleet=fleet, points=tuple(points), refused=tuple(refused))


def splicing_of(fabric: str) -> Splicing:
    """Return what may take a failed host's place on a fabric."""
    return Splicing.CUBE if CUBES in fabric else SPLICING.get(fabric, Splicing.HOST)


def placed_share(machine: int, job: int, hosts: HostReliability, splicing: Splicing) -> float:
    """Return the share of a machine that jobs of a size fill.

    Parameters
    ----------
    machine, job : int
        Accelerators of the machine and of a job.
    hosts : HostReliability
        Hosts that fail.
    splicing : Splicing
        What may take their place. Jobs of parts of a cube are placed on hosts within it.
    """
    units, needed = machine // hosts.accelerators, -(-job // hosts.accelerators)
    cube = TPU_V4.nodes_per_cube // hosts.accelerators
    match splicing:
        case Splicing.HOST:
            return spliced_share(units, needed, hosts.availability)
        case Splicing.CUBE if needed > cube and units >= cube:
            share = spliced_share(units // cube, -(-needed // cube), hosts.availability**cube)
            return share * (units // cube * cube) / units * needed / (-(-needed // cube) * cube)
        case _:
            return fixed_share(units, needed, hosts.availability)


def _point(request: Request, fleet: Fleet, name: str, size: int) -> Point:
    hosts, splicing = fleet.hosts, splicing_of(name)
    bill = getattr(build_fabric(name, size, request.gpu), "bill")()  # noqa: B009 - the engine needs no bill
    mtbf_s = job_mtbf_s(hosts, size, bill, fleet.by_name)
    needed = -(-size // hosts.accelerators)
    spares = best_spares(needed, hosts.availability)
    share = best_effective_share(write_s=hosts.write_s, restart_s=hosts.restart_s, mtbf_s=mtbf_s)
    return Point(
        fabric=name,
        splicing=splicing,
        accelerators=size,
        mtbf_s=mtbf_s,
        hosts_mtbf_s=job_mtbf_s(hosts, size, {}, {}),
        interval_s=best_interval_s(hosts.write_s, mtbf_s),
        effective=share,
        placed=placed_share(request.machine, size, hosts, splicing),
        spares=spares,
        spared=spared_share(needed, spares, hosts.availability),
    )


def _fleet(request: Request) -> Fleet:
    fleet = Fleet(hosts=load_hosts(request.hosts), parts=load_parts())
    for text in request.assignments:
        fleet = replace_at(fleet, *parse_assignment(text))
    if request.machine < fleet.hosts.accelerators or request.machine % fleet.hosts.accelerators:
        msg = f"a machine of {request.machine} accelerators must be whole hosts of {fleet.hosts.accelerators}"
        raise ParameterError(msg)
    return fleet


def _sizes(machine: int, host: int) -> list[int]:
    found, size = set[int](), machine
    while size >= host:
        found |= {size, size * 3 // 4}
        size //= 2
    return sorted(one for one in found if one >= host and one % host == 0)

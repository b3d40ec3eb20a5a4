"""Goodput of training under failures: time lost to checkpoints and restarts, and stranded accelerators.

An accelerator is stranded if it works but failed nodes of its domain, cube or ring leave it without a group.
Rates of failure and repair are those of published clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy

from simulator.errors import Bounds, Checked, Count, Efficiency, ParameterError
from simulator.tables import Shelf
from simulator.topology.scale_up import BillItem

Placing = Callable[[np.ndarray], int]
"""Number of nodes in complete groups, by the mask of working nodes, shape [N]."""


def domains(size: int, group: int) -> Placing:
    """Return the placement of groups in switched domains; no group spans two domains.

    Parameters
    ----------
    size : int
        Nodes of a domain (an NVL-72 has 9 of 8 accelerators).
    group : int
        Nodes of a group.

    Raises
    ------
    ParameterError
        If no domain holds a group.
    """
    if not 1 <= group <= size:
        msg = f"a group of {group} nodes does not fit a domain of {size}; take smaller groups"
        raise ParameterError(msg)

    def placed(works: np.ndarray) -> int:
        whole = works.size // size * size  # an incomplete domain is not built
        healthy = works[:whole].reshape(-1, size).sum(axis=1)
        return int((healthy // group * group).sum())

    return placed


def cubes(size: int, group: int) -> Placing:
    """Return the placement of groups in cubes: several whole cubes joined by circuits, or a box of one cube.

    Parameters
    ----------
    size : int
        Nodes of a cube (a cube of TPU v4 has 8 of 8 accelerators).
    group : int
        Nodes of a group. Groups larger than a cube take whole cubes, and a failed node makes its whole cube
        unusable; smaller ones take fixed boxes of a cube, as halves and quarters, and a failed node makes
        only its box unusable.

    Notes
    -----
    Nodes of its cubes that a group does not need, and nodes of a cube outside its boxes, stay unused.
    `cubed_share` is the mean of this placement over independent failures.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433: the cube is the unit in which slices are made up; smaller ones
    lie within it and need no circuit.
    """
    part, whole = min(group, size), -(-group // size)

    def placed(works: np.ndarray) -> int:
        padded = np.pad(works, (0, -works.size % size))  # an incomplete last cube has boxes too
        boxes = padded.reshape(-1, size)[:, : size // part * part].reshape(-1, part).all(axis=1)
        return int(boxes.sum()) // whole * group

    return placed


def ring(hops: int, group: int) -> Placing:
    """Return the placement of groups on a ring whose circuits bypass up to K - 1 failed nodes in a row.

    Parameters
    ----------
    hops : int
        Neighbours that a node reaches in each direction, K.
    group : int
        Nodes of a group, consecutive ones that work.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885.
    """

    def placed(works: np.ndarray) -> int:
        healthy = np.flatnonzero(works)
        if not healthy.size:
            return 0
        gaps = np.diff(healthy, append=healthy[0] + works.size)
        broken = np.flatnonzero(gaps > hops)
        if not broken.size:
            return int(healthy.size // group * group)
        ends = np.diff(broken, prepend=broken[-1] - healthy.size)
        return int((ends // group * group).sum())

    return placed


def stranded_share(works: np.ndarray, placed: Placing) -> float:
    """Return the share of all nodes that work but belong to no group.

    Parameters
    ----------
    works : numpy.ndarray
        Mask of working nodes, shape [N].
    placed : callable
        Placement of the groups.
    """
    return float(works.sum() - placed(works)) / works.size


LEAST_MTBF_S, MOST_MTBF_S = 1.0, 1e15
"""Least and greatest accepted mean time between failures, a second to tens of millions of years; a choice."""
IN_HOST = ("scale-up", "nic")
"""Items of a bill whose failures are already counted in the failure rate of hosts."""


@dataclass(frozen=True, kw_only=True)
class HostReliability(Checked):
    """A fleet of hosts, and how a job on it saves its state and starts again."""

    name: str = "hosts"
    """Name shown in tables."""
    accelerators: Count
    """Accelerators that fail together with their host."""
    mtbf_s: Annotated[float, Bounds(low=LEAST_MTBF_S, high=MOST_MTBF_S)]
    """Mean time of a host between failures that interrupt a job, without failures of the network."""
    availability: Efficiency
    """Share of time that a host is up, 0 to 1."""
    restart_s: float
    """Time from a failure until the job computes again, from its last checkpoint."""
    write_s: float
    """Time that the job waits for each checkpoint."""

    @property
    def mttr_s(self) -> float:
        """Mean time to repair that the availability implies, ``mtbf (1 - a) / a``."""
        return self.mtbf_s * (1.0 - self.availability) / self.availability


@dataclass(frozen=True, kw_only=True)
class PartReliability(Checked):
    """Failure rate of a part of a fabric, named as its item of the bill."""

    name: str = "part"
    """Item of the bill."""
    mtbf_s: Annotated[float, Bounds(low=LEAST_MTBF_S, high=MOST_MTBF_S)]
    """Mean time between failures of a single part."""


def job_mtbf_s(
    hosts: HostReliability,
    accelerators: int,
    bill: Mapping[str, BillItem],
    parts: Mapping[str, PartReliability],
) -> float:
    """Return the mean time between interruptions of a job that every failure stops.

    Parameters
    ----------
    hosts : HostReliability
        Its hosts.
    accelerators : int
        Accelerators of the job.
    bill : mapping of str to BillItem
        Bill of a fabric for these accelerators only; empty to count failures of hosts alone.
    parts : mapping of str to PartReliability
        Failure rates by item; other items of the bill do not fail.

    Notes
    -----
    Rates of independent exponential failures add: ``1 / M = n / mtbf + sum count / mtbf_part``.
    """
    failures_hz = math.ceil(accelerators / hosts.accelerators) / hosts.mtbf_s
    failing = {name: item for name, item in bill.items() if name in parts and name not in IN_HOST}
    failures_hz += math.fsum(item.count / parts[name].mtbf_s for name, item in failing.items())
    return 1.0 / failures_hz


def host_names() -> tuple[str, ...]:
    """Return the fleets of the table."""
    rows = load_hosts.table.rows
    return tuple(row.name for row in rows if row.parameter == "availability")


load_hosts = Shelf(HostReliability, Path(__file__).parent / "parameters" / "reliability.csv")
"""Fleets of hosts, e.g. ``"llama-3"``; their table also holds the parts of `load_parts`."""


def load_parts() -> tuple[PartReliability, ...]:
    """Return the failure rates of the parts of fabrics in the table."""
    table, hosts = load_hosts.table, host_names()
    return tuple(table.build(PartReliability, name) for name in table.names if name not in hosts)


MOST_SPARES = 1.0
"""Most spares that are tried, as a share of the job; dimensionless."""


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return the interval of computing between checkpoints at which `effective_share` is greatest.

    Parameters
    ----------
    write_s : float
        Time of writing a checkpoint; positive.
    mtbf_s : float
        Mean time between interruptions.

    Notes
    -----
    The zero of the derivative, ``tau = M (1 + W(-exp(-1 - w / M)))`` with Lambert's function W on its
    principal branch; Young's interval is its first order in w / M.

    References
    ----------
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006).
    """
    share = float(np.real(scipy.special.lambertw(-math.exp(-1.0 - write_s / mtbf_s))))
    return mtbf_s * (1.0 + share)


def effective_share(interval_s: float, *, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return useful computing over elapsed time of a job that goes on from its last checkpoint.

    Parameters
    ----------
    interval_s : float
        Computing between checkpoints; positive.
    write_s, restart_s : float
        Time of writing a checkpoint, and from a failure until the job computes again.
    mtbf_s : float
        Mean time between interruptions, exponentially distributed.

    Raises
    ------
    ParameterError
        If interval or mean time are not positive.

    Notes
    -----
    Failures may strike during writing and restarting too: ``tau / (M e^(R/M) (e^((tau+w)/M) - 1))``.

    References
    ----------
    Daly, FGCS 22 (2006), eq. 20, the complete model.
    """
    if not (interval_s > 0.0 and mtbf_s > 0.0):
        msg = f"interval ({interval_s:g} s) and mean time between failures ({mtbf_s:g} s) must be positive"
        raise ParameterError(msg)
    exponent = (restart_s / mtbf_s, (interval_s + write_s) / mtbf_s)
    if sum(exponent) > math.log(np.finfo(float).max) / 2:
        return 0.0
    return interval_s / (mtbf_s * math.exp(exponent[0]) * math.expm1(exponent[1]))


def best_effective_share(*, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return `effective_share` at the best interval; its limit ``e^(-R/M)`` for writing in no time."""
    if write_s == 0.0:
        return math.exp(-restart_s / mtbf_s)
    interval_s = best_interval_s(write_s, mtbf_s)
    return effective_share(interval_s, write_s=write_s, restart_s=restart_s, mtbf_s=mtbf_s)


def spliced_share(units: int, needed: int, availability: float) -> float:
    """Return the mean share of a machine's units in jobs, if any healthy units can be joined to a job.

    Parameters
    ----------
    units : int
        Units of the machine, which fail independently: hosts, or cubes that circuits join.
    needed : int
        Units of a job; as many jobs as fit are run.
    availability : float
        Share of time that a unit is up, 0 to 1.

    Notes
    -----
    ``E[k floor(H / k)] / units`` with H binomial.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433 (goodput of slices with optical switches).
    """
    _check_share(units, needed, availability)
    healthy = np.arange(needed, units + 1)
    return float(
        (needed * (healthy // needed) * scipy.stats.binom.pmf(healthy, units, availability)).sum() / units
    )


def fixed_share(units: int, needed: int, availability: float) -> float:
    """Return the mean share of a machine's units in jobs, if every job has fixed units that must all be up.

    Parameters
    ----------
    units, needed, availability
        As for `spliced_share`.
    """
    _check_share(units, needed, availability)
    return needed * (units // needed) / units * availability**needed


def cubed_share(units: int, needed: int, cube: int, availability: float) -> float:
    """Return the mean share of a machine's units in jobs, if jobs take whole cubes or boxes of one cube.

    Parameters
    ----------
    units, needed, availability
        As for `spliced_share`.
    cube : int
        Units of a cube.

    Notes
    -----
    The rule of `cubes`. Boxes have fixed places; a cube is up while all its units are.
    """
    whole, built = -(-needed // cube), units // cube
    if needed > cube and whole > built:
        msg = f"a job of {needed} units takes {whole} whole cubes of {cube}, and there are {built}"
        raise ParameterError(msg)
    _check_share(units, needed, availability)
    if needed <= cube:
        places = units // cube * (cube // needed) + units % cube // needed
        return places * needed / units * availability**needed
    return spliced_share(built, whole, availability**cube) * built / whole * needed / units


def spared_share(needed: int, spares: int, availability: float) -> float:
    """Return the share of a job's units and of its own spares that works.

    Parameters
    ----------
    needed, spares : int
        Units that compute, and units that wait to take the place of failed ones.
    availability : float
        Share of time that a unit is up, 0 to 1.

    Notes
    -----
    ``P(at least k of k + s are up) k / (k + s)``; the job waits while too few are up.
    """
    _check_share(needed + spares, needed, availability)
    return float(scipy.stats.binom.sf(needed - 1, needed + spares, availability)) * needed / (needed + spares)


def best_spares(needed: int, availability: float) -> int:
    """Return the number of spares at which `spared_share` is greatest, the fewest of those."""
    most = max(1, math.ceil(needed * MOST_SPARES))
    tried: np.ndarray[Any, Any] = np.arange(most + 1)
    alive = scipy.stats.binom.sf(needed - 1, needed + tried, availability)
    return int(np.argmax(alive * needed / (needed + tried)))


Placement = Callable[[int, int, float], float]
"""Share of a machine by its units, the units of a job and the availability of a unit."""


def _check_share(units: int, needed: int, availability: float) -> None:
    if not 1 <= needed <= units:
        msg = f"a job of {needed} units does not fit {units}; take 1 to {units}"
        raise ParameterError(msg)
    if not 0.0 <= availability <= 1.0:
        msg = f"availability must be from 0 to 1; got {availability}"
        raise ParameterError(msg)

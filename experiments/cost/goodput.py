"""Goodput of a training job by its size: share of a machine that jobs fill, and time lost to failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.study import Block, Progress, Result, Row, Study, option
from experiments.validation.network_failures import EFFECTIVE, published_shares
from heliograph.figures import PALETTE, REFERENCE, label, new_figure
from heliograph.report import format_si, table_of
from heliograph.systems.fabrics import FABRICS, build_fabric, check_fabric, scale_up_of
from simulator.errors import HeliographError, ParameterError, repeated
from simulator.fabric import Splicing
from simulator.goodput import (
    HostReliability,
    PartReliability,
    best_effective_share,
    best_interval_s,
    best_spares,
    cubed_share,
    fixed_share,
    job_mtbf_s,
    load_hosts,
    load_parts,
    spared_share,
    spliced_share,
)
from simulator.parameter_tree import parse_assignment, replace_all
from simulator.topology.torus import TPU_V4

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Reliability of hosts and parts; ``--set`` changes its numbers."""

    hosts: HostReliability
    """Hosts, checkpoints and restarts."""
    parts: tuple[PartReliability, ...]
    """Parts of fabrics, by item of their bills."""

    @property
    def by_name(self) -> Mapping[str, PartReliability]:
        """Parts by their items of a bill."""
        return {part.name: part for part in self.parts}


@dataclass(frozen=True, kw_only=True)
class Point:
    """Goodput of one size of job on one fabric."""

    fabric: str
    """The fabric."""
    splicing: Splicing
    """Replacement of a failed host."""
    accelerators: int
    """Accelerators of the job."""
    mtbf_s: float
    """Mean time between interruptions of the job."""
    hosts_mtbf_s: float
    """Mean time between interruptions by hosts alone."""
    interval_s: float
    """Best time between checkpoints."""
    effective: float
    """Share of the time spent on work that no failure undoes; dimensionless."""
    placed: float
    """Share of the machine that such jobs fill; dimensionless."""
    spares: int
    """Best number of spare hosts for a job that has no other hosts to move to."""
    spared: float
    """Share of the job's hosts and spares that works with these spares; dimensionless."""

    @property
    def goodput(self) -> float:
        """Useful share of the whole machine: the filled share times the effective time."""
        return self.placed * self.effective


@dataclass(frozen=True, kw_only=True)
class GoodputOf(Study):
    """Goodput of training under failures, by size and fabric."""

    fabric: tuple[str, ...] = option((), "fabric; may be repeated; default: all", metavar="NAME")
    machine: int = option(16384, "accelerators", metavar="N")
    hosts: str = option(
        "llama-3", "how hosts fail (heliograph list devices, reliability.csv)", metavar="NAME"
    )
    gpu: str = option("h100", "GPU whose nodes the fabrics join")
    settings: tuple[str, ...] = option(
        (),
        "hosts.mtbf_s=..., hosts.availability=..., hosts.write_s=..., parts.transceiver.mtbf_s=...",
        flag="--set",
        metavar="PATH=VALUE",
    )

    def run(self, progress: Progress) -> Goodput:
        """Return the goodput of jobs of the size of the machine, its halves, and three quarters of each."""
        scale_up_of(self.gpu)  # an unknown GPU is an error once, not for every fabric
        return goodput(self)


@dataclass(frozen=True, kw_only=True)
class Goodput(Result):
    """Goodput by fabric and size."""

    request: GoodputOf
    """Options of the study."""
    fleet: Fleet
    """Reliability of hosts and parts."""
    points: tuple[Point, ...]
    """Points by fabric, sizes ascending."""
    refused: tuple[str, ...]
    """Sentences on the fabrics that cannot join a size."""

    def of(self, fabric: str) -> Sequence[Point]:
        """Return the points of a fabric."""
        return [point for point in self.points if point.fabric == fabric]

    def record(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return {
            "machine": self.request.machine,
            "hosts": dataclasses.asdict(self.fleet.hosts),
            "parts": [dataclasses.asdict(part) for part in self.fleet.parts],
            "points": self.rows(),
            "refused": self.refused,
        }

    def rows(self) -> list[Row]:
        """Return a row for each fabric and size of job."""
        return [dataclasses.asdict(one) | {"goodput": one.goodput} for one in self.points]

    def report(self) -> list[Block]:
        """Return a table for each fabric, and a sentence on sizes that do not fit."""
        blocks: list[Block] = []
        for fabric in dict.fromkeys(point.fabric for point in self.points):
            title = f"{fabric}: a failed host is replaced by {self.of(fabric)[0].splicing}"
            blocks.append(table_of(title, self.of(fabric), lambda one: f"{one.accelerators:,}", COLUMNS))
        if self.refused:
            blocks.append(f"{len(self.refused)} sizes do not fit their fabric, the first: {self.refused[0]}")
        return blocks

    def figure(self) -> Figure:
        """Return the share of the machine that jobs fill, and their effective time, by size."""
        figure = new_figure(4.1)
        left, right = figure.subplots(1, 2)
        _draw_placed(left, self)
        _draw_effective(right, self)
        for axes, name in ((left, "Machine that jobs fill (%)"), (right, "Effective training time (%)")):
            axes.set(xlabel="Accelerators of a job", ylabel=name)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.tick_params(axis="x", rotation=30)
            axes.grid(visible=True)
        left.legend(loc="lower left", fontsize=6.5, frameon=True, framealpha=1.0, edgecolor="none")
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=6.5)
        return figure


def goodput(request: GoodputOf) -> Goodput:
    """Return the goodput of all sizes on the requested fabrics."""
    fleet = _fleet(request)
    sizes = _sizes(request.machine, fleet.hosts.accelerators)
    points, refused = [], []
    for name in request.fabric or FABRICS:
        check_fabric(name)
        for size in sizes:
            try:
                points.append(_point(request, fleet, name, size))
            except HeliographError as error:
                refused.append(f"{name}, {size} accelerators: {error}")
    if not points:
        msg = f"no goodput to tell; {refused[0]}"
        raise ParameterError(msg)
    return Goodput(request=request, fleet=fleet, points=tuple(points), refused=tuple(refused))


def placed_share(machine: int, job: int, hosts: HostReliability, splicing: Splicing) -> float:
    """Return the share of a machine that jobs of a size fill.

    Parameters
    ----------
    machine, job : int
        Accelerators of the machine and of a job.
    hosts : HostReliability
        Reliability of the hosts.
    splicing : Splicing
        Replacement of failed hosts. Jobs smaller than a cube take a box within one.
    """
    units, needed = machine // hosts.accelerators, -(-job // hosts.accelerators)
    cube = max(1, TPU_V4.nodes_per_cube // hosts.accelerators)  # a host of several cubes fails as one
    match splicing:
        case Splicing.HOST:
            return spliced_share(units, needed, hosts.availability)
        case Splicing.CUBE:
            return cubed_share(units, needed, cube, hosts.availability)
        case Splicing.FIXED:
            return fixed_share(units, needed, hosts.availability)


def _point(request: GoodputOf, fleet: Fleet, name: str, size: int) -> Point:
    hosts, fabric = fleet.hosts, build_fabric(name, size, request.gpu)
    splicing = fabric.traits.splicing
    mtbf_s = job_mtbf_s(hosts, size, fabric.bill(), fleet.by_name)
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


def _fleet(request: GoodputOf) -> Fleet:
    fleet = Fleet(hosts=load_hosts(request.hosts), parts=load_parts())
    changes = [parse_assignment(text) for text in request.settings]
    if (twice := repeated(path for path, _ in changes)) is not None:
        msg = f"--set {twice} is given twice; leave one of them out"
        raise ParameterError(msg)
    fleet = replace_all(fleet, dict(changes))
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


COLUMNS: Mapping[str, Callable[[Point], str]] = MappingProxyType(
    {
        "between stops": lambda one: f"{one.mtbf_s / SECONDS_PER_HOUR:,.1f} h",
        "checkpoint each": lambda one: format_si(one.interval_s, "s"),
        "effective": lambda one: f"{one.effective:.1%}",
        "placed": lambda one: f"{one.placed:.1%}",
        "goodput": lambda one: f"{one.goodput:.1%}",
        "spares": lambda one: f"{one.spares} hosts",
        "with spares": lambda one: f"{one.spared * one.effective:.1%}",
    }
)
"""Columns of the table, which has a row for each size of job."""
SLICES = "goodput at"
"""Beginning of the name of the metric of published shares of a machine."""
SECONDS_PER_HOUR = 3600.0
"""Seconds in an hour."""


def _draw_placed(axes: Any, study: Goodput) -> None:  # noqa: ANN401 - Axes
    machine, hosts = study.request.machine, study.fleet.hosts
    sizes = sorted({point.accelerators for point in study.points})
    for colour, splicing in zip(_POLICY_COLOURS, Splicing, strict=False):
        shares = [100 * placed_share(machine, size, hosts, splicing) for size in sizes]
        axes.plot(sizes, shares, marker=".", color=colour, label=f"replaced by {splicing}")
    chips, fleet = TPU_V4.nodes, load_hosts("tpu-v4-hosts")
    slices = [TPU_V4.nodes_per_cube * cubes for cubes in range(1, TPU_V4.cubes + 1)]
    ideal = [100 * placed_share(chips, size, fleet, Splicing.CUBE) for size in slices]
    name = f"TPU v4, cubes of {chips:,}"
    axes.plot(slices, ideal, color=REFERENCE, linestyle=":", linewidth=0.9, label=name)
    points = [one for one in published_shares() if one.metric.startswith(SLICES)]
    places = [one.accelerators for one in points], [100 * one.share for one in points]
    axes.plot(*places, "x", color=REFERENCE, label="TPU v4, published")
    axes.set_ylim(0, 103)
    axes.set_title(f"Hosts up {hosts.availability:.1%}, machine of {machine:,}", fontsize=8.5)


def _draw_effective(axes: Any, study: Goodput) -> None:  # noqa: ANN401 - Axes
    fabrics = list(dict.fromkeys(point.fabric for point in study.points))
    for index, fabric in enumerate(fabrics):
        points = study.of(fabric)
        shares = [100 * point.effective for point in points]
        sizes = [point.accelerators for point in points]
        style = ("-", "--", ":")[index // len(_FABRIC_COLOURS) % 3]
        width = max(_THINNEST, _BROADEST - _THINNER * index)  # curves that coincide show within each other
        colour = _FABRIC_COLOURS[index % len(_FABRIC_COLOURS)]
        axes.plot(sizes, shares, style, color=colour, linewidth=width, label=label(fabric))
    every = [mark for mark in published_shares() if mark.metric.startswith(EFFECTIVE)]
    sizes = [point.accelerators for point in study.points]
    ends = min(sizes, default=1) / _BESIDE, max(sizes, default=1) * _BESIDE
    known = [mark for mark in every if ends[0] <= mark.accelerators <= ends[1]]
    lower = sorted((mark for mark in known if mark.bound), key=lambda mark: mark.accelerators)
    for mark in known:
        where = (mark.accelerators, 100 * mark.share)
        axes.plot(*where, "^" if mark.bound else "x", color=REFERENCE, markersize=5)
        index = lower.index(mark) if mark.bound else 0
        away = (-14.0 + 8.0 * index, -14.0 - 11.0 * index) if mark.bound else (0.0, 9.0)
        text = {"fontsize": 6.5, "ha": "right" if mark.bound else "center", "va": "center"}
        line = {"arrowstyle": "-", "linewidth": 0.5, "relpos": (1.0, 0.7)}
        axes.annotate(mark.system, where, away, textcoords="offset points", arrowprops=line, **text)
    beyond = f"{len(every) - len(known)} more of other sizes" if len(known) < len(every) else ""
    marks = "Marks: published (\u25b2: at least)" if known else "Published"
    axes.set_title(f"{marks}; {beyond}" if beyond else marks, fontsize=7.5)
    lowest = min((100 * point.effective for point in study.points), default=0.0)
    axes.set_ylim(min(80.0, lowest - 2.0), 101)


_POLICY_COLOURS = (PALETTE[5], PALETTE[8], PALETTE[3])
"""Colours of replacement policies, different from those of fabrics."""
_FABRIC_COLOURS = tuple(colour for colour in PALETTE if colour not in _POLICY_COLOURS)
"""Colours of fabrics."""
_BROADEST, _THINNER, _THINNEST = 3.8, 1.3, 1.1
"""Width of the first fabric's curve, decrease for each next one, and least width; points."""
_BESIDE = 1.5
"""Largest ratio between the size of a shown published job and the sizes of the study; a choice."""

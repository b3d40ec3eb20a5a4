"""Schedules of optical circuits for one demand: which policy, how long, how dark, how far from the bound.

The table, the rows and the picture of circuit schedules: who shines on whom when, and when it is dark.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap
from matplotlib.patches import Patch

from heliograph.records import canonical_json, make_directory, write_atomically
from heliograph.report import ReportRow, format_si, prefix_of, table_text
from heliograph.style import DARK_TIME, PALETTE, REFERENCE, label, new_figure, save, styled
from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.ocs_bank import OcsBank
from optical.scheduling.policies import SchedulePolicy, schedule
from optical.scheduling.schedule import DARK, CircuitSchedule
from simulator.errors import ParameterError, nearest
from simulator.files import read_text
from simulator.parameter_tree import replace_at

ALL = "all"
"""Name that stands for every policy."""
MOST_PORTS = 512
"""Most ports of a demand."""
SWITCH = "silicon-photonic-mzi"
"""Switch whose reconfiguration time is the delay where nobody gives one."""
OPTICS = "lane-100g"
"""Transceiver whose line rate a circuit has where nobody gives one."""


def plant_of(switch: str, planes: int, quantities: Mapping[str, str]) -> OcsBank:
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
    plant = OcsBank(
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

    def plant(self) -> OcsBank:
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
    plant: OcsBank
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
            "plant": {"type": "CircuitPlant"} | dataclasses.asdict(self.plant),  # as records name it
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


BYTES = re.compile(r"[\d.]+(?:e[+-]?\d+)?\s*[kKMGTP]?i?[bB](?:ytes?)?", re.ASCII)
"""A number of bytes with its unit, which a demand does not have: never a name."""


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
    if all(map(_is_name, rows[0][1][1:] or rows[0][1])):
        rows = rows[1:]
    named = len(rows) > 0 and all(_is_name(cells[0]) for _, cells in rows)
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


def _is_name(cell: str) -> bool:
    """Return whether a cell is neither a number nor a number of bytes with a unit."""
    return _number(cell) is None and BYTES.fullmatch(cell) is None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


_IDLE = "#EEEEEE"
_ROW = 0.86
_FEW = 10
_DARKEST = 0.2
_MOST_INCHES = 6.0


def write(study: CircuitStudy, directory: Path) -> tuple[Path, ...]:
    """Write the table, every configuration, the record and the picture into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    table, configurations = directory / "policies.csv", directory / "configurations.csv"
    record = directory / "circuits.json"
    write_atomically(table, _policies_csv(study))
    write_atomically(configurations, _configurations_csv(study))
    write_atomically(record, canonical_json(study.record(), indent=1))
    return (table, configurations, record, *draw(study, directory / "circuits"))


def report(study: CircuitStudy) -> str:
    """Return a table with a line for each policy, and what bounds them."""
    plant, best = study.plant, study.best
    rows = [
        ReportRow(
            label=one.policy,
            values=(
                str(one.configurations),
                format_si(one.makespan_s, "s"),
                f"{100 * one.duty:.1f} %",
                f"{one.over_bound:.3f}",
                format_si(one.residue_bytes, "B"),
                "-" if one.packet_s == 0.0 else format_si(one.packet_s, "s"),
            ),
        )
        for one in study.schedules
    ]
    heads = ("configurations", "makespan", "duty", "over bound", "residue", "its packets")
    planes = "1 switch" if plant.switches == 1 else f"{plant.switches} switches"
    title = (
        f"{label(study.name)}: {best.ports} ports, {format_si(float(best.demand.sum()), 'B')}, {planes}, "
        f"{format_si(plant.rate_bytes_per_s, 'B/s')} a circuit, {format_si(plant.delay_s, 's')} dark"
    )
    packets = ""
    if plant.packet_rate_bytes_per_s:
        packets = f", packets at {format_si(plant.packet_rate_bytes_per_s, 'B/s')} a port beside them"
    bound = f"No schedule takes less than {format_si(best.bound_s, 's')}{packets}. Least: {best.policy}."
    return f"{table_text(title, heads, rows)}\n{bound}\n"


def draw(study: CircuitStudy, path: Path) -> tuple[Path, Path]:
    """Draw the schedule of least makespan over time, a row for each port, and all makespans beside the bound.

    Parameters
    ----------
    study : CircuitStudy
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    best = study.best
    several = len(study.schedules) > 1
    tall = min(0.22 * best.ports * min(best.switches, 3) + 0.6, _MOST_INCHES)
    beside = 0.24 * len(study.schedules) + 0.55 if several else 0.0
    with styled():
        figure = new_figure(tall + beside + 0.9)
        grid = figure.add_gridspec(2 if several else 1, 1, height_ratios=(tall, beside) if several else (1,))
        axes = figure.add_subplot(grid[0])
        _draw_schedule(axes, best)
        if several:
            _draw_makespans(figure.add_subplot(grid[1]), study)
        handles = [
            Patch(color=DARK_TIME, label="Dark: circuits move"),
            Patch(color=_IDLE, label="No circuit"),
        ]
        if best.ports <= _FEW:
            colours = _colours(best.ports)
            handles = [Patch(color=colours(i), label=f"To {i}") for i in range(best.ports)] + handles
        if any(one.packet_s > one.circuit_makespan_s for one in study.schedules):
            handles.append(Patch(color=PALETTE[1], label="Below: packets only"))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=6, handlelength=1.4, columnspacing=1.2
        )
        return save(figure, path)


def _colours(ports: int) -> Colormap:
    """Return a colour for each output: apart where there are few, in order where there are many."""
    if ports <= _FEW:
        return ListedColormap(PALETTE[:ports])
    return ListedColormap(mpl.colormaps["viridis"](np.linspace(_DARKEST, 1.0, ports)))


def _draw_schedule(axes: Axes, one: CircuitSchedule) -> None:
    """Draw each port's circuits on each switch, coloured by output."""
    end_s = max(one.circuit_makespan_s, one.packet_s if math.isfinite(one.packet_s) else 0.0)
    symbol, factor = prefix_of(end_s) if end_s > 0.0 else ("", 1.0)
    colours, lane = _colours(one.ports), _ROW / one.switches
    norm = BoundaryNorm(np.arange(one.ports + 1) - 0.5, one.ports)
    image = None
    axes.set_facecolor("white")
    for switch in range(one.switches):
        mine = np.flatnonzero(one.switch_of == switch)
        ports = np.arange(one.ports)[:, None] - _ROW / 2 + switch * lane
        edges_y = np.concatenate([ports, ports + lane * (0.94 if one.switches > 1 else 1.0)], axis=1).ravel()
        times = np.stack([one.starts_s[mine] - one.delay_s, one.starts_s[mine]], axis=1).ravel()
        edges_x = np.append(times, [one.ends_s[mine[-1]] if len(mine) else 0.0, end_s]) / factor
        if not len(mine):
            edges_x = np.array([0.0, end_s]) / factor
        kinds = np.full((one.ports, len(edges_x) - 1), float(DARK))
        kinds[:, 1 : 2 * len(mine) : 2] = one.permutations[mine].T
        rows = np.full((2 * one.ports - 1, kinds.shape[1]), np.nan)
        rows[::2] = kinds
        moving = np.zeros(kinds.shape, dtype=bool)
        moving[:, 0 : 2 * len(mine) : 2] = True
        layers = (
            (np.where(moving, 1.0, np.nan), ListedColormap([DARK_TIME]), None),
            (np.where(~moving & (kinds == DARK), 1.0, np.nan), ListedColormap([_IDLE]), None),
            (np.where(~moving & (kinds != DARK), kinds, np.nan), colours, norm),
        )
        for values, shades, scale in layers:
            rows[::2] = values
            masked = np.ma.masked_invalid(rows)
            image = axes.pcolormesh(edges_x, edges_y, masked, cmap=shades, norm=scale, rasterized=True)
    if image is not None and one.ports > _FEW:
        bar = axes.figure.colorbar(image, ax=axes, label="Output", pad=0.01, ticks=_ticks(one.ports))
        bar.minorticks_off()
    planes = "" if one.switches == 1 else f" on {one.switches} switches (rows within a row)"
    axes.set_title(
        f"{one.policy}: {one.configurations} configurations{planes}, duty {100 * one.duty:.1f} %, "
        f"{one.over_bound:.2f} of the bound",
        loc="left",
    )
    axes.axvline(one.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    axes.set_xlim(0.0, end_s / factor if end_s > 0.0 else 1.0)
    axes.set_ylim(one.ports - 0.5, -0.5)
    axes.set_yticks(_ticks(one.ports))
    axes.set_ylabel("Input")
    axes.set_xlabel(f"Time ({symbol}s); dashed: the bound")


def _ticks(ports: int) -> list[int]:
    step = max(1, 2 ** math.ceil(math.log2(ports / 16)))
    return list(range(0, ports, step))


def _draw_makespans(axes: Axes, study: CircuitStudy) -> None:
    """Draw each policy's time, split into carrying and dark, and the bound of all."""
    shown = [one for one in study.schedules if math.isfinite(one.makespan_s)]
    symbol, factor = prefix_of(max((one.makespan_s for one in shown), default=0.0) or 1.0)
    places = np.arange(len(shown))
    dark = np.array([_moves_of_busiest(one) * one.delay_s for one in shown])
    whole = np.array([one.circuit_makespan_s for one in shown])
    packets = np.array([max(0.0, one.packet_s - one.circuit_makespan_s) for one in shown])
    axes.barh(places, (whole - dark) / factor, color=PALETTE[0], height=0.7)
    axes.barh(places, dark / factor, left=(whole - dark) / factor, color=DARK_TIME, height=0.7)
    if packets.any():
        left = whole / factor
        axes.barh(places, packets / factor, left=left, color=PALETTE[1], height=0.7)
    axes.axvline(study.best.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    axes.set_yticks(places, [one.policy for one in shown])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"Makespan ({symbol}s): circuits carry, then dark time of the switch that ends last")


def _moves_of_busiest(one: CircuitSchedule) -> int:
    """Return how many configurations the switch has that ends last."""
    if one.configurations == 0:
        return 0
    return int((one.switch_of == one.switch_of[one.ends_s.argmax()]).sum())


def _policies_csv(study: CircuitStudy) -> str:
    stream = io.StringIO()
    rows = [summary(one) for one in study.schedules]
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _configurations_csv(study: CircuitStudy) -> str:
    """Return every configuration of every policy, the outputs of all inputs in one cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["policy", "configuration", "switch", "start_s", "end_s", "outputs"])
    for one in study.schedules:
        cells = zip(one.switch_of, one.starts_s, one.ends_s, one.permutations, strict=True)
        for index, (switch, start, end, row) in enumerate(cells):
            outputs = " ".join("-" if peer == DARK else str(peer) for peer in row.tolist())
            writer.writerow([one.policy, index, int(switch), f"{start:.9g}", f"{end:.9g}", outputs])
    return stream.getvalue()

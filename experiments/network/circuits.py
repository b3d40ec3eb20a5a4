"""Schedules of optical circuits: of a demand here, of a collective and of a step's phases beside."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import Hardware, Workload, changes, one_step
from experiments.network.collective import PLANES, SWITCH, bank_of, plan_collective
from experiments.network.phases import study_phases
from experiments.options import option, refuse_unused
from experiments.study import Block, Progress, Result, Row, Study, file_name
from heliograph.report import format_si, prefix_of, table_of
from heliograph.style import DARK_TIME, PALETTE, REFERENCE, name_rows, new_figure, styled, swatches
from optical.scheduling.policies import SchedulePolicy, applies, schedule
from optical.scheduling.schedule import DARK, CircuitSchedule, OcsBank
from simulator.errors import ParameterError, nearest
from simulator.files import read_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

ALL = "all"
"""Name that stands for every policy."""
MOST_UNASKED_PORTS = 5
"""Ports up to which the exact policy runs without being asked for; of six it may take minutes."""
MOST_PORTS = 512
"""Most ports of a demand."""


def policies_of(text: str) -> tuple[SchedulePolicy, ...]:
    """Return policies by names separated by commas, in the order of the list; none stands for all."""
    wanted = [name.strip() for name in text.split(",") if name.strip()] or [ALL]
    known = [*map(str, SchedulePolicy), ALL]
    for name in wanted:
        if name not in known:
            msg = f"no policy '{name}'; {nearest(name, known, noun='policy')}"
            raise ParameterError(msg)
    return () if ALL in wanted else tuple(one for one in SchedulePolicy if str(one) in wanted)


def schedule_demand(
    path: Path, plant: OcsBank, policy: str = ALL, progress: Progress | None = None
) -> DemandSchedules:
    """Return schedules of a demand from a file, one for each policy.

    Parameters
    ----------
    path : pathlib.Path
        As `read_demand` takes it.
    plant : OcsBank
        Switches.
    policy : str
        Policies by name, separated by commas, or `ALL` that apply: the exact one where it is quick.
    progress : Progress, optional
        Told each policy.
    """
    policies, demand, tell = policies_of(policy), read_demand(path), progress or Progress()
    policies = policies or tuple(
        one
        for one in SchedulePolicy
        if applies(one, len(demand), plant)
        and (one is not SchedulePolicy.EXACT or len(demand) <= MOST_UNASKED_PORTS)
    )
    schedules = []
    for index, one in enumerate(policies):
        tell(str(one), index, len(policies))
        schedules.append(schedule(demand, one, plant))
    return DemandSchedules(name=path.stem, plant=plant, schedules=tuple(schedules))


@dataclass(frozen=True, kw_only=True)
class DemandSchedules(Result):
    """One demand under several policies."""

    name: str
    """Name of the demand."""
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
            "policies": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each policy."""
        return [summary(one) for one in self.schedules]

    def tables(self) -> dict[str, list[Row]]:
        """Return the rows, and every configuration."""
        return {"": self.rows(), "configurations": configuration_rows(self)}

    def report(self) -> list[Block]:
        """Return a table with a line for each policy, and what bounds them."""
        plant, best = self.plant, self.best
        columns: dict[str, Callable[[CircuitSchedule], str]] = {
            "configurations": lambda one: str(one.configurations),
            "makespan": lambda one: format_si(one.makespan_s, "s"),
            "duty": lambda one: f"{100 * one.duty:.1f} %",
            "over bound": lambda one: f"{one.over_bound:.3f}",
            "residue": lambda one: format_si(one.residue_bytes, "B"),
            "its packets": lambda one: "-" if one.packet_s == 0.0 else format_si(one.packet_s, "s"),
        }
        planes = "1 switch" if plant.switches == 1 else f"{plant.switches} switches"
        title = (
            f"{self.name.replace('_', ' ')}: {best.ports} ports, {format_si(float(best.demand.sum()), 'B')}, "
            f"{planes}, {format_si(plant.rate_bytes_per_s, 'B/s')} a circuit, "
            f"reconfiguration {format_si(plant.reconfiguration_s, 's')}"
        )
        packets = ""
        if plant.packet_rate_bytes_per_s:
            packets = f", packets at {format_si(plant.packet_rate_bytes_per_s, 'B/s')} a port beside them"
        bound = f"No schedule takes less than {format_si(best.bound_s, 's')}{packets}. Least: {best.policy}."
        others = [one for one in self.schedules if one.policy != SchedulePolicy.EXACT]
        if best.makespan_s > 0.0 and 0 < len(others) < len(self.schedules):
            near = min(others, key=lambda one: one.makespan_s)
            over = f"{100 * (near.makespan_s / best.makespan_s - 1.0):.1f} %"
            bound += f" It is the least there is; of the others {near.policy} comes nearest, {over} over it."
        return [table_of(title, self.schedules, lambda one: one.policy, columns), bound]

    def figure(self) -> Figure:
        """Return the schedule of least makespan over time, and all makespans beside the bound."""
        best = self.best
        several = len(self.schedules) > 1
        tall = min(0.22 * best.ports * min(best.switches, 3) + 0.6, _MOST_INCHES)
        beside = 0.24 * len(self.schedules) + 0.55 if several else 0.0
        with styled():
            figure = new_figure(tall + beside + 0.9)
            grid = figure.add_gridspec(
                2 if several else 1, 1, height_ratios=(tall, beside) if several else (1,)
            )
            axes = figure.add_subplot(grid[0])
            _draw_schedule(axes, best)
            if several:
                _draw_makespans(figure.add_subplot(grid[1]), self)
            told = {"Dark: circuits move": DARK_TIME, "No circuit": _IDLE}
            if best.ports <= _FEW:
                told = {f"To {port}": colour for port, colour in enumerate(PALETTE[: best.ports])} | told
            if any(one.packet_s > one.circuit_makespan_s for one in self.schedules):
                told["Below: packets only"] = PALETTE[1]
            figure.legend(
                handles=swatches(told),
                loc="outside upper center",
                ncols=6,
                handlelength=1.4,
                columnspacing=1.2,
            )
            return figure


def summary(one: CircuitSchedule) -> dict[str, Any]:
    """Return the numbers of a schedule as plain data."""
    return {
        "policy": one.policy,
        "configurations": one.configurations,
        "makespan_s": one.makespan_s,
        "circuits_s": one.circuit_makespan_s,
        "packets_s": one.packet_s,
        "dark_s": one.configurations * one.reconfiguration_s,
        "duty": one.duty,
        "over_bound": one.over_bound,
        "residue_bytes": one.residue_bytes,
    }


BYTES = re.compile(r"[\d.]+(?:e[+-]?\d+)?\s*[kKMGTP]?i?[bB](?:ytes?)?", re.ASCII)
"""A number of bytes with its unit, which a demand does not have: never a name."""


def read_demand(path: Path) -> np.ndarray:
    """Return a demand, shape [N, N], bytes from input (row) to output (column).

    Parameters
    ----------
    path : pathlib.Path
        CSV of N rows of N numbers. A first row of names is skipped, and so is a first column of names.
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


def _colours(ports: int) -> Colormap:
    """Return a colour for each output: apart where there are few, in order where there are many."""
    import matplotlib as mpl  # noqa: PLC0415 - only to draw
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - only to draw

    if ports <= _FEW:
        return ListedColormap(PALETTE[:ports])
    return ListedColormap(mpl.colormaps["viridis"](np.linspace(_DARKEST, 1.0, ports)))


def _draw_schedule(axes: Axes, one: CircuitSchedule) -> None:
    """Draw each port's circuits on each switch, coloured by output."""
    from matplotlib.colors import BoundaryNorm, ListedColormap  # noqa: PLC0415 - only to draw

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
        times = np.stack([one.starts_s[mine] - one.reconfiguration_s, one.starts_s[mine]], axis=1).ravel()
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


def _draw_makespans(axes: Axes, study: DemandSchedules) -> None:
    """Draw each policy's time, split into carrying and dark, and the bound of all."""
    shown = [one for one in study.schedules if math.isfinite(one.makespan_s)]
    symbol, factor = prefix_of(max((one.makespan_s for one in shown), default=0.0) or 1.0)
    places = np.arange(len(shown))
    dark = np.array([_moves_of_busiest(one) * one.reconfiguration_s for one in shown])
    whole = np.array([one.circuit_makespan_s for one in shown])
    packets = np.array([max(0.0, one.packet_s - one.circuit_makespan_s) for one in shown])
    axes.barh(places, (whole - dark) / factor, color=PALETTE[0], height=0.7)
    axes.barh(places, dark / factor, left=(whole - dark) / factor, color=DARK_TIME, height=0.7)
    if packets.any():
        left = whole / factor
        axes.barh(places, packets / factor, left=left, color=PALETTE[1], height=0.7)
    axes.axvline(study.best.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    name_rows(axes, [one.policy for one in shown])
    axes.set_xlabel(f"Makespan ({symbol}s): circuits carry, then dark time of the switch that ends last")


def _moves_of_busiest(one: CircuitSchedule) -> int:
    """Return how many configurations the switch has that ends last."""
    if one.configurations == 0:
        return 0
    return int((one.switch_of == one.switch_of[one.ends_s.argmax()]).sum())


def configuration_rows(study: DemandSchedules) -> list[Row]:
    """Return every configuration of every policy, the outputs of all inputs in one cell."""
    rows: list[Row] = []
    for one in study.schedules:
        cells = zip(one.switch_of, one.starts_s, one.ends_s, one.permutations, strict=True)
        for index, (switch, start_s, end_s, row) in enumerate(cells):
            outputs = " ".join("-" if peer == DARK else str(peer) for peer in row.tolist())
            rows.append(
                {
                    "policy": one.policy,
                    "configuration": index,
                    "switch": int(switch),
                    "start_s": f"{start_s:.9g}",
                    "end_s": f"{end_s:.9g}",
                    "outputs": outputs,
                }
            )
    return rows


RANKS = 8
"""Ranks of a collective where nobody says how many."""
SYSTEM = "gpu_ocs"
"""System that runs a step where nobody names one."""
_BANK = ("switch", "reconfiguration_s", "rate_bytes_per_s", "planes")
MEANT_FOR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "demand": (*_BANK, "policy", "packet_rate_bytes_per_s"),
        "collective": (*_BANK, "ranks", "size_bytes", "algorithm"),
        "model": ("plan", "system", "accelerators", "settings"),
    }
)
"""Options of each of the three uses."""


@dataclass(frozen=True, kw_only=True)
class Circuits(Study):
    """Schedules of optical circuits for a demand, within a collective, or between the phases of a step."""

    demand: Path | None = option(
        None,
        "bytes from each input (row) to each output (column)",
        metavar="DEMAND.csv",
        positional=True,
    )
    collective: str | None = option(
        None, "all_reduce, reduce_scatter, all_gather, all_to_all", metavar="KIND"
    )
    model: str | None = option(None, "phases of a model's step, by name or a config.json")
    policy: str | None = option(
        None, "policies for a demand, separated by commas; default all", metavar="NAMES"
    )
    packet_rate_bytes_per_s: float | None = option(
        None, "of a port's packets for the rest of a demand; default none", metavar="RATE"
    )
    switch: str | None = option(
        None,
        f"that sets the reconfiguration time of a demand or a collective; default {SWITCH}",
        metavar="NAME",
    )
    reconfiguration_s: float | None = option(None, "instead of the switch's, e.g. 25us", metavar="TIME")
    rate_bytes_per_s: float | None = option(None, "of a circuit, e.g. 50GB/s", metavar="RATE")
    size_bytes: float | None = option(None, "of a rank before a collective; default 1MB", metavar="BYTES")
    algorithm: str | None = option(None, "of a collective; default all", metavar="NAME")
    plan: str | None = option(None, "of a model's step: tp=8,pp=4,dp=2,global_batch=32")
    system: str | None = option(None, f"that runs it; default {SYSTEM}", metavar="NAME")
    planes: int | None = option(None, "switches side by side; default 1 (2 of a collective)", metavar="K")
    ranks: int | None = option(None, f"of the collective; default {RANKS}", metavar="N")
    accelerators: int | None = option(None, "default: what the plan uses", metavar="N")
    settings: tuple[str, ...] = changes("change one number of the system")

    def default_out(self) -> Path:
        """Return a directory named after what is scheduled."""
        collective = f"{self.collective}_{RANKS if self.ranks is None else self.ranks}"
        name = collective if self.collective else self.model or (self.demand.stem if self.demand else "")
        return Path("results") / f"circuits_{file_name(name)}"

    def run(self, progress: Progress) -> Result:
        """Return the schedules of what is asked.

        Raises
        ------
        HeliographError
            If none or several of demand, collective and model are given, or an option of another use.
        """
        uses = {"demand": self.demand, "collective": self.collective, "model": self.model}
        asked = [name for name, value in uses.items() if value is not None]
        if len(asked) != 1:
            got = f"got {' and '.join(asked)}" if asked else "got none of them"
            msg = f"name one of DEMAND.csv, --collective KIND and --model NAME; {got}"
            raise ParameterError(msg)
        given = self._given(asked[0])
        more = {
            name: given.pop(name) for name in ("policy", "ranks", "size_bytes", "algorithm") if name in given
        }
        if self.demand is not None:
            return schedule_demand(self.demand, bank_of(**given), progress=progress, **more)
        if self.collective is not None:
            plant = bank_of(**({"planes": PLANES} | given))
            return plan_collective(self.collective, more.pop("ranks", RANKS), plant, **more)
        result = one_step(
            self.system or SYSTEM,
            Workload(model=self.model or "", plan=self.plan or ""),
            Hardware(settings=self.settings),
            accelerators=self.accelerators,
        )
        return study_phases(result)

    def _given(self, use: str) -> dict[str, Any]:
        """Return the options that are given, all of this use."""
        for name in sorted({name for names in MEANT_FOR.values() for name in names} - {*MEANT_FOR[use]}):
            uses = " or ".join(other for other in MEANT_FOR if name in MEANT_FOR[other])
            own = use == "model" and name == "switch"
            hint = " (--set fabric.switch=NAME changes the system's)" if own else ""
            refuse_unused(self, (name,), f"it is for a {uses}, not for a {use}{hint}")
        values = {name: getattr(self, name) for name in MEANT_FOR[use]}
        return {name: value for name, value in values.items() if value not in (None, ())}

"""The table, the rows and the picture of circuit schedules: who shines on whom when, and when it is dark."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap
from matplotlib.patches import Patch

from experiments.circuits import CircuitStudy, summary
from experiments.plain import canonical_json, make_directory, write_atomically
from experiments.report import ReportRow, format_si, prefix_of, table_text
from experiments.style import DARK_TIME, PALETTE, REFERENCE, label, new_figure, save, styled
from optical.scheduling.schedule import DARK, CircuitSchedule

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

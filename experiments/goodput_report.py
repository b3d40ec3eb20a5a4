"""What `heliograph goodput` shows and writes: tables of points, files, goodput against size as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.goodput import CUBES, Splicing, Study, placed_share
from experiments.plain import canonical_json, csv_text, make_directory, write_atomically
from experiments.report import ReportRow, format_si
from experiments.style import PALETTE, REFERENCE, label, new_figure, save, styled
from experiments.validation.network_failures import EFFECTIVE, published
from heliograph.cubes import TPU_V4
from heliograph.reliability import load_hosts

COLUMNS = ("between stops", "checkpoint each", "effective", "placed", "goodput", "spares", "with spares")
"""Heads of the table."""
SLICES = "goodput at"
"""What the metric of published shares of a machine begins with."""
SECONDS_PER_HOUR = 3600.0
"""Seconds in an hour."""


def point_rows(study: Study, fabric: str) -> list[ReportRow]:
    """Return a row for each size of job on a fabric."""
    return [
        ReportRow(
            label=f"{point.accelerators:,}",
            values=(
                f"{point.mtbf_s / SECONDS_PER_HOUR:,.1f} h",
                format_si(point.interval_s, "s"),
                f"{point.effective:.1%}",
                f"{point.placed:.1%}",
                f"{point.goodput:.1%}",
                f"{point.spares} hosts",
                f"{point.spared * point.effective:.1%}",
            ),
        )
        for point in study.of(fabric)
    ]


def write(study: Study, directory: Path) -> tuple[Path, ...]:
    """Write the points as JSON and CSV, and their picture, to a directory; return the files.

    Raises
    ------
    HeliographError
        If it cannot be made or written.
    """
    make_directory(directory)
    data, table = directory / "goodput.json", directory / "goodput.csv"
    write_atomically(data, canonical_json(study.record(), indent=1) + "\n")
    write_atomically(table, csv_text([point.record() for point in study.points]))
    return (data, table, *draw_goodput(study, directory / "goodput"))


def draw_goodput(study: Study, path: Path) -> tuple[Path, Path]:
    """Draw the share of the machine that jobs fill, and of their time that computes what lasts, by size.

    Parameters
    ----------
    study : Study
        What is drawn.
    path : pathlib.Path
        Where; written as PNG and SVG.
    """
    with styled():
        figure = new_figure(4.1)
        left, right = figure.subplots(1, 2)
        _draw_placed(left, study)
        _draw_effective(right, study)
        for axes, what in ((left, "Machine that jobs fill (%)"), (right, "Effective training time (%)")):
            axes.set(xlabel="Accelerators of a job", ylabel=what)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.tick_params(axis="x", rotation=30)
            axes.grid(visible=True)
        left.legend(loc="lower left", fontsize=6.5, frameon=True, framealpha=1.0, edgecolor="none")
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=6.5)
        return save(figure, path)


def _draw_placed(axes: Any, study: Study) -> None:  # noqa: ANN401 - Axes
    machine, hosts = study.request.machine, study.fleet.hosts
    sizes = sorted({point.accelerators for point in study.points})
    for colour, splicing in zip(PALETTE, Splicing, strict=False):
        shares = [100 * placed_share(machine, size, hosts, splicing) for size in sizes]
        axes.plot(sizes, shares, marker=".", color=colour, label=f"replaced by {splicing}")
    chips, fleet = TPU_V4.nodes, load_hosts("tpu-v4-hosts")
    slices = [TPU_V4.nodes_per_cube * cubes for cubes in range(1, TPU_V4.cubes + 1)]
    ideal = [100 * placed_share(chips, size, fleet, Splicing.CUBE) for size in slices]
    name = f"TPU v4, {CUBES} of {chips:,}"
    axes.plot(slices, ideal, color=REFERENCE, linestyle=":", linewidth=0.9, label=name)
    points = [one for one in published() if one.metric.startswith(SLICES)]
    places = [one.accelerators for one in points], [100 * one.share for one in points]
    axes.plot(*places, "x", color=REFERENCE, label="TPU v4, published")
    axes.set_ylim(0, 103)
    axes.set_title(f"Hosts up {hosts.availability:.1%}, machine of {machine:,}", fontsize=8.5)


def _draw_effective(axes: Any, study: Study) -> None:  # noqa: ANN401 - Axes
    fabrics = list(dict.fromkeys(point.fabric for point in study.points))
    for index, fabric in enumerate(fabrics):
        points = study.of(fabric)
        shares = [100 * point.effective for point in points]
        sizes = [point.accelerators for point in points]
        style = ("-", "--", ":")[index // len(PALETTE) % 3]
        axes.plot(sizes, shares, style, color=PALETTE[index % len(PALETTE)], label=label(fabric))
    known = [one for one in published() if one.metric.startswith(EFFECTIVE)]
    lower = sorted((one for one in known if one.bound), key=lambda one: one.accelerators)
    for one in known:
        where = (one.accelerators, 100 * one.share)
        axes.plot(*where, "^" if one.bound else "x", color=REFERENCE, markersize=5)
        away = (-14.0 + 8.0 * lower.index(one), -14.0 - 11.0 * lower.index(one)) if one.bound else (0.0, 9.0)
        text = {"fontsize": 6.5, "ha": "right" if one.bound else "center", "va": "center"}
        line = {"arrowstyle": "-", "linewidth": 0.5, "relpos": (1.0, 0.7)}
        axes.annotate(one.system, where, away, textcoords="offset points", arrowprops=line, **text)
    axes.set_title("Marks: published (\u25b2: at least)", fontsize=8.5)
    lowest = min((100 * point.effective for point in study.points), default=0.0)
    axes.set_ylim(min(80.0, lowest - 2.0), 101)


def refused_line(refused: Sequence[str]) -> str:
    """Return what could not be built, in a line, or nothing."""
    return f"{len(refused)} sizes do not fit their fabric, the first: {refused[0]}" if refused else ""

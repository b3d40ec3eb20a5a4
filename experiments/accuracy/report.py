"""The table, the rows and the figure of a prediction and its execution."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from experiments.accuracy.prediction import (
    DECIBEL,
    GOAL,
    PROBE_DB,
    Execution,
    Prediction,
    Training,
    product_of,
    standard_error,
)
from heliograph.records import canonical_json, csv_text, make_directory, write_atomically
from heliograph.report import ReportRow, table_text
from heliograph.style import PALETTE, REFERENCE, label, new_figure, styled

PERCENT = 100.0
SHOWN_RANGE = 3000.0
"""Largest over smallest value that a bar shows."""
TABLE_COLUMNS = 6
"""Arithmetics side by side in a table."""
LEGEND_ROWS = 6
"""Most arithmetics whose legend finds room within the axes."""
WIDE_RANGE = 20.0
"""Largest over smallest rise beyond which axes are logarithmic."""
MARKERS = "os^"
"""Of arithmetics; the next where colours repeat."""


def write(found: Prediction, directory: Path, trained: Training) -> tuple[Path, ...]:
    """Write rows, record and figure into a directory; return their paths. Training gives rows of its own.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    table, record = directory / "accuracy.csv", directory / "accuracy.json"
    write_atomically(table, csv_text(rows(found)))
    write_atomically(record, canonical_json(found.record() | {"training": trained.record()}, indent=1))
    written = (table, record, *draw(found, directory / "accuracy"))
    if not trained.accuracies:
        return written
    curves = directory / "training.csv"
    write_atomically(curves, csv_text(trained.rows()))
    return (*written, curves)


def rows(found: Prediction) -> list[dict[str, Any]]:
    """Return one row per arithmetic, model, site and class of errors, with what it is predicted to cost."""
    return [
        {
            "numerics": execution.label,
            "model": found.model,
            "seed": index,
            "site": site,
            "product": product_of(site),
            "error_class": str(name),
            "nats_per_nsr": calibration.coefficient(site, name),
            "nats_per_gain": calibration.first[site],
            "nsr": value,
            "gain": execution.gain[index][site],
            "predicted_by_variance_nats": calibration.coefficient(site, name) * value,
            "all_products_predicted_nats": found.predicted(execution)[index],
            "all_products_executed_nats": execution.rises[index],
            "all_products_predicted_by_variance_nats": found.predicted_even(execution)[index],
            "all_products_executed_by_variance_nats": execution.even[index],
        }
        for execution in found.executions
        for index, calibration in enumerate(found.calibrations)
        for site, classes in execution.nsr[index].items()
        for name, value in classes.items()
    ]


def report(found: Prediction) -> str:
    """Return the tables and the findings as text."""
    losses = [one.clean for one in found.calibrations]
    title = (
        f"Byte-level GPT '{found.model}', {found.steps} steps, {len(losses)} seeds: exact loss "
        f"{statistics.fmean(losses):.3f} nats/byte"
    )
    parts = []
    for first in range(0, max(1, len(found.executions)), TABLE_COLUMNS):
        some = dataclasses.replace(found, executions=found.executions[first : first + TABLE_COLUMNS])
        parts.append(table_text(title, [one.label for one in some.executions], _lines(some)))
    slope, added = statistics.fmean(found.slopes), PERCENT * statistics.fmean(found.additivity)
    spread = PERCENT * standard_error(found.additivity)
    parts.append(
        f"Slope of the loss: {slope:.4f} \u00b1 {standard_error(found.slopes):.4f} decades per dB; the law "
        f"is -0.1. Single products add up to {added:.1f} \u00b1 {spread:.1f} % of all together at "
        f"{PROBE_DB:g} dB."
    )
    limit, ended = found.second_order_limit
    parts.append(
        f"Noise on all products costs what its power says, to {GOAL:.0%}, up to a rise of {limit:.3g} nats"
        f"{'' if ended else ', the loudest tried'}."
    )
    parts += [_verdict(found, execution) for execution in found.executions]
    return "\n".join(parts)


def _lines(found: Prediction) -> list[ReportRow]:
    lines = []
    for index, name in enumerate(found.products):
        c = statistics.fmean(found.coefficients(name))
        cells = tuple(_level(execution.product_nsr(name)) for execution in found.executions)
        text = f"{name}, {c:.3g} nats per NSR"
        lines.append(ReportRow(label=text, values=cells, note="SNR", section=index == 0))

    def line(label: str, cell: Callable[[Execution], str], note: str, *, section: bool = False) -> None:
        cells = tuple(cell(execution) for execution in found.executions)
        lines.append(ReportRow(label=label, values=cells, note=note, section=section))

    line(
        "rise by variance, predicted",
        lambda one: f"{statistics.fmean(found.predicted_even(one)):.5f}",
        "nats/byte",
        section=True,
    )
    line(
        "  executed, with mirror images",
        lambda one: f"{statistics.fmean(one.even):.5f} \u00b1 {one.even_error:.5f}",
        "s.e. of draws",
    )
    line(
        "  residual",
        lambda one: (
            f"{PERCENT * found.residual(one):+.1f} \u00b1 {PERCENT * found.residual_error(one):.1f} %"
        ),
        f"goal {PERCENT * GOAL:.0f} %",
    )
    line(
        "  if errors were all drawn anew",
        lambda one: f"{PERCENT * found.white_residual(one):+.1f} %",
        "residual",
    )
    line("rise in all, predicted", lambda one: f"{statistics.fmean(found.predicted(one)):+.5f}", "with gains")
    line(
        "  executed",
        lambda one: f"{statistics.fmean(one.rises):+.5f} \u00b1 {one.rise_error:.5f}",
        "s.e. of draws",
    )
    return lines


def _verdict(found: Prediction, execution: Execution) -> str:
    miss, error = found.residual(execution), found.residual_error(execution)
    if not error <= GOAL or not math.isfinite(miss):
        return f"{execution.label}: the residual is not resolved to {GOAL:.0%}; ask for more seeds."
    hit = "within" if abs(miss) <= GOAL else "outside"
    return f"{execution.label}: predicted {hit} {GOAL:.0%} of what was executed."


def _level(nsr: float) -> str:
    return f"{-DECIBEL * math.log10(nsr):.1f} dB" if nsr > 0.0 else "exact"


def draw(found: Prediction) -> Figure:
    """Draw the law, the shares of the products, and the prediction against the execution.

    Parameters
    ----------
    found : Prediction
        What to draw.
    """
    with styled():
        figure = new_figure(5.6)
        grid = figure.add_gridspec(2, 2)
        _draw_law(figure.add_subplot(grid[0, 0]), found)
        _draw_products(figure.add_subplot(grid[0, 1]), found)
        _draw_residual(figure.add_subplot(grid[1, :]), found)
        return figure


def _draw_law(axes: Axes, found: Prediction) -> None:
    levels = sorted(found.calibrations[0].together)
    curves = [[statistics.fmean(one.together[db]) for db in levels] for one in found.calibrations]
    mean = [statistics.fmean(values) for values in zip(*curves, strict=True)]
    low, high = ([pick(values) for values in zip(*curves, strict=True)] for pick in (min, max))
    axes.fill_between(levels, low, high, color=PALETTE[0], alpha=0.2, linewidth=0.0)
    axes.plot(levels, mean, "o-", color=PALETTE[0], markersize=3.5, label="all products noisy")
    c = math.fsum(statistics.fmean(found.coefficients(name)) for name in found.products)
    law = [c * 10.0 ** (-db / DECIBEL) for db in levels]
    axes.plot(levels, law, "--", color=REFERENCE, linewidth=0.9, label="sum of single products")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("signal to noise of every product (dB)")
    axes.set_ylabel("rise of the loss (nats/byte)")
    axes.set_title("The loss goes with the noise's power")
    axes.grid(visible=True)
    axes.legend()


def _draw_products(axes: Axes, found: Prediction) -> None:
    names = found.products
    largest = max(statistics.fmean(found.coefficients(name)) for name in names)
    for index, name in enumerate(names):
        values = found.coefficients(name)
        error = standard_error(values)
        axes.barh(index, max(statistics.fmean(values), largest / SHOWN_RANGE), color=PALETTE[0], height=0.65)
        if math.isfinite(error):
            axes.errorbar(
                statistics.fmean(values), index, xerr=error, color=REFERENCE, capsize=2, linewidth=0.8
            )
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(largest / SHOWN_RANGE, 2.0 * largest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("rise (nats/byte) per unit of noise to signal")
    axes.set_title("What each product's noise costs")


def _draw_residual(axes: Axes, found: Prediction) -> None:
    points = [value for one in found.executions for value in (*found.predicted_even(one), *one.even)]
    for index, execution in enumerate(found.executions):
        y = execution.even
        axes.errorbar(
            found.predicted_even(execution),
            y,
            yerr=execution.even_error * math.sqrt(len(y)),
            fmt=MARKERS[index // len(PALETTE) % len(MARKERS)],
            markersize=4,
            capsize=2,
            linewidth=0.8,
            color=PALETTE[index % len(PALETTE)],
            label=_residual_label(found, execution),
        )
    wide = bool(points) and min(points) > 0.0 and max(points) > WIDE_RANGE * min(points)
    ends = [min(points) / 1.3 if wide else 0.0, 1.15 * max(points, default=1.0)]
    if wide:
        for scale, axis in ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis)):
            scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.plot(ends, ends, color=REFERENCE, linewidth=0.9, linestyle="--")
    low, high = ([bound * (1.0 + sign * GOAL) for bound in ends] for sign in (-1, 1))
    axes.fill_between(ends, low, high, color=PALETTE[9], alpha=0.3, linewidth=0.0)
    axes.set_xlabel("predicted rise by the errors' variance (nats/byte)")
    axes.set_ylabel("executed (nats/byte)")
    axes.set_title(f"Predicted, then executed: one point per seed; band: {GOAL:.0%}")
    if len(found.executions) > LEGEND_ROWS:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, fontsize="small")
    elif found.executions:
        axes.legend(loc="upper left")


def _residual_label(found: Prediction, execution: Execution) -> str:
    miss, error = PERCENT * found.residual(execution), PERCENT * found.residual_error(execution)
    spread = f" \u00b1 {error:.1f}" if math.isfinite(error) else ""
    return f"{label(execution.label)}, {miss:+.1f}{spread} %"

"""Report of the loss that a core's noise costs: predicted from a calibration, executed, and trained."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.accuracy.prediction import (
    GOAL,
    LEARNT,
    PROBE_DB,
    Effort,
    Execution,
    Prediction,
    Training,
    converter_ladder,
    predict_and_execute,
    product_of,
    standard_error,
    train_in_mode,
    with_electronic,
)
from experiments.hardware import CROSSBAR, Hardware
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.small_gpt import system_arithmetic, transformer_of
from heliograph.figures import PALETTE, REFERENCE, label, new_figure, plain_ticks
from heliograph.processes import of_part
from heliograph.report import ReportRow, ReportTable
from optical.execution import Mode
from simulator.errors import ParameterError
from simulator.units import db_from_ratio, ratio_from_db

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERCENT = 100.0
SHOWN_RANGE = 3000.0
"""Largest ratio of two bars; smaller values are drawn at its end."""
TABLE_COLUMNS = 6
"""Most arithmetics side by side in a table."""
LEGEND_ROWS = 6
"""Most arithmetics whose legend fits within the axes."""
WIDE_RANGE = 20.0
"""Ratio of the largest to the smallest rise beyond which axes are logarithmic."""
MARKERS = "os^"
"""Markers of arithmetics; the next one is used when colours repeat."""


def _execution_rows(found: Prediction, execution: Execution, seed: int) -> list[dict[str, Any]]:
    """Return a row for each site and class of errors of one arithmetic on one model."""
    calibration = found.calibrations[seed]
    of_model = {"numerics": execution.label, "model": found.model, "seed": seed}
    of_all_products = {
        "all_products_predicted_nats": found.predicted(execution)[seed],
        "all_products_executed_nats": execution.rises[seed],
        "all_products_predicted_by_variance_nats": found.predicted_variance_rises(execution)[seed],
        "all_products_executed_by_variance_nats": execution.variance_rises[seed],
    }
    rows = []
    for site, classes in execution.nsr[seed].items():
        for error_class, nsr in classes.items():
            coefficient = calibration.coefficient(site, error_class)
            own = {
                "site": site,
                "product": product_of(site),
                "error_class": str(error_class),
                "nats_per_nsr": coefficient,
                "nats_per_gain": calibration.first[site],
                "nsr": nsr,
                "gain": execution.gain[seed][site],
                "predicted_by_variance_nats": coefficient * nsr,
            }
            rows.append(of_model | own | of_all_products)
    return rows


def _lines(found: Prediction) -> list[ReportRow]:
    lines = []
    for index, name in enumerate(found.products):
        c = statistics.fmean(found.coefficients(name))
        cells = tuple(_level(execution.product_nsr(name)) for execution in found.executions)
        text = f"{name}, {c:.3g} nats per NSR"
        lines.append(ReportRow(text, cells, "SNR", section=index == 0))

    def line(label: str, cell: Callable[[Execution], str], note: str, *, section: bool = False) -> None:
        cells = tuple(cell(execution) for execution in found.executions)
        lines.append(ReportRow(label, cells, note, section=section))

    line(
        "rise by variance, predicted",
        lambda one: f"{statistics.fmean(found.predicted_variance_rises(one)):.5f}",
        "nats/byte",
        section=True,
    )
    line(
        "  executed, with mirror images",
        lambda one: f"{statistics.fmean(one.variance_rises):.5f} \u00b1 {one.variance_error:.5f}",
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
        "  to second order alone",
        lambda one: f"{PERCENT * found.second_order_residual(one):+.1f} %",
        "residual",
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
    return f"{-db_from_ratio(nsr):.1f} dB" if nsr > 0.0 else "exact"


def _draw_law(axes: Axes, found: Prediction) -> None:
    levels = sorted(found.calibrations[0].together)
    curves = [[statistics.fmean(one.together[db]) for db in levels] for one in found.calibrations]
    mean = [statistics.fmean(values) for values in zip(*curves, strict=True)]
    low, high = ([pick(values) for values in zip(*curves, strict=True)] for pick in (min, max))
    axes.fill_between(levels, low, high, color=PALETTE[0], alpha=0.2, linewidth=0.0)
    axes.plot(levels, mean, "o-", color=PALETTE[0], markersize=3.5, label="all products noisy")
    c = math.fsum(statistics.fmean(found.coefficients(name)) for name in found.products)
    law = [c * ratio_from_db(-db) for db in levels]
    axes.plot(levels, law, "--", color=REFERENCE, linewidth=0.9, label="sum of single products")
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
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
    plain_ticks(axes.xaxis)
    axes.set_xlabel("rise (nats/byte) per unit of noise to signal")
    axes.set_title("What each product's noise costs")


def _draw_residual(axes: Axes, found: Prediction) -> None:
    points = [
        value
        for one in found.executions
        for value in (*found.predicted_variance_rises(one), *one.variance_rises)
    ]
    for index, execution in enumerate(found.executions):
        y = execution.variance_rises
        axes.errorbar(
            found.predicted_variance_rises(execution),
            y,
            yerr=execution.variance_error * math.sqrt(len(y)),
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
            plain_ticks(axis)
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


@dataclass(frozen=True, kw_only=True)
class Predicted(Result):
    """Predicted and executed rises of the loss, and training with the same noise."""

    found: Prediction
    """Prediction and execution."""
    trained: Training
    """Training, if any was asked for."""

    def report(self) -> list[Block]:
        """Return tables of products and rises, sentences on the law and each arithmetic, and the training."""
        found = self.found
        losses = [one.clean for one in found.calibrations]
        origin = f"{found.steps} steps" if found.steps else "as it ships"
        title = (
            f"Byte-level GPT '{found.model}', {origin}, {len(losses)} seeds: exact loss "
            f"{statistics.fmean(losses):.3f} nats/byte"
        )
        parts: list[Block] = []
        for first in range(0, max(1, len(found.executions)), TABLE_COLUMNS):
            some = dataclasses.replace(found, executions=found.executions[first : first + TABLE_COLUMNS])
            parts.append(ReportTable(title, [one.label for one in some.executions], _lines(some)))
        slope, added = statistics.fmean(found.slopes), PERCENT * statistics.fmean(found.additivity)
        spread = PERCENT * standard_error(found.additivity)
        parts.append(
            f"Slope of the loss: {slope:.4f} \u00b1 {standard_error(found.slopes):.4f} decades per dB; the "
            f"law is -0.1. Single products add up to {added:.1f} \u00b1 {spread:.1f} % of all together at "
            f"{PROBE_DB:g} dB."
        )
        limit, ended = found.second_order_limit
        parts.append(
            f"Noise on all products costs what its power says, to {GOAL:.0%}, up to a rise of {limit:.3g} "
            f"nats{'' if ended else ', the loudest tried'}."
        )
        parts += [_verdict(found, execution) for execution in found.executions]
        return [*parts, *self.trained.report()]

    def record(self) -> dict[str, Any]:
        """Return both as plain data."""
        return self.found.record() | {"training": self.trained.record()}

    def rows(self) -> list[Row]:
        """Return a row for each arithmetic, model, site and class of errors: its noise and predicted rise."""
        return [
            row
            for execution in self.found.executions
            for seed in range(len(self.found.calibrations))
            for row in _execution_rows(self.found, execution, seed)
        ]

    def tables(self) -> dict[str, list[Row]]:
        """Return the rows, and a table of every validation of the trainings."""
        curves = {"training": self.trained.rows()} if self.trained.accuracies else {}
        return {"": self.rows()} | curves

    def figure(self) -> Figure:
        """Return the law, the coefficients of products, and executed over predicted rises."""
        figure = new_figure(5.6)
        grid = figure.add_gridspec(2, 2)
        _draw_law(figure.add_subplot(grid[0, 0]), self.found)
        _draw_products(figure.add_subplot(grid[0, 1]), self.found)
        _draw_residual(figure.add_subplot(grid[1, :]), self.found)
        return figure


@dataclass(frozen=True, kw_only=True)
class Predict(Study):
    """Loss that a core's noise costs, predicted and executed."""

    directory = "accuracy"

    system: tuple[str, ...] = option(
        (),
        "systems by name (photonic_packet:ring_bank), or TOML files, separated by commas; default "
        f"{CROSSBAR}",
        metavar="NAMES",
        commas=True,
    )
    mode: Mode = option(
        Mode.INFERENCE,
        "inference: noise on a clean model; aware: train with noisy forward products, too; hardware: train "
        "with all products noisy",
    )
    electronic: tuple[str, ...] = option(
        (),
        "products that stay electronic and exact: head, or several of qkv, scores, values, projection, up, "
        "down, head",
        metavar="PRODUCTS",
        commas=True,
    )
    converters: bool = option(
        False, "execute also the first core's output and operand converters alone, from 8 to 4 bits"
    )
    model: str = option(
        "small", "small, deep, tiny, narrow or wide, trained first; or learnt, which ships with its weights"
    )
    steps: int | None = option(None, "updates of every training run", metavar="N")
    seeds: int | None = option(None, "models, each with its own draws", metavar="K")
    seed: int = option(0, "first seed")
    quick: bool = option(False, "shorter training, fewer draws and seeds")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Predicted:
        """Return the prediction, its execution, and training in the mode that is asked for."""
        if self.model == LEARNT and self.mode is not Mode.INFERENCE:
            msg = f"--mode {self.mode} trains from the start, '{LEARNT}' ships with its weights; drop one"
            raise ParameterError(msg)
        effort = Effort.asked(
            quick=self.quick, model=self.model, steps=self.steps, seeds=self.seeds, first_seed=self.seed
        )
        systems = [self.hardware.system(name) for name in self.system or (self.hardware.crossbar,)]
        self.hardware.refuse_beside_products(systems)
        systems = self.hardware.lit_for(systems, transformer_of(self.model))
        known = {one.label: one for one in map(system_arithmetic, systems)}
        arithmetics = with_electronic(known.values(), self.electronic)
        ladder = converter_ladder(known.values()) if self.converters else ()
        return Predicted(
            found=predict_and_execute(
                (*arithmetics, *with_electronic(ladder, self.electronic)),
                effort=effort,
                cache=progress.training,
                progress=of_part(progress, "clean model"),
            ),
            trained=train_in_mode(
                arithmetics,
                mode=self.mode,
                effort=effort,
                cache=progress.training,
                progress=of_part(progress, "training"),
            ),
        )

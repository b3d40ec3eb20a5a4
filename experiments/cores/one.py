"""Command ``heliograph core``: one photonic core's energy by stage, precision by cause, and sensitivities.

The reference work is one linear layer of Llama 3 8B in training: its forward product and both gradients. The
parts of the file, in order: signal over noise over laser power, energy by stage, the change by each parameter
(a tornado chart), figures, the tables of the terminal and of files, the HTML page, and the command.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import Replaced, changes
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.precision import ROWS, PrecisionRow, model_products, precision_table
from heliograph.figures import (
    ENDS,
    PALETTE,
    REFERENCE,
    Ends,
    draw_ends,
    label,
    legend_below_or_above,
    linear_width,
    new_figure,
    plain_ticks,
    signed_ticks,
)
from heliograph.parameters import Parameter, parameters_of
from heliograph.report import ReportRow, ReportTable, format_quantity, format_si, prefix_of, table_of
from heliograph.report_page.drawings import Bar, Drawing, Line, Span, bars, colour, lines, spans
from heliograph.report_page.page import (
    DERIVED,
    Cell,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    parameter_formulas,
    part_inputs,
    sheet_of,
    told_sheet,
)
from heliograph.systems import System, build_system
from heliograph.systems.names import DEFAULT_OPERANDS
from heliograph.systems.sanity_checks import check_buildable, light_limits, limits_told
from optical.cores import load_core
from optical.cores.sizing import LASER, core_precision
from optical.execution.precision import CLIPPING, LOADING, MISREAD, READOUT, ROUNDING, UNLIKE
from optical.execution.spec import ENCODING
from optical.noise.link_budget import FLUCTUATION, RECEIVER, SHOT, LightBudget
from simulator.errors import HeliographError, LinkError, ParameterError
from simulator.operands.statistics import OperandKind, Precision
from simulator.operators import Held, MatMul, Phase
from simulator.parameter_tree import get_at, replace_at
from simulator.units import db_from_ratio, to_si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from electronic.gpu import Gpu
    from optical.accelerator import PhotonicUnit
    from optical.cores.core import Core


SPAN_DECADES = 2.5
"""Decades of laser power to either side of the present one; a choice."""
POINTS = 51
"""Powers that are tried; odd, so that the present one is among them."""


TOKENS = 8192
"""Default number of tokens of the layer, which is how often a weight is used; a choice."""
INPUTS = 4096
"""Inputs of the layer: the hidden width of Llama 3 8B; a choice."""
OUTPUTS = 14336
"""Outputs of the layer: the feed-forward width of Llama 3 8B; a choice."""
PHASES = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
"""The three products of a layer."""
PICOJOULE, MILLIWATT = to_si("energy_j", 1.0, "pJ"), to_si("power_w", 1.0, "mW")
"""Units in which energy per multiply-accumulate and laser power are shown."""


@dataclass(frozen=True, kw_only=True)
class SnrCurve:
    """Signal-to-noise ratio of a layer's products over laser power."""

    name: str
    """Name of the core."""
    operands: OperandKind
    """Statistics of the operands."""
    power_w: tuple[float, ...]
    """Laser powers, of a line or of the whole laser as the core counts it."""
    snr_db: tuple[float | None, ...]
    """Ratio with all noise at each power; None where the core does not work."""
    limits: dict[str, tuple[float, ...]]
    """Ratio with one cause of noise alone, dB, by cause and power; NaN where the core does not work."""
    present_w: float
    """Present laser power."""
    present: Precision
    """Precision at the present power."""


def layer_precision(core: Core, operands: OperandKind, tokens: int = TOKENS) -> Precision:
    """Return the precision of the three products of a layer together."""
    products = [one for product in model_products(layer_products(tokens)) for one in product.on(operands)]
    return core_precision(core, products)


def snr_curve(core: Core, operands: OperandKind, tokens: int = TOKENS) -> SnrCurve:
    """Return signal over noise over laser power, `SPAN_DECADES` to either side of the present one."""
    present_w = float(get_at(core, LASER))
    power_w = tuple(
        float(present_w * 10.0**place) for place in np.linspace(-SPAN_DECADES, SPAN_DECADES, POINTS)
    )
    found = [_precision_at(core, operands, tokens, power) for power in power_w]
    causes = dict.fromkeys(cause for one in found if one is not None for cause in one.noise)
    return SnrCurve(
        name=core.name,
        operands=operands,
        power_w=power_w,
        snr_db=tuple(None if one is None else one.snr_db for one in found),
        limits={cause: tuple(_limit(one, cause) for one in found) for cause in causes},
        present_w=present_w,
        present=layer_precision(core, operands, tokens),
    )


def _precision_at(core: Core, operands: OperandKind, tokens: int, power_w: float) -> Precision | None:
    try:
        return layer_precision(replace_at(core, LASER, power_w), operands, tokens)
    except LinkError:
        return None


def _limit(found: Precision | None, cause: str) -> float:
    """Return the ratio with one cause of noise alone, dB; NaN if the core fails or lacks that cause."""
    noise = 0.0 if found is None else found.noise.get(cause, 0.0)
    return -db_from_ratio(noise) if noise > 0.0 else math.nan


STAGES = MappingProxyType(
    {
        "laser": ("laser", "amplifier"),
        "modulator and DAC": ("modulator", "dac"),
        "detector and amplifier": ("photodetector", "tia", "integrator", "readout"),
        "ADC and adder": ("gain stage", "adc", "adder"),
        "static hold": ("ring tuning", "phase hold", "modulator bias"),
        "loading": ("reload", "programming", "decomposition"),
        "number format": ("number format", "scaling", "operand transform", "outlier channels"),
        "buffer": ("sram", "sram leakage", "wires", "serialiser", "die links"),
        "rest of the chip": ("control", "clock", "calibration", "regulators", "overhead"),
        "memory": ("hbm", "hbm static"),
    }
)
"""Stages on the way of a product through the accelerator, each with its parts of the energy."""
OTHER = "other"
"""Stage of the parts that are in none of `STAGES`."""


@dataclass(frozen=True, kw_only=True)
class PhaseEnergy:
    """Energy and time of one of a layer's three products."""

    phase: Phase
    """Phase of the product."""
    time_s: float
    """Time of the accelerator."""
    macs: int
    """Multiply-accumulates."""
    j_per_mac_by_part: dict[str, float]
    """Energy per multiply-accumulate by part, static power included."""

    @property
    def j_per_mac(self) -> float:
        """Energy per multiply-accumulate."""
        return math.fsum(self.j_per_mac_by_part.values())

    @property
    def j_per_mac_by_stage(self) -> dict[str, float]:
        """Energy per multiply-accumulate by stage, in the order of `STAGES`, without stages of no energy."""
        found = dict.fromkeys((*STAGES, OTHER), 0.0)
        for part, energy_j in self.j_per_mac_by_part.items():
            found[next((stage for stage, parts in STAGES.items() if part in parts), OTHER)] += energy_j
        return {stage: energy_j for stage, energy_j in found.items() if energy_j}


def layer_products(tokens: int = TOKENS) -> tuple[MatMul, ...]:
    """Return the three products of a linear layer in the order of `PHASES`."""
    if tokens < 1:
        msg = f"tokens ({tokens}) must be at least 1"
        raise ParameterError(msg)
    shapes = ((tokens, INPUTS, OUTPUTS), (tokens, OUTPUTS, INPUTS), (INPUTS, tokens, OUTPUTS))
    return tuple(
        MatMul(
            name="linear",
            phase=phase,
            batch=1,
            m=m,
            k=k,
            n=n,
            held=Held.NONE if phase is Phase.GRAD_WEIGHT else Held.B,
        )
        for phase, (m, k, n) in zip(PHASES, shapes, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A photonic accelerator with one kind of core, and the GPU that it replaces."""

    name: str
    """Name of the core."""
    unit: PhotonicUnit
    """Matrix unit with as many cores as the basis allows."""
    gpu: Gpu
    """The GPU that it replaces."""
    tokens: int
    """Tokens of the layer."""

    def energies(self) -> tuple[PhaseEnergy, ...]:
        """Return energy and time of the three products."""
        return tuple(phase_energy(self.unit, product) for product in layer_products(self.tokens))

    def gpu_j_per_mac(self) -> float:
        """Return the GPU's energy per multiply-accumulate of the same three products."""
        products = layer_products(self.tokens)
        costs = [self.gpu.cost(product) for product in products]
        dynamic_j = math.fsum(math.fsum(cost.energy_j.values()) for cost in costs)
        static_j = self.gpu.static_w * math.fsum(cost.time_s for cost in costs)
        return (dynamic_j + static_j) / sum(product.macs for product in products)


def bench(
    name: str,
    *,
    assignments: Sequence[str] = (),
    gpu: str = "h100",
    basis: str = "power",
    tokens: int = TOKENS,
) -> Bench:
    """Return the accelerator of a core, as `heliograph step` would build it.

    Parameters
    ----------
    name : str
        Core by name (`optical.cores.CORES`).
    assignments : sequence of str
        Changes ``path=value``, as `build_system` takes them.
    gpu, basis : str
        GPU that is replaced, and basis of the accelerator's size: power, area or count.
    tokens : int
        Tokens of the layer.
    """
    load_core(name)
    layer_products(tokens)
    system = build_system(
        "photonic_packet", core=name, accelerators=1, gpu=gpu, basis=basis, assignments=assignments
    )
    return Bench(name=name, unit=photonic_unit(system), gpu=system.gpu, tokens=tokens)


def photonic_unit(system: System) -> PhotonicUnit:
    """Return the matrix unit of a system's photonic accelerators."""
    if system.photonic is None:
        msg = f"system '{system.name}' has no photonic unit"
        raise ParameterError(msg)
    return system.photonic


def phase_energy(unit: PhotonicUnit, product: MatMul) -> PhaseEnergy:
    """Return energy and time of one product on an accelerator that does nothing else meanwhile.

    Parameters
    ----------
    unit : PhotonicUnit
        Matrix unit; its static power and that of its memory are charged over the product's time.
    product : MatMul
        The product.
    """
    cost = unit.cost(product)
    parts = dict(cost.energy_j)
    idle_w = unit.static_parts_w() | {"hbm static": unit.memory.static_w}
    for part, power_w in idle_w.items():
        parts[part] = parts.get(part, 0.0) + power_w * cost.time_s
    return PhaseEnergy(
        phase=product.phase,
        time_s=cost.time_s,
        macs=product.macs,
        j_per_mac_by_part={part: energy_j / product.macs for part, energy_j in parts.items()},
    )


def training_j_per_mac(energies: Sequence[PhaseEnergy]) -> float:
    """Return the energy per multiply-accumulate of all products together."""
    return math.fsum(one.j_per_mac * one.macs for one in energies) / sum(one.macs for one in energies)


@dataclass(frozen=True, kw_only=True)
class Performance:
    """Energy, time and precision of an accelerator on a layer's three products."""

    j_per_mac: float
    """Energy per multiply-accumulate."""
    time_s: float
    """Time of the three products together."""
    snr_db: float
    """Executed signal-to-noise ratio of the three products together."""


@dataclass(frozen=True, kw_only=True)
class Swing:
    """One parameter at both ends of its published range, with all others as they are."""

    path: str
    """Path of the parameter, as ``--set`` takes it."""
    unit: str
    """Unit of the parameter."""
    low: float
    """Low end of the range, or the present value if the table has none."""
    value: float
    """Present value."""
    high: float
    """High end of the range, or the present value if the table has none."""
    at_low: Performance | None
    """Performance at the low end; None if the core does not work there."""
    at_high: Performance | None
    """Performance at the high end; None if the core does not work there."""


def performance(unit: PhotonicUnit, tokens: int, operands: OperandKind = DEFAULT_OPERANDS) -> Performance:
    """Return energy, time and precision of an accelerator on a layer's three products."""
    energies = [phase_energy(unit, product) for product in layer_products(tokens)]
    return Performance(
        j_per_mac=training_j_per_mac(energies),
        time_s=sum(one.time_s for one in energies),
        snr_db=layer_precision(unit.core, operands, tokens).snr_db,
    )


def tornado(unit: PhotonicUnit, tokens: int, operands: OperandKind = DEFAULT_OPERANDS) -> tuple[Swing, ...]:
    """Return the swing of every parameter that has a range and changes energy, time or precision.

    Parameters
    ----------
    unit : PhotonicUnit
        The accelerator; its number of cores is fixed, so that a less efficient core draws more power.
    tokens : int
        Tokens of the products.
    operands : OperandKind
        Statistics of their operands.

    Notes
    -----
    The laser power is fixed too: a lossier part costs precision, not power. Parameters that the user set keep
    the range of the table.
    """
    present = performance(unit, tokens, operands)
    swings = []
    for parameter in parameters_of(unit):
        if isinstance(parameter.value, str) or not parameter.ends:
            continue
        at_ends = [_performance_at(unit, parameter.path, end, tokens, operands) for end in parameter.ends]
        if all(each == present for each in at_ends):
            continue
        swings.append(
            Swing(
                path=parameter.path,
                unit=parameter.unit,
                low=parameter.ends[0],
                value=parameter.value,
                high=parameter.ends[1],
                at_low=at_ends[0],
                at_high=at_ends[1],
            )
        )
    return tuple(swings)


def _performance_at(
    unit: PhotonicUnit, path: str, value: float, tokens: int, operands: OperandKind
) -> Performance | None:
    """Return the performance with one parameter changed; None if the core does not work."""
    try:
        return performance(replace_at(unit, path, value), tokens, operands)
    except HeliographError:
        return None


PHASE_TITLES = {
    "forward": "Forward",
    "grad_input": "Gradient of the input",
    "grad_weight": "Gradient of the weight",
}
"""Names of phases in print."""
TORNADO_BARS = 12
"""Most bars in a panel of a tornado chart, those of the strongest parameters."""
LEAST_CHANGE = 3e-3
"""Share of the largest change below which a parameter has no bar; a choice."""

_SHOWN_DB = (-10.0, 70.0)
_ROOM_DB = 8.0
"""Height above the lower end within which a label goes to the left of its point, not below; a choice."""
CAUSES = (*(ROUNDING, RECEIVER, SHOT, FLUCTUATION, ENCODING), *(CLIPPING, UNLIKE, LOADING, READOUT, MISREAD))
"""Causes of noise in the order of their colours in `PALETTE`; solid and dashed lines alternate."""
_LIMIT_STYLES, _OTHER_STYLE = ("-", "--"), ":"
"""Line styles of those causes, and of others that a user's core may name."""
_HEADROOM = 1.25
_MARGIN = 0.04
_TEXT = 0.24
_CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}


def waterfall(energies: Sequence[PhaseEnergy], gpu: str, gpu_j_per_mac: float, title: str) -> Figure:
    """Draw the energy per multiply-accumulate stage by stage, a panel for each phase."""
    present = {stage for energy in energies for stage in energy.j_per_mac_by_stage}
    stages = [stage for stage in (*STAGES, OTHER) if stage in present]
    colours = {stage: PALETTE[place % len(PALETTE)] for place, stage in enumerate((*STAGES, OTHER))}
    longest = max(*(energy.j_per_mac for energy in energies), gpu_j_per_mac) / PICOJOULE
    figure = new_figure(1.35 + 0.24 * len(stages))
    for axes, energy in zip(
        np.atleast_1d(figure.subplots(1, len(energies), sharey=True)), energies, strict=True
    ):
        start = 0.0
        for row, stage in enumerate(stages):
            part = energy.j_per_mac_by_stage.get(stage, 0.0) / PICOJOULE
            thinnest = 0.8 if part else 0.0
            axes.barh(
                row,
                part,
                0.66,
                left=start,
                color=colours[stage],
                edgecolor=colours[stage],
                linewidth=thinnest,
            )
            end = _beside(start + part, gpu_j_per_mac / PICOJOULE, longest)
            _annotate(axes, f"{part:.3g}" if part else "0", end, row)
            start += part
        axes.barh(len(stages), start, 0.66, color=REFERENCE)
        _annotate(axes, f"{start:.3g}", _beside(start, gpu_j_per_mac / PICOJOULE, longest), len(stages))
        axes.axvline(gpu_j_per_mac / PICOJOULE, color=REFERENCE, linestyle="--", linewidth=1.0)
        axes.set_yticks(range(len(stages) + 1), [*stages, "all"])
        axes.set_xlim(0.0, _HEADROOM * longest)
        axes.set_title(PHASE_TITLES[str(energy.phase)])
        axes.grid(visible=True, axis="x")
        axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    figure.suptitle(title)
    figure.supxlabel(
        f"Energy per multiply-accumulate (pJ); dashed: {label(gpu)}, {gpu_j_per_mac / PICOJOULE:.3g} pJ"
    )
    return figure


def cause_numbers(curve: SnrCurve) -> dict[str, int]:
    """Return the number of each cause of a curve: its place in `CAUSES`, other causes behind them."""
    every = dict.fromkeys((*CAUSES, *curve.limits))
    return {cause: number for number, cause in enumerate(every) if cause in curve.limits}


def snr_over_power(curve: SnrCurve) -> Figure:
    """Draw signal over noise over laser power, with all noise and with each cause alone."""
    symbol, factor = prefix_of(curve.present_w)
    power = np.array(curve.power_w) / factor
    ratio_db = np.array([math.nan if one is None else one for one in curve.snr_db])
    figure = new_figure(4.0)
    axes = figure.add_subplot()
    for cause, number in cause_numbers(curve).items():
        limit = curve.limits[cause]
        above = not np.nanmin(limit) < _SHOWN_DB[1]
        axes.plot(
            power,
            limit,
            _LIMIT_STYLES[number % 2] if cause in CAUSES else _OTHER_STYLE,
            color=PALETTE[number % len(PALETTE)],
            linewidth=1.2,
            label=f"{cause} (above)" if above else cause,
        )
    axes.plot(power, ratio_db, color=REFERENCE, linewidth=2.2, label="all together")
    now = (curve.present_w / factor, curve.present.snr_db)
    axes.plot(*now, "o", color=REFERENCE, markersize=6.0)
    text = f"{now[1]:.1f} dB at {now[0]:.3g} {symbol}W"
    low = now[1] < _SHOWN_DB[0] + _ROOM_DB
    offset, side = ((-8, 4), "right") if low else ((6, -14), "left")
    axes.annotate(text, now, offset, textcoords="offset points", ha=side)
    works, last = np.flatnonzero(~np.isnan(ratio_db)), power[-1]
    if works.size and works[-1] < len(ratio_db) - 1:
        end = (power[works[-1]], ratio_db[works[-1]])
        axes.plot(*end, "x", color=REFERENCE, markersize=7.0, label="too much light for the core beyond")
        last = min(last, 2.0 * end[0])
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.set_xlim(power[0], last)
    axes.set_ylim(*_SHOWN_DB)
    axes.set_xlabel(f"Laser power ({symbol}W)")
    axes.set_ylabel("Signal over noise of a layer's products (dB)")
    axes.grid(visible=True)
    title = f"{label(curve.name)}, {curve.operands} operands: each line is one cause of noise alone"
    axes.set_title(title, loc="left")
    handles, names = axes.get_legend_handles_labels()
    legend_below_or_above(figure, handles, names, above=False, most=3)
    return figure


def tornado_bars(swings: Sequence[Swing], present: Performance, title: str) -> Figure:
    """Draw the changes of energy, time and precision at both ends of each parameter's range.

    Notes
    -----
    Each panel shows the strongest parameters, on an axis that is linear near zero and logarithmic beyond
    (inverse hyperbolic sine). A cross in the colour of an end: the core does not work there, because its
    light does not reach the detectors or the value is invalid.
    """
    from matplotlib.lines import Line2D  # noqa: PLC0415 - only to draw
    from matplotlib.patches import Patch  # noqa: PLC0415 - only to draw

    found = [(name, unit, strongest(swings, present, change)) for name, unit, change in CHANGES]
    panels = [one for one in found if one[2]] or found[:1]
    unmoved = [name.lower() for name, _, panel_bars in found if not panel_bars]
    rows = [max(1, len(panel_bars)) for _, _, panel_bars in panels]
    figure = new_figure(2.0 + 0.17 * sum(rows) + 0.25 * len(panels))
    drawn = np.atleast_1d(figure.subplots(len(panels), 1, height_ratios=rows))
    for axes, (name, unit, panel_bars) in zip(drawn, panels, strict=True):
        _draw_swings(axes, panel_bars)
        axes.set_title(name, loc="left")
        axes.set_xlabel(f"Change ({unit}), logarithmic far from zero")
    figure.suptitle(title + (f"\nNo number moves {' or '.join(unmoved)}" if unmoved else ""))
    low, high = (Patch(color=colour) for colour in ENDS)
    cross = Line2D([], [], linestyle="", marker="x", color=REFERENCE)
    names = ["low end of its range", "high end", "core does not work at that end"]
    figure.legend([low, high, cross], names, loc="outside lower center", ncols=3)
    return figure


def energy_change(one: Performance, present: Performance) -> float:
    """Return the change of energy per multiply-accumulate, per cent."""
    return 100.0 * (one.j_per_mac / present.j_per_mac - 1.0)


def time_change(one: Performance, present: Performance) -> float:
    """Return the change of time, per cent."""
    return 100.0 * (one.time_s / present.time_s - 1.0)


def snr_change(one: Performance, present: Performance) -> float:
    """Return the change of the signal-to-noise ratio, decibels."""
    return one.snr_db - present.snr_db


CHANGES = (
    ("Energy per multiply-accumulate", "%", energy_change),
    ("Time", "%", time_change),
    ("Signal over noise", "dB", snr_change),
)
"""Panels of a tornado chart: name and unit of the change, and its function."""


def strongest(
    swings: Sequence[Swing], present: Performance, change: Callable[[Performance, Performance], float]
) -> list[Ends]:
    """Return the bars of a panel, name and change at both ends, the strongest first.

    Parameters with which the core does not work at one end come first in the panel of precision.
    """
    panel_bars: list[Ends] = []
    ranks: list[float] = []
    largest = 0.0
    for swing in swings:
        low, high = (None if end is None else change(end, present) for end in (swing.at_low, swing.at_high))
        strength = max(abs(end) for end in (low, high, 0.0) if end is not None)
        fails = None in (low, high) and change is snr_change
        panel_bars.append((swing.path.removeprefix("core."), low, high))
        ranks.append(math.inf if fails else strength)
        largest = max(largest, strength)
    order = sorted(range(len(panel_bars)), key=lambda place: -ranks[place])
    shown = [panel_bars[place] for place in order if ranks[place] > LEAST_CHANGE * largest]
    return shown[:TORNADO_BARS]


def _draw_swings(axes: Axes, panel_bars: Sequence[Ends]) -> None:
    draw_ends(axes, panel_bars, 0.0)
    if not panel_bars:
        axes.annotate("no parameter moves it", (0.5, 0.3), xycoords="axes fraction", ha="center")
        axes.set_xticks([])
    axes.axvline(0.0, color=REFERENCE, linewidth=0.8)
    ends = [end for _, low, high in panel_bars for end in (low, high, 0.0) if end is not None]
    if panel_bars and min(ends) < max(ends):
        linear = linear_width(ends)
        axes.set_xscale("asinh", linear_width=linear)
        least, most = (math.asinh(end / linear) for end in (min(ends), max(ends)))
        margin = _MARGIN * (most - least)
        axes.set_xlim(*(linear * math.sinh(end) for end in (least - margin, most + margin)))
        ticks = signed_ticks(min(ends), max(ends), linear)
        axes.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
        axes.set_xticks([], minor=True)


def _beside(end: float, line: float, longest: float) -> float:
    """Return the place of a text behind a bar: its end, or a vertical line that would cross the text."""
    return line if line - _TEXT * longest < end < line else end


def _annotate(axes: Axes, text: str, end: float, row: float) -> None:
    """Write a text behind the end of a bar."""
    axes.annotate(
        text, (end, row), (3, 0), textcoords="offset points", va="center", fontsize=7.0, bbox=_CLEAR
    )


@dataclass(frozen=True, kw_only=True)
class CoreResult(Result):
    """Energy, precision and sensitivities of one core."""

    bench: Bench
    """Accelerator and GPU."""
    energies: tuple[PhaseEnergy, ...]
    """Energy and time of the three products of a layer."""
    gpu_j_per_mac: float
    """Energy per multiply-accumulate of the GPU on the same products."""
    curve: SnrCurve
    """Signal over noise over laser power."""
    table: tuple[PrecisionRow, ...]
    """Signal over noise by operands and length, beside number formats."""
    present: Performance
    """Energy, time and precision with the present parameters."""
    swings: tuple[Swing, ...]
    """The same at both ends of each parameter's range."""
    parameters: tuple[Parameter, ...]
    """Every parameter of the accelerator, with unit, range, status and source."""

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "core": self.bench.name,
            "cores": self.bench.unit.cores,
            "gpu": self.bench.gpu.name,
            "tokens": self.bench.tokens,
            "gpu_j_per_mac": self.gpu_j_per_mac,
            "j_per_mac": self.present.j_per_mac,
            "snr_db": self.present.snr_db,
            "operands": str(self.curve.operands),
            "effective_bits": self.bench.unit.core.effective_bits,
            "phases": [
                dataclasses.asdict(one) | {"j_per_mac": one.j_per_mac, "by_stage": one.j_per_mac_by_stage}
                for one in self.energies
            ],
            "snr": dataclasses.asdict(self.curve),
            "precision": _precision_table(self.table),
            "tornado": [dataclasses.asdict(one) for one in self.swings],
            "parameters": [dataclasses.asdict(one) for one in self.parameters],
        }

    def report(self) -> list[Block]:
        """Return the tables of energy and time, of precision, of the light, and of all parameters."""
        name = self.bench.name
        return [
            ReportTable(f"Core {name}", [str(phase) for phase in PHASES], study_rows(self)),
            *summary_lines(self),
            *(f"Beyond a limit: {said}." for said in light_limits(self.bench.unit)),
            precision_report(self),
            f"Sums of K products, {ROWS} x {ROWS} outputs; outliers: 0.1 % of A's channels 20 times larger.",
            *light_tables(self),
            parameter_table(self),
            "Sources of each: heliograph show NAME. The paths are what --set takes.",
        ]

    def rows(self) -> list[Row]:
        """Return a row for each phase and stage of the energy."""
        return _energy_table(self)

    def tables(self) -> dict[str, list[Row]]:
        """Return energy by stage, signal over noise by laser power and by operands, and the swings."""
        bench = self.bench
        about: Row = {"core": bench.name, "gpu": bench.gpu.name, "tokens": bench.tokens}
        found = {
            "energy": self.rows(),
            "snr": _snr_table(self.curve),
            "precision": _precision_table(self.table),
            "tornado": _tornado_table(self),
        }
        return {name: [about | row for row in rows] for name, rows in found.items()}

    def figures(self) -> dict[str, Figure]:
        """Return energy by stage, signal over noise over laser power, and the tornado chart."""
        bench = self.bench
        products = f"{bench.name}: a layer's three products, {bench.tokens} tokens"
        ends = f"{bench.name}: each number at the ends of its range"
        return {
            "energy": waterfall(self.energies, bench.gpu.name, self.gpu_j_per_mac, products),
            "snr": snr_over_power(self.curve),
            "tornado": tornado_bars(self.swings, self.present, ends),
        }


def study(bench: Bench, operands: OperandKind = DEFAULT_OPERANDS) -> CoreResult:
    """Return energy, precision and sensitivities of an accelerator's core."""
    return CoreResult(
        bench=bench,
        energies=bench.energies(),
        gpu_j_per_mac=bench.gpu_j_per_mac(),
        curve=snr_curve(bench.unit.core, operands, bench.tokens),
        table=precision_table(bench.unit.core),
        present=performance(bench.unit, bench.tokens, operands),
        swings=tornado(bench.unit, bench.tokens, operands),
        parameters=tuple(parameters_of(bench.unit)),
    )


def light_tables(found: CoreResult, head: str = "") -> list[ReportTable]:
    """Return the table of the losses on the optical path and of the receiver.

    Notes
    -----
    There is none for residue cores, which have a path for each modulus.
    """
    link = found.bench.unit.core.budget
    if not isinstance(link, LightBudget):
        return []
    seen = link.receiver
    found_db = [(one.name, f"{one.loss_db:.2f} dB") for one in link.elements]
    divided = ("division among outputs", f"{link.split:g}")
    told = [
        ("received power of a full operand", format_si(link.received_w, "W")),
        ("share of the current that is read", f"{seen.gain:.3f}"),
        ("other symbols, over the product", f"{db_from_ratio(seen.interference):.1f} dB"),
        ("noise bandwidth of the amplifier", format_si(seen.bandwidth_hz, "Hz")),
        ("noise bandwidth of the light", format_si(seen.light_bandwidth_hz, "Hz")),
    ]
    if link.mixing > 0.0:
        told.append(("other lines, over the product", f"{db_from_ratio(link.mixing):.1f} dB"))
    lines = [("path", *one) for one in (*found_db, divided)] + [("receiver", *one) for one in told]
    return [
        table_of(
            "Light, from source to sample",
            lines,
            lambda one: one[1],
            {head: lambda one: one[2]},
            note=lambda _: "link budget",
            section=lambda one: one[0],
        )
    ]


def study_rows(found: CoreResult) -> list[ReportRow]:
    """Return the lines of the table of energy and time, with a column for each phase."""
    energies, noise = found.energies, found.curve.present.noise
    present = {stage for one in energies for stage in one.j_per_mac_by_stage}

    def joules(name: str, values: Iterable[float], note: str) -> ReportRow:
        return ReportRow(name, tuple(format_si(value, "J") for value in values), note)

    def of_all(name: str, value: str, note: str = "derived") -> ReportRow:
        return ReportRow(name, (value, "", ""), note)

    gpu, area = found.bench.gpu.name, format_quantity(found.bench.unit.area_m2, "m^2")
    return [
        joules(
            "energy per multiply-accumulate",
            (one.j_per_mac for one in energies),
            "derived, of the numbers below",
        ),
        *(
            joules(f"  {stage}", (one.j_per_mac_by_stage.get(stage, 0.0) for one in energies), "derived")
            for stage in (*STAGES, OTHER)
            if stage in present
        ),
        joules(f"{gpu}, the same products", [found.gpu_j_per_mac] * len(energies), "mean of the three"),
        ReportRow("time", tuple(format_si(one.time_s, "s") for one in energies), "derived", section=True),
        ReportRow("die area of all cores and buffer", (area,) * len(energies), "derived"),
        of_all(
            f"signal over noise, {found.curve.operands} operands",
            f"{found.present.snr_db:.1f} dB",
            "derived: all three",
        ),
        *(
            of_all(f"  {cause} alone", f"{-db_from_ratio(noise[cause]):.1f} dB")
            for cause in sorted(noise, key=lambda cause: -noise[cause])
        ),
        of_all(
            "effective bits of a full-scale sample",
            f"{found.bench.unit.core.effective_bits:.2f}",
            "link budget",
        ),
    ]


def precision_report(found: CoreResult) -> ReportTable:
    """Return the table of signal over noise by operands and length, beside number formats."""
    rows, last = [], None
    for row in found.table:
        values = tuple(f"{number:.1f}" for number in (row.core_db, *row.formats_db.values()))
        name = f"{row.operands}, {length_text(row.length)}"
        rows.append(ReportRow(name, values, section=last not in (None, row.operands)))
        last = row.operands
    heads = (found.bench.name, *found.table[0].formats_db)
    return ReportTable("Executed signal over noise, dB", heads, rows)


def length_text(length: int | None) -> str:
    """Return the length K of sums as text; None is that of captured products, which differ in length."""
    return "own K" if length is None else f"K = {length:,}"


def parameter_table(found: CoreResult) -> ReportTable:
    """Return the table of every parameter of the accelerator."""

    def told(value: float | str | None, unit: str) -> str:
        if isinstance(value, str):
            return value
        return "\u2013" if value is None else format_quantity(value, unit)

    columns: dict[str, Callable[[Parameter], str]] = {
        "value": lambda one: told(one.value, one.unit),
        "low": lambda one: told(one.low, one.unit),
        "high": lambda one: told(one.high, one.unit),
    }
    title = "Numbers it is made of"
    return table_of(title, found.parameters, lambda one: one.path, columns, note=lambda one: one.status)


def summary_lines(found: CoreResult) -> list[str]:
    """Return sentences on the mean energy, the dies, and the parameter that changes the energy most."""
    unit, bench = found.bench.unit, found.bench
    mean_j = training_j_per_mac(found.energies)
    at_work_w = mean_j * math.fsum(one.macs for one in found.energies) / found.present.time_s
    lines = [
        f"{unit.cores} cores with buffer and memory, without electronics for other work; the three products "
        f"of a layer with {bench.tokens} tokens: {mean_j / PICOJOULE:.3g} pJ per multiply-accumulate, at "
        f"{at_work_w:.0f} W; {bench.gpu.name} has {bench.gpu.chip.tdp_w:g} W.",
        f"Dies, stacked in pairs: {unit.cut}, {unit.other_cuts}.",
    ]
    ends_j = {
        swing.path: sorted((swing.at_low.j_per_mac, swing.at_high.j_per_mac))
        for swing in found.swings
        if swing.at_low and swing.at_high
    }
    if ends_j:
        path, (low_j, high_j) = max(ends_j.items(), key=lambda item: item[1][1] - item[1][0])
        lines.append(
            f"Of {len(found.swings)} numbers with a range, {path} moves the energy most: "
            f"{low_j / PICOJOULE:.3g} to {high_j / PICOJOULE:.3g} pJ."
        )
    return lines


def _energy_table(found: CoreResult) -> list[Row]:
    rows: list[Row] = [
        {"phase": str(one.phase), "stage": stage, "energy_j_per_mac": energy_j}
        for one in found.energies
        for stage, energy_j in one.j_per_mac_by_stage.items()
    ]
    return [*rows, {"phase": "all", "stage": found.bench.gpu.name, "energy_j_per_mac": found.gpu_j_per_mac}]


def _snr_table(curve: SnrCurve) -> list[Row]:
    columns = {re.sub(r"\W+", "_", cause) + "_db": limit for cause, limit in curve.limits.items()}
    rows: list[Row] = []
    for place, (power_w, ratio_db) in enumerate(zip(curve.power_w, curve.snr_db, strict=True)):
        row: Row = {"laser_power_w": power_w, "snr_db": "" if ratio_db is None else ratio_db}
        rows.append(row | {column: limit[place] for column, limit in columns.items()})
    return rows


def _precision_table(found: Sequence[PrecisionRow]) -> list[Row]:
    return [
        {"operands": str(one.operands), "length": one.length, "snr_db": one.core_db}
        | {f"{name}_snr_db": ratio_db for name, ratio_db in one.formats_db.items()}
        for one in found
    ]


def _tornado_table(found: CoreResult) -> list[Row]:
    rows: list[Row] = []
    for swing in found.swings:
        row: Row = {
            "parameter": swing.path,
            "unit": swing.unit,
            "low": swing.low,
            "value": swing.value,
            "high": swing.high,
        }
        for end, at_end in (("low", swing.at_low), ("high", swing.at_high)):
            values = dataclasses.asdict(at_end) if at_end else dict.fromkeys(_PERFORMANCE, "")
            row |= {f"{key}_at_{end}": value for key, value in values.items()}
        rows.append(row)
    return rows


_PERFORMANCE = tuple(item.name for item in dataclasses.fields(Performance))


CORE = "core"
"""First part of the keys of the formulas on a core's page."""
LINK, EXECUTED, SWING = "link budget", "executed", "swing"
"""Keys of the formulas that all numbers of a table share."""


def page(found: CoreResult) -> Page:
    """Return the page of a core."""
    bench = found.bench
    mean, gpu = training_j_per_mac(found.energies), found.gpu_j_per_mac
    worth = f"{gpu / mean:.1f} times less" if mean < gpu else f"{mean / gpu:.1f} times more"
    snr = f"{found.present.snr_db:.1f} dB of signal over noise on {found.curve.operands} operands"
    answers = [
        f"{bench.name} takes {format_si(mean, 'J')} a multiply-accumulate, {worth} than {bench.gpu.name} "
        f"({format_si(gpu, 'J')}), and delivers {snr}.",
        *summary_lines(found),
        *(f"Beyond a limit: {said}." for said in light_limits(bench.unit)),
        "Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    paths = [told_sheet(one, "element", key=LINK) for one in light_tables(found, "value")]
    sections = [
        Section(title="Where the energy goes", blocks=[_energy_picture(found), _energy_sheet(found)]),
        Section(
            title="Where precision goes",
            blocks=[
                _snr_picture(found),
                told_sheet(precision_report(found), "operands", key=EXECUTED),
                *paths,
            ],
        ),
        Section(title="Effect of each uncertain number", blocks=[_tornadoes(found), _swings(found)]),
        Section(
            title="Every number that it is made of",
            blocks=[sheet_of({bench.name: found.parameters}, "Parameters of the accelerator")],
        ),
    ]
    return Page(
        title=f"Photonic core {bench.name}: energy, precision, and what each number does",
        answers=answers,
        sections=sections,
        formulas=_formulas(found),
    )


def _formulas(found: CoreResult) -> dict[str, Formula]:
    """Return the formulas of the page's numbers, by key."""
    paths = [one.path for one in found.parameters]
    formulas: dict[str, Formula] = {}
    for one in found.energies:
        phase = str(one.phase)
        formulas[f"{CORE}/{phase}"] = Formula(
            label=f"energy per multiply-accumulate, {phase}",
            text="sum of the stages",
            status=DERIVED,
            source="experiments/cores/one.py: phase_energy",
            value=format_si(one.j_per_mac, "J"),
            follows=tuple(f"{CORE}/{phase}/{stage}" for stage in one.j_per_mac_by_stage),
        )
        formulas[f"{CORE}/{phase}/time"] = Formula(
            label=f"time, {phase}",
            text="symbols that the product sends / symbol rate, loading and memory where they take longer",
            status=DERIVED,
            source="optical/accelerator.py: PhotonicUnit.cost",
            value=format_si(one.time_s, "s"),
            inputs=tuple(f"{CORE}/{path}" for path in paths if path.startswith(("core.", "memory."))),
        )
        formulas |= _stage_formulas(one, paths)
    gpu = found.bench.gpu.name
    formulas[f"{CORE}/gpu"] = Formula(
        label=f"energy per multiply-accumulate of a {gpu}",
        text="(energy of the three products + static power \u00d7 their time) / multiply-accumulates",
        status=DERIVED,
        source=f"experiments/cores/one.py: Bench.gpu_j_per_mac; heliograph show {gpu} has its numbers",
        value=format_si(found.gpu_j_per_mac, "J"),
    )
    core = tuple(f"{CORE}/{path}" for path in paths if path.startswith("core."))
    formulas[LINK] = Formula(
        label="light from source to sample",
        text="received power = power of the laser \u2212 losses in dB, divided among the outputs",
        status=DERIVED,
        source="optical/noise/link_budget.py; the law of each cause of noise is in docs/noise.md",
        inputs=core,
    )
    formulas[EXECUTED] = Formula(
        label="executed signal over noise",
        text="\u221210 log\u2081\u2080 of mean square error over mean square of executed products",
        status=DERIVED,
        source="heliograph/accuracy/precision.py: precision_table; "
        "heliograph core precision holds it to execution",
        inputs=core,
    )
    formulas[SWING] = Formula(
        label="change at an end of a number's range",
        text="the three products priced anew with this number alone at the end of its range",
        status=DERIVED,
        source="experiments/cores/one.py: tornado",
    )
    return formulas | parameter_formulas(CORE, found.parameters)


def _stage_formulas(energy: PhaseEnergy, paths: Sequence[str]) -> dict[str, Formula]:
    """Return the formulas of the stages of a phase and of their parts, by key."""
    phase = str(energy.phase)
    found: dict[str, Formula] = {}
    for stage, energy_j in energy.j_per_mac_by_stage.items():
        members = [part for part in STAGES.get(stage, ()) if part in energy.j_per_mac_by_part] or [
            part for part in energy.j_per_mac_by_part if not any(part in parts for parts in STAGES.values())
        ]
        found[f"{CORE}/{phase}/{stage}"] = Formula(
            label=f"{stage}, {phase}",
            text="sum of its parts",
            status=DERIVED,
            source="experiments/cores/one.py: STAGES",
            value=format_si(energy_j, "J"),
            follows=tuple(f"{CORE}/{phase}/{stage}/{part}" for part in members),
        )
        for part in members:
            patterns = [each.removeprefix("photonic.").removeprefix("gpu.") for each in part_inputs(part)]
            inputs = [path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns)]
            found[f"{CORE}/{phase}/{stage}/{part}"] = Formula(
                label=f"{part}, {phase}",
                text="(energy of its events + its static power \u00d7 time) / multiply-accumulates",
                status=DERIVED,
                source="optical/devices/parts.py; optical/accelerator.py",
                value=format_si(energy.j_per_mac_by_part[part], "J"),
                follows=(f"{CORE}/{phase}/time",),
                inputs=tuple(f"{CORE}/{path}" for path in inputs),
            )
    return found


def _stages(found: CoreResult) -> list[str]:
    present = dict.fromkeys(stage for one in found.energies for stage in one.j_per_mac_by_stage)
    return list(present)


def _energy_picture(found: CoreResult) -> Drawing:
    stages = _stages(found)
    gpu = found.bench.gpu.name
    colours = {stage: colour(at) for at, stage in enumerate(stages)} | {gpu: "var(--c10)"}
    stacked = [
        Bar(label=PHASE_TITLES[str(energy.phase)], parts=energy.j_per_mac_by_stage)
        for energy in found.energies
    ]
    stacked.append(Bar(label=f"{gpu}, mean of the three", parts={gpu: found.gpu_j_per_mac}))
    title = f"Energy per multiply-accumulate of a layer's products, {found.bench.tokens:,} tokens"
    return bars(title, stacked, colours, unit="J")


def _energy_sheet(found: CoreResult) -> Sheet:
    rows: list[Sequence[Cell]] = []
    for stage in _stages(found):
        cells = []
        for energy in found.energies:
            energy_j = energy.j_per_mac_by_stage.get(stage, 0.0)
            key = f"{CORE}/{energy.phase}/{stage}"
            cells.append(Number(text=format_si(energy_j, "J"), value=energy_j, key=key))
        rows.append([stage, *cells])
    whole = [
        Number(text=format_si(energy.j_per_mac, "J"), value=energy.j_per_mac, key=f"{CORE}/{energy.phase}")
        for energy in found.energies
    ]
    gpu = Number(text=format_si(found.gpu_j_per_mac, "J"), value=found.gpu_j_per_mac, key=f"{CORE}/gpu")
    rows += [["all stages", *whole], [f"{found.bench.gpu.name}, mean of the three", gpu, "", ""]]
    heads = ("stage", *(PHASE_TITLES[str(energy.phase)] for energy in found.energies))
    return Sheet(title="Energy per multiply-accumulate by stage", heads=heads, rows=rows)


def _snr_picture(found: CoreResult) -> Drawing:
    curve = found.curve
    together = [(x, y) for x, y in zip(curve.power_w, curve.snr_db, strict=True) if y is not None]
    drawn = [Line(label="all together", points=together, colour="var(--c10)")]
    for cause, number in cause_numbers(curve).items():
        limits = zip(curve.power_w, curve.limits[cause], strict=True)
        points = [(x, y) for x, y in limits if -10.0 <= y <= 70.0]
        drawn.append(Line(label=cause, points=points, colour=colour(number)))
    drawn = [one for one in drawn if one.points]
    title = "Signal over noise over laser power: each line is one cause alone"
    note = f"The laser has {format_si(curve.present_w, 'W')} now. Causes above 70 dB are left out."
    return dataclasses.replace(
        lines(title, drawn, x=("laser power", "W"), y=("signal over noise", "dB")), note=note
    )


def _tornadoes(found: CoreResult) -> list[Drawing]:
    """Return a tornado chart for each quantity that any parameter changes."""
    swings = {one.path.removeprefix("core."): one for one in found.swings}
    pictures = []
    for name, unit, change in CHANGES:
        shown = [
            Span(
                label=path,
                low=low,
                high=high,
                low_told=format_quantity(swings[path].low, swings[path].unit),
                high_told=format_quantity(swings[path].high, swings[path].unit),
            )
            for path, low, high in strongest(found.swings, found.present, change)
        ]
        if shown:
            title = f"{name}: each number at the ends of its range"
            note = "Logarithmic far from zero. \u00d7: the core does not work there."
            pictures.append(dataclasses.replace(spans(title, shown, unit=unit), note=note))
    return pictures


def _swings(found: CoreResult) -> Sheet:
    """Return the table of every parameter with a range, and of the changes at its ends."""
    rows: list[Sequence[Cell]] = []
    for swing in found.swings:
        cells: list[Cell] = [
            Number(text=format_quantity(value, swing.unit), value=value, key=key)
            for value, key in ((swing.low, ""), (swing.value, f"{CORE}/{swing.path}"), (swing.high, ""))
        ]
        for _, unit, change in CHANGES:
            for at in (swing.at_low, swing.at_high):
                moved = None if at is None else change(at, found.present)
                told = "does not work" if moved is None else f"{moved:+.3g} {unit}"
                cells.append(Number(text=told, value=moved, key=SWING))
        rows.append([swing.path, *cells])
    heads = ["number", "low", "present", "high"]
    heads += [
        f"{name.lower().split(' per')[0]} at {which}" for name, _, _ in CHANGES for which in ("low", "high")
    ]
    return Sheet(title="Each number at both ends of its range, all else as it is", heads=heads, rows=rows)


@dataclass(frozen=True, kw_only=True)
class OneCore(Study):
    """Energy by stage and precision by cause of one photonic core."""

    directory = "core_{name}"

    name: str = option(..., "core by name (heliograph list cores)", positional=True)
    tokens: int = option(TOKENS, "vectors that pass a layer: reuse of a weight", metavar="N")
    operands: OperandKind = option(
        DEFAULT_OPERANDS, "statistics of the operands on which precision over laser power is told"
    )
    replaced: Replaced = field(default_factory=Replaced)
    settings: tuple[str, ...] = changes()

    def run(self, progress: Progress) -> CoreResult:
        """Return energy, precision and sensitivities of the core."""
        with limits_told():
            built = bench(self.name, assignments=self.settings, tokens=self.tokens, **self.replaced.given())
            check_buildable(self.name, built.unit)
            return study(built, self.operands)

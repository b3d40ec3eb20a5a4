"""Loss against energy and time over the knobs of a core, and the energy to equal loss over laser power.

Each setting is priced and executed: on a clean model (noise at inference), and, at the present setting and at
the least and the most of each knob, in training on that hardware.

A step is priced at every power and its signal to noise is that of the core's law on captured operands; the
law of loss over size, tokens and noise tells how many more tokens the noise takes to the loss of exact
arithmetic. It has two forms, and both are told: what lies between them is not known.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.accuracy.prediction import (
    QUICK_STEPS,
    Effort,
    Prediction,
    chance_told,
    predict_and_execute,
)
from experiments.hardware import CROSSBAR, SYSTEM, Hardware
from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.accuracy.law import (
    NARROW,
    Band,
    FittedLaw,
    Form,
    fit_exact,
    fit_with_band,
    read_runs,
    rises,
)
from heliograph.accuracy.small_gpt import (
    BFLOAT16,
    FLOAT8,
    FLOAT8_ROWS,
    NOTHING,
    Accuracy,
    Arithmetic,
    train_all,
)
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks, swatches
from heliograph.processes import OnProgress, of_part, unheard
from heliograph.records import TrainingCache, plain
from heliograph.report import ReportRow, ReportTable, format_si
from heliograph.simulation import StepRuns, run_step, step_graph
from heliograph.systems import System, build_system
from heliograph.systems.names import DEFAULT_ACCELERATORS
from heliograph.systems.sanity_checks import limits_told
from heliograph.workload import model_named, plan_on
from optical.cores.sizing import LASER
from optical.devices import Converter
from simulator.errors import BudgetError, LinkError, ParameterError
from simulator.parameter_tree import get_at, path_of, replace_at
from simulator.units import ratio_from_db
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import Precision
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Knob:
    """Setting of a core that is varied: its parameters and their values."""

    paths: tuple[str, ...]
    """Parameters of the core that change together; parameters that the core lacks are left out."""
    factors: tuple[float, ...] = ()
    """Factors of the present value; empty for an ADC, which moves along its own figure of merit."""
    whole: bool = True
    """Whether values are whole numbers."""
    unit: str = ""
    """Unit in texts."""


OUTPUT_BITS = "output bits"
"""Name of the knob that moves an ADC along its own figure of merit."""
KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        "laser power": Knob(
            paths=("laser_power_w",), factors=(0.05, 0.1, 0.25, 0.5, 2.0, 4.0), whole=False, unit=" W"
        ),
        OUTPUT_BITS: Knob(paths=("adc.nominal_bits", "adc.enob_bits", "adc.power_w")),
        "array size": Knob(paths=("rows", "columns", "outputs", "ports"), factors=(0.5, 2.0, 3.0)),
        "wavelengths": Knob(paths=("wavelengths",), factors=(0.5, 2.0, 4.0)),
    }
)
"""Knobs by name."""
BITS = (-3.0, -2.0, -1.0, 1.0, 2.0)
"""Changes of the output bits."""
PRESENT = "present"
"""Name that stands for a knob in the unchanged system."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A system with one knob changed."""

    knob: str
    """Name of the knob."""
    value: float
    """Value of the first parameter of the knob, SI."""
    raised: bool
    """Whether the value is above the present one."""
    system: System | None
    """System with its link budget solved anew; None if it cannot be built."""
    reason: str = ""
    """Reason why it cannot be built; empty otherwise."""

    @property
    def label(self) -> str:
        """Name of the setting's arithmetic."""
        return turned_to(self.knob, self.value)


def turned_to(knob: str, value: float) -> str:
    """Return the name of a knob with its value and unit; the name alone without a value."""
    unit = KNOBS[knob].unit if knob in KNOBS else ""
    return knob if math.isnan(value) else f"{knob} {value:g}{unit}"


def settings(name: str, **options: Any) -> list[Setting]:  # noqa: ANN401 - as `build_system` takes them
    """Return the unchanged system, then systems with one knob changed; changes are those of ``--set``."""
    given = tuple(options.pop("assignments", ()))
    present = build_system(name, **options, assignments=given)
    if present.photonic is None:
        msg = f"system '{name}' has no photonic core whose knobs could be turned; name photonic_packet"
        raise ParameterError(msg)
    found = [Setting(knob=PRESENT, value=math.nan, raised=False, system=present)]
    core = path_of(present, LASER).rpartition(".")[0]  # within a number format, if there is one
    for knob_name, knob in KNOBS.items():
        owned = [(f"{core}.{path}", _value(present, f"{core}.{path}")) for path in knob.paths]
        values = [(path, value) for path, value in owned if value is not None]
        if not values:
            continue
        for turned in _turned(knob, values, present):
            falls = turned[0][1] < values[0][1]  # effective bits must never exceed nominal ones
            order = reversed(turned) if falls else turned
            changes = tuple(f"{path}={value:.6g}" for path, value in order)
            setting = Setting(knob=knob_name, value=turned[0][1], raised=not falls, system=None)
            try:
                system = build_system(name, **options, assignments=given + changes)
                system.analog()
            except (LinkError, ParameterError) as error:
                found.append(dataclasses.replace(setting, reason=str(error)))
            else:
                found.append(dataclasses.replace(setting, system=system))
    return found


def _value(system: System, path: str) -> float | None:
    try:
        value = get_at(system, path)
    except ParameterError:
        return None
    return float(value) if isinstance(value, int | float) else None


def _turned(knob: Knob, values: list[tuple[str, float]], present: System) -> list[list[tuple[str, float]]]:
    if not knob.factors:
        adc: Converter = attrgetter(values[0][0].rpartition(".")[0])(present)
        family = [adc.rescaled(adc.enob_bits + more) for more in BITS]  # Walden: each bit twice the energy
        return [[(path, getattr(one, path.rpartition(".")[2])) for path, _ in values] for one in family]
    return [
        [(path, float(round(value * factor)) if knob.whole else value * factor) for path, value in values]
        for factor in knob.factors
    ]


def outermost(found: Sequence[Setting]) -> list[Setting]:
    """Return the unchanged system, and the least and the largest value of each knob."""
    kept = [found[0]]
    for knob in KNOBS:
        turned = sorted((one for one in found if one.knob == knob), key=lambda one: one.value)
        kept += turned[:1] + turned[1:][-1:]
    return kept


MARKS = (BFLOAT16, FLOAT8, FLOAT8_ROWS)
"""Number formats of the GPU for comparison."""
TRAINED_MODEL = "tiny"
"""Model of `heliograph.accuracy.small_gpt.MODELS` that is trained on the hardware."""
TRAINED_STEPS, QUICK_TRAINED_STEPS = 90, QUICK_STEPS
"""Updates of the training on the hardware."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """Energy, time and loss of a setting or a GPU."""

    knob: str
    """Name of the knob; of a GPU its number format."""
    value: float
    """Value of the knob, SI; NaN for a GPU."""
    raised: bool
    """Whether the value is above the present one."""
    energy_j: float
    """Energy per token of a training step; NaN if no step is modelled."""
    time_s: float
    """Step time."""
    snr_db: float
    """Executed signal-to-noise ratio of all products of the step."""
    rise: float
    """Rise of the loss of a clean model at inference, nats per byte, mean over models."""
    error: float
    """Standard error of the rise over draws."""
    trained: float = math.nan
    """Final loss of a model trained on that hardware minus exact training, nats per byte, mean over seeds;
    NaN without training."""
    trained_error: float = math.nan
    """Standard error of that difference over seeds."""
    trained_resolved: bool = False
    """Whether the difference exceeds chance."""

    def row(self) -> dict[str, Any]:
        """Return the point as a row of a table."""
        return {
            "knob": self.knob,
            "value": self.value,
            "energy_j_per_token": self.energy_j,
            "step_time_s": self.time_s,
            "snr_db": self.snr_db,
            "loss_rise_nats": self.rise,
            "standard_error_nats": self.error,
            "trained_difference_nats": self.trained,
            "trained_standard_error_nats": self.trained_error,
            "trained_resolved": self.trained_resolved,
        }


@dataclass(frozen=True, kw_only=True)
class Front(Result):
    """Loss over energy and time, for all settings of a core and for GPUs."""

    system: str
    """Name of the system."""
    workload: str
    """Model whose training step is simulated."""
    points: tuple[FrontPoint, ...]
    """Settings, the unchanged system first."""
    marks: tuple[FrontPoint, ...]
    """GPUs, one for each number format."""
    missing: tuple[str, ...]
    """Settings that cannot be built, each with the reason."""
    floor: float = math.nan
    """Largest difference of a trained loss that negligible noise made, nats per byte."""

    def report(self) -> list[Block]:
        """Return the table of all settings, and the settings that cannot be built."""
        rows = [
            ReportRow(
                turned_to(one.knob, one.value),
                (
                    format_si(one.energy_j, "J") if math.isfinite(one.energy_j) else _NO_ENGINE,
                    format_si(one.time_s, "s") if math.isfinite(one.time_s) else _NO_ENGINE,
                    f"{one.snr_db:.1f} dB" if math.isfinite(one.snr_db) else "",
                    f"{one.rise:.5f} \u00b1 {one.error:.5f}",
                    _trained(one),
                ),
                section=index == len(self.points),
            )
            for index, one in enumerate((*self.points, *self.marks))
        ]
        title = f"{self.system}: a step of {self.workload}, and the loss that noise costs the small GPT"
        names = ("energy per token", "step time", "SNR", "rise, nats/byte", "trained minus exact")
        lines: list[Block] = [ReportTable(title, names, rows)]
        if math.isfinite(self.floor):
            lines.append(chance_told(self.floor))
        return lines + [f"Cannot be built: {text}" for text in self.missing]

    def record(self) -> dict[str, Any]:
        """Return all points as plain data."""
        found: dict[str, Any] = plain(self)
        return found

    def rows(self) -> list[Row]:
        """Return a row for each setting and GPU."""
        return [one.row() for one in (*self.points, *self.marks)]

    def figure(self) -> Figure:
        """Return the loss over energy per token and over step time."""
        rows = 1 + any(math.isfinite(one.trained) for one in self.points)
        figure = new_figure(1.6 + 2.6 * rows)
        panels = figure.subplots(rows, 2, squeeze=False, sharey="row", sharex="col")
        for column, x_of in enumerate((attrgetter("energy_j"), attrgetter("time_s"))):
            _draw_panel(panels[0, column], self, x_of, _RISE)
            panels[0, column].set_yscale("log")
            plain_ticks(panels[0, column].yaxis)
            if rows > 1:
                _draw_panel(panels[1, column], self, x_of, _TRAINED)
                panels[1, column].axhspan(
                    -self.floor,
                    self.floor,
                    color=PALETTE[9],
                    alpha=0.4,
                    linewidth=0.0,
                    label="what noise of nothing does to a seed",
                )
                panels[1, column].plot([], [], "o", **_hollow(REFERENCE), label="not told from chance")
                panels[1, column].set_yscale("symlog", linthresh=max(2.0 * self.floor, LEAST_TRAINED))
                plain_ticks(panels[1, column].yaxis)
            _tick(panels[-1, column], [x_of(one) for one in (*self.points, *self.marks)])
        panels[-1, 0].set_xlabel(f"energy per token, {self.workload} (J)")
        panels[-1, 1].set_xlabel("step time (s)")
        panels[0, 0].set_ylabel("noise at inference:\nrise of the loss (nats/byte)")
        if rows > 1:
            panels[1, 0].set_ylabel("trained on the hardware:\nloss minus exact (nats/byte)")
        figure.suptitle(f"What a core's knobs cost and buy: {self.system}", fontsize=9.5)
        named = [axes.get_legend_handles_labels() for axes in panels[:, 0]]
        entries: dict[str, Artist] = {}
        for handles, labels in named:
            for handle, label in zip(handles, labels, strict=True):
                entries.setdefault(label, handle)
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=2)
        return figure


def accuracy_front(
    found: Sequence[Setting],
    *,
    workload: str,
    effort: Effort,
    cache: TrainingCache,
    trained_steps: int = 0,
    progress: OnProgress = unheard,
) -> Front:
    """Simulate a step of every setting, execute a clean model on it, and train on the outermost settings.

    Parameters
    ----------
    found : sequence of Setting
        Settings, the unchanged system first.
    workload : str
        Model whose training step is simulated, as `heliograph compare` takes it.
    effort : Effort
        Effort of running the small GPT.
    cache : TrainingCache
        Finished runs, which are not repeated.
    trained_steps : int
        Updates of each training on the hardware; with 0 nothing is trained.
    progress : callable
        Called with the progress.
    """
    built = [(setting, setting.system) for setting in found if setting.system is not None]
    executed = predict_and_execute(
        (
            *(Arithmetic(label=setting.label, analog=system.analog()) for setting, system in built),
            *(Arithmetic(label=name) for name in MARKS),
        ),
        effort=dataclasses.replace(
            effort, core_pairs=2, ladder_db=(), error_classes=(), gains=False, errors=False
        ),
        cache=cache,
        progress=of_part(progress, "clean model"),
    )
    trained: Mapping[str, Accuracy] = {}
    if trained_steps:
        trained = train_all(
            _trainable([setting for setting, _ in built]),
            seeds=effort.seeds,
            quick=trained_steps <= QUICK_STEPS,
            cache=cache,
            model=TRAINED_MODEL,
            steps=trained_steps,
            progress=of_part(progress, "training"),
        )
    losses = _Losses(executed=executed, trained=trained)
    config, present = model_named(workload), built[0][1]
    plan = plan_on(present, config)
    points = []
    for index, (setting, system) in enumerate(built):
        points.append(losses.point(setting, run_step(system, config, plan).record()))
        progress("steps", index + 1, len(built))
    gpu = build_system("gpu_packet", accelerators=present.accelerators, gpu=present.gpu.name)
    named = [Setting(knob=name, value=math.nan, raised=False, system=gpu) for name in MARKS]
    return Front(
        system=present.name,
        workload=config.name,
        points=tuple(points),
        marks=tuple(losses.point(setting, _gpu_step(setting.knob, gpu, config, plan)) for setting in named),
        missing=tuple(f"{setting.label}: {setting.reason}" for setting in found if setting.system is None),
        floor=losses.floor,
    )


@dataclass(frozen=True, kw_only=True)
class _Losses:
    """Losses of executed and trained models, by label of a setting."""

    executed: Prediction
    trained: Mapping[str, Accuracy]

    @property
    def floor(self) -> float:
        """Largest difference of a trained loss that negligible noise made; NaN without training."""
        return self.trained[NOTHING.label].largest_difference if self.trained else math.nan

    def point(self, setting: Setting, step: Mapping[str, Any]) -> FrontPoint:
        """Return the point of a setting, from the record of its step and its losses."""
        executed = next(one for one in self.executed.executions if one.label == setting.label)
        learned = self.trained.get(setting.label)
        return FrontPoint(
            knob=setting.knob,
            value=setting.value,
            raised=setting.raised,
            energy_j=step.get("energy_per_token_j", math.nan),
            time_s=step.get("step_time_s", math.nan),
            snr_db=step.get("snr_db", math.nan),
            rise=statistics.fmean(executed.variance_rises),
            error=executed.variance_error,
            trained=statistics.fmean(learned.differences) if learned else math.nan,
            trained_error=learned.difference_error if learned else math.nan,
            trained_resolved=learned.resolved(self.floor) if learned else False,
        )


def _trainable(found: Sequence[Setting]) -> list[Arithmetic]:
    """Return the arithmetics to train: negligible noise, the formats of GPUs, the outermost settings."""
    return [
        NOTHING,
        *(Arithmetic(label=name) for name in MARKS),
        *(
            Arithmetic(label=one.label, analog=one.system.analog())
            for one in outermost(found)
            if one.system is not None
        ),
    ]


def _gpu_step(name: str, gpu: System, config: TransformerConfig, plan: Plan) -> dict[str, Any]:
    """Return the record of a GPU's step in a number format; empty if the GPU has no units for it."""
    if name == BFLOAT16:
        return run_step(gpu, config, plan).record()
    if gpu.gpu.chip.byte_flops_per_cycle <= gpu.gpu.chip.flops_per_cycle:
        return {}
    return run_step(gpu, config, plan.with_(precision=Precision.FP8)).record()


_MARKERS = "osD^"
_MARKS = "PXv"
_MARK_COLOURS = (5, 8, 4)
_NO_ENGINE = "no such engine"
_WIDE = 12.0
"""Ratio of the largest to the least value beyond which an axis has fewer ticks."""
LEAST_TRAINED = 1e-3
"""Difference of trained losses below which an axis is linear, nats per byte."""
LEAST_RISE = 1e-4
"""Rise of the loss below which a GPU is drawn at the foot of the figure, nats per byte."""


def _trained(point: FrontPoint) -> str:
    """Return the cell of the difference by training on the hardware."""
    if math.isnan(point.trained):
        return ""
    if not point.trained_resolved:
        return "not resolved"
    return f"{point.trained:+.4f} \u00b1 {point.trained_error:.4f}"


@dataclass(frozen=True, kw_only=True)
class _Loss:
    """Loss that a panel of the figure shows over energy or time."""

    value: Callable[[FrontPoint], float]
    """The loss, nats per byte."""
    error: Callable[[FrontPoint], float]
    """Standard error of the loss."""
    resolved: Callable[[FrontPoint], bool]
    """Whether the loss exceeds chance."""
    least: float
    """Loss below which a GPU is drawn at the lower end of the axis."""
    names_gpus: bool
    """Whether the legend names GPUs."""


_RISE = _Loss(
    value=attrgetter("rise"),
    error=attrgetter("error"),
    resolved=lambda _: True,
    least=LEAST_RISE,
    names_gpus=True,
)
_TRAINED = _Loss(
    value=attrgetter("trained"),
    error=attrgetter("trained_error"),
    resolved=attrgetter("trained_resolved"),
    least=-math.inf,
    names_gpus=False,
)


def _draw_panel(axes: Axes, front: Front, x_of: Callable[[FrontPoint], float], shown: _Loss) -> None:
    """Draw one quantity over another for each knob, the present setting and the GPUs."""
    present = front.points[0]
    for index, knob in enumerate(KNOBS):
        points = (point for point in front.points if point.knob == knob)
        turned = sorted(points, key=lambda point: point.value)
        if not turned:
            continue
        lowered, raised = ([point for point in turned if point.raised is above] for above in (False, True))
        line = [point for point in (*lowered, present, *raised) if math.isfinite(shown.value(point))]
        axes.errorbar(
            [x_of(point) for point in line],
            [shown.value(point) for point in line],
            yerr=[shown.error(point) for point in line],
            fmt=f"{_MARKERS[index]}-",
            markersize=4,
            linewidth=0.9,
            capsize=2,
            color=PALETTE[index],
            label=f"{knob}: {_range(turned)}",
        )
        for point in line:
            if not shown.resolved(point) and point is not present:
                place = x_of(point), shown.value(point)
                axes.plot(*place, _MARKERS[index], zorder=3, **_hollow(PALETTE[index]))
    x, y = x_of(present), shown.value(present)
    face = REFERENCE if shown.resolved(present) else "white"
    axes.plot(x, y, "*", color=REFERENCE, markerfacecolor=face, markersize=11, label=PRESENT, zorder=4)
    for index, gpu in enumerate(front.marks):
        _draw_gpu(axes, gpu, x_of(gpu), shown, index)
    axes.set_xscale("log")
    axes.grid(visible=True)


def _draw_gpu(axes: Axes, gpu: FrontPoint, x: float, shown: _Loss, index: int) -> None:
    """Draw a GPU as a point; as a horizontal line if it has no units for its number format."""
    y, colour = shown.value(gpu), PALETTE[_MARK_COLOURS[index]]
    if not math.isfinite(x):
        text = f"GPU, {gpu.knob} ({_NO_ENGINE})" if shown.names_gpus else ""
        axes.axhline(y, color=colour, linestyle=":", linewidth=1.0, label=text)
        return
    below = y < shown.least
    text = f"GPU, {gpu.knob}" + (f", below {shown.least:g}" if below else "")
    axes.plot(
        x,
        shown.least if below else y,
        _MARKS[index],
        color=colour,
        markerfacecolor=colour if shown.resolved(gpu) else "white",
        markersize=7,
        label=text if shown.names_gpus else "",
    )


def _hollow(colour: str) -> dict[str, Any]:
    """Return the style of a point whose loss does not exceed chance."""
    return {"markeredgecolor": colour, "markerfacecolor": "white", "markersize": 4}


def _tick(axes: Axes, values: list[float]) -> None:
    """Put ticks at leading digits of the powers of ten where values are, few enough to be read."""
    shown = [value for value in values if math.isfinite(value)]
    low, high = min(shown) / 1.2, max(shown) * 1.2
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > _WIDE
    ticks = [lead * 10.0**power for power in powers for lead in ((1, 2, 5) if wide else (1, 1.5, 2, 3, 5, 7))]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    plain_ticks(axes.xaxis, minor=False)
    axes.set_xlim(low, high)


def _range(points: list[FrontPoint]) -> str:
    """Return the least and the largest value of a knob, with its unit."""
    unit = KNOBS[points[0].knob].unit
    ends = dict.fromkeys(f"{one.value:.3g}" for one in (points[0], points[-1]))
    return f"{' to '.join(ends)}{unit}"


@dataclass(frozen=True, kw_only=True)
class KnobFront(Study):
    """Loss against energy per token over the knobs of a core."""

    directory = "accuracy_front"

    system: str | None = option(None, f"{SYSTEM}; default {CROSSBAR}")
    workload: str = option("llama-3.1-405b", "model whose step is priced")
    accelerators: int | None = option(
        None, f"how many; default the system file's, else {DEFAULT_ACCELERATORS}", metavar="N"
    )
    model: str = option("small", "GPT to execute: small, deep, tiny, narrow or wide")
    steps: int | None = option(None, "updates of its clean training", metavar="N")
    seeds: int | None = option(None, "models, each with its own draws", metavar="K")
    training: bool = option(True, "train the tiny GPT on the outermost settings too")
    quick: bool = option(False, "outermost settings alone, shorter training, fewer draws and seeds")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Front:
        """Return energy, time and loss of every setting."""
        found = settings(
            self.system or self.hardware.crossbar,
            accelerators=self.accelerators,
            **self.hardware.given(),
            assignments=self.hardware.assignments,
        )
        trained_steps = QUICK_TRAINED_STEPS if self.quick else TRAINED_STEPS
        return accuracy_front(
            outermost(found) if self.quick else found,
            workload=self.workload,
            effort=Effort.asked(quick=self.quick, model=self.model, steps=self.steps, seeds=self.seeds),
            trained_steps=trained_steps if self.training else 0,
            cache=progress.training,
            progress=progress,
        )


LIGHT_FACTORS = tuple(2.0 ** (place / 2.0) for place in range(-14, 9))
"""Laser powers over the one that a core comes with; a choice."""
RESCUED = "hybrid+rotation+block"
SYSTEMS = (
    "photonic_packet",
    *(f"photonic_packet:{core}+{RESCUED}" for core in ("crossbar", "ring_bank", "mzi_mesh")),
    "photonic_packet:phase_residue",
)
"""Every core with the rescues of the default one; without them captured operands drown in noise."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One core at one laser power."""

    system: str
    """Name of the system."""
    laser_w: float
    """Power of a laser, or of a line of a comb."""
    energy_j: float
    """Energy of a token of a training step."""
    snr_db: float
    """Signal to noise of all products of the step."""
    tokens: Mapping[tuple[float, Form], Band]
    """Times the tokens to the loss of exact arithmetic, by parameters and form of the law."""

    def to_loss(self, parameters: float, form: Form) -> Band:
        """Return the energy to the loss of exact arithmetic, over the tokens of that: joules a token."""
        return self.tokens[parameters, form].scaled(self.energy_j)

    def between(self, parameters: float) -> tuple[float, float]:
        """Return the ends of the bands of all forms together, joules a token."""
        bands = [self.to_loss(parameters, form) for form in Form]
        return min(band.low for band in bands), max(band.high for band in bands)


@dataclass(frozen=True, kw_only=True)
class EnergyToLoss(Result):
    """Energy to equal loss of every core over its laser power."""

    model: str
    """Model whose step is priced."""
    sizes: Mapping[str, float]
    """Parameters at which the law is asked, by name: the largest trained, and the model's."""
    points: tuple[Point, ...]
    """Cores at their powers."""
    gpus: Mapping[str, float]
    """Energy of a token of the GPU by number format, joules."""
    missing: tuple[str, ...]
    """Sentences on powers that cannot be built."""

    def least(self, system: str, parameters: float, form: Form) -> Point | None:
        """Return the power of least energy to equal loss by a form; None where none gets there."""
        some = [one for one in self.points if one.system == system]
        best = min(some, key=lambda one: one.to_loss(parameters, form).middle, default=None)
        return best if best and math.isfinite(best.to_loss(parameters, form).middle) else None

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems."""
        return tuple(dict.fromkeys(one.system for one in self.points))

    def report(self) -> list[Block]:
        """Return the least energy to equal loss of each core by each form, and whether it is resolved."""
        blocks: list[Block] = []
        for name, parameters in self.sizes.items():
            rows = [
                ReportRow(
                    system,
                    (*(self._told(system, parameters, form) for form in Form),),
                    self._verdict(system, parameters),
                )
                for system in self.systems
            ]
            title = f"Least energy to equal loss, {self.model}'s step, if noise costs as in {name}"
            blocks.append(ReportTable(title, [str(form) for form in Form], rows, note="both together"))
        gpus = ", ".join(f"{name} {format_si(energy, 'J')}" for name, energy in self.gpus.items())
        blocks.append(
            "Joules for each token that exact arithmetic needs, with the band of each form. The GPU alone: "
            f"{gpus} (in MLPerf fp8 needed no more tokens)."
        )
        return [*blocks, *self.missing]

    def _told(self, system: str, parameters: float, form: Form) -> str:
        best = self.least(system, parameters, form)
        if best is None:
            return "never"
        band = best.to_loss(parameters, form)
        ends = (
            f"{band.low:.3g} to {band.high:.3g}" if math.isfinite(band.high) else f"{band.low:.3g} to never"
        )
        return f"{band.middle:.3g} J ({ends}) at {format_si(best.laser_w, 'W')}, {best.snr_db:.0f} dB"

    def _verdict(self, system: str, parameters: float) -> str:
        """Return whether both forms together say something."""
        ends = [one.between(parameters) for one in self.points if one.system == system]
        low, high = min(low for low, _ in ends), min(high for _, high in ends)
        return "" if high <= NARROW * low else "not resolved"

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, SI throughout."""
        return {
            "model": self.model,
            "sizes": dict(self.sizes),
            "points": self.rows(),
            "gpus_j_per_token": dict(self.gpus),
            "missing": list(self.missing),
        }

    def rows(self) -> list[Row]:
        """Return a row for each core, power, size and form."""
        return [
            {
                "system": one.system,
                "laser_w": one.laser_w,
                "energy_j_per_token": one.energy_j,
                "snr_db": one.snr_db,
                "parameters": parameters,
                "form": str(form),
                **{f"tokens_{end}": getattr(band, end) for end in ("low", "middle", "high")},
            }
            for one in self.points
            for (parameters, form), band in one.tokens.items()
        ]

    def figure(self) -> Figure:
        """Return energy to equal loss over laser power: the band of both forms, and each form's least."""
        figure = new_figure(3.9)
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        least = [
            best.to_loss(parameters, form).middle
            for system in self.systems
            for parameters in self.sizes.values()
            for form in Form
            if (best := self.least(system, parameters, form))
        ]
        most = 2.0 * max([*least, *self.gpus.values()])
        for axes, (name, parameters) in zip(panels, self.sizes.items(), strict=True):
            self._draw(axes, parameters, most)
            axes.set_title(f"noise costs as in {name}")
        sizes = self.sizes.values()
        seen = [one.laser_w for one in self.points for size in sizes if one.between(size)[0] < most]
        panels[0].set_xlim(min(seen, default=1e-3) / 2.0, max(seen, default=1.0) * 2.0)
        panels[0].set_ylabel("energy to equal loss (J a token)")
        panels[0].set_ylim(min(self.gpus.values()) / 1.5, most)
        for form, line in _LINES.items():
            if any(one.to_loss(size, form).middle < most for one in self.points for size in sizes):
                panels[0].plot([], [], line, color=REFERENCE, linewidth=0.9, label=f"noise as {form}")
        panels[0].plot([], [], "o", color=REFERENCE, markersize=4, label="least of a form")
        cores = swatches({_core(one): colour for one, colour in zip(self.systems, PALETTE, strict=False)})
        handles, _ = panels[0].get_legend_handles_labels()
        figure.legend(handles=[*cores, *handles], loc="outside lower center", ncols=3)
        return figure

    def _draw(self, axes: Axes, parameters: float, most: float) -> None:
        """Draw the cores at one size; energies beyond the figure stay at its edge."""
        for system, colour in zip(self.systems, PALETTE, strict=False):
            some = [one for one in self.points if one.system == system]
            powers = [one.laser_w for one in some]
            ends = [one.between(parameters) for one in some]
            low, high = ([min(end[place], 2.0 * most) for end in ends] for place in (0, 1))
            axes.fill_between(powers, low, high, color=colour, alpha=0.2, linewidth=0.0)
            for form, line in _LINES.items():
                middle = [min(one.to_loss(parameters, form).middle, 2.0 * most) for one in some]
                axes.plot(powers, middle, line, color=colour, linewidth=0.9)
                best = self.least(system, parameters, form)
                if best:
                    energy_j = best.to_loss(parameters, form).middle
                    axes.plot(best.laser_w, energy_j, "o", color=colour, markersize=4)
        for (name, energy_j), shade in zip(self.gpus.items(), (0.9, 0.4), strict=True):
            axes.axhline(
                energy_j, color=REFERENCE, linestyle=":", alpha=shade, linewidth=1.2, label=f"GPU, {name}"
            )
        axes.set(xscale="log", yscale="log", xlabel="laser power (W)")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis, minor=False)


_LINES: Mapping[Form, str] = MappingProxyType({Form.ADDITIVE: "--", Form.EFFECTIVE: "-"})


def _core(system: str) -> str:
    return system.partition(":")[2].partition("+")[0] or "default core"


def fitted_laws() -> dict[Form, FittedLaw]:
    """Return both forms of the law, fitted to all white noise that ships."""
    runs = read_runs()
    exact, found = fit_exact(runs), rises(runs)
    return {form: fit_with_band(found, form, exact) for form in Form}


def points_of(
    system: System,
    config: TransformerConfig,
    plan: Plan,
    laws: Mapping[Form, FittedLaw],
    sizes: Sequence[float],
) -> tuple[list[Point], list[str]]:
    """Return the points of a system at every laser power that it allows, and a sentence on the others."""
    if system.photonic is None:
        msg = f"--system {system.name} has no laser to turn; name a photonic one, as photonic_packet"
        raise ParameterError(msg)
    runs = StepRuns(step_graph(config, system.planned(plan)))
    core = system.photonic.core
    power_w = float(get_at(core, LASER))
    found, missing = [], {}
    for factor in LIGHT_FACTORS:
        try:
            with limits_told():  # dim and bright ends are asked for as such
                turned = system.with_core(replace_at(core, LASER, factor * power_w))
                step = run_step(turned, config, plan, runs=runs)
                snr_db = step.snr_db
        except (LinkError, BudgetError) as error:
            missing[format_si(factor * power_w, "W")] = str(error)
            continue
        nsr = ratio_from_db(-snr_db)
        found.append(
            Point(
                system=system.name,
                laser_w=factor * power_w,
                energy_j=float(step.record()["energy_per_token_j"]),
                snr_db=snr_db,
                tokens={
                    (size, form): law.more_tokens(nsr, size) for size in sizes for form, law in laws.items()
                },
            )
        )
    if not missing:
        return found, []
    powers, reason = ", ".join(missing), list(missing.values())[-1]
    return found, [f"{system.name} cannot be built with {powers}: {reason}"]


@dataclass(frozen=True, kw_only=True)
class ToEqualLoss(Study):
    """Energy to the loss of exact arithmetic over laser power, by the law of loss over noise."""

    directory = "accuracy_energy"

    system: tuple[str, ...] = option(SYSTEMS, SYSTEM, commas=True)
    workload: str = option("llama-3.1-405b", "model whose step is priced")
    accelerators: int | None = option(
        None, f"how many; default the system file's, else {DEFAULT_ACCELERATORS}", metavar="N"
    )
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> EnergyToLoss:
        """Return every core at every laser power."""
        refuse_unused(self.hardware, ("precision_target",), "laser powers are those of a range")
        config, laws = model_named(self.workload), fitted_laws()
        trained = float(max(run.parameters for run in read_runs()))
        sizes = {f"{trained / 1e6:.2g} million parameters": trained, config.name: float(config.parameters)}
        points: list[Point] = []
        missing: list[str] = []
        gpus: dict[str, float] = {}
        for done, name in enumerate(self.system):
            progress(name, done, len(self.system))
            system = self.hardware.system(name, accelerators=self.accelerators)
            plan = plan_on(system, config)
            found, failed = points_of(system, config, plan, laws, tuple(sizes.values()))
            points, missing = points + found, missing + failed
        for precision in (Precision.BF16, Precision.FP8):
            gpu = replace(system, photonic=None, vector=None, light=None, lighting=None, precision=precision)
            gpus[str(precision)] = float(run_step(gpu, config, plan).record()["energy_per_token_j"])
        progress("done", len(self.system), len(self.system))
        return EnergyToLoss(
            model=config.name, sizes=sizes, points=tuple(points), gpus=gpus, missing=tuple(missing)
        )

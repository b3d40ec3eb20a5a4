"""Energy to equal loss over laser power: dim light saves energy on a token and takes more tokens.

A step is priced at every power and its signal to noise is that of the core's law on captured operands; the
law of loss over size, tokens and noise tells how many more tokens the noise takes to the loss of exact
arithmetic. It has two forms, and both are told: what lies between them is not known.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.hardware import DEFAULT_ACCELERATORS, SYSTEM, Hardware
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.accuracy.law import (
    DECIBEL,
    NARROW,
    Band,
    FittedLaw,
    Form,
    fit_exact,
    fit_with_band,
    read_runs,
    rises,
)
from heliograph.accuracy.precision import delivered, products_of
from heliograph.report import ReportRow, ReportTable, format_si
from heliograph.simulation import StepRuns, run_step, step_graph
from heliograph.style import PALETTE, REFERENCE, new_figure, plain_ticks, styled
from heliograph.systems import System
from heliograph.systems.registry import model_named
from heliograph.workload import plan_for
from optical.cores.sizing import LASER
from simulator.errors import BudgetError, LimitWarning, LinkError, ParameterError
from simulator.parameter_tree import get_at, replace_at
from workloads.models.architecture import TransformerConfig
from workloads.plan.choices import Precision
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FACTORS = tuple(2.0 ** (place / 2.0) for place in range(-14, 9))
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
            blocks.append(ReportTable(title, [str(form) for form in Form], rows))
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
        with styled():
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
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=3)
            return figure

    def _draw(self, axes: Axes, parameters: float, most: float) -> None:
        """Draw the cores at one size; energies beyond the figure stay at its edge."""
        for system, colour in zip(self.systems, PALETTE, strict=False):
            some = [one for one in self.points if one.system == system]
            powers = [one.laser_w for one in some]
            ends = [one.between(parameters) for one in some]
            low, high = ([min(end[place], 2.0 * most) for end in ends] for place in (0, 1))
            axes.fill_between(powers, low, high, color=colour, alpha=0.2, linewidth=0.0, label=_core(system))
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
    """Return a system at every laser power that its budget allows, and sentences on the others."""
    if system.photonic is None:
        msg = f"--system {system.name} has no laser to turn; name a photonic one, as photonic_packet"
        raise ParameterError(msg)
    runs = StepRuns(step_graph(config, system.planned(plan)))
    products, core = products_of(runs.graph), system.photonic.core
    power_w = float(get_at(core, LASER))
    found, missing = [], {}
    for factor in FACTORS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LimitWarning)  # dim and bright ends are asked for as such
                turned = system.with_core(replace_at(core, LASER, factor * power_w))
                step = run_step(turned, config, plan, runs=runs)
            snr_db = delivered(turned, products, turned.operands).snr_db
        except (LinkError, BudgetError) as error:
            missing[format_si(factor * power_w, "W")] = str(error)
            continue
        nsr = 10.0 ** (-snr_db / DECIBEL)
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
    told = [f"{', '.join(missing)}: {error}" for error in list(missing.values())[-1:]]
    return found, [f"{system.name} cannot be built with {text}" for text in told]


@dataclass(frozen=True, kw_only=True)
class ToEqualLoss(Study):
    """Energy to the loss of exact arithmetic over laser power, by the law of loss over noise."""

    directory = "accuracy_energy"

    system: tuple[str, ...] = option(SYSTEMS, SYSTEM, commas=True)
    workload: str = option("llama-3.1-405b", "model whose step is priced")
    accelerators: int = option(DEFAULT_ACCELERATORS, "how many", metavar="N")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> EnergyToLoss:
        """Return every core at every laser power."""
        config, laws = model_named(self.workload), fitted_laws()
        trained = float(max(run.parameters for run in read_runs()))
        sizes = {f"{trained / 1e6:.2g} million parameters": trained, config.name: float(config.parameters)}
        points: list[Point] = []
        missing: list[str] = []
        gpus: dict[str, float] = {}
        for done, name in enumerate(self.system):
            progress(name, done, len(self.system))
            system = self.hardware.system(name, accelerators=self.accelerators)
            memory_bytes = system.node().memory.capacity_bytes
            plan = plan_for(config, "", accelerators=system.accelerators, memory_bytes=memory_bytes)
            found, failed = points_of(system, config, plan, laws, tuple(sizes.values()))
            points, missing = points + found, missing + failed
        for precision in (Precision.BF16, Precision.FP8):
            gpu = replace(system, photonic=None, vector=None, light=None, lighting=None, precision=precision)
            gpus[str(precision)] = float(run_step(gpu, config, plan).record()["energy_per_token_j"])
        progress("done", len(self.system), len(self.system))
        return EnergyToLoss(
            model=config.name, sizes=sizes, points=tuple(points), gpus=gpus, missing=tuple(missing)
        )

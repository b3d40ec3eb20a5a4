"""Training on the hardware, from nothing or of the model that ships: fragile products and their rescues."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.accuracy.prediction import aware, told
from experiments.hardware import SYSTEM, Hardware
from experiments.options import option
from experiments.study import Block, Progress, Result, Study
from heliograph.accuracy.small_gpt import (
    EXACT,
    LEARNT,
    NOTHING,
    Accuracy,
    Arithmetic,
    StepsToLoss,
    difference_text,
    steps_to_loss,
    train_all,
)
from heliograph.records import TrainingCache
from heliograph.report import ReportRow, ReportTable
from heliograph.style import PALETTE, REFERENCE, new_figure, plain_ticks, styled
from heliograph.systems import System
from optical.cores.crossbar import Crossbar
from optical.cores.number_formats import BlockFloatCore, in_short_residues
from optical.cores.rescues import rescued
from optical.execution import AnalogSpec, Rounding, Scale
from simulator.errors import ParameterError
from simulator.operators import Phase

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION = ("scores", "values")
"""Products of attention, both operands of which are activations."""
HEAD = ("head",)
"""The product that gives the logits."""
REST = ("qkv", "projection", "up", "down")
"""The other products of the model."""
RESIDUES = "residue numbers"
"""Label of the same parts multiplying remainders."""
RESCUED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "loud channels electronic": ("hybrid",),
        "rotated operands": ("rotation",),
        "block scales": ("block",),
        "all three": ("hybrid", "rotation", "block"),
    }
)
"""Rescues around a core in further training, by label."""
PASSES = 4
"""Executions of each product where several are averaged."""

LINEAR_NATS = 0.01
"""Largest rise that a figure of further training shows in proportion; beyond, its axis is logarithmic."""

Specs = Mapping[Phase, AnalogSpec]


@dataclass(frozen=True, kw_only=True)
class Variants(Result):
    """Outcome of training with each variant of one system."""

    system: str
    """Name of the system."""
    accuracies: Mapping[str, Accuracy]
    """By variant; exact arithmetic first, then noise of nothing."""

    @property
    def steps(self) -> dict[str, StepsToLoss]:
        """Steps to the loss of exact arithmetic, by variant."""
        return {label: steps_to_loss(one) for label, one in self.accuracies.items() if label != EXACT}

    @property
    def floor(self) -> float:
        """Largest difference of a seed's final loss that noise of nothing made, nats per byte."""
        return self.accuracies[NOTHING.label].largest_difference

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per variant and seed."""
        return [
            {
                "system": self.system,
                "variant": label,
                "seed": index,
                "final_loss_nats": one.final[index],
                "difference_nats": one.differences[index],
                "exact_evaluation_difference_nats": one.exact_evaluation[index] - one.reference[index],
                "steps_relative": self.steps[label].ratios[index] if label in self.steps else 1.0,
            }
            | ({"before_nats": one.before[index]} if one.before else {})
            for label, one in self.accuracies.items()
            for index in range(len(one.final))
        ]

    @property
    def further(self) -> bool:
        """Whether the model that ships was trained further."""
        return bool(self.accuracies[EXACT].before)

    def report(self) -> list[Block]:
        """Return the table of all variants, with the floor of chance."""
        rows, steps = [], self.steps
        untrained = self.accuracies[NOTHING.label].before
        for label, one in self.accuracies.items():
            cells: tuple[str, ...] = (f"{one.mean:.3f}", "", "", "")
            if label != EXACT:
                last = told(steps[label])
                if self.further:
                    last = difference_text(one.before, max(map(abs, untrained)))
                cells = (
                    f"{one.mean:.3f}",
                    difference_text(one.differences, self.floor),
                    difference_text(one.exact_differences, self.floor),
                    last,
                )
            rows.append(ReportRow(label, cells))
        count = len(self.accuracies[EXACT].final)
        title = (
            f"{'Further t' if self.further else 'T'}raining through {self.system}, {count} seeds, nats/byte"
        )
        heads = (
            "final loss",
            "minus exact",
            "read out exactly",
            "before" if self.further else "steps to loss",
        )
        chance = f"Noise of nothing moves the loss of a seed by up to {self.floor:.2g} nats/byte."
        return [ReportTable(title, heads, rows), chance]

    def record(self) -> dict[str, Any]:
        """Return the rows and the floor as plain data."""
        return {"rows": self.rows(), "floor_nats": self.floor}

    def figure(self) -> Figure:
        """Return the loss of each variant against exact arithmetic, seed by seed."""
        shown = [
            (label, one) for label, one in self.accuracies.items() if label not in (EXACT, NOTHING.label)
        ]
        with styled():
            figure = new_figure(1.2 + 0.27 * len(shown))
            axes = figure.add_subplot()
            text = "what noise of nothing does to a seed"
            axes.axvspan(-self.floor, self.floor, color=PALETTE[9], alpha=0.4, linewidth=0.0, label=text)
            axes.axvline(0.0, color=REFERENCE, linewidth=0.9, linestyle="--", label="exact arithmetic")
            for index, (_, one) in enumerate(shown):
                below = [index + 0.25] * len(one.differences)  # else the mean's mark hides them
                axes.plot(one.differences, below, ".", color=PALETTE[4], markersize=5)
                axes.plot(one.before, [index - 0.25] * len(one.before), "d", color=PALETTE[1], markersize=4)
                error = one.difference_error
                axes.errorbar(
                    statistics.fmean(one.differences),
                    index,
                    xerr=error if math.isfinite(error) else None,
                    fmt="o",
                    color=PALETTE[0],
                    markerfacecolor=PALETTE[0] if one.resolved(self.floor) else "white",
                    capsize=2,
                    markersize=4,
                    linewidth=1.0,
                )
            text, colour = "mean and standard error; dots: seeds", PALETTE[0]
            axes.errorbar([], [], xerr=[], fmt="o", color=colour, capsize=2, markersize=4, label=text)
            text = "not told from chance"
            axes.plot([], [], "o", color=colour, markerfacecolor="white", markersize=4, label=text)
            if self.further:
                axes.plot([], [], "d", color=PALETTE[1], markersize=4, label="before further training, seeds")
                axes.set_xscale("symlog", linthresh=LINEAR_NATS)
                plain_ticks(axes.xaxis)
            axes.set_yticks(range(len(shown)), [name for name, _ in shown])
            axes.invert_yaxis()
            axes.set_xlabel("final loss through the same products, minus exact (nats/byte)")
            axes.set_title(f"Training through {self.system}")
            axes.grid(visible=True, axis="x")
            figure.legend(loc="outside lower center", ncols=2)
            return figure


def seeds_from(first: int, count: int) -> range:
    """Return so many seeds."""
    if count < 2:
        msg = f"seeds ({count}) must be at least 2, since one seed tells no difference from chance"
        raise ParameterError(msg)
    return range(first, first + count)


def fragile(specs: Specs) -> tuple[Arithmetic, ...]:
    """Return the core in one place only, the rest exact: phase by phase, then product by product."""
    ideal = dict.fromkeys(specs, AnalogSpec.ideal())
    phases = [
        Arithmetic(label=f"only {str(phase).replace('_', ' ')}", analog={**ideal, phase: spec})
        for phase, spec in specs.items()
    ]
    kept = {"attention": HEAD + REST, "head": ATTENTION + REST, "other products": HEAD + ATTENTION}
    products = [
        Arithmetic(label=f"only {name}", analog=specs, exact_products=exact) for name, exact in kept.items()
    ]
    return (*phases, *products)


def rescues(specs: Specs) -> tuple[Arithmetic, ...]:
    """Return the whole core with one thing done otherwise; residues have no scale but a block's."""
    changed = [
        Arithmetic(label="head digital", analog=specs, exact_products=HEAD),
        Arithmetic(label="gradients rounded to nearest", analog=_each(specs, rounding=Rounding.NEAREST)),
        Arithmetic(label="all rounded stochastically", analog=_each(specs, rounding=Rounding.STOCHASTIC)),
        Arithmetic(label=f"{PASSES} passes", analog=specs, passes=PASSES),
    ]
    if specs[Phase.FORWARD].residues is None:
        changed += [
            Arithmetic(label="one scale per tensor", analog=_each(specs, scale=Scale.TENSOR)),
            Arithmetic(label="block floating point", analog=_each(specs, scale=Scale.BLOCK)),
        ]
    return tuple(changed)


def in_residues(system: System) -> Arithmetic | None:
    """Return a system's crossbar with residue numbers in short sums, or None for cores of other kinds.

    What is exact stays so only while its remainders are read rightly: the core's own light, converters and
    losses say how often they are not.
    """
    core = system.photonic.core if system.photonic is not None else None
    if isinstance(core, BlockFloatCore):
        core = core.core
    if not isinstance(core, Crossbar):
        return None
    short = in_short_residues(core, RESIDUES)
    return Arithmetic(label=RESIDUES, analog={phase: short.analog(phase) for phase in system.analog() or ()})


def further(system: System, specs: Specs, *, quick: bool) -> tuple[Arithmetic, ...]:
    """Return what the model that ships is trained further through: a core, its parts, and rescues around it.

    Gradients are exact but in one: weights are adapted to the core that will run them. Rescues that the core
    has already are left out.
    """
    whole = Arithmetic(label="gradients on the core, too", analog=specs)
    core = system.photonic.core if system.photonic is not None else None
    if core is None:
        return (whole,)
    found = {"the core": aware(whole)}
    for label, names in RESCUED.items():
        new = tuple(name for name in names if f"+{name}" not in core.name)
        if new == names:
            around = rescued(core, new)
            found[label] = aware(
                Arithmetic(label="", analog={phase: around.analog(phase) for phase in specs})
            )
    if quick:
        found = {label: found[label] for label in ("the core", "all three") if label in found}
    else:
        found["head digital"] = dataclasses.replace(aware(whole), exact_products=HEAD)
    named = tuple(dataclasses.replace(one, label=label) for label, one in found.items())
    return named if quick else (*named, whole)


def _each(specs: Specs, **changes: Any) -> Specs:  # noqa: ANN401 - fields of any type
    return {phase: dataclasses.replace(spec, **changes) for phase, spec in specs.items()}


def train_variants(
    system: System,
    *,
    seeds: range,
    quick: bool,
    cache: TrainingCache,
    model: str,
    steps: int | None = None,
    with_residues: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> Variants:
    """Train every variant of a system's core, paired over seeds.

    Parameters
    ----------
    system : System
        A system with a photonic core.
    seeds : range
        Of initial weights, batches and noise.
    quick : bool
        Fewer steps, and the places of fragility alone.
    cache : TrainingCache
        Finished runs, which are not repeated.
    model : str
        Shape of the model, of `heliograph.accuracy.small_gpt.MODELS`; or the one that ships, trained further.
    steps : int, optional
        Updates, if not the usual number.
    with_residues : bool
        Whether a crossbar multiplies remainders too, whose products take two to five times as long.
    progress : callable
        Told runs done, runs in all, and the label of the run just done.
    """
    specs = system.analog()
    if specs is None:
        msg = f"system '{system.name}' has no photonic core to vary; name one such as photonic_packet"
        raise ParameterError(msg)
    residues = in_residues(system) if with_residues else None
    if model == LEARNT:
        wanted = [NOTHING, *further(system, specs, quick=quick)]
    else:
        wanted = [NOTHING, Arithmetic(label="whole core", analog=specs), *fragile(specs)]
        wanted += () if quick else rescues(specs)
    if residues is not None:
        wanted.append(residues)
    trained = train_all(
        wanted, seeds=seeds, quick=quick, cache=cache, model=model, steps=steps, progress=progress
    )
    return Variants(system=system.name, accuracies=trained)


@dataclass(frozen=True, kw_only=True)
class TrainVariants(Study):
    """Fragile products in training through a core, and their rescues."""

    directory = "accuracy_training"

    system: str = option("photonic_packet:crossbar", SYSTEM)
    model: str = option(
        "tiny",
        "small, deep, tiny, narrow or wide, trained from nothing; or learnt, which ships and is trained on",
    )
    steps: int | None = option(None, "updates of every training run", metavar="N")
    seeds: int = option(3, "paired runs", metavar="K")
    seed: int = option(0, "first seed")
    residues: bool = option(False, "residue numbers on a crossbar too (products two to five times as slow)")
    quick: bool = option(False, "fewer steps, and no rescues")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Variants:
        """Return what training with each variant came to."""
        return train_variants(
            self.hardware.system(self.system),
            seeds=seeds_from(self.seed, self.seeds),
            quick=self.quick,
            cache=progress.training,
            model=self.model,
            steps=self.steps,
            with_residues=self.residues,
            progress=progress.of("training"),
        )

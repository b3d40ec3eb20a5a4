"""Training on the hardware, from nothing or of the model that ships: fragile products and rescues."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.accuracy.prediction import aware, chance_told, told
from experiments.hardware import CROSSBAR, SYSTEM, Hardware
from experiments.study import Block, Progress, Result, Row, Study, option
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
    transformer_of,
)
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks
from heliograph.processes import OnProgress, of_part, unheard
from heliograph.records import TrainingCache
from heliograph.report import ReportRow, ReportTable
from heliograph.systems import System
from optical.cores.crossbar import Crossbar
from optical.cores.number_formats import BlockFloatCore, in_short_residues
from optical.cores.rescues import rescued
from optical.execution import AnalogSpec, Rounding, Scale
from simulator.errors import ParameterError
from simulator.operators import Phase

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from workloads.training.gpt import Corpus, Gpt

_MEAN_OF = 50
"""Updates whose mean loss is one point of the curve."""
_OUTLIER = 6.0
"""Root mean square of an outlier channel, in medians of its layer's channels; a choice."""
_WINDOWS = 32
"""Windows over which operands are measured."""
_QUICK_WINDOWS = 128
"""Windows of held-out text with ``--quick``."""


@dataclass(frozen=True, kw_only=True)
class LayerOperands:
    """Operand of one product of a block over held-out text."""

    layer: int
    """Number of the block; the head's is one beyond the last."""
    product: str
    """Name of the product whose first operand it is."""
    kurtosis: float
    """Fourth moment over the squared second, dimensionless; 3 for a Gaussian."""
    loudest: float
    """Root mean square of the loudest channel over that of the median one, dimensionless."""
    outliers: int
    """Channels at least six times as loud as the median one."""
    channels: int
    """Channels of the operand: the length K of its sums."""


@dataclass(frozen=True, kw_only=True)
class Learnt(Result):
    """Losses of a trained model on held-out files, nats per byte, and statistics of its operands."""

    loss: float
    """Loss of the model."""
    pairs: float
    """Loss of a table of byte pairs."""
    triples: float
    """Loss of a table of byte triples."""
    layers: tuple[LayerOperands, ...]
    """Operands by block and product."""
    training: Mapping[str, Any]
    """Record of the training, stored with the weights."""
    curve: tuple[tuple[int, float], ...] = ()
    """Updates and the mean loss of their batches, if the study trained the model."""

    def report(self) -> list[Block]:
        """Return the losses, and a line for each block and product."""
        recipe, corpus = self.training["recipe"], self.training["corpus"]
        losses = ReportTable(
            title="Loss on held-out files, nats per byte",
            heads=("loss",),
            rows=[
                ReportRow("table of byte pairs", (f"{self.pairs:.3f}",)),
                ReportRow("table of byte triples", (f"{self.triples:.3f}",)),
                ReportRow("the model", (f"{self.loss:.3f}",)),
            ],
        )
        operands = ReportTable(
            title="First operands of its products",
            heads=("K", "kurtosis", "loudest/median", "outliers"),
            rows=[
                ReportRow(
                    f"{one.layer} {one.product}",
                    (
                        str(one.channels),
                        f"{one.kurtosis:.1f}",
                        f"{one.loudest:.1f}",
                        str(one.outliers),
                    ),
                )
                for one in self.layers
            ],
        )
        trained = (
            f"Trained once: {recipe['steps']} updates of {recipe['batch']} windows, seed {recipe['seed']}"
        )
        return [losses, operands, f"{trained}, on {corpus['name']} (sha256 {corpus['sha256'][:12]})."]

    def record(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "held_out_nats_per_byte": self.loss,
            "pairs_nats_per_byte": self.pairs,
            "triples_nats_per_byte": self.triples,
            "training": dict(self.training),
            "curve": [{"step": step, "nats_per_byte": loss} for step, loss in self.curve],
            "operands": self.rows(),
        }

    def rows(self) -> list[Row]:
        """Return a row for each block and product."""
        return [vars(one) | {"held_out_nats_per_byte": self.loss} for one in self.layers]

    def figure(self) -> Figure | None:
        """Return the course of the training, if there was one."""
        if not self.curve:
            return None
        figure = new_figure(3.2)
        axes = figure.subplots()
        steps, losses = zip(*self.curve, strict=True)
        axes.plot(steps, losses, label="training batches")
        for label, level in (("byte pairs", self.pairs), ("byte triples", self.triples)):
            axes.axhline(level, color="0.6", linewidth=0.8)
            axes.annotate(label, (steps[-1], level), ha="right", va="bottom")
        axes.plot(steps[-1], self.loss, "o", label="held-out files, at the end")
        axes.set(xlabel="update", ylabel="loss (nats/byte)")
        axes.legend()
        return figure


@dataclass(frozen=True, kw_only=True)
class JudgeLearnt(Study):
    """The model that ships, judged on held-out files, or trained anew."""

    weights: Path | None = option(
        None, "file of weights; the ones that ship, or with --train where they are written", metavar="FILE"
    )
    train: bool = option(False, "train anew; goes on from FILE.checkpoint if that is there")
    steps: int | None = option(None, "updates of the training; those of the recipe if not told")
    seed: int = option(0, "seed of the training")
    quick: bool = option(False, "judge by a sample of the held-out text, some seconds instead of a minute")

    def run(self, progress: Progress) -> Learnt:
        """Return the losses of the model and the statistics of its operands."""
        if not self.train and (self.steps is not None or self.seed):
            msg = "--steps and --seed are those of a training; add --train"
            raise ParameterError(msg)
        from workloads.training.gpt import Products, python_source  # noqa: PLC0415 - torch
        from workloads.training.pretraining import (  # noqa: PLC0415 - torch
            CORPUS_BYTES,
            WEIGHTS,
            FastBfloat,
            held_out_loss,
            load_weights,
        )

        corpus = python_source(most_bytes=CORPUS_BYTES)
        weights = self.weights
        curve: tuple[tuple[int, float], ...] = ()
        if self.train:
            if weights is None:
                msg = "--train writes weights: say where by --weights FILE"
                raise ParameterError(msg)
            curve = self._train(weights, corpus, progress)
        model, record = load_weights(Products.same(FastBfloat()), weights or WEIGHTS)
        progress("judge", 0, 1)
        loss = held_out_loss(model, corpus, windows=_QUICK_WINDOWS if self.quick else None)
        progress("judge", 1, 1)
        return Learnt(
            loss=loss,
            pairs=table_loss(corpus, 2),
            triples=table_loss(corpus, 3),
            layers=tuple(operands_by_layer(model, corpus)),
            training=record,
            curve=curve,
        )

    def _train(self, weights: Path, corpus: Corpus, progress: Progress) -> tuple[tuple[int, float], ...]:
        """Train, write the weights, and return the course of the loss."""
        from workloads.training.pretraining import (  # noqa: PLC0415 - torch
            LEARNT,
            Pretraining,
            held_out_loss,
            pretrain,
            save_weights,
            training_record,
        )

        chosen = {} if self.steps is None else {"steps": self.steps}
        recipe = Pretraining(seed=self.seed, **chosen)
        losses: list[float] = []
        curve: list[tuple[int, float]] = []

        def on_step(step: int, loss: float) -> None:
            losses.append(loss)
            if step % _MEAN_OF == 0 or step == recipe.steps:
                curve.append((step, float(np.mean(losses))))
                losses.clear()
            progress("train", step, recipe.steps)

        checkpoint = weights.with_name(f"{weights.name}.checkpoint")
        model = pretrain(recipe, LEARNT, corpus, checkpoint=checkpoint, on_step=on_step)
        save_weights(weights, model, training_record(recipe, corpus, held_out_loss(model, corpus)))
        checkpoint.unlink()
        return tuple(curve)


def table_loss(corpus: Corpus, length: int) -> float:
    """Return the loss of a table of byte sequences on the validation text, in nats per byte.

    Parameters
    ----------
    corpus : Corpus
        Counts are of its training text.
    length : int
        Bytes of a sequence, at least 1: the last is predicted from those before it. A sequence never counted
        has the share of the next shorter table, mixed in with the weight of one count.
    """
    share = np.full(corpus.validation.size, 1 / 256)
    for order in range(1, length + 1):
        known, asked = (_sequences(text, order) for text in (corpus.train, corpus.validation))
        counts = np.bincount(known, minlength=256**order)
        contexts = counts.reshape(-1, 256).sum(1)
        at = slice(order - 1, None)
        share[at] = (counts[asked] + share[at]) / (contexts[asked // 256] + 1)
    return float(-np.log(share[length - 1 :]).mean())


def _sequences(text: np.ndarray, length: int) -> np.ndarray:
    """Return each sequence of a length as one whole number, int64."""
    count = text.size - length + 1
    number = np.zeros(count, dtype=np.int64)
    for place in range(length):
        number = 256 * number + text[place : place + count]
    return number


@dataclass(frozen=True)
class _Listening:
    """Exact products whose first operands are handed on."""

    layer: int
    product: str
    found: dict[tuple[int, str], list[torch.Tensor]]

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, [B, M, N]."""
        del key
        self.found.setdefault((self.layer, self.product), []).append(a_BMK.flatten(0, 1))
        return a_BMK.bmm(b_BKN)


def operands_by_layer(model: Gpt, corpus: Corpus) -> list[LayerOperands]:
    """Return the first operands of all products of weights, over held-out text."""
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.gpt import ProductName, Products  # noqa: PLC0415 - torch
    from workloads.training.pretraining import held_out_loss  # noqa: PLC0415 - torch

    found: dict[tuple[int, str], list[torch.Tensor]] = {}
    before = model.products
    names = [one.name.lower() for one in ProductName if one not in (ProductName.SCORES, ProductName.VALUES)]
    layers = [
        Products(
            forward=before.forward,
            grad_input=before.grad_input,
            grad_weight=before.grad_weight,
            exceptions={name: Products.same(_Listening(layer, name, found)) for name in names},
        )
        for layer in range(model.config.layers + 1)
    ]
    model.use_each(layers)
    held_out_loss(model, corpus, windows=_WINDOWS)
    model.use(before)
    return [_measured(layer, name, torch.cat(parts)) for (layer, name), parts in found.items()]


def _measured(layer: int, product: str, x_MK: torch.Tensor) -> LayerOperands:
    """Return the statistics of one operand, [M, K]."""
    square = x_MK.double().square()
    channel = square.mean(0).sqrt()
    median = float(channel.median())
    return LayerOperands(
        layer=layer,
        product=product,
        kurtosis=float(square.square().mean() / square.mean() ** 2),
        loudest=float(channel.max()) / median,
        outliers=int((channel >= _OUTLIER * median).sum()),
        channels=x_MK.shape[1],
    )


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
        return [ReportTable(title, heads, rows), chance_told(self.floor)]

    def record(self) -> dict[str, Any]:
        """Return the rows and the floor as plain data."""
        return {"rows": self.rows(), "floor_nats": self.floor}

    def figure(self) -> Figure:
        """Return the loss of each variant against exact arithmetic, seed by seed."""
        shown = [
            (label, one) for label, one in self.accuracies.items() if label not in (EXACT, NOTHING.label)
        ]
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
    """Return consecutive seeds; at least two, since one tells no difference from chance."""
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
    """Return the arithmetics for further training of the shipped model: a core, and rescues around it.

    Gradients are exact in all but one: weights are adapted to the core that will run them. Rescues that the
    core already has are left out.
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
    progress: OnProgress = unheard,
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
        Told the label of the run just done, runs done, and runs in all.
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

    system: str | None = option(None, f"{SYSTEM}; default {CROSSBAR}")
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
        """Return the losses after training with each variant."""
        system = self.hardware.system(self.system or self.hardware.crossbar)
        self.hardware.refuse_beside_products([system])
        (lighted,) = self.hardware.lit_for([system], transformer_of(self.model))
        return train_variants(
            lighted,
            seeds=seeds_from(self.seed, self.seeds),
            quick=self.quick,
            cache=progress.training,
            model=self.model,
            steps=self.steps,
            with_residues=self.residues,
            progress=of_part(progress, "training"),
        )

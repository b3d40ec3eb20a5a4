"""The byte-level GPT that ships with its weights: what it knows, its outlier channels, its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.report import ReportRow, ReportTable
from simulator.errors import ParameterError

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from workloads.training.corpora import Corpus
    from workloads.training.gpt import Gpt

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
    """What a model has learnt. Losses are in nats per byte."""

    loss: float
    """On all held-out files."""
    pairs: float
    """Of a table of byte pairs on the same files."""
    triples: float
    """Of a table of byte triples."""
    layers: tuple[LayerOperands, ...]
    """Operands by block and product."""
    training: Mapping[str, Any]
    """Record of the training that stands beside the weights."""
    curve: tuple[tuple[int, float], ...] = ()
    """Updates and the mean loss of their batches, of a training run now."""

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
        from heliograph.style import new_figure  # noqa: PLC0415 - matplotlib takes its time

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
        """Return what the model has learnt."""
        if not self.train and (self.steps is not None or self.seed):
            msg = "--steps and --seed are those of a training; add --train"
            raise ParameterError(msg)
        from workloads.training.corpora import python_source  # noqa: PLC0415 - only to execute
        from workloads.training.gpt import Products  # noqa: PLC0415 - torch
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

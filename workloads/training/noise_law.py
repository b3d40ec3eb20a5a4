"""Training runs from which the law of loss over size, tokens and noise is fitted.

One run trains at a constant rate and is judged at several tokens a parameter; before each of them a copy
decays its rate to zero. Runs of one seed share initial weights and batches, whatever their arithmetic.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from simulator.errors import check_positive, check_range
from simulator.interfaces import Numerics
from simulator.keys import mix_key
from workloads.training.gpt import (
    GRADIENT_NORM,
    TRAINING_STREAM,
    Corpus,
    Gpt,
    GptConfig,
    Products,
    TrainingConfig,
    adamw,
    check_corpus,
    text_windows,
    validate,
)

_POOL = 2**22
"""Numbers that draws are cut from, at least; twice as many as the largest draw has."""
_REFERENCE_WIDTH = 64
"""Width at which `LawTraining.learning_rate` holds; others have it over the root of their width."""


@dataclass(frozen=True, kw_only=True)
class LawTraining:
    """Recipe of the runs of the law."""

    tokens_per_parameter: tuple[float, ...] = (5.0, 10.0, 20.0)
    """Tokens read over parameters in products at which the run is judged, ascending."""
    batch: int = 8
    """Windows of a batch."""
    learning_rate: float = 3e-3
    """Of AdamW, at a width of 64; it falls with the root of the width."""
    warmup_steps: int = 40
    """Updates over which the rate rises."""
    decay_share: float = 0.2
    """Share of the updates over which a decayed run's rate falls, 0 to 1."""
    validation_windows: int = 192
    """Windows that the run is judged by."""
    seed: int = 0
    """Of initial weights, batches and draws."""

    def __post_init__(self) -> None:
        check_range(self, "batch", "validation_windows", low=1)
        check_range(self, "warmup_steps", "seed")
        check_range(self, "decay_share", low=0.0, high=1.0)
        check_positive(self, "learning_rate")


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """Loss of a run at one number of tokens."""

    tokens: int
    """Tokens read."""
    tokens_per_parameter: float
    """Those asked for, over parameters."""
    decayed: bool
    """Whether the rate fell to zero before."""
    loss: float
    """Validation loss through the run's own arithmetic, nats per byte."""
    exact_loss: float
    """Validation loss of the same weights with exact products, nats per byte."""


def parameters_in_products(shape: GptConfig) -> int:
    """Return the number of weights that enter products: those of blocks and head, not of look-ups."""
    return sum(4 * shape.width**2 + 2 * shape.width * hidden for hidden in shape.hidden) + (
        shape.width * shape.vocabulary
    )


@functools.cache
def _pool(seed: int, size: int) -> torch.Tensor:
    """Return so many Gaussian numbers, [P]."""
    return torch.randn(size, generator=torch.Generator("cpu").manual_seed(mix_key(seed)))


@dataclass(frozen=True, kw_only=True)
class PooledNoise:
    """Exact products plus Gaussian noise cut from a pool, a set share of each result's mean square.

    Notes
    -----
    As `workloads.training.probes.GaussianProducts`, at a fifth of its cost: a draw is a stretch of four
    million numbers that begins where its key says, so that two draws may overlap, shifted.
    """

    nsr: float
    """Noise-to-signal ratio, dimensionless power ratio."""
    seed: int = 0
    """Of the pool."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        c_BMN = exact_product(a_BMK, b_BKN)
        count = c_BMN.numel()
        size = max(_POOL, 1 << (2 * count).bit_length())
        begin = key % (size - count)
        scale = torch.linalg.vector_norm(c_BMN) * (self.nsr / count) ** 0.5
        return torch.addcmul(c_BMN, _pool(self.seed, size)[begin : begin + count].view_as(c_BMN), scale)


def exact_product(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> torch.Tensor:
    """Return the product of [B, M, K] and [B, K, N]; of one matrix without the cost of a batch."""
    if len(a_BMK) == 1:
        return torch.mm(a_BMK[0], b_BKN[0]).unsqueeze(0)
    return torch.bmm(a_BMK, b_BKN)


class _Exact:
    """Exact products."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]."""
        del key
        return exact_product(a_BMK, b_BKN)


EXACT: Numerics = _Exact()
"""Exact products, the reference of a run."""


class _Run:
    """Model and optimizer of one run."""

    def __init__(self, recipe: LawTraining, shape: GptConfig, products: Products, corpus: Corpus) -> None:
        check_corpus(corpus, shape)
        self.recipe, self.shape, self.products, self.corpus = recipe, shape, products, corpus
        self.rate = recipe.learning_rate * (_REFERENCE_WIDTH / shape.width) ** 0.5
        self.model = Gpt(shape, products, mix_key(recipe.seed))
        self.optimizer = adamw(self.model, self.rate)
        self.step = 0

    def branch(self) -> _Run:
        """Return a copy that goes its own way."""
        copy = _Run(self.recipe, self.shape, self.products, self.corpus)
        copy.model.load_state_dict(self.model.state_dict())
        copy.optimizer.load_state_dict(self.optimizer.state_dict())
        copy.step = self.step
        return copy

    def advance(self, end: int | None = None, decay: int = 1) -> None:
        """Make one update; the rate decays over the last `decay` of `end` updates, if those are told."""
        self.step += 1
        seed, length = self.recipe.seed, self.shape.context
        order = np.random.default_rng((seed, self.step))
        starts = order.integers(0, self.corpus.train.size - length, size=self.recipe.batch)
        tokens_BT, targets_BT = text_windows(self.corpus.train, starts, length)
        loss = self.model(tokens_BT, targets_BT, key=mix_key(seed, TRAINING_STREAM, self.step))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
        factor = min(1.0, self.step / max(1, self.recipe.warmup_steps))
        if end is not None:
            factor *= min(1.0, (end - self.step + 1) / max(1, decay))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * factor
        self.optimizer.step()

    def judge(self, products: Products) -> float:
        """Return the loss on fixed windows with fixed keys, nats per byte."""
        windows, seed = self.recipe.validation_windows, self.recipe.seed
        self.model.use(products)
        loss = validate(
            self.model, TrainingConfig(batch=16, validation_windows=windows, seed=seed), self.corpus
        )
        self.model.use(self.products)
        return loss

    def point(self, ratio: float, *, decayed: bool) -> LawPoint:
        """Return where the run is now."""
        return LawPoint(
            tokens=self.step * self.recipe.batch * self.shape.context,
            tokens_per_parameter=ratio,
            decayed=decayed,
            loss=self.judge(self.products),
            exact_loss=self.judge(Products.same(EXACT)),
        )


def train_points(
    recipe: LawTraining,
    shape: GptConfig,
    products: Products,
    corpus: Corpus,
) -> tuple[LawPoint, ...]:
    """Train once and return the loss at every number of tokens, by both schedules.

    Parameters
    ----------
    recipe : LawTraining
        How to train.
    shape : GptConfig
        Shape of the model.
    products : Products
        What runs its products, in training and in judging.
    corpus : Corpus
        What to read.
    """
    run = _Run(recipe, shape, products, corpus)
    per_step = recipe.batch * shape.context
    parameters = parameters_in_products(shape)
    ends = {max(2, round(ratio * parameters / per_step)): ratio for ratio in recipe.tokens_per_parameter}
    decays = {end - max(1, round(recipe.decay_share * end)): end for end in ends}
    points = []
    for step in range(max(ends) + 1):
        if step:
            run.advance()
        if step in decays:
            end = decays[step]
            aside = run.branch()
            while aside.step < end:
                aside.advance(end, end - step)
            points.append(aside.point(ends[end], decayed=True))
        if step in ends:
            points.append(run.point(ends[step], decayed=False))
    return tuple(points)

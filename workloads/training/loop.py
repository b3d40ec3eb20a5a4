"""Training loop of a small GPT through given numerics, to be read in one sitting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from simulator.errors import WorkloadError, check_positive, check_range
from simulator.keys import mix_key
from workloads.training.corpora import Corpus
from workloads.training.gpt import Gpt, GptConfig, Products

_BETAS = (0.9, 0.95)
_WEIGHT_DECAY = 0.1
GRADIENT_NORM = 1.0
"""Largest norm of the whole gradient; beyond it the gradient is scaled down."""
_TRAINING_STREAM, _VALIDATION_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of a training run. Runs that differ only in their numerics share initial weights and batches.

    The learning rate rises linearly and then stays. By default it does not decay: a decay tied to the number
    of steps would bias a comparison of steps to a loss.
    """

    steps: int = 90
    """Updates."""
    batch: int = 12
    """Windows of a batch."""
    learning_rate: float = 7e-4
    """Of AdamW, per update."""
    warmup_steps: int = 10
    """Updates over which the learning rate rises; 0 for a constant one."""
    decay_share: float = 0.0
    """Share of the updates over which, at the end, it falls to zero, 0 to 1."""
    validation_windows: int = 72
    """Windows, evenly spaced over the validation text, that every validation reads."""
    eval_every: int = 15
    """Updates between validations; there is one at the end in any case."""
    seed: int = 0
    """Of initial weights, batches and all draws."""

    def __post_init__(self) -> None:
        check_range(self, "steps", "batch", "validation_windows", "eval_every", low=1)
        check_range(self, "warmup_steps")
        check_range(self, "seed")
        check_range(self, "decay_share", low=0.0, high=1.0)
        check_positive(self, "learning_rate")

    def rate(self, step: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        rise = min(1.0, step / max(1, self.warmup_steps))
        fall = min(1.0, (self.steps - step + 1) / max(1.0, self.decay_share * self.steps))
        return self.learning_rate * rise * fall

    @classmethod
    def quick(cls, *, seed: int = 0) -> TrainingConfig:
        """Return a run of some seconds, for tests and first looks."""
        return cls(steps=24, warmup_steps=5, validation_windows=24, eval_every=8, seed=seed)


@dataclass(frozen=True, kw_only=True)
class TrainingCurve:
    """Course of a training run. Losses are in nats per token."""

    steps: tuple[int, ...]
    """Updates, from 1."""
    training_loss: tuple[float, ...]
    """Loss of the batch of each update, before the update."""
    validation_steps: tuple[int, ...]
    """Updates after which the model was validated."""
    validation_loss: tuple[float, ...]
    """Mean loss of the validation windows, through the same numerics."""
    tokens_per_step: int
    """Tokens of a batch."""
    corpus_sha256: str
    """Hash of the corpus."""
    seconds: float = field(compare=False)
    """Wall time of the run on this machine; not compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A model at the end of its training."""

    model: Gpt
    """The model; what runs its products may be exchanged by `Gpt.use`."""
    curve: TrainingCurve
    """How it got there."""


def train(
    config: TrainingConfig,
    gpt_config: GptConfig,
    products: Products,
    corpus: Corpus,
    on_step: Callable[[int, float], None] | None = None,
) -> TrainingCurve:
    """Return the curve of `train_model`; the same arguments give the same curve, bit for bit."""
    return train_model(config, gpt_config, products, corpus, on_step).curve


def train_model(
    config: TrainingConfig,
    gpt_config: GptConfig,
    products: Products,
    corpus: Corpus,
    on_step: Callable[[int, float], None] | None = None,
    *,
    start: Gpt | None = None,
) -> Trained:
    """Train a model and return it with its curve; the same arguments give the same bits.

    Parameters
    ----------
    config : TrainingConfig
        How to train.
    gpt_config : GptConfig
        Shape of the model; its vocabulary must hold all bytes.
    products : Products
        What runs its products, in training and validation alike.
    corpus : Corpus
        What to read.
    on_step : callable, optional
        Called after each update with its number, from 1, and the loss of its batch.
    start : Gpt, optional
        Model of that shape that is trained further, in place; by default a new one.

    Raises
    ------
    WorkloadError
        If the corpus is shorter than a window, or its bytes exceed the vocabulary.
    """
    check_corpus(corpus, gpt_config)
    started = time.perf_counter()
    length = gpt_config.context
    model = Gpt(gpt_config, products, mix_key(config.seed)) if start is None else start
    model.use(products)
    optimizer = adamw(model, config.learning_rate)
    order = np.random.default_rng(config.seed)
    steps, losses, validation_steps, validation_losses = [], [], [], []
    for step in range(1, config.steps + 1):
        starts = order.integers(0, corpus.train.size - length, size=config.batch)
        tokens_BT, targets_BT = text_windows(corpus.train, starts, length)
        loss = model(tokens_BT, targets_BT, key=mix_key(config.seed, _TRAINING_STREAM, step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        for group in optimizer.param_groups:
            group["lr"] = config.rate(step)
        optimizer.step()
        steps.append(step)
        losses.append(loss.item())
        if step % config.eval_every == 0 or step == config.steps:
            validation_steps.append(step)
            validation_losses.append(validate(model, config, corpus))
        if on_step is not None:
            on_step(step, losses[-1])
    curve = TrainingCurve(
        steps=tuple(steps),
        training_loss=tuple(losses),
        validation_steps=tuple(validation_steps),
        validation_loss=tuple(validation_losses),
        tokens_per_step=config.batch * length,
        corpus_sha256=corpus.sha256,
        seconds=time.perf_counter() - started,
    )
    return Trained(model=model, curve=curve)


@torch.no_grad()
def validate(model: Gpt, config: TrainingConfig, corpus: Corpus) -> float:
    """Return the mean loss of fixed windows of the validation text, with fixed keys, in nats per token.

    Parameters
    ----------
    model : Gpt
        What is judged, through its own numerics.
    config : TrainingConfig
        Says how many windows, how many of them at a time, and the seed.
    corpus : Corpus
        Whose validation text is read.
    """
    total = 0.0
    for index, (tokens_BT, targets_BT) in enumerate(validation_batches(model, config, corpus)):
        key = mix_key(config.seed, _VALIDATION_STREAM, index * config.batch)
        total += len(tokens_BT) * model(tokens_BT, targets_BT, key=key).item()
    return total / config.validation_windows


def validation_batches(
    model: Gpt, config: TrainingConfig, corpus: Corpus
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the fixed windows of the validation text, tokens and targets [B, T], a batch at a time."""
    length = model.config.context
    starts = np.linspace(0, corpus.validation.size - length - 1, config.validation_windows).astype(np.int64)
    for first in range(0, starts.size, config.batch):
        some = starts[first : first + config.batch]
        yield text_windows(corpus.validation, some, length)


def text_windows(text: np.ndarray, starts: np.ndarray, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of windows and the tokens that follow each, shape [B, T]."""
    tokens = torch.from_numpy(text[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


def adamw(model: Gpt, learning_rate: float) -> torch.optim.AdamW:
    """Return AdamW, which decays matrices but not the gains and offsets of norms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.dim() > 1], "weight_decay": _WEIGHT_DECAY},
        {"params": [weight for weight in parameters if weight.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=_BETAS, fused=True)


def check_corpus(corpus: Corpus, gpt_config: GptConfig) -> None:
    """Refuse a corpus that the model cannot read."""
    for name, text in (("training", corpus.train), ("validation", corpus.validation)):
        if text.size <= gpt_config.context + 1:
            msg = f"the {name} text has {text.size} bytes; a window needs more than {gpt_config.context + 1}"
            raise WorkloadError(msg)
        if int(text.max()) >= gpt_config.vocabulary:
            rule = f"the vocabulary ({gpt_config.vocabulary}) must exceed it"
            msg = f"the {name} text holds byte {text.max()}; {rule}"
            raise WorkloadError(msg)

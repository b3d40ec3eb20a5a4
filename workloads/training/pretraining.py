"""Pretraining of byte-level GPTs: the one that ships with its weights, and those that the law is fitted to.

`LEARNT` is the model that ships and `Pretraining` how it was trained, once: matrices of the blocks follow
Muon (Jordan et al., 2024), whose updates are orthogonal; embeddings, head and norms follow AdamW.

The law of loss over size, tokens and noise is fitted to runs of `LawTraining`. A run trains at a constant
rate and is validated at several numbers of tokens per parameter; before each of them a copy decays its rate
to zero. Runs of one seed share initial weights and batches, whatever their numerics.
"""

from __future__ import annotations

import json
import math
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simulator.errors import WorkloadError, check_positive, check_range
from simulator.keys import mix_key
from workloads.training.gpt import (
    Corpus,
    Gpt,
    GptConfig,
    Products,
    TrainingConfig,
    adamw,
    check_corpus,
    draw_windows,
    rate_factor,
    text_windows,
    update,
    validate,
)
from workloads.training.probes import EXACT_PRODUCTS

WEIGHTS = Path(__file__).parent / "learnt_gpt.npz"
"""Weights that ship, with their record."""
LEARNT = GptConfig(layers=4, width=256, heads=4, context=256, mlp_widths=(1024, 1024, 1024, 4096))
"""Shape of the model that ships; its longest sum is 4,096 products."""
CORPUS_BYTES = 2**24
"""Most bytes of the corpus of pretraining: all of the standard library."""
_BETAS = (0.9, 0.95)
_RECORD = "record"
_AT_A_TIME = 16
"""Windows that are validated at a time."""


class FastBfloat:
    """Products in the processor's own bfloat16 with sums in float32; as `BfloatNumerics`, but faster.

    A CPU without AVX-512 multiplies the rounded operands in float32: its own bfloat16 takes 100 times as
    long.
    """

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N], of operands [B, M, K] and [B, K, N]; the key is not used."""
        del key
        has_bfloat16 = torch.backends.cpu.get_cpu_capability() == "AVX512"
        dtype = torch.bfloat16 if has_bfloat16 else torch.float32
        a, b = (x.to(torch.bfloat16).to(dtype) for x in (a_BMK, b_BKN))
        product = torch.mm(a[0], b[0]).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)
        return product.to(torch.bfloat16).to(a_BMK.dtype)


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """Recipe of the pretraining: warm-up, a constant rate, then a linear decay to zero."""

    steps: int = 1400
    """Updates."""
    batch: int = 16
    """Windows of a batch."""
    muon_rate: float = 6e-3
    """Learning rate of matrices."""
    adam_rate: float = 3e-3
    """Learning rate of all other weights."""
    weight_decay: float = 0.1
    """Decay of matrices, per unit of learning rate."""
    warmup_steps: int = 60
    """Updates over which the rate rises."""
    decay_share: float = 0.5
    """Share of the updates over which the rate falls to zero, 0 to 1."""
    seed: int = 0
    """Of initial weights and batches."""

    def __post_init__(self) -> None:
        check_range(self, "steps", "batch", low=1)
        check_range(self, "warmup_steps", "seed")
        check_range(self, "decay_share", "weight_decay", low=0.0, high=1.0)
        check_positive(self, "muon_rate", "adam_rate")

    def rate(self, step: int) -> float:
        """Return the factor of the learning rates at an update, counted from 1."""
        decay = self.decay_share * self.steps
        return rate_factor(step, warmup_steps=self.warmup_steps, end=self.steps, decay=decay)


class _Trainer:
    """Model, optimizers and batches of one pretraining, which can be saved and resumed."""

    def __init__(self, recipe: Pretraining, shape: GptConfig, corpus: Corpus) -> None:
        check_corpus(corpus, shape)
        self.recipe, self.corpus, self.step = recipe, corpus, 0
        self.model = Gpt(shape, Products.same(FastBfloat()), mix_key(recipe.seed))
        matrices = [weight for weight in self.model.blocks.parameters() if weight.dim() > 1]
        by_muon = {id(weight) for weight in matrices}
        others = [weight for weight in self.model.parameters() if id(weight) not in by_muon]
        self.optimizers = (
            _muon(matrices, recipe),
            torch.optim.AdamW(others, lr=recipe.adam_rate, betas=_BETAS, weight_decay=0.0, fused=True),
        )
        self.rates = (recipe.muon_rate, recipe.adam_rate)

    def advance(self) -> float:
        """Make one update and return the loss of its batch before it, nats per byte."""
        self.step += 1
        order = np.random.default_rng((self.recipe.seed, self.step))
        length, batch = self.model.config.context, self.recipe.batch
        loss = self.model(*draw_windows(self.corpus.train, length, batch, order))
        loss.backward()
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * self.recipe.rate(self.step)
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.item())

    def save(self, path: Path) -> None:
        """Write the state of the training."""
        state = {"step": self.step, "model": self.model.state_dict()}
        state["optimizers"] = [optimizer.state_dict() for optimizer in self.optimizers]
        temporary = path.with_suffix(".new")
        torch.save(state, temporary)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Go on from a file that `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.step = int(state["step"])
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def _muon(matrices: list[torch.nn.Parameter], recipe: Pretraining) -> torch.optim.Muon:
    """Return Muon with updates as large as AdamW's (Liu et al., arXiv:2502.16982, equation 4)."""
    return torch.optim.Muon(
        matrices,
        lr=recipe.muon_rate,
        weight_decay=recipe.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )


def pretrain(
    recipe: Pretraining,
    shape: GptConfig,
    corpus: Corpus,
    *,
    checkpoint: Path | None = None,
    every: int = 100,
    on_step: Callable[[int, float], None] | None = None,
) -> Gpt:
    """Return a model trained by a recipe.

    Parameters
    ----------
    recipe : Pretraining
        Settings of the training.
    shape : GptConfig
        Shape of the model.
    corpus : Corpus
        Its text.
    checkpoint : Path, optional
        File from which training goes on if it exists, and to which it is saved.
    every : int
        Updates between savings.
    on_step : callable, optional
        Called after each update with its number, from 1, and the loss of its batch in nats per byte.

    Raises
    ------
    WorkloadError
        If the corpus is shorter than a window, or its bytes exceed the vocabulary.
    """
    trainer = _Trainer(recipe, shape, corpus)
    if checkpoint is not None and checkpoint.exists():
        trainer.load(checkpoint)
    while trainer.step < recipe.steps:
        loss = trainer.advance()
        if on_step is not None:
            on_step(trainer.step, loss)
        if checkpoint is not None and (trainer.step % every == 0 or trainer.step == recipe.steps):
            trainer.save(checkpoint)
    return trainer.model


@torch.no_grad()
def held_out_loss(model: Gpt, corpus: Corpus, windows: int | None = None) -> float:
    """Return the mean loss over the validation text, in nats per byte, through the model's own numerics.

    Parameters
    ----------
    model : Gpt
        The model.
    corpus : Corpus
        Its validation text is read.
    windows : int, optional
        Windows of the context's length, evenly spaced; by default all, side by side.
    """
    return float(np.mean(list(_window_losses(model, corpus, windows))))


def _window_losses(model: Gpt, corpus: Corpus, windows: int | None) -> Iterator[float]:
    """Yield the mean loss of each window."""
    length = model.config.context
    last = corpus.validation.size - length - 1
    starts = np.arange(0, last + 1, length) if windows is None else np.linspace(0, last, windows).astype(int)
    for first in range(0, len(starts), _AT_A_TIME):
        tokens_BT, targets_BT = text_windows(corpus.validation, starts[first : first + _AT_A_TIME], length)
        logits_BTV = model(tokens_BT, key=mix_key(first))
        losses_BT = torch.nn.functional.cross_entropy(logits_BTV.mT, targets_BT, reduction="none")
        yield from losses_BT.mean(1).tolist()


def save_weights(path: Path, model: Gpt, record: dict[str, Any]) -> None:
    """Write a model's weights in half precision, its shape and a record, as arrays without code."""
    arrays: dict[str, Any] = {
        name: weight.detach().numpy().astype(np.float16) for name, weight in model.state_dict().items()
    }
    text = json.dumps({"shape": asdict(model.config), **record}, indent=1)
    arrays[_RECORD] = np.frombuffer(text.encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_weights(products: Products, path: Path = WEIGHTS) -> tuple[Gpt, dict[str, Any]]:
    """Return the model of a file that `save_weights` wrote, and its record.

    Parameters
    ----------
    products : Products
        Numerics of its products.
    path : Path
        The file; by default the weights that ship.

    Raises
    ------
    WorkloadError
        If the file cannot be read, or is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            weights = {name: torch.from_numpy(arrays[name].astype(np.float32)) for name in arrays.files}
            record = json.loads(bytes(arrays[_RECORD]).decode())
        weights.pop(_RECORD)
        shape = {**record["shape"], "mlp_widths": tuple(record["shape"]["mlp_widths"])}
        model = Gpt(GptConfig(**shape), products, 0)
        model.load_state_dict(weights)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        msg = f"'{path}' is no file of weights that save_weights wrote: {error}"
        raise WorkloadError(msg) from error
    return model, record


def training_record(recipe: Pretraining, corpus: Corpus, loss: float) -> dict[str, Any]:
    """Return the record that is stored with the weights: recipe, corpus and loss on held-out files."""
    return {
        "recipe": asdict(recipe),
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "train_bytes": int(corpus.train.size)},
        "held_out_nats_per_byte": loss,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
    }


_REFERENCE_WIDTH = 64
"""Width at which `LawTraining.learning_rate` holds; others have it over the root of their width."""


@dataclass(frozen=True, kw_only=True)
class LawTraining:
    """Recipe of the runs of the law."""

    tokens_per_parameter: tuple[float, ...] = (5.0, 10.0, 20.0)
    """Tokens per parameter in products at which the run is validated, ascending."""
    batch: int = 8
    """Windows of a batch."""
    learning_rate: float = 3e-3
    """Of AdamW, at a width of 64; it falls with the root of the width."""
    warmup_steps: int = 40
    """Updates over which the rate rises."""
    decay_share: float = 0.2
    """Share of the updates over which a decayed run's rate falls, 0 to 1."""
    validation_windows: int = 192
    """Windows of a validation."""
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
    """Tokens per parameter that the recipe asks for; `tokens` are rounded to whole updates."""
    decayed: bool
    """Whether the rate fell to zero before."""
    loss: float
    """Validation loss through the run's own numerics, nats per byte."""
    exact_loss: float
    """Validation loss of the same weights with exact products, nats per byte."""


def parameters_in_products(shape: GptConfig) -> int:
    """Return the number of weights that enter products: those of blocks and head, not of look-ups."""
    return sum(4 * shape.width**2 + 2 * shape.width * hidden for hidden in shape.hidden) + (
        shape.width * shape.vocabulary
    )


class _LawRun:
    """Model and optimizer of one run."""

    def __init__(self, recipe: LawTraining, shape: GptConfig, products: Products, corpus: Corpus) -> None:
        check_corpus(corpus, shape)
        self.recipe, self.shape, self.products, self.corpus = recipe, shape, products, corpus
        self.rate = recipe.learning_rate * (_REFERENCE_WIDTH / shape.width) ** 0.5
        self.model = Gpt(shape, products, mix_key(recipe.seed))
        self.optimizer = adamw(self.model, self.rate)
        self.step = 0

    def branch(self) -> _LawRun:
        """Return a copy in the same state, which is trained apart from this run."""
        copy = _LawRun(self.recipe, self.shape, self.products, self.corpus)
        copy.model.load_state_dict(self.model.state_dict())
        copy.optimizer.load_state_dict(self.optimizer.state_dict())
        copy.step = self.step
        return copy

    def advance(self, end: float = math.inf, decay: int = 1) -> None:
        """Make one update; the rate decays over the last `decay` of `end` updates."""
        self.step += 1
        recipe = self.recipe
        order = np.random.default_rng((recipe.seed, self.step))
        batch = draw_windows(self.corpus.train, self.shape.context, recipe.batch, order)
        factor = rate_factor(self.step, warmup_steps=recipe.warmup_steps, end=end, decay=decay)
        rate = self.rate * factor
        update(self.model, self.optimizer, batch, seed=recipe.seed, step=self.step, rate=rate)

    def validation_loss(self, products: Products) -> float:
        """Return the loss on fixed windows with fixed keys, through some numerics, nats per byte."""
        windows, seed = self.recipe.validation_windows, self.recipe.seed
        self.model.use(products)
        loss = validate(
            self.model, TrainingConfig(batch=16, validation_windows=windows, seed=seed), self.corpus
        )
        self.model.use(self.products)
        return loss

    def point(self, ratio: float, *, decayed: bool) -> LawPoint:
        """Return the losses of the run in its present state."""
        return LawPoint(
            tokens=self.step * self.recipe.batch * self.shape.context,
            tokens_per_parameter=ratio,
            decayed=decayed,
            loss=self.validation_loss(self.products),
            exact_loss=self.validation_loss(EXACT_PRODUCTS),
        )


def train_points(
    recipe: LawTraining,
    shape: GptConfig,
    products: Products,
    corpus: Corpus,
) -> tuple[LawPoint, ...]:
    """Train once and return the loss at every number of tokens, without and with a decay of the rate before.

    Parameters
    ----------
    recipe : LawTraining
        Settings of the training.
    shape : GptConfig
        Shape of the model.
    products : Products
        Numerics of its products, in training and validation.
    corpus : Corpus
        Its text.
    """
    run = _LawRun(recipe, shape, products, corpus)
    per_step = recipe.batch * shape.context
    parameters = parameters_in_products(shape)
    ends = {max(2, round(ratio * parameters / per_step)): ratio for ratio in recipe.tokens_per_parameter}
    decays = {end - max(1, round(recipe.decay_share * end)): end for end in ends}  # begin of each
    points = []
    for step in range(max(ends) + 1):
        if step:
            run.advance()
        if step in decays:
            end = decays[step]
            decaying = run.branch()
            while decaying.step < end:
                decaying.advance(end, end - step)
            points.append(decaying.point(ends[end], decayed=True))
        if step in ends:
            points.append(run.point(ends[step], decayed=False))
    return tuple(points)

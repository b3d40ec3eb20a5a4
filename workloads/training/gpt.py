"""A small byte-level GPT, every matrix product of which goes through a `Numerics`, its text and its training.

The text is one that every machine has: the source of Python's own standard library, as bytes.

Shape suffixes: B windows of a batch, T positions, C width, H heads, D width of a head, F width of the MLP, V
vocabulary, G = B H; products are M, K, N as in `simulator.interfaces`.
"""

from __future__ import annotations

import hashlib
import math
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from simulator.errors import WorkloadError, check_positive, check_range, nearest
from simulator.interfaces import Numerics
from simulator.keys import mix_key

MLP_EXPANSION = 4
"""Width of the MLP in units of the model's width."""
_INITIAL_DEVIATION = 0.02
"""Standard deviation of initial weights, as in GPT-2 (Radford et al. 2019)."""
_BETAS = (0.9, 0.95)
_WEIGHT_DECAY = 0.1
_GRADIENT_NORM = 1.0
"""Largest norm of the whole gradient; beyond it the gradient is scaled down."""
_TRAINING_STREAM, _VALIDATION_STREAM = 0, 1
_MOST_BYTES = 8 * 2**20
"""Size of the text unless another is asked."""
_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "turtledemo",
    }
)
"""Folders whose files are absent on some installations, or are tables rather than text."""
_LEAST_FILES = 2


class ProductName(IntEnum):
    """The products of the model, numbered for their keys."""

    QKV = 0
    SCORES = 1
    VALUES = 2
    PROJECTION = 3
    UP = 4
    DOWN = 5
    HEAD = 6


@dataclass(frozen=True, kw_only=True)
class GptConfig:
    """Shape of the model.

    Raises
    ------
    ParameterError, WorkloadError
        If a size is below one, or the heads do not divide the width.
    """

    vocabulary: int = 256
    """Tokens that exist; 256 for bytes."""
    layers: int = 2
    """Blocks of attention and MLP."""
    width: int = 384
    """Size of the residual stream."""
    heads: int = 4
    """Attention heads."""
    context: int = 64
    """Positions that a window may have."""
    mlp_widths: tuple[int, ...] = ()
    """Width of each block's MLP; empty for `MLP_EXPANSION` times the width in all."""

    def __post_init__(self) -> None:
        check_range(self, "vocabulary", "layers", "width", "heads", "context", low=1)
        if self.mlp_widths and (len(self.mlp_widths) != self.layers or min(self.mlp_widths) < 1):
            rule = f"one width, at least 1, for each of the layers ({self.layers})"
            msg = f"GptConfig: mlp_widths must be {rule}, or empty; got {self.mlp_widths}"
            raise WorkloadError(msg)
        if self.width % self.heads:
            choices = [count for count in range(1, self.width + 1) if self.width % count == 0]
            msg = f"GptConfig: heads ({self.heads}) must divide width ({self.width}); try one of {choices}"
            raise WorkloadError(msg)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Width of each block's MLP."""
        return self.mlp_widths or (MLP_EXPANSION * self.width,) * self.layers


@dataclass(frozen=True, kw_only=True)
class Products:
    """Numerics of the products of each phase.

    Notes
    -----
    A product C = A B of the forward pass has two more in the backward pass: dA = dC B^T, always of the
    phase `grad_input`, and dB = A^T dC, of the phase `grad_weight` if B is a weight and `grad_input` if it is
    not, as in attention, where both operands are activations.
    """

    forward: Numerics
    """Of the forward pass."""
    grad_input: Numerics
    """Of gradients of activations."""
    grad_weight: Numerics
    """Of gradients of weights."""
    exceptions: Mapping[str, Products] = field(default_factory=lambda: MappingProxyType({}))
    """Products run otherwise, by their lower-case name, e.g. ``{"head": ...}`` for a digital output head."""

    def __post_init__(self) -> None:
        known = [product.name.lower() for product in ProductName]
        for name in self.exceptions:
            if name not in known:
                msg = f"there is no product '{name}'; {nearest(name, known, noun='product')}"
                raise WorkloadError(msg)

    @classmethod
    def same(cls, numerics: Numerics) -> Products:
        """Return products that all come out of one numerics."""
        return cls(forward=numerics, grad_input=numerics, grad_weight=numerics)

    def run(
        self, product: ProductName, a_BMK: torch.Tensor, b_BKN: torch.Tensor, *, key: int, weight: bool
    ) -> torch.Tensor:
        """Return a product whose backward pass goes through the numerics too, shape [B, M, N].

        Parameters
        ----------
        product : ProductName
            Which product of the model it is.
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        key : int
            Key of all draws of this product, forward and backward.
        weight : bool
            Whether B is a weight.
        """
        chosen = self.exceptions.get(product.name.lower(), self)
        return _Product.apply(a_BMK, b_BKN, _Call(products=chosen, key=mix_key(key, product), weight=weight))


@dataclass(frozen=True, kw_only=True)
class _Call:
    """Numerics and key of one product."""

    products: Products
    """Numerics of its phases."""
    key: int
    """Key of its draws."""
    weight: bool
    """Whether B is a weight."""


class _Product(torch.autograd.Function):
    """A product and its two gradient products, each through its own numerics and key."""

    @staticmethod
    def forward(ctx: Any, a_BMK: torch.Tensor, b_BKN: torch.Tensor, call: _Call) -> torch.Tensor:  # noqa: ANN401
        ctx.save_for_backward(a_BMK, b_BKN)
        ctx.call = call
        return call.products.forward.matmul(a_BMK, b_BKN, mix_key(call.key, 0))

    @staticmethod
    def backward(ctx: Any, grad_BMN: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        a_BMK, b_BKN = ctx.saved_tensors
        call, products = ctx.call, ctx.call.products
        grad_a, grad_b = None, None
        if ctx.needs_input_grad[0]:
            grad_a = products.grad_input.matmul(grad_BMN, b_BKN.mT, mix_key(call.key, 1))
        if ctx.needs_input_grad[1]:
            numerics = products.grad_weight if call.weight else products.grad_input
            grad_b = numerics.matmul(a_BMK.mT, grad_BMN, mix_key(call.key, 2))
        return grad_a, grad_b, None


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream; weights are [in, out]."""

    def __init__(
        self, config: GptConfig, hidden: int, products: Products, generator: torch.Generator
    ) -> None:
        super().__init__()
        width = config.width
        residual = _INITIAL_DEVIATION / math.sqrt(2 * config.layers)
        self.heads, self.products = config.heads, products
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = _weight((width, 3 * width), _INITIAL_DEVIATION, generator)
        self.projection = _weight((width, width), residual, generator)
        self.up = _weight((width, hidden), _INITIAL_DEVIATION, generator)
        self.down = _weight((hidden, width), residual, generator)

    def forward(self, x_BTC: torch.Tensor, key: int) -> torch.Tensor:
        """Return the residual stream after the block, shape [B, T, C]."""
        x_BTC = x_BTC + self._attention(self.attention_norm(x_BTC), key)
        up_BTF = _linear(self.products, ProductName.UP, self.mlp_norm(x_BTC), self.up, key)
        return x_BTC + _linear(self.products, ProductName.DOWN, functional.gelu(up_BTF), self.down, key)

    def _attention(self, x_BTC: torch.Tensor, key: int) -> torch.Tensor:
        """Return causal attention: full scores first, then the mask, as a matrix engine would."""
        batch, length, width = x_BTC.shape
        qkv = _linear(self.products, ProductName.QKV, x_BTC, self.qkv, key)
        qkv = qkv.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q_GTD, k_GTD, v_GTD = qkv.reshape(3, batch * self.heads, length, width // self.heads).unbind(0)
        scores_GTT = self.products.run(ProductName.SCORES, q_GTD, k_GTD.mT, key=key, weight=False)
        later_TT = torch.ones(length, length, dtype=torch.bool, device=x_BTC.device).triu(1)
        scores_GTT = (scores_GTT * (width // self.heads) ** -0.5).masked_fill(later_TT, -math.inf)
        read_GTD = self.products.run(ProductName.VALUES, scores_GTT.softmax(-1), v_GTD, key=key, weight=False)
        read_BTC = read_GTD.view(batch, self.heads, length, -1).transpose(1, 2).reshape(batch, length, width)
        return _linear(self.products, ProductName.PROJECTION, read_BTC, self.projection, key)


class Gpt(nn.Module):
    """The model: learned positions, pre-norm blocks, GELU, no biases outside the norms, an untied head.

    The head has its own weight, so that its product is counted and its noise drawn apart from the embedding,
    which is a look-up.

    Parameters
    ----------
    config : GptConfig
        Its shape.
    products : Products
        Numerics of its products.
    seed : int
        Of the initial weights, which are the same for any device and any `products`.
    """

    def __init__(self, config: GptConfig, products: Products, seed: int) -> None:
        super().__init__()
        self.config, self.products = config, products
        generator = torch.Generator("cpu").manual_seed(mix_key(seed))
        self.tokens = _weight((config.vocabulary, config.width), _INITIAL_DEVIATION, generator)
        self.positions = _weight((config.context, config.width), _INITIAL_DEVIATION, generator)
        self.blocks = nn.ModuleList(Block(config, hidden, products, generator) for hidden in config.hidden)
        self.norm = nn.LayerNorm(config.width)
        self.head = _weight((config.width, config.vocabulary), _INITIAL_DEVIATION, generator)

    def use(self, products: Products) -> None:
        """Run all products of the model by other numerics from now on; weights stay as they are."""
        self.products = products
        for block in self.blocks:
            block.products = products  # type: ignore[assignment]

    def use_each(self, layers: Sequence[Products]) -> None:
        """Run each block's products, and last the head's, by numerics of their own."""
        for block, products in zip(self.blocks, layers, strict=False):
            block.products = products  # type: ignore[assignment]
        self.products = layers[len(self.blocks)]

    def forward(
        self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor | None = None, key: int = 0
    ) -> torch.Tensor:
        """Return the mean loss in nats per token, or without targets the logits, shape [B, T, V].

        Parameters
        ----------
        tokens_BT, targets_BT : torch.Tensor
            Integer tokens and those to predict, shape [B, T].
        key : int
            Key of all draws of this pass; fold in the seed and the step.

        Raises
        ------
        WorkloadError
            If the windows are longer than the context.
        """
        length = tokens_BT.shape[1]
        if length > self.config.context:
            msg = f"windows of {length} tokens do not fit; at most the context ({self.config.context})"
            raise WorkloadError(msg)
        x_BTC = functional.embedding(tokens_BT, self.tokens) + self.positions[:length]
        for layer, block in enumerate(self.blocks):
            x_BTC = block(x_BTC, mix_key(key, layer))
        head_key = mix_key(key, len(self.blocks))
        logits_BTV = _linear(self.products, ProductName.HEAD, self.norm(x_BTC), self.head, head_key)
        if targets_BT is None:
            return logits_BTV
        return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


def _linear(
    products: Products, product: ProductName, x_BTC: torch.Tensor, weight_CN: torch.Tensor, key: int
) -> torch.Tensor:
    """Return the product of activations and a weight [in, out], shape [B, T, N]."""
    batch, length, _ = x_BTC.shape
    y = products.run(
        product, x_BTC.reshape(1, batch * length, -1), weight_CN.unsqueeze(0), key=key, weight=True
    )
    return y.view(batch, length, -1)


def _weight(shape: tuple[int, int], deviation: float, generator: torch.Generator) -> nn.Parameter:
    """Return a Gaussian weight, drawn on the CPU so that it is the same for every device."""
    weight = torch.empty(shape)
    if not weight.is_meta:
        weight.copy_(torch.randn(shape, generator=generator, device="cpu") * deviation)
    return nn.Parameter(weight)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Text of a model, in bytes: a part to train on and one to validate on, from different files."""

    name: str
    """Description."""
    train: np.ndarray
    """Bytes to train on, uint8, shape [N]."""
    validation: np.ndarray
    """Bytes to validate on, uint8, shape [V]."""
    sha256: str
    """Hash of the training bytes followed by the validation bytes; it changes with the version of Python."""


def python_source(
    root: Path | None = None, *, most_bytes: int = _MOST_BYTES, validation_every: int = 10
) -> Corpus:
    """Return the Python source below a folder.

    Parameters
    ----------
    root : Path, optional
        The folder; by default the standard library of the running Python.
    most_bytes : int
        Size not to exceed. Files are taken whole, in the order of the hash of their relative path, so that
        a smaller corpus is a fair sample of the larger.
    validation_every : int
        One file in so many is for validation, at least 2.

    Raises
    ------
    WorkloadError
        If there are too few files for the two parts.
    """
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    if validation_every < _LEAST_FILES:
        msg = f"validation_every must be at least {_LEAST_FILES}; got {validation_every}"
        raise WorkloadError(msg)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    size = 0
    for index, path in enumerate(_source_files(root)):
        text = path.read_bytes()
        if size + len(text) > most_bytes:
            break
        parts[index % validation_every == validation_every - 1].append(text)
        size += len(text)
    train, validation = b"".join(parts[0]), b"".join(parts[1])
    if not train or not validation:
        msg = f"'{root}' holds {size} bytes of Python source, too little to split; name a folder with more"
        raise WorkloadError(msg)
    return Corpus(
        name=f"Python source below '{root.name}'",
        train=np.frombuffer(train, dtype=np.uint8),
        validation=np.frombuffer(validation, dtype=np.uint8),
        sha256=hashlib.sha256(train + validation).hexdigest(),
    )


def _source_files(root: Path) -> Iterator[Path]:
    """Return the source files in an order that depends on their relative paths alone."""
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        relative = Path(folder).relative_to(root)
        names += [(relative / name).as_posix() for name in files if name.endswith(".py")]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    return (root / name for name in names)


def check_corpus(corpus: Corpus, gpt_config: GptConfig) -> None:
    """Raise an error for a corpus that is shorter than a window, or whose bytes exceed the vocabulary."""
    for name, text in (("training", corpus.train), ("validation", corpus.validation)):
        if text.size <= gpt_config.context + 1:
            msg = f"the {name} text has {text.size} bytes; a window needs more than {gpt_config.context + 1}"
            raise WorkloadError(msg)
        if int(text.max()) >= gpt_config.vocabulary:
            rule = f"the vocabulary ({gpt_config.vocabulary}) must exceed it"
            msg = f"the {name} text holds byte {text.max()}; {rule}"
            raise WorkloadError(msg)


def text_windows(text: np.ndarray, starts: np.ndarray, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of windows and the tokens that follow each, shape [B, T]."""
    tokens = torch.from_numpy(text[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    return tokens[:, :-1], tokens[:, 1:]


def draw_windows(
    text: np.ndarray, length: int, batch: int, generator: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of windows at random places, tokens and those that follow each, shape [B, T]."""
    return text_windows(text, generator.integers(0, text.size - length, size=batch), length)


def rate_factor(step: int, *, warmup_steps: int, end: float = math.inf, decay: float = 1.0) -> float:
    """Return the factor of a learning rate at an update, counted from 1.

    It rises linearly to 1 over the first `warmup_steps` updates, and falls linearly to zero over the last
    `decay` of `end`; with an infinite end it does not fall.
    """
    return min(1.0, step / max(1, warmup_steps)) * min(1.0, (end - step + 1) / max(1.0, decay))


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
        check_range(self, "warmup_steps", "seed")
        check_range(self, "decay_share", low=0.0, high=1.0)
        check_positive(self, "learning_rate")

    def rate(self, step: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        decay = self.decay_share * self.steps
        return self.learning_rate * rate_factor(
            step, warmup_steps=self.warmup_steps, end=self.steps, decay=decay
        )

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
    """The model; `Gpt.use` gives its products other numerics."""
    curve: TrainingCurve
    """Course of its training."""


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
        Settings of the training.
    gpt_config : GptConfig
        Shape of the model; its vocabulary must hold all bytes.
    products : Products
        Numerics of its products, in training and validation alike.
    corpus : Corpus
        Its text.
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
        batch = draw_windows(corpus.train, length, config.batch, order)
        steps.append(step)
        losses.append(update(model, optimizer, batch, seed=config.seed, step=step, rate=config.rate(step)))
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


def update(
    model: Gpt,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    *,
    seed: int,
    step: int,
    rate: float,
) -> float:
    """Make an update at a learning rate; return the loss of its batch before it, nats per token.

    All draws come from the seed of the run and the number of the update.
    """
    loss = model(*batch, key=mix_key(seed, _TRAINING_STREAM, step))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_NORM)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return float(loss.item())


@torch.no_grad()
def validate(model: Gpt, config: TrainingConfig, corpus: Corpus) -> float:
    """Return the mean loss of fixed windows of the validation text, with fixed keys, in nats per token.

    Parameters
    ----------
    model : Gpt
        The model, with its own numerics.
    config : TrainingConfig
        Number of windows, windows of a batch, and seed.
    corpus : Corpus
        Text; its validation part is read.
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
        yield text_windows(corpus.validation, starts[first : first + config.batch], length)


def adamw(model: Gpt, learning_rate: float) -> torch.optim.AdamW:
    """Return AdamW, which decays matrices but not the gains and offsets of norms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [weight for weight in parameters if weight.dim() > 1], "weight_decay": _WEIGHT_DECAY},
        {"params": [weight for weight in parameters if weight.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=_BETAS, fused=True)

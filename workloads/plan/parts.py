"""Parts of a plan, each a type with its choices: axes, batch, schedule, sharding, recomputation, traffic.

A part's constructor checks the rules within the part. Rules between two parts, or a part and a model, are in
`workloads.plan.rules`; so are those of degrees that must divide each other, for a text may name one of them
and leave the other to a search.

Any field of a part may be an array with one value for each of many plans (`workloads.search.plans`): numbers
as numpy arrays, choices as a `ChoiceColumn`. Formulas over parts hold for both, with `trait` for the
properties of a choice. Arrays are not checked when they are made; `workloads.plan.rules` gives the rows that
break a rule.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np

from simulator.amounts import Flag, choose
from simulator.errors import WorkloadError, is_number
from simulator.layout import Axis
from workloads.models.architecture import Recurrence, TransformerConfig
from workloads.pipeline.schedule import SCHEDULES, Schedule, balanced_layers, folded_layers, stage_layers
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD

WEIGHT_BLOCK = 128
"""Rows and columns of a block of weights that is kept or left out whole: a kernel's tile."""
MXFP8_BLOCK = 32
"""Elements that share a scale of one byte (OCP Microscaling Formats specification, version 1.0)."""
NVFP4_BLOCK = 16
"""Elements that share a scale of one byte (Transformer Engine's NVFP4 recipe)."""
ATTENTION_BLOCK = 64
"""Queries, and keys, of a block of scores that is worked out or left out (BigBird, arXiv:2007.14062)."""


class Recompute(StrEnum):
    """Activations that are computed again in the backward pass instead of being kept."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Graphs(StrEnum):
    """Parts of a block that the host has captured and replays in one call (CUDA graphs of a layer)."""

    NONE = "none"
    ROUTER = "router"
    ATTENTION = "attention"


class Attention(StrEnum):
    """Attention kernel: where its scores are kept, and whether it computes those that a causal mask hides."""

    FULL = "full"
    """All scores, written to memory."""
    FLASH = "flash"
    """Scores stay on chip, and masked ones are skipped (FlashAttention-2, arXiv:2307.08691, section 3.1)."""
    FLASH_UNMASKED = "flash_unmasked"
    """Scores stay on chip, and all are computed, as where a model has no mask."""

    @property
    def on_chip(self) -> bool:
        """Whether scores stay on chip."""
        return self is not Attention.FULL


class Precision(StrEnum):
    """Stored form of weights and activations; of 8 bits and fewer that of linear products' operands.

    fp8 has one scale for a tensor, mxfp8 one for 32 elements.
    """

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    INT8 = "int8"
    NVFP4 = "nvfp4"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Precision.FP32 else 2

    @property
    def linear_bytes(self) -> float:
        """Bytes of one operand's element in a block's products with weights, with its share of a scale."""
        match self:
            case Precision.FP8 | Precision.INT8:
                return 1
            case Precision.MXFP8:
                return 1 + 1 / MXFP8_BLOCK
            case Precision.NVFP4:
                return 0.5 + 1 / NVFP4_BLOCK
        return self.element_bytes

    @property
    def is_cast(self) -> bool:
        """Whether operands of products with weights are cast to fewer bits than they are stored in."""
        return self.linear_bytes < self.element_bytes


class GradientSum(StrEnum):
    """Addition of a weight's gradient to the sum of microbatches: by its product, or after it.

    fused is Megatron-LM's since February 2022 (``gradient_accumulation_fusion``; sums in two bytes since
    September); added is a kernel after the product, as before; cast is a kernel that writes the gradient in
    the sum's form and one that adds it (DeepSpeed, runtime/bf16_optimizer.py, update_hp_grads); copied is a
    kernel that writes it where it is sent from, for ranks that sum every microbatch (FSDP).
    """

    FUSED = "fused"
    ADDED = "added"
    CAST = "cast"
    COPIED = "copied"


class Kept(StrEnum):
    """Form of activations between the passes: as stored, operands cast to fp8, or on the host."""

    STORED = "stored"
    FP8 = "fp8"
    HOST = "host"


class ContextExchange(StrEnum):
    """Exchange by which context-parallel ranks let every query meet every key.

    The ring hands keys and values on while the block before is worked on (Ring Attention, arXiv:2310.01889);
    all_gather collects them first (Llama 3, arXiv:2407.21783, section 3.3.2); all_to_all gives every rank
    some heads of all tokens (DeepSpeed Ulysses, arXiv:2309.14509).
    """

    RING = "ring"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"


class WeightSparsity(StrEnum):
    """Pruned elements of a block's weights: none, or two of every four (arXiv:2104.08378)."""

    NONE = "none"
    TWO_OF_FOUR = "2:4"


class ExpertExchange(StrEnum):
    """Exchange of tokens with the ranks of their experts on other nodes.

    direct sends a message to every rank; hierarchical collects within a node what goes to each place of the
    other nodes, and sends that as one message (HetuMoE, arXiv:2203.14685; Tutel, arXiv:2206.03382);
    once_per_node sends a token to each node once and copies it there (DeepSeek-V3, arXiv:2412.19437).
    """

    DIRECT = "direct"
    HIERARCHICAL = "hierarchical"
    ONCE_PER_NODE = "once_per_node"


class TensorGrid(StrEnum):
    """Arrangement of tensor-parallel ranks.

    On a line (Megatron-LM, arXiv:1909.08053), on a square (Optimus, arXiv:2104.05343), or on several squares
    that share the batch (Tesseract, arXiv:2105.14500).
    """

    LINE = "1d"
    SQUARE = "2d"
    SQUARES = "2.5d"


class Optimizer(StrEnum):
    """Optimizer of the parameters, which fixes the states kept of each."""

    ADAM = "adam"
    ADAM_8BIT = "adam_8bit"
    ADAFACTOR = "adafactor"
    MOMENTUM = "momentum"
    SGD = "sgd"


class Place(StrEnum):
    """Place of parameters or optimizer states: the accelerator's memory, its host's, or host storage."""

    DEVICE = "device"
    HOST = "host"
    NVME = "nvme"


class Exchange(StrEnum):
    """Gradient exchange of data-parallel ranks: among themselves, or through servers."""

    COLLECTIVE = "collective"
    PARAMETER_SERVER = "parameter_server"


LARGEST_FACTOR = 1e3
"""Capacity factors above this are refused as typing errors; a choice."""
Choice = TypeVar("Choice")
Value = TypeVar("Value")


class ChoiceColumn:
    """Choices of P plans for one field.

    Parameters
    ----------
    members : sequence
        Choices that occur.
    numbers : numpy.ndarray
        Place of each plan's choice among them, shape [P].
    """

    def __init__(self, members: Sequence[Any], numbers: np.ndarray) -> None:
        self.members = members
        self.numbers = numbers


def trait(kind: Choice, of: Callable[[Choice], Value]) -> Value:
    """Return a property of a choice, or an array of it with one value for each plan of a `ChoiceColumn`.

    Parameters
    ----------
    kind : object
        The choice, or a column of choices.
    of : callable
        Gives the property of one choice.
    """
    if isinstance(kind, ChoiceColumn):
        chosen = [kind.numbers == number for number in range(len(kind.members))]
        values: Any = [of(member) for member in kind.members]
        return typing.cast("Value", np.select(chosen, values))
    return of(kind)


@dataclass(frozen=True)
class Rule:
    """A rule on one part of a plan, or on a model and a plan."""

    broken: Callable[..., Flag]
    """Gives whether the rule is broken, an array for arrays of plans: of a part (p), or of a model (c) and a
    plan (p)."""
    sentence: str | Callable[..., str]
    """The error of a single plan that breaks it, with a way out: a text with fields of c and p in braces, or
    a function of the same."""
    subject: str = "parts of the plan contradict each other"
    """The reason that a search reports for plans that break it."""

    def error(self, p: object, c: TransformerConfig | None = None) -> WorkloadError:
        """Return the error of a part, or of a plan for a model, that breaks the rule."""
        if isinstance(self.sentence, str):
            return WorkloadError(self.sentence.format(p=p, c=c))
        return WorkloadError(self.sentence(p) if c is None else self.sentence(c, p))


class _Part:
    """Base of the parts of a plan: checks the kinds of the fields and the rules of the part."""

    RULES: ClassVar[tuple[Rule, ...]] = ()
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset()
    """Counts that may be 0; all others are at least 1."""
    FEW: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType({})
    """Counts with few possible values, and these values."""
    KIND: ClassVar[str] = ""
    """Key of the field ``kind`` in a plan's text."""

    def __post_init__(self) -> None:
        arrays = False
        for name, kind in field_kinds(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if isinstance(value, np.ndarray | ChoiceColumn):
                arrays = True
                continue
            few = self.FEW.get(name)
            least = min(few) if few else 0 if name in self.MAY_BE_ZERO else 1
            _check_kind(self.key(name), value, kind, least=least)
            if few and value not in few:
                *others, last = map(str, few)
                msg = f"plan: {self.key(name)} ({value}) must be {', '.join(others)} or {last}"
                raise WorkloadError(msg)
        if arrays:
            return
        for rule in self.RULES:
            if rule.broken(self):
                raise rule.error(self)

    @classmethod
    def key(cls, name: str) -> str:
        """Return the key of a field in a plan's text."""
        return cls.KIND if name == "kind" else name


@cache
def field_kinds(part: type) -> dict[str, type]:
    """Return the kind of value of each field of a part."""
    hints = typing.get_type_hints(part)
    return {item.name: hints[item.name] for item in dataclasses.fields(part)}


MOST = 2**31 - 1
"""Largest count in a plan: the search holds plans in columns of 32 bits."""


def _check_kind(key: str, value: object, kind: type, *, least: int) -> None:
    """Raise an error unless a value is of its field's kind, and within bounds if it is a count."""
    if kind is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        msg = f"plan: {key} must be a whole number of at least {least}; got {value!r}"
        raise WorkloadError(msg)
    if isinstance(value, int) and value > MOST:
        msg = f"plan: {key} must be at most {MOST:,}; got {value:,}"
        raise WorkloadError(msg)
    number = kind is float and is_number(value)
    if kind is not int and not isinstance(value, kind) and not number:
        texts = isinstance(value, str) and (kind is Schedule or issubclass(kind, Enum))
        wanted = f"of type {kind.__name__}, no text (parse_plan reads text)" if texts else kind_phrase(kind)
        msg = f"plan: {key} must be {wanted}; got {value!r}"
        raise WorkloadError(msg)


def kind_phrase(kind: type) -> str:
    """Return the values of a kind of field as a phrase for a message."""
    if kind is Schedule:
        return "one of " + ", ".join(SCHEDULES)
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return "a number" if kind is float else "true or false"


@dataclass(frozen=True, kw_only=True)
class Axes(_Part):
    """Axes of parallelism: ranks along each, and how tensor, context and expert ranks cut a block."""

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Data-parallel ranks."""
    cp: int = 1
    """Context-parallel ranks, each with a share of every sequence."""
    ep: int = 1
    """Expert-parallel ranks, taken from the data-parallel ones."""
    context_exchange: ContextExchange = ContextExchange.RING
    """Way in which context-parallel ranks share keys and values."""
    sequence_parallel: bool = True
    """Whether norms and residuals are cut over the tensor-parallel ranks (arXiv:2205.05198)."""
    tensor_grid: TensorGrid = TensorGrid.LINE
    """Arrangement of tensor-parallel ranks: on a grid (tp = q x q) products run as
    SUMMA (`workloads.layers.tensor_grid`)."""
    tensor_depth: int = 1
    """With tensor_grid=2.5d, squares that share the batch and hold the same weights (tp = q x q x depth)."""
    whole_experts: bool = False
    """Whether experts are not cut over tensor ranks, which take part in expert parallelism instead, each with
    its share of the tokens (Megatron-LM's expert tensor parallelism of 1)."""
    vocabulary_multiple: int = 128
    """The vocabulary is padded to a multiple of this times `tp` (Megatron-LM's convention)."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: (p.tensor_grid is not TensorGrid.SQUARES) & (p.tensor_depth > 1),
            "tensor_depth ({p.tensor_depth}) must be 1 with tensor_grid={p.tensor_grid}; set "
            "tensor_grid=2.5d",
        ),
        Rule(
            lambda p: (p.tensor_grid is TensorGrid.SQUARES) & (p.tensor_depth == 1),
            "tensor_grid=2.5d needs a tensor_depth of 2 or more; raise it or set tensor_grid=2d",
        ),
        Rule(
            lambda p: (p.tensor_grid is not TensorGrid.LINE) & (not p.sequence_parallel),
            "tensor_grid={p.tensor_grid} cuts the residual stream anyway; leave sequence_parallel true",
        ),
        Rule(
            lambda p: (p.tensor_grid is not TensorGrid.LINE) & (p.cp > 1),
            "context ({p.cp}) must be 1 with tensor_grid={p.tensor_grid}; use tensor_depth or data instead",
        ),
    )

    @property
    def ranks(self) -> int:
        """Accelerators that the axes take."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def side(self) -> int:
        """Side of the squares on which tensor-parallel ranks stand; 1 on a line."""
        return 1 if self.tensor_grid is TensorGrid.LINE else self.columns

    @property
    def columns(self) -> int:
        """Tensor-parallel ranks that share heads and inner widths: all of a line, a side of a square."""
        return self.tp if self.tensor_grid is TensorGrid.LINE else _root(self.tp // self.tensor_depth)

    @property
    def rows(self) -> int:
        """Tensor-parallel ranks over which the sequences of a microbatch are cut, and weights are not."""
        return self.tp // self.columns

    @property
    def gradient_axis(self) -> str:
        """Axis over which gradients of dense parameters are summed."""
        return choose(self.cp == 1, Axis.DATA, Axis.GRADIENT)

    @property
    def gradient_ranks(self) -> int:
        """Ranks over which gradients of dense parameters are summed."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts, over which their gradients are summed."""
        return self.gradient_ranks * (self.tp if self.whole_experts else 1) // self.ep

    @property
    def stream_cut(self) -> int:
        """Tensor-parallel ranks over which the residual stream is cut."""
        return self.tp if self.sequence_parallel else 1

    def kv_heads(self, config: TransformerConfig) -> int:
        """Return the key and value heads of a rank; ranks that outnumber the heads share one."""
        return -(-config.kv_heads // self.columns)

    def key_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's keys as attention reads them."""
        if config.kv_rank:
            return config.key_width // self.columns
        return self.kv_heads(config) * config.head_dim

    def value_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's values as attention reads them."""
        if config.kv_rank:
            return config.value_width // self.columns
        return self.kv_heads(config) * (config.value_dim or config.head_dim)

    def made_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's keys and values that products make."""
        return self.key_width(config) + (0 if config.tied_values else self.value_width(config))

    def state_heads(self, recurrence: Recurrence) -> tuple[int, int]:
        """Return the heads and key heads of a recurrence on a rank; ranks that outnumber these share one."""
        return recurrence.heads // self.columns, -(-recurrence.key_heads // self.columns)

    def padded_vocabulary(self, config: TransformerConfig) -> int:
        """Return the rows of the embedding after padding, so that ranks share them evenly."""
        step = self.vocabulary_multiple * self.tp
        return -(-config.vocabulary // step) * step


def _root(amount: int) -> int:
    """Return the whole part of a square root, at least 1; of a number, or of each of an array."""
    if isinstance(amount, np.ndarray):
        roots: Any = np.maximum(1, np.floor(np.sqrt(amount))).astype(amount.dtype)
        return typing.cast("int", roots)
    return max(1, math.isqrt(amount))


@dataclass(frozen=True, kw_only=True)
class Batch(_Part):
    """Batch of a step: sequences, their length, and steps in a run."""

    micro_batch: int = 1
    """Sequences in a microbatch."""
    global_batch: int = 1
    """Sequences in a step, over all data-parallel ranks."""
    sequence_length: int = 2048
    """Tokens in a sequence."""
    steps: int = 1
    """Steps that one run holds. With more than one, times are those of a step in the steady state, where no
    stage waits for another's update. Plans whose steps overlap hold as many as that state needs."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a step, over all ranks."""
        return self.global_batch * self.sequence_length


@dataclass(frozen=True, kw_only=True)
class Pipelining(_Part):
    """Pipeline's schedule, and how blocks are shared over stages."""

    kind: Schedule = ONE_FORWARD_ONE_BACKWARD
    """Order of microbatches."""
    vpp: int = 1
    """Chunks of blocks that each stage holds (interleaved 1F1B, arXiv:2104.04473)."""
    embedding_as_layers: bool = False
    """Whether embedding and head count as a block each when blocks are shared over stages (BLOOM)."""

    KIND: ClassVar[str] = "schedule"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: (p.vpp > 1) & trait(p.kind, lambda kind: kind.interleaved is None),
            lambda p: (
                f"vpp ({p.vpp}) needs "
                f"schedule={' or '.join((name for name, one in SCHEDULES.items() if one.interleaved))}, not "
                f"{p.kind}"
            ),
            "chunks do not fit the stages",
        ),
    )

    def blocks(self, layers: int, parts: int, behind: int) -> tuple[int, ...]:
        """Return the blocks of each chunk along a pipeline.

        Parameters
        ----------
        layers : int
            Blocks of the model.
        parts : int
            Chunks along the pipeline.
        behind : int
            Further blocks on the last chunk, which predict further tokens. Each counts twice when blocks are
            shared out, for its own head: 61 and one on 16 chunks are 4, ... 4, 2, as in Megatron-Bridge's
            layouts of DeepSeek-V3.

        Notes
        -----
        A folded pipeline is shared over stages. The second chunk of a stage, which keeps fewer microbatches,
        has the odd block.
        """
        if self.kind.folded:
            return self._folded_blocks(layers, parts // 2, behind)
        share = balanced_layers if self.embedding_as_layers else stage_layers
        if not behind or parts == 1:
            return (*share(layers, parts)[:-1], share(layers, parts)[-1] + behind)
        *first, last = share(layers + 2 * behind, parts)
        if last < 2 * behind:
            return (*share(layers, parts - 1), behind)
        return (*first, last - behind)

    def _folded_blocks(self, layers: int, stages: int, behind: int) -> tuple[int, ...]:
        """Return the blocks of each chunk down the V and up again."""
        at_ends = 2 * self.embedding_as_layers + 2 * behind if stages > 1 else 0
        first, *others = folded_layers(layers + at_ends, stages)
        if first < at_ends:
            first, others = at_ends, list(stage_layers(layers, stages - 1))
        of_stages = (first - at_ends, *others)
        down = [count // 2 for count in of_stages]
        up = [count - lower for count, lower in zip(of_stages, down, strict=True)]
        return (*down, *up[:0:-1], up[0] + behind)


@dataclass(frozen=True, kw_only=True)
class Sharding(_Part):
    """States of the model that data-parallel ranks share (ZeRO), within which groups, and off the device."""

    zero: int = 1
    """0: every rank keeps the whole optimizer, gradients are all-reduced. 1: each data-parallel rank keeps
    its share; gradients are reduce-scattered, parameters all-gathered. 2: gradients are kept in shares too,
    hence summed for every microbatch. 3: so are parameters (FSDP), gathered for every microbatch. DeepSpeed
    takes 0 and 1 only with pipeline stages; 2 and 3 run here, as FSDP does beside stages for Llama 3
    (arXiv:2407.21783, section 3.3.2), and pay with a sum for every microbatch."""
    reshard: bool = True
    """With zero=3, whether parameters are given up after the forward pass and gathered again for the backward
    pass. If not, they stay until the microbatch is done, with pipeline stages until the step is."""
    shard_group: int = 0
    """Ranks of a group within which `zero` shares what it shares; groups are copies of each other, and sum
    their gradients once a step (MiCS, arXiv:2205.00119; hybrid FSDP). 0: all data-parallel ranks."""
    local_group: int = 0
    """With ZeRO++, data-parallel ranks that stand in one node. 0: their nodes do not matter."""
    secondary_copy: bool = False
    """Whether the ranks of a `local_group` keep one more copy of the parameters between them, from which the
    backward pass gathers (hpZ of ZeRO++)."""
    stored_shards: bool = False
    """With zero=3, whether a rank keeps its share of the parameters as they are stored beside the optimizer's
    copy of it (DeepSpeed, Megatron-FSDP: 18 bytes a parameter with Adam), or that copy alone, cast for every
    gather, and its share of the gradients in the same form (PyTorch FSDP, Composer, MaxText: 16). Steps take
    as long: one cast, that of the update, is charged for either."""
    optimizer_place: Place = Place.DEVICE
    """Place of the optimizer's state. Off the device, the host's processors run the optimizer: gradients
    go down and parameters come up (ZeRO-Offload, arXiv:2101.06840; nvme: ZeRO-Infinity, arXiv:2104.07857)."""
    parameter_place: Place = Place.DEVICE
    """Place of a rank's share of the parameters between passes, with zero=3 (ZeRO-Infinity)."""
    delayed_update: bool = False
    """Whether the host runs the optimizer beside the next step's passes, which then use parameters of one
    update less (delayed parameter update of ZeRO-Offload)."""

    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"shard_group", "local_group"})
    FEW: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType({"zero": (0, 1, 2, 3)})
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: (p.shard_group > 0) & ((p.zero == 0) | (p.shard_group == 1)),
            "shard_group ({p.shard_group}) needs something to share among two or more: zero is {p.zero}; "
            "try zero=3, or leave shard_group out",
        ),
        Rule(
            lambda p: p.secondary_copy & (p.local_group < 2),
            "secondary_copy needs a node to stay within; try local_group=8 for eight ranks in a node",
        ),
        Rule(
            lambda p: p.fetches_parameters & ((p.zero != 3) | (not p.reshard)),
            "parameter_place={p.parameter_place} needs parameters that are given up after every pass; try "
            "zero=3,reshard=true",
        ),
        Rule(
            lambda p: p.fetches_parameters & (not p.updates_on_host),
            "parameter_place={p.parameter_place} needs the optimizer off the device too; try "
            "optimizer_place=host",
        ),
        Rule(
            lambda p: (p.parameter_place is Place.NVME) & (p.optimizer_place is not Place.NVME),
            "parameter_place=nvme needs the larger optimizer on disk as well; try optimizer_place=nvme",
        ),
        Rule(
            lambda p: p.delayed_update & (not p.updates_on_host),
            "delayed_update needs a host that runs the optimizer; try optimizer_place=host",
        ),
        Rule(
            lambda p: p.delayed_update & p.fetches_parameters,
            "delayed_update needs parameters on the device: on the host they would change under the "
            "passes; try parameter_place=device",
        ),
        Rule(
            lambda p: p.updates_on_host & (p.zero == 0),
            "optimizer_place={p.optimizer_place} needs an optimizer that ranks share, not zero=0; try zero=2",
        ),
        Rule(
            lambda p: p.updates_on_host & (p.shard_group > 0),
            "optimizer_place={p.optimizer_place} needs gradients that one group sums; leave shard_group out",
        ),
    )

    @property
    def shards_gradients(self) -> bool:
        """Whether a rank keeps its share of the gradients only; every microbatch's are then summed."""
        return self.zero >= 2

    @property
    def shards_parameters(self) -> bool:
        """Whether a rank keeps its share of the parameters only."""
        return self.zero == 3

    @property
    def inner_ranks(self) -> int:
        """Neighbours that form an inner group of the ranks over which gradients are summed; 1 without."""
        return self.shard_group or self.local_group or 1

    @property
    def updates_on_host(self) -> bool:
        """Whether the host's processors run the optimizer."""
        return self.optimizer_place is not Place.DEVICE

    @property
    def fetches_parameters(self) -> bool:
        """Whether parameters come from the host for every pass."""
        return self.parameter_place is not Place.DEVICE

    def gathers_every_microbatch(self, axes: Axes) -> bool:
        """Return whether parameters are gathered for every microbatch, for no rank keeps them all."""
        return self.shards_parameters & (self.reshard | (axes.pp == 1))

    def ranks(self, axes: Axes) -> int:
        """Return the ranks over which `zero` shares optimizer, gradients and parameters."""
        return self.shard_group or axes.gradient_ranks

    def axis(self, axes: Axes) -> str:
        """Return the axis along which those ranks stand."""
        return Axis.INNER if self.shard_group else axes.gradient_axis


RECOMPUTED_OPERATORS = (
    "recompute_norms",
    "recompute_activation",
    "recompute_projections",
    "recompute_attention",
)
"""Choices of a plan by which single operators are computed again."""


@dataclass(frozen=True, kw_only=True)
class Recomputation(_Part):
    """Activations that are computed twice, and the kernels of attention and of element-wise work."""

    kind: Recompute = Recompute.NONE
    """Activations that are recomputed in the backward pass: none, those of core attention (selective,
    arXiv:2205.05198; a flash kernel does so in any case), or those of whole blocks."""
    attention: Attention = Attention.FLASH
    """Whether scores are written to memory, and masked ones computed."""
    attention_keys: int = 0
    """Keys that a query sees under block-sparse attention, in whole blocks of 64 (Sparse Transformer,
    arXiv:1904.10509; BigBird, arXiv:2007.14062). 0: all of them."""
    fused: bool = True
    """Whether element-wise operations in a row share a kernel, or each has its own."""
    fused_loss: bool = False
    """Whether the loss reads the logits as they are, twice, and leaves their gradient in their place (llm.c,
    Liger Kernel, Transformer Engine), or takes them to single precision, forward and backward."""
    logged_losses: int = 0
    """Cross entropies of a microbatch that are computed only to be logged, forward and in single precision
    (Composer's training metrics)."""
    graphs: Graphs = Graphs.NONE
    """Parts of a block that the host replays as a captured graph instead of issuing their kernels: none, the
    router, or the router and attention or states (scopes ``moe_router``, ``attn`` and ``mamba`` of
    Megatron-LM's CUDA graphs)."""
    recompute_share: float = 1.0
    """With recompute=full, share of a chunk's blocks that are computed again, to the nearest block; the
    others keep all they need (Megatron-LM's block method)."""
    recompute_norms: bool = False
    """Whether the outputs of norms are computed again (DeepSeek-V3, arXiv:2412.19437, section 3.2.3)."""
    recompute_activation: bool = False
    """Whether the output of a feed-forward part's activation (SwiGLU, GELU) is computed again from its input
    (the same section; fused SwiGLU kernels do so). Experts then weight it by the router's probability before
    their last product, so that their results are not kept (Megatron-LM's weighted SwiGLU)."""
    recompute_projections: bool = False
    """Whether latent attention's products from latents to heads are computed again (the same section)."""
    recompute_attention: bool = False
    """Whether core attention is computed again, its kernel run once more, and its output not kept."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: not 0.0 < p.recompute_share <= 1.0,
            "recompute_share ({p.recompute_share:g}) must be above 0 and at most 1",
        ),
        Rule(
            lambda p: (p.recompute_share < 1.0) & trait(p.kind, lambda kind: kind is not Recompute.FULL),
            "recompute_share ({p.recompute_share:g}) is a share of recompute=full, not of {p.kind}; add it",
            "recompute_share without recompute=full",
        ),
        *(
            Rule(
                lambda p, name=name: getattr(p, name) & trait(p.kind, lambda kind: kind is Recompute.FULL),
                lambda p, name=name: f"recompute=full computes everything again; leave {name} out",
                "recompute=full and operators named beside it",
            )
            for name in RECOMPUTED_OPERATORS
        ),
    )

    def whole_blocks(self, layers: int) -> int:
        """Return the blocks among `layers` that are recomputed in whole; none without recompute=full."""
        if self.kind is not Recompute.FULL:
            return 0
        return math.floor(self.recompute_share * layers + 0.5)

    @property
    def by_operator(self) -> bool:
        """Whether operators are recomputed one by one (`RECOMPUTED_OPERATORS`)."""
        return any(getattr(self, name) for name in RECOMPUTED_OPERATORS)

    KIND: ClassVar[str] = "recompute"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"attention_keys", "logged_losses"})


@dataclass(frozen=True, kw_only=True)
class ExpertRouting(_Part):
    """Routing of tokens to experts: places, balance, and the way there."""

    capacity_factor: float = 0.0
    """Places that an expert has for a rank's tokens over what an even router sends it; visits beyond them are
    dropped, empty ones padded (GShard, Switch). 0: as many places as visits (FastMoE, MegaBlocks)."""
    expert_imbalance: float = 1.0
    """Load of the busiest expert over the mean; 1 is an even router. See `workloads.layers.parts`."""
    expert_affinity: float = 1.0
    """Tokens that a rank sends to the expert rank it prefers, over the mean of all others; 1 if it prefers
    none, at most half the number of others. Every rank prefers a different one, so that no rank gets more.
    See `simulator.operators`."""
    expert_patterns: int = 1
    """Patterns of favourites and of busy ranks that the routers of blocks go by in turn; 1 if all are alike,
    at most one for each other expert rank. Circuits may turn from block to block for them."""
    exchange_counts: bool = False
    """Whether ranks tell each other how many tokens each expert gets before they send them (FastMoE)."""
    expert_exchange: ExpertExchange = ExpertExchange.DIRECT
    """Way of tokens to the ranks of their experts on other nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: not 0.0 <= p.capacity_factor <= LARGEST_FACTOR,
            lambda p: (
                f"capacity_factor ({p.capacity_factor:g}) must be 0 (no capacity) or at most "
                f"{LARGEST_FACTOR:g}; try 1.25"
            ),
        ),
        Rule(
            lambda p: p.expert_affinity > 1.0 and p.capacity_factor > 0.0,
            "expert_affinity ({p.expert_affinity:g}) needs sizes that are not fixed by a capacity; leave "
            "capacity_factor ({p.capacity_factor:g}) out",
        ),
        Rule(
            lambda p: p.expert_patterns > 1 and p.expert_affinity == 1.0 and p.expert_imbalance == 1.0,
            "expert_patterns ({p.expert_patterns}) of an even router are all the same; give expert_affinity "
            "or expert_imbalance",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Traffic(_Part):
    """Traffic of gradients and parameters: its overlap, pieces, compression and servers."""

    overlap_tensor: bool = False
    """Whether all-gathers and reduce-scatters of tensor parallelism travel in shards beside the products they
    feed (`workloads.layers.tensor_grid`); needs `Axes.sequence_parallel`."""
    overlap_experts: bool = False
    """Whether a microbatch's expert exchanges run beside another's work, a forward and a backward pass at a
    time (DualPipe's F&B, Megatron-LM's 1F1B overlap). See `workloads.step.step`."""
    overlap_sends: bool = True
    """Whether a stage goes on while its output is being sent; Megatron-LM and DeepSpeed wait for their sends
    unless stages are interleaved by later versions."""
    prefetch: bool = True
    """With zero=3, whether parameters are gathered, and gradients summed, while another part is worked on, or
    the work waits for either (DeepSpeed of 2021)."""
    grad_buckets: int = 4
    """Most pieces into which a stage's gradients and parameters are cut to be sent while others compute."""
    quantised_weights: bool = False
    """Whether parameters are gathered as int8 with a scale per block (qwZ of ZeRO++, arXiv:2306.10209)."""
    quantised_gradients: bool = False
    """Whether gradients are summed by all-to-alls of int4 with a scale per block, first within a
    `Sharding.local_group` if there is one, then across (qgZ of ZeRO++)."""
    exchange: Exchange = Exchange.COLLECTIVE
    """Way in which data-parallel ranks bring gradients together: among themselves, or through parameter
    servers, to which every rank pushes its gradients and from which it pulls the parameters (Li et al., OSDI
    2014)."""
    servers: int = 0
    """With exchange=parameter_server, how many of the data-parallel ranks hold a share of the parameters'
    masters; 0: all of them."""
    delay: int = 0
    """With exchange=parameter_server, how many steps a rank may begin before the pull of an earlier one has
    arrived (bounded delay); 0: every step waits for the one before (bulk-synchronous)."""
    asynchronous: bool = False
    """With exchange=parameter_server, whether ranks never wait for a pull, only for room to send from."""

    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"servers", "delay"})
    RULES: ClassVar[tuple[Rule, ...]] = (
        *(
            Rule(
                lambda part, name=name: not part.uses_servers and bool(getattr(part, name)),
                lambda part, name=name: (
                    f"{name} ({getattr(part, name)}) needs exchange=parameter_server; add it, or leave "
                    f"{name} out"
                ),
            )
            for name in ("servers", "delay", "asynchronous")
        ),
        Rule(
            lambda p: p.asynchronous and p.delay > 0,
            "delay ({p.delay}) bounds what asynchronous leaves unbounded; keep one of the two",
        ),
    )

    @property
    def uses_servers(self) -> bool:
        """Whether gradients and parameters travel through parameter servers."""
        return self.exchange is Exchange.PARAMETER_SERVER

    @property
    def waits_for_pulls(self) -> bool:
        """Whether a step begins only when the pull of the step before it has arrived."""
        return self.delay == 0 and not self.asynchronous

    @property
    def gradient_copies(self) -> int:
        """Steps whose gradients a rank keeps: those it computes and those still being pushed."""
        return 2 if self.asynchronous else 1 + self.delay

    def server_count(self, axes: Axes) -> int:
        """Return the parameter servers of each group of data-parallel ranks."""
        return self.servers or axes.gradient_ranks


@dataclass(frozen=True, kw_only=True)
class Formats(_Part):
    """Stored forms of weights, activations, gradients and the optimizer's state."""

    kind: Precision = Precision.BF16
    """Stored form of weights and activations; fp8 stores bf16 and multiplies with weights in fp8."""
    grad_bytes: int = 4
    """Bytes of an accumulated gradient: 4 (fp32, the usual choice) or 2."""
    gradient_sum: GradientSum = GradientSum.FUSED
    """Kernel that adds a weight's gradient to the sum of the step's microbatches."""
    master_bytes: int = 4
    """Bytes of the optimizer's copy of a parameter: 4 (fp32), or 2, where the stored weights themselves are
    updated and no copy is kept."""
    moment_bytes: int = 4
    """Bytes of each of the optimizer's moments: 4 (fp32), or 2 (DeepSeek-V3, arXiv:2412.19437, 3.3.3)."""
    kept_activations: Kept = Kept.STORED
    """Form in which operands of products and inputs of activation functions are kept for the backward pass;
    inputs of norms stay as they are stored (DeepSeek-V3, arXiv:2412.19437, 3.3.3). With host, all activations
    of a pass go to the host when it ends and come back before its backward pass, beside other passes; those
    of a pass whose backward pass is next stay."""
    fp8_params: bool = False
    """Whether weights are held and gathered as operands of fp8 products alone, as they are and transposed,
    with no copy in bf16 beside the optimizer's own (Transformer Engine's ``fp8_model_init``, Megatron-LM's
    ``fp8_param_gather``, NeMo's ``fp8_params``); embedding and head are counted like them."""
    optimizer: Optimizer = Optimizer.ADAM
    """Optimizer of the parameters."""
    weight_sparsity: WeightSparsity = WeightSparsity.NONE
    """Whether the weights of blocks are pruned so that sparse units multiply them faster, forward and for the
    input's gradient; the weight's gradient, its master copy and the optimizer stay dense."""
    weight_density: float = 1.0
    """Share of the 128 x 128 blocks of a block's weights that exist at all (block-sparse weights)."""

    KIND: ClassVar[str] = "precision"
    FEW: ClassVar[Mapping[str, tuple[int, ...]]] = MappingProxyType(
        dict.fromkeys(("grad_bytes", "master_bytes", "moment_bytes"), (2, 4))
    )
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            lambda p: p.master_bytes == 2 and p.kind in {Precision.FP32, Precision.FP16},
            "master_bytes=2 updates the stored weights, which {p.kind} cannot hold in two bytes; use "
            "precision=bf16",
        ),
        Rule(
            lambda p: p.fp8_params and not p.takes_fp8_params,
            "fp8_params=true needs precision=fp8 or mxfp8, master_bytes=4 and weights that are not pruned",
        ),
        Rule(
            lambda p: p.moment_bytes == 2 and p.optimizer not in {Optimizer.ADAM, Optimizer.MOMENTUM},
            "moment_bytes=2 is for moments that are kept whole, not for {p.optimizer}; use optimizer=adam",
        ),
        Rule(
            lambda p: p.pruned and p.kind is Precision.FP32,
            "weight_sparsity=2:4 needs a master copy to prune from; use precision=bf16, fp16 or fp8",
        ),
        Rule(
            lambda p: p.pruned and p.kind is Precision.NVFP4,
            "weight_sparsity=2:4 of operands in nvfp4 is not modelled; use precision=fp8",
        ),
        Rule(
            lambda p: not 0.0 < p.weight_density <= 1.0,
            "weight_density ({p.weight_density}) must be above 0 and at most 1",
        ),
    )

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored element."""
        return self.kind.element_bytes

    @property
    def linear_bytes(self) -> float:
        """Bytes of one operand's element in a block's products with weights."""
        return self.kind.linear_bytes

    @property
    def copies_bytes(self) -> float:
        """Bytes of a weight's copies in the form of operands: as it is and transposed, for either pass."""
        return 2 * self.linear_bytes if self.kind.is_cast else 0

    @property
    def takes_fp8_params(self) -> bool:
        """Whether weights may be held as operands alone."""
        return self.kind in {Precision.FP8, Precision.MXFP8} and self.master_bytes == 4 and not self.pruned

    def of_kind(self, kind: Precision) -> Formats:
        """Return these formats with another precision; `fp8_params` stays where that precision allows it."""
        plain = dataclasses.replace(self, kind=kind, fp8_params=False)
        held = self.fp8_params and plain.takes_fp8_params
        return dataclasses.replace(plain, fp8_params=True) if held else plain

    @property
    def weight_bytes(self) -> float:
        """Bytes of one weight as it is updated and gathered."""
        return self.linear_bytes if self.fp8_params else self.element_bytes

    @property
    def held_bytes(self) -> float:
        """Bytes that one weight takes where it is used: all forms of it together."""
        return self.copies_bytes + (0 if self.fp8_params else self.element_bytes)

    @property
    def keeps_master(self) -> bool:
        """Whether the optimizer keeps a copy of every parameter in more bits than it is stored in."""
        return self.kind is not Precision.FP32 and self.master_bytes > self.element_bytes

    @property
    def pruned(self) -> bool:
        """Whether the weights of blocks are pruned two of four."""
        return self.weight_sparsity is WeightSparsity.TWO_OF_FOUR

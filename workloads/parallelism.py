"""How a training run is cut over accelerators: the plan, its text form and the rules it must keep."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from enum import Enum, StrEnum

from heliograph.errors import WorkloadError, nearest
from heliograph.layout import RankLayout
from workloads.architecture import TransformerConfig, divisors

DEFAULT_LONGEST_SEQUENCE = 8192
"""Sequence length beyond which no run goes unless it is asked to; a choice."""


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Whether attention's score matrix is written to memory (full) or stays on chip (flash)."""

    FULL = "full"
    FLASH = "flash"


class Precision(StrEnum):
    """Stored form of weights and activations."""

    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 2 if self is Precision.BF16 else 4


class Schedule(StrEnum):
    """Order of microbatches on a pipeline stage."""

    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    GPIPE = "gpipe"


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """A plan: how ranks share a model and a batch, and what they keep.

    Raises
    ------
    WorkloadError
        If a count is not a positive whole number, or a choice is not one of those known. Whether the plan
        fits a model is asked of `check`.
    """

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Data-parallel ranks."""
    cp: int = 1
    """Context-parallel ranks; only 1 is modelled."""
    ep: int = 1
    """Expert-parallel ranks, taken from the data-parallel ones."""
    micro_batch: int = 1
    """Sequences in a microbatch."""
    global_batch: int = 1
    """Sequences in a step, over all data-parallel ranks."""
    sequence_length: int = 2048
    """Tokens in a sequence; see `default_sequence_length`."""
    sequence_parallel: bool = True
    """Whether norms and residuals are cut over the tensor-parallel ranks (arXiv:2205.05198)."""
    recompute: Recompute = Recompute.NONE
    """What is computed twice."""
    zero: int = 1
    """0: every rank keeps the whole optimizer, gradients are all-reduced. 1: each data-parallel rank keeps
    its share; gradients are reduce-scattered, parameters all-gathered."""
    grad_buckets: int = 4
    """Most pieces into which a stage's gradients and parameters are cut to be sent while others compute."""
    grad_bytes: int = 4
    """Bytes of an accumulated gradient: 4 (fp32, the usual choice) or 2."""
    precision: Precision = Precision.BF16
    """Stored form of weights and activations."""
    attention: Attention = Attention.FLASH
    """Whether the score matrix is written to memory."""
    causal_half: bool = False
    """Whether a kernel skips the masked half of attention's products."""
    schedule: Schedule = Schedule.ONE_FORWARD_ONE_BACKWARD
    """Order of microbatches."""
    vocabulary_multiple: int = 128
    """The vocabulary is padded to a multiple of this times `tp` (Megatron-LM's convention)."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            kind = _KINDS[item.name]
            least = 0 if item.name == "zero" else 1
            if kind is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                msg = f"plan: {item.name} must be a whole number of at least {least}; got {value!r}"
                raise WorkloadError(msg)
            if kind is not int and not isinstance(value, kind):
                msg = f"plan: {item.name} must be {_choices(kind)}; got {value!r}"
                raise WorkloadError(msg)
        if self.zero > 1:
            msg = f"plan: zero ({self.zero}) must be 0 or 1; higher stages are not modelled"
            raise WorkloadError(msg)
        if self.grad_bytes not in {2, 4}:
            msg = f"plan: grad_bytes ({self.grad_bytes}) must be 2 or 4"
            raise WorkloadError(msg)

    @property
    def ranks(self) -> int:
        """Accelerators that the plan takes."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def microbatches(self) -> int:
        """Microbatches of a step on each data-parallel rank."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.micro_batch * self.sequence_length

    @property
    def layout(self) -> RankLayout:
        """Which ranks form which groups."""
        return RankLayout(tp=self.tp, cp=self.cp, dp=self.dp, pp=self.pp, ep=self.ep)

    @property
    def gradient_axis(self) -> str:
        """Axis over which gradients of dense parameters are summed."""
        return "dp" if self.cp == 1 else "dpcp"

    @property
    def gradient_ranks(self) -> int:
        """Ranks over which gradients of dense parameters are summed."""
        return self.dp * self.cp

    def padded_vocabulary(self, config: TransformerConfig) -> int:
        """Return the rows of the embedding after padding, so that ranks share them evenly."""
        step = self.vocabulary_multiple * self.tp
        return -(-config.vocabulary // step) * step


_KINDS: dict[str, type] = typing.get_type_hints(Parallelism)
_ALIASES = {
    "tensor": "tp",
    "pipeline": "pp",
    "data": "dp",
    "context": "cp",
    "expert": "ep",
    "sequence": "sequence_length",
}


def _choices(kind: type) -> str:
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return "true or false"


def default_sequence_length(config: TransformerConfig) -> int:
    """Return the sequence length of a run that names none: the model's longest, at most 8192 tokens."""
    return min(config.max_sequence, DEFAULT_LONGEST_SEQUENCE)


def parse_plan(text: str, *, base: Parallelism | None = None) -> Parallelism:
    """Return a plan from text such as ``tp=8,pp=8,dp=16,micro_batch=1,global_batch=512``.

    Parameters
    ----------
    text : str
        ``key=value`` pairs with commas between them; keys are the fields of `Parallelism`.
    base : Parallelism, optional
        Plan whose values hold where the text is silent.

    Raises
    ------
    WorkloadError
        For an unknown key (with the nearest known one), a repeated key, or a value that does not fit its key.
    """
    values: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, separator, written = (piece.strip() for piece in part.partition("="))
        if not separator or not written:
            msg = f"plan: '{part}' must read key=value, such as tp=8"
            raise WorkloadError(msg)
        key = _ALIASES.get(key, key)
        if key not in _KINDS:
            msg = f"plan: unknown key '{key}'; {nearest(key, _KINDS, noun='key')}"
            raise WorkloadError(msg)
        if key in values:
            msg = f"plan: '{key}' stands twice; keep one"
            raise WorkloadError(msg)
        values[key] = _parse_value(key, written)
    return dataclasses.replace(base or Parallelism(), **typing.cast("dict[str, typing.Any]", values))


def _parse_value(key: str, written: str) -> object:
    kind = _KINDS[key]
    if kind is int:
        if not (written.isascii() and written.lstrip("+-").isdigit() and len(written) < 20):
            msg = f"plan: {key} must be a whole number; got '{written}'"
            raise WorkloadError(msg)
        return int(written)
    if kind is bool:
        if written.lower() not in {"true", "false"}:
            msg = f"plan: {key} must be true or false; got '{written}'"
            raise WorkloadError(msg)
        return written.lower() == "true"
    try:
        return kind(written)
    except ValueError:
        msg = f"plan: {key} must be {_choices(kind)}; got '{written}'"
        raise WorkloadError(msg) from None


def check(config: TransformerConfig, plan: Parallelism, *, accelerators: int | None = None) -> None:
    """Check that a plan can cut a model, and takes the accelerators there are.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Parallelism
        The plan.
    accelerators : int, optional
        Accelerators that the plan must take, neither more nor fewer.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if plan.cp != 1:
        msg = f"context (cp={plan.cp}) must be 1: context parallelism is not modelled; use tensor or pipeline"
        raise WorkloadError(msg)
    for what, whole in (
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("ffn_hidden", config.ffn_hidden),
    ):
        _must_divide("tensor", plan.tp, what, whole)
    if plan.sequence_parallel:
        _must_divide("tensor", plan.tp, "micro_batch x sequence_length", plan.tokens)
    if plan.pp > config.layers:
        msg = f"pipeline ({plan.pp}) must be at most layers ({config.layers}); try {config.layers} or fewer"
        raise WorkloadError(msg)
    if plan.ep > 1 and config.experts == 1:
        msg = f"expert ({plan.ep}) must be 1: {config.name} has no experts"
        raise WorkloadError(msg)
    _must_divide("expert", plan.ep, "experts", config.experts)
    _must_divide("expert", plan.ep, "data", plan.dp)
    _check_batch(config, plan)
    if accelerators is not None and plan.ranks != accelerators:
        msg = (
            f"the plan takes tp x pp x dp x cp = {plan.tp} x {plan.pp} x {plan.dp} x {plan.cp} = "
            f"{plan.ranks} accelerators, but there are {accelerators}; {_data_hint(plan, accelerators)}"
        )
        raise WorkloadError(msg)


def _check_batch(config: TransformerConfig, plan: Parallelism) -> None:
    slots = plan.dp * plan.micro_batch
    if plan.global_batch % slots:
        down = plan.global_batch // slots * slots
        near = f"{down} or {down + slots}" if down else f"{slots}"
        msg = (
            f"global_batch ({plan.global_batch}) must be a multiple of data x micro_batch "
            f"({plan.dp} x {plan.micro_batch} = {slots}); try {near}"
        )
        raise WorkloadError(msg)
    if config.position_rows and plan.sequence_length > config.max_sequence:
        msg = (
            f"sequence_length ({plan.sequence_length}) must be at most {config.max_sequence}: "
            f"{config.name} has learned positions for no more"
        )
        raise WorkloadError(msg)


def _must_divide(what: str, part: int, name: str, whole: int) -> None:
    if whole % part:
        msg = f"{what} ({part}) must divide {name} ({whole}); try {divisors(whole)}"
        raise WorkloadError(msg)


def _data_hint(plan: Parallelism, accelerators: int) -> str:
    model = plan.tp * plan.pp * plan.cp
    if accelerators % model == 0 and accelerators >= model:
        return f"try dp={accelerators // model}"
    return f"no dp fits, for {model} does not divide {accelerators}; change tp or pp"


def stage_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return how many blocks each pipeline stage holds.

    Parameters
    ----------
    layers : int
        Blocks of the model, at least `pp`.
    pp : int
        Stages.

    Returns
    -------
    tuple of int
        One count a stage. When they cannot be equal, the first and the last stage have fewer, for they also
        hold the embedding and the head; among the inner stages the later ones, which keep fewer microbatches,
        have more.

    Raises
    ------
    WorkloadError
        If there are more stages than blocks.

    References
    ----------
    The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2 (one block fewer on the first and last stage).
    """
    if not 1 <= pp <= layers:
        msg = f"pipeline ({pp}) must be from 1 to layers ({layers}); try {layers} or fewer"
        raise WorkloadError(msg)
    least, extra = divmod(layers, pp)
    favoured = [*range(pp - 2, 0, -1), 0]
    more = set(favoured[:extra])
    return tuple(least + (stage in more) for stage in range(pp))

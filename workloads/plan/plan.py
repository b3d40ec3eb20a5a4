"""Plan of a training run: how accelerators share a model and a batch, and its text ``tp=8,pp=8,...``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

from simulator.errors import WorkloadError, nearest
from simulator.layout import RankLayout
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULE_ALIASES, SCHEDULES, Pipeline, Schedule, Updates
from workloads.plan.parts import (
    Axes,
    Batch,
    ExpertRouting,
    Formats,
    Kept,
    Pipelining,
    Recomputation,
    Recompute,
    Sharding,
    Traffic,
    field_kinds,
    kind_phrase,
)


@dataclass(frozen=True, kw_only=True)
class Share:
    """Share of one rank in one microbatch: the parts of a plan that shape the operators of a block."""

    axes: Axes
    """Ranks along each axis."""
    batch: Batch
    """Sequences and their length."""
    recompute: Recomputation
    """Recomputed activations, and the kernels of attention and element-wise work."""
    experts: ExpertRouting
    """Routing of tokens to experts."""
    precision: Formats
    """Stored forms."""

    def with_(self, **values: object) -> Share:
        """Return the share with other values of some of its parts' keys: ``share.with_(tp=8)``."""
        return replace(self, **_changed(self, values))

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch on one context-parallel rank."""
        return self.batch.micro_batch * self.batch.sequence_length // self.axes.cp

    @property
    def routed_tokens(self) -> int:
        """Tokens of one microbatch that one rank sends to experts."""
        return self.tokens // (self.axes.tp if self.axes.whole_experts else 1)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a training run, in parts.

    Notes
    -----
    Every part checks itself; `workloads.plan.rules.check` checks that the parts fit each other and a model.
    The keys of a plan's text are the parts' fields (`KEYS`).
    """

    axes: Axes = field(default_factory=Axes)
    """Ranks along tensor, pipeline, data, context and expert parallelism."""
    batch: Batch = field(default_factory=Batch)
    """Sequences of a step."""
    schedule: Pipelining = field(default_factory=Pipelining)
    """Order of microbatches on the stages."""
    sharding: Sharding = field(default_factory=Sharding)
    """States of the model that ranks share, and those off the device."""
    recompute: Recomputation = field(default_factory=Recomputation)
    """Recomputed activations, and the kernels of attention and element-wise work."""
    experts: ExpertRouting = field(default_factory=ExpertRouting)
    """Routing of tokens to experts."""
    traffic: Traffic = field(default_factory=Traffic)
    """Overlap, pieces, compression and servers of gradients and parameters."""
    precision: Formats = field(default_factory=Formats)
    """Stored forms."""

    def __repr__(self) -> str:
        """Return the call that makes the plan again, without values that are the default."""
        usual = type(self)()
        named = [f"{key}={self.value(key)}" for key in KEYS if self.value(key) != usual.value(key)]
        return f"{type(self).__name__}.of({', '.join(named)})"

    @classmethod
    def of(cls, **values: object) -> Self:
        """Return the plan of some keys and their values: ``Plan.of(tp=8, pp=2)``; others have their defaults.

        Raises
        ------
        WorkloadError
            For an unknown key, or a value that does not fit its key.
        """
        return cls().with_(**values)

    def with_(self, **values: object) -> Self:
        """Return the plan with other values of some keys (`KEYS`): ``plan.with_(tp=8, zero=3)``.

        Raises
        ------
        WorkloadError
            For an unknown key, or a value that does not fit its key.
        """
        return replace(self, **_changed(self, values))

    def one_of_many(self, values: Mapping[str, object]) -> Self:
        """Return the plan with other values of some keys; equal parts are one object, to save memory."""
        return replace(self, **_changed(self, values, _shared_replace))

    def value(self, key: str) -> Any:  # noqa: ANN401 - of any of the fields' kinds
        """Return the value of a key of a plan's text."""
        part, name = KEYS[key]
        return getattr(getattr(self, part), name)

    def record(self) -> dict[str, object]:
        """Return the plan as plain data: the value of every key of its text, and its type."""
        kept = {key: self.value(key) for key in KEYS}
        return {"type": type(self).__name__} | kept | {"schedule": str(self.schedule.kind)}

    @property
    def share(self) -> Share:
        """Share of one rank in one microbatch."""
        return Share(
            axes=self.axes,
            batch=self.batch,
            recompute=self.recompute,
            experts=self.experts,
            precision=self.precision,
        )

    @property
    def microbatches(self) -> int:
        """Microbatches of a step on each data-parallel rank."""
        return self.batch.global_batch // (self.axes.dp * self.batch.micro_batch)

    @property
    def uses_host(self) -> bool:
        """Whether states or activations are on the host."""
        return self.sharding.updates_on_host or self.precision.kept_activations is Kept.HOST

    @property
    def steps_in_run(self) -> int:
        """Steps that a run holds: those asked for, or as many as overlapping steps need to become steady."""
        if self.schedule.kind.flows:
            return max(self.batch.steps, 4 + -(-4 * self.axes.pp // self.microbatches))
        ahead = 2 if self.traffic.asynchronous else self.traffic.delay
        return max(self.batch.steps, 6 + 4 * ahead) if ahead else self.batch.steps

    @property
    def pipeline(self) -> Pipeline:
        """Stages with the schedule."""
        return Pipeline(
            schedule=self.schedule.kind,
            stages=self.axes.pp,
            microbatches=self.microbatches,
            vpp=self.schedule.vpp,
            steps=self.steps_in_run,
            weaves=self.traffic.overlap_experts,
        )

    @property
    def layout(self) -> RankLayout:
        """Ranks of every group."""
        axes = self.axes
        return RankLayout(
            tp=axes.tp,
            cp=axes.cp,
            dp=axes.dp,
            pp=axes.pp,
            ep=axes.ep,
            ep_over_tp=axes.whole_experts,
            inner=self.sharding.inner_ranks,
            side=axes.side,
        )

    def weight_versions(self, stage: int) -> int:
        """Return the versions of its weights that a stage keeps.

        Notes
        -----
        PipeDream keeps the version that each microbatch under way ran forward with: p - i on stage *i* of
        *p*, from 0 (arXiv:1806.03377, section 3.3). Double buffering keeps 2 (arXiv:2006.09503, section 3.1),
        as does a rank that computes with one version while it pulls the next from parameter servers.
        """
        match self.schedule.kind.updates:
            case Updates.EACH_MICROBATCH:
                return self.axes.pp - stage
            case Updates.DOUBLE_BUFFERED:
                return 2
            case _:
                return 1 if self.traffic.waits_for_pulls else 2


_shared_replace = lru_cache(maxsize=4096)(replace)
"""`dataclasses.replace` that returns one object for equal parts."""


def _changed(
    whole: Plan | Share, values: Mapping[str, object], replace_part: Callable[..., Any] = replace
) -> dict[str, Any]:
    """Return the parts of a plan, or of a share, that have other values of some keys, by name."""
    by_part: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        part, name = _part_and_field(key)
        by_part.setdefault(part, {})[name] = value
    return {part: replace_part(getattr(whole, part), **fields) for part, fields in by_part.items()}


PARTS: Mapping[str, type] = MappingProxyType(
    {item.name: type(getattr(Plan(), item.name)) for item in dataclasses.fields(Plan)}
)
"""Type of each part."""
_ORDER = """
    axes.tp axes.pp axes.dp schedule.vpp axes.cp axes.context_exchange axes.ep batch.micro_batch
    batch.global_batch batch.sequence_length axes.sequence_parallel recompute.kind sharding.zero
    sharding.reshard recompute.fused traffic.prefetch traffic.grad_buckets precision.grad_bytes precision.kind
    precision.optimizer recompute.attention schedule.kind traffic.overlap_sends
    schedule.embedding_as_layers axes.vocabulary_multiple sharding.shard_group sharding.local_group
    traffic.quantised_weights sharding.secondary_copy traffic.quantised_gradients sharding.optimizer_place
    sharding.parameter_place sharding.delayed_update experts.capacity_factor experts.expert_imbalance
    experts.expert_affinity experts.expert_patterns experts.exchange_counts experts.expert_exchange
    axes.whole_experts traffic.overlap_experts traffic.overlap_tensor axes.tensor_grid axes.tensor_depth
    batch.steps traffic.exchange traffic.servers traffic.delay traffic.asynchronous precision.weight_sparsity
    precision.weight_density recompute.attention_keys precision.master_bytes precision.moment_bytes
    precision.kept_activations precision.fp8_params recompute.recompute_norms recompute.recompute_activation
    recompute.recompute_projections recompute.recompute_attention recompute.recompute_share
    recompute.graphs precision.gradient_sum sharding.stored_shards recompute.fused_loss
    recompute.logged_losses
"""
KEYS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        (part if name == "kind" else name): (part, name)
        for part, name in (one.split(".") for one in _ORDER.split())
    }
)
"""Part and field of each key of a plan's text, in the order in which plans are written."""


ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "tensor_model_parallel_size": "tp",
        "tensor_parallel_degree": "tp",
        "tensor_parallel_size": "tp",
        "pipeline_model_parallel_size": "pp",
        "pipeline_parallel_degree": "pp",
        "pipeline_parallel_size": "pp",
        "num_layers_per_virtual_pipeline_stage": "vpp, the chunks of a stage",
        "context_parallel_size": "cp",
        "context_parallel_degree": "cp",
        "expert_model_parallel_size": "ep",
        "expert_parallel_degree": "ep",
        "data_parallel_size": "dp",
        "data_parallel_shard_degree": "zero=3 and dp, or shard_group where there are replicas",
        "data_parallel_replicate_degree": "dp, replicas times shards, and shard_group, the shards",
        "fsdp": "zero=3",
        "use_distributed_optimizer": "zero=1",
        "train_batch_size": "global_batch",
        "train_micro_batch_size_per_gpu": "micro_batch",
        "local_batch_size": "micro_batch, beside stages that of one microbatch",
        "pipeline_parallel_microbatch_size": "micro_batch",
        "gradient_accumulation_steps": "global_batch, dp x micro_batch times as many",
        "recompute_granularity": "recompute",
        "activation_checkpoint": "recompute",
        "recompute_num_layers": "recompute_share",
        "tp_comm_overlap": "overlap_tensor",
        "fp8": "precision=fp8",
        "bf16": "precision=bf16",
    }
)
"""Keys of Megatron-LM, torchtitan and DeepSpeed that are spelled unlike ours, with what to write."""


def _part_and_field(key: str) -> tuple[str, str]:
    """Return the part and the field of a key; an error for an unknown key."""
    if key not in KEYS:
        elsewhere = ELSEWHERE.get(key.strip("-").replace("-", "_").lower())
        hint = f"write {elsewhere}" if elsewhere else nearest(key, KEYS, noun="key")
        msg = f"plan: unknown key '{key}'; {hint} (heliograph list plan tells all)"
        raise WorkloadError(msg)
    return KEYS[key]


def kind_of(key: str) -> type:
    """Return the kind of value of a key; a `WorkloadError` for an unknown one."""
    part, name = _part_and_field(key)
    return field_kinds(PARTS[part])[name]


DEFAULT_LONGEST_SEQUENCE = 8192
"""Longest sequence of a run that names none; a choice."""
SHAPE = ("tp", "pp", "dp", "micro_batch", "global_batch", "sequence_length")
"""Keys that a plan's text always has."""

ALIASES = {
    "tensor": "tp",
    "pipeline": "pp",
    "data": "dp",
    "context": "cp",
    "expert": "ep",
    "sequence": "sequence_length",
}
"""Other names of keys."""


def default_sequence_length(config: TransformerConfig) -> int:
    """Return the sequence length of a run that names none: the model's longest, at most 8192 tokens."""
    return min(config.max_sequence, DEFAULT_LONGEST_SEQUENCE)


def parse_plan(text: str, *, base: Plan | None = None) -> Plan:
    """Return a plan from text such as ``tp=8,pp=8,dp=16,micro_batch=1,global_batch=512``.

    Parameters
    ----------
    text : str
        ``key=value`` pairs with commas between them; keys are those of `workloads.plan.plan.KEYS`.
    base : Plan, optional
        Plan with the values of keys that the text does not name.

    Raises
    ------
    WorkloadError
        For an unknown key (with the nearest known one), a repeated key, a value that does not fit its key, or
        an argument that is no text.
    """
    if not isinstance(text, str):
        msg = f"a plan must be text such as tp=8,dp=8; got {text!r:.60}"
        raise WorkloadError(msg)
    values: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, separator, written = (piece.strip() for piece in part.partition("="))
        if not separator or not written:
            msg = f"plan: '{part}' must read key=value, such as tp=8, with commas between"
            raise WorkloadError(msg)
        if "=" in written:
            msg = f"plan: '{part}' must be one key=value; put a comma between two"
            raise WorkloadError(msg)
        key = ALIASES.get(key, key)
        if key in values:
            msg = f"plan: '{key}' stands twice; keep one"
            raise WorkloadError(msg)
        values[key] = _parse_value(key, written)
    return (base or Plan()).with_(**values)


def plan_words(plan: Plan) -> str:
    """Return a plan's degrees above 1 and main choices in few letters, for tables."""
    names = ("tp", "cp", "pp", "dp", "ep", "vpp")
    degrees = " ".join(f"{name}{plan.value(name)}" for name in names if plan.value(name) > 1)
    words = [f"mb{plan.batch.micro_batch}"]
    words += [f"zero{plan.sharding.zero}"] if plan.sharding.zero else []
    words += [str(plan.schedule.kind)] if plan.axes.pp > 1 else []
    again = [str(plan.recompute.kind)] if plan.recompute.kind is not Recompute.NONE else []
    again += [name for name in ("activation", "norms") if plan.value(f"recompute_{name}")]
    words += [f"recompute {'+'.join(again)}"] if again else []
    words += ["overlap_tensor"] if plan.traffic.overlap_tensor else []
    words += ["fp8_params"] if plan.precision.fp8_params else []
    buckets = plan.traffic.grad_buckets
    words += [f"buckets{buckets}"] if buckets != Plan().traffic.grad_buckets else []
    return " ".join([degrees, *words] if degrees else words)


def plan_text(plan: Plan) -> str:
    """Return a plan as text that `parse_plan` reads back: its shape, and what differs from the defaults."""
    default = Plan()
    shown = [key for key in KEYS if key in SHAPE or plan.value(key) != default.value(key)]
    return ",".join(f"{key}={plan.value(key)}" for key in shown)


def _parse_value(key: str, written: str) -> object:
    """Return the value that a text gives a key."""
    kind = kind_of(key)
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
        return SCHEDULES[SCHEDULE_ALIASES.get(written, written)] if kind is Schedule else kind(written)
    except (KeyError, ValueError):
        msg = f"plan: {key} must be {kind_phrase(kind)}; got '{written}'"
        raise WorkloadError(msg) from None

"""Training workloads: transformers, parallelism, schedules, memory, and the torch model."""

from workloads.models.config import (
    TransformerConfig,
    from_hugging_face,
    known_models,
    load_model,
    register_model,
    shipped_models,
)
from workloads.pipeline.schedule import Schedule, register_schedule
from workloads.plan.plan import Plan, default_sequence_length, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import check_fits, default_plan, memory_by_kind
from workloads.step.step import build_step, model_flops

__all__ = [
    "Plan",
    "Schedule",
    "TransformerConfig",
    "build_step",
    "check",
    "check_fits",
    "default_plan",
    "default_sequence_length",
    "from_hugging_face",
    "known_models",
    "load_model",
    "memory_by_kind",
    "model_flops",
    "parse_plan",
    "register_model",
    "register_schedule",
    "shipped_models",
]

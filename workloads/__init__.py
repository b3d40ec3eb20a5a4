"""Training workloads: transformers, parallelism, schedules, memory, and the torch model."""

from workloads.models.config import TransformerConfig, from_hugging_face, load_model, shipped_models
from workloads.plan.parallelism import default_sequence_length, parse_plan
from workloads.plan.plan import Plan
from workloads.plan.rules import check
from workloads.step.memory import check_fits, default_plan, memory_by_kind
from workloads.step.step import build_step, model_flops

__all__ = [
    "Plan",
    "TransformerConfig",
    "build_step",
    "check",
    "check_fits",
    "default_plan",
    "default_sequence_length",
    "from_hugging_face",
    "load_model",
    "memory_by_kind",
    "model_flops",
    "parse_plan",
    "shipped_models",
]

"""Schema of rows: the columns of every table of results, the same whatever was run.

``systems.csv`` and `rows()` hold one row for each system that was run, with `COLUMNS`; ``table.csv`` and
`parts()` one row for each part of each quantity, with `PART_COLUMNS`. Names end in their SI unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SCHEMA = 2
"""Version of the columns, and of the layout of JSON records and run directories; part of every cache key."""

IDENTITY: Mapping[str, str] = MappingProxyType(
    {
        "schema": "version of these columns",
        "version": "version of heliograph",
        "seed": "first seed of the small GPT's training; empty where nothing random was run",
        "model": "model",
        "plan": "plan, as --plan takes it",
        "system": "system by name",
        "settings": "what was changed, path=value, with semicolons between",
        "accelerators": "accelerators of the system",
    }
)
"""Columns that say what a row is of."""
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        **IDENTITY,
        "accelerator": "what computes",
        "gpu": "the GPU, or the one that light replaces",
        "core": "photonic core; empty without light",
        "basis": "what photonic accelerators share with the GPU; empty without light",
        "photonic_cores": "photonic cores of an accelerator",
        "fabric": "fabric",
        "circuit_policy": "when circuits move; none without circuits",
        "step_time_s": "time of a step",
        "tokens_per_s": "tokens trained per second",
        "model_flop_utilisation": "model operations over peak operations in the step",
        "exposed_communication_s": "time that compute waits for the network",
        "dark_s": "longest time of a rank in which circuits move, hidden or not",
        "exposed_dark_s": "time that compute waits for circuits",
        "pipeline_bubble_s": "time that stages wait for each other",
        "energy_j": "energy of the step",
        "energy_per_token_j": "energy per token",
        "mean_power_w": "mean power of the whole system",
        "usd_per_million_tokens": "cost of a million tokens, at assumed prices",
        "capital_usd": "price of the whole system, assumed",
        "effective_bits": "effective bits of a full-scale sample; of a GPU, bf16's significand",
        "reduction_effective_bits": "effective bits of gradients that the fabric adds in light",
        "memory_bytes": "memory of the fullest accelerator",
        "memory_capacity_bytes": "memory that an accelerator has",
        "peak_flop_per_s": "peak of products, each accelerator",
        "accelerator_peak_w": "power at full load, each",
        "accelerator_area_m2": "die area, each",
        "accelerator_usd": "price, each",
        "sram_bytes": "buffer of a photonic accelerator",
        "fabric_static_w": "power of the fabric without traffic",
        "reconfigurations": "changes of circuits in the step",
        "dropped_share": "share of visits to experts that are dropped",
        "core_lifetime_steps": "steps after which cells are worn out; empty where they never are",
        "run_steps": "steps of a compute-optimal training run",
        "numerics": "arithmetic with which the small GPT was trained; empty where it was not",
        "validation_loss": "its validation loss, nats per byte, mean over seeds",
        "validation_loss_spread": "standard deviation of that over seeds",
        "loss_difference": "mean difference to exact arithmetic, same seeds",
        "loss_difference_standard_error": "standard error of that",
        "loss_difference_resolved": "whether it is told from chance",
        "seeds": "seeds that were trained",
        "steps_to_loss_relative": "steps to the same loss over those of exact arithmetic",
        "steps_to_loss_standard_error": "standard error of that",
        "steps_to_loss_resolved": "whether it is told from one",
        "steps_to_loss_least": "lower bound of it where a seed never got there",
        "time_to_loss_s": "time of a whole run to that loss",
        "energy_to_loss_j": "energy of a whole run to that loss",
        "error": "why there is no result; empty where there is one",
    }
)
"""Columns of a row for a system, in their order, with what they hold."""
PART_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        **IDENTITY,
        "quantity": "column of which the value is a part, or the whole of it where `part` is empty",
        "part": "category of time, component of energy, kind of memory, axis of traffic",
        "value": "the value, in the unit with which the quantity's name ends",
    }
)
"""Columns of a row for a part of a quantity, in their order, with what they hold."""
_PARTED: Mapping[str, str] = MappingProxyType(
    {
        "time_by_category_s": "step_time_s",
        "energy_by_component_j_per_token": "energy_per_token_j",
        "memory_by_kind_bytes": "memory_bytes",
        "step_usd": "step_usd",
        "network_bytes": "network_bytes",
        "host_bytes": "host_bytes",
        "inputs_by_status": "inputs",
    }
)
"""Keys of a record that hold parts, with the quantity that these make up."""


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a record: every column, None where the record has nothing for it."""
    return {column: record.get(column) for column in COLUMNS}


def part_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a record's quantities, each as a whole and by its parts; texts are left out."""
    same = {column: record.get(column) for column in IDENTITY}
    whole = [
        same | {"quantity": column, "part": "", "value": record[column]}
        for column in COLUMNS
        if column not in IDENTITY and _is_number(record.get(column))
    ]
    parts = [
        same | {"quantity": quantity, "part": part, "value": value}
        for key, quantity in _PARTED.items()
        for part, value in record.get(key, {}).items()
    ]
    return whole + parts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""How soon training wears out cores whose cells survive a number of writes only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from heliograph.operators import MatMul, Operator, Overlapped, StepGraph
from heliograph.operators import Sequence as Run
from optical.accelerator import PhotonicUnit
from workloads.architecture import TransformerConfig

TOKENS_PER_PARAMETER = 20
"""Tokens of a compute-optimal training run per parameter (Hoffmann et al. 2022, arXiv:2203.15556)."""


def lifetime_steps(unit: PhotonicUnit | None, graph: StepGraph) -> float:
    """Return after how many steps the busiest core's cells are worn out; infinite if nothing wears.

    Parameters
    ----------
    unit : PhotonicUnit or None
        What runs the products.
    graph : StepGraph
        One step, or several in a row.
    """
    if unit is None or math.isinf(unit.core.reload.endurance_writes):
        return math.inf
    worn: defaultdict[int, float] = defaultdict(float)
    for task in graph.tasks:
        for product, count in _products(task.operator):
            worn[task.rank_class] += unit.wear(product) * count * task.multiplicity
    most = max(worn.values(), default=0.0)
    return max(1, len(graph.ends)) / most if most > 0.0 else math.inf


def run_steps(config: TransformerConfig, tokens_per_step: float) -> float:
    """Return the steps of a compute-optimal training run of a model."""
    return TOKENS_PER_PARAMETER * config.parameters / tokens_per_step


def wear_warnings(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each system whose cores do not live through a compute-optimal training run."""
    return [
        f"{record['system']}: the cells of its cores are worn out after {record['core_lifetime_steps']:,.1f} "
        f"steps; a run of {TOKENS_PER_PARAMETER} tokens per parameter takes {record['run_steps']:,.0f}. "
        "Fewer writes (larger batches, more cores) or cells of more endurance are needed."
        for record in records
        if record["core_lifetime_steps"] is not None and record["core_lifetime_steps"] < record["run_steps"]
    ]


def _products(operator: Operator) -> Iterator[tuple[MatMul, int]]:
    match operator:
        case MatMul():
            yield operator, 1
        case Overlapped():
            yield operator.product, operator.pieces
        case Run():
            for item, repeat in operator.items:
                for product, count in _products(item):
                    yield product, count * repeat
        case _:
            return

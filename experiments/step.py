"""One step of one system: run, measure, price."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from experiments.circuit_modes import CircuitFabric, dark_of, policies
from experiments.systems import System
from experiments.wear import lifetime_steps, run_steps
from heliograph.engine import Simulation
from heliograph.errors import RouteError
from heliograph.layout import placed
from heliograph.metrics import StepMetrics, summarise
from heliograph.operators import StepGraph
from heliograph.trace import Trace
from optical.reducing_fabric import OpticalReduction
from workloads.architecture import TransformerConfig
from workloads.host_memory import check_host_fits
from workloads.memory import check_fits, memory_by_kind
from workloads.parallelism import Parallelism, check, default_sequence_length, parse_plan
from workloads.plan_arrays import PLACEMENTS, endpoints_of
from workloads.planning import default_plan
from workloads.step import build_step


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step of one system took."""

    system: System
    """The hardware as it was run."""
    trace: Trace
    """Everything that happened."""
    metrics: StepMetrics
    """Where time and energy went."""
    memory_bytes: dict[str, float]
    """Memory of the fullest stage by kind."""
    capital_usd: float
    """Price of the whole system."""
    step_usd: dict[str, float]
    """Cost of the step by part."""
    circuits: str
    """Circuit policy that was run, or ``"none"``."""
    model: str
    """Name of the model."""
    plan: Parallelism
    """How it was spread."""
    graph: StepGraph
    """What was run."""
    run_steps: float
    """Steps of a compute-optimal training run."""

    @property
    def usd_per_million_tokens(self) -> float:
        """Cost of a million tokens."""
        tokens = self.metrics.tokens_per_s * self.metrics.step_time_s
        return sum(self.step_usd.values()) * MILLION / tokens

    def _reduction(self) -> dict[str, float]:
        """Return the effective bits of gradients that a fabric adds in light, if it does."""
        fabric = self.system.fabric
        if isinstance(fabric, OpticalReduction) and fabric.nodes > 1:
            return {"reduction_effective_bits": fabric.effective_bits}
        return {}

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout."""
        metrics = self.metrics
        tokens = metrics.tokens_per_s * metrics.step_time_s
        lifetime = lifetime_steps(self.system.photonic, self.graph)
        return {
            "system": self.system.name,
            "accelerator": self.system.node().name,
            "accelerators": self.system.accelerators,
            "step_time_s": metrics.step_time_s,
            "tokens_per_s": metrics.tokens_per_s,
            "model_flop_utilisation": metrics.model_flop_utilisation,
            "time_by_category_s": metrics.time_by_category_s,
            "exposed_communication_s": metrics.time_by_category_s.get("exposed communication", 0.0),
            "dark_s": metrics.dark_s,
            "exposed_dark_s": metrics.time_by_category_s.get("dark time", 0.0),
            "pipeline_bubble_s": metrics.time_by_category_s.get("pipeline bubble", 0.0),
            "energy_j": metrics.energy_j,
            "energy_per_token_j": metrics.energy_per_token_j,
            "energy_by_component_j_per_token": {
                part: joules / tokens for part, joules in metrics.energy_by_component_j.items()
            },
            "mean_power_w": metrics.mean_power_w,
            "memory_bytes": sum(self.memory_bytes.values()),
            "memory_by_kind_bytes": self.memory_bytes,
            "memory_capacity_bytes": self.system.node().memory.capacity_bytes,
            "effective_bits": self.system.effective_bits(),
            "peak_flop_per_s": self.system.node().peak_flop_per_s,
            "accelerator_peak_w": self.system.accelerator_peak_w(),
            "accelerator_area_m2": self.system.accelerator_area_m2(),
            "accelerator_usd": self.system.accelerator_usd(),
            "photonic_cores": self.system.photonic.cores if self.system.photonic else 0,
            "core": self.system.photonic.core.name if self.system.photonic else "",
            "core_lifetime_steps": None if math.isinf(lifetime) else lifetime,
            "run_steps": self.run_steps,
            "sram_bytes": self.system.photonic.sram_bytes if self.system.photonic else 0.0,
            "fabric": self.system.fabric.name,
            **self._reduction(),
            "fabric_static_w": self.system.fabric.static_w,
            "capital_usd": self.capital_usd,
            "step_usd": self.step_usd,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            "circuit_policy": self.circuits,
            "reconfigurations": metrics.reconfigurations,
            "network_bytes": metrics.network_bytes,
            "host_bytes": metrics.host_bytes,
            "collective_algorithms": metrics.algorithms,
            "dropped_share": metrics.dropped_share,
        }


MILLION = 10**6
"""Tokens by which cost is quoted."""


TOKENS_PER_ACCELERATOR = 4096
"""Tokens of a step per accelerator where nobody names a batch: 4 M on 1,024, 16 M on 4,096."""


def plan_for(config: TransformerConfig, text: str, *, accelerators: int, memory_bytes: float) -> Parallelism:
    """Return the plan that a text names, or the default one.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    text : str
        ``tp=8,pp=16,...``; what it leaves out has the default of `Parallelism`, the sequence length that of
        the model. Empty: the plan of `workloads.planning.default_plan`.
    accelerators : int
        How many a default plan takes.
    memory_bytes : float
        Memory of each.
    """
    sequence_length = default_sequence_length(config)
    if text:
        return parse_plan(text, base=Parallelism(sequence_length=sequence_length))
    return default_plan(
        config,
        accelerators=accelerators,
        memory_bytes=memory_bytes,
        global_batch=max(1, accelerators * TOKENS_PER_ACCELERATOR // sequence_length),
    )


def plan_text(plan: Parallelism) -> str:
    """Return a plan as text that `plan_for` reads back: its shape, and what differs from the defaults."""
    plain = Parallelism()
    shape = ("tp", "pp", "dp", "micro_batch", "global_batch", "sequence_length")
    shown = [
        (item.name, getattr(plan, item.name))
        for item in dataclasses.fields(plan)
        if item.name in shape or getattr(plan, item.name) != getattr(plain, item.name)
    ]
    return ",".join(f"{name}={value}" for name, value in shown)


def run_step(
    system: System, config: TransformerConfig, plan: Parallelism, *, placement: str = PLACEMENTS[0]
) -> StepResult:
    """Run one training step.

    Parameters
    ----------
    system : System
        The hardware.
    config : TransformerConfig
        The model.
    plan : Parallelism
        How it is spread; must use all accelerators of the system.
    placement : str
        Axes from the nearest ranks to the farthest, such as ``tp cp dp pp``.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, the number of accelerators, or the memory.
    """
    check(config, plan, accelerators=system.accelerators)
    check_fits(config, plan, system.node().memory.capacity_bytes)
    if plan.updates_on_host:
        system = system.hosted()
        check_host_fits(config, plan, system.host)
    graph = build_step(config, plan)
    if placement != PLACEMENTS[0]:
        ranks = placed(graph.layout, endpoints_of(plan, placement))
        graph = dataclasses.replace(graph, layout=ranks)
    if isinstance(system.fabric, CircuitFabric):
        return _fastest(system, system.fabric, config, plan, graph)
    return _run(system, config, plan, graph, "none")


def _fastest(
    system: System, circuits: CircuitFabric, config: TransformerConfig, plan: Parallelism, graph: StepGraph
) -> StepResult:
    """Return the run with the circuit policy that was asked for, or with the faster one.

    Circuits that stay are tried first; where one change takes as long as that whole step, moving is slower.
    """
    results: list[StepResult] = []
    reason: RouteError | None = None
    for policy in policies(circuits, system.circuits):
        if results and dark_of(circuits) >= results[0].metrics.step_time_s:
            break
        fabric = dataclasses.replace(circuits, policy=policy)
        try:
            moved = dataclasses.replace(system, fabric=fabric)
            results.append(_run(moved, config, plan, graph, str(policy)))
        except RouteError as error:  # a plan may have more neighbours than lanes, and still run in turns
            reason = error
    if not results and reason is not None:
        raise reason
    return min(results, key=lambda result: result.metrics.step_time_s)


def _run(
    system: System, config: TransformerConfig, plan: Parallelism, graph: StepGraph, circuits: str
) -> StepResult:
    node = system.node()
    trace = Simulation(graph, node, system.fabric).run()
    metrics = summarise(trace, graph, node, system.fabric)
    stages = [memory_by_kind(config, plan, stage) for stage in range(plan.pp)]
    capital_usd = system.capital_usd()
    return StepResult(
        system=system,
        trace=trace,
        metrics=metrics,
        memory_bytes=max(stages, key=lambda kinds: sum(kinds.values())),
        capital_usd=capital_usd,
        step_usd=system.economics.step_usd(
            capital_usd=capital_usd, step_time_s=metrics.step_time_s, energy_j=metrics.energy_j
        ),
        circuits=circuits,
        model=config.name,
        plan=plan,
        graph=graph,
        run_steps=run_steps(config, graph.tokens),
    )

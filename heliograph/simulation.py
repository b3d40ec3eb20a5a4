"""One step of one system: run, measure, price.

Circuit modes of a fabric: which traffic its circuits serve, and whether ports turn ahead of it.

How soon training wears out cores whose cells survive a number of writes only.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.systems import System
from optical.accelerator import PhotonicUnit
from simulator.engine.simulation import Simulation
from simulator.errors import RouteError
from simulator.fabric import CircuitPolicy, Fabric, PortTiming
from simulator.layout import placed
from simulator.operators import MatMul, Operator, Overlapped, StepGraph
from simulator.operators import Sequence as Run
from simulator.results.metrics import StepMetrics, summarise
from simulator.results.trace import Trace
from workloads.models.architecture import TransformerConfig
from workloads.plan.parallelism import default_sequence_length, parse_plan
from workloads.plan.plan import Plan
from workloads.plan.rules import check
from workloads.search.plans import PLACEMENTS, endpoints_of
from workloads.step.memory import check_fits, check_host_fits, default_plan, memory_by_kind
from workloads.step.step import build_step


@dataclass(frozen=True, kw_only=True)
class CircuitMode:
    """Circuit policy, and the instant at which ports begin to move."""

    policy: CircuitPolicy
    """Traffic that circuits serve at a time."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Whether idle ports turn to what comes next while accelerators compute (Opus, arXiv:2507.08119)."""

    def __str__(self) -> str:
        return str(self.policy) if self.turning is PortTiming.ON_REQUEST else f"{self.policy}, {self.turning}"


def policies(fabric: Fabric, asked: CircuitPolicy | None) -> tuple[CircuitPolicy, ...]:
    """Return the circuit policies that a fabric is to be tried with; none where circuits do not move.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only one, or None for all.
    """
    if fabric.traits.policy is None:
        return ()
    return (asked,) if asked else tuple(CircuitPolicy)


def modes(fabric: Fabric, asked: CircuitPolicy | None) -> tuple[CircuitMode, ...]:
    """Return the ways in which a fabric's circuits may follow a step; none where they do not move.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only policy, or None for all.
    """
    found = [CircuitMode(policy=policy) for policy in policies(fabric, asked)]
    if fabric.traits.can_prefetch and any(one.policy is CircuitPolicy.PER_AXIS for one in found):
        found.append(CircuitMode(policy=CircuitPolicy.PER_AXIS, turning=PortTiming.PREFETCHED))
    return tuple(found)


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
    plan: Plan
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
        bits = self.system.fabric.traits.reduction_bits
        return {} if bits is None else {"reduction_effective_bits": bits}

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


def plan_for(config: TransformerConfig, text: str, *, accelerators: int, memory_bytes: float) -> Plan:
    """Return the plan that a text names, or the default one.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    text : str
        ``tp=8,pp=16,...``; what it leaves out has its default, the sequence length that of the
        model. Empty: the plan of `workloads.step.memory.default_plan`.
    accelerators : int
        How many a default plan takes.
    memory_bytes : float
        Memory of each.
    """
    sequence_length = default_sequence_length(config)
    if text:
        return parse_plan(text, base=Plan.of(sequence_length=sequence_length))
    return default_plan(
        config,
        accelerators=accelerators,
        memory_bytes=memory_bytes,
        global_batch=max(1, accelerators * TOKENS_PER_ACCELERATOR // sequence_length),
    )


def run_step(
    system: System, config: TransformerConfig, plan: Plan, *, placement: str = PLACEMENTS[0]
) -> StepResult:
    """Run one training step.

    Parameters
    ----------
    system : System
        The hardware.
    config : TransformerConfig
        The model.
    plan : Plan
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
    if plan.sharding.updates_on_host:
        system = system.hosted()
        check_host_fits(config, plan, system.host)
    graph = build_step(config, plan)
    if placement != PLACEMENTS[0]:
        ranks = placed(graph.layout, endpoints_of(plan.axes, placement))
        graph = dataclasses.replace(graph, layout=ranks)
    if system.fabric.traits.policy is not None:
        return _fastest(system, config, plan, graph)
    return _run(system, config, plan, graph, "none")


def _fastest(system: System, config: TransformerConfig, plan: Plan, graph: StepGraph) -> StepResult:
    """Return the run with the circuit policy that was asked for, or with the faster one.

    Circuits that stay are tried first; where one change takes as long as that whole step, moving is slower.
    """
    circuits = system.fabric
    results: list[StepResult] = []
    reason: RouteError | None = None
    for policy in policies(circuits, system.circuits):
        if results and circuits.traits.reconfiguration_s >= results[0].metrics.step_time_s:
            break
        fabric = circuits.with_policy(policy)
        try:
            moved = dataclasses.replace(system, fabric=fabric)
            results.append(_run(moved, config, plan, graph, str(policy)))
        except RouteError as error:  # a plan may have more neighbours than lanes, and still run in turns
            reason = error
    if not results and reason is not None:
        raise reason
    return min(results, key=lambda result: result.metrics.step_time_s)


def _run(
    system: System, config: TransformerConfig, plan: Plan, graph: StepGraph, circuits: str
) -> StepResult:
    node = system.node()
    trace = Simulation(graph, node, system.fabric).run()
    metrics = summarise(trace, graph, node, system.fabric)
    stages = [memory_by_kind(config, plan, stage) for stage in range(plan.axes.pp)]
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

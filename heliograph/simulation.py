"""One training step on one system: `simulate` and `run_step`, and their result with time, energy and cost.

A step is run with each circuit policy that the fabric has, and the fastest counts. The laser of photonic
cores is sized before, for the precision that the system asks for (`lit`).
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, TypeGuard

from electronic.formats import FORMATS
from heliograph._version import __version__
from heliograph.accuracy.precision import Delivered, delivered, divided, matmuls_of, products_of, sized_core
from heliograph.records import SCHEMA, part_rows, row_of
from heliograph.report import Tabular, format_si
from heliograph.systems.names import DEFAULT_ACCELERATORS
from heliograph.systems.system import LightShares, System, build_system
from heliograph.workload import ModelLike, PlanLike, check_format_used, ranks_of
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from optical.accelerator import PhotonicUnit
from simulator.engine.compiled.step import StepRuns
from simulator.errors import LinkError, ParameterError, RouteError, told
from simulator.fabric import CircuitPolicy, Fabric, PortTiming
from simulator.layout import placed
from simulator.operators import StepGraph
from simulator.results import DARK, StepMetrics, Trace, summarise
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, default_sequence_length, plan_text
from workloads.plan.rules import check
from workloads.search.plans import PLACEMENTS, endpoints_of
from workloads.step.memory import check_fits, check_host_fits, fullest_stage, memory_by_kind, reads_one_byte
from workloads.step.step import build_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class CircuitMode:
    """Circuit policy with the timing of reconfigurations."""

    policy: CircuitPolicy
    """Traffic that circuits serve at a time."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Timing: on request, or ahead of traffic while accelerators compute (Opus, arXiv:2507.08119)."""

    def __str__(self) -> str:
        return str(self.policy) if self.turning is PortTiming.ON_REQUEST else f"{self.policy}, {self.turning}"


def policies(fabric: Fabric, asked: CircuitPolicy | None, plan: Plan) -> tuple[CircuitPolicy, ...]:
    """Return the circuit policies to try on a fabric; none if its circuits cannot be reconfigured.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only policy to try; None for all.
    plan : Plan
        Plan of the step; `CircuitPolicy.PER_LAYER` is tried only if its blocks' exchanges differ.
    """
    known = fabric.traits.policies
    if asked:
        return (asked,) if known else ()
    alike = plan.experts.expert_patterns == 1
    return tuple(one for one in known if not (alike and one is CircuitPolicy.PER_LAYER))


def modes(fabric: Fabric, asked: CircuitPolicy | None, plan: Plan) -> tuple[CircuitMode, ...]:
    """Return the circuit modes to try on a fabric; none if its circuits cannot be reconfigured.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only policy to try; None for all.
    plan : Plan
        Plan of the step, as in `policies`.
    """
    found = [CircuitMode(policy=policy) for policy in policies(fabric, asked, plan)]
    if fabric.traits.can_prefetch:
        found += [
            CircuitMode(policy=one.policy, turning=PortTiming.PREFETCHED)
            for one in found
            if one.policy is not CircuitPolicy.STATIC
        ]
    return tuple(found)


TOKENS_PER_PARAMETER = 20
"""Tokens of a compute-optimal training run per parameter (Hoffmann et al. 2022, arXiv:2203.15556)."""


def wears(unit: PhotonicUnit | None) -> TypeGuard[PhotonicUnit]:
    """Return whether a unit is photonic and its cells endure a limited number of writes."""
    return unit is not None and not math.isinf(unit.core.reload.endurance_writes)


def lifetime_steps(unit: PhotonicUnit | None, graph: StepGraph, light: LightShares | None = None) -> float:
    """Return the number of steps after which the busiest core's cells are worn out; infinite without wear.

    Parameters
    ----------
    unit : PhotonicUnit or None
        Unit that runs the products.
    graph : StepGraph
        One step, or several in a row.
    light : LightShares, optional
        Products that run in light; by default all.
    """
    if not wears(unit):
        return math.inf
    worn: defaultdict[int, float] = defaultdict(float)
    for task in graph.tasks:
        for product, count in matmuls_of(task.operator):
            share = 1.0 if light is None else light.of(product.role, product.phase)
            worn[task.rank_class] += unit.wear(product) * count * task.multiplicity * share
    most = max(worn.values(), default=0.0)
    return max(1, len(graph.ends)) / most if most > 0.0 else math.inf


def run_steps(config: TransformerConfig, tokens_per_step: float) -> float:
    """Return the steps of a compute-optimal training run of a model."""
    return TOKENS_PER_PARAMETER * config.parameters / tokens_per_step


def wear_warnings(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each system whose cores wear out within a compute-optimal training run."""
    return [
        f"{record['system']}: the cells of its cores are worn out after {record['core_lifetime_steps']:,.1f} "
        f"steps; a run of {TOKENS_PER_PARAMETER} tokens per parameter takes {record['run_steps']:,.0f}. "
        "Fewer writes (larger batches, more cores) or cells of more endurance are needed."
        for record in records
        if record["core_lifetime_steps"] is not None and record["core_lifetime_steps"] < record["run_steps"]
    ]


@dataclass(frozen=True, kw_only=True, repr=False)
class StepResult(Tabular):
    """Time, energy, memory and cost of one training step of one system."""

    system: System
    """The hardware as it was run."""
    trace: Trace
    """Trace of the engine."""
    metrics: StepMetrics
    """Time, energy and traffic by part."""
    memory_bytes: dict[str, float]
    """Memory of the fullest stage by kind."""
    capital_usd: float
    """Price of the whole system."""
    step_usd: dict[str, float]
    """Cost of the step by part."""
    circuits: CircuitPolicy | None
    """Circuit policy that was run; None if the fabric has none."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """Parallel plan."""
    placement: str
    """Order of the plan's axes, from the nearest ranks to the farthest."""

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.config.name

    @property
    def graph(self) -> StepGraph:
        """Tasks of the step, built again unless they are among the last ones built."""
        return step_graph(self.config, self.plan, self.placement)

    @property
    def run_steps(self) -> float:
        """Steps of a compute-optimal training run."""
        return run_steps(self.config, self.plan.batch.tokens_per_step)

    @property
    def step_time_s(self) -> float:
        """Time of the step."""
        return self.metrics.step_time_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens trained per second."""
        return self.metrics.tokens_per_s

    @property
    def time_by_category_s(self) -> dict[str, float]:
        """Step time by category (`simulator.results.CATEGORIES`), mean over ranks; adds up."""
        return self.metrics.time_by_category_s

    @property
    def energy_j(self) -> float:
        """Energy of the whole system over the step."""
        return self.metrics.energy_j

    @property
    def energy_by_part_j(self) -> dict[str, float]:
        """Energy of the step by part; adds up to `energy_j`."""
        return self.metrics.energy_by_component_j

    @property
    def energy_per_token_j(self) -> float:
        """Energy of the whole system per token."""
        return self.metrics.energy_per_token_j

    @cached_property
    def precision(self) -> Delivered:
        """Precision that the system delivers to the step's products, on its operands (`System.operands`)."""
        return delivered(
            self.system,
            products_of(self.graph),
            self.system.operands,
            stored=FORMATS[str(self.plan.precision.kind)],
            kept=partial(reads_one_byte, self.config, self.plan),
        )

    @cached_property
    def core_lifetime_steps(self) -> float:
        """Steps after which the busiest core's cells are worn out; infinite if nothing wears."""
        unit = self.system.photonic
        return lifetime_steps(unit, self.graph, self.system.light) if wears(unit) else math.inf

    @property
    def snr_db(self) -> float:
        """Executed signal-to-noise ratio of the step's products together."""
        return self.precision.snr_db

    @property
    def effective_bits(self) -> float:
        """Precision that the system delivers, effective bits of a full-scale sample."""
        return self.system.effective_bits()

    @property
    def circuits_told(self) -> str:
        """Circuit policy that was run, as text."""
        return str(self.circuits or "none")

    def rows(self) -> list[dict[str, Any]]:
        """Return one row, with the columns of `heliograph.records.COLUMNS`."""
        return [row_of(self.record())]

    def parts(self) -> list[dict[str, Any]]:
        """Return a row for each part of each quantity, with `heliograph.records.PART_COLUMNS`."""
        return part_rows(self.record())

    def plot(self) -> Figure:
        """Return a figure of the parts of the step's time and energy."""
        from heliograph.figures import step_figure  # noqa: PLC0415 - matplotlib takes its time

        return step_figure([self.record()])

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the result as it is shown."""
        time, energy = self.time_by_category_s, self.energy_by_part_j
        return [
            (f"One step of {self.model}", f"{format_si(self.step_time_s, 's')} on {self.system.name}"),
            ("plan", plan_text(self.plan)),
            ("throughput", f"{self.tokens_per_s:,.0f} tokens/s on {self.system.accelerators:,} accelerators"),
            ("time", _largest(time, self.step_time_s)),
            ("energy", f"{format_si(self.energy_per_token_j, 'J/token')}: {_largest(energy, self.energy_j)}"),
            ("cost", f"{self.usd_per_million_tokens:.3g} USD a million tokens (assumed prices)"),
            ("precision", f"{self.snr_db:.1f} dB of signal over noise on {self.precision.operands} operands"),
            ("memory", f"{format_si(sum(self.memory_bytes.values()), 'B')} of the fullest accelerator"),
            ("circuits", self.circuits_told),
            ("changed", self.system.settings_text() or "nothing"),
        ]

    @property
    def usd_per_million_tokens(self) -> float:
        """Cost of a million tokens."""
        tokens = self.metrics.tokens_per_s * self.metrics.step_time_s
        return sum(self.step_usd.values()) * MILLION / tokens

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "seed": None,
            "model": self.model,
            "plan": plan_text(self.plan),
            "system": self.system.name,
            "settings": self.system.settings_text(),
            "gpu": self.system.gpu.name,
            "basis": str(self.system.basis) if self.system.photonic else "",
            "precision": str(self.plan.precision.kind),
            "accelerator": self.system.node().name,
            "accelerators": self.system.accelerators,
            **self._step_record(),
            **self._hardware_record(),
            "capital_usd": self.capital_usd,
            "step_usd": self.step_usd,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            "circuit_policy": self.circuits_told,
            "placement": self.placement,
            "reconfigurations": self.metrics.reconfigurations,
            "network_bytes": self.metrics.network_bytes,
            "host_bytes": self.metrics.host_bytes,
            "collective_algorithms": self.metrics.algorithms,
            "dropped_share": self.metrics.dropped_share,
        }

    def _step_record(self) -> dict[str, Any]:
        """Return time, energy and memory of the step."""
        metrics = self.metrics
        tokens = metrics.tokens_per_s * metrics.step_time_s
        return {
            "step_time_s": metrics.step_time_s,
            "tokens_per_s": metrics.tokens_per_s,
            "model_flop_utilisation": metrics.model_flop_utilisation,
            "time_by_category_s": metrics.time_by_category_s,
            "exposed_communication_s": metrics.time_by_category_s.get("exposed communication", 0.0),
            "dark_s": metrics.dark_s,
            "exposed_dark_s": metrics.time_by_category_s.get(DARK, 0.0),
            "pipeline_bubble_s": metrics.time_by_category_s.get("pipeline bubble", 0.0),
            "energy_j": metrics.energy_j,
            "energy_per_token_j": metrics.energy_per_token_j,
            "energy_by_component_j_per_token": {
                part: joules / tokens for part, joules in metrics.energy_by_component_j.items()
            },
            "mean_power_w": metrics.mean_power_w,
            "memory_bytes": sum(self.memory_bytes.values()),
            "memory_by_kind_bytes": self.memory_bytes,
        }

    def _hardware_record(self) -> dict[str, Any]:
        """Return the fields of the record that describe the hardware: size, power, precision, endurance."""
        system, node, photonic = self.system, self.system.node(), self.system.photonic
        lifetime, reduction_bits = self.core_lifetime_steps, system.fabric.traits.reduction_bits
        return {
            "memory_capacity_bytes": node.memory.capacity_bytes,
            "snr_db": self.snr_db,
            "operands": str(system.operands),
            "precision_target": system.target_text,
            "laser_line_w": system.laser_power_w,
            "effective_bits": system.effective_bits(),
            "peak_flop_per_s": node.peak_flop_per_s,
            "accelerator_peak_w": system.accelerator_peak_w(),
            "accelerator_area_m2": system.accelerator_area_m2(),
            "accelerator_usd": system.accelerator_usd(),
            "photonic_cores": photonic.cores if photonic else 0,
            "core": photonic.core.name if photonic else "",
            "core_lifetime_steps": None if math.isinf(lifetime) else lifetime,
            "run_steps": self.run_steps,
            "sram_bytes": photonic.sram_bytes if photonic else 0.0,
            "fabric": system.fabric.name,
            **({} if reduction_bits is None else {"reduction_effective_bits": reduction_bits}),
            "fabric_static_w": system.fabric.static_w,
        }


MILLION = 10**6
"""Tokens by which cost is quoted."""


def simulate(
    system: System | str,
    model: ModelLike,
    plan: PlanLike | None = None,
    *,
    placement: str = PLACEMENTS[0],
    accelerators: int | None = None,
) -> StepResult:
    """Run one training step of a model on a system and return its result.

    Parameters
    ----------
    system : System or str
        The hardware, or its name; a named system has as many accelerators as the plan uses.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        As `heliograph.plan` takes it; by default one chosen for the system.
    placement : str
        Order of the plan's axes, from the nearest ranks to the farthest, such as ``tp cp dp pp``.
    accelerators : int
        Accelerators of a named system, in place of the plan's.

    Raises
    ------
    HeliographError
        For unknown names, a plan that does not fit the model or the system, or a link that does not close.
    """
    config = model_of(model)
    hardware = system_of(system, plan, accelerators)
    check_format_used(plan, [hardware])
    spread = plan_of(plan, model=config, system=hardware)
    return run_at_target(hardware, config, spread, placement=placement)


def system_of(
    system: System | str, plan: PlanLike | None, accelerators: int | None = None, *, beside: int | None = None
) -> System:
    """Return a system as it is, or build the one of a name.

    A named system has `accelerators` if given, else the number in its file, that of the plan, that of the
    systems `beside` it in a comparison, or the default.
    """
    if isinstance(system, str):
        usual = ranks_of(plan) or beside or DEFAULT_ACCELERATORS
        return build_system(system, accelerators=accelerators, usual_accelerators=usual)
    if not isinstance(system, System):
        msg = f"a system is a name or what heliograph.system returns; got {told(system)}"
        raise ParameterError(msg)
    if accelerators not in (None, system.accelerators):
        msg = (
            f"accelerators ({accelerators!r:.60}) is not used: '{system.name}' has {system.accelerators:,}; "
            "leave it out"
        )
        raise ParameterError(msg)
    return system


def _largest(parts: Mapping[str, float], total: float) -> str:
    """Return the largest parts of a total with their shares, as text."""
    ranked = sorted(parts, key=lambda name: -parts[name])[:LARGEST_PARTS]
    return ", ".join(f"{name} {parts[name] / total:.0%}" for name in ranked)


LARGEST_PARTS = 4
"""Number of parts of time and energy in a result's summary."""


def step_graph(config: TransformerConfig, plan: Plan, placement: str = PLACEMENTS[0]) -> StepGraph:
    """Return the tasks of one step of a plan with its ranks placed on accelerators; the last are cached."""
    graph = _cached_step(config, plan)
    if placement == PLACEMENTS[0]:
        return graph
    return dataclasses.replace(graph, layout=placed(graph.layout, endpoints_of(plan.axes, placement)))


_cached_step = lru_cache(maxsize=4)(build_step)


def lit(system: System, graph: StepGraph) -> System:
    """Return a system with its laser sized for its precision target over the products of a step.

    Parameters
    ----------
    system : System
        Any system; an electronic one, and one without a target, is returned as it is.
    graph : StepGraph
        The step.

    Raises
    ------
    LinkError
        If no laser power reaches the target.
    BudgetError
        If no core with that laser fits the budget.
    """
    wanted = system.lighting.wanted if system.lighting is not None else None
    if wanted is None or system.photonic is None:
        return system
    products, _ = divided(products_of(graph), system.light)
    if not products:
        return system
    try:
        core = sized_core(system.photonic.core, wanted, products, system.operands)
    except LinkError as error:
        msg = f"{error}; --precision-target asks for other decibels, and none leaves the laser as it stands"
        raise LinkError(msg) from error
    lighting = None if system.lighting is None else dataclasses.replace(system.lighting, sized=True)
    return dataclasses.replace(system.with_core(core), lighting=lighting)


def lit_for_all(system: System, config: TransformerConfig) -> System:
    """Return a system with its laser sized for a model's products on one rank, so that all plans share it."""
    alone = Plan.of(sequence_length=default_sequence_length(config), global_batch=1)
    return lit(system, step_graph(config, alone)) if system.photonic is not None else system


def run_at_target(
    system: System,
    config: TransformerConfig,
    plan: Plan,
    *,
    placement: str = PLACEMENTS[0],
    runs: StepRuns | None = None,
) -> StepResult:
    """Run one training step with the laser sized for the system's precision target.

    Parameters
    ----------
    system, config, plan, placement, runs
        As `run_step` takes them.

    Raises
    ------
    WorkloadError
        As `run_step`.
    LinkError, BudgetError
        As `lit`.
    """
    plan = system.planned(plan)
    check(config, plan, accelerators=system.accelerators)
    runs = runs or StepRuns(step_graph(config, plan, placement))
    return run_step(lit(system, runs.graph), config, plan, placement=placement, runs=runs)


def run_step(
    system: System,
    config: TransformerConfig,
    plan: Plan,
    *,
    placement: str = PLACEMENTS[0],
    runs: StepRuns | None = None,
) -> StepResult:
    """Run one training step.

    Parameters
    ----------
    system : System
        The hardware.
    config : TransformerConfig
        The model.
    plan : Plan
        Parallel plan, which must use all accelerators of the system.
    placement : str
        Order of the plan's axes, from the nearest ranks to the farthest, such as ``tp cp dp pp``.
    runs : StepRuns
        The prepared step, if a caller runs it on several systems: `StepRuns` of the `step_graph` of the
        model, `System.planned` of the plan, and the placement.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, the number of accelerators, or the memory.
    """
    plan = system.planned(plan)
    system = system.with_plan(plan)
    check(config, plan, accelerators=system.accelerators)
    check_fits(config, plan, system.node().memory.capacity_bytes)
    if plan.uses_host:
        check_host_fits(config, plan, system.host)
    runs = runs or StepRuns(step_graph(config, plan, placement))
    if system.fabric.traits.policy is not None:
        return _fastest(system, config, plan, placement, runs)
    blocks = accumulate((getattr(plan.axes, axis) for axis in placement.split()), mul)
    forms = system.fabric.laid_for(tuple(blocks))
    laid = [dataclasses.replace(system, fabric=form) for form in forms]
    results = [_run(one, config, plan, placement, runs) for one in laid]
    return min(results, key=lambda result: result.metrics.step_time_s)


def _fastest(
    system: System, config: TransformerConfig, plan: Plan, placement: str, runs: StepRuns
) -> StepResult:
    """Return the fastest run over the circuit policies of the fabric, or over the one that is asked for.

    Static circuits are tried first; if a single reconfiguration takes as long as that step, no other policy
    can be faster.
    """
    circuits = system.fabric
    results: list[StepResult] = []
    reason: RouteError | None = None
    for policy in policies(circuits, system.circuits, plan):
        if results and circuits.traits.reconfiguration_s >= results[0].metrics.step_time_s:
            break
        fabric = circuits.with_policy(policy)
        try:
            moved = dataclasses.replace(system, fabric=fabric)
            results.append(_run(moved, config, plan, placement, runs, circuits=policy))
        except RouteError as error:  # a plan may have more neighbours than lanes, and still run in turns
            reason = error
    if not results and reason is not None:
        raise reason
    return min(results, key=lambda result: result.metrics.step_time_s)


def _run(
    system: System,
    config: TransformerConfig,
    plan: Plan,
    placement: str,
    runs: StepRuns,
    *,
    circuits: CircuitPolicy | None = None,
) -> StepResult:
    node, graph = system.node(), runs.graph
    trace = runs.run(node, system.fabric)
    metrics = summarise(trace, graph, node, system.fabric)
    capital_usd = system.capital_usd()
    return StepResult(
        system=system,
        trace=trace,
        metrics=metrics,
        memory_bytes=memory_by_kind(config, plan, fullest_stage(config, plan)),
        capital_usd=capital_usd,
        step_usd=system.economics.step_usd(
            capital_usd=capital_usd, step_time_s=metrics.step_time_s, energy_j=metrics.energy_j
        ),
        circuits=circuits,
        config=config,
        plan=plan,
        placement=placement,
    )

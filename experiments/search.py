"""The best plan, placement and fabric for a model: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from experiments.hardware import DEFAULT_ACCELERATORS, SYSTEM, Hardware, Workload
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.fabrics import CIRCUITS, check_fabric
from heliograph.registry import model_named
from heliograph.report import ReportRow, ReportTable, format_si, report_row
from heliograph.simulation import CircuitMode, StepResult, lit, modes, run_step, step_graph
from heliograph.systems import SYSTEMS, System
from heliograph.workload import TOKENS_PER_ACCELERATOR
from optical.fabrics.direct_connect import DirectConnect
from optical.fabrics.lane_assignment import domain_demands
from optical.fabrics.rails import OcsRails
from optical.scheduling.topology import JobTopology, job_time, job_topology
from simulator.collectives.demand import step_demand
from simulator.errors import HeliographError, ParameterError, WorkloadError, nearest
from simulator.estimate.step import StepArrays, estimate
from simulator.fabric import CircuitPolicy, Fabric, PortTiming
from simulator.results.metrics import StepBound
from workloads.layers.transformer import model_flops
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULES
from workloads.plan.parallelism import default_sequence_length, parse_plan, plan_text
from workloads.plan.plan import Plan
from workloads.search.costs import PlanCosts, PlanPricer, beside_sums
from workloads.search.plans import CHOSEN, COLUMNS, PlanArrays, broken_rules, grid, memory_bytes

INNER = ("tp", "cp", "ep")
"""Axes whose traffic lies within the passes."""


def under_mode(
    costs: PlanCosts, plans: PlanArrays, fabric: Fabric, mode: CircuitMode, layers: int
) -> StepArrays:
    """Return the pieces of steps whose circuits move in a mode.

    Parameters
    ----------
    costs : PlanCosts
        Pieces in which all lanes serve the axis that asks.
    plans : PlanArrays
        The plans.
    fabric : Fabric
        The switches.
    mode : CircuitMode
        When circuits move, and whether they turn ahead of traffic.
    layers : int
        Blocks of the model.

    Notes
    -----
    *Static*: on rails peers share the lanes of an endpoint in proportion to their bytes, at least one each,
    here without rounding; more peers than lanes is no plan (infinite time). Elsewhere nodes or packets pass
    on what has no circuit of its own, and axes meet on links as in `workloads.search.costs`.
    *Per axis*: a change between the gathers, the passes and the sums of a step, around the traffic of every
    microbatch, and twice a block where two axes inside the passes leave the node.
    *Ahead*: a change around a microbatch's traffic hides behind the work between two of them,
    ``max(0, delta - work)`` (Opus, arXiv:2507.08119); those of a step do not.
    """
    if mode.policy is CircuitPolicy.STATIC:
        lanes = fabric.traits.endpoint_lanes
        return costs.arrays if lanes is None else _shared(costs, plans, lanes)
    leaves = {axis: moved > 0 for axis, moved in costs.outside_bytes.items()}
    inside = sum(leaves[axis].astype(int) for axis in INNER)
    zero = plans["zero"]
    others = (inside > 0) | leaves["pp"]
    once = np.where(leaves["dpcp"] & others, np.where(zero > 0, 2, 1), 0)
    once = np.where((inside > 0) & leaves["pp"], once + 1, once)
    each = np.where(leaves["dpcp"] & others & (zero >= 2), 2, 0)
    each = each + np.where((inside > 0) & leaves["pp"], 4 * plans["vpp"], 0)
    each = each + np.where(inside > 1, 4 * plans["vpp"] * np.ceil(layers / plans["pp"]), 0)
    dark_s = fabric.traits.reconfiguration_s
    if mode.turning is PortTiming.PREFETCHED and dark_s > 0.0:
        arrays = costs.arrays
        passes_s = arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1]
        work_s = np.maximum(0.0, passes_s - costs.waited_s) / np.maximum(each, 1.0)
        each = each * np.maximum(0.0, 1.0 - work_s / dark_s)
    return replace(
        costs.arrays,
        reconfiguration_s=np.full(len(plans), dark_s),
        changes_each=each.astype(float),
        changes_once=once.astype(float),
    )


def _shared(costs: PlanCosts, plans: PlanArrays, lanes: int) -> StepArrays:
    """Return the pieces where all axes share the lanes of each endpoint."""
    moved = costs.outside_bytes
    peers = {axis: (column > 0).astype(float) for axis, column in moved.items()}
    peers["pp"] = peers["pp"] * np.minimum(2, np.maximum(plans["pp"] - 1, 0))
    needed = sum(peers.values())
    whole = np.maximum(sum(moved.values()), 1.0)
    spare = np.maximum(lanes - needed, 0.0)
    slower = {}
    for axis, column in moved.items():
        mine = np.maximum(peers[axis] + spare * column / whole, 1e-300)
        share = np.where(axis == "pp", mine / np.maximum(peers[axis], 1.0), mine)
        full = lanes / np.where(axis == "pp", np.maximum(peers[axis], 1.0), 1.0)
        slower[axis] = np.where(peers[axis] > 0, full / np.maximum(share, 1e-300), 1.0)
    arrays = costs.arrays
    inner = np.max([np.where(moved[axis] > 0, slower[axis], 1.0) for axis in INNER], axis=0)
    later_s = costs.waited_s * (inner - 1.0)
    later_s = np.where(np.isfinite(costs.waited_s), later_s, 0.0)  # no way at all is infinite already
    share = later_s / np.maximum(
        arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1], 1e-300
    )
    crowded = np.where(needed > lanes, np.inf, 1.0)
    return replace(
        arrays,
        forward_s=arrays.forward_s * (1 + share)[:, None] * crowded[:, None],
        inputs_s=arrays.inputs_s * (1 + share)[:, None] * crowded[:, None],
        whole_s=arrays.whole_s * (1 + share) * crowded,
        send_s=arrays.send_s * slower["pp"],
        gather_s=arrays.gather_s * slower["dpcp"][:, None],
        sum_s=arrays.sum_s * slower["dpcp"][:, None],
    )


class Objective(StrEnum):
    """Quantity that is to be least."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Steps of P plans on one topology, in closed form."""

    values: Mapping[Objective, np.ndarray]
    """Time in s, energy in J and cost in USD with the circuits' fastest mode, shape [P] each."""
    modes: tuple[CircuitMode, ...]
    """Ways in which circuits may follow the step; none where they do not move."""
    mode_time_s: np.ndarray
    """Step time in each of them, shape [M, P]; one row without circuits. Infinite: no way."""

    def close(self, row: int, share: float) -> tuple[CircuitMode, ...]:
        """Return the modes in which a plan takes at most so much longer than in its fastest one."""
        column = self.mode_time_s[:, row]
        return tuple(
            one
            for one, time_s in zip(self.modes, column, strict=False)
            if np.isfinite(time_s) and time_s <= column.min() * (1.0 + share)
        )


def estimates(system: System, pricer: PlanPricer, plans: PlanArrays) -> Estimates:
    """Return the estimated steps of plans.

    Parameters
    ----------
    system : System
        The hardware; a circuit policy that it asks for is the only one tried.
    pricer : PlanPricer
        Prices of the plans' pieces.
    plans : PlanArrays
        Rows that break no rule.
    """
    fabric = system.fabric
    tried = modes(fabric, system.circuits)
    costs_of: dict[CircuitPolicy, PlanCosts] = {}
    times_s = []
    if tried:
        for mode in tried:
            if mode.policy not in costs_of:
                fixed = fabric.with_policy(mode.policy, PortTiming.ON_REQUEST)
                costs_of[mode.policy] = pricer.costs(plans, fixed)
            costs = costs_of[mode.policy]
            times_s.append(_step_s(costs, under_mode(costs, plans, fabric, mode, pricer.config.layers)))
    else:
        costs = pricer.costs(plans, fabric)
        times_s.append(_step_s(costs, costs.arrays))
    mode_time_s = np.stack(times_s)
    return Estimates(
        values=_priced(system, pricer, costs, mode_time_s.min(axis=0)),
        modes=tried,
        mode_time_s=mode_time_s,
    )


def _step_s(costs: PlanCosts, arrays: StepArrays) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        time_s = estimate(beside_sums(arrays, costs.beside)).step_time_s
    return np.nan_to_num(time_s, nan=np.inf, posinf=np.inf)


def _priced(
    system: System, pricer: PlanPricer, costs: PlanCosts, time_s: np.ndarray
) -> dict[Objective, np.ndarray]:
    """Return time in s, energy in J and cost in USD of steps of known times, shape [P] each."""
    static_w = pricer.node.static_w * system.accelerators + system.fabric.static_w
    with np.errstate(invalid="ignore"):
        energy_j = np.where(np.isfinite(time_s), costs.energy_j + static_w * time_s, np.inf)
    capital_usd = system.capital_usd()
    share_usd = system.economics.step_usd(capital_usd=capital_usd, step_time_s=1.0, energy_j=0.0)
    joule_usd = system.economics.step_usd(capital_usd=0.0, step_time_s=0.0, energy_j=1.0)
    cost_usd = time_s * sum(share_usd.values()) + energy_j * sum(joule_usd.values())
    return {Objective.TIME: time_s, Objective.ENERGY: energy_j, Objective.COST: cost_usd}


def bound_of(system: System, pricer: PlanPricer, plans: PlanArrays) -> StepBound:
    """Return what no run of the only plan of an array can beat."""
    costs = pricer.costs(plans, system.fabric)
    plan = plans.plan(0)
    node = pricer.node
    port = system.fabric.traits.card_bytes_per_s
    outside = float(sum(column[0] for column in costs.outside_bytes.values()))
    return StepBound(
        compute_s=model_flops(pricer.config, plan.share) / (node.peak_flop_per_s * system.accelerators),
        memory_s=pricer.touched_bytes(plans) / node.memory.bandwidth_bytes_per_s,
        port_s=outside / port if port else 0.0,
    )


def topologies(system: System) -> dict[str, System]:
    """Return a system with the variants of its fabric, by name.

    Parameters
    ----------
    system : System
        The system as it was asked for, which comes first.

    Notes
    -----
    Lanes and degrees change what a fabric costs and draws, sides and twists do not. Which nodes circuits join
    is no variant: fabrics lay them out for the traffic of each plan (TotientPerms, matchings).
    """
    fabric = system.fabric
    found = {fabric.name: system}
    for name, variant in fabric.variants().items():
        found[f"{fabric.name}, {name}"] = dataclasses.replace(system, fabric=variant)
    return found


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Systems, model and plans of a search."""

    systems: Mapping[str, System]
    """Systems by topology."""
    unplaced: Mapping[str, str]
    """Fabrics that cannot be made, and why."""
    config: TransformerConfig
    """The model."""
    base: Plan
    """Fields that all plans share."""
    choices: Mapping[str, tuple[int, ...]]
    """Columns that the plan pins."""


def _pinned(text: str, base: Plan) -> dict[str, tuple[int, ...]]:
    """Return the columns that a plan's text names, each with its only value."""
    named = {part.partition("=")[0].strip() for part in text.split(",") if part.strip()}
    pinned: dict[str, tuple[int, ...]] = {}
    for name in COLUMNS:
        if name not in named:
            continue
        value = base.value(name)
        known = CHOSEN.get(name)
        if known is not None and value not in known:
            msg = f"plan: a search has no {name}={value}; {nearest(str(value), [str(one) for one in known])}"
            raise ParameterError(msg)
        pinned[name] = (known.index(value),) if known is not None else (int(value),)
    return pinned


NEAR_SHARE = 0.01
"""Estimates that differ by less than this share are alike: of these the plan with the fewest passes is run
first; below the estimate's own error, a choice."""
CLOSE_SHARE = 0.5
"""Ways of circuits whose estimate is longer than the best one's by more than this share are not run."""

Told = Callable[[str, int, int], None]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan on one fabric, as estimated and, if it was among the best, as the engine ran it."""

    system: System
    """The hardware."""
    topology: str
    """Fabric and its variant."""
    plan: Plan
    """The plan."""
    placement: str
    """Axes from the nearest ranks to the farthest."""
    estimate: Mapping[Objective, float]
    """Estimated step time in s, energy in J and cost in USD."""
    bound: StepBound
    """Lower bound of the step."""
    modes: tuple[CircuitMode, ...] = ()
    """Ways in which circuits may follow the step that are worth a run; none where they do not move."""
    mode: CircuitMode | None = None
    """The one of them that the engine found best."""
    result: StepResult | None = None
    """The engine's run."""
    refusal: str = ""
    """Why the engine could not run it, if it could not."""

    def value(self, objective: Objective) -> float:
        """Return time in s, energy in J or cost in USD, as the engine has it."""
        if self.result is None:
            return self.estimate[objective]
        match objective:
            case Objective.TIME:
                return self.result.metrics.step_time_s
            case Objective.ENERGY:
                return self.result.metrics.energy_j
            case _:
                return sum(self.result.step_usd.values())

    def record(self) -> dict[str, Any]:
        """Return the candidate as plain data, SI throughout."""
        return {
            "topology": self.topology,
            "plan": plan_text(self.plan),
            "placement": self.placement,
            "estimate": {str(one): value for one, value in self.estimate.items()},
            "engine": {str(one): self.value(one) for one in Objective} if self.result else None,
            "circuit_policy": self.result.circuits if self.result else "",
            "circuits": str(self.mode or "none"),
            "schedule": str(self.plan.schedule.kind),
            "refusal": self.refusal,
            "bound_s": self.bound.step_time_s,
            "bound_by": self.bound.what,
            "over_bound": self.value(Objective.TIME) / self.bound.step_time_s,
        }


@dataclass(kw_only=True)
class Search(Result):
    """Findings of a search so far; they grow as it runs, so that an interruption loses nothing finished."""

    model: str
    """The model."""
    objective: Objective
    """Quantity that is least."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Plans that break a rule, by the first rule broken, per topology."""
    ranked: int = 0
    """Plans that were estimated, on all topologies."""
    unplaced: dict[str, str] = field(default_factory=dict)
    """Topologies that could not be made, and why."""
    waiting: list[Candidate] = field(default_factory=list)
    """Best plans that the engine has yet to run."""
    found: list[Candidate] = field(default_factory=list)
    """Plans that the engine has run."""

    @property
    def winner(self) -> Candidate:
        """Best plan that was run.

        Raises
        ------
        WorkloadError
            If none could be.
        """
        ran = [one for one in self.found if one.result is not None]
        if not ran:
            reasons = "; ".join(f"{count} {reason}" for reason, count in self.rejected.items() if count)
            refusals = "; ".join(dict.fromkeys(one.refusal for one in self.found if one.refusal))
            refusals = refusals or "; ".join(f"{name}: {why}" for name, why in self.unplaced.items())
            why = "; ".join(filter(None, (reasons, refusals))) or "none was tried"
            msg = (
                f"no plan of {self.model} runs: {why}; try more accelerators, another global_batch or "
                "another fabric"
            )
            raise WorkloadError(msg)
        return min(ran, key=lambda one: one.value(self.objective))

    def report(self) -> list[Block]:
        """Return the winner, the best plans of each topology, and what was left out."""
        winner = self.winner
        title = f"Best of {self.ranked:,} plans of {self.model} on {winner.system.accelerators} accelerators"
        blocks: list[Block] = [ReportTable(title, [winner.topology], winner_rows(self))]
        for topology, rows in fabric_rows(self).items():
            blocks += ["", ReportTable(f"Best plans on {topology}", ["engine"], rows)]
        left_out = "; ".join(f"{many:,} {why}" for why, many in self.rejected.items() if many)
        blocks.append(f"\nLeft out: {left_out}.")
        return blocks + [f"Not tried: {name}: {why}" for name, why in self.unplaced.items()]

    def record(self) -> dict[str, Any]:
        """Return the search as plain data; what was not run yet stands under ``waiting``."""
        return {
            "model": self.model,
            "objective": str(self.objective),
            "ranked": self.ranked,
            "rejected": self.rejected,
            "not_tried": self.unplaced,
            "found": [one.record() for one in _ranked(self)],
            "waiting": [one.record() for one in self.waiting],
        }

    def rows(self) -> list[Row]:
        """Return a row for each plan that was run, the best first."""
        return [candidate_row(one) for one in _ranked(self)]


def feasible(
    config: TransformerConfig, plans: PlanArrays, capacity_bytes: float
) -> tuple[PlanArrays, dict[str, int]]:
    """Return the plans that keep all rules and fit the memory, and how many others break which rule first."""
    counts: dict[str, int] = {}
    left = np.ones(len(plans), dtype=bool)
    for reason, broken in broken_rules(config, plans).items():
        counts[reason] = int((left & broken).sum())
        left &= ~broken
    kept = plans.taken(left)
    if len(kept):
        fits = memory_bytes(config, kept) <= capacity_bytes
        counts["more memory than there is"] = int((~fits).sum())
        kept = kept.taken(fits)
    return kept, counts


def search(
    systems: Mapping[str, System],
    config: TransformerConfig,
    base: Plan,
    *,
    found: Search,
    choices: Mapping[str, tuple[int, ...]] | None = None,
    top: int = 3,
    progress: Told = lambda *_: None,
) -> None:
    """Rank all plans on all topologies, and run the best of each with the engine.

    Parameters
    ----------
    systems : mapping
        Systems by the name of their topology; all of one accelerator.
    config, base : TransformerConfig, Plan
        The model, and what all plans share (batch, sequence length, precision).
    found : Search
        Where results are put, one after the other.
    choices : mapping, optional
        Values of a plan's columns to try, or one to pin it (`workloads.search.plans.grid`).
    top : int
        Plans of each topology that the engine runs, and the best one with stages if none of them has any.
    progress : callable
        Told a label, how much is done, and how much there is.
    """
    some = next(iter(systems.values()))
    base = some.planned(base)
    plans = grid(base, some.accelerators, config.experts, choices)
    plans, found.rejected = feasible(config, plans, some.node().memory.capacity_bytes)
    pricer = PlanPricer(config, some.node())
    for number, (name, system) in enumerate(systems.items()):
        progress(f"estimating {len(plans):,} plans on {name}", number, len(systems))
        if len(plans):
            found.waiting += _best(name, system, pricer, plans, objective=found.objective, top=top)
            found.ranked += len(plans)
    many = len(found.waiting)
    free = "schedule" not in (choices or {})
    while found.waiting:
        one, done = found.waiting[0], many - len(found.waiting)

        def say(doing: str, name: str = one.topology, done: int = done) -> None:
            progress(f"engine, {name}, {doing}", done, many)

        best = _run(one, config, found.objective, say)
        found.found.append(_rescheduled(best, config, found.objective, say) if free else best)
        found.waiting.pop(0)
    if many:
        progress("plans run", many, many)


def _run(one: Candidate, config: TransformerConfig, objective: Objective, say: Say) -> Candidate:
    """Return a candidate as the engine runs it, its circuits moving as is best."""
    ran: list[Candidate] = []
    refusal = ""
    for mode in one.modes or (None,):
        say(plan_text(one.plan) + (f", circuits {mode}" if mode else ""))
        try:
            system = _moving(one.system, mode)
            result = run_step(system, config, one.plan, placement=one.placement)
        except HeliographError as error:
            refusal = str(error)
        else:
            ran.append(dataclasses.replace(one, system=system, mode=mode, result=result))
    if not ran:
        return dataclasses.replace(one, refusal=refusal)
    return min(ran, key=lambda each: each.value(objective))


def _rescheduled(one: Candidate, config: TransformerConfig, objective: Objective, say: Say) -> Candidate:
    """Return a candidate with the schedule that the engine finds best, those without a closed form too.

    Tried are all registered ones that flush. Plans that a rule or the memory forbids (an odd pipeline
    folded, two copies that do not fit) are left out, and of those that save memory, each with a longer
    bubble than the one before it (Qi et al., arXiv:2405.15362), all but the first that runs.
    """
    if one.result is None or one.plan.axes.pp == 1:
        return one
    ran = [one]
    for schedule in SCHEDULES.values():
        if schedule.closed_form is not None or schedule.flows:
            continue
        if schedule.saves_memory and ran[-1].plan.schedule.kind.saves_memory:
            continue
        say(f"the same with {schedule}")
        try:
            plan = one.plan.with_(schedule=schedule, vpp=1)
            result = run_step(one.system, config, plan, placement=one.placement)
        except HeliographError:
            continue
        ran.append(dataclasses.replace(one, plan=plan, result=result))
    return min(ran, key=lambda each: each.value(objective))


def _moving(system: System, mode: CircuitMode | None) -> System:
    """Return a system whose circuits move in a mode, if it has one."""
    if mode is None:
        return system
    fabric = system.fabric.with_policy(mode.policy, mode.turning)
    return dataclasses.replace(system, fabric=fabric, circuits=mode.policy)


def _best(
    name: str, system: System, pricer: PlanPricer, plans: PlanArrays, *, objective: Objective, top: int
) -> list[Candidate]:
    """Return the best plans on one topology, in order."""
    found = estimates(system, pricer, plans)
    least = found.values[objective]
    finite = np.isfinite(least)
    if not finite.any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = np.floor(np.log(least[finite] / least[finite].min()) / NEAR_SHARE).astype(np.int64)
    ranks = np.lexsort((np.arange(len(plans)), least, passes, level))
    order = ranks[: max(top, 1)]
    staged = ranks[plans["pp"][ranks] > 1][:1]  # other schedules may do more for it than the estimate knows
    order = np.concatenate([order, staged[~np.isin(staged, order)]])
    return [
        Candidate(
            system=system,
            topology=name,
            plan=plans.plan(int(row)),
            placement=plans.placement(int(row)),
            estimate={one: float(column[row]) for one, column in found.values.items()},
            bound=bound_of(system, pricer, plans.taken(np.array([row]))),
            modes=found.close(int(row), CLOSE_SHARE),
        )
        for row in order
        if finite[row]
    ]


def topology_text(one: Candidate) -> str:
    """Return what a candidate's circuits join, or the name of its topology where there are none."""
    fabric = one.system.fabric
    match fabric:
        case DirectConnect() if fabric.policy is CircuitPolicy.STATIC and one.result is not None:
            return _job_text(fabric, one)
        case DirectConnect():
            return f"{fabric.degree} circuits a node for the axis that asks"
        case OcsRails():
            return f"{fabric.lanes} lanes an accelerator"
        case _:
            return one.topology


def _job_text(fabric: DirectConnect, one: Candidate) -> str:
    """Return strides and matchings of a job's circuits (TotientPerms), and the busiest over its bound."""
    if one.result is None:
        return one.topology
    demand = step_demand(one.result.graph)
    outside = [flows for flows in demand.values() if fabric.scale_up.off_node(flows).any()]
    node_of = fabric.scale_up.node_of(np.arange(fabric.endpoints))
    domains = domain_demands(outside, node_of, fabric.nodes)
    if not domains:
        return "no traffic between nodes"
    (job,) = domains.values()
    found: JobTopology = job_topology(job.groups, job.pairs, degree=fabric.degree)
    strides = sorted({stride for group in found.strides for stride in group})
    rings = f"rings of strides {' '.join(map(str, strides))}" if strides else "no rings"
    text = f"{fabric.degree} circuits a node, {rings}, {found.matched_degree} for pairs"
    if np.isinf(
        found.hops
    ).any():  # one more ring makes all meet (`optical.fabrics.lane_assignment.job_links`)
        return text
    time = job_time(found, job.groups, job.pairs, rate_bytes_per_s=fabric.circuit_bytes_per_s)
    return f"{text}, {time.over_bound:.2f} of its bound"


UNITS = {Objective.TIME: "s", Objective.ENERGY: "J", Objective.COST: "$"}
"""Unit of each objective."""


def _told(one: Candidate, objective: Objective) -> str:
    value = one.value(objective)
    return f"{value:.4g} $" if objective is Objective.COST else format_si(value, UNITS[objective])


def winner_rows(found: Search) -> list[ReportRow]:
    """Return the lines on the best plan."""
    winner = found.winner
    bound = winner.bound
    time_s = winner.value(Objective.TIME)
    error = winner.estimate[Objective.TIME] / time_s - 1.0
    return [
        report_row("plan", (plan_text(winner.plan),), f"least {found.objective}"),
        report_row("placement", (winner.placement,), "nearest first"),
        report_row("topology", (topology_text(winner),), "laid out for this plan"),
        report_row("schedule", (str(winner.plan.schedule.kind),), "of the pipeline"),
        report_row("circuits", (str(winner.mode or "do not move"),), "the best"),
        report_row("step time", (_told(winner, Objective.TIME),), "simulated", section=True),
        report_row("  estimate", (f"{100 * error:+.1f} %",), "of that"),
        report_row("energy of a step", (_told(winner, Objective.ENERGY),), "simulated"),
        report_row("cost of a step", (_told(winner, Objective.COST),), "assumed"),
        report_row("bound", (format_si(bound.step_time_s, "s"),), bound.what, section=True),
        report_row("  compute, any plan", (format_si(bound.compute_s, "s"),), "at the peak"),
        report_row("  memory, this plan", (format_si(bound.memory_s, "s"),), "the optimizer"),
        report_row("  port, this plan", (format_si(bound.port_s, "s"),), "line rate"),
        report_row("step over bound", (f"{time_s / bound.step_time_s:.2f}",), "ratio"),
    ]


def fabric_rows(found: Search) -> dict[str, list[ReportRow]]:
    """Return the lines on the best plans of each topology, the best first."""
    tables: dict[str, list[ReportRow]] = {}
    for one in sorted(found.found, key=lambda each: (each.result is None, each.value(found.objective))):
        shown = _told(one, found.objective) if one.result else "not run"
        note = one.placement if one.result else one.refusal
        label = _short(one)
        tables.setdefault(one.topology, []).append(report_row(label, (shown,), note))
    return tables


def _short(one: Candidate) -> str:
    plan = one.plan
    degrees = " ".join(
        f"{name}{plan.value(name)}" for name in ("tp", "cp", "pp", "dp", "ep", "vpp") if plan.value(name) > 1
    )
    rest = f"zero{plan.sharding.zero} {plan.schedule.kind} recompute {plan.recompute.kind}"
    return f"{degrees} mb{plan.batch.micro_batch} {rest}"


def _ranked(found: Search) -> list[Candidate]:
    return sorted(found.found, key=lambda each: (each.result is None, each.value(found.objective)))


def candidate_row(one: Candidate) -> Row:
    """Return a plan as a flat row: estimated and simulated time, energy and cost, and its bound."""
    row = {key: value for key, value in one.record().items() if key not in ("estimate", "engine")}
    named = {Objective.TIME: "time_s", Objective.ENERGY: "energy_j", Objective.COST: "cost_usd"}
    row |= {f"estimated_{name}": one.estimate[objective] for objective, name in named.items()}
    return row | {
        f"simulated_{name}": one.value(objective) if one.result else None for objective, name in named.items()
    }


DEFAULT_TOP = 3
"""Plans of each topology that the engine runs where nobody says how many."""


def lit_for_all(system: System, config: TransformerConfig) -> System:
    """Return a system whose laser is sized for a model's products on one rank, so that all plans share it."""
    alone = Plan.of(sequence_length=default_sequence_length(config), global_batch=1)
    return lit(system, step_graph(config, alone)) if system.photonic is not None else system


@dataclass(frozen=True, kw_only=True)
class PlanSearch(Study):
    """The best plan, placement and fabric for a model."""

    system: str = option("gpu_packet", SYSTEM)
    workload: Workload = field(default_factory=Workload)
    accelerators: int = option(DEFAULT_ACCELERATORS, "that each plan takes", metavar="N")
    objective: Objective = option(Objective.TIME, "what is least")
    fabrics: tuple[str, ...] = option(
        (), "fabrics to choose from, separated by commas", metavar="NAMES", commas=True
    )
    variants: bool = option(False, "try sides of tori, lanes, circuits of nodes and switches")
    top: int = option(DEFAULT_TOP, "plans that the engine runs of each fabric", metavar="K")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Search:
        """Return the search; what is ranked and run already is kept if it is stopped."""
        asked = self.prepared()
        found = Search(model=asked.config.name, objective=self.objective, unplaced=dict(asked.unplaced))

        def say(label: str, done: int, total: int) -> None:
            if found.found or found.waiting:
                progress.keep(found)
            progress(label, done, total)

        search(
            asked.systems,
            asked.config,
            asked.base,
            found=found,
            choices=asked.choices,
            top=self.top,
            progress=say,
        )
        progress.keep(found)
        _ = found.winner  # an error where no plan runs
        return found

    def prepared(self) -> Prepared:
        """Return what is searched.

        Raises
        ------
        ParameterError
            If a system, fabric or number is wrong.
        WorkloadError
            If the model or the plan cannot be read.
        """
        if self.top < 1:
            msg = f"--top must be at least 1; got {self.top}"
            raise ParameterError(msg)
        config = model_named(self.workload.model)
        sequence = default_sequence_length(config)
        batch = max(1, self.accelerators * TOKENS_PER_ACCELERATOR // sequence)
        base = parse_plan(self.workload.plan, base=Plan.of(sequence_length=sequence, global_batch=batch))
        systems: dict[str, System] = {}
        unplaced: dict[str, str] = {}
        for fabric in self.fabrics:
            check_fabric(fabric)
        for fabric in self.fabrics or ("",):
            try:
                built = lit_for_all(self._built(fabric), config)
                systems |= topologies(built) if self.variants else {fabric or built.fabric.name: built}
            except HeliographError as error:
                if len(self.fabrics) < 2:
                    raise
                unplaced[fabric] = str(error)
        return Prepared(
            systems=systems,
            unplaced=unplaced,
            config=config,
            base=base,
            choices=_pinned(self.workload.plan, base),
        )

    def _built(self, fabric: str) -> System:
        """Return the system on a fabric, or as it is asked for."""
        name, hardware = self.system, self.hardware
        if fabric:
            base, colon, core = name.partition("@")[0].partition(":")
            if base in SYSTEMS:
                light, circuits = SYSTEMS[base].light, fabric == CIRCUITS
                base = next(
                    one for one, kind in SYSTEMS.items() if (kind.light, kind.circuits) == (light, circuits)
                )
                name = base + colon + core
            if fabric != CIRCUITS:
                hardware = dataclasses.replace(hardware, fabric=fabric)
        return hardware.system(name, accelerators=self.accelerators)

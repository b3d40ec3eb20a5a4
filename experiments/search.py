"""The best plan, placement and fabric for a model: all ranked in closed form, the best run by the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from electronic.torus_fabric import TorusFabric
from experiments.search_circuits import under_policy
from experiments.step import StepResult, plan_text, run_step
from experiments.systems import System
from heliograph.bounds import StepBound
from heliograph.errors import HeliographError, WorkloadError
from heliograph.estimate import estimate
from heliograph.interfaces import Fabric
from optical.circuits import CircuitPolicy
from optical.fabrics import OcsRails
from workloads.architecture import TransformerConfig
from workloads.flops import model_flops
from workloads.plan import Parallelism
from workloads.plan_arrays import PlanArrays, broken_rules, divisors, grid
from workloads.plan_costs import PlanPricer
from workloads.plan_memory import memory_bytes

NEAR_SHARE = 0.01
"""Estimates that differ by less than this share are alike: of these the plan with the fewest passes is run
first; below the estimate's own error, a choice."""
LANES = (2, 4, 8)
"""Degrees of optical fabrics that are tried: lanes of an accelerator."""
LEAST_SIDE = 4
"""Shortest side of a torus that is tried, in accelerators: that of a cube (Jouppi et al., ISCA 2023)."""

Progress = Callable[[str, int, int], None]


class Objective(StrEnum):
    """What is to be least."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One plan on one fabric, as estimated and, if it was among the best, as the engine ran it."""

    system: System
    """The hardware."""
    topology: str
    """Fabric and its variant."""
    plan: Parallelism
    """The plan."""
    placement: str
    """Axes from the nearest ranks to the farthest."""
    estimate: Mapping[Objective, float]
    """Estimated step time in s, energy in J and cost in USD."""
    bound: StepBound
    """What the step cannot beat."""
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
            "refusal": self.refusal,
            "bound_s": self.bound.step_time_s,
            "bound_by": self.bound.what,
            "over_bound": self.value(Objective.TIME) / self.bound.step_time_s,
        }


@dataclass(kw_only=True)
class Search:
    """What a search has found so far; grows while it runs, so that an interruption loses nothing finished."""

    model: str
    """The model."""
    objective: Objective
    """What is least."""
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


def topologies(system: System) -> dict[str, System]:
    """Return a system with the variants of its fabric: sides of a torus, lanes of an optical fabric."""
    fabric = system.fabric
    found = {fabric.name: system}
    variants: list[tuple[str, Fabric]] = []
    if isinstance(fabric, OcsRails):
        variants = [
            (f"{fabric.name}, {lanes} lanes", dataclasses.replace(fabric, lanes=lanes))
            for lanes in LANES
            if lanes != fabric.lanes
        ]
    elif isinstance(fabric, TorusFabric):
        variants = [
            (f"{fabric.name} {x} x {y}", dataclasses.replace(fabric, x=x, y=y))
            for x in divisors(fabric.endpoints)
            for y in divisors(fabric.endpoints // x)
            if LEAST_SIDE <= x <= y <= fabric.endpoints // (x * y) and (x, y) != (fabric.x, fabric.y)
        ]
    for name, variant in variants:
        found[name] = dataclasses.replace(system, fabric=variant)
    return found


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
    base: Parallelism,
    *,
    found: Search,
    choices: Mapping[str, tuple[int, ...]] | None = None,
    top: int = 3,
    progress: Progress = lambda *_: None,
) -> None:
    """Rank all plans on all topologies, and run the best of each with the engine.

    Parameters
    ----------
    systems : mapping
        Systems by the name of their topology; all of one accelerator.
    config, base : TransformerConfig, Parallelism
        The model, and what all plans share (batch, sequence length, precision).
    found : Search
        Where results are put, one after the other.
    choices : mapping, optional
        Values of a plan's columns to try, or one to pin it (`workloads.plan_arrays.grid`).
    top : int
        Plans of each topology that the engine runs.
    progress : callable
        Told a label, how much is done, and how much there is.
    """
    some = next(iter(systems.values()))
    plans = grid(base, some.accelerators, config.experts, choices)
    plans, found.rejected = feasible(config, plans, some.node().memory.capacity_bytes)
    pricer = PlanPricer(config, some.node())
    for number, (name, system) in enumerate(systems.items(), start=1):
        if len(plans):
            found.waiting += _best(name, system, pricer, plans, objective=found.objective, top=top)
            found.ranked += len(plans)
        progress("estimated fabrics", number, len(systems))
    many = len(found.waiting)
    while found.waiting:
        one = found.waiting[0]
        found.found.append(_run(one, config))
        found.waiting.pop(0)
        progress("plans run", many - len(found.waiting), many)


def _run(one: Candidate, config: TransformerConfig) -> Candidate:
    try:
        result = run_step(one.system, config, one.plan, placement=one.placement)
    except HeliographError as error:
        return dataclasses.replace(one, refusal=str(error))
    return dataclasses.replace(one, result=result)


def _best(
    name: str, system: System, pricer: PlanPricer, plans: PlanArrays, *, objective: Objective, top: int
) -> list[Candidate]:
    """Return the best plans on one topology, in order."""
    values = estimates(system, pricer, plans)
    least = values[objective]
    finite = np.isfinite(least)
    if not finite.any():
        return []
    passes = plans["pp"].astype(np.int64) * plans.microbatches * plans["vpp"]
    level = np.full(len(plans), np.iinfo(np.int64).max)
    level[finite] = np.floor(np.log(least[finite] / least[finite].min()) / NEAR_SHARE).astype(np.int64)
    order = np.lexsort((np.arange(len(plans)), least, passes, level))[: max(top, 1)]
    return [
        Candidate(
            system=system,
            topology=name,
            plan=plans.plan(int(row)),
            placement=plans.placement(int(row)),
            estimate={one: float(column[row]) for one, column in values.items()},
            bound=bound_of(system, pricer, plans.taken(np.array([row]))),
        )
        for row in order
        if finite[row]
    ]


def estimates(system: System, pricer: PlanPricer, plans: PlanArrays) -> dict[Objective, np.ndarray]:
    """Return the estimated step time in s, energy in J and cost in USD of plans, shape [P] each."""
    costs = pricer.costs(plans, system.fabric)
    fabric = system.fabric
    if isinstance(fabric, OcsRails):
        policies = [system.circuits] if system.circuits else list(CircuitPolicy)
        layers = pricer.config.layers
        variants = [under_policy(costs, plans, fabric, policy, layers) for policy in policies]
    else:
        variants = [costs.arrays]
    with np.errstate(invalid="ignore"):
        time_s = np.min(
            [np.nan_to_num(estimate(one).step_time_s, nan=np.inf, posinf=np.inf) for one in variants], axis=0
        )
        static_w = pricer.node.static_w * system.accelerators + fabric.static_w
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
    port = getattr(getattr(system.fabric, "nic", None), "bandwidth_bytes_per_s", None)
    outside = float(sum(column[0] for column in costs.outside_bytes.values()))
    return StepBound(
        compute_s=model_flops(pricer.config, plan) / (node.peak_flop_per_s * system.accelerators),
        memory_s=pricer.touched_bytes(plans) / node.memory.bandwidth_bytes_per_s,
        port_s=outside / port if port else 0.0,
    )

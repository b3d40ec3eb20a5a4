"""Step time, energy and cost of many plans on one topology in closed form, and what none of them can beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from experiments.circuit_modes import CircuitFabric, CircuitMode, modes, with_mode
from experiments.search_circuits import under_mode
from experiments.systems import System
from heliograph.bounds import StepBound
from heliograph.estimate import StepArrays, estimate
from optical.circuits import CircuitPolicy
from workloads.flops import model_flops
from workloads.plan_arrays import PlanArrays
from workloads.plan_contention import beside_sums
from workloads.plan_costs import PlanCosts, PlanPricer


class Objective(StrEnum):
    """What is to be least."""

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
    if isinstance(fabric, CircuitFabric):
        for mode in tried:
            if mode.policy not in costs_of:
                fixed = with_mode(fabric, CircuitMode(policy=mode.policy))
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
    port = getattr(getattr(system.fabric, "nic", None), "bandwidth_bytes_per_s", None)
    outside = float(sum(column[0] for column in costs.outside_bytes.values()))
    return StepBound(
        compute_s=model_flops(pricer.config, plan) / (node.peak_flop_per_s * system.accelerators),
        memory_s=pricer.touched_bytes(plans) / node.memory.bandwidth_bytes_per_s,
        port_s=outside / port if port else 0.0,
    )

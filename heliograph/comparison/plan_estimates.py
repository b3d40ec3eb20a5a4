"""Closed-form estimates of many plans on one system: time, energy and cost of a step, and its lower bound.

Arrays have shape [P], an entry per plan, unless told otherwise. A *turn* is one reconfiguration of circuits,
during which the ports that move are dark; a *mode* says for which traffic circuits turn, and when
(`heliograph.simulation.CircuitMode`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from heliograph.simulation import CircuitMode, modes
from heliograph.systems.system import System
from simulator.collectives.lines import FreeLines, LinePrices, StandingLines
from simulator.engine.lookahead import short_s
from simulator.errors import ParameterError, WorkloadError
from simulator.fabric import CircuitPolicy, Fabric, PortTiming
from simulator.interfaces import Flows
from simulator.layout import Axis
from simulator.node import Node
from simulator.results import StepBound
from simulator.step_estimate import Order, StepArrays, estimate
from workloads.layers.transformer import model_flops
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Schedule
from workloads.plan.parts import Kept, TensorGrid
from workloads.plan.rules import broken_by_subject
from workloads.search.contention import AXES, beside_sums
from workloads.search.costs import PlanCosts, PlanPricer
from workloads.search.plans import SAME, PlanArrays, broken_rules, memory_bytes, nearest_ranks


def under_mode(
    costs: PlanCosts, plans: PlanArrays, fabric: Fabric, mode: CircuitMode, layers: int
) -> StepArrays:
    """Return the durations of steps with the turns of a circuit mode added.

    Parameters
    ----------
    costs : PlanCosts
        Durations with every collective priced as if all circuits were laid for its own axis.
    plans : PlanArrays
        The plans.
    fabric : Fabric
        Circuit switches.
    mode : CircuitMode
        Traffic that circuits turn to, and whether they turn ahead of it.
    layers : int
        Blocks (layers) of the model.

    Notes
    -----
    *Static*: circuits stand as laid for all traffic of a step; nothing is added.

    *Per axis*: circuits turn between the gathers, the passes and the sums of a step; around the gathers, sums
    and sends of every microbatch, where these take ports from an axis inside the passes; and inside a block
    as often as its axes take ports from each other (`workloads.search.circuits.PlanTurns`). Traffic that
    standing circuits connect turns nothing, and is slower as it has fewer of them. Ports serve sends before
    sums of gradients, which can wait. A turn takes as long as the slowest of the ports that it moves.

    Where experts' exchanges leave the nodes, the turns of a stage come from playing its collectives in order
    on the fabric (`workloads.search.circuits.StageReplay`), none hidden: those of each microbatch, and those
    of the first one on its way through the other stages.

    *Per layer*: circuits turn also between two blocks of a pass whose exchanges between experts differ. Turns
    inside a pass lengthen it, and with it the filling and emptying of the pipeline.

    *Ahead* (prefetched): a turn around a microbatch's traffic hides behind the work between two such turns,
    ``max(0, turn - work)`` (Opus, arXiv:2507.08119), unless passes turn circuits for traffic of their own.
    Turns between blocks hide behind all work but the experts'. Those of a step do not hide.
    """
    if mode.policy is CircuitPolicy.STATIC:
        return costs.arrays
    turns, arrays, users = costs.turns, costs.arrays, _circuit_users(costs, fabric, mode)
    dark_s = fabric.traits.reconfiguration_s
    played = turns.stages.turns(dark_s)
    stage_lanes = fabric.endpoints / plans["pp"] * (fabric.traits.endpoint_lanes or 1)
    turn_s = _turn_s(fabric, np.where(played.known, played.ports, stage_lanes))
    sums_last = _sums_wait(costs, plans, users, dark_s)
    # The first microbatch turns circuits on every stage; the stages after it wait for the turns of one.
    hops = np.where(arrays.order == Order.BOTH_WAYS, plans["pp"] / 2, plans["pp"] - 1) / arrays.chunks
    first = hops * played.first_bare - np.where(
        (plans["pp"] > 1) & (arrays.chunks == 1), played.next_bare, 0.0
    )
    once = np.where(played.known, played.per_step + first, _turns_per_step(costs, plans, users))
    each = np.where(
        played.known, played.per_microbatch, _turns_per_microbatch(costs, plans, users, sums_last)
    )
    blocks = np.ceil(layers / plans["pp"])
    inside_blocks = np.where(played.known, 0.0, blocks * turns.block)
    by_layer = mode.policy is CircuitPolicy.PER_LAYER and plans.base.experts.expert_patterns > 1
    between_blocks = np.where(users.turning["ep"] & by_layer, 2.0 * (blocks - 1.0), 0.0)
    if dark_s > 0.0:
        each = each * _exposed_share(costs, mode, users, each, dark_s)
        if mode.turning is PortTiming.PREFETCHED:
            hiding_s = _work_s(costs) - costs.between_exchanges_s
            between_blocks = between_blocks * _unhidden_share(hiding_s, between_blocks, dark_s)
    # Longer passes of a microbatch, forward and backward, on the first, fullest and last stage: [P, 3, 2].
    # The slack of a pass that waits for kernel launches absorbs as much of it.
    per_block_s = _standing_delay_s(costs) + turn_s[:, None] * played.block
    per_pass_s = 0.5 * turn_s * (inside_blocks + between_blocks)
    longer_s = per_pass_s[:, None, None] + costs.beside.blocks[:, :, None] * per_block_s[:, None, :]
    added_s = np.maximum(0.0, longer_s - arrays.slack_s)
    stages = (costs.beside.layers / np.maximum(costs.beside.blocks[:, 1], 1.0))[:, None]
    return replace(
        arrays,
        forward_s=arrays.forward_s + added_s[:, :, 0],
        inputs_s=arrays.inputs_s + added_s[:, :, 1],
        whole_s=arrays.whole_s + np.column_stack([added_s[:, 1] * stages, np.zeros(len(plans))]),
        slack_s=np.maximum(0.0, arrays.slack_s - longer_s),
        gather_s=arrays.gather_s * played.sums_slowdown[:, None],
        sum_s=arrays.sum_s * played.sums_slowdown[:, None],
        reconfiguration_s=turn_s,
        changes_each=each,
        changes_once=once.astype(float),
        sums_last=(sums_last | played.sums_wait) & (arrays.gathers == 0),
    )


@dataclass(frozen=True, kw_only=True)
class _CircuitUsers:
    """Axes that circuits turn to, and where one takes ports from another; booleans of shape [P]."""

    turning: Mapping[str, np.ndarray]
    """Whether circuits turn to the traffic of each axis, by its name."""
    tensor_or_experts: np.ndarray
    """Whether they turn to tensor ranks or experts."""
    inside: np.ndarray
    """Whether they turn to any axis inside the passes: those two or context ranks."""
    sums: np.ndarray
    """Whether sums of gradients take ports from other axes."""
    sends: np.ndarray
    """Whether sends between stages take ports from an axis inside the passes."""


def _circuit_users(costs: PlanCosts, fabric: Fabric, mode: CircuitMode) -> _CircuitUsers:
    turning = {
        axis: (moved > 0) & _turns_to(fabric, mode, axis) for axis, moved in costs.outside_bytes.items()
    }
    tensor_or_experts = turning["tp"] | turning["ep"]
    inside = tensor_or_experts | turning["cp"]
    clashes = costs.turns.clashes
    return _CircuitUsers(
        turning=turning,
        tensor_or_experts=tensor_or_experts,
        inside=inside,
        sums=turning["dpcp"] & np.where(inside, clashes["dpcp"], turning["pp"]),
        sends=inside & turning["pp"] & clashes["pp"],
    )


def _turns_per_step(costs: PlanCosts, plans: PlanArrays, users: _CircuitUsers) -> np.ndarray:
    """Return the turns of a step between its gathers, passes and sums."""
    sharded = plans["zero"] > 0
    sums_turn = users.sums | (users.turning["dpcp"] & users.sends)
    turns = np.where(sums_turn, np.where(sharded, 2, 1), 0)
    only_sends = users.sums & users.turning["pp"] & ~users.inside
    per_step: np.ndarray = np.where(only_sends, _turns_of_sends(costs, sharded), turns) + users.sends
    return per_step


def _sums_wait(costs: PlanCosts, plans: PlanArrays, users: _CircuitUsers, dark_s: float) -> np.ndarray:
    """Return whether the sums of gradients wait until a stage has no sends and ring exchanges any more.

    Ports stay with these, which are needed sooner, unless gathers turn to the sums' circuits anyway, passes
    turn ports away from the sends, or some stages send within nodes.
    """
    clashes, turning = costs.turns.clashes, users.turning
    sends_stay = (costs.crossing == 1.0) & turning["pp"] & ~(users.tensor_or_experts & clashes["pp"])
    waits = turning["dpcp"] & (sends_stay | (turning["cp"] & ~users.tensor_or_experts))
    # With two stages, circuits of traffic inside the passes may carry the sums, too. With more, a send finds
    # both of its ends free only after the sums: that sums wait for sends is nearer to what the engine does.
    waits &= (users.sums | turning["pp"]) & (~users.inside | clashes["dpcp"] | (plans["pp"] > 2))
    # Ports do not leave a pass's exchanges for a sum whose pieces are too short.
    piece_s = costs.arrays.sum_s.max(axis=1) / (costs.arrays.pieces * costs.arrays.chunks)
    waits |= users.inside & users.sums & (piece_s < short_s(dark_s))
    return waits


def _turns_per_microbatch(
    costs: PlanCosts, plans: PlanArrays, users: _CircuitUsers, sums_last: np.ndarray
) -> np.ndarray:
    """Return the turns of a microbatch around its gathers, sums and sends."""
    arrays = costs.arrays
    passes = np.where(sums_last, arrays.gathers, np.maximum(arrays.gathers, arrays.sums_each))
    pieces = np.where(users.inside & arrays.sums_each, arrays.pieces, 1)
    around_sums: np.ndarray = np.where(users.sums, 2 * passes * arrays.chunks * pieces, 0)
    return around_sums + np.where(users.sends, 4 * plans["vpp"], 0)


def _exposed_share(
    costs: PlanCosts, mode: CircuitMode, users: _CircuitUsers, each: np.ndarray, dark_s: float
) -> np.ndarray:
    """Return the share of a microbatch's turns, `each` in number, that no work hides; 1 at most."""
    unhidden = _unhidden_share(_work_s(costs), each, dark_s)
    if mode.turning is PortTiming.PREFETCHED:
        return np.where(users.tensor_or_experts, 1.0, unhidden)
    # Turned on request: a gather asks one piece ahead, so that work hides the turn to it. The turn back, for
    # the ring of context ranks, is asked for when the ring needs it. They are half of the turns each.
    ahead = users.turning["cp"] & ~users.tensor_or_experts & (costs.arrays.gathers > 0)
    return np.where(ahead, 0.5 + 0.5 * unhidden, 1.0)


def _work_s(costs: PlanCosts) -> np.ndarray:
    """Return the work of a microbatch on the fullest stage, its passes without waiting for traffic."""
    arrays = costs.arrays
    return arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1] - costs.waited_s


def _unhidden_share(work_s: np.ndarray, turns: np.ndarray, dark_s: float) -> np.ndarray:
    """Return the share of a turn's time that is left when the work is spread evenly between the turns."""
    return np.clip(1.0 - work_s / np.maximum(turns, 1.0) / dark_s, 0.0, 1.0)


def _standing_delay_s(costs: PlanCosts) -> np.ndarray:
    """Return what a block's traffic takes longer on standing circuits than on its own, shape [P, 2].

    The two columns are forward and backward. The ring of context ranks delays only beyond the work behind
    which it hides.
    """
    beside, slowdown = costs.beside, costs.turns.slowdown
    carried = np.isfinite(costs.waited_s)[:, None]
    delay_s = sum(np.where(carried, beside.waited_s[axis], 0.0) * (slowdown[axis] - 1.0) for axis in AXES)
    delay_s = delay_s + np.maximum(0.0, beside.ring_s * slowdown["cp"] - beside.ring_work_s)
    longer_s: np.ndarray = delay_s - np.maximum(0.0, beside.ring_s - beside.ring_work_s)
    return longer_s


def _turns_of_sends(costs: PlanCosts, sharded: np.ndarray) -> np.ndarray:
    """Return the turns of a step where only sends and the gathers and sums of a step need circuits.

    They are counted as the engine makes them. Gathers (of sharded optimizers) leave circuits of their own:
    each stage that sends to another node turns them when the first microbatch arrives, the last stage when
    it sends back. Sums turn in two rounds, since a turn needs the neighbours' ports, too. In a pipeline of
    both directions (DualPipe) the sums of one copy turn while sends of the other still come: five rounds in
    place of the second, as counted on the engine.
    """
    arrays = costs.arrays
    copies = (arrays.order == Order.BOTH_WAYS) & ~arrays.sums_each
    sums = 1.0 + np.where(copies, 5.0, 1.0) * costs.crossing
    return np.where(sharded, costs.crossing * (arrays.stages - 1) + 1.0, 0.0) + sums


def _turn_s(fabric: Fabric, ports: np.ndarray) -> np.ndarray:
    """Return the time of a turn that moves these numbers of ports at once, until the last carries light."""
    counts, index = np.unique(np.rint(ports).astype(int), return_inverse=True)
    return np.array([fabric.lane_turn_s(int(count)) for count in counts])[index.ravel()]


def _turns_to(fabric: Fabric, mode: CircuitMode, axis: str) -> bool:
    """Return whether circuits ever turn to the traffic of an axis between nodes."""
    flows = Flows(
        sources=np.array([0]), destinations=np.array([fabric.endpoints - 1]), size_bytes=1.0, axis=axis
    )
    return fabric.with_policy(mode.policy, mode.turning).turns_for(flows)


class Objective(StrEnum):
    """Quantity of a step that a search minimises."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"

    @property
    def column(self) -> str:
        """Column of records that holds it: step time in s, energy in J or cost in USD."""
        return _COLUMNS[self]

    def check_told(self, fabric: Fabric) -> None:
        """Refuse a fabric without the numbers that the objective needs; a drawn graph may lack them.

        Raises
        ------
        ParameterError
            If no part of it has power, for the least energy, or a price, for the least cost.
        """
        needed = {Objective.ENERGY: ("w_each", "static_w"), Objective.COST: ("usd_each", "price_usd")}
        number, attribute = needed.get(self, ("", ""))
        parts = fabric.bill().values()
        if number and parts and all(number in part.untold for part in parts):
            msg = (
                f"{fabric.name}: no part has '{attribute}', so that the least {self} cannot be told; give it "
                "to nodes or edges of the file"
            )
            raise ParameterError(msg)


_COLUMNS: Mapping[Objective, str] = MappingProxyType(
    {Objective.TIME: "step_time_s", Objective.ENERGY: "energy_j", Objective.COST: "cost_usd"}
)


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Estimated steps of P plans on one topology."""

    values: Mapping[Objective, np.ndarray]
    """Time in s, energy in J and cost in USD with each plan's fastest circuit mode, shape [P] each."""
    modes: tuple[CircuitMode, ...]
    """Circuit modes that were tried, M of them; none where circuits do not move."""
    mode_time_s: np.ndarray
    """Step time in each mode, shape [M, P], or [1, P] without modes; infinite where a plan was not tried."""

    def close(self, row: int, share: float) -> tuple[CircuitMode, ...]:
        """Return the modes in which a plan takes at most this share longer than in its fastest one."""
        times_s = self.mode_time_s[:, row]
        return tuple(
            mode
            for mode, time_s in zip(self.modes, times_s, strict=False)
            if np.isfinite(time_s) and time_s <= times_s.min() * (1.0 + share)
        )


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Objective of a search and the best value that it has reached."""

    objective: Objective
    """Quantity to minimise."""
    best: float
    """Least value so far, in the objective's unit."""


class Prices:
    """Cache of prices that systems share: of collectives on a fabric, of work on an accelerator."""

    def __init__(self) -> None:
        self._collectives: list[LinePrices] = []
        self._pricers: list[PlanPricer] = []

    def pricer(self, config: TransformerConfig, node: Node) -> PlanPricer:
        """Return the prices of a model's work on an accelerator."""
        for pricer in self._pricers:
            if pricer.node == node and pricer.config == config:
                return pricer
        self._pricers.append(PlanPricer(config, node))
        return self._pricers[-1]

    def of(self, fabric: Fabric) -> LinePrices:
        """Return the prices of collectives on a fabric.

        Static circuits are laid for all traffic of a step; others serve the axis that is priced alone.
        """
        for prices in self._collectives:
            if prices.fabric == fabric:
                return prices
        static = fabric.traits.policy is CircuitPolicy.STATIC
        self._collectives.append(StandingLines(fabric) if static else LinePrices(fabric))
        return self._collectives[-1]


def estimates(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    *,
    prices: Prices | None = None,
    ways: tuple[CircuitMode, ...] | None = None,
    aim: Aim | None = None,
) -> Estimates:
    """Return the estimated steps of plans.

    Parameters
    ----------
    system : System
        The hardware; a circuit policy that it names is the only one tried.
    pricer : PlanPricer
        Prices of the plans' work.
    plans : PlanArrays
        Plans that break no rule.
    prices : Prices, optional
        Cache of priced collectives.
    ways : tuple of CircuitMode, optional
        Circuit modes to try; all of the fabric by default.
    aim : Aim, optional
        Objective and best value of a search. Laying standing circuits takes the most time; with an aim it is
        done only for plans that may be the best, and all others have an infinite time in the static mode.

    Notes
    -----
    A fabric may have several forms for a plan, by the number of its nearest ranks (`Fabric.laid_for`); each
    plan takes the form on which it is fastest.
    """
    prices = prices or Prices()
    tried = modes(system.fabric, system.circuits, plans.base) if ways is None else ways
    nearest = nearest_ranks(plans)
    forms = {int(ranks): system.fabric.laid_for((int(ranks),)) for ranks in np.unique(nearest)}
    if all(len(fabrics) == 1 for fabrics in forms.values()):
        return _on_one_form(system, pricer, plans, prices=prices, tried=tried, aim=aim)
    values = {objective: np.empty(len(plans)) for objective in Objective}
    mode_time_s = np.empty((max(1, len(tried)), len(plans)))
    for ranks, fabrics in forms.items():
        rows = np.flatnonzero(nearest == ranks)
        by_form = [
            _on_one_form(
                replace(system, fabric=fabric), pricer, plans.taken(rows), prices=prices, tried=tried, aim=aim
            )
            for fabric in fabrics
        ]
        best = np.argmin([form.values[Objective.TIME] for form in by_form], axis=0)
        index = np.arange(len(rows))
        for objective, column in values.items():
            column[rows] = np.stack([form.values[objective] for form in by_form])[best, index]
        mode_time_s[:, rows] = np.stack([form.mode_time_s for form in by_form])[best, :, index].T
    return Estimates(values=values, modes=tried, mode_time_s=mode_time_s)


def _on_one_form(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    *,
    prices: Prices,
    tried: tuple[CircuitMode, ...],
    aim: Aim | None,
) -> Estimates:
    """Return the estimated steps of plans on the system's fabric in its present form."""
    if not tried:
        costs = pricer.costs(plans, prices.of(system.fabric))
        time_s = _step_s(costs, costs.arrays)
        values = _step_values(system, pricer, costs.energy_j, time_s)
        return Estimates(values=values, modes=tried, mode_time_s=time_s[None])
    mode_time_s = np.full((len(tried), len(plans)), np.inf)
    energy_j = np.full((len(tried), len(plans)), np.inf)
    rows = {mode: row for row, mode in enumerate(tried)}
    costs_of: dict[CircuitPolicy, PlanCosts] = {}
    for mode, row in rows.items():
        if mode.policy is CircuitPolicy.STATIC:
            continue
        if mode.policy not in costs_of:
            costs_of[mode.policy] = pricer.costs(plans, prices.of(_on_request(system.fabric, mode.policy)))
        costs = costs_of[mode.policy]
        mode_time_s[row] = _step_s(costs, under_mode(costs, plans, system.fabric, mode, pricer.config.blocks))
        energy_j[row] = costs.energy_j
    static = rows.get(CircuitMode(policy=CircuitPolicy.STATIC))
    if static is not None:
        if aim is not None:
            with np.errstate(invalid="ignore"):
                turning = _step_values(system, pricer, energy_j, mode_time_s)[aim.objective]
            aim = replace(aim, best=min(aim.best, float(turning.min())))
        mode_time_s[static], energy_j[static] = _static_steps(system, pricer, plans, prices, aim)
    best = mode_time_s.argmin(axis=0), np.arange(len(plans))
    return Estimates(
        values=_step_values(system, pricer, energy_j[best], mode_time_s[best]),
        modes=tried,
        mode_time_s=mode_time_s,
    )


def _on_request(fabric: Fabric, policy: CircuitPolicy) -> Fabric:
    """Return a fabric under a policy whose circuits turn when traffic asks for them."""
    return fabric.with_policy(policy, PortTiming.ON_REQUEST)


FIRST_LAID = 32
"""Plans for which standing circuits are laid first; each further batch is twice the last one, a choice."""


def _static_steps(
    system: System, pricer: PlanPricer, plans: PlanArrays, prices: Prices, aim: Aim | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return time in s and dynamic energy in J of steps on standing circuits, shape [P] each.

    Laying circuits for each plan's own traffic is what takes time. With an aim, a lower bound of each plan is
    its value with all circuits on the axis that is served; plans are laid in the order of that bound, until
    it exceeds the best value.
    """
    static = prices.of(_on_request(system.fabric, CircuitPolicy.STATIC))
    if aim is None:
        costs = pricer.costs(plans, static)
        return _step_s(costs, costs.arrays), costs.energy_j
    time_s, energy_j = np.full((2, len(plans)), np.inf)
    served = pricer.costs(plans, prices.of(_on_request(system.fabric, CircuitPolicy.PER_AXIS)))
    least = _step_values(system, pricer, served.energy_j, _step_s(served, served.arrays))[aim.objective]
    best = aim.best
    order = np.argsort(least, kind="stable")
    done, count = 0, FIRST_LAID
    while done < len(order):
        rows = order[done : done + count]
        rows = rows[least[rows] <= best * (1.0 + ROOM)]
        if not len(rows):
            break
        costs = pricer.costs(plans.taken(rows), static)
        time_s[rows], energy_j[rows] = _step_s(costs, costs.arrays), costs.energy_j
        reached = _step_values(system, pricer, energy_j[rows], time_s[rows])[aim.objective]
        best = min(best, float(reached.min()))
        done, count = done + count, 2 * count
    return time_s, energy_j


def turning_times_s(
    system: System, pricer: PlanPricer, plans: PlanArrays, fabrics: Sequence[Fabric], prices: Prices
) -> np.ndarray:
    """Return step times of plans whose circuits turn per axis, on each of F fabrics, shape [F, P].

    Parameters
    ----------
    system, pricer, plans, prices : System, PlanPricer, PlanArrays, Prices
        As `estimates` takes them.
    fabrics : sequence of Fabric
        The system's fabric with other reconfiguration times; collectives are priced once for all of them.
    """
    mode = CircuitMode(policy=CircuitPolicy.PER_AXIS)
    costs = pricer.costs(plans, prices.of(system.fabric.with_policy(mode.policy, mode.turning)))
    layers = pricer.config.blocks
    return np.stack([_step_s(costs, under_mode(costs, plans, fabric, mode, layers)) for fabric in fabrics])


def least_values(system: System, pricer: PlanPricer, plans: PlanArrays) -> Mapping[Objective, np.ndarray]:
    """Return lower bounds of `estimates`: time, energy and cost of steps whose traffic takes no time.

    Parameters
    ----------
    system, pricer, plans : System, PlanPricer, PlanArrays
        As `estimates` takes them.
    """
    costs = pricer.without_traffic(plans, system.fabric)
    return _step_values(system, pricer, costs.energy_j, _step_s(costs, costs.arrays))


FIRST_PRICED = 256
"""Plans that are priced first; each further batch is twice the last one, a choice."""
ROOM = 0.03
"""Share by which a plan's lower bound may exceed the best estimate and the plan still be priced; a choice,
larger than the share within which estimates count as alike."""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """Plans that may be the best of a system, and their estimates."""

    plans: PlanArrays
    """The plans; of every other the lower bound exceeds the best estimate of these."""
    found: Estimates
    """Their estimates."""


def price_best(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    objective: Objective,
    *,
    prices: Prices | None = None,
    ways: tuple[CircuitMode, ...] | None = None,
) -> Priced:
    """Return the estimates of all plans that can be the best or within `ROOM` of it.

    Parameters
    ----------
    system, pricer, plans, prices, ways
        As `estimates` takes them.
    objective : Objective
        Quantity to minimise.

    Notes
    -----
    Branch and bound: plans are priced in batches in the order of `least_values`, until that lower bound
    exceeds the best estimate.
    """
    prices = prices or Prices()
    least = least_values(system, pricer, plans)[objective]
    order = np.argsort(least, kind="stable")
    priced: list[np.ndarray] = []
    batches: list[Estimates] = []
    best, done, count = np.inf, 0, FIRST_PRICED
    while done < len(order):
        rows = order[done : done + count]
        rows = rows[least[rows] <= best * (1.0 + ROOM)]
        if not len(rows):
            break
        aim = Aim(objective=objective, best=best)
        batches.append(estimates(system, pricer, plans.taken(rows), prices=prices, ways=ways, aim=aim))
        priced.append(rows)
        best = min(best, float(batches[-1].values[objective].min()))
        done, count = done + count, 2 * count
    return Priced(
        plans=plans.taken(np.concatenate(priced)),
        found=Estimates(
            values={one: np.concatenate([batch.values[one] for batch in batches]) for one in Objective},
            modes=batches[0].modes,
            mode_time_s=np.concatenate([batch.mode_time_s for batch in batches], axis=1),
        ),
    )


def _step_s(costs: PlanCosts, arrays: StepArrays) -> np.ndarray:
    """Return step times from durations; infinite where the fabric cannot carry a plan's traffic.

    With delayed gradients no step waits for its gathers and sums; they run beside another step, and only
    bound the time from step to step.
    """
    moved_s = (arrays.gather_s + arrays.sum_s).max(axis=1)
    if costs.delayed:
        arrays = replace(arrays, gather_s=np.zeros_like(arrays.gather_s), sum_s=np.zeros_like(arrays.sum_s))
    with np.errstate(invalid="ignore"):
        time_s = estimate(beside_sums(arrays, costs.beside)).step_time_s
        time_s = np.maximum(time_s, moved_s) if costs.delayed else time_s
    return np.nan_to_num(time_s, nan=np.inf, posinf=np.inf)


def _step_values(
    system: System, pricer: PlanPricer, dynamic_j: np.ndarray, time_s: np.ndarray
) -> dict[Objective, np.ndarray]:
    """Return time in s, energy in J and cost in USD of steps, in the shape of the given arrays.

    Static power draws over the whole step; capital is written off in proportion to its time.
    """
    node = pricer.node
    static_w = node.static_w * node.at_mains * system.accelerators + system.fabric.static_w
    with np.errstate(invalid="ignore"):
        energy_j = np.where(np.isfinite(time_s), dynamic_j + static_w * time_s, np.inf)
    capital_usd = system.capital_usd()
    per_second = system.economics.step_usd(capital_usd=capital_usd, step_time_s=1.0, energy_j=0.0)
    per_joule = system.economics.step_usd(capital_usd=0.0, step_time_s=0.0, energy_j=1.0)
    cost_usd = time_s * sum(per_second.values()) + energy_j * sum(per_joule.values())
    return {Objective.TIME: time_s, Objective.ENERGY: energy_j, Objective.COST: cost_usd}


def bound_of(system: System, pricer: PlanPricer, row: PlanArrays) -> StepBound:
    """Return the lower bounds of the step of a plan, the only row of `row`: arithmetic, memory and ports.

    Traffic of gradients to parameter servers is left out, as a server may stand on the rank itself.
    """
    moved = pricer.costs(row, FreeLines(system.fabric)).outside_bytes
    plan, node = row.plan(0), pricer.node
    served = plan.traffic.uses_servers
    outside = sum(float(sent[0]) for axis, sent in moved.items() if not (served and axis == Axis.GRADIENT))
    port = system.fabric.traits.card_bytes_per_s
    return StepBound(
        compute_s=model_flops(pricer.config, plan.share) / (node.peak_flop_per_s * system.accelerators),
        memory_s=pricer.touched_bytes(plan) / node.memory.bandwidth_bytes_per_s,
        port_s=outside / port if port else 0.0,
    )


def feasible(
    config: TransformerConfig, plans: PlanArrays, capacity_bytes: float, schedule: Schedule | None = None
) -> tuple[PlanArrays, dict[str, int]]:
    """Return the plans that break no rule and fit the memory, and the number of others by their first fault.

    Parameters
    ----------
    config, plans : TransformerConfig, PlanArrays
        The model, and the plans.
    capacity_bytes : float
        Memory of an accelerator.
    schedule : Schedule, optional
        Schedule that plans run with where it has no closed form, so that another stands for it in `plans`.
        Its rules hold as well, and plans need several stages.

    Raises
    ------
    WorkloadError
        If the model or the plans have a feature that the estimates do not know.
    """
    base = plans.base
    unknown = {
        f"neighbours that {config.name} retrieves": config.retrieval is not None,
        f"kept_activations={base.precision.kept_activations}": base.precision.kept_activations is Kept.HOST,
        f"tensor_grid={base.axes.tensor_grid}": base.axes.tensor_grid is not TensorGrid.LINE,
    }
    for feature, used in unknown.items():
        if used:
            msg = f"a search does not estimate {feature}; name a plan instead"
            raise WorkloadError(msg)
    counts: dict[str, int] = {}
    left = np.ones(len(plans), dtype=bool)
    rules = [*broken_rules(config, plans).items()]
    if schedule is not None:
        rules.append((SAME, plans["pp"] == 1))
        rules += broken_by_subject(config, plans.array_plan.with_(schedule=schedule), len(plans)).items()
    for reason, broken in rules:
        counts[reason] = counts.get(reason, 0) + int((left & broken).sum())
        left &= ~broken
    kept = plans.taken(left)
    if len(kept):
        fits = memory_bytes(config, kept) <= capacity_bytes
        counts["more memory than there is"] = int((~fits).sum())
        kept = kept.taken(fits)
    return kept, counts

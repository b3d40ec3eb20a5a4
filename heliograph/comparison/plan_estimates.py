"""Many plans on one system in closed form: time, energy and cost of each, and what no run of one can beat."""

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
from simulator.errors import ParameterError, WorkloadError, nearest
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
    *Static*: as laid for all traffic of a step.
    *Per axis*: a change between the gathers, the passes and the sums of a step, around the traffic of every
    microbatch (of every piece of the parameters, where an axis inside the passes leaves the node, too), and
    in every block as often as its axes take circuits from each other (`circuits.PlanTurns`).
    What standing circuits carry turns nothing, and is as much slower as they have other peers. Ports serve
    sends before gradients' sums, which have time. Where exchanges between experts leave the nodes, the turns
    of a stage are those of its collectives played in order on the fabric
    (`circuits.StageReplay`), none hidden: m times those of a microbatch, and those of one
    alone on its way through the other stages. A turn takes as long as the slowest of the ports that it moves.
    *Per layer*: a further change between any two blocks of a pass whose exchanges differ. Those between axes
    or blocks of a pass make it longer, and thus what fills and empties the pipeline, too.
    *Ahead*: a change around a microbatch's traffic hides behind the work between two of them,
    ``max(0, delta - work)`` (Opus, arXiv:2507.08119), unless passes turn circuits for traffic of their own;
    one between blocks behind what is no expert's work; those of a step do not.
    """
    if mode.policy is CircuitPolicy.STATIC:
        return costs.arrays
    turns, arrays, meets = costs.turns, costs.arrays, _meetings(costs, fabric, mode)
    dark_s = fabric.traits.reconfiguration_s
    played = turns.stages.turns(dark_s)
    lanes = fabric.endpoints / plans["pp"] * (fabric.traits.endpoint_lanes or 1)
    turn_s = _turn_s(fabric, np.where(played.known, played.ports, lanes))
    waits = _sums_wait(costs, plans, meets, dark_s)
    # A microbatch alone passes through all stages, those that follow wait for the turns of one.
    hops = np.where(arrays.order == Order.BOTH_WAYS, plans["pp"] / 2, plans["pp"] - 1) / arrays.chunks
    alone = hops * played.first_bare - np.where(
        (plans["pp"] > 1) & (arrays.chunks == 1), played.next_bare, 0.0
    )
    once = np.where(played.known, played.per_step + alone, _turns_once(costs, plans, meets))
    each = np.where(played.known, played.per_microbatch, _turns_each(costs, plans, meets, waits))
    blocks = np.ceil(layers / plans["pp"])
    inner = np.where(played.known, 0.0, blocks * turns.block)
    by_layer = mode.policy is CircuitPolicy.PER_LAYER and plans.base.experts.expert_patterns > 1
    between = np.where(meets.leaves["ep"] & by_layer, 2.0 * (blocks - 1.0), 0.0)
    if dark_s > 0.0:
        seen, between_seen = _seen_shares(costs, mode, meets, each=each, between=between, dark_s=dark_s)
        each, between = each * seen, between * between_seen
    # Of a microbatch, forward and backward: its turns, and what it waits longer over what stands.
    beside = costs.beside
    later_s = _later_s(costs) + turn_s[:, None] * played.block
    dark_P11 = 0.5 * (turn_s * (inner + between))[:, None, None]
    # A pass that waits for its launches anyway has as much less to wait for them.
    longer_s = dark_P11 + beside.blocks[:, :, None] * later_s[:, None, :]
    shown_s = np.maximum(0.0, longer_s - arrays.slack_s)
    share = (beside.layers / np.maximum(beside.blocks[:, 1], 1.0))[:, None]
    return replace(
        arrays,
        forward_s=arrays.forward_s + shown_s[:, :, 0],
        inputs_s=arrays.inputs_s + shown_s[:, :, 1],
        whole_s=arrays.whole_s + np.column_stack([shown_s[:, 1] * share, np.zeros(len(plans))]),
        slack_s=np.maximum(0.0, arrays.slack_s - longer_s),
        gather_s=arrays.gather_s * played.sums_slowdown[:, None],
        sum_s=arrays.sum_s * played.sums_slowdown[:, None],
        reconfiguration_s=turn_s,
        changes_each=each,
        changes_once=once.astype(float),
        sums_last=(waits | played.sums_wait) & (arrays.gathers == 0),
    )


@dataclass(frozen=True, kw_only=True)
class _Meetings:
    """Axes that turn circuits, and where they take them from each other; arrays of shape [P]."""

    leaves: Mapping[str, np.ndarray]
    """Whether circuits turn to the traffic of each axis."""
    in_passes: np.ndarray
    """Whether tensor ranks or experts leave the nodes."""
    inside: np.ndarray
    """Whether these or context ranks do: any axis inside the passes."""
    sums: np.ndarray
    """Whether sums of gradients take circuits from other axes."""
    sends: np.ndarray
    """Whether sends between stages take circuits from an axis inside the passes."""


def _meetings(costs: PlanCosts, fabric: Fabric, mode: CircuitMode) -> _Meetings:
    """Return which axes turn circuits, and where they meet."""
    leaves = {
        axis: (moved > 0) & _turns_to(fabric, mode, axis) for axis, moved in costs.outside_bytes.items()
    }
    in_passes = leaves["tp"] | leaves["ep"]
    inside = in_passes | leaves["cp"]
    clashes = costs.turns.clashes
    return _Meetings(
        leaves=leaves,
        in_passes=in_passes,
        inside=inside,
        sums=leaves["dpcp"] & np.where(inside, clashes["dpcp"], leaves["pp"]),
        sends=inside & leaves["pp"] & clashes["pp"],
    )


def _turns_once(costs: PlanCosts, plans: PlanArrays, meets: _Meetings) -> np.ndarray:
    """Return the turns of a step between its gathers, passes and sums, shape [P]."""
    leaves, zero = meets.leaves, plans["zero"]
    once = np.where(meets.sums | (leaves["dpcp"] & meets.sends), np.where(zero > 0, 2, 1), 0)
    sends_alone = meets.sums & leaves["pp"] & ~meets.inside
    found: np.ndarray = np.where(sends_alone, _turns_of_sends(costs, zero), once) + meets.sends
    return found


def _sums_wait(costs: PlanCosts, plans: PlanArrays, meets: _Meetings, dark_s: float) -> np.ndarray:
    """Return whether sums of gradients wait for all sends and rings, shape [P].

    Ports stay for these, which are needed sooner, unless gathers turn to the sums' circuits anyway, passes
    turn them away from the sends, or some stages send within nodes.
    """
    clashes, leaves = costs.turns.clashes, meets.leaves
    sends_stay = (costs.crossing == 1.0) & leaves["pp"] & ~(meets.in_passes & clashes["pp"])
    waits = leaves["dpcp"] & (sends_stay | (leaves["cp"] & ~meets.in_passes))
    # Of two stages, what stands for traffic inside passes may carry sums, too. With more, sends find both
    # ends at rest only where sums have ended: that these wait for sends is nearer to what the engine does.
    waits &= (meets.sums | leaves["pp"]) & (~meets.inside | clashes["dpcp"] | (plans["pp"] > 2))
    found: np.ndarray = waits | (meets.inside & meets.sums & _soon_summed(costs.arrays, dark_s))
    return found


def _turns_each(costs: PlanCosts, plans: PlanArrays, meets: _Meetings, waits: np.ndarray) -> np.ndarray:
    """Return the turns of a microbatch around its gathers, sums and sends, shape [P]."""
    arrays = costs.arrays
    passes = np.where(waits, arrays.gathers, np.maximum(arrays.gathers, arrays.sums_each))
    pieces = np.where(meets.inside & arrays.sums_each, arrays.pieces, 1)
    each: np.ndarray = np.where(meets.sums, 2 * passes * arrays.chunks * pieces, 0)
    return each + np.where(meets.sends, 4 * plans["vpp"], 0)


def _seen_shares(
    costs: PlanCosts,
    mode: CircuitMode,
    meets: _Meetings,
    *,
    each: np.ndarray,
    between: np.ndarray,
    dark_s: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of the turns of a microbatch, and of those between blocks, that no work hides, [P]."""
    arrays = costs.arrays
    passes_s = arrays.forward_s[:, 1] + arrays.inputs_s[:, 1] + arrays.weights_s[:, 1]
    work_s = passes_s - costs.waited_s
    seen = np.clip(1.0 - work_s / np.maximum(each, 1.0) / dark_s, 0.0, 1.0)
    if mode.turning is PortTiming.PREFETCHED:
        between_seen = 1.0 - (work_s - costs.between_exchanges_s) / np.maximum(between, 1.0) / dark_s
        return np.where(meets.in_passes, 1.0, seen), np.clip(between_seen, 0.0, 1.0)
    # A gather asks a piece ahead; what comes back to a ring of context ranks asks in time.
    ahead = meets.leaves["cp"] & ~meets.in_passes & (arrays.gathers > 0)
    return np.where(ahead, 0.5 + 0.5 * seen, 1.0), np.ones_like(between)


def _later_s(costs: PlanCosts) -> np.ndarray:
    """Return what a block waits longer over circuits that stand for other peers, too, shape [P, 2]."""
    beside, slowdown = costs.beside, costs.turns.slowdown
    carried = np.isfinite(costs.waited_s)[:, None]
    later_s = sum(np.where(carried, beside.waited_s[axis], 0.0) * (slowdown[axis] - 1.0) for axis in AXES)
    later_s = later_s + np.maximum(0.0, beside.ring_s * slowdown["cp"] - beside.ring_work_s)
    found: np.ndarray = later_s - np.maximum(0.0, beside.ring_s - beside.ring_work_s)
    return found


def _turns_of_sends(costs: PlanCosts, zero: np.ndarray) -> np.ndarray:
    """Return the turns of a step between stages' sends and gathers and sums once a step, shape [P].

    As the engine turns them, on pipelines of one way and of two (DualPipe). Gathers leave circuits of their
    own: each stage that sends to another node turns them when the first microbatch gets there, the last one
    when that turns back. Sums turn in two rounds, since neighbours' ports must be free; of two copies, those
    of one turn while the other's sends still come.
    """
    arrays = costs.arrays
    copies = (arrays.order == Order.BOTH_WAYS) & ~arrays.sums_each
    sums = 1.0 + np.where(copies, 5.0, 1.0) * costs.crossing
    return np.where(zero > 0, costs.crossing * (arrays.stages - 1) + 1.0, 0.0) + sums


def _soon_summed(arrays: StepArrays, dark_s: float) -> np.ndarray:
    """Return whether ports do not leave a pass's exchanges for the sum of one piece, shape [P]."""
    piece_s = arrays.sum_s.max(axis=1) / (arrays.pieces * arrays.chunks)
    return np.asarray(piece_s < short_s(dark_s))


def _turn_s(fabric: Fabric, ports: np.ndarray) -> np.ndarray:
    """Return the time until light passes the last of some ports that turn at once, of the shape of ports."""
    many, place = np.unique(np.rint(ports).astype(int), return_inverse=True)
    return np.array([fabric.lane_turn_s(int(one)) for one in many])[place.ravel()]


def _turns_to(fabric: Fabric, mode: CircuitMode, axis: str) -> bool:
    """Return whether circuits ever turn to the traffic of an axis that leaves the nodes."""
    ends = np.array([0]), np.array([fabric.endpoints - 1])
    flows = Flows(sources=ends[0], destinations=ends[1], size_bytes=1.0, axis=axis)
    return fabric.with_policy(mode.policy, mode.turning).turns_for(flows)


class Objective(StrEnum):
    """Quantity that is to be least."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"

    @property
    def column(self) -> str:
        """Name of its value in records: time of the step in s, its energy in J, its cost in USD."""
        return _COLUMNS[self]

    def check_told(self, fabric: Fabric) -> None:
        """Refuse a fabric of which nobody gave what is to be least: drawn graphs need no watts and prices.

        Raises
        ------
        ParameterError
            If no part of it has power, where energy is to be least, or a price, where cost is.
        """
        each = {Objective.ENERGY: ("w_each", "static_w"), Objective.COST: ("usd_each", "price_usd")}
        number, attribute = each.get(self, ("", ""))
        parts = fabric.bill().values()
        if number and parts and all(number in part.untold for part in parts):
            msg = (
                f"{fabric.name}: no part has '{attribute}', so that the least {self} cannot be told; give it "
                "to nodes or edges of the file"
            )
            raise ParameterError(msg)

    @classmethod
    def named(cls, name: str) -> Objective:
        """Return the objective of a name; a `ParameterError` for any other."""
        if name not in list(cls):
            msg = f"no objective {name!r:.60}; {nearest(str(name), list(cls), noun='objective')}"
            raise ParameterError(msg)
        return cls(name)


_COLUMNS: Mapping[Objective, str] = MappingProxyType(
    {Objective.TIME: "step_time_s", Objective.ENERGY: "energy_j", Objective.COST: "cost_usd"}
)


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


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Aim of a search of plans."""

    objective: Objective
    """Quantity that is least."""
    best: float
    """The least so far, in its unit."""


class Prices:
    """Prices that systems have in common: of collectives on one fabric, of work on one accelerator."""

    def __init__(self) -> None:
        self._known: list[LinePrices] = []
        self._pricers: list[PlanPricer] = []

    def pricer(self, config: TransformerConfig, node: Node) -> PlanPricer:
        """Return those of a model's work on an accelerator."""
        for one in self._pricers:
            if one.node == node and one.config == config:
                return one
        self._pricers.append(PlanPricer(config, node))
        return self._pricers[-1]

    def of(self, fabric: Fabric) -> LinePrices:
        """Return those on a fabric; where its circuits stay, they are laid for all traffic of a step."""
        for one in self._known:
            if one.fabric == fabric:
                return one
        stays = fabric.traits.policy is CircuitPolicy.STATIC
        self._known.append(StandingLines(fabric) if stays else LinePrices(fabric))
        return self._known[-1]


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
        The hardware; a circuit policy that it asks for is the only one tried.
    pricer : PlanPricer
        Prices of the plans' pieces.
    plans : PlanArrays
        Rows that break no rule.
    prices : Prices, optional
        Collectives that were priced before.
    ways : tuple of CircuitMode, optional
        Ways in which circuits may follow a step; all of the fabric by default.
    aim : Aim, optional
        What is looked for: circuits that stay are then laid only for plans that may be the best; all others
        have no such way (infinite time).
    """
    known = prices or Prices()
    tried = modes(system.fabric, system.circuits, plans.base) if ways is None else ways
    nearest = nearest_ranks(plans)
    forms = {int(block): system.fabric.laid_for((int(block),)) for block in np.unique(nearest)}
    if all(len(each) == 1 for each in forms.values()):
        return _on_one_form(system, pricer, plans, known=known, tried=tried, aim=aim)
    values = {one: np.empty(len(plans)) for one in Objective}
    mode_time_s = np.empty((max(1, len(tried)), len(plans)))
    for block, each in forms.items():
        rows = np.flatnonzero(nearest == block)
        found = [
            _on_one_form(
                replace(system, fabric=form), pricer, plans.taken(rows), known=known, tried=tried, aim=aim
            )
            for form in each
        ]
        best = np.argmin([one.values[Objective.TIME] for one in found], axis=0)
        place = np.arange(len(rows))
        for one, column in values.items():
            column[rows] = np.stack([form.values[one] for form in found])[best, place]
        mode_time_s[:, rows] = np.stack([form.mode_time_s for form in found])[best, :, place].T
    return Estimates(values=values, modes=tried, mode_time_s=mode_time_s)


def _on_one_form(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    *,
    known: Prices,
    tried: tuple[CircuitMode, ...],
    aim: Aim | None,
) -> Estimates:
    """Return the estimated steps of plans on a fabric as it stands."""
    if not tried:
        costs = pricer.costs(plans, known.of(system.fabric))
        time_s = _step_s(costs, costs.arrays)
        return Estimates(
            values=_priced(system, pricer, costs.energy_j, time_s), modes=tried, mode_time_s=time_s[None]
        )
    mode_time_s = np.full((len(tried), len(plans)), np.inf)
    energy_j = np.full((len(tried), len(plans)), np.inf)
    places = {mode: place for place, mode in enumerate(tried)}
    costs_of: dict[CircuitPolicy, PlanCosts] = {}
    for mode, place in places.items():
        if mode.policy is CircuitPolicy.STATIC:
            continue
        if mode.policy not in costs_of:
            costs_of[mode.policy] = pricer.costs(plans, known.of(_fixed(system.fabric, mode.policy)))
        costs = costs_of[mode.policy]
        mode_time_s[place] = _step_s(
            costs, under_mode(costs, plans, system.fabric, mode, pricer.config.blocks)
        )
        energy_j[place] = costs.energy_j
    staying = places.get(CircuitMode(policy=CircuitPolicy.STATIC))
    if staying is not None:
        found = _staying(system, pricer, plans, known=known, aim=aim, turning=(mode_time_s, energy_j))
        mode_time_s[staying], energy_j[staying] = found
    every = np.arange(len(plans))
    best = mode_time_s.argmin(axis=0), every
    return Estimates(
        values=_priced(system, pricer, energy_j[best], mode_time_s[best]),
        modes=tried,
        mode_time_s=mode_time_s,
    )


def _fixed(fabric: Fabric, policy: CircuitPolicy) -> Fabric:
    """Return a fabric under a policy whose circuits move when they are asked for."""
    return fabric.with_policy(policy, PortTiming.ON_REQUEST)


FIRST_LAID = 32
"""Plans for which standing circuits are laid first; each further share is twice the last one, a choice."""


def _staying(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    *,
    known: Prices,
    aim: Aim | None,
    turning: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return time in s and dynamic energy in J of plans whose circuits stay, shape [P] each.

    Laying circuits for each plan's own traffic is what takes time: with an aim it is done best first by what
    the plan would take if all of them served whoever asks, up to where that is longer than the best.
    """
    prices = known.of(_fixed(system.fabric, CircuitPolicy.STATIC))
    if aim is None:
        costs = pricer.costs(plans, prices)
        return _step_s(costs, costs.arrays), costs.energy_j
    time_s, energy_j = np.full((2, len(plans)), np.inf)
    served = pricer.costs(plans, known.of(_fixed(system.fabric, CircuitPolicy.PER_AXIS)))
    least = _priced(system, pricer, served.energy_j, _step_s(served, served.arrays))[aim.objective]
    times_s, joules = turning
    with np.errstate(invalid="ignore"):
        turned = _priced(system, pricer, joules, times_s)[aim.objective]
    best = min(aim.best, float(turned.min()))
    order = np.argsort(least, kind="stable")
    done, many = 0, FIRST_LAID
    while done < len(order):
        rows = order[done : done + many]
        rows = rows[least[rows] <= best * (1.0 + ROOM)]
        if not len(rows):
            break
        costs = pricer.costs(plans.taken(rows), prices)
        time_s[rows], energy_j[rows] = _step_s(costs, costs.arrays), costs.energy_j
        found = _priced(system, pricer, energy_j[rows], time_s[rows])[aim.objective]
        best = min(best, float(found.min()))
        done, many = done + many, 2 * many
    return time_s, energy_j


def turning_times_s(
    system: System, pricer: PlanPricer, plans: PlanArrays, fabrics: Sequence[Fabric], prices: Prices
) -> np.ndarray:
    """Return the estimated steps of plans whose circuits turn to the axis that asks, shape [F, P].

    Parameters
    ----------
    system, pricer, plans, prices : System, PlanPricer, PlanArrays, Prices
        As `estimates` takes them.
    fabrics : sequence of Fabric
        The system's fabric with switches of other reconfiguration times; collectives are priced once for all.
    """
    mode = CircuitMode(policy=CircuitPolicy.PER_AXIS)
    costs = pricer.costs(plans, prices.of(system.fabric.with_policy(mode.policy, mode.turning)))
    layers = pricer.config.blocks
    return np.stack([_step_s(costs, under_mode(costs, plans, one, mode, layers)) for one in fabrics])


def least_values(system: System, pricer: PlanPricer, plans: PlanArrays) -> Mapping[Objective, np.ndarray]:
    """Return time, energy and cost of steps whose traffic takes nothing, below which no estimate lies.

    Parameters
    ----------
    system, pricer, plans : System, PlanPricer, PlanArrays
        As `estimates` takes them.
    """
    costs = pricer.without_traffic(plans, system.fabric)
    return _priced(system, pricer, costs.energy_j, _step_s(costs, costs.arrays))


FIRST_PRICED = 256
"""Plans that are priced first; each further share is twice the last one, a choice."""
ROOM = 0.03
"""Share by which a plan's bare step may exceed the best whole step and still be priced; above the share by
which estimates count as alike, a choice."""


@dataclass(frozen=True, kw_only=True)
class Priced:
    """Plans of a system that were worth pricing, and their estimates."""

    plans: PlanArrays
    """The plans; every other one takes longer without any traffic than the best of these with it."""
    found: Estimates
    """Their steps."""


def price_best(
    system: System,
    pricer: PlanPricer,
    plans: PlanArrays,
    objective: Objective,
    *,
    prices: Prices | None = None,
    ways: tuple[CircuitMode, ...] | None = None,
) -> Priced:
    """Return the estimates of all plans that can be the best, or within `ROOM` of it.

    Parameters
    ----------
    system, pricer, plans, prices, ways
        As `estimates` takes them.
    objective : Objective
        Quantity that is least.

    Notes
    -----
    Best first by `least_values` (branch and bound): a plan is not priced only if its step without traffic is
    longer than the best one with it.
    """
    known = prices or Prices()
    least = least_values(system, pricer, plans)[objective]
    order = np.argsort(least, kind="stable")
    shares: list[tuple[PlanArrays, Estimates]] = []
    best, done, many = np.inf, 0, FIRST_PRICED
    while done < len(order):
        rows = order[done : done + many]
        rows = rows[least[rows] <= best * (1.0 + ROOM)]
        if not len(rows):
            break
        share = plans.taken(rows)
        found = estimates(
            system, pricer, share, prices=known, ways=ways, aim=Aim(objective=objective, best=best)
        )
        shares.append((share, found))
        best = min(best, float(shares[-1][1].values[objective].min()))
        done, many = done + many, 2 * many
    return Priced(
        plans=PlanArrays(
            base=plans.base,
            columns={
                name: np.concatenate([share.columns[name] for share, _ in shares]) for name in plans.columns
            },
        ),
        found=Estimates(
            values={one: np.concatenate([each.values[one] for _, each in shares]) for one in Objective},
            modes=shares[0][1].modes,
            mode_time_s=np.concatenate([each.mode_time_s for _, each in shares], axis=1),
        ),
    )


def _step_s(costs: PlanCosts, arrays: StepArrays) -> np.ndarray:
    moved_s = (arrays.gather_s + arrays.sum_s).max(axis=1)
    if costs.delayed:
        arrays = replace(arrays, gather_s=np.zeros_like(arrays.gather_s), sum_s=np.zeros_like(arrays.sum_s))
    with np.errstate(invalid="ignore"):
        time_s = estimate(beside_sums(arrays, costs.beside)).step_time_s
        time_s = np.maximum(time_s, moved_s) if costs.delayed else time_s
    return np.nan_to_num(time_s, nan=np.inf, posinf=np.inf)


def _priced(
    system: System, pricer: PlanPricer, dynamic_j: np.ndarray, time_s: np.ndarray
) -> dict[Objective, np.ndarray]:
    """Return time in s, energy in J and cost in USD of steps of known times, shape [P] each."""
    node = pricer.node
    static_w = node.static_w * node.at_mains * system.accelerators + system.fabric.static_w
    with np.errstate(invalid="ignore"):
        energy_j = np.where(np.isfinite(time_s), dynamic_j + static_w * time_s, np.inf)
    capital_usd = system.capital_usd()
    share_usd = system.economics.step_usd(capital_usd=capital_usd, step_time_s=1.0, energy_j=0.0)
    joule_usd = system.economics.step_usd(capital_usd=0.0, step_time_s=0.0, energy_j=1.0)
    cost_usd = time_s * sum(share_usd.values()) + energy_j * sum(joule_usd.values())
    return {Objective.TIME: time_s, Objective.ENERGY: energy_j, Objective.COST: cost_usd}


def bound_of(system: System, pricer: PlanPricer, row: PlanArrays) -> StepBound:
    """Return what no run of the plan of one row can beat.

    What travels to servers and back is left out, which stand on any of the ranks.
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
    """Return the plans that keep all rules and fit the memory, and how many others break which rule first.

    Parameters
    ----------
    config, plans : TransformerConfig, PlanArrays
        The model, and the plans.
    capacity_bytes : float
        Memory of an accelerator.
    schedule : Schedule, optional
        Schedule with which plans run that are ranked in the form of another: they keep its rules, too, and
        have stages.

    Raises
    ------
    WorkloadError
        If the model or the base has what estimates do not know.
    """
    base = plans.base
    unknown = {
        f"neighbours that {config.name} retrieves": config.retrieval is not None,
        f"kept_activations={base.precision.kept_activations}": base.precision.kept_activations is Kept.HOST,
        f"tensor_grid={base.axes.tensor_grid}": base.axes.tensor_grid is not TensorGrid.LINE,
    }
    for what in (what for what, has in unknown.items() if has):
        msg = f"a search does not estimate {what}; name a plan instead"
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

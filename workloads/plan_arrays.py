"""Arrays of plans: the grid of a joint search, and the rules of a model over all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig
from workloads.choices import Recompute, Schedule
from workloads.plan import Parallelism
from workloads.step import MOST_TASKS

SCHEDULES = (Schedule.ONE_FORWARD_ONE_BACKWARD, Schedule.GPIPE, Schedule.ZERO_BUBBLE)
"""Schedules that have a closed form, by their number in an array."""
RECOMPUTES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
"""Kinds of recomputation, by their number in an array."""
PLACEMENTS = ("tp cp dp pp", "tp cp pp dp", "tp dp cp pp", "cp tp dp pp", "dp tp cp pp")
"""Axes from the nearest ranks to the farthest: which axis takes neighbours in a node, which whole rails."""

COLUMNS = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "micro_batch",
    "vpp",
    "schedule",
    "recompute",
    "zero",
    "placement",
)
"""What a row of the arrays says of a plan."""

CHOICES: Mapping[str, tuple[int, ...]] = {
    "micro_batch": (1, 2, 4, 8),
    "vpp": (1, 2, 3, 4, 6),
    "schedule": (0, 1, 2),
    "recompute": (0, 2),
    "zero": (0, 1, 2, 3),
    "placement": (0, 1, 2),
}
"""Values that a search tries where nobody names others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanArrays:
    """Many plans of one model, a column for each choice; all else is that of the base."""

    base: Parallelism
    """Plan whose other choices all rows share, the global batch among them."""
    columns: Mapping[str, np.ndarray]
    """Column by name (`COLUMNS`), each of shape [P]."""

    def __len__(self) -> int:
        return len(self.columns["tp"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def taken(self, which: np.ndarray) -> PlanArrays:
        """Return the rows of a mask, or of indices."""
        return replace(self, columns={name: column[which] for name, column in self.columns.items()})

    @cached_property
    def microbatches(self) -> np.ndarray:
        """Microbatches of a step, rounded down, shape [P]."""
        return self.base.global_batch // (self["dp"] * self["micro_batch"])

    @property
    def gradient_ranks(self) -> np.ndarray:
        """Ranks over which gradients are summed, shape [P]."""
        return self["dp"] * self["cp"]

    def plan(self, row: int) -> Parallelism:
        """Return one row as a plan."""
        values: dict[str, Any] = {name: int(self[name][row]) for name in COLUMNS if name != "placement"}
        return replace(
            self.base,
            **values
            | {
                "schedule": SCHEDULES[values["schedule"]],
                "recompute": RECOMPUTES[values["recompute"]],
            },
        )

    def placement(self, row: int) -> str:
        """Return the axes of a row from the nearest ranks to the farthest."""
        return PLACEMENTS[int(self["placement"][row])]

    def distinct(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each distinct set of values, and which set each row has, shape [P]."""
        key = np.zeros(len(self), dtype=np.int64)
        for name in names:
            column = self[name].astype(np.int64)
            key = key * (int(column.max(initial=0)) + 1) + column
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        return first, place.ravel()


def grid(
    base: Parallelism,
    accelerators: int,
    experts: int,
    choices: Mapping[str, tuple[int, ...]] | None = None,
) -> PlanArrays:
    """Return every combination of degrees that takes all accelerators, with every combination of choices.

    Parameters
    ----------
    base : Parallelism
        What all plans share.
    accelerators : int
        Accelerators that each plan takes.
    experts : int
        Experts of the model; their divisors are degrees of expert parallelism.
    choices : mapping, optional
        Values of a column that replace those of `CHOICES`, or pin a degree.
    """
    wanted = dict(CHOICES) | dict(choices or {})
    degrees = [
        (tp, cp, pp, accelerators // (tp * cp * pp), ep)
        for tp, cp, pp, ep in _degrees(accelerators, experts)
        if all(
            value in wanted.get(name, (value,))
            for name, value in (
                ("tp", tp),
                ("cp", cp),
                ("pp", pp),
                ("dp", accelerators // (tp * cp * pp)),
                ("ep", ep),
            )
        )
    ]
    rest = list(itertools.product(*(wanted[name] for name in COLUMNS[5:])))
    left, right = np.array(degrees, dtype=np.int32).reshape(-1, 5), np.array(rest, dtype=np.int32)
    rows = np.hstack([np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))])
    return PlanArrays(base=base, columns={name: rows[:, place] for place, name in enumerate(COLUMNS)})


def _degrees(accelerators: int, experts: int) -> Iterator[tuple[int, int, int, int]]:
    for tp in divisors(accelerators):
        for cp in divisors(accelerators // tp):
            for pp in divisors(accelerators // (tp * cp)):
                for ep in divisors(experts):
                    yield tp, cp, pp, ep


def divisors(whole: int) -> list[int]:
    """Return all divisors of a whole number, in order."""
    small = [one for one in range(1, int(whole**0.5) + 1) if whole % one == 0]
    return sorted({*small, *(whole // one for one in small)})


def broken_rules(config: TransformerConfig, plans: PlanArrays) -> dict[str, np.ndarray]:
    """Return, for every rule that a plan must keep, which rows break it, shape [P] each.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plans : PlanArrays
        The rows.

    Notes
    -----
    The rules of `workloads.rules.check` for the columns, and two of the search: a row that is another in
    disguise (a schedule without stages, shares of one rank, placements of axes of one rank) is left out, and
    so is a step of more tasks than are built.

    Raises
    ------
    WorkloadError
        If the model has parts that arrays of plans do not know.
    """
    if config.retrieval is not None:
        msg = f"{config.name} retrieves neighbours, which a search does not estimate; name a plan instead"
        raise WorkloadError(msg)
    tp, cp, pp, ep, vpp = (plans[name] for name in ("tp", "cp", "pp", "ep", "vpp"))
    slots = plans["dp"] * plans["micro_batch"]
    tokens = plans["micro_batch"] * plans.base.sequence_length // cp
    batch = (plans.base.global_batch % slots != 0) | (plans.base.global_batch < slots)
    heads = (config.heads % tp != 0) | (config.ffn_hidden % tp != 0)
    heads |= (tp % config.kv_heads != 0) & (config.kv_heads % tp != 0)
    if config.dense_ffn_hidden:
        heads |= config.dense_ffn_hidden % tp != 0
    interleaves = vpp > 1
    chunks = interleaves & ((pp == 1) | (plans["schedule"] != 0) | (pp * vpp > config.layers))
    chunks |= interleaves & ~batch & (plans.microbatches % pp != 0)
    return {
        "tensor ranks do not divide heads or widths": heads,
        "context ranks do not divide the sequence, or windows are not cut": (
            plans.base.sequence_length % cp != 0
        )
        | ((cp > 1) & (0 < config.window < plans.base.sequence_length)),
        "tensor ranks do not divide a microbatch's tokens": plans.base.sequence_parallel & (tokens % tp != 0),
        "more stages than blocks": pp > config.layers,
        "expert ranks are not of the data ranks": plans.gradient_ranks % ep != 0,
        "data ranks and microbatch do not divide the batch": batch,
        "chunks do not fit the stages": chunks,
        "the same as another plan": _disguised(plans),
        "more tasks than a step graph holds": _tasks(config, plans) > MOST_TASKS,
    }


def _disguised(plans: PlanArrays) -> np.ndarray:
    alone = (plans["pp"] == 1) & (plans["schedule"] != 0)
    alone |= (plans.gradient_ranks == 1) & (plans["zero"] != 0)
    same = np.zeros(len(plans), dtype=bool)
    for number, order in enumerate(PLACEMENTS):
        earlier = PLACEMENTS[:number]
        mine = plans["placement"] == number
        for other in earlier:
            same |= mine & _same_order(plans, order.split(), other.split())
    return alone | same


def _same_order(plans: PlanArrays, one: list[str], other: list[str]) -> np.ndarray:
    """Return where two orders of axes differ in axes of one rank only."""
    same = np.ones(len(plans), dtype=bool)
    for first, second in itertools.combinations(one, 2):
        if other.index(first) > other.index(second):
            same &= (plans[first] == 1) | (plans[second] == 1)
    return same


def _tasks(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return how many tasks a step is taken to have, as `workloads.step.build_step` counts them."""
    shards = plans["zero"] == 3
    pieces = np.where(shards, 30, 2).astype(np.int64)
    return plans["pp"] * plans.microbatches * plans["vpp"] * 2 * pieces


def strides(order: str, tp: int, cp: int, dp: int, pp: int) -> dict[str, int]:
    """Return how far neighbours along each axis stand from each other."""
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    found, stride = {}, 1
    for axis in order.split():
        found[axis] = stride
        stride *= sizes[axis]
    return found


def endpoints_of(plan: Parallelism, order: str) -> tuple[int, ...]:
    """Return the endpoint of every rank of a plan whose axes stand in an order, nearest first."""
    far = strides(order, plan.tp, plan.cp, plan.dp, plan.pp)
    axes = ("pp", "dp", "cp", "tp")
    places = np.indices(tuple(getattr(plan, axis) for axis in axes))
    found = sum(place * far[axis] for place, axis in zip(places, axes, strict=True))
    return tuple(int(one) for one in np.asarray(found).ravel())

"""Placement of ranks on accelerators, and the groups that they form along the axes of parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Protocol

import numpy as np

from simulator.errors import WorkloadError


class Axis(StrEnum):
    """Axis of parallelism, or a cut of one, along which the ranks of a class form groups."""

    TENSOR = "tp"
    ROW = "tp_row"
    """Rows of the square grids of tensor-parallel ranks (2D and 2.5D tensor parallelism)."""
    COLUMN = "tp_column"
    """Columns of these squares."""
    DEPTH = "tp_depth"
    """Ranks at the same position of all squares."""
    CONTEXT = "cp"
    DATA = "dp"
    GRADIENT = "dpcp"
    """Data and context together, over which gradients are summed."""
    INNER = "inner"
    """Blocks of neighbours along the axis `GRADIENT`."""
    OUTER = "outer"
    """Ranks at the same position of all these blocks."""
    EXPERT = "ep"
    REPLICAS = "edp"
    """Ranks with the same experts."""
    PIPELINE = "pp"


COPIES = frozenset({Axis.DATA, Axis.GRADIENT, Axis.INNER, Axis.OUTER, Axis.REPLICAS})
"""Axes along which ranks hold the same parameters, which are gathered, and whose gradients are summed."""
AXES = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE)
"""Axes from the fastest to the slowest running rank index (Megatron-LM's order tp-cp-dp-pp)."""


class Groups(Protocol):
    """Groups of ranks, the interface that the traffic of collectives uses."""

    def groups(self, axis: str, rank_class: int) -> np.ndarray:
        """Return the groups of a class along an axis, shape [groups, ranks in a group]."""
        ...

    def members(self, rank_class: int) -> np.ndarray:
        """Return the ranks of a class, shape [ranks in the class]."""
        ...


def neighbours(group: np.ndarray, node_size: int) -> int:
    """Return the number of members of a group, shape [n], in the node of its first member, that included."""
    nodes = group // node_size
    return int(np.count_nonzero(nodes == nodes[0]))


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """Ranks on a grid of tensor, context, data and pipeline parallelism, tensor running fastest.

    Rank = tp_i + tp (cp_i + cp (dp_i + dp pp_i)). Expert parallelism reuses cp x dp: its groups are blocks of
    `ep` neighbours along that joint axis (Megatron-LM's convention). Inner groups are blocks of `inner`
    neighbours along the same axis, outer groups the ranks that stand at the same place of every block.
    """

    tp: int = 1
    """Tensor-parallel ranks."""
    cp: int = 1
    """Context-parallel ranks."""
    dp: int = 1
    """Data-parallel ranks."""
    pp: int = 1
    """Pipeline stages; each is a class of identical ranks."""
    ep: int = 1
    """Expert-parallel ranks; divides cp x dp, with `ep_over_tp` tp x cp x dp."""
    ep_over_tp: bool = False
    """Whether expert-parallel groups extend over the tensor axis, too."""
    inner: int = 1
    """Neighbours along cp x dp that form an inner group; divides cp x dp."""
    side: int = 1
    """Side of the squares of tensor-parallel ranks, whose rows are neighbours; 1 for ranks in a line."""

    def __post_init__(self) -> None:
        for axis in (*AXES, "ep", "inner", "side"):
            size = getattr(self, axis)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                msg = f"{axis} must be a whole number of at least 1; got {size!r}"
                raise WorkloadError(msg)
        whole = self.cp * self.dp * (self.tp if self.ep_over_tp else 1)
        if whole % self.ep:
            axes = "tp x cp x dp" if self.ep_over_tp else "cp x dp"
            msg = f"ep ({self.ep}) must divide {axes} ({whole}), whose ranks it reuses"
            raise WorkloadError(msg)
        if (self.cp * self.dp) % self.inner:
            msg = f"inner ({self.inner}) must divide cp x dp ({self.cp * self.dp}), which it cuts into groups"
            raise WorkloadError(msg)
        if self.tp % self.side**2:
            msg = f"tp ({self.tp}) must be whole squares of {self.side} x {self.side} ranks"
            raise WorkloadError(msg)

    @property
    def ranks(self) -> int:
        """All accelerators."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def classes(self) -> int:
        """Classes of identical ranks."""
        return self.pp

    @property
    def ranks_per_class(self) -> int:
        """Ranks that one class stands for."""
        return self.tp * self.cp * self.dp

    def members(self, rank_class: int) -> np.ndarray:
        """Return the ranks of a class, shape [ranks_per_class]."""
        start = rank_class * self.ranks_per_class
        return np.arange(start, start + self.ranks_per_class)

    def classes_at(self, endpoints: np.ndarray) -> np.ndarray:
        """Return the classes of the ranks at some endpoints, each once."""
        return np.unique(np.asarray(endpoints) // self.ranks_per_class)

    def groups(self, axis: str, rank_class: int) -> np.ndarray:
        """Return the groups that the ranks of a class form along an axis.

        Parameters
        ----------
        axis : str
            Any `Axis` but that of the pipeline.
        rank_class : int
            The class.

        Returns
        -------
        numpy.ndarray
            Ranks, shape [groups, ranks in a group].

        Raises
        ------
        WorkloadError
            If there is no such axis within a class.
        """
        held, square = 1 if self.ep_over_tp else self.tp, self.side**2
        data = self.dp * self.cp
        sizes_and_steps = {
            Axis.TENSOR: (self.tp, 1),
            Axis.ROW: (self.side, 1),
            Axis.COLUMN: (self.side, self.side),
            Axis.DEPTH: (self.tp // square, square),
            Axis.CONTEXT: (self.cp, self.tp),
            Axis.DATA: (self.dp, self.cp * self.tp),
            Axis.GRADIENT: (data, self.tp),
            Axis.INNER: (self.inner, self.tp),
            Axis.OUTER: (data // self.inner, self.inner * self.tp),
            Axis.EXPERT: (self.ep, held),
            Axis.REPLICAS: (self.ranks_per_class // (self.ep * held), self.ep * held),
        }
        if axis not in sizes_and_steps:
            known = ", ".join(one for one in Axis if one is not Axis.PIPELINE)
            msg = f"no axis '{axis}' within a class; known: {known}"
            raise WorkloadError(msg)
        size, step = sizes_and_steps[Axis(axis)]  # members of a group, and the distance of their ranks
        return self.members(rank_class).reshape(-1, size, step).transpose(0, 2, 1).reshape(-1, size)


@dataclass(frozen=True, kw_only=True)
class PlacedLayout(RankLayout):
    """Ranks at chosen endpoints of a fabric that several jobs share."""

    endpoints: tuple[int, ...] = ()
    """Endpoint of each rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.endpoints) != self.ranks or len(set(self.endpoints)) != self.ranks:
            msg = f"{self.ranks} ranks need as many different endpoints; got {len(set(self.endpoints))}"
            raise WorkloadError(msg)

    @cached_property
    def _places(self) -> np.ndarray:
        places = np.array(self.endpoints, dtype=np.int64)
        places.flags.writeable = False
        return places

    def members(self, rank_class: int) -> np.ndarray:
        """Return the endpoints of a class, shape [ranks_per_class]."""
        start = rank_class * self.ranks_per_class
        return self._places[start : start + self.ranks_per_class]

    def classes_at(self, endpoints: np.ndarray) -> np.ndarray:
        """Return the classes of the ranks at some endpoints, each once; endpoints of other jobs have none."""
        ranks = np.flatnonzero(np.isin(self.endpoints, endpoints))
        return np.unique(ranks // self.ranks_per_class)


def placed(layout: RankLayout, endpoints: Sequence[int]) -> PlacedLayout:
    """Return a layout with its ranks at chosen endpoints.

    Raises
    ------
    WorkloadError
        If there are not as many different endpoints as ranks.
    """
    names = {item.name: getattr(layout, item.name) for item in fields(RankLayout)}
    return PlacedLayout(endpoints=tuple(map(int, endpoints)), **names)

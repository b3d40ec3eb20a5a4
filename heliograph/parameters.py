"""Parameters of a description: each number with unit, range, status and source."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any

from electronic.devices import table as electronic_table
from heliograph.report import format_quantity
from optical.cores.measured_parts import OF
from optical.devices import device_table
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import programmable_table
from optical.fabrics.switches import load_optics, load_switch
from simulator.errors import is_number
from simulator.goodput import load_hosts
from simulator.parameter_tree import shown_paths
from simulator.results import economics_table
from simulator.tables import Row, Status, Table
from simulator.topology.clos import load_direct_link
from simulator.topology.scale_up import load_cables, load_hop, load_nic
from simulator.units import dimension_of

CHOICE = "choice"
"""Status of a number that is a design choice of ours, not a fact from outside."""
SET = "set"
"""Status of a number that the user changed."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One number of a description, with unit, range, status and source."""

    path: str
    """Path in the description, as ``--set`` takes it."""
    value: float | str
    """Its value, SI."""
    unit: str
    """SI unit, or ``1``."""
    status: str
    """Status of the table's row, ``choice``, or ``set``."""
    source: str
    """Source of the table's row, or the kind of choice."""
    low: float | None = None
    """Low end of the published range."""
    high: float | None = None
    """High end of the published range."""

    @property
    def value_text(self) -> str:
        """Value with its unit, for a reader."""
        return self.value if isinstance(self.value, str) else format_quantity(self.value, self.unit)

    @property
    def ends(self) -> tuple[float, ...]:
        """Low and high end of the range, with the value in place of a missing end; empty without a range."""
        if isinstance(self.value, str) or (self.low is None and self.high is None):
            return ()
        kind = type(self.value)
        return tuple(self.value if end is None else kind(end) for end in (self.low, self.high))


def tables() -> tuple[Table, ...]:
    """Return every parameter table of the package."""
    electronic = tuple(electronic_table(name) for name in ("gpus", "vector", "network", "hosts"))
    optical = (
        device_table(),
        named_parts_table(),
        programmable_table(),
        load_switch.table,
        load_optics.table,
    )
    shared = tuple(one.table for one in (load_nic, load_direct_link, load_hop, load_cables, load_hosts))
    return (*optical, *electronic, *shared, economics_table())


@cache
def rows() -> Mapping[tuple[str, str], Row]:
    """Return every row of the tables by the names of its device and its parameter."""
    return MappingProxyType({(row.name, row.parameter): row for table in tables() for row in table.rows})


def parameters_of(description: object) -> list[Parameter]:
    """Return every parameter of a tree of frozen dataclasses, each object once."""
    return list(_walk(description, "", set()))


def status_counts(description: object) -> dict[str, int]:
    """Return the number of parameters of a description by status."""
    return dict(Counter(parameter.status for parameter in parameters_of(description)))


def _walk(
    value: Any,  # noqa: ANN401 - any dataclass
    prefix: str,
    seen: set[int],
) -> Iterator[Parameter]:
    if id(value) in seen:
        return
    seen.add(id(value))
    owner = str(getattr(value, "name", ""))
    for item in dataclasses.fields(value):
        inner = getattr(value, item.name)
        path = f"{prefix}{item.name}"
        if dataclasses.is_dataclass(inner):
            yield from _walk(inner, f"{path}.", seen)
        elif isinstance(inner, Enum):
            yield parameter_of(path, item.name, str(inner.value), None)
        elif is_number(inner):
            row = rows().get((owner.partition(OF)[0], item.name))
            file = owner.partition(OF)[2]
            if file and (row is None or row.value != inner):
                yield Parameter(
                    path=path,
                    value=inner,
                    unit=unit_of(item.name),
                    status=str(Status.MEASURED),
                    source=f"{file}, at the lines of the core",
                )
            else:
                yield parameter_of(path, item.name, inner, row)


def unit_of(name: str, without: str = "1") -> str:
    """Return the unit given by the ending of a name, or `without` for a dimensionless number."""
    dimension = dimension_of(name)
    return dimension[1] if dimension else without


def parameter_of(path: str, name: str, value: float | str, row: Row | None) -> Parameter:
    """Return the parameter at a path with status, source and range of its row, or as a design choice."""
    unit = unit_of(name)
    if row is None:
        source = "design choice"
        return Parameter(path=path, value=value, unit=unit, status=CHOICE, source=source)
    changed = row.value != value
    return Parameter(
        path=path,
        value=value,
        unit=unit,
        status=SET if changed else str(row.status),
        source=f"set by the user; the table has {row.value:g} ({row.source})" if changed else row.source,
        low=row.low,
        high=row.high,
    )


IDEAL = (0.0, 1.0, math.inf)
"""Numbers that mean "none", "all" and "unlimited": set on purpose for an ideal device, so never doubted."""


def beyond_range(description: object) -> list[str]:
    """Return a warning for each number that the user set outside the range of its row.

    Parameters
    ----------
    description : dataclass
        A tree of frozen dataclasses, such as a system. Numbers of `IDEAL` give no warning.
    """
    every = parameters_of(description)

    def shown(one: Parameter) -> str:
        return shown_paths(other.path for other in every)[one.path]

    return [
        f"{shown(one)} is {format_quantity(one.value, one.unit)}, and its row of the tables ranges from "
        f"{format_quantity(one.low, one.unit)} to {format_quantity(one.high, one.unit)}; check the number"
        for one in every
        if one.status == SET
        and not isinstance(one.value, str)
        and one.value not in IDEAL
        and one.low is not None
        and one.high is not None
        and not one.low <= one.value <= one.high
    ]

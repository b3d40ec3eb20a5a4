"""Parts of networks by name: switches, modules, lanes, cards and links, for any place that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from electronic.devices import (
    PacketSwitch,
    Transceiver,
    load_packet_switch,
    load_scale_up,
    load_transceiver,
    table,
)
from heliograph.direct_link import DirectLink, direct_link_table, load_direct_link
from heliograph.scale_up import Nic, ScaleUp, load_nic, nic_table
from heliograph.tables import Table
from optical.switches import (
    LaneOptics,
    OpticalSwitch,
    load_optics,
    load_switch,
    optics_table,
    switch_table,
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Shelf:
    """Where the parts of a kind stand."""

    rows: Callable[[], Table]
    """Returns their table, which may hold other kinds too."""
    load: Callable[[str], object]
    """Returns one by its name."""


_SHELVES: Mapping[type, _Shelf] = MappingProxyType(
    {
        Transceiver: _Shelf(rows=lambda: table("network"), load=load_transceiver),
        PacketSwitch: _Shelf(rows=lambda: table("network"), load=load_packet_switch),
        DirectLink: _Shelf(rows=direct_link_table, load=load_direct_link),
        ScaleUp: _Shelf(rows=lambda: table("network"), load=load_scale_up),
        Nic: _Shelf(rows=nic_table, load=load_nic),
        OpticalSwitch: _Shelf(rows=switch_table, load=load_switch),
        LaneOptics: _Shelf(rows=optics_table, load=load_optics),
    }
)


@cache
def network_parts(kind: type) -> tuple[str, ...]:
    """Return the names of all parts of a kind, or nothing where it is no part of a network.

    Parameters
    ----------
    kind : type
        Dataclass of the part.
    """
    shelf = _SHELVES.get(kind)
    if shelf is None:
        return ()
    fields = {item.name: item for item in dataclasses.fields(kind) if item.name != "name"}
    needed = {one for one, item in fields.items() if _required(item)}
    found: dict[str, set[str]] = {}
    for row in shelf.rows().rows:
        found.setdefault(row.name, set()).add(row.parameter)
    return tuple(name for name, rows in found.items() if needed <= rows <= set(fields))


def load_network_part(kind: type, name: str) -> object:
    """Return a part of a kind by its name, one of `network_parts`."""
    return _SHELVES[kind].load(name)


def _required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING

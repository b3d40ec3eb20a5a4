"""Published runs of rotor switches and counted permutations of random demands, recomputed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from electronic.devices import load_scale_up
from experiments.validation.rows import PER_CENT, FileError, Record, SkipError
from optical.fabrics.rotor import RotorFabric, completion_s, round_bytes
from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.birkhoff import Matching, birkhoff_von_neumann, permutations_for, sinkhorn
from simulator.interfaces import Flows
from simulator.topology.scale_up import load_nic
from simulator.units import BITS_PER_BYTE, to_si

MOST_PORTS = 128
"""Largest demand that is decomposed."""


Rule = Callable[[Record, "re.Match[str]"], tuple[float, str]]
SETTINGS = MappingProxyType(
    {
        "racks": ("N", ""),
        "lanes": ("u", ""),
        "dark": ("r", "us"),
        "turn": ("T_ss", "us"),
        "hosts": ("hosts", ""),
        "rate": ("rate", "Gb/s"),
        "bytes": ("pair", "MB"),
        "payload": ("payload", "B"),
        "packet": ("packet", "B"),
    }
)
"""What a row's setting must tell, ``name=value unit``, by what it is called here."""


def permutations_of_dense_demand(record: Record, found: re.Match[str]) -> tuple[float, str]:
    """Return how many permutations a random doubly stochastic matrix is.

    Parameters
    ----------
    record : Record
        Its ``config`` begins with ``n=N``.
    found : re.Match
        Group 1 is the per cent of the volume that they carry, or None for all; group 2 the matching.

    Raises
    ------
    SkipError
        If there is no such size or matching.
    """
    size = re.match(r"n=(\d+)\b", record.text("config"))
    if not size or not 1 <= int(size[1]) <= MOST_PORTS:
        msg = f"config '{record.text('config')[:40]}' begins with no n=N of at most {MOST_PORTS}"
        raise SkipError(msg)
    if found[2] not in list(Matching):
        msg = f"no matching '{found[2]}' decomposes; known: {', '.join(Matching)}"
        raise SkipError(msg)
    count = int(size[1])
    demand = sinkhorn(np.random.default_rng(count).random((count, count)))
    parts = birkhoff_von_neumann(demand, Matching(found[2]))
    record.assume("another random matrix of this size: uniform entries, rows and columns scaled to one")
    return float(permutations_for(parts, float(found[1]) * PER_CENT) if found[1] else len(parts)), ""


def settings(record: Record) -> dict[str, float]:
    """Return the numbers of a row's setting, in the units of `SETTINGS`.

    Raises
    ------
    SkipError
        If one is missing.
    ParameterError
        If one cannot be: not positive, no whole number where things are counted, a dark time that no turn
        leaves, or a packet that is all header.
    """
    text, found = record.text("config"), {}
    for name, (sign, unit) in SETTINGS.items():
        cell = re.search(rf"\b{sign}=([^\s,]+){' ' + unit if unit else ''}(?=,|$)", text)
        if not cell:
            msg = f"the setting '{text[:60]}' has no {sign}={f'... {unit}' if unit else '...'}"
            raise SkipError(msg)
        found[name] = _positive(record, sign, cell[1], whole=name in ("racks", "lanes", "hosts"))
    if found["dark"] >= found["lanes"] * found["turn"] or found["payload"] > found["packet"]:
        msg = (
            f"{record.where}: column 'config' has r={found['dark']:g} us, u T_ss="
            f"{found['lanes'] * found['turn']:g} us and {found['payload']:g} of {found['packet']:g} B; a "
            "turn must be longer than its dark time and a packet no shorter than its payload"
        )
        raise FileError(msg)
    return found


def _positive(record: Record, sign: str, cell: str, *, whole: bool) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if not 0.0 < value < np.inf or (whole and value != int(value)):
        rule = "a whole number of at least 1" if whole else "finite and positive"
        msg = f"{record.where}: column 'config' has {sign}={cell}; it must be {rule}"
        raise FileError(msg)
    return value


def rotor_of(record: Record) -> RotorFabric:
    """Return the fabric of a row: racks as endpoints, each with u lanes that turn one after the other.

    Notes
    -----
    T_ss is the time between turns of any two lanes, so one lane holds for u T_ss, its dark time included
    (Mellette et al., Opera, NSDI 2020, section 4).
    """
    has = settings(record)
    lane = to_si("bandwidth_bytes_per_s", has["rate"] / BITS_PER_BYTE, "GB/s")
    lanes = int(has["lanes"])
    return RotorFabric(
        endpoints=int(has["racks"]),
        scale_up=replace(load_scale_up("nvlink4"), size=1),
        nic=replace(
            load_nic("connectx-7"),
            bandwidth_bytes_per_s=lanes * lane,
            efficiency=has["payload"] / has["packet"],
        ),
        switch=replace(
            load_switch("rotor"),
            switch_s=to_si("switch_s", has["dark"], "us"),
            relock_s=0.0,
            control_s=0.0,
            positions=int(has["racks"]),
        ),
        optics=replace(load_optics("lane-100g"), bandwidth_bytes_per_s=lane),
        lanes=lanes,
        hold_ratio=lanes * has["turn"] / has["dark"],
    )


def _share(record: Record) -> None:
    if (record.number("value") or 0.0) > 1.0:
        msg = (
            f"{record.where}: column 'value' is {record.text('value')}; a share of time or rate is at most 1"
        )
        raise FileError(msg)


def _duty(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the share of a lane's rate that ends which always send get through, packet by packet."""
    _share(record)
    has, fabric = settings(record), rotor_of(record)
    rate = to_si("bandwidth_bytes_per_s", has["rate"] / BITS_PER_BYTE, "GB/s")
    record.assume("lanes that turn one after the other, each end always with a packet; a round counted")
    if not fabric.rotation.turns:
        return 1.0, "a lane for every matching: nothing turns"
    carried_bytes = np.mean(round_bytes(fabric.rotation, rate, has["packet"]))
    duty = float(carried_bytes / (rate * fabric.rotation.slot_s))
    off = fabric.rotation.duty - duty
    return duty, f"whole packets alone, {max(off, 0.0):.2%} of time below the law 1 - r / (u T_ss)"


def _utilisation(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the rate of uniform traffic over that of the lanes: duty times (N - 1) / N."""
    _share(record)
    fabric = rotor_of(record)
    record.assume("fluid: a bound, all packets fit the slots and no lane ever lacks one")
    return fabric.rotation.port_share / fabric.lanes, "packets that do not fit the end of a slot wait"


def _all_to_all(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the time of an all-to-all among hosts of different racks, in the unit of the row."""
    has, fabric = settings(record), rotor_of(record)
    sources, destinations = np.nonzero(~np.eye(fabric.endpoints, dtype=bool))
    size = has["hosts"] ** 2 * to_si("size_bytes", has["bytes"], "MB")
    flows = Flows(axis="", sources=sources, destinations=destinations, size_bytes=size)
    graph = fabric.graph(None)
    loads = fabric.loads(None, flows)
    time_s = size * float((loads.usage / graph.capacity_bytes_per_s[loads.links]).max()) + loads.latency_s
    record.assume("all flows of two racks share their circuit and end together; headers take their part")
    per_unit_s = to_si("time_s", 1.0, record.text("unit") or "s")
    return time_s / per_unit_s, _by_slots(has, fabric, size, per_unit_s)


def _by_slots(has: dict[str, float], fabric: RotorFabric, size_bytes: float, per_unit_s: float) -> str:
    """Return what the same all-to-all takes slot by slot, in words."""
    rate = to_si("bandwidth_bytes_per_s", has["rate"] / BITS_PER_BYTE, "GB/s")
    if not fabric.rotation.turns or not round_bytes(fabric.rotation, rate, has["packet"]).all():
        return "ours is fluid"
    wire_bytes = size_bytes * has["packet"] / has["payload"]
    mean_s = float(np.mean(completion_s(fabric.rotation, wire_bytes, rate, has["packet"])))
    return f"slot by slot and packet by packet {mean_s / per_unit_s:.4g}, mean over pairs; ours is fluid"


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("RotorNet", "duty cycle$"): _duty,
        ("RotorNet", "utilisation of lanes, all-to-all$"): _utilisation,
        ("RotorNet", "mean flow completion, all-to-all$"): _all_to_all,
    }
)
"""How system and metric of a row read, and what predicts it."""

"""Published numbers of networks: tori, TPU v4, rotor switches, collectives, hashed flows, cost and failures.

A row is one of several kinds, told apart by its columns (`outcomes`): a trace of faults, a task graph, a
trace or a run of ASTRA-sim, a collective, a torus, or a claim of a paper. A claim is predicted by the first
rule of `RULES` whose patterns fit its system and metric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from electronic.devices import load_packet_switch, load_scale_up
from electronic.fabrics.fat_tree import FatTree, RailOnly
from electronic.fabrics.packets import RailFabric
from experiments.validation import collectives
from experiments.validation.collectives import RATES, TIMES
from experiments.validation.network_costs import RULES as COST_RULES
from experiments.validation.network_costs import differences, differences_text
from experiments.validation.network_failures import COLUMN as FAULTS
from experiments.validation.network_failures import RULES as FAILURE_RULES
from experiments.validation.network_failures import slices_record, slices_text, trace_outcomes
from experiments.validation.peers.astra_sim import NS_PER_S
from experiments.validation.peers.astra_sim_traces import COLUMN as TRACE
from experiments.validation.peers.astra_sim_traces import (
    physical_times,
    run_of,
    runs_record,
    runs_text,
    trace_outcome,
    traces_record,
    traces_text,
    wires_s,
)
from experiments.validation.peers.topoopt import COLUMN, task_graph_outcome
from experiments.validation.rows import (
    PER_CENT,
    REFERENCE,
    FileError,
    Outcome,
    Predicted,
    Record,
    Rule,
    SkipError,
    Supplement,
    check_provenance,
    judged,
    read_records,
)
from heliograph.report import ReportRow, format_si, or_dash, table_text
from optical.fabrics.rotor import RotorFabric, completion_s, round_bytes
from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.birkhoff import Matching, birkhoff_von_neumann, permutations_for, sinkhorn
from simulator.engine.network import max_min_rates
from simulator.interfaces import Flows
from simulator.keys import mix_key
from simulator.topology.clos import Clos, Spreading
from simulator.topology.graphs import NO_LINK
from simulator.topology.scale_up import load_nic
from simulator.topology.torus import TPU_V4, Torus, regular, twisted
from simulator.units import BITS_PER_BYTE, to_si

Value = TypeVar("Value")
SHIPPED = REFERENCE / "network.csv"
"""Table of published networks that ships."""
MOST_PORTS = 128
"""Most ports of a demand that is decomposed; a choice of speed."""


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
"""Sign and unit by name of the numbers that ``config`` of a rotor network gives as ``sign=value unit``."""


def permutations_of_dense_demand(record: Record, found: re.Match[str]) -> Predicted:
    """Return the number of permutations into which a random doubly stochastic matrix is decomposed.

    Parameters
    ----------
    record : Record
        Its ``config`` begins with ``n=N``.
    found : re.Match
        Match of the metric: group 1 is the per cent of the volume that the permutations carry, None for
        all of it; group 2 is the matching.

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
    return Predicted(float(permutations_for(parts, float(found[1]) * PER_CENT) if found[1] else len(parts)))


def rotor_settings(record: Record) -> dict[str, float]:
    """Return the numbers that ``config`` of a rotor network gives, in the units of `SETTINGS`.

    Raises
    ------
    SkipError
        If one is missing.
    ParameterError
        If one is invalid: not positive, a count that is not whole, a dark time longer than a turn, or a
        payload larger than its packet.
    """
    found = _config_numbers(record, SETTINGS)
    if found["dark"] >= found["lanes"] * found["turn"] or found["payload"] > found["packet"]:
        msg = (
            f"{record.where}: column 'config' has r={found['dark']:g} us, u T_ss="
            f"{found['lanes'] * found['turn']:g} us and {found['payload']:g} of {found['packet']:g} B; a "
            "turn must be longer than its dark time and a packet no shorter than its payload"
        )
        raise FileError(msg)
    return found


def _config_numbers(record: Record, signs: Mapping[str, tuple[str, str]]) -> dict[str, float]:
    """Return the numbers of ``config`` by name, from the sign and unit of each (``u=4``, ``r=20 us``)."""
    text, found = record.text("config"), {}
    for name, (sign, unit) in signs.items():
        cell = re.search(rf"\b{sign}=([^\s,]+){' ' + unit if unit else ''}(?=,|$)", text)
        if not cell:
            msg = f"the setting '{text[:60]}' has no {sign}={f'... {unit}' if unit else '...'}"
            raise SkipError(msg)
        found[name] = _positive_number(record, sign, cell[1], whole=not unit)
    return found


def _positive_number(record: Record, sign: str, cell: str, *, whole: bool) -> float:
    """Return the positive number of a sign in ``config``; a whole one if it counts things."""
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
    """Return the rotor fabric of a row: racks as endpoints, each with u lanes that turn one after the other.

    Notes
    -----
    T_ss is the time between turns of any two lanes, so one lane holds for u T_ss, its dark time included
    (Mellette et al., Opera, NSDI 2020, section 4).
    """
    setting = rotor_settings(record)
    lane = to_si("bandwidth_bytes_per_s", setting["rate"] / BITS_PER_BYTE, "GB/s")
    lanes = int(setting["lanes"])
    return RotorFabric(
        endpoints=int(setting["racks"]),
        scale_up=replace(load_scale_up("nvlink4"), size=1),
        nic=replace(
            load_nic("connectx-7"),
            bandwidth_bytes_per_s=lanes * lane,
            efficiency=setting["payload"] / setting["packet"],
        ),
        switch=replace(
            load_switch("rotor"),
            switch_s=to_si("switch_s", setting["dark"], "us"),
            relock_s=0.0,
            control_s=0.0,
            positions=int(setting["racks"]),
        ),
        optics=replace(load_optics("lane-100g"), bandwidth_bytes_per_s=lane),
        lanes=lanes,
        hold_ratio=lanes * setting["turn"] / setting["dark"],
    )


def _check_share(record: Record) -> None:
    """Refuse a share of time or rate above 1."""
    if (record.number("value") or 0.0) > 1.0:
        msg = (
            f"{record.where}: column 'value' is {record.text('value')}; a share of time or rate is at most 1"
        )
        raise FileError(msg)


def _duty(record: Record, _: re.Match[str]) -> Predicted:
    """Return the share of a lane's rate that a sender with a full queue uses, in whole packets."""
    _check_share(record)
    setting, fabric = rotor_settings(record), rotor_of(record)
    rate = to_si("bandwidth_bytes_per_s", setting["rate"] / BITS_PER_BYTE, "GB/s")
    record.assume("lanes that turn one after the other, each end always with a packet; a round counted")
    if not fabric.rotation.turns:
        return Predicted(1.0, "a lane for every matching: nothing turns")
    carried_bytes = np.mean(round_bytes(fabric.rotation, rate, setting["packet"]))
    duty = float(carried_bytes / (rate * fabric.rotation.slot_s))
    off = fabric.rotation.duty - duty
    return Predicted(duty, f"whole packets alone, {max(off, 0.0):.2%} of time below the law 1 - r / (u T_ss)")


def _utilisation(record: Record, _: re.Match[str]) -> Predicted:
    """Return the rate of uniform traffic over the rate of the lanes: duty times (N - 1) / N."""
    _check_share(record)
    fabric = rotor_of(record)
    record.assume("fluid: a bound, all packets fit the slots and no lane ever lacks one")
    return Predicted(
        fabric.rotation.port_share / fabric.lanes, "packets that do not fit the end of a slot wait"
    )


def _all_to_all(record: Record, _: re.Match[str]) -> Predicted:
    """Return the time of an all-to-all among hosts of different racks, in the unit of the row."""
    setting, fabric = rotor_settings(record), rotor_of(record)
    sources, destinations = np.nonzero(~np.eye(fabric.endpoints, dtype=bool))
    size = setting["hosts"] ** 2 * to_si("size_bytes", setting["bytes"], "MB")
    flows = Flows(axis="", sources=sources, destinations=destinations, size_bytes=size)
    graph = fabric.graph(None)
    loads = fabric.loads(None, flows)
    time_s = size * float((loads.usage / graph.capacity_bytes_per_s[loads.links]).max()) + loads.latency_s
    record.assume("all flows of two racks share their circuit and end together; headers take their part")
    per_unit_s = to_si("time_s", 1.0, record.text("unit") or "s")
    return Predicted(time_s / per_unit_s, _slot_by_slot(setting, fabric, size, per_unit_s))


def _slot_by_slot(
    setting: dict[str, float], fabric: RotorFabric, size_bytes: float, per_unit_s: float
) -> str:
    """Return in words the time of the same all-to-all if it is followed slot by slot and packet by packet."""
    rate = to_si("bandwidth_bytes_per_s", setting["rate"] / BITS_PER_BYTE, "GB/s")
    if not fabric.rotation.turns or not round_bytes(fabric.rotation, rate, setting["packet"]).all():
        return "ours is fluid"
    wire_bytes = size_bytes * setting["packet"] / setting["payload"]
    mean_s = float(np.mean(completion_s(fabric.rotation, wire_bytes, rate, setting["packet"])))
    return f"slot by slot and packet by packet {mean_s / per_unit_s:.4g}, mean over pairs; ours is fluid"


ROTOR_RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("RotorNet", "duty cycle$"): _duty,
        ("RotorNet", "utilisation of lanes, all-to-all$"): _utilisation,
        ("RotorNet", "mean flow completion, all-to-all$"): _all_to_all,
    }
)
"""Rules by patterns of a row's system and metric."""


PARAMETERS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Palomar/Apollo OCS$", "ports$|reconfiguration time|insertion loss|power"): "palomar-mems",
        ("Calient S320$", "bulk reconfiguration|insertion loss"): "mems-320",
        ("Lumentum R300$", "ports$"): "mems-320, of the same kind",
        (r"Polatis", "ports$|insertion loss"): "polatis-piezo",
        ("Coherent DLC/LCoS", "relative price"): "liquid-crystal",
        ("InfiniteHBD$", "OCSTrx switching latency"): "transceiver-switch",
        ("Rotor switch", "ports$"): "rotor",
        ("Sirius$", "laser tuning|end-to-end reconfiguration"): "sirius-awgr",
        ("Mordia-type", "program|switch|receiver"): "rotor's relock, measured with that switch",
        ("800G module, DSP", "power$"): "dr8-800g",
        ("800G module, LPO", "power$"): "lpo-800g",
        ("NVIDIA pluggable vs CPO", "power per port"): "dr8-1600g and cpo-1600g",
        ("TPU v4$", "ICI links per chip"): "ici-v4",
        ("TPU v4$", "OCS switching time"): "palomar-mems",
        ("InfiniteHBD trace$", "availability|MTBF"): "infinite-hbd of reliability.csv",
        ("NVLink$", "unidirectional"): "nvlink2 to nvlink5",
        ("NCCL tuner$", "base latency|per-hop|NVLS efficiency|per-channel"): "ll, ll128, simple and nvls",
        ("ASTRA-sim$", "HGX"): "a setting of the runs in columns",
        ("RotorNet$", "rotor reconfiguration"): "rotor",
    }
)
"""Parts of our tables by patterns of a row's system and metric: the number is a parameter of that part."""
_SLASH = re.compile(r"\s+/\s+")


COLUMNS = (*TIMES, *RATES)
"""Columns of NCCL's tests that hold a result."""
UNITS = MappingProxyType({"GB/s": "busbw_GBps", "us": "time_us"})
"""Unit of a claim -> column of NCCL's tests."""
DECIMAL = MappingProxyType({"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9})
"""Decimal prefixes of sizes in tables."""
LONG_BYTES = 2**34
"""Size at which a claim without one is judged: long enough for its peak bandwidth."""
CARDS = MappingProxyType({"A3 Mega": "200g"})
"""Rate of each of the eight cards of a machine that rows of several nodes name (Google Cloud, A3 Mega)."""
FROM_BYTES = 2**30
"""Size from which rows of several nodes are judged: below it the latency of their software counts."""
KEPT = ("source", "config", "caller", "gpus_per_process")
"""Columns that describe the measurement of a claim."""
_METRIC = r"(?:all-reduce|AR|peak AR)\b.*(?:busbw|time)"
NEEDS = (("topology", "system", "gpu"), ("LP_max_load", "cycles_ns", "metric", *COLUMNS))
"""Groups of columns; a table of networks has at least one column of each group."""
LOADS: Mapping[str, Callable[[Torus], float]] = MappingProxyType(
    {
        "N": lambda torus: torus.nodes,
        "diameter": lambda torus: torus.diameter,
        "mean_dist": lambda torus: torus.mean_hops,
        "distance_bound_load": lambda torus: torus.distance_bound,
        "LP_max_load": lambda torus: torus.max_link_load,
        "per_node_injection_fraction_of_6_links": lambda torus: torus.injection,
    }
)
"""Quantities of a torus by column."""
RUN = ("backend", "collective", "topology", "npus", "algo", "size_bytes", "bw_GBps", "splits", "active")
"""Columns that name a run of ASTRA-sim."""
HOST_AVAILABILITY = 0.99
"""Availability of a host where a row names none; dimensionless (arXiv:2304.01433)."""
END_NAMES = MappingProxyType({"low": "low end", "high": "high end"})
"""Names of the ends of a published range."""
_NUMBER = r"-?\d+(?:\.\d+)?"
MOST_NODES = 2**20
"""Most nodes of a torus that is judged: 128 x 128 x 64, which takes seconds; a choice."""
HASHED_SIZES = MappingProxyType({"two": (512, 32), "three": (4096, 32)})
"""Cards and ports of a switch by the word for the levels of switches. The share hardly depends on them; three
levels have eight pods, so that most traffic crosses all levels."""
FORWARDING = 256
"""Accelerators of the exchange in which nodes forward across rails."""
HASHES = 3
"""Hashes over which the mean is taken; one standard deviation of a hash is 1 to 2 %."""


@cache
def hashed_share(ports: int, radix: int, queue_pairs: int, seed: int) -> float:
    """Return the mean rate of cards over their line rate, each sending to one card under another leaf.

    Parameters
    ----------
    ports, radix : int
        Cards under a full Clos network, and ports of its switches.
    queue_pairs : int
        Queue pairs of each flow, each on the path that a hash gives it.
    seed : int
        Seed of the hash, and of the destinations.

    Notes
    -----
    Every card receives from one. Queue pairs share links max-min fairly, as congestion control has them do,
    and a flow has the sum of its own.
    """
    tree = Clos(ports=ports, radix=radix, spreading=Spreading.HASHED)
    draw = np.random.default_rng(seed)
    sources = np.arange(ports)
    shift = 1 + draw.integers(tree.leaves - 1, size=tree.down)  # in leaves, for each place under a leaf
    leaf, place = np.divmod(sources, tree.down)
    destinations = (leaf + shift[place]) % tree.leaves * tree.down + place
    trunks = tree.wiring(first_vertex=0, rate_bytes_per_s=1.0, latency_s=0.0).links
    flows, links = [], []
    for pair in range(queue_pairs):
        paths = replace(tree, hash_seed=mix_key(seed, pair)).paths(sources, destinations)
        for crossed in (*paths, trunks + sources, trunks + ports + destinations):
            some = crossed != NO_LINK
            flows.append((sources + pair * ports)[some])
            links.append(crossed[some])
    rates = max_min_rates(
        np.concatenate(flows), np.concatenate(links), np.ones(trunks + 2 * ports), flows=queue_pairs * ports
    )
    return float(rates.sum() / ports)


def _hashed(record: Record, _: re.Match[str]) -> Predicted:
    """Return the rate of hashed flows over the line rate, for the levels and queue pairs of a row."""
    levels = re.search(rf"\b({'|'.join(HASHED_SIZES)}) levels", record.text("config"))
    if levels is None:
        msg = f"config must say how many levels of switches: {' or '.join(HASHED_SIZES)} levels"
        raise SkipError(msg)
    named = re.search(r"(\d+) queue pairs?", record.text("config"))
    pairs = int(named[1]) if named else load_packet_switch("ethernet-400g").shipped_queue_pairs
    if not named:
        record.assume(f"{pairs} queue pairs a flow, as Ethernet switches of our table come")
    ports, radix = HASHED_SIZES[levels[1]]
    record.assume(f"{ports} cards, each sends to one under another leaf; mean of {HASHES} hashes")
    return Predicted(float(np.mean([hashed_share(ports, radix, pairs, seed) for seed in range(HASHES)])))


def _exchanged(record: Record, match: re.Match[str]) -> Predicted:
    """Return when the last flow of a packet simulator's run arrives on two levels of adaptive switches."""
    setting = _config_numbers(record, CLOS_SETTINGS)
    hosts, down, over = (int(setting[name]) for name in ("hosts", "down", "over"))
    if down % over or hosts % down:
        msg = f"{record.where}: leaves of {down} must fill {hosts} hosts, and {over} must divide {down}"
        raise FileError(msg)
    line = to_si("bandwidth_bytes_per_s", setting["rate"] / BITS_PER_BYTE, "GB/s")
    fabric = FatTree(
        endpoints=hosts,
        scale_up=replace(load_scale_up("nvlink4"), size=1),
        nic=replace(
            load_nic("connectx-7"),
            bandwidth_bytes_per_s=line,
            efficiency=setting["payload"] / setting["packet"],
        ),
        switch=replace(
            load_packet_switch("switch-400g"), radix=down + down // over, bandwidth_bytes_per_s=line
        ),
        oversubscription=over,
        spreading=Spreading.ADAPTIVE,
    )
    every = np.arange(hosts)
    sources, destinations = {
        "shift by a leaf": (every, (every + down) % hosts),
        "all-to-all": np.nonzero(~np.eye(hosts, dtype=bool)),
        "incast of two leaves": (down + np.arange(2 * down), np.zeros(2 * down, dtype=np.int64)),
    }[match[1]]
    size = to_si("size_bytes", setting["bytes"], "MB")
    loads = fabric.loads(None, Flows(axis="", sources=sources, destinations=destinations, size_bytes=size))
    capacity = fabric.graph(None).capacity_bytes_per_s[loads.links]
    time_s = size * float((loads.usage / capacity).max()) + loads.latency_s
    note = (
        "there each packet, and each header of one that was cut, asks for two of 64 B, which ours leaves out"
    )
    return Predicted(time_s / to_si("time_s", 1.0, record.text("unit") or "s"), note)


CLOS_SETTINGS = MappingProxyType(
    {
        "hosts": ("N", ""),
        "down": ("down", ""),
        "over": ("over", ""),
        "rate": ("rate", "Gb/s"),
        "bytes": ("flow", "MB"),
        "payload": ("payload", "B"),
        "packet": ("packet", "B"),
    }
)
"""Sign and unit by name of the numbers of a run on leaves and spines; `down` hosts are below a leaf."""
SPREADING_RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        (r"Baidu AIPod$|NVIDIA Spectrum-X$", "hashed flows' share of the line rate$"): _hashed,
        ("csg-htsim$", "last flow, (shift by a leaf|all-to-all|incast of two leaves)$"): _exchanged,
    }
)
"""Rules by patterns of a row's system and metric."""


def parameter_of(record: Record) -> str | None:
    """Return the part of our tables whose parameter a row's number is; None if there is none."""
    found = _first_fitting(PARAMETERS, record)
    return None if found is None else found[0]


def _first_fitting(
    values: Mapping[tuple[str, str], Value], record: Record
) -> tuple[Value, re.Match[str]] | None:
    """Return the first value whose patterns fit a row's system and metric, with the match of the metric."""
    for (system, metric), value in values.items():
        match = re.match(metric, record.text("metric"))
        if match and re.match(system, record.text("system")):
            return value, match
    return None


def claims_of(record: Record) -> Iterator[Record]:
    """Yield a claim, or one for each number of ``a / b / c`` whose metric names as many.

    ``23x less / 4x less`` of ``network power / cost`` is 23 of ``network power`` and 4 of ``cost``.
    """
    values = _SLASH.split(record.text("value"))
    metrics = _SLASH.split(record.text("metric"))
    if len(values) != len(metrics) or len(values) == 1:
        yield record
        return
    for value, metric in zip(values, metrics, strict=True):
        yield Record(record.where, record.cells | {"value": value, "metric": metric})


def is_collective(record: Record) -> bool:
    """Return whether a row has columns of NCCL's tests, or claims a result of them."""
    named = record.text("gpu") and any(record.text(column) for column in COLUMNS)
    claimed = re.match("NCCL", record.text("system")) and re.match(_METRIC, record.text("metric"))
    return bool(named or claimed)


def collective_outcome(record: Record) -> Outcome:
    """Return the outcome of a row about a collective."""
    if record.text("gpu"):
        return collectives.outcome(record)
    name = " ".join(record.text(one) for one in ("system", "metric", "config") if record.text(one))
    with judged(record, name) as row:
        check_provenance(record)
        return collectives.outcome(_as_nccl_test(record, name))
    return row


def _as_nccl_test(record: Record, name: str) -> Record:
    """Return a claim about a collective as a row of NCCL's tests.

    Raises
    ------
    SkipError
        If it names no GPU, had in-network sums disabled, has an unknown unit, or is of several nodes of
        which too little is known.
    """
    system = f"{record.text('system')} {record.text('metric')}"
    if "disabled" in system:
        msg = "switches that do not add are judged beside the rows, with the table of bus bandwidths"
        raise SkipError(msg)
    nodes = re.search(r"\b(\d+)x(\d+) ([A-Z]+\d+)", system)
    if nodes:
        return _between_nodes(record, name, int(nodes[1]) * int(nodes[2]), nodes[3])
    found = re.search(r"\b(\d+)x([A-Z]+\d+)", system) or re.search(r"()\b([A-Z]+\d+)\b.*?(\d+) GPU", system)
    if not found:
        msg = f"'{system[:60]}' names no number of a GPU such as 8xH100"
        raise SkipError(msg)
    return _claimed(record, name, int(found[1] or found[3]), found[2], _size_bytes(record.text("config")))


def _between_nodes(record: Record, name: str, ranks: int, gpu: str) -> Record:
    """Return a claim about several nodes as a row of NCCL's tests."""
    known = [cards for machine, cards in CARDS.items() if machine in record.text("system")]
    if not known:
        msg = f"'{record.text('system')[:60]}' has several nodes and names no machine of {', '.join(CARDS)}"
        raise SkipError(msg)
    size_bytes = _size_bytes(record.text("config"))
    if size_bytes < FROM_BYTES:
        msg = (
            f"collectives of several nodes are judged from {format_si(FROM_BYTES, 'B')} on: no source "
            "gives the latency of the software between them"
        )
        raise SkipError(msg)
    return _claimed(record, name, ranks, gpu, size_bytes, cards=known[0])


def _claimed(record: Record, name: str, ranks: int, gpu: str, size_bytes: int, *, cards: str = "") -> Record:
    """Return a row of NCCL's tests with a claim's value."""
    column = UNITS.get(record.text("unit"))
    if column is None:
        msg = f"unit '{record.text('unit')}' is neither GB/s of bus bandwidth nor us"
        raise SkipError(msg)
    if not record.number("value"):
        msg = f"value '{record.text('value')}' is no time and no bandwidth"
        raise SkipError(msg)
    kept = {one: record.text(one) for one in KEPT}
    cells = {**kept, "id": name, "gpu": gpu, "n_gpus": str(ranks), "cards": cards}
    return Record(record.where, cells | {"bytes": str(size_bytes), column: record.text("value")})


def _size_bytes(config: str) -> int:
    """Return a size such as 32KiB or 8 B, or the power of two that is nearest to a rounded 132K.

    The tables that print K and M list powers of two, some by 1000 and some by 1024, rounded; both readings
    have the same nearest power.
    """
    found = re.match(r"size (\d+(?:\.\d+)?) ?([KMG]?)(i?)B?(?=[;,\s]|$)", config)
    if not found:
        return LONG_BYTES
    if found[3]:
        return round(float(found[1]) * 2 ** (10 * " KMG".index(found[2])))
    value = float(found[1]) * DECIMAL[found[2]]
    return round(value) if not found[2] else 2 ** round(math.log2(value))


def outcomes(record: Record) -> Iterator[Outcome]:
    """Yield the outcomes of a row of any kind.

    Raises
    ------
    ParameterError
        If a cell is invalid.
    """
    if record.text(FAULTS):
        yield from trace_outcomes(record)
    elif record.text(COLUMN):
        yield task_graph_outcome(record)
    elif record.text(TRACE):
        yield trace_outcome(record)
    elif is_collective(record):
        yield collective_outcome(record)
    elif record.text("cycles_ns"):
        yield _run_outcome(record)
    elif record.text("topology"):
        yield from _torus_outcomes(record)
    else:
        for claim in claims_of(record):
            yield from _claim_outcomes(claim)


def _torus_outcomes(record: Record) -> Iterator[Outcome]:
    """Yield the outcome of each column of a torus."""
    topology = record.text("topology")
    columns = [column for column in LOADS if record.text(column)]
    if not columns:
        with judged(record, f"{topology} {record.where}", unit="1") as row:
            msg = f"gives no value to judge: one of {', '.join((*LOADS, 'cycles_ns'))}"
            raise SkipError(msg)
        yield row
    for column in columns:
        yield _outcome(record, f"{topology} {column}", partial(_positive, column=column), _load_of(column))


def _claim_outcomes(record: Record) -> Iterator[Outcome]:
    """Yield the outcome of a claim, or those of both ends of a published range."""
    name = " ".join(record.text(one) for one in ("system", "config", "metric") if record.text(one))
    for end in _ends(record):
        which = f", {END_NAMES[end.cells['end']]}" if "end" in end.cells else ""
        yield _outcome(end, f"{name or record.where}{which}", _published_value, _predicted_value)


def _ends(record: Record) -> list[Record]:
    """Return a row for each number of a cell: two of ``a to b``, one of ``NxN``, ``< a`` or ``a x less``."""
    cell = record.text("value")
    found = re.fullmatch(rf"({_NUMBER})(?:-| to )({_NUMBER})", cell)
    if found:
        low, high = sorted((abs(float(one)) for one in found.groups()), key=float)
        ends = (("low", low), ("high", high))
        return [Record(record.where, record.cells | {"value": f"{v:g}", "end": e}) for e, v in ends]
    square = re.fullmatch(r"(\d+)x\1", cell)
    if square:
        return [Record(record.where, record.cells | {"value": square[1]})]
    bound = re.fullmatch(rf"[<>~]?\s*({_NUMBER})(?:\s*x(?: less)?)?", cell)
    if not bound or (cell.startswith("-") and not record.text("unit") == "%"):
        return [record]
    return [Record(record.where, record.cells | {"value": bound[1].removeprefix("-")})]


def _outcome(
    record: Record,
    name: str,
    measure: Callable[[Record], float],
    predict: Callable[[Record], Predicted],
) -> Outcome:
    """Return the outcome of a row from its measured and predicted value, with assumptions of its own."""
    own = Record(record.where, record.cells)
    with judged(own, name, unit="1") as row:
        check_provenance(own)
        row.measured = measure(own)
        row.predicted, row.hint = predict(own)
    return row


def _positive(record: Record, column: str) -> float:
    """Return the positive number of a column; a row without one is an error of the file."""
    value = record.number(column)
    if not value:
        msg = f"{record.where}: column '{column}' is {record.text(column)}; it must be finite and positive"
        raise FileError(msg)
    return value


def _published_value(record: Record) -> float:
    """Return the value of a claim, shares as fractions; `SkipError` comes first if no rule predicts it."""
    _rule_of(record)
    value = _positive(record, "value")
    return value * PER_CENT if record.text("unit") == "%" else value


def torus_of(text: str) -> Torus:
    """Return the torus at the beginning of a text such as ``4x4x8 twisted, N=128`` or ``Twisted 4x4x8``.

    Raises
    ------
    SkipError
        If it begins with no shape.
    ParameterError
        If the torus cannot be built.
    """
    plain = re.sub(r"\s*[x\u00d7*]\s*(?=\d)", "x", text.lower().replace("_", " "))
    found = re.match(r"(?:[a-z ]* )?(\d+(?:x\d+)*)(?![\w.])", plain)
    if not found:
        msg = f"'{text[:60]}' begins with no shape such as 4x4x8 or 4x4x8 twisted"
        raise SkipError(msg)
    sizes = [int(size) for size in found[1].split("x")]
    if math.prod(sizes) > MOST_NODES:
        msg = f"a torus of more than {MOST_NODES} nodes is not judged; '{found[1][:40]}' has more"
        raise SkipError(msg)
    is_twisted = re.search(r"(?<!not )(?<!non-)\btwisted\b", plain)
    return (twisted if is_twisted else regular)(sizes)


def _load_of(column: str) -> Callable[[Record], Predicted]:
    """Return the function that predicts a quantity of `LOADS` from a row's topology."""

    def load(record: Record) -> Predicted:
        torus = torus_of(record.text("topology"))
        record.assume("each pair's traffic shared equally among its shortest step vectors")
        return Predicted(float(LOADS[column](torus)))

    return load


def _run_outcome(record: Record) -> Outcome:
    """Return the outcome of a run of ASTRA-sim, repeated by its own rules."""
    with judged(record, " ".join(map(record.text, RUN))) as row:
        check_provenance(record)
        row.measured = _positive(record, "cycles_ns") / NS_PER_S
        run = run_of(record)
        row.extra, row.hint = physical_times(run), f"the same wires allow {wires_s(run) * NS_PER_S:.0f} ns"
        row.predicted = run.simulated_s()
    return row


def _predicted_value(record: Record) -> Predicted:
    """Return the prediction of a claim by its rule."""
    rule, match = _rule_of(record)
    return rule(record, match)


def _rule_of(record: Record) -> tuple[Rule, re.Match[str]]:
    """Return the rule of a claim, and the match of its metric; raise `SkipError` if there is none."""
    if (found := _first_fitting(RULES, record)) is not None:
        return found
    part = parameter_of(record)
    if part is not None:
        msg = f"a parameter ({part}), which nothing predicts"
        raise SkipError(msg)
    msg = f"'{record.text('metric')}' of '{record.text('system')}' is not modelled"
    raise SkipError(msg)


def _tpu_v4(name: str) -> Rule:
    """Return the rule that reads a number of the model of TPU v4, by its field or property."""
    return lambda _record, _found: Predicted(float(getattr(TPU_V4, name)))


def _switch_ports(record: Record, _: re.Match[str]) -> Predicted:
    """Return the ports of a switch: both ends of every cube's link, and the spares of the part."""
    switch = load_switch("palomar-mems")
    record.assume(f"{switch.ports - switch.usable_ports} spare ports, as palomar-mems has")
    return Predicted(float(TPU_V4.ports_per_switch + switch.ports - switch.usable_ports))


def _twist_gain(record: Record, _: re.Match[str]) -> Predicted:
    """Return the ideal gain of a twist: the ratio of the busiest links' loads."""
    shape = [int(size) for size in re.findall(r"\d+", record.text("config").split(" ")[0].split(",")[0])]
    TPU_V4.cubes_of(shape)
    record.assume("ideal: links alone limit, and no software or message adds time")
    return Predicted(regular(shape).max_link_load / twisted(shape).max_link_load)


def _goodput(record: Record, found: re.Match[str]) -> Predicted:
    """Return the goodput of TPU v4's slices of some chips, with or without optical circuits."""
    cubes, left = divmod(int(found[1]), TPU_V4.nodes_per_cube)
    if left:
        msg = f"a slice of {found[1]} chips is no whole number of cubes of {TPU_V4.nodes_per_cube}"
        raise SkipError(msg)
    named = re.search(r"(?:a ?= ?|availability (?:of )?)(\d+(?:\.\d+)?) ?(%?)", record.text("config"))
    up = HOST_AVAILABILITY if not named else float(named[1]) * (PER_CENT if named[2] else 1.0)
    record.assume(f"hosts up {up:.4g} of the time, failing independently")
    if not 1 <= cubes <= TPU_V4.cubes or not 0.0 <= up <= 1.0:
        msg = f"a slice of {found[1]} of {TPU_V4.nodes} chips with hosts up {up:g} of the time cannot be"
        raise SkipError(msg)
    goodput = TPU_V4.goodput if found[2] == "with" else TPU_V4.static_goodput
    return Predicted(goodput(cubes, up))


def _link_load(record: Record, _: re.Match[str]) -> Predicted:
    """Return the load of the busiest link in an all-to-all, in units of a pair's traffic."""
    torus = torus_of(record.text("config"))
    record.assume("fractions of a unit may take different paths; that routing table moves whole units")
    return Predicted(torus.max_link_load)


def _forwarded(record: Record, _: re.Match[str]) -> Predicted:
    """Return the relative increase of an all-to-all's time where nodes forward across rails, without latency.

    Notes
    -----
    The paper counts a byte's time over the domain after that over the card. Flows here are fluid: they cross
    both at once, and the domain, nine times as wide, is never the narrower.
    """
    record.assume(f"{FORWARDING} H100; bytes pass domain and card at the same time")
    rails, only = RailFabric(endpoints=FORWARDING), RailOnly(endpoints=FORWARDING)
    sources, destinations = np.nonzero(~np.eye(FORWARDING, dtype=bool))
    flows = Flows(axis="", sources=sources, destinations=destinations, size_bytes=1.0)
    times = []
    for fabric in (only, rails):
        loads = fabric.loads(None, flows)
        times.append(float((loads.usage / fabric.graph(None).capacity_bytes_per_s[loads.links]).max()))
    after = only.nic.bandwidth_bytes_per_s / only.scale_up.bandwidth_bytes_per_s
    return Predicted(
        times[0] / times[1] - 1.0, f"{after:.1%} longer if bytes crossed the domain before the card"
    )


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("TPU v4$", "chips per supercomputer$"): _tpu_v4("nodes"),
        ("TPU v4$", "OCS count$"): _tpu_v4("switches"),
        ("TPU v4$", "OCS ports"): _switch_ports,
        ("TPU v4$", "optical links per cube$"): _tpu_v4("links_per_cube"),
        ("TPU v4$", "fibre strands$"): _tpu_v4("fibres"),
        ("TPU v4$", "all-to-all throughput twisted/regular"): _twist_gain,
        ("TPU v4$", r"goodput at (\d+)-chip slices (with|without) OCS$"): _goodput,
        ("TPU twisted-torus", "max directed-edge load"): _link_load,
        (
            "BvN$",
            r"permutations(?: for (\d+) % of the volume)?, (\w+) matching$",
        ): permutations_of_dense_demand,
        **FAILURE_RULES,
        **COST_RULES,
        ("Rail-only$", "all-to-all .*overhead$"): _forwarded,
        **ROTOR_RULES,
        **SPREADING_RULES,
    }
)
"""Rules by patterns of a row's system and metric."""


RECALLED_CLAIMS = (
    {
        "system": "TopoOpt",
        "metric": "Ideal switch cost / TopoOpt cost",
        "value": "3.2",
        "unit": "x",
        "config": "recalled, not judged",
        "source": "Wang et al., TopoOpt, NSDI 2023",
    },
)
"""Claims quoted from memory: they are shown with the others and counted nowhere."""


@cache
def claims_record() -> list[dict[str, Any]]:
    """Return the claims about cost, power and failures, with assumptions and reasons for differences."""
    modelled = {**COST_RULES, **FAILURE_RULES}
    records = read_records(SHIPPED, needs=NEEDS)
    own = [record for record in records if record.text("system") and _first_fitting(modelled, record)]
    own += [Record(f"recalled:{place}", dict(one)) for place, one in enumerate(RECALLED_CLAIMS, 1)]
    return [found.record() | {"why": found.hint} for one in own for found in outcomes(one)]


def claims_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return claims as a table, with assumptions and reasons for differences below it."""
    rows = [
        ReportRow(
            one["id"],
            (
                or_dash(one["measured"], "{:.3g}"),
                or_dash(one["predicted"], "{:.3g}"),
                f"{one['relative_error'] or 0.0:+.0%}",
            ),
        )
        for one in found
    ]
    title = "Cost, power and failures: published, and from our bills of materials"
    lines = [f"  {one['id']}: {'; '.join(filter(None, (*one['assumed'], one['why'])))}\n" for one in found]
    table = table_text(title, ("published", "ours", "difference"), rows, dense=True)
    return f"{table}\nWhat each rests on, and why it differs:\n{''.join(lines)}"


SUPPLEMENTS = (
    Supplement(name="rings", find=runs_record, text=runs_text),
    Supplement(name="traces", find=lambda _: traces_record(), text=traces_text),
    Supplement(name="claims", find=lambda _: claims_record(), text=claims_text),
    Supplement(name="differences", find=lambda _: differences(), text=differences_text),
    Supplement(name="slices", find=lambda _: slices_record(), text=slices_text),
    Supplement(name="collectives", find=lambda _: collectives.bus_record(), text=collectives.bus_text),
)
"""Tables below the report of published networks, first that of the runs of ASTRA-sim among the rows."""

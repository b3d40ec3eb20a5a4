"""Registry of fabrics by name, and of network parts by name: switches, modules, lanes, cards and links.

The fabrics that ship are registered at the end. `register_fabric` takes further ones, from Python, a file or
an installed package; what they build is checked by `_from_outside`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from electronic.devices import (
    REFERENCE_SYSTEMS,
    PacketSwitch,
    Transceiver,
    load_packet_switch,
    load_scale_up,
    load_transceiver,
    table,
)
from electronic.fabrics.dragonfly import Dragonfly, DragonflyPlus
from electronic.fabrics.fat_tree import FatTree, RailOnly, SwitchedDomain
from electronic.fabrics.packets import RailFabric
from electronic.fabrics.torus import TorusFabric
from optical.fabrics.cubes import CubeFabric
from optical.fabrics.in_network_reduction import OpticalReduction
from optical.fabrics.node_circuits import CircuitChoice, DirectConnect, HybridFabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.rotor import Relaying, RotorFabric, least_lanes
from optical.fabrics.switches import (
    LaneOptics,
    OpticalSwitch,
    load_optics,
    load_switch,
)
from optical.fabrics.transceiver_ring import TransceiverRing
from optical.fabrics.wafer import WaferFabric, load_wafer
from simulator.errors import LinkError, ParameterError, SuspectWarning, in_one_sentence, is_number, nearest
from simulator.fabric import CircuitPolicy, Fabric, missing_members
from simulator.files import naming
from simulator.interfaces import Flows, LinkGraph
from simulator.layout import Axis
from simulator.plugins import from_outside
from simulator.tables import Table
from simulator.topology.clos import DirectLink, load_direct_link
from simulator.topology.graphs import NO_LINK, DrawnFabric, load_graph
from simulator.topology.scale_up import BillItem, Nic, ScaleUp, load_nic
from simulator.units import to_si


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _PartTable:
    """Table in which the parts of a kind are listed."""

    rows: Callable[[], Table]
    """Returns the table, which may hold parts of other kinds, too."""
    load: Callable[[str], object]
    """Returns a part by its name."""


_PART_TABLES: Mapping[type, _PartTable] = MappingProxyType(
    {
        Transceiver: _PartTable(rows=lambda: table("network"), load=load_transceiver),
        PacketSwitch: _PartTable(rows=lambda: table("network"), load=load_packet_switch),
        DirectLink: _PartTable(rows=lambda: load_direct_link.table, load=load_direct_link),
        ScaleUp: _PartTable(rows=lambda: table("network"), load=load_scale_up),
        Nic: _PartTable(rows=lambda: load_nic.table, load=load_nic),
        OpticalSwitch: _PartTable(rows=lambda: load_switch.table, load=load_switch),
        LaneOptics: _PartTable(rows=lambda: load_optics.table, load=load_optics),
    }
)


@cache
def network_parts(kind: type) -> tuple[str, ...]:
    """Return the names of all parts of a kind; empty if it is no kind of network part."""
    parts = _PART_TABLES.get(kind)
    if parts is None:
        return ()
    fields = {item.name: item for item in dataclasses.fields(kind) if item.name != "name"}
    needed = {name for name, item in fields.items() if _required(item)}
    parameters: dict[str, set[str]] = {}
    for row in parts.rows().rows:
        parameters.setdefault(row.name, set()).add(row.parameter)
    return tuple(name for name, given in parameters.items() if needed <= given <= set(fields))


def load_network_part(kind: type, name: str) -> object:
    """Return a part of a kind by its name, one of `network_parts`."""
    return _PART_TABLES[kind].load(name)


def _required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


FabricT = TypeVar("FabricT")
WAFER = "lightpath"
"""Wafer of the fabric ``wafer``."""
REGION = 8
"""Nodes of a region of circuits; fewer where 8 do not divide the system."""
PLAIN_LANES = "lane-100g"
"""Optical lanes whose light passes one switch."""
BRIGHT_LANES = "lane-100g-boosted"
"""Amplified optical lanes, whose light passes three switches."""
RAILS, TORUS = "rails", "torus"
"""Default fabrics of packet systems: of accelerators in nodes, and of those on a torus."""
CIRCUITS = "ocs_rails"
"""Fabric of systems with optical circuits."""
BRIGHT_DUPLEX = "lane-100g-cwdm-duplex-boosted"
"""Amplified optical lanes between cubes, whose light passes three switches."""
CUBE_SIDES = (4, 2, 1)
"""Sides of cubes; the first is taken with which all cubes are full. TPU v4 has 4."""
RING_NODE = 4
"""Accelerators of a node in a ring of transceiver switches (InfiniteHBD)."""
ROTOR_LANES = 8
"""Lanes of an accelerator through rotor switches; more where 8 do not reach all others."""
OPERA_BULK_BYTES = to_si("bulk_bytes", 15.0, "MB")
"""Size from which transfers on Opera wait for a direct circuit (Mellette et al., NSDI 2020)."""
FABRIC_GROUP = "heliograph.fabrics"
"""Group of entry points whose objects `register_fabric` takes."""
NEEDED = ("name", "endpoints", "graph", "route", "transfer_energy_j")
"""Members of a fabric that have no default."""
LEAST_BYTES_PER_S, MOST_LATENCY_S = 1e6, 1e-2
"""Bounds of rate and latency beyond which a link of a user's fabric is warned of; choices."""
GRAPH = "graph:"
"""Prefix of the path of a graph file."""


Build = Callable[[int, ScaleUp], Fabric]
"""Builds a fabric from the number of accelerators and the scale-up domain of their nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FabricKind:
    """Registered fabric."""

    build: Build
    """Function that builds it."""
    summary: str
    """Line in lists."""


def _domain(endpoints: int, scale_up: ScaleUp) -> SwitchedDomain:
    return SwitchedDomain(endpoints=endpoints, scale_up=dataclasses.replace(scale_up, size=endpoints))


def _with_lanes(make: Callable[[LaneOptics], FabricT]) -> FabricT:
    """Return a fabric with plain lanes, or with amplified ones if their link does not close."""
    try:
        return make(load_optics(PLAIN_LANES))
    except LinkError:
        return make(load_optics(BRIGHT_LANES))


def _ocs_rails(endpoints: int, scale_up: ScaleUp) -> OcsRails:
    return _with_lanes(lambda optics: OcsRails(endpoints=endpoints, scale_up=scale_up, optics=optics))


def _direct_connect(endpoints: int, scale_up: ScaleUp) -> DirectConnect:
    return _with_lanes(
        lambda optics: DirectConnect(
            endpoints=endpoints, scale_up=scale_up, degree=scale_up.size, optics=optics
        )
    )


def _thin(endpoints: int, scale_up: ScaleUp) -> FatTree:
    return FatTree(
        name="thin packets",
        endpoints=endpoints,
        scale_up=scale_up,
        nic=load_nic("connectx-6-dx"),
        switch=load_packet_switch("switch-100g"),
        transceiver=load_transceiver("dr1-100g"),
    )


def _cards(scale_up: ScaleUp) -> int:
    """Return the optical cards of a node that replace the three quarters missing in its 100G packet cards."""
    return max(1, scale_up.size * 3 // 4)


def _hybrid(endpoints: int, scale_up: ScaleUp) -> HybridFabric:
    packets = _thin(endpoints, scale_up)
    return _with_lanes(lambda optics: HybridFabric(packets=packets, degree=_cards(scale_up), optics=optics))


def _regional(endpoints: int, scale_up: ScaleUp) -> HybridFabric:
    return HybridFabric(
        name="regional circuits",
        packets=_thin(endpoints, scale_up),
        degree=_cards(scale_up),
        region=math.gcd(scale_up.nodes(endpoints), REGION),
        axis=Axis.EXPERT,
        choice=CircuitChoice.GREEDY,
        policy=CircuitPolicy.PER_AXIS,
    )


def _wafer(endpoints: int, scale_up: ScaleUp) -> WaferFabric:
    wafer = load_wafer(WAFER)
    on_wafer = math.gcd(endpoints, wafer.chips) if endpoints > wafer.chips else endpoints
    library = dataclasses.replace(scale_up, name="library", size=on_wafer, adders=())
    return WaferFabric(wafer=wafer, packets=FatTree(endpoints=endpoints, scale_up=library))


def _cubes(endpoints: int, _: ScaleUp) -> CubeFabric:
    side = next(size for size in CUBE_SIDES if endpoints % size**3 == 0)
    try:
        return CubeFabric(endpoints=endpoints, side=side)
    except LinkError:  # more cubes than one switch has ports for pass three
        bright = load_optics(BRIGHT_DUPLEX)
        return CubeFabric(endpoints=endpoints, side=side, optics=bright)


def _hbd_ring(endpoints: int, _: ScaleUp) -> TransceiverRing:
    return TransceiverRing(endpoints=endpoints, node=math.gcd(endpoints, RING_NODE))


def _rotor(endpoints: int, scale_up: ScaleUp) -> RotorFabric:
    switch = load_switch("rotor")
    lanes = _lanes(switch, scale_up.nodes(endpoints))
    return RotorFabric(endpoints=endpoints, scale_up=scale_up, switch=switch, lanes=lanes)


def _opera(endpoints: int, scale_up: ScaleUp) -> RotorFabric:
    rotor = _rotor(endpoints, scale_up)
    return dataclasses.replace(rotor, name="opera", bulk_bytes=OPERA_BULK_BYTES)


def _sirius(endpoints: int, scale_up: ScaleUp) -> RotorFabric:
    gratings = load_switch("sirius-awgr")
    return RotorFabric(
        name="sirius",
        endpoints=endpoints,
        scale_up=scale_up,
        switch=gratings,
        optics=load_optics(BRIGHT_LANES),
        lanes=_lanes(gratings, scale_up.nodes(endpoints)),
        relaying=Relaying.ALWAYS,
    )


def _lanes(switch: OpticalSwitch, ends: int) -> int:
    """Return `ROTOR_LANES`, fewer for fewer ends, more where that many do not reach all ends."""
    return max(least_lanes(switch, ends), min(ROTOR_LANES, ends))


_REGISTERED: dict[str, FabricKind] = {}
FABRICS: Mapping[str, FabricKind] = MappingProxyType(_REGISTERED)
"""Registered fabrics by name."""


def register_fabric(name: str, build: Build | type[Fabric], summary: str = "") -> None:
    """Register a fabric under a name.

    Parameters
    ----------
    name : str
        Name, without ``@`` and not beginning with ``graph:``.
    build : callable or type
        Function that builds it from the number of accelerators and the `ScaleUp` of their nodes; or a class
        of fabrics, which is called with ``endpoints`` and, if it takes one, ``scale_up``.
    summary : str
        Line in lists; by default the first line of the docstring.

    Raises
    ------
    ParameterError
        If the name is taken or invalid, or `build` cannot be called so or is no class of fabrics.
    """
    if not isinstance(name, str) or not name or "@" in name or name.startswith(GRAPH):
        msg = f"{name!r} cannot be the name of a fabric; take one without @ that does not begin with {GRAPH}"
        raise ParameterError(msg)
    if name in _REGISTERED:
        msg = f"there is a fabric '{name}' already ({_REGISTERED[name].summary}); take another name"
        raise ParameterError(msg)
    if not callable(build):
        msg = f"fabric '{name}': {build!r} is no class and no function that makes a fabric"
        raise ParameterError(msg)
    lines = (inspect.getdoc(build) or name).splitlines()
    _REGISTERED[name] = FabricKind(build=_builder(name, build), summary=summary or lines[0].rstrip("."))


def unregister_fabric(name: str) -> None:
    """Remove a registered fabric, so that its name is free again.

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    check_fabric(name)
    del _REGISTERED[name]


def _builder(name: str, build: Build | type[Fabric]) -> Build:
    """Return the function that builds a fabric, with its signature checked."""
    if isinstance(build, type):
        _check_members(f"class {build.__name__}", build)
    signature = inspect.signature(build)
    if not isinstance(build, type):
        _check_takes(name, signature, 1, None)
        return build
    given = ("endpoints", "scale_up") if "scale_up" in signature.parameters else ("endpoints",)
    _check_takes(name, signature, **dict.fromkeys(given))
    make: Callable[..., Fabric] = build
    return lambda count, domain: make(**dict(zip(given, (count, domain), strict=False)))


def _check_takes(name: str, signature: inspect.Signature, *values: object, **named: object) -> None:
    """Check that a signature accepts the number of accelerators and the nodes and needs nothing else."""
    try:
        signature.bind(*values, **named)
    except TypeError as error:
        msg = (
            f"fabric '{name}' cannot be made of endpoints and scale_up alone: {error}; give the rest defaults"
        )
        raise ParameterError(msg) from None


def _check_members(what: str, fabric: object) -> None:
    """Check that a fabric, or a class of fabrics, has all members of `simulator.fabric.Fabric`."""
    missing = missing_members(fabric)
    if missing:
        needed = [one for one in missing if one in NEEDED] or missing
        msg = (
            f"{what} is no fabric: it lacks {', '.join(needed)}; inherit from simulator.fabric.Fabric, which "
            f"has defaults for all but {', '.join(NEEDED)}"
        )
        raise ParameterError(msg)


def scale_up_of(gpu: str) -> ScaleUp:
    """Return the scale-up domain of a GPU's nodes.

    Raises
    ------
    ParameterError
        If there is no such GPU, or none is known of it.
    """
    if gpu not in REFERENCE_SYSTEMS:
        hint = nearest(gpu, REFERENCE_SYSTEMS, noun="GPU")
        msg = f"no GPU '{gpu}' whose nodes a fabric could join; {hint}"
        raise ParameterError(msg)
    return load_scale_up(REFERENCE_SYSTEMS[gpu].scale_up)


def build_fabric(name: str, accelerators: int, gpu: str, node: int | None = None) -> Fabric:
    """Return a fabric by its name, with the nodes of a GPU.

    Parameters
    ----------
    name : str
        One of `FABRICS`, or ``graph:FILE`` for a network in a GraphML or JSON file.
    accelerators : int
        Number of accelerators.
    gpu : str
        GPU whose scale-up domain the nodes are (a smaller system is one smaller node), and whose links a
        torus has if it stands on one.
    node : int, optional
        Accelerators of a node, in place of those of the GPU.

    Raises
    ------
    ParameterError
        If there is no fabric of that name, it cannot join that many, or a registered one is no fabric.
    """
    if name.startswith(GRAPH):
        return load_graph(Path(name.removeprefix(GRAPH)), endpoints=accelerators)
    check_fabric(name)
    scale_up = scale_up_of(gpu)
    size = min(node or scale_up.size, accelerators)
    if size != scale_up.size:
        scale_up = dataclasses.replace(scale_up, size=size)
    if name not in _SHIPPED:
        return _from_outside(name, accelerators, scale_up)
    return _with_links_of(gpu, FABRICS[name].build(accelerators, scale_up))


def default_fabric(gpu: str) -> str:
    """Return the default fabric of packet systems: rails, or for a TPU its torus."""
    system = REFERENCE_SYSTEMS.get(gpu)
    return TORUS if system and system.torus_link else RAILS


def stand_in_warning(gpu: str, fabric: Fabric) -> str | None:
    """Return a warning that switched nodes replace the torus that an accelerator comes with, or None."""
    system = REFERENCE_SYSTEMS.get(gpu)
    if system is None or not system.torus_link:
        return None
    if isinstance(fabric, TorusFabric | CubeFabric | DrawnFabric):
        return None
    return (
        f"{gpu} stands on a torus of its own links, and '{fabric.name}' joins nodes of "
        f"{system.scale_up} in their place; fabric {TORUS} or ocs_cubes has its links"
    )


def _with_links_of(gpu: str, fabric: Fabric) -> Fabric:
    """Return a fabric; a torus gets the links and axes of an accelerator that comes with one."""
    system = REFERENCE_SYSTEMS[gpu]
    if not system.torus_link or not isinstance(fabric, TorusFabric | CubeFabric):
        return fabric
    own = dataclasses.replace(fabric, link=load_direct_link(system.torus_link))
    flat = system.flat_torus and isinstance(own, TorusFabric)
    return dataclasses.replace(own, x=1) if flat else own


def _from_outside(name: str, accelerators: int, scale_up: ScaleUp) -> Fabric:
    """Return a user's fabric, checked; an error of its author's is raised as one sentence."""
    with in_one_sentence(f"fabric '{name}' fails for {accelerators} accelerators"):
        fabric = FABRICS[name].build(accelerators, scale_up)
        _check_members(f"what '{name}' builds ({type(fabric).__name__})", fabric)
        wrong = next(_wrong_answers(fabric, accelerators), None)
    if wrong is not None:
        msg = f"fabric '{name}' for {accelerators} accelerators: {wrong}"
        raise ParameterError(msg)
    for sentence in _doubtful_links(fabric, accelerators):
        warnings.warn(f"fabric '{name}': {sentence}", SuspectWarning, stacklevel=2)
    return fabric


def _around(accelerators: int) -> Flows:
    """Return flows around a ring of all accelerators, with which a user's fabric is tried."""
    return Flows.around(np.arange(accelerators)[None, :], size_bytes=1.0, axis=Axis.DATA)


def _ring(fabric: Fabric, accelerators: int) -> tuple[LinkGraph, np.ndarray]:
    """Return the links of a fabric for flows around a ring, and the routes of these flows."""
    flows = _around(accelerators)
    circuits, _ = fabric.configure(fabric.initial((flows,)), flows, (flows,))
    return fabric.graph(circuits), np.asarray(fabric.route(circuits, flows))


def _doubtful_links(fabric: Fabric, accelerators: int) -> Iterator[str]:
    """Yield warnings about implausible links around a ring: rates in Gb/s, latencies in us."""
    graph, routes = _ring(fabric, accelerators)
    crossed = routes[routes != NO_LINK]
    if not crossed.size:
        return
    rate, latency_s = graph.capacity_bytes_per_s[crossed].min(), graph.latency_s[crossed].max()
    if rate < LEAST_BYTES_PER_S:
        yield f"a link carries {rate:g} B/s; capacity_bytes_per_s is in bytes per second, such as 50e9"
    if latency_s > MOST_LATENCY_S:
        yield f"a link takes {latency_s:g} s; latency_s is in seconds, such as 1e-6"


def _wrong_answers(fabric: Fabric, accelerators: int) -> Iterator[str]:
    """Yield the faults of a fabric's size, bill, links, routes and energy, tried with flows around a ring."""
    if fabric.endpoints != accelerators:
        yield f"it joins {fabric.endpoints}"
    bill = fabric.bill()
    if not isinstance(bill, Mapping) or not all(isinstance(item, BillItem) for item in bill.values()):
        yield f"bill must return a BillItem for each name; got {bill!r:.60}"
    graph, routes = _ring(fabric, accelerators)
    if not isinstance(graph, LinkGraph):
        yield f"graph must return a LinkGraph; got {graph!r:.60}"
    capacity, latency = graph.capacity_bytes_per_s, graph.latency_s
    for name, values in (("capacity_bytes_per_s", capacity), ("latency_s", latency)):
        if not isinstance(values, np.ndarray) or values.shape != (len(capacity),):
            yield f"{name} of graph must be an array of one number for each link; got {values!r:.60}"
        if not (np.isfinite(values) & (values >= 0.0)).all():
            yield f"{name} of graph must be finite and at least 0"
    if routes.ndim != 2 or len(routes) != accelerators or not np.issubdtype(routes.dtype, np.integer):
        yield f"route must return link numbers of shape [flows, hops]; got {routes.dtype} {routes.shape}"
    crossed = routes[routes != NO_LINK]
    if crossed.size and not 0 <= crossed.min() <= crossed.max() < capacity.size:
        yield f"route must return links 0 to {capacity.size - 1}, padded with {NO_LINK}; got {crossed.max()}"
    if accelerators > 1 and not ((routes != NO_LINK).any(axis=1).all() and (capacity[crossed] > 0.0).all()):
        yield "route must lead each flow over links that have capacity"
    energy_j = fabric.transfer_energy_j(_around(accelerators))
    if not (is_number(energy_j) and 0.0 <= energy_j < math.inf):
        yield f"transfer_energy_j must return one finite number of at least 0; got {energy_j!r:.60}"


def check_fabric(name: str) -> None:
    """Check that a name is that of a fabric; register the fabric if a file or a package provides it.

    Raises
    ------
    ParameterError
        If it is not.
    """
    if name in FABRICS or name.startswith(GRAPH):
        return
    found: Any = from_outside(FABRIC_GROUP, name)
    if found is None:
        msg = f"no fabric '{name}'; {nearest(name, FABRICS, noun='fabric')} (or {GRAPH}FILE for a graph)"
        raise ParameterError(msg)
    register_fabric(name, found)


def fabric_in_file(content: dict[str, Any], path: Path) -> str | None:
    """Return the fabric that a system's file names, by ``fabric = NAME`` or ``kind`` in its table ``fabric``.

    None if it names none.

    Parameters
    ----------
    content : dict
        Content of the file; the name is removed from it.
    path : pathlib.Path
        Path of the file; that of a graph file is relative to it.

    Raises
    ------
    ParameterError
        If the name is no text, or that of no fabric.
    """
    table = content.get("fabric", {})
    key = "fabric.kind" if isinstance(table, dict) else "fabric"
    named = table.pop("kind", None) if isinstance(table, dict) else content.pop("fabric")
    if named is None:
        return None
    if not isinstance(named, str):
        msg = f"{path}: key 'fabric' must be the name of a fabric, or a table with its 'kind'; got {named!r}"
        raise ParameterError(msg)
    if named.startswith(GRAPH):
        return f"{GRAPH}{path.parent / named.removeprefix(GRAPH)}"
    with naming(path, key):
        check_fabric(named)
    return named


def check_effect(fabric: Fabric, path: str) -> None:
    """Raise `ParameterError` if a number has no effect on a fabric (`Traits.idle_numbers`)."""
    reason = fabric.traits.idle_numbers.get(path.rpartition(".")[2])
    if reason is not None:
        msg = f"{path} changes nothing: {reason}"
        raise ParameterError(msg)


register_fabric(
    RAILS,
    RailFabric,
    "rail-optimised packet switches: a rail's cards on one leaf, spines join the rails",
)
register_fabric("ocs_rails", _ocs_rails, "optical circuit switches in the rails, circuits that can move")
register_fabric(
    "ocs_cubes", _cubes, "cubes of copper, joined to tori by optical circuit switches, twisted too (TPU v4)"
)
register_fabric(
    "hbd_ring",
    _hbd_ring,
    "nodes in a ring, switched in transceivers: other hops, round failed nodes (InfiniteHBD)",
)
register_fabric(
    "rotor", _rotor, "optical matchings in a fixed round; surplus goes by way of relays (RotorNet)"
)
register_fabric("opera", _opera, "as rotor, but small transfers cross the lanes that are lit now (Opera)")
register_fabric(
    "sirius", _sirius, "tunable lasers before gratings, slots of nanoseconds, all traffic by relays (Sirius)"
)
register_fabric(
    "fat_tree",
    FatTree,
    "folded Clos of one to four levels, oversubscribed at leaf and spine as asked",
)
register_fabric(
    "rail_only",
    RailOnly,
    "a network for each rail and none between them; nodes forward across rails",
)
register_fabric(
    "dragonfly",
    Dragonfly,
    "groups of fully joined routers with direct links from every group to every other",
)
register_fabric(
    "dragonfly_plus",
    DragonflyPlus,
    "groups of leaves and spines with direct links between the groups' spines",
)
register_fabric(
    TORUS,
    TorusFabric,
    "three-dimensional torus without switches, of copper or of fibre, regular or twisted",
)
register_fabric("nvlink", _domain, "one switched scale-up domain around all accelerators (NVLink switches)")
register_fabric(
    "direct_connect",
    _direct_connect,
    "circuits from node to node, laid out for the job; nodes pass on the rest (TopoOpt)",
)
register_fabric(
    "hybrid", _hybrid, "circuits for the step's heaviest pairs, thin packets for the rest (Helios, c-Through)"
)
register_fabric(
    "wafer", _wafer, "circuits from chip to chip of a wafer, packets between wafers (Passage, LIGHTPATH)"
)
register_fabric(
    "optical_reduction",
    lambda count, domain: OpticalReduction(packets=FatTree(endpoints=count, scale_up=domain)),
    "packets, and units that add gradients in light between the nodes (OptINC)",
)
register_fabric(
    "regional_ocs",
    _regional,
    "circuits in regions for the experts' all-to-alls, packets for the rest (MixNet)",
)
_SHIPPED = frozenset(_REGISTERED)

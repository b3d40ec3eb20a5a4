"""Electronic parts that the tables of this package describe, one frozen dataclass each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from simulator.errors import (
    Checked,
    Count,
    Efficiency,
    FromOne,
    ParameterError,
    Positive,
    Several,
    Share,
    check_choices,
    nearest,
)
from simulator.node import Chassis, Host, HostLink, Memory, Processors, Storage
from simulator.tables import Shelf, Table, shipped_table
from simulator.topology.clos import Spreading
from simulator.topology.scale_up import Adder, BillItem, NodeAdder, Protocol, ScaleUp
from simulator.units import BITS_PER_BYTE, SPEED_OF_LIGHT_M_PER_S, to_si

KIBIBYTE_BYTES = to_si("chunk_bytes", 1.0, "KiB")
"""Bytes of a kibibyte, by which chunks are named."""


@dataclass(frozen=True, kw_only=True)
class ChunkedAdder(Checked):
    """In-switch reduction as a communication library schedules it, in rounds of chunks (NCCL's NVLS).

    Notes
    -----
    A round sends `chunks_in_flight` = w chunks of c bytes through a port at the rate r, `efficiency` times
    the port's, and then waits h = `wait_s`: it lasts w c / r + h. The first sums come back after one round,
    so that S bytes, S (n + 1) / n on the wire of n ranks, take t + (1 + S (n + 1) / (n w c)) (w c / r + h)
    with t = `start_s`. Short chunks return the first sums sooner, long ones lose less to waits; the library
    halves the chunk for short vectors.

    References
    ----------
    NCCL, src/enqueue.cc (chunks of 16, 32, 64 and 128 KiB), src/transport/nvls.cc (channels) and
    src/graph/tuning.cc (latencies).
    """

    name: str = "chunked adder"
    """Name shown in records, before the size of the chunk."""
    start_s: float
    """Time to start a collective, before its first round."""
    efficiency: Efficiency
    """Share of a port's rate that the payload gets within a round, 0 to 1."""
    wait_s: float
    """Time between two rounds: flags and fences."""
    tree_wait_s: float
    """Further time between two rounds if a tree over nodes adds the sums of the nodes."""
    least_chunk_bytes: Positive
    """Shortest chunk."""
    most_chunk_bytes: Positive
    """Longest chunk, a power of two times the shortest."""
    chunks_in_flight: Count
    """Chunks of a round through one port: channels times ranks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_chunk_bytes < self.least_chunk_bytes:
            msg = (
                f"most_chunk_bytes ({self.most_chunk_bytes:g}) of '{self.name}' must be at least "
                f"least_chunk_bytes ({self.least_chunk_bytes:g}); raise the former or lower the latter"
            )
            raise ParameterError(msg)

    def adders(self, port_bytes_per_s: float) -> tuple[NodeAdder, ...]:
        """Return an adder for each size of chunk, shortest first.

        Parameters
        ----------
        port_bytes_per_s : float
            Rate of a long transfer through a port.
        """
        adders = []
        chunk_bytes = self.least_chunk_bytes
        while chunk_bytes <= self.most_chunk_bytes:
            round_bytes = self.chunks_in_flight * chunk_bytes
            line_s = round_bytes / port_bytes_per_s
            round_s = line_s / self.efficiency + self.wait_s
            adder = NodeAdder(
                name=f"{self.name}-{chunk_bytes / KIBIBYTE_BYTES:.0f}k",
                start_s=self.start_s + round_s,
                efficiency=line_s / round_s,
                chunk_bytes=round_bytes,
                tree_wait_s=self.tree_wait_s,
            )
            adders.append(adder)
            chunk_bytes *= 2
        return tuple(adders)


PARAMETERS = Path(__file__).parent / "parameters"
MEMORY_SUFFIX = ".hbm"
"""The memory of a table's device ``x`` is in the rows of ``x.hbm``."""
PROTOCOLS = ("ll", "ll128", "simple")
"""NCCL's protocols, from the lowest latency to the highest bandwidth."""
SIMPLE = MappingProxyType(
    {
        **dict.fromkeys(("nvlink4", "nvlink4-h800"), "simple-hopper"),
        **dict.fromkeys(("nvlink5", "nvlink5-72"), "simple-blackwell"),
        **dict.fromkeys(("xgmi3", "xgmi4"), "simple-rccl"),
    }
)
"""Rows of ``network.csv`` for the protocol ``simple`` on domains with numbers of their own: a chunk takes
less time to fill on NVLink later than Ampere's, and RCCL has other latencies. Others take ``simple``."""
ADDERS = MappingProxyType(
    {
        **dict.fromkeys(("nvlink4", "nvlink4-h800"), "nvls"),
        **dict.fromkeys(("nvlink5", "nvlink5-72"), "nvls5"),
    }
)
"""Row of the in-switch reduction (`ChunkedAdder`) of a domain; from the third NVSwitch (Hopper) on."""


@dataclass(frozen=True, kw_only=True)
class ReferenceSystem:
    """Surroundings in which an accelerator is sold: nodes, server, cards, and the torus of some."""

    scale_up: str
    """Switched domain inside a node; for accelerators on a torus, a switched domain that replaces it in
    comparisons."""
    host: str
    """Server of its vendor's reference system, or of the same class and time."""
    slow_cards: bool = False
    """Whether network cards have 200 Gb/s or less, rather than 400."""
    torus_link: str = ""
    """Links of accelerators on a torus, which have no nodes; empty for all others."""
    flat_torus: bool = False
    """Whether that torus has two axes (Google Cloud TPU documentation: four links a chip)."""
    whole_bytes: bool = False
    """Whether its 8-bit units multiply integers only (its documentation quotes int8 rates)."""


def _tpu(
    link: str, *, slow_cards: bool = True, flat_torus: bool = False, whole_bytes: bool = True
) -> ReferenceSystem:
    """Return the reference system of a TPU, by its torus links."""
    return ReferenceSystem(
        scale_up="nvlink4",
        host="tpu-v4-host",
        slow_cards=slow_cards,
        torus_link=link,
        flat_torus=flat_torus,
        whole_bytes=whole_bytes,
    )


REFERENCE_SYSTEMS: Mapping[str, ReferenceSystem] = MappingProxyType(
    {
        "v100": ReferenceSystem(scale_up="nvlink2", host="dgx-2", slow_cards=True),
        **dict.fromkeys(
            ("a100", "a100-40gb"), ReferenceSystem(scale_up="nvlink3", host="dgx-a100", slow_cards=True)
        ),
        **dict.fromkeys(
            ("a100-pcie", "rtx-4090"), ReferenceSystem(scale_up="pcie4", host="dgx-a100", slow_cards=True)
        ),
        "l40s": ReferenceSystem(scale_up="pcie4", host="dgx-a100"),
        "a800": ReferenceSystem(scale_up="nvlink4-h800", host="dgx-a100", slow_cards=True),
        **dict.fromkeys(("h100", "h200", "h20"), ReferenceSystem(scale_up="nvlink4", host="dgx-h100")),
        "h800": ReferenceSystem(scale_up="nvlink4-h800", host="dgx-h100"),
        **dict.fromkeys(("b200", "b300"), ReferenceSystem(scale_up="nvlink5", host="dgx-b200")),
        **dict.fromkeys(("gb200", "gb300"), ReferenceSystem(scale_up="nvlink5-72", host="grace-gb200")),
        "mi210": ReferenceSystem(scale_up="xgmi3", host="dgx-a100", slow_cards=True),
        **dict.fromkeys(("mi300x", "mi325x"), ReferenceSystem(scale_up="xgmi3", host="dgx-h100")),
        "mi355x": ReferenceSystem(scale_up="xgmi4", host="dgx-b200"),
        "gaudi2": ReferenceSystem(scale_up="roce-gaudi2", host="dgx-a100", slow_cards=True),
        "gaudi3": ReferenceSystem(scale_up="roce-gaudi3", host="dgx-h100"),
        "trainium1": ReferenceSystem(scale_up="neuronlink2", host="dgx-2", slow_cards=True),
        "trainium2": ReferenceSystem(scale_up="neuronlink3", host="dgx-2"),
        "tpu-v4": _tpu("ici-v4"),
        "tpu-v5e": _tpu("ici-v5e", flat_torus=True),
        "tpu-v5p": _tpu("ici-v5p"),
        "tpu-v6e": _tpu("ici-v6e", flat_torus=True),
        "tpu-v7": _tpu("ici-v7", slow_cards=False, whole_bytes=False),
    }
)
"""System of each accelerator of the table."""


@dataclass(frozen=True, kw_only=True)
class GpuChip(Checked):
    """The die of a GPU, or of a systolic accelerator: units that each work on one tile of a product."""

    name: str = "gpu"
    """Name shown in tables."""
    units: Count
    """Streaming multiprocessors, or matrix units."""
    flops_per_cycle: Positive
    """Dense bf16 operations of one unit in one cycle, two per multiply-accumulate."""
    byte_flops_per_cycle: Positive
    """Dense operations of one unit per cycle with 8-bit operands; the bf16 rate if that is the fastest."""
    nibble_flops_per_cycle: float
    """Dense operations of one unit per cycle with 4-bit operands in blocks; 0 if a chip has no such units."""
    single_flops_per_cycle: Positive
    """Dense operations of one unit per cycle with 32-bit operands, tf32 if a chip has it."""
    sparse_ratio: FromOne = 1.0
    """Rate of products with a 2:4 sparse operand over that of dense ones; 1 for units that skip no zeros."""
    vector_flops_per_cycle: Positive
    """Single-precision operations of one unit's vector lanes in one cycle."""
    exponentials_per_cycle: Positive
    """Exponentials of one unit in one cycle, which a fused attention kernel needs for its softmax."""
    clock_hz: Positive
    """Clock at which the vendor quotes the peak."""
    matmul_efficiency: Efficiency
    """Share of the peak that a unit sustains inside a large tile at the full clock, 0 to 1."""
    byte_efficiency: Efficiency
    """Further factor on that share with operands of 8 bits or fewer, 0 to 1."""
    block_efficiency: Share = 0.0
    """Rate of 8-bit operands with a scale per 32 elements over the rate with a scale per tensor, 0 to 1; 0 if
    units do not support such scales."""
    energy_j_per_flop: Positive
    """Energy of one bf16 operation of a product at the full clock."""
    halved_tile_efficiency: Efficiency
    """Factor on a unit's rate each time the tile is halved, due to less reuse of operands, 0 to 1."""
    store_overlap: Share
    """Share of writing C that hides behind the next tile's arithmetic, 0 to 1."""
    experts_together: Count
    """Kernels of experts' products that run at the same time, one per stream; 1 where a kernel holds every
    unit to its end (persistent kernels)."""
    k_step: Count
    """Inner dimension is padded to multiples of this (of elements of two bytes)."""
    fill_s: float
    """Time to fill a tile's pipeline, once per wave."""
    misaligned_efficiency: Efficiency
    """Share of its rate that a product keeps when its rows are no multiple of 16 bytes, 0 to 1."""
    misaligned_batch_efficiency: Efficiency
    """The same for batched products of activations (attention heads of odd size), 0 to 1."""
    attention_efficiency: Efficiency
    """Share of the peak that the products inside a fused attention kernel reach forward with heads of 128."""
    attention_backward_efficiency: Efficiency
    """Share of the peak that the products inside a fused attention kernel reach backward, 0 to 1."""
    attention_fill_s: float = 0.0
    """Time to begin and end a block of queries in a fused attention kernel, whatever its number of keys; 0
    where `attention_efficiency` is that of whole kernels."""
    attention_backward_fill_s: float = 0.0
    """The same for the backward kernel."""
    launch_s: float
    """Time to start and drain a kernel on the chip."""
    host_launch_s: float
    """Time the host takes to issue one more kernel of an operator."""
    host_operator_s: float
    """Time the host's framework takes to issue an operator: its own work, and the first kernel."""
    l2_bytes: Positive
    """Last-level cache."""
    in_situ_efficiency: Efficiency
    """Share of its isolated rate that a product keeps within a training step, 0 to 1: caches hold data of
    other kernels, and copies use the memory meanwhile."""
    collective_share: Share
    """Share of its rate that compute loses while a collective gathers or sums beside it, 0 to 1; 0 if other
    engines carry out collectives."""
    clock_spread: float
    """Standard deviation of the speed of chips of one type, as a share of the mean."""
    tdp_w: Positive
    """Power limit of the package, memory included."""
    idle_w: float
    """Power when nothing runs, without the memory's static power."""
    active_w: float
    """Power beyond idle, operations and bytes moved while a kernel runs, as far as the limit leaves it:
    clocks, issue of instructions, caches, leakage at the full voltage."""
    area_m2: float
    """Die area."""
    price_usd: float
    """Price of the accelerator with its memory."""

    @property
    def has_tf32(self) -> bool:
        """Whether 32-bit operands are rounded to tf32, whose units have half the rate of those for bf16."""
        return 2.0 * self.single_flops_per_cycle == self.flops_per_cycle


@dataclass(frozen=True, kw_only=True)
class VectorEngine(Checked):
    """Programmable lanes for everything that is not a product."""

    name: str = "vector"
    """Name shown in tables."""
    rate_flop_per_s: Positive
    """Single-precision operations per second."""
    energy_j_per_flop: float
    """Energy of one operation, registers and local memory included."""
    launch_s: float
    """Time to start and drain an operator."""
    static_w: float
    """Leakage and clock power."""
    active_w: float
    """Power beyond that, operations and bytes moved while an operator runs, as that of a GPU."""
    area_m2: float
    """Die area of lanes, local memory and memory controllers."""
    price_usd: float
    """Price of the die with its memory."""


@dataclass(frozen=True, kw_only=True)
class PacketSwitch(Checked):
    """A packet switch of a leaf-and-spine network."""

    name: str = "switch"
    """Name shown in tables."""
    radix: Several
    """Ports of one switch."""
    bandwidth_bytes_per_s: Positive
    """Line rate of one port, one way."""
    latency_s: float
    """Port-to-port latency."""
    port_w: float
    """Power per port, chassis and fans included, optics not."""
    port_price_usd: float
    """Price per port, optics not included."""
    adaptive_efficiency: Efficiency
    """Share of the joint rate of parallel links that adaptive routing reaches, 0 to 1."""
    shipped_spreading: Spreading
    """Spreading of flows over equally short paths as the vendor ships the switch."""
    shipped_queue_pairs: Count
    """Queue pairs between two cards by a communication library's default; each is hashed as a flow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self)

    def item(self, count: int) -> BillItem:
        """Return a number of switches as a line of a bill of materials."""
        return BillItem(
            count=count, w_each=self.radix * self.port_w, usd_each=self.radix * self.port_price_usd
        )


@dataclass(frozen=True, kw_only=True)
class Transceiver(Checked):
    """A pluggable optical module and the fibre behind it."""

    name: str = "transceiver"
    """Name shown in tables."""
    bandwidth_bytes_per_s: Positive
    """Line rate, one way."""
    latency_s: float
    """Time through one module with its error correction."""
    fibre_m: float
    """Length of a link's fibre."""
    group_index: FromOne
    """Group index of the fibre, dimensionless."""
    static_w: float
    """Power of one module."""
    price_usd: float
    """Price of one module; fibres and panels are the cable plant's."""
    fibres: Count
    """Fibres of a link, both directions together."""

    @property
    def link_latency_s(self) -> float:
        """Time from electrical input to electrical output of a link: two modules and the fibre."""
        return 2 * self.latency_s + self.fibre_m * self.group_index / SPEED_OF_LIGHT_M_PER_S

    @property
    def energy_j_per_bit(self) -> float:
        """Energy of one bit through one module at the line rate."""
        return self.static_w / (self.bandwidth_bytes_per_s * BITS_PER_BYTE)

    def item(self, count: int) -> BillItem:
        """Return a number of modules as a line of a bill of materials."""
        return BillItem(
            count=count,
            w_each=self.static_w,
            usd_each=self.price_usd,
            fibre_ends=self.fibres,
            fibre_m=self.fibres * self.fibre_m / 2,
        )


def table(name: str) -> Table:
    """Return a parameter table of this package, read once.

    Parameters
    ----------
    name : str
        ``gpus``, ``vector``, ``network`` or ``hosts``.
    """
    return shipped_table(PARAMETERS / f"{name}.csv")


@cache
def accelerator_names(name: str) -> tuple[str, ...]:
    """Return the devices of a table that have a memory of their own."""
    rows = table(name)
    return tuple(device for device in rows.names if device + MEMORY_SUFFIX in rows.names)


def check_accelerator(name: str, file: str) -> None:
    """Check that a table has an accelerator.

    Raises
    ------
    ParameterError
        If it has none of that name.
    """
    known = accelerator_names(file)
    if name not in known:
        msg = f"{file}.csv has no accelerator '{name}'; {nearest(name, known, noun='accelerator')}"
        raise ParameterError(msg)


def load_memory(name: str, file: str) -> Memory:
    """Return the memory beside an accelerator of a table."""
    return table(file).build(Memory, name + MEMORY_SUFFIX)


def load_scale_up(name: str) -> ScaleUp:
    """Return a switched domain from the network table, e.g. ``"nvlink4"``, with its library's protocols.

    Parameters
    ----------
    name : str
        Device of ``network.csv``.
    """
    rows = table("network")
    domain = rows.build(ScaleUp, name)
    adder = rows.build(ChunkedAdder, ADDERS[name]) if name in ADDERS else None
    return replace(
        domain,
        protocols=tuple(_protocol(protocol, name) for protocol in PROTOCOLS),
        adders=adder.adders(domain.capacity_bytes_per_s) if adder else (),
    )


def _protocol(name: str, domain: str) -> Protocol:
    """Return a protocol of NCCL with a domain's latencies and efficiencies."""
    row = SIMPLE.get(domain, name) if name == PROTOCOLS[-1] else name
    return replace(table("network").build(Protocol, row), name=name)


def scale_up_name(gpu_name: str, accelerators: int = 0) -> str:
    """Return the switched domain of a GPU's node by its name in the network table.

    V100s without switches, which are joined by direct links, have a row for each number of accelerators.
    """
    name = REFERENCE_SYSTEMS[gpu_name].scale_up
    without_switches = f"{name}-of-{accelerators}"
    return without_switches if without_switches in table("network").names else name


load_adder = Shelf(Adder, PARAMETERS / "network.csv")
"""Reduction in switches, e.g. ``"sharp"``."""


load_packet_switch = Shelf(PacketSwitch, PARAMETERS / "network.csv")
"""Packet switches, e.g. ``"switch-400g"``."""


load_transceiver = Shelf(Transceiver, PARAMETERS / "network.csv")
"""Pluggable modules, e.g. ``"dr4-400g"``."""


@cache
def load_host(name: str) -> Host:
    """Return a server from the table, e.g. ``"dgx-h100"``.

    Raises
    ------
    ParameterError
        If there is no such server.
    """
    rows = table("hosts")
    return Host(
        name=name,
        processors=rows.build(Processors, name),
        ddr=rows.build(Memory, f"{name}.ddr"),
        link=rows.build(HostLink, f"{name}.link"),
        storage=rows.build(Storage, f"{name}.storage"),
        chassis=rows.build(Chassis, f"{name}.chassis"),
    )


def host_of(gpu_name: str, accelerators: int) -> Host:
    """Return the server of an accelerator, shared by all that it holds, or by `accelerators` if fewer."""
    host = load_host(REFERENCE_SYSTEMS[gpu_name].host)
    shared = min(host.processors.accelerators, accelerators)
    return replace(host, processors=replace(host.processors, accelerators=shared))


def host_names() -> tuple[str, ...]:
    """Return the servers of the reference systems."""
    return tuple(dict.fromkeys(system.host for system in REFERENCE_SYSTEMS.values()))

"""Published cost and power of networks, recomputed from bills of materials, and causes of differences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

from electronic.devices import load_packet_switch, load_scale_up, load_transceiver
from electronic.fabrics.fat_tree import FatTree, RailOnly, SwitchedDomain
from electronic.fabrics.packets import RailFabric
from electronic.gpu import load_gpu
from experiments.validation.rows import PER_CENT, REFERENCE, Predicted, Record, Rule, SkipError
from heliograph.report import ReportRow, table_text
from heliograph.systems.fabrics import build_fabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.switches import LaneOptics, OpticalSwitch, load_optics, load_switch
from optical.fabrics.transceiver_ring import TransceiverRing
from simulator.tables import Constants, shipped_table
from simulator.topology.scale_up import BillItem, ScaleUp, load_nic
from simulator.topology.torus import TPU_V4
from simulator.units import BITS_PER_BYTE


class Spent(StrEnum):
    """Quantity of a network that a row compares."""

    POWER = "power"
    COST = "cost"
    CAPEX = "capex"


Parts = Mapping[str, BillItem]
SWITCHING = ("transceiver", "packet switch", "optical lane", "optical switch")
"""Items between the network cards, which the papers call the network."""
RAIL_ONLY_GPUS = (32768, 65536)
"""Clusters of the rail-only paper's Table II (secondary)."""
RAIL_ONLY_RADIX = (64, 128, 256)
"""Radix of their switches; dimensionless (recalled)."""
RAIL_ONLY_DOMAIN = 256
"""Accelerators of a domain there (recalled: DGX GH200)."""
OPUS_GPUS = 1024
"""Cluster at which Opus is recomputed: the largest whose rails fit one switch."""
TOPOOPT_SERVERS = (128, 432, 1024, 2000)
"""Clusters over which TopoOpt's ratio is averaged; the paper's are not known exactly."""
TOPOOPT_DEGREE = 4
"""Interfaces of a server; dimensionless (NSDI 2023, d = 4)."""
SIRIUS_PORTS = 4096
"""Servers of the Sirius comparison; any of three levels."""
SIRIUS_UPLINKS = 1.5
"""Uplinks of Sirius over those of a non-blocking network, for its detours; dimensionless (recalled)."""
MIXNET_GPUS = 1024
"""Cluster at which MixNet is recomputed."""
MIXNET_ELECTRICAL = 2
"""Cards of eight that stay on packet switches; the others are on circuits (recalled)."""
CARD_BITS_PER_S = load_transceiver("dr4-400g").bandwidth_bytes_per_s * BITS_PER_BYTE
"""Rate of a card's module in both networks of Opus."""
DOUBLE_DETOUR = 2.0
"""Uplinks of Sirius over those of a non-blocking network if every byte takes two hops; dimensionless."""
PRICES = MappingProxyType(
    {
        "switches": "switch_usd",
        "transceivers": "transceiver_usd",
        "cables": "cable_usd",
        "fibres": "fibre_usd",
    }
)
"""Price in `paper_parts` by part that a paper counts for an accelerator."""


def paper_parts(name: str) -> Constants:
    """Return the parts that a paper counts per accelerator: of ``nvl-72`` or of ``infinite-hbd``.

    ``rate_bytes_per_s`` is the rate of an accelerator by which the paper divides.
    """
    return shipped_table(REFERENCE / "paper_parts.csv").constants(name)


def paper_usd(name: str) -> float:
    """Return the price of `paper_parts` per accelerator, with the paper's prices."""
    parts = paper_parts(name).values
    return sum(count * parts[PRICES[part]] for part, count in parts.items() if part in PRICES)


@dataclass(frozen=True, kw_only=True)
class RingPrices:
    """Prices of a ring of switching transceivers (InfiniteHBD) and of a switched domain of 72 (NVL-72)."""

    paper: float
    """Ring over domain per byte a second, with the paper's parts and prices."""
    as_built: float
    """Ring over domain, by the bills of the fabrics that ship."""
    same_rate: float
    """Ring over domain by those bills, per byte a second that an accelerator sends."""
    ring_usd: float
    """Price of the ring that ships, per accelerator."""
    domain_usd: float
    """Price of the domain that ships, per accelerator."""
    paper_ring_usd: float
    """Price of the paper's ring, per accelerator."""
    paper_domain_usd: float
    """Price of the paper's domain, per accelerator."""


def ring_prices() -> RingPrices:
    """Return the prices of both networks by the paper, and by our bills for as many accelerators."""
    domain = load_scale_up("nvlink5-72")
    switched, ring = SwitchedDomain(endpoints=domain.size), TransceiverRing(endpoints=domain.size)
    # A ring sends both ways around, over the lanes of either end of a node.
    ring_rate = 2 * ring.lanes * ring.optics.bandwidth_bytes_per_s
    as_built = ring.cost_usd / switched.cost_usd
    paper_ring_usd, paper_domain_usd = paper_usd("infinite-hbd"), paper_usd("nvl-72")
    ring_usd_per_rate = paper_ring_usd / paper_parts("infinite-hbd").rate_bytes_per_s
    domain_usd_per_rate = paper_domain_usd / paper_parts("nvl-72").rate_bytes_per_s
    return RingPrices(
        paper=ring_usd_per_rate / domain_usd_per_rate,
        as_built=as_built,
        same_rate=as_built * domain.bandwidth_bytes_per_s / ring_rate,
        ring_usd=ring.cost_usd / domain.size,
        domain_usd=switched.cost_usd / domain.size,
        paper_ring_usd=paper_ring_usd,
        paper_domain_usd=paper_domain_usd,
    )


def _infinite_hbd(record: Record, _: re.Match[str]) -> Predicted:
    """Return the price of a ring of switching transceivers over that of a switched domain of 72."""
    prices = ring_prices()
    record.assume(
        "the paper's parts and prices for each GB/s (recalled): 18 switches and 5184 cables, 4 transceivers"
    )
    hint = (
        f"{prices.as_built:.0%} by the bills of hbd_ring and nvlink, {prices.same_rate:.0%} at the "
        f"same rate: our ring costs {prices.ring_usd:.0f} USD an accelerator "
        f"(theirs {prices.paper_ring_usd:.0f}), our domain {prices.domain_usd:.0f} "
        f"(theirs {prices.paper_domain_usd:.0f})"
    )
    return Predicted(prices.paper, hint)


def paper_prices(name: str) -> Constants:
    """Return the prices that a paper gives for its comparison: ``rail-only`` or ``topoopt``.

    Of a module, of a port of a packet switch, and for ``topoopt`` of a card, of a port of a remote-controlled
    patch panel, and of a splitter: a 1x2 optical switch, by which a port looks ahead to the next topology.
    """
    return shipped_table(REFERENCE / "paper_prices.csv").constants(name)


def network_w(bill: Parts, items: Sequence[str] = SWITCHING) -> float:
    """Return the power of some items of a bill; by default of all between the network cards."""
    return math.fsum(item.count * item.w_each for name, item in bill.items() if name in items)


def network_usd(bill: Parts, items: Sequence[str] = SWITCHING) -> float:
    """Return the price of some items of a bill; by default of all between the network cards."""
    return math.fsum(item.count * item.usd_each for name, item in bill.items() if name in items)


def priced(bill: Parts, prices: Constants, radix: int) -> float:
    """Return the price of transceivers and packet switches with a paper's prices, a port at a time."""
    switch_usd = bill["packet switch"].count * radix * prices.port_usd
    return bill["transceiver"].count * prices.transceiver_usd + switch_usd


@dataclass(frozen=True, kw_only=True)
class RailOnlySaving:
    """Shares that a rail-only network saves against a full fat-tree, for one cluster."""

    power: float
    """Saved share of the power."""
    cost: float
    """Saved share of the cost with the prices that ship."""
    paper_cost: float
    """Saved share of the cost with the prices of the paper."""


def rail_only_savings() -> list[RailOnlySaving]:
    """Return the savings of the paper's clusters, by radix of the switches and number of GPUs."""
    domain = replace(load_scale_up("nvlink4"), size=RAIL_ONLY_DOMAIN)
    prices = paper_prices("rail-only")
    savings = []
    for radix in RAIL_ONLY_RADIX:
        switch = replace(load_packet_switch("switch-400g"), radix=radix)
        for gpus in RAIL_ONLY_GPUS:
            whole = FatTree(endpoints=gpus, scale_up=domain, switch=switch).bill()
            rails = RailOnly(endpoints=gpus, scale_up=domain, switch=switch).bill()
            savings.append(
                RailOnlySaving(
                    power=1.0 - network_w(rails) / network_w(whole),
                    cost=1.0 - network_usd(rails) / network_usd(whole),
                    paper_cost=1.0 - priced(rails, prices, radix) / priced(whole, prices, radix),
                )
            )
    return savings


def _rail_only(record: Record, found: re.Match[str]) -> Predicted:
    """Return the least or the greatest saving of rail-only over the clusters of the paper."""
    savings = rail_only_savings()
    choose = max if record.text("end") == "high" else min
    record.assume(f"{RAIL_ONLY_GPUS} GPUs, radix {RAIL_ONLY_RADIX}, domains of {RAIL_ONLY_DOMAIN}")
    if Spent(found[1]) is Spent.POWER:
        return Predicted(
            choose(one.power for one in savings),
            "a module of 8 W beside a port of 12 W; both ends fit a ratio of 0.5",
        )
    ours = choose(one.cost for one in savings)
    record.assume("prices of the paper: 199 USD a module, 694 USD a port")
    return Predicted(choose(one.paper_cost for one in savings), f"{ours:.1%} with our own prices")


class OpusRatio(NamedTuple):
    """Power or cost of packet rails over that of photonic rails; dimensionless."""

    with_cards: float
    """With the modules at the network cards, in both networks."""
    without_cards: float
    """Without them, in both networks."""


def opus_ratio(total: Callable[[Parts], float]) -> OpusRatio:
    """Return the ratio of a total, `network_w` or `network_usd`, of both networks' bills."""
    ratios = []
    for cards in (True, False):
        packet, optical = opus_bills(cards=cards)
        ratios.append(total(packet) / total(optical))
    return OpusRatio(*ratios)


def opus_bills(*, cards: bool = True) -> tuple[Parts, Parts]:
    """Return the bills of packet rails and of photonic rails, with the modules at the cards or without."""
    scale_up = load_scale_up("nvlink4")
    packet = RailFabric(endpoints=OPUS_GPUS, scale_up=scale_up).bill()
    optics = load_optics("lane-100g-duplex")
    optical = _rails(OPUS_GPUS, scale_up, load_switch("polatis-piezo"), optics).bill()
    if cards:
        return packet, optical
    modules = packet["transceiver"]
    bare = {**packet, "transceiver": replace(modules, count=modules.count - OPUS_GPUS)}
    return bare, {"optical switch": optical["optical switch"]}


def _rails(gpus: int, scale_up: ScaleUp, switch: OpticalSwitch, optics: LaneOptics) -> OcsRails:
    # One duplex fibre for each card: a module of all lanes on one wavelength each, one port of the switch.
    wide = replace(
        optics,
        bandwidth_bytes_per_s=4 * optics.bandwidth_bytes_per_s,
        electronics_w=4 * optics.electronics_w,
        laser_efficiency=optics.laser_efficiency / 4,
        price_usd=4 * optics.price_usd,
    )
    return OcsRails(endpoints=gpus, scale_up=scale_up, switch=switch, optics=wide, lanes=1)


def _opus_ratio(record: Record, found: re.Match[str]) -> Predicted:
    """Return packet rails over photonic rails, the modules at the cards counted in both."""
    spent = Spent(found[1])
    ratio = opus_ratio(network_w if spent is Spent.POWER else network_usd)
    record.assume(f"{OPUS_GPUS} GPUs, Polatis 384, a duplex port a card; the paper's parts unknown")
    if spent is Spent.POWER:
        left_w = network_w(opus_bills()[0]) / OPUS_GPUS / (record.number("value") or 1.0)
        return Predicted(
            ratio.with_cards,
            (
                f"the published ratio leaves {left_w:.1f} W a card, less than a pluggable 400G module draws: "
                "it cannot count the modules at the cards, which both networks need; without them ours is "
                f"{ratio.without_cards:.0f}"
            ),
        )
    return Predicted(ratio.with_cards, f"{ratio.without_cards:.1f} without the modules at the cards")


def topoopt_ratio(servers: int, *, cards: float = 1.0, ahead: bool = True) -> float:
    """Return the price of an ideal switch's stand-in over that of TopoOpt, with the paper's prices.

    Parameters
    ----------
    servers : int
        Servers of the cluster.
    cards : float
        Cards for each interface; dimensionless.
    ahead : bool
        Whether each interface looks ahead to the next topology: a second panel port and a 1x2 switch.

    The stand-in is a full fat-tree of the same bandwidth; TopoOpt has a patch-panel port and a 1x2 switch
    for each interface, twice the ports for the look-ahead.
    """
    prices, degree = paper_prices("topoopt"), TOPOOPT_DEGREE
    switch = load_packet_switch("switch-100g")
    scale_up = replace(load_scale_up("nvlink4"), size=1)
    tree = FatTree(
        endpoints=servers * degree,
        scale_up=scale_up,
        switch=switch,
        transceiver=load_transceiver("sr4-100g"),
    ).bill()
    cards_usd = cards * servers * degree * prices.nic_usd
    ports = prices.transceiver_usd + (1 + ahead) * prices.panel_port_usd + ahead * prices.splitter_usd
    return (cards_usd + priced(tree, prices, switch.radix)) / (cards_usd + servers * degree * ports)


def topoopt_mean(*, cards: float = 1.0, ahead: bool = True) -> float:
    """Return the mean of `topoopt_ratio` over the clusters of `TOPOOPT_SERVERS`."""
    ratios = [topoopt_ratio(servers, cards=cards, ahead=ahead) for servers in TOPOOPT_SERVERS]
    return math.fsum(ratios) / len(ratios)


def _topoopt(record: Record, _: re.Match[str]) -> Predicted:
    record.assume(f"mean over {TOPOOPT_SERVERS} servers of degree {TOPOOPT_DEGREE}; its prices, recalled")
    hint = (
        f"a card of 678 USD for each interface weighs on both sides: {topoopt_mean(cards=0.5):.1f} "
        f"with one for two interfaces, {topoopt_mean(cards=0.0):.1f} without"
    )
    return Predicted(topoopt_mean(), hint)


def jupiter_savings() -> tuple[float, float]:
    """Return the shares of power and price that Jupiter saves without its spine, by uplink of a block.

    An uplink has two modules and leads up through a block of two stages, which takes two ports below and two
    above (Singh et al., "Jupiter Rising", SIGCOMM 2015: aggregation and spine blocks of two stages). With
    circuits, the spine's ports and its module give way to one duplex port of an optical switch.
    """
    switch, module = load_packet_switch("switch-400g"), load_transceiver("dr4-400g")
    circuits = load_switch("palomar-mems")
    block, spine, modules = 4, 3, 4
    circuit_w, circuit_usd = circuits.static_w / circuits.usable_ports, circuits.port_price_usd
    clos_w = (block + spine) * switch.port_w + modules * module.static_w
    clos_usd = (block + spine) * switch.port_price_usd + modules * module.price_usd
    saved_w = spine * switch.port_w + module.static_w - circuit_w
    saved_usd = spine * switch.port_price_usd + module.price_usd - circuit_usd
    return saved_w / clos_w, saved_usd / clos_usd


def _jupiter(record: Record, found: re.Match[str]) -> Predicted:
    """Return the share that direct connection through circuits saves against a Clos network."""
    power, price = jupiter_savings()
    record.assume("blocks of two stages without oversubscription, racks' switches and servers' cables apart")
    record.assume("400G parts of today; circulators: one port of Palomar for both directions of an uplink")
    if Spent(found[1]) is Spent.POWER:
        return Predicted(power, "the paper's switches of several generations are not ours")
    return Predicted(price, "520 USD a circuit port (recalled) and our prices of modules")


def tpu_optics() -> tuple[float, float]:
    """Return power and price of TPU v4's circuit switches and the modules at its cubes."""
    switch, optics = load_switch("palomar-mems"), load_optics("lane-100g-duplex")
    lanes = 4 * TPU_V4.fibres
    laser_w = _rails(8, load_scale_up("nvlink4"), switch, optics).budget.laser_w
    power_w = TPU_V4.switches * switch.static_w + TPU_V4.fibres * (4 * optics.electronics_w + laser_w)
    price_usd = TPU_V4.switches * switch.ports * switch.port_price_usd + lanes * optics.price_usd
    return power_w, price_usd


def _tpu_share(record: Record, found: re.Match[str]) -> Predicted:
    """Return the share of optics in the power or the price of chips and optics."""
    chip = load_gpu("tpu-v4")
    power_w, price_usd = tpu_optics()
    record.assume("chips and optics alone make the system: no hosts, racks or cooling, so ours is too large")
    record.assume("published as an upper bound")
    if Spent(found[1]) is Spent.POWER:
        share = power_w / (power_w + TPU_V4.nodes * chip.chip.tdp_w)
        module_w = (power_w - TPU_V4.switches * load_switch("palomar-mems").static_w) / TPU_V4.fibres
        rest_w = (1.0 / _bound(record) - 1.0) * power_w / TPU_V4.nodes
        return Predicted(
            share,
            (
                f"{module_w:.1f} W a 400G module of ours beside {chip.chip.tdp_w:g} W a chip; the bound "
                f"holds from {rest_w:.0f} W a chip with its share of hosts and cooling"
            ),
        )
    share = price_usd / (price_usd + TPU_V4.nodes * chip.price_usd)
    rest_usd = (1.0 / _bound(record) - 1.0) * price_usd / TPU_V4.nodes
    return Predicted(
        share,
        (
            f"modules at 880 USD as resold (ours), and a chip at {chip.price_usd:,.0f} USD without its host; "
            f"the bound holds from {rest_usd:,.0f} USD a chip with all around it"
        ),
    )


def _bound(record: Record) -> float:
    return (record.number("value") or 1.0) * PER_CENT


def _infiniband(record: Record, _: re.Match[str]) -> Predicted:
    """Return the switches of a fat-tree that gives every chip of TPU v4 a port."""
    tree = FatTree(
        endpoints=TPU_V4.nodes,
        nic=load_nic("connectx-6"),
        switch=load_packet_switch("switch-200g"),
        transceiver=load_transceiver("dr4-200g"),
    )
    record.assume("switches of 40 ports of 200G; spines of whole pods, cores without spares")
    return Predicted(float(tree.switches), "the vendor's scalable units leave ports free")


def sirius_saving(levels: int, *, racks: bool, uplinks: float = SIRIUS_UPLINKS) -> float:
    """Return the share of power that Sirius saves against packet switches of some levels.

    Parameters
    ----------
    levels : int
        Levels of packet switches; each adds to a port what the third adds in our bill of a fat-tree.
    racks : bool
        Whether the racks' switches count, which stay in Sirius.
    uplinks : float
        Uplinks over those of a non-blocking network; dimensionless.
    """
    gratings, module = load_switch("awgr-laser"), load_transceiver("dr4-400g")
    port_w = load_packet_switch("switch-400g").port_w
    trees = [_tree_w(endpoints) for endpoints in (SIRIUS_PORTS // 4, SIRIUS_PORTS)]
    electrical_w = trees[1] + (levels - 3) * (trees[1] - trees[0])
    sirius_w = uplinks * (module.static_w + gratings.static_w / gratings.ports)
    return 1.0 - (sirius_w + racks * (1.0 + uplinks) * port_w) / electrical_w


def _tree_w(endpoints: int) -> float:
    """Return the power of a full fat-tree for each of its endpoints, one accelerator a node."""
    alone = replace(load_scale_up("nvlink4"), size=1)
    tree = FatTree(endpoints=endpoints, scale_up=alone, transceiver=load_transceiver("dr4-400g"))
    return network_w(tree.bill()) / endpoints


def _sirius(record: Record, _: re.Match[str]) -> Predicted:
    """Return the share of power that Sirius, gratings with tunable lasers, saves against packet switches."""
    record.assume(f"{SIRIUS_PORTS} servers at 400G; {SIRIUS_UPLINKS} uplinks each for detours (recalled)")
    record.assume("a tunable laser draws half a watt more than a fixed one (assumed)")
    hint = f"{sirius_saving(3, racks=True):.0%} if racks' switches, which stay in Sirius, are counted"
    return Predicted(sirius_saving(3, racks=False), hint)


def _mixnet(record: Record, _: re.Match[str]) -> Predicted:
    """Return the price of a fat-tree over MixNet's: some cards on packet switches, the others on circuits."""
    fast = "400" in record.text("config")
    module = load_transceiver("dr4-400g" if fast else "sr4-100g")
    packet = load_packet_switch("switch-400g" if fast else "switch-100g")
    if not fast and "100" not in record.text("config"):
        msg = "names neither 100 nor 400 Gb/s links"
        raise SkipError(msg)
    circuits = load_switch("polatis-piezo")
    cards = 8
    share = MIXNET_ELECTRICAL / cards
    tree = FatTree(endpoints=MIXNET_GPUS, switch=packet, transceiver=module).bill()
    whole = network_usd(tree)
    electrical = FatTree(endpoints=round(MIXNET_GPUS * share), switch=packet, transceiver=module).bill()
    optical_usd = MIXNET_GPUS * (1.0 - share) * (module.price_usd + circuits.port_price_usd)
    card_usd = MIXNET_GPUS * (load_nic("connectx-7").price_usd if fast else paper_prices("topoopt").nic_usd)
    record.assume(f"{MIXNET_GPUS} GPUs, {MIXNET_ELECTRICAL} of 8 cards on packet switches (recalled)")
    record.assume("iterations as fast as on the fat-tree: cost efficiency is the ratio of prices with cards")
    return Predicted(
        (whole + card_usd) / (network_usd(electrical) + optical_usd + card_usd),
        f"our prices of 400G parts; {mixnet_bills():.2f} by the bills of fat_tree and regional_ocs at 400G",
    )


def mixnet_bills() -> float:
    """Return the price of the fat-tree that ships over that of regional circuits, both without nodes."""
    tree, regional = (build_fabric(name, MIXNET_GPUS, "h100") for name in ("fat_tree", "regional_ocs"))
    inside_usd = MIXNET_GPUS * load_scale_up("nvlink4").price_usd
    return (tree.cost_usd - inside_usd) / (regional.cost_usd - inside_usd)


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("Rail-only$", "network (cost|power) reduction"): _rail_only,
        ("Opus photonic rails$", "(?:network )?(power|cost)$"): _opus_ratio,
        ("TopoOpt$", "Ideal switch cost / TopoOpt cost$"): _topoopt,
        ("Jupiter Evolving$", "(capex|power)$"): _jupiter,
        ("TPU v4$", r"OCS\+optics share of system (cost|power)$"): _tpu_share,
        ("TPU v4$", "IB switches to replace 48 OCSes$"): _infiniband,
        ("Sirius$", "power vs ideal electrical non-blocking$"): _sirius,
        (r"MixNet", "cost efficiency vs fat-tree$"): _mixnet,
        ("InfiniteHBD$", "cost vs NVL-72$"): _infinite_hbd,
    }
)
"""Rules by patterns of a row's system and metric."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Our value of a published ratio with one assumption changed."""

    claim: str
    """System and metric."""
    published: str
    """Published value, as text."""
    change: str
    """Changed assumption; all others are as they stand."""
    value: float
    """Our value with this change; dimensionless."""

    @property
    def text(self) -> str:
        """The value as text, in per cent if it is published so."""
        return f"{self.value:.1%}" if "%" in self.published else f"{self.value:.2f}"


def _opus_changes(total: Callable[[Parts], float]) -> Mapping[str, float]:
    """Return packet rails over photonic rails, in a total of their bills, by changed assumption."""
    packet, optical = opus_bills()
    bare_packet, bare_optical = opus_bills(cards=False)
    found = {"as it stands: 400G modules with signal processors at all cards": total(packet) / total(optical)}
    for name, kind in (("lpo-800g", "linear modules"), ("cpo-1600g", "co-packaged optics")):
        module = load_transceiver(name)
        part = CARD_BITS_PER_S / (BITS_PER_BYTE * module.bandwidth_bytes_per_s)
        lanes = replace(
            optical["optical lane"], w_each=part * module.static_w, usd_each=part * module.price_usd
        )
        changed = {**optical, "optical lane": lanes}
        found[f"{kind} at the cards of photonic rails alone"] = total(packet) / total(changed)
    found["no module at a card counted, on either side"] = total(bare_packet) / total(bare_optical)
    mems = load_switch("palomar-mems")
    port = replace(
        optical["optical switch"],
        count=OPUS_GPUS,
        w_each=mems.static_w / mems.usable_ports,
        usd_each=mems.ports * mems.port_price_usd / mems.usable_ports,
    )
    found["Palomar's ports instead of Polatis's"] = total(packet) / total({**optical, "optical switch": port})
    return found


def _sirius_changes() -> Mapping[str, float]:
    """Return the share of power that Sirius saves, by changed assumption."""
    return {
        "as it stands: three levels, racks' switches on neither side": sirius_saving(3, racks=False),
        "two uplinks for each, all traffic by detours": sirius_saving(3, racks=False, uplinks=DOUBLE_DETOUR),
        "racks' switches counted": sirius_saving(3, racks=True),
        "racks' switches counted, four levels of packet switches": sirius_saving(4, racks=True),
        "racks' switches counted, five levels": sirius_saving(5, racks=True),
    }


def _tpu_changes(spent: Spent) -> Mapping[str, float]:
    """Return the share of TPU v4's optics in its power or its price, by changed assumption."""
    power_w, price_usd = tpu_optics()
    chip, switch = load_gpu("tpu-v4"), load_switch("palomar-mems")
    if spent is Spent.POWER:
        linear_w = TPU_V4.fibres * load_transceiver("lpo-800g").static_w / 2
        linear_w += TPU_V4.switches * switch.static_w
        changes = {
            "as it stands: 400G modules with signal processors, chips alone": (power_w, chip.chip.tdp_w),
            "modules of linear drive": (linear_w, chip.chip.tdp_w),
            "a chip with host and cooling at twice the chip": (power_w, 2 * chip.chip.tdp_w),
            "both": (linear_w, 2 * chip.chip.tdp_w),
        }
    else:
        lane_usd = paper_prices("topoopt").transceiver_usd
        switches_usd = TPU_V4.switches * switch.ports * switch.port_price_usd
        cheap_usd = switches_usd + 4 * TPU_V4.fibres * lane_usd
        changes = {
            "as it stands: resold modules, chips alone": (price_usd, chip.price_usd),
            f"a lane of 100G at {lane_usd:.0f} USD, TopoOpt's 100G module": (cheap_usd, chip.price_usd),
            "a chip with host and rack at twice the chip": (price_usd, 2 * chip.price_usd),
            "both": (cheap_usd, 2 * chip.price_usd),
            "switches alone, no module counted": (switches_usd, chip.price_usd),
        }
    return {change: optics / (optics + TPU_V4.nodes * each) for change, (optics, each) in changes.items()}


def _infinite_hbd_changes() -> Mapping[str, float]:
    """Return the price of InfiniteHBD's ring over that of a switched domain, by changed assumption."""
    prices = ring_prices()
    return {
        "the paper's parts and prices for each GB/s": prices.paper,
        "the same for an accelerator": prices.paper_ring_usd / prices.paper_domain_usd,
        "our bills for an accelerator": prices.as_built,
        "our ring over the paper's domain": prices.ring_usd / prices.paper_domain_usd,
        "the paper's ring over our domain": prices.paper_ring_usd / prices.domain_usd,
        "our bills at the same rate": prices.same_rate,
    }


def _topoopt_changes() -> Mapping[str, float]:
    """Return the price of an ideal switch's stand-in over TopoOpt's, by changed assumption."""
    return {
        "as it stands: a card for each interface": topoopt_mean(),
        "a card for two interfaces": topoopt_mean(cards=0.5),
        "no cards": topoopt_mean(cards=0.0),
        "one panel port and no look-ahead": topoopt_mean(ahead=False),
        "both: a card for two, no look-ahead": topoopt_mean(cards=0.5, ahead=False),
    }


CHANGES: Mapping[tuple[str, str], Callable[[], Mapping[str, float]]] = MappingProxyType(
    {
        ("Opus, network power", "23"): partial(_opus_changes, network_w),
        ("Opus, network cost", "4"): partial(_opus_changes, network_usd),
        ("Sirius, power less", "74 to 77 %"): _sirius_changes,
        ("TPU v4, optics' share of cost", "< 5 %"): partial(_tpu_changes, Spent.COST),
        ("TPU v4, optics' share of power", "< 3 %"): partial(_tpu_changes, Spent.POWER),
        ("InfiniteHBD over NVL-72, cost", "31 %"): _infinite_hbd_changes,
        ("TopoOpt, ideal switch over it", "3.2, recalled"): _topoopt_changes,
    }
)
"""By claim that our bills miss and its published value: our values by changed assumption."""


@cache
def differences() -> tuple[Difference, ...]:
    """Return all changes of all claims that our bills miss."""
    return tuple(
        Difference(claim=claim, published=published, change=change, value=value)
        for (claim, published), changes in CHANGES.items()
        for change, value in changes().items()
    )


def differences_text(found: Iterable[Difference]) -> str:
    """Return differences as a table."""
    rows, claim = [], ""
    for difference in found:
        label = f"    {difference.change}"
        if difference.claim != claim:
            claim = difference.claim
            label = f"{claim} ({difference.published}): {difference.change}"
        rows.append(ReportRow(label, (difference.text,)))
    title = "What explains the difference: our bills with one assumption changed at a time"
    return table_text(title, ("ours",), rows, dense=True)

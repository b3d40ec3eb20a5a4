"""Fabrics of circuits with the parts of them that fail in tests, and the linear program that bounds them."""

from dataclasses import replace

import numpy as np
import simpy
from scipy.optimize import linprog

from electronic.devices import load_packet_switch, load_scale_up, load_transceiver
from electronic.fabrics.fat_tree import FatTree
from electronic.fabrics.torus import TorusFabric
from optical.fabrics.cubes import CubeFabric
from optical.fabrics.in_network_reduction import OpticalReduction
from optical.fabrics.node_circuits import DirectConnect, HybridFabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.rotor import Relaying, RotorFabric
from optical.fabrics.transceiver_ring import TransceiverRing
from optical.fabrics.wafer import WaferFabric
from simulator.collectives.traffic import play
from simulator.engine.network import FlowGroup, Network
from simulator.fabric import CircuitPolicy
from simulator.interfaces import Flows
from simulator.topology.scale_up import load_nic

N = 16
FOURS = replace(load_scale_up("nvlink4"), size=4)
SIZE = 1e10
RAILS = OcsRails(endpoints=N, scale_up=FOURS)
THIN = FatTree(
    endpoints=N,
    scale_up=FOURS,
    nic=load_nic("connectx-6-dx"),
    switch=load_packet_switch("switch-100g"),
    transceiver=load_transceiver("dr1-100g"),
)
HYBRID = HybridFabric(packets=THIN, degree=3)
CUBES = CubeFabric(endpoints=N, x=4, y=4)
RING = TransceiverRing(endpoints=N, node=2, hops=3)
WAFER = WaferFabric(packets=FatTree(endpoints=N, scale_up=replace(FOURS, size=N, adders=())))
COLUMNS = np.arange(N).reshape(4, 4).T
SHIFT = np.arange(N), (np.arange(N) + 4) % N
"""Every accelerator to the one in its place in the next node of four, or in the next row of a torus."""
PAIR = np.array([0]), np.array([4])
CASES = {
    "rails": (RAILS, {"ports": (0,)}, SHIFT),
    "rails, static": (replace(RAILS, policy=CircuitPolicy.STATIC), {"ports": (1, 2)}, SHIFT),
    "rails, card": (RAILS, {"ports": (0, 1, 2, 3)}, SHIFT),
    "rails, static, card": (replace(RAILS, policy=CircuitPolicy.STATIC), {"ports": (0, 1, 2, 3)}, SHIFT),
    "rails, no lane in common": (RAILS, {"ports": (0, 1, 18, 19)}, SHIFT),
    "rails, link": (RAILS, {"links": (0,)}, SHIFT),
    "direct": (DirectConnect(endpoints=N, scale_up=FOURS, degree=2), {"ports": (0,)}, SHIFT),
    "direct, link": (DirectConnect(endpoints=N, scale_up=FOURS, degree=2), {"links": (0,)}, SHIFT),
    "hybrid": (HYBRID, {"ports": (0, 1, 2)}, SHIFT),
    "hybrid, link": (HYBRID, {"links": (0,)}, SHIFT),
    "wafer": (WAFER, {"ports": tuple(range(WAFER.wafer.lanes - 1))}, SHIFT),
    "ring": (RING, {"ports": (1,)}, PAIR),
    "ring, link": (RING, {"links": (2,)}, PAIR),
    "cubes": (CUBES, {"links": (0, 1)}, SHIFT),
    "cubes, switch": (CUBES, {"links": tuple(CUBES.switch_links(0).tolist())}, SHIFT),
    "optical reduction": (OpticalReduction(packets=THIN), {"links": (2 * N,)}, SHIFT),
    "torus": (TorusFabric(endpoints=N, x=4, y=4), {"links": (0, 1)}, SHIFT),
    "fat-tree": (THIN, {"links": (2 * N,)}, SHIFT),
    "rotor": (RotorFabric(endpoints=N, scale_up=FOURS, lanes=2), {"links": (0,)}, SHIFT),
    "sirius": (
        RotorFabric(endpoints=N, scale_up=FOURS, lanes=2, relaying=Relaying.ALWAYS),
        {"links": (N + 4,)},
        SHIFT,
    ),
}


def wired(fabric, circuits):
    """Return all links of a fabric with their present ends."""
    return fabric.wired(circuits)


def traffic(pairs, axis="dp", size=SIZE):
    groups = COLUMNS if pairs is SHIFT else None
    return Flows(sources=pairs[0], destinations=pairs[1], size_bytes=size, axis=axis, groups=groups)


def run(fabric, flows, failures=()):
    """Return when flows have arrived, and the network they leave behind."""
    env = simpy.Environment()
    network = Network(env, fabric, (flows,), failures=failures)
    flow_group = FlowGroup(index=network.number(), flows=flows, demand=(flows,))
    ended = []

    def carry():
        yield from network.carry(flow_group, flows.size_bytes, 1)
        ended.append(env.now)

    env.process(carry())
    play(network)
    network.check_nothing_waits()
    return ended[0], network


def most_bytes_per_s(wiring, flows, dead=()):
    """Return the greatest rate that all flows can have at once, whatever ways they take and share.

    Notes
    -----
    Maximum concurrent flow (Shahrokhi, Matula, J. ACM 37, 1990), one commodity a source, as a linear program.
    """
    capacity = wiring.capacity_bytes_per_s.astype(float).copy()
    capacity[list(dead)] = 0.0
    sources = np.unique(flows.sources)
    links, vertices = wiring.links, max(wiring.vertices, flows.destinations.max() + 1)
    incidence = np.zeros((vertices, links))
    np.add.at(incidence, (wiring.tails, np.arange(links)), 1.0)
    np.add.at(incidence, (wiring.heads, np.arange(links)), -1.0)
    balance = np.zeros((len(sources) * vertices, len(sources) * links + 1))
    for place, source in enumerate(sources):
        rows = slice(place * vertices, (place + 1) * vertices)
        balance[rows, place * links : (place + 1) * links] = incidence
        ends = flows.destinations[flows.sources == source]
        balance[place * vertices + source, -1] -= len(ends)
        np.add.at(balance[:, -1], place * vertices + ends, 1.0)
    scale = capacity.max()
    shared = np.hstack([np.tile(np.eye(links), len(sources)), np.zeros((links, 1))])
    cost = np.zeros(balance.shape[1])
    cost[-1] = -1.0
    found = linprog(cost, A_ub=shared, b_ub=capacity / scale, A_eq=balance, b_eq=np.zeros(len(balance)))
    return float(found.x[-1]) * scale

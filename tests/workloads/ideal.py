"""Ideal hardware on which plans show their laws: products at a fixed rate, a switch that never blocks."""

from dataclasses import dataclass

import numpy as np

from simulator.engine.simulation import Simulation
from simulator.fabric import Fabric
from simulator.interfaces import Bound, Cost, LinkGraph
from simulator.node import Memory, Node
from simulator.operators import Elementwise, MatMul, Sequence
from workloads.layers.transformer import model_flops
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import Attention
from workloads.plan.plan import Plan
from workloads.step.step import build_step

RATE = 1e12


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Products at a fixed rate, everything else for nothing."""

    name: str = "unit"
    static_w: float = 0.0

    def accepts(self, operator):
        return isinstance(operator, MatMul | Elementwise)

    def cost(self, operator):
        work = operator.flops if isinstance(operator, MatMul) else 0.0
        return Cost(time_s=work / RATE, bound=Bound.COMPUTE)

    def numerics(self, phase):
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Star(Fabric):
    """Every endpoint has one port into a switch that never blocks."""

    endpoints: int
    port: float = 1e30
    name: str = "star"
    static_w: float = 0.0

    def graph(self, circuits):
        capacity = np.full(2 * self.endpoints, self.port)
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.zeros(capacity.size))

    def route(self, circuits, flows):
        return np.stack([flows.sources, self.endpoints + flows.destinations], axis=1)

    def transfer_energy_j(self, flows):
        return 0.0


NODE = Node(
    name="node",
    units=(Unit(),),
    memory=Memory(
        capacity_bytes=1e12, bandwidth_bytes_per_s=1e12, efficiency=1.0, energy_j_per_byte=0.0, static_w=0.0
    ),
    peak_flop_per_s=RATE,
)

# Next to no embedding and head, so that stages are equal.
EVEN = TransformerConfig(
    name="even",
    layers=16,
    hidden=64,
    heads=8,
    kv_heads=8,
    head_dim=8,
    ffn_hidden=256,
    vocabulary=1,
    max_sequence=256,
)
PLAN = Plan.of(sequence_length=64, global_batch=16, attention=Attention.FULL, vocabulary_multiple=1)


def run(config, plan, port=1e30):
    graph = build_step(config, plan)
    return Simulation(graph, NODE, Star(endpoints=plan.axes.ranks, port=port)).run()


def ideal_s(config, plan):
    return model_flops(config, plan.share) / plan.axes.ranks / RATE


def sent(config, plan, axis):
    """Return the bytes that every rank puts on the wire along an axis, as the engine counts them."""
    return run(config, plan).network_bytes[axis] / plan.axes.ranks


def sequences(step):
    return [task for task in step.tasks if isinstance(task.operator, Sequence)]


def product_flops(step):
    each = [
        operator.flops * count
        for task in sequences(step)
        for operator, count in task.operator.items
        if isinstance(operator, MatMul)
    ]
    return sum(each) * step.layout.ranks_per_class

"""Compute nodes of a trace as operators: with their recorded time, or for a unit's model."""

from __future__ import annotations

import math

from simulator.operators import Elementwise, MatMul, Phase
from simulator.rank_graph import Recorded
from workloads.traces.chakra.nodes import Node

ELEMENT_BYTES = 2
"""Bytes of an element of a product whose shape is not recorded: bf16."""
LEAST_INTENSITY = 1.0
"""Operations per byte below which work is no product; dimensionless."""


def recorded(node: Node, duration_s: float) -> Recorded:
    """Return the work of a node with the time that it took."""
    return Recorded(
        name=node.name,
        layer="trace",
        phase=Phase.FORWARD,
        flops=float(node.whole("num_ops")),
        read_bytes=float(node.whole("tensor_size")),
        written_bytes=0.0,
        duration_s=duration_s,
    )


def operator_of(node: Node) -> MatMul | Elementwise:
    """Return work with the operations and the bytes of a node, in the shape that is most likely.

    Notes
    -----
    Below one operation a byte it is work without a product. Above, x rows meet a square weight of y x y: of
    F operations and E elements, 2 x y^2 = F and y^2 + 2 x y = E, of whose solutions the one with the fewest
    rows is taken; fused products move fewer elements than any one product of F operations can, which is
    3 (F/2)^(2/3), and count as a cube.
    """
    operations, bytes_moved = float(node.whole("num_ops")), float(node.whole("tensor_size"))
    if operations < LEAST_INTENSITY * bytes_moved or operations < 2.0:
        return Elementwise(
            name=node.name,
            layer="trace",
            phase=Phase.FORWARD,
            flops=operations,
            read_bytes=bytes_moved,
            written_bytes=0.0,
        )
    side = _side(operations, bytes_moved / ELEMENT_BYTES)
    rows = operations / (2.0 * side**2)
    return MatMul(
        name=node.name,
        layer="trace",
        phase=Phase.FORWARD,
        batch=1,
        m=max(1, round(rows)),
        k=max(1, round(side)),
        n=max(1, round(side)),
        element_bytes=ELEMENT_BYTES,
    )


def _side(operations: float, elements: float) -> float:
    """Return the larger root y of y^3 - E y + F = 0, the square's side; a cube's if there is none."""
    cube = (operations / 2.0) ** (1.0 / 3.0)
    if elements <= 3.0 * cube**2:
        return cube
    angle = math.acos(-operations / 2.0 * (3.0 / elements) ** 1.5) / 3.0
    return 2.0 * math.sqrt(elements / 3.0) * math.cos(angle)

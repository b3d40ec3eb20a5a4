"""The variants of a system's fabric that a search tries: sides, lanes, circuits of a node, switches."""

from __future__ import annotations

import dataclasses

from electronic.torus_fabric import TorusFabric
from experiments.systems import System
from heliograph.errors import LinkError
from heliograph.interfaces import Fabric
from optical.circuits import CircuitPolicy
from optical.cube_fabric import Closing, CubeFabric
from optical.direct_connect import DirectConnect
from optical.fabrics import OcsRails
from optical.hybrid import HybridFabric
from optical.switches import load_switch
from workloads.plan_arrays import divisors

LANES = (2, 4, 8)
"""Degrees of optical fabrics that are tried: lanes of an accelerator, or circuits of a node."""
LEAST_SIDE = 4
"""Shortest side of a torus that is tried, in accelerators: that of a cube (Jouppi et al., ISCA 2023)."""
TURNING_SWITCH = "palomar-mems"
"""Switch that holds the circuits of nodes where a patch panel cannot turn them in a step."""


def topologies(system: System) -> dict[str, System]:
    """Return a system with the variants of its fabric, by name.

    Parameters
    ----------
    system : System
        The system as it was asked for, which comes first.

    Notes
    -----
    Lanes and degrees change what a fabric costs and draws, sides and twists do not. Which nodes circuits join
    is no variant: fabrics lay them out for the traffic of each plan (TotientPerms, matchings).
    """
    fabric = system.fabric
    found = {fabric.name: system}
    for name, variant in _variants(fabric):
        found[f"{fabric.name}, {name}"] = dataclasses.replace(system, fabric=variant)
    return found


def _variants(fabric: Fabric) -> list[tuple[str, Fabric]]:
    match fabric:
        case OcsRails():
            return [
                (f"{lanes} lanes", dataclasses.replace(fabric, lanes=lanes))
                for lanes in LANES
                if lanes != fabric.lanes
            ]
        case DirectConnect() | HybridFabric():
            return [*_degrees(fabric), *_switched(fabric)]
        case TorusFabric():
            return [
                (f"{x} x {y}", dataclasses.replace(fabric, x=x, y=y))
                for x, y in _sides(fabric.endpoints, LEAST_SIDE)
                if (x, y) != (fabric.x, fabric.y)
            ]
        case CubeFabric():
            return _cubes(fabric)
        case _:
            return []


def _degrees(fabric: DirectConnect | HybridFabric) -> list[tuple[str, Fabric]]:
    return [
        (f"{degree} circuits a node", dataclasses.replace(fabric, degree=degree))
        for degree in LANES
        if degree != fabric.degree
    ]


def _switched(fabric: DirectConnect | HybridFabric) -> list[tuple[str, Fabric]]:
    """Return the fabric with switches that can turn in a step, unless it has them or light does not pass."""
    if fabric.switch.name == TURNING_SWITCH or fabric.policy is CircuitPolicy.PER_AXIS:
        return []
    try:
        return [(TURNING_SWITCH, dataclasses.replace(fabric, switch=load_switch(TURNING_SWITCH)))]
    except LinkError:
        return []


def _cubes(fabric: CubeFabric) -> list[tuple[str, Fabric]]:
    found: list[tuple[str, Fabric]] = []
    for x, y in _sides(fabric.endpoints, fabric.side):
        z = fabric.endpoints // (x * y)
        if any(side % fabric.side for side in (x, y, z)):
            continue
        twists = (x, y, z) in {(x, x, 2 * x), (x, 2 * x, 2 * x)}
        for closing in Closing:
            if (x, y, closing) != (fabric.x, fabric.y, fabric.closing) and (
                closing is Closing.REGULAR or twists
            ):
                variant = dataclasses.replace(fabric, x=x, y=y, closing=closing)
                found.append((f"{x} x {y} x {z} {closing}", variant))
    return found


def _sides(endpoints: int, least: int) -> list[tuple[int, int]]:
    """Return the first two sides of every box of at least so long sides, in rising order."""
    return [
        (x, y)
        for x in divisors(endpoints)
        for y in divisors(endpoints // x)
        if least <= x <= y <= endpoints // (x * y)
    ]

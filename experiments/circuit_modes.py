"""Fabrics whose circuits can follow a step, and when they may move."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from heliograph.interfaces import Fabric
from optical.circuits import CircuitPolicy, Turning
from optical.direct_connect import DirectConnect
from optical.fabrics import OcsRails
from optical.hybrid import HybridFabric
from optical.wafer_fabric import WaferFabric

CircuitFabric = OcsRails | DirectConnect | HybridFabric | WaferFabric
"""Fabrics with a circuit policy."""
Turned = OcsRails | HybridFabric | WaferFabric
"""Those of them whose ports may turn ahead of traffic."""


@dataclass(frozen=True, kw_only=True)
class CircuitMode:
    """When circuits move, and whether ports wait until traffic asks."""

    policy: CircuitPolicy
    """When circuits move."""
    turning: Turning = Turning.ASKED
    """Whether idle ports turn to what comes next while accelerators compute (Opus, arXiv:2507.08119)."""

    def __str__(self) -> str:
        return str(self.policy) if self.turning is Turning.ASKED else f"{self.policy}, {self.turning}"


def policies(fabric: Fabric, asked: CircuitPolicy | None) -> tuple[CircuitPolicy, ...]:
    """Return the circuit policies that a fabric is to be tried with; none where circuits do not move.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only one, or None for all.
    """
    if not isinstance(fabric, CircuitFabric):
        return ()
    return (asked,) if asked else tuple(CircuitPolicy)


def modes(fabric: Fabric, asked: CircuitPolicy | None) -> tuple[CircuitMode, ...]:
    """Return the ways in which a fabric's circuits may follow a step; none where they do not move.

    Parameters
    ----------
    fabric : Fabric
        Any fabric.
    asked : CircuitPolicy or None
        The only policy, or None for all.
    """
    found = [CircuitMode(policy=policy) for policy in policies(fabric, asked)]
    if isinstance(fabric, Turned) and any(one.policy is CircuitPolicy.PER_AXIS for one in found):
        found.append(CircuitMode(policy=CircuitPolicy.PER_AXIS, turning=Turning.AHEAD))
    return tuple(found)


def with_mode(fabric: CircuitFabric, mode: CircuitMode) -> CircuitFabric:
    """Return a fabric whose circuits move as a mode says."""
    if isinstance(fabric, Turned):
        return dataclasses.replace(fabric, policy=mode.policy, turning=mode.turning)
    return dataclasses.replace(fabric, policy=mode.policy)


def dark_of(fabric: CircuitFabric) -> float:
    """Return the dark time of one change of a fabric's circuits, s."""
    switch = fabric.wafer if isinstance(fabric, WaferFabric) else fabric.switch
    return switch.reconfiguration_s

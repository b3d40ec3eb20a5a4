"""How plans of collectives go through a network: round after round, or all their levels at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from heliograph.network import Network
from heliograph.traffic import Plan


def carry_plan(
    network: Network, plan: Plan, patient: Callable[[], bool], repeat: int = 1
) -> Generator[simpy.Event, Any, None]:
    """Carry out a collective, several times if asked.

    Parameters
    ----------
    network : Network
        What carries it.
    plan : Plan
        The collective.
    patient : callable
        Asked before ports turn to a round; while true, they stay where they are.
    repeat : int
        How often, one after the other.
    """
    if plan.protocol_s:
        yield network.env.timeout(plan.protocol_s * repeat)
    if plan.at_once:
        levels = [
            network.env.process(network.carry(bundle, size_bytes, count * repeat, patient, latency=False))
            for bundle, size_bytes, count in plan.parts
        ]
        yield network.env.all_of(levels)
        return
    together = 1 if plan.in_turns else repeat
    for bundle, size_bytes, count in plan.parts * (repeat // together):
        yield from network.carry(bundle, size_bytes, count * together, patient)


def play(network: Network) -> None:
    """Let the clock of a network run until nothing moves any more."""
    network.env.run()
    while network.serve(impatient=True):  # patience that waited for itself
        network.env.run()

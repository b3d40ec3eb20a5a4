"""Schedules of a demand on one circuit switch, or spread over several at equal load, by policy."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optical.scheduling.birkhoff import Part, birkhoff_von_neumann, eclipse
from optical.scheduling.covers import double, fewest, solstice
from optical.scheduling.demand import checked, stuffed
from optical.scheduling.exact import MOST_EXACT_PORTS, exact
from optical.scheduling.matchings import Matching
from optical.scheduling.ocs_bank import OcsBank
from optical.scheduling.schedule import CircuitSchedule, schedule_of
from simulator.errors import ParameterError


def spread(schedule: CircuitSchedule, switches: int) -> CircuitSchedule:
    """Return the same configurations on several switches at once.

    Parameters
    ----------
    schedule : CircuitSchedule
        On one switch.
    switches : int
        Circuit switches side by side, each with a circuit of every port.

    Notes
    -----
    Liang et al., arXiv:2603.07373, steps "schedule" and "equalize": the longest configuration goes to the
    least loaded switch (Graham 1969), its load being lengths and delays; then, while the loads differ by more
    than the delay that a split costs, half of the difference moves from the most to the least loaded.
    """
    reconfiguration_s, count = schedule.reconfiguration_s, schedule.configurations
    held: list[list[tuple[int, float]]] = [[] for _ in range(switches)]
    loads = [(0.0, switch) for switch in range(switches)]
    for index in np.argsort(-schedule.durations_s, kind="stable").tolist():
        load, switch = heapq.heappop(loads)
        length_s = float(schedule.durations_s[index])
        held[switch].append((index, length_s))
        heapq.heappush(loads, (load + length_s + reconfiguration_s, switch))
    equalised = _equalised(
        held, np.array([load for load, _ in sorted(loads, key=lambda x: x[1])]), reconfiguration_s
    )
    rows = [(index, length_s, switch) for switch, mine in enumerate(equalised) for index, length_s in mine]
    order = [index for index, _, _ in rows]
    return CircuitSchedule(
        policy=schedule.policy,
        demand=schedule.demand,
        permutations=schedule.permutations[order] if count else schedule.permutations,
        durations_s=np.array([length_s for _, length_s, _ in rows], dtype=float),
        switch_of=np.array([switch for _, _, switch in rows], dtype=np.int64),
        switches=switches,
        rate_bytes_per_s=schedule.rate_bytes_per_s,
        reconfiguration_s=reconfiguration_s,
        packet_rate_bytes_per_s=schedule.packet_rate_bytes_per_s,
    )


def _equalised(
    held: list[list[tuple[int, float]]], loads: np.ndarray, reconfiguration_s: float
) -> list[list[tuple[int, float]]]:
    """Return configurations and lengths of each switch after moving load from the fullest to the emptiest."""
    held = [list(mine) for mine in held]
    most = 4 * sum(len(mine) for mine in held) + 4 * len(held)
    for _ in range(most):
        fullest, emptiest = int(loads.argmax()), int(loads.argmin())
        gap_s = float(loads[fullest] - loads[emptiest])
        if gap_s <= reconfiguration_s or gap_s <= 1e-12 * float(loads[fullest]) or not held[fullest]:
            break
        place = max(range(len(held[fullest])), key=lambda one: held[fullest][one][1])
        index, length_s = held[fullest][place]
        moved_s = (gap_s - reconfiguration_s) / 2
        if moved_s >= length_s:
            moved_s = length_s
            held[fullest].pop(place)
            loads[fullest] -= length_s + reconfiguration_s
        else:
            held[fullest][place] = (index, length_s - moved_s)
            loads[fullest] -= moved_s
        held[emptiest].append((index, moved_s))
        loads[emptiest] += moved_s + reconfiguration_s
    return held


class SchedulePolicy(StrEnum):
    """Policy by which configurations and their lengths are chosen."""

    ARBITRARY = "arbitrary"
    """Birkhoff-von Neumann with any perfect matching."""
    HUNGARIAN = "hungarian"
    """Birkhoff-von Neumann with the matching of greatest total."""
    BOTTLENECK = "bottleneck"
    """Birkhoff-von Neumann with the matching whose smallest entry is greatest."""
    DOUBLE = "double"
    """At most two configurations for each port, at most twice the time (Towles and Dally 2003)."""
    SOLSTICE = "solstice"
    """Long circuits first, by halving thresholds (CoNEXT 2015)."""
    ECLIPSE = "eclipse"
    """Most bytes per time including the delay (SIGMETRICS 2016)."""
    SPECTRA = "spectra"
    """As few configurations as a port has peers (arXiv:2603.07373)."""
    EXACT = "exact"
    """Least makespan, by an integer programme; a few ports on one switch without packets."""


BIRKHOFF: Mapping[SchedulePolicy, Matching] = MappingProxyType(
    {
        SchedulePolicy.ARBITRARY: Matching.ARBITRARY,
        SchedulePolicy.HUNGARIAN: Matching.HUNGARIAN,
        SchedulePolicy.BOTTLENECK: Matching.BOTTLENECK,
    }
)
"""Matching of each policy that decomposes the demand whole."""


def applies(policy: SchedulePolicy, ports: int, bank: OcsBank) -> bool:
    """Return whether a policy can schedule a demand of so many ports: all but the exact one always can."""
    alone = bank.switches == 1 and bank.packet_rate_bytes_per_s == 0.0
    return policy is not SchedulePolicy.EXACT or (ports <= MOST_EXACT_PORTS and alone)


def schedule(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> CircuitSchedule:
    """Return a checked schedule of a demand.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    policy : SchedulePolicy
        How configurations are chosen. Solstice and Eclipse leave the rest to a packet switch if there is one.
    bank : OcsBank
        Switches. With several, configurations are spread over them and the loads made equal (`spread`).

    Raises
    ------
    ParameterError
        If the demand is not square, not finite or negative, or the policy is exact and it is too large.
    """
    left = checked(demand)
    if not applies(policy, len(left), bank):
        msg = (
            f"an exact schedule is for at most {MOST_EXACT_PORTS} ports on one switch without packets; got "
            f"{len(left)} ports, {bank.switches} planes and packets of {bank.packet_rate_bytes_per_s:g} B/s; "
            "try another policy"
        )
        raise ParameterError(msg)
    one = schedule_of(
        parts_of(left, policy, bank),
        policy=str(policy),
        demand=left,
        rate_bytes_per_s=bank.rate_bytes_per_s,
        reconfiguration_s=bank.reconfiguration_s,
        packet_rate_bytes_per_s=bank.packet_rate_bytes_per_s,
    )
    return (spread(one, bank.switches) if bank.switches > 1 else one).validated()


def parts_of(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> list[Part]:
    """Return permutations and the bytes that each circuit of them may carry."""
    delay_bytes = bank.reconfiguration_s * bank.rate_bytes_per_s
    share = bank.packet_rate_bytes_per_s / (bank.rate_bytes_per_s * bank.switches)
    match policy:
        case SchedulePolicy.DOUBLE:
            return double(demand)
        case SchedulePolicy.SOLSTICE:
            return solstice(demand, delay_bytes=delay_bytes, packet_share=share)
        case SchedulePolicy.ECLIPSE:
            return eclipse(demand, delay_bytes=delay_bytes, packet_share=share)
        case SchedulePolicy.SPECTRA:
            return fewest(demand)
        case SchedulePolicy.EXACT:
            return exact(demand, delay_bytes=delay_bytes)
    return birkhoff_von_neumann(stuffed(demand), BIRKHOFF[policy])

"""Every way to schedule a demand on one circuit switch or several, by name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optical.scheduling.birkhoff import Part, birkhoff_von_neumann
from optical.scheduling.covers import double, fewest, solstice
from optical.scheduling.demand import checked, stuffed
from optical.scheduling.eclipse import eclipse
from optical.scheduling.matchings import Matching
from optical.scheduling.ocs_bank import OcsBank
from optical.scheduling.parallel import spread
from optical.scheduling.schedule import CircuitSchedule, schedule_of


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


BIRKHOFF: Mapping[SchedulePolicy, Matching] = MappingProxyType(
    {
        SchedulePolicy.ARBITRARY: Matching.ARBITRARY,
        SchedulePolicy.HUNGARIAN: Matching.HUNGARIAN,
        SchedulePolicy.BOTTLENECK: Matching.BOTTLENECK,
    }
)
"""Matching of each policy that decomposes the demand whole."""


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
        If the demand is not square, not finite or negative.
    """
    left = checked(demand)
    one = schedule_of(
        parts_of(left, policy, bank),
        policy=str(policy),
        demand=left,
        rate_bytes_per_s=bank.rate_bytes_per_s,
        delay_s=bank.delay_s,
        packet_rate_bytes_per_s=bank.packet_rate_bytes_per_s,
    )
    return (spread(one, bank.switches) if bank.switches > 1 else one).validated()


def parts_of(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> list[Part]:
    """Return permutations and the bytes that each circuit of them may carry."""
    delay_bytes = bank.delay_s * bank.rate_bytes_per_s
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
    return birkhoff_von_neumann(stuffed(demand), BIRKHOFF[policy])

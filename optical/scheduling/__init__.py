"""Circuits in time: decompositions of a demand, schedules with delay, topologies, phases, and their bounds."""

from __future__ import annotations

from optical.scheduling.birkhoff import birkhoff_von_neumann, most_permutations, permutations_for
from optical.scheduling.bounds import duty, exposed_delay, is_worth_moving, makespan_bound
from optical.scheduling.demand import sinkhorn, stuffed
from optical.scheduling.matchings import Matching
from optical.scheduling.policies import CircuitPlant, SchedulePolicy, schedule
from optical.scheduling.schedule import DARK, CircuitSchedule

__all__ = [
    "DARK",
    "CircuitPlant",
    "CircuitSchedule",
    "Matching",
    "SchedulePolicy",
    "birkhoff_von_neumann",
    "duty",
    "exposed_delay",
    "is_worth_moving",
    "makespan_bound",
    "most_permutations",
    "permutations_for",
    "schedule",
    "sinkhorn",
    "stuffed",
]

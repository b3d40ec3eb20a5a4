"""Circuits in time: decompositions, schedules with delay, topologies, phases, overlap, and their bounds."""

from __future__ import annotations

from optical.scheduling.birkhoff import (
    Matching,
    birkhoff_von_neumann,
    double,
    eclipse,
    fewest,
    most_permutations,
    permutations_for,
    solstice,
)
from optical.scheduling.demand import duty, exposed_delay, is_worth_moving, makespan_bound, sinkhorn, stuffed
from optical.scheduling.overlap import CollectiveStep, OverlapPlan, bruck_steps, collective_steps, overlap
from optical.scheduling.phases import PhasePlan, TrafficPhase, plan_phases
from optical.scheduling.policies import SchedulePolicy, schedule, spread
from optical.scheduling.schedule import DARK, CircuitSchedule, Lanes, OcsBank
from optical.scheduling.topology import AllReduceGroup, JobTime, JobTopology, job_time, job_topology

__all__ = [
    "DARK",
    "AllReduceGroup",
    "CircuitSchedule",
    "CollectiveStep",
    "JobTime",
    "JobTopology",
    "Lanes",
    "Matching",
    "OcsBank",
    "OverlapPlan",
    "PhasePlan",
    "SchedulePolicy",
    "TrafficPhase",
    "birkhoff_von_neumann",
    "bruck_steps",
    "collective_steps",
    "double",
    "duty",
    "eclipse",
    "exposed_delay",
    "fewest",
    "is_worth_moving",
    "job_time",
    "job_topology",
    "makespan_bound",
    "most_permutations",
    "overlap",
    "permutations_for",
    "plan_phases",
    "schedule",
    "sinkhorn",
    "solstice",
    "spread",
    "stuffed",
]

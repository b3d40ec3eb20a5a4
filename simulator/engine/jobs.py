"""Several jobs on one fabric: steps that share links, circuits and failures on one clock."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import simpy

from simulator.checks import check_range
from simulator.collectives.demand import step_demand
from simulator.collectives.traffic import play
from simulator.engine.network import Network
from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.fabric import Fabric, lone_cards
from simulator.layout import placed
from simulator.node import Node
from simulator.operators import StepGraph
from simulator.reliability.failures import Failure
from simulator.results.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Job:
    """A step on some endpoints of a fabric."""

    name: str
    """Name in tables and errors."""
    graph: StepGraph
    """What is to be done."""
    node: Node
    """The accelerator of every rank."""
    endpoints: tuple[int, ...]
    """Endpoint of each rank."""
    start_s: float = 0.0
    """When it starts."""

    def __post_init__(self) -> None:
        check_range(self, "start_s")


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """Run of a job beside others, and alone."""

    job: Job
    """The job."""
    trace: Trace
    """Everything that it did, on the clock of all."""
    step_time_s: float
    """From its start to its last task."""
    alone_s: float
    """The same with the whole fabric to itself and without failures."""

    @property
    def slowdown(self) -> float:
        """Step time over step time alone."""
        return self.step_time_s / self.alone_s


def simulate_jobs(
    jobs: Sequence[Job], fabric: Fabric, *, failures: tuple[Failure, ...] = ()
) -> tuple[JobRun, ...]:
    """Return what becomes of jobs that run on one fabric together, each beside its time alone.

    Parameters
    ----------
    jobs : sequence of Job
        The jobs; no two use an endpoint.
    fabric : Fabric
        What carries the flows of all.
    failures : tuple of Failure
        What stops working, and when; spares must stand idle.

    Raises
    ------
    WorkloadError
        If jobs or spares share an endpoint, or a job uses one that does not exist.
    RouteError
        If traffic waits for a link that is never repaired.
    """
    _check_places(jobs, fabric, failures)
    together = _play(jobs, fabric, failures)
    alone = [_play([job], fabric, ())[0] for job in jobs]
    return tuple(
        JobRun(
            job=job,
            trace=trace,
            step_time_s=trace.makespan_s - job.start_s,
            alone_s=by_itself.makespan_s - job.start_s,
        )
        for job, trace, by_itself in zip(jobs, together, alone, strict=True)
    )


def _play(jobs: Sequence[Job], fabric: Fabric, failures: tuple[Failure, ...]) -> list[Trace]:
    graphs = [replace(job.graph, layout=placed(job.graph.layout, job.endpoints)) for job in jobs]
    cards = lone_cards(fabric)
    demand = tuple(flows for graph in graphs for flows in step_demand(graph, cards).values())
    network = Network(simpy.Environment(), fabric, demand, failures=failures, shared=len(jobs) > 1)
    runs = [
        Simulation(graph, job.node, fabric, network=network) for graph, job in zip(graphs, jobs, strict=True)
    ]
    for run, job in zip(runs, jobs, strict=True):
        network.env.process(_started(run, job.start_s))
    play(network)
    return [run.finish() for run in runs]


def _started(run: Simulation, start_s: float) -> Generator[simpy.Event, Any, None]:
    yield run.env.timeout(start_s)
    run.start()


def _check_places(jobs: Sequence[Job], fabric: Fabric, failures: tuple[Failure, ...]) -> None:
    taken: dict[int, str] = {}
    for owner, endpoints in [
        *((f"job '{job.name}'", job.endpoints) for job in jobs),
        *((f"spares of the failure at {one.time_s:g} s", one.spares) for one in failures),
    ]:
        for endpoint in endpoints:
            if not 0 <= endpoint < fabric.endpoints:
                msg = f"{owner}: {fabric.name} has endpoints 0 to {fabric.endpoints - 1}; got {endpoint}"
                raise WorkloadError(msg)
            if endpoint in taken:
                msg = f"{owner}: endpoint {endpoint} is in use by {taken[endpoint]}; choose free ones"
                raise WorkloadError(msg)
            taken[endpoint] = owner


def block(first: int, count: int) -> tuple[int, ...]:
    """Return neighbouring endpoints, from the first on."""
    return tuple(np.arange(first, first + count).tolist())

"""Jobs that share a trunk, and what failures do to them, against fluid times by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.engine.simulation import Job, Simulation, block, simulate_jobs
from simulator.errors import ParameterError, RouteError, WorkloadError
from simulator.failures import Failure, endpoint_links
from simulator.interfaces import LinkGraph
from simulator.layout import RankLayout, placed
from simulator.operators import CollectiveKind, Phase, StepGraph, Task
from tests.builders import collective
from tests.workloads.ideal import EVEN, NODE, PLAN, Star
from workloads.step.step import build_step

PORT = 1e6


@dataclass(frozen=True, kw_only=True)
class Halves(Star):
    """Two switches with half the endpoints each, joined by one trunk as fast as a port."""

    name: str = "halves"
    trunks: int = 1

    def graph(self, circuits):
        capacity = np.full(2 * self.endpoints + 2 * self.trunks, self.port)
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.zeros(capacity.size))

    def route(self, circuits, flows, trunk=0):
        side = flows.sources * 2 // self.endpoints, flows.destinations * 2 // self.endpoints
        way = np.where(side[0] != side[1], 2 * self.endpoints + 2 * trunk + side[0], -1)
        return np.stack([flows.sources, way, self.endpoints + flows.destinations], axis=1)


@dataclass(frozen=True, kw_only=True)
class TwoTrunks(Halves):
    """The same with a second trunk for times of need."""

    trunks: int = 2

    def around(self, circuits, flows, failed):
        return self.route(circuits, flows, trunk=1)


def graph(payload_bytes=PORT):
    reduce = collective(CollectiveKind.ALL_REDUCE, 2, payload_bytes, phase=Phase.GRAD_WEIGHT)
    task = Task(id=0, rank_class=0, operator=reduce, after=())
    return StepGraph(tasks=(task,), layout=RankLayout(dp=2), tokens=1)


def job(name, endpoints, **more):
    return Job(name=name, graph=graph(), node=NODE, endpoints=endpoints, **more)


def run_with(failure, fabric=None):
    fabric = fabric or Halves(endpoints=4, port=PORT)
    (found,) = simulate_jobs([job("a", (0, 2))], fabric, failures=(failure,))
    return found


def test_jobs_that_share_no_link_do_not_see_each_other():
    plan = PLAN.with_(dp=2, pp=2)
    step = build_step(EVEN, plan)
    star = Star(endpoints=8, port=1e9)
    jobs = [Job(name=str(at), graph=step, node=NODE, endpoints=block(at, 4)) for at in (0, 4)]
    alone = Simulation(step, NODE, Star(endpoints=4, port=1e9)).run()
    for run in simulate_jobs(jobs, star):
        assert run.slowdown == pytest.approx(1.0, rel=1e-9)
        assert run.step_time_s == pytest.approx(alone.makespan_s, rel=1e-9)
        assert run.trace.network_bytes == pytest.approx(dict(alone.network_bytes))


def test_two_jobs_on_a_trunk_take_twice_as_long():
    runs = simulate_jobs([job("a", (0, 2)), job("b", (1, 3))], Halves(endpoints=4, port=PORT))
    assert [run.alone_s for run in runs] == pytest.approx([1.0, 1.0])
    assert [run.slowdown for run in runs] == pytest.approx([2.0, 2.0])


def test_a_job_that_comes_later_shares_what_is_left():
    """Alone to 0.5, halves until the first ends at 1.5, alone to 2.0."""
    jobs = [job("a", (0, 2)), job("b", (1, 3), start_s=0.5)]
    runs = simulate_jobs(jobs, Halves(endpoints=4, port=PORT))
    assert [run.trace.makespan_s for run in runs] == pytest.approx([1.5, 2.0])
    assert [run.step_time_s for run in runs] == pytest.approx([1.5, 1.5])


def test_a_failed_trunk_costs_its_outage():
    found = run_with(Failure(time_s=0.25, links=(8, 9), repair_s=0.85))
    assert found.step_time_s == pytest.approx(1.6)
    assert found.alone_s == pytest.approx(1.0)


def test_traffic_that_would_start_during_an_outage_waits():
    assert run_with(Failure(time_s=0.0, links=(8,), repair_s=0.5)).step_time_s == pytest.approx(1.5)


def test_a_fabric_with_another_path_loses_nothing():
    failure = Failure(time_s=0.25, links=(8, 9))
    assert run_with(failure, TwoTrunks(endpoints=4, port=PORT)).slowdown == pytest.approx(1.0)


def test_a_spare_takes_over_and_starts_transfers_again():
    found = run_with(Failure(time_s=0.25, endpoints=(2,), spares=(3,), takeover_s=0.1))
    assert found.step_time_s == pytest.approx(0.25 + 0.1 + 1.0)


def test_a_failure_elsewhere_changes_nothing():
    assert run_with(Failure(time_s=0.25, endpoints=(1,))).slowdown == pytest.approx(1.0)


def test_a_whole_step_sees_a_failure_inside_it():
    """Sequences that would be one event are followed collective by collective where something fails."""
    plan = PLAN.with_(tp=2, dp=2)
    step = build_step(EVEN, plan)
    star = Star(endpoints=4, port=1e7)
    middle = Simulation(step, NODE, star).run().makespan_s / 2
    failure = Failure(time_s=middle, endpoints=(1,), repair_s=2 * middle)
    (run,) = simulate_jobs(
        [Job(name="a", graph=step, node=NODE, endpoints=block(0, 4))], star, failures=(failure,)
    )
    assert 1.0 < run.slowdown <= 1.5 + 1e-9


def test_the_links_of_an_endpoint_are_those_that_leave_it():
    assert endpoint_links(Halves(endpoints=4, port=PORT), None, 2).tolist() == [2]
    with pytest.raises(RouteError, match="endpoint 4 cannot fail"):
        endpoint_links(Halves(endpoints=4, port=PORT), None, 4)


def test_what_never_comes_back_is_an_error():
    with pytest.raises(RouteError, match="dp traffic waits for ever for link 8 of halves"):
        run_with(Failure(time_s=0.25, links=(8,)))


def test_places_are_checked():
    halves = Halves(endpoints=4, port=PORT)
    with pytest.raises(WorkloadError, match="job 'b': endpoint 2 is in use by job 'a'"):
        simulate_jobs([job("a", (0, 2)), job("b", (2, 3))], halves)
    with pytest.raises(WorkloadError, match="has endpoints 0 to 3; got 4"):
        simulate_jobs([job("a", (0, 4))], halves)
    with pytest.raises(WorkloadError, match="2 ranks need as many different endpoints; got 1"):
        placed(RankLayout(dp=2), (1, 1))
    with pytest.raises(RouteError, match="halves has no link 10"):
        run_with(Failure(time_s=0.0, links=(10,)))
    with pytest.raises(ParameterError, match="1 endpoints need as many spares; got 2"):
        Failure(time_s=0.0, endpoints=(1,), spares=(2, 3))
    with pytest.raises(ParameterError, match="repair_s must be after"):
        Failure(time_s=1.0, links=(1,), repair_s=0.5)

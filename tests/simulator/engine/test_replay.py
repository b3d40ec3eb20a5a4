"""Recorded graphs of ranks: what alone and shared links, channels and groups must give."""

import dataclasses

import pytest

from electronic.fabrics.packets import Wires
from simulator.engine.replay import Clockwork, Message, RankGraph, RankTask, Recorded, Replay, Together, Work
from simulator.errors import RouteError, WorkloadError
from simulator.operators import CollectiveKind, Phase
from simulator.results import BUBBLE, EXPOSED, time_of_class_s

RATE = 1e9
LATENCY = 1e-6


def work(number, rank, seconds, after=(), channel=None):
    operator = Recorded(
        name="w",
        phase=Phase.FORWARD,
        flops=0.0,
        read_bytes=0.0,
        written_bytes=0.0,
        duration_s=seconds,
    )
    return RankTask(
        id=number,
        name="w",
        classes=(rank,),
        operation=Work(operator=operator),
        after=after,
        channel=f"{rank}" if channel is None else channel,
    )


def message(number, source, destination, size, after=()):
    operation = Message(sources=(source,), destinations=(destination,), size_bytes=size)
    return RankTask(id=number, name="m", classes=(source, destination), operation=operation, after=after)


def together(number, kind, groups, size, after=(), *, algorithm=""):
    operation = Together(kind=kind, groups=groups, payload_bytes=size, algorithm=algorithm)
    members = tuple(rank for group in groups for rank in group)
    return RankTask(id=number, name="c", classes=members, operation=operation, after=after)


def run(tasks, ranks=8, direct=False):
    graph = RankGraph(name="g", tasks=tuple(tasks), classes=tuple((one,) for one in range(ranks)))
    fabric = Wires(endpoints=ranks, link_bytes_per_s=RATE, latency_s=LATENCY, direct=direct)
    return Replay(graph, Clockwork(), fabric).run()


@pytest.mark.parametrize("direct", [False, True])
def test_a_message_alone_takes_its_latency_and_its_bytes_over_the_rate(direct):
    trace = run([message(1, 0, 5, 3e6)], direct=direct)
    assert trace.makespan_s == pytest.approx(LATENCY + 3e6 / RATE, rel=1e-12)
    assert trace.network_bytes == {"send": 3e6}


def test_two_messages_into_one_port_share_it_and_on_links_of_their_own_do_not():
    two = [message(1, 0, 2, 1e6), message(2, 1, 2, 1e6)]
    assert run(two).makespan_s == pytest.approx(LATENCY + 2e6 / RATE, rel=1e-12)
    assert run(two, direct=True).makespan_s == pytest.approx(LATENCY + 1e6 / RATE, rel=1e-12)


def test_a_message_to_oneself_takes_no_time():
    assert run([message(1, 3, 3, 1e9)]).makespan_s == 0.0


@pytest.mark.parametrize("group", [(0, 1, 2, 3, 4, 5, 6, 7), (6, 1, 4), (5, 2)])
def test_a_ring_all_reduce_of_any_group_takes_the_textbook_time(group):
    """2 (n-1) (latency + m / (n B)): Chan et al., Concurrency Computat. 19 (2007) 1749."""
    n, size = len(group), 6e6
    trace = run([together(1, CollectiveKind.ALL_REDUCE, (group,), size, algorithm="ring")])
    assert trace.makespan_s == pytest.approx(2 * (n - 1) * (LATENCY + size / n / RATE), rel=1e-12)
    assert {span.rank_class for span in trace.spans} == set(group)


@pytest.mark.parametrize(
    "kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL]
)
def test_no_collective_beats_its_ports(kind):
    """The cut bound that a congestion-unaware simulator breaks: (n-1)/n of the vector through each port."""
    kind = CollectiveKind(kind)
    n, size = 8, 8e6
    passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    vector = size * n if kind is CollectiveKind.ALL_GATHER else size
    trace = run([together(1, kind, (tuple(range(n)),), size)])
    assert trace.makespan_s >= passes * (n - 1) / n * vector / RATE


def test_a_group_of_one_has_nothing_to_do():
    assert run([together(1, CollectiveKind.ALL_REDUCE, ((3,),), 1e9)]).makespan_s == 0.0


def test_everybody_waits_for_the_last_one_to_join():
    tasks = [work(1, 0, 1.0), work(2, 1, 3.0), together(3, CollectiveKind.ALL_REDUCE, ((0, 1),), 0.0, (1, 2))]
    trace = run([*tasks, work(4, 0, 1.0, (3,))], ranks=2)
    assert trace.makespan_s == pytest.approx(4.0, abs=1e-4)
    times = time_of_class_s(trace, 0)
    assert sum(times.values()) == pytest.approx(trace.makespan_s)
    assert times[BUBBLE] + times[EXPOSED] == pytest.approx(2.0, abs=1e-4)


def test_a_channel_does_one_thing_at_a_time_and_no_channel_has_no_limit():
    assert run([work(one, 0, 1.0) for one in range(4)]).makespan_s == pytest.approx(4.0)
    assert run([work(one, 0, 1.0, channel="") for one in range(4)]).makespan_s == pytest.approx(1.0)


def test_what_continues_goes_ahead_of_what_has_waited_for_longer():
    """A chain 1 -> 2 and a task 3 that is ready meanwhile on the same channel."""
    for continues, order in ((False, [1, 3, 2]), (True, [1, 2, 3])):
        second = dataclasses.replace(work(2, 0, 1.0, (1,)), continues=continues)
        tasks = [work(1, 0, 1.0), second, work(9, 1, 0.5), work(3, 0, 1.0, (9,))]
        spans = [span for span in run(tasks).spans if span.rank_class == 0]
        assert [span.task for span in sorted(spans, key=lambda span: span.start_s)] == order


def test_ranks_that_do_the_same_may_stand_in_one_class():
    """The lockstep of classes changes no time where ranks are alike."""
    single = [work(one, one, 2.0) for one in range(4)]
    single += [
        together(10, CollectiveKind.ALL_REDUCE, ((0, 1),), 4e6, (0, 1)),
        together(11, CollectiveKind.ALL_REDUCE, ((2, 3),), 4e6, (2, 3)),
    ]
    apart = run(single, ranks=4)
    both = dataclasses.replace(
        together(10, CollectiveKind.ALL_REDUCE, ((0, 1), (2, 3)), 4e6, (0,)), classes=(0,)
    )
    graph = RankGraph(name="g", tasks=(work(0, 0, 2.0), both), classes=((0, 1, 2, 3),))
    fabric = Wires(endpoints=4, link_bytes_per_s=RATE, latency_s=LATENCY)
    folded = Replay(graph, Clockwork(), fabric).run()
    assert folded.makespan_s == pytest.approx(apart.makespan_s, rel=1e-12)
    assert folded.network_bytes == apart.network_bytes


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ([], "holds no task"),
        ([work(1, 0, 1.0), work(1, 0, 1.0)], "id 1 stands for two tasks"),
        ([work(1, 0, 1.0, (7,))], "waits for task 7, which does not exist"),
        ([work(1, 0, 1.0, (2,)), work(2, 0, 1.0, (1,))], "wait for each other in a cycle"),
        ([message(1, 0, 99, 1.0)], "the graph has ranks 0 to 7"),
        ([together(1, CollectiveKind.ALL_REDUCE, ((0, 1), (2,)), 1.0)], "groups of one size"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(tasks, sentence):
    with pytest.raises(WorkloadError, match=sentence):
        run(tasks)


def test_a_fabric_with_too_few_endpoints_is_refused():
    graph = RankGraph(name="g", tasks=(work(1, 0, 1.0),), classes=((0,), (1,)))
    with pytest.raises(RouteError, match="2 ranks; wires has 1 endpoints"):
        Replay(graph, Clockwork(), Wires(endpoints=1, link_bytes_per_s=RATE, latency_s=0.0))

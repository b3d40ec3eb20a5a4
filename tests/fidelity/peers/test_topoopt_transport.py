"""Connections whose window follows marks: the young starve the old, and equals share alike."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from electronic.fabrics.packets import Wires
from experiments.validation.peers.topoopt import Connections, load_transport, share
from simulator.engine.replay import Clockwork, Message, RankGraph, RankTask, Replay
from simulator.errors import ParameterError

TRANSPORT = load_transport("dctcp-flexnet")
LINK = {"rate_bytes_per_s": 12.5e9, "round_trip_s": 2e-6}
CONNECTIONS = Connections(transport=TRANSPORT, **LINK)


def changed(**fields):
    return replace(CONNECTIONS, transport=replace(TRANSPORT, **fields))


def sends(*sizes):
    """Return a graph in which node 0 sends all sizes to node 1 at once."""
    tasks = [
        RankTask(
            id=place,
            name=f"{size:g}",
            classes=(0, 1),
            operation=Message(sources=(0,), destinations=(1,), size_bytes=size),
            after=(),
        )
        for place, size in enumerate(sizes)
    ]
    return RankGraph(name="sends", tasks=tuple(tasks), classes=((0,), (1,)))


def ends(graph, weigh=None):
    wires = Wires(endpoints=2, link_bytes_per_s=12.5e9, latency_s=0.0)
    trace = Replay(graph, Clockwork(), wires, weigh=weigh).run()
    return {span.name: span.end_s for span in trace.spans}


def test_what_fits_the_first_window_is_for_ever_young():
    assert CONNECTIONS.weight(1.0) == CONNECTIONS.weight(TRANSPORT.initial_bytes) == 1.0
    assert CONNECTIONS.weight(TRANSPORT.initial_bytes * 1.001) == pytest.approx(1.0, abs=0.05)


def test_the_longer_a_message_the_less_of_a_link_it_takes():
    weights = [CONNECTIONS.weight(size) for size in np.geomspace(1e6, 1e8, 12)]
    assert all(later < before for before, later in pairwise(weights))
    assert weights[-1] < 0.1 * weights[0]


def test_long_connections_converge_to_equal_shares():
    """Alizadeh et al., SIGCOMM 2010, section 3.3: windows of long flows converge."""
    apart = [abs(share(TRANSPORT, size, size, **LINK) - 1.0) for size in (6.4e7, 4e8, 2e9)]
    assert apart == sorted(apart, reverse=True)
    assert apart[-1] < 0.01


def test_without_marks_nobody_starves():
    """A queue that never marks leaves every window as it began, or larger."""
    assert changed(mark_packets=1e9).weight(6.4e7) >= 1.0
    assert changed(gain=0.0).weight(6.4e7) >= 1.0
    assert replace(CONNECTIONS, round_trip_s=1.0).weight(6.4e7) >= 1.0


def test_two_weights_tell_how_two_messages_share_a_link():
    for old, young in ((8, 4), (16, 4), (32, 4), (64, 4), (64, 2)):
        between = share(TRANSPORT, old * 2**20, young * 2**20, **LINK)
        ratio = CONNECTIONS.weight(old * 2**20) / CONNECTIONS.weight(young * 2**20)
        assert ratio == pytest.approx(between, rel=0.25)


@pytest.mark.parametrize(
    "other",
    [
        changed(packet_bytes=1500.0),
        changed(initial_packets=60.0),
        changed(mark_packets=120.0),
        changed(gain=0.25),
        replace(CONNECTIONS, round_trip_s=4e-5),
        replace(CONNECTIONS, rate_bytes_per_s=2.5e11),
    ],
)
def test_every_number_of_a_transport_moves_the_weight(other):
    assert other.weight(1.6e7) != pytest.approx(CONNECTIONS.weight(1.6e7), rel=1e-3)


def test_weights_share_a_link_and_waste_none_of_it():
    """Weighted max-min fairness (Bertsekas and Gallager, section 6.5.2): rates in proportion, link full."""
    graph = sends(3e7, 1e7)
    plain = ends(graph)
    assert plain == ends(graph, lambda _: 0.25)
    assert plain["1e+07"] == pytest.approx(2e7 / 12.5e9)
    weighed = ends(graph, lambda size: 0.5 if size > 2e7 else 1.0)
    assert weighed["1e+07"] == pytest.approx(1.5e7 / 12.5e9)
    assert weighed["3e+07"] == plain["3e+07"] == pytest.approx(4e7 / 12.5e9)


def test_a_long_transfer_waits_for_young_ones_and_takes_no_longer_alone():
    alone = sends(3.2e7)
    assert ends(alone, CONNECTIONS.weight) == ends(alone)
    both = sends(3.2e7, 3.0e7, 4e6, 4.1e6)
    assert ends(both, CONNECTIONS.weight)["4e+06"] < 0.6 * ends(both)["4e+06"]


@pytest.mark.parametrize("bad", [{"packet_bytes": 0.0}, {"initial_packets": -1.0}, {"gain": 1.5}])
def test_a_transport_that_cannot_be_is_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        replace(TRANSPORT, **bad)

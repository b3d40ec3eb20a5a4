"""Numbers that were once wrong, each held to a count by hand, to a peer, or to what made it wrong."""

import pytest

from experiments.hardware import Hardware
from experiments.network.flows import FlowsOnFabric
from experiments.study import Progress

NEXT_GROUP = 8
"""Cards of a group of the dragonfly below."""


@pytest.mark.parametrize(("width", "seconds"), [(1, 70.7e-3), (2, 47.1e-3)])
def test_a_shift_of_groups_over_valiant_ways_takes_what_a_calculator_says(tmp_path, width, seconds):
    """Once 82.5 ms, as detours piled up. 1 GB from each of 72 cards to the next group, over seven others.

    A global link carries 16/7 flows, so 47.1 ms; single local links carry 24/7.
    """
    file = tmp_path / "shift.csv"
    rows = (f"{one},{(one + NEXT_GROUP) % 72},1e9" for one in range(72))
    file.write_text("source,destination,bytes\n" + "\n".join(rows))
    dragonfly = ("terminals=2", "routers=4", "global_links=2", "routing=valiant", f"local_width={width}")
    hardware = Hardware(fabric="dragonfly", settings=(*dragonfly, "scale_up.size=1"))
    found = FlowsOnFabric(file=file, accelerators=72, hardware=hardware).run(Progress())
    assert found.times.makespan_s == pytest.approx(seconds, rel=0.01)

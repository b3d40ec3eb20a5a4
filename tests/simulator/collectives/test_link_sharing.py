"""Two collectives on common links: the slowdown that max-min fair shares give them."""

import numpy as np
import pytest

from simulator.collectives.flow_groups import FlowGroup, GroupRound, PricedCollective
from simulator.collectives.lines import collective_slowdown, crowded
from simulator.collectives.traffic import APART, pair_slowdown
from simulator.engine.network import max_min_rates
from simulator.interfaces import Flows


def flow_group(index: int, links: list[int], usage: list[float]) -> FlowGroup:
    """Return a flow group that loads links."""
    flows = Flows(sources=np.array([0]), destinations=np.array([1]), size_bytes=1.0)
    return FlowGroup(
        index=index, flows=flows, demand=(), links=np.array(links), usage=np.array(usage, dtype=float)
    )


def plan(*parts: tuple[FlowGroup, float, int]) -> PricedCollective:
    """Return a collective of some rounds."""
    return PricedCollective(
        algorithm="ring",
        parts=tuple(GroupRound(*part) for part in parts),
        protocol_s=0.0,
        alone_s=1.0,
        empty_s=0.0,
        wire_bytes=1.0,
        energy_j=0.0,
    )


@pytest.mark.parametrize("seed", range(6))
def test_slowdown_is_that_of_max_min_rates(seed: int) -> None:
    """Two flow groups alone and together, against progressive filling (Bertsekas and Gallager, 6.5.2)."""
    random = np.random.default_rng(seed)
    capacity = random.uniform(1.0, 4.0, 8)
    sides = []
    for index in range(2):
        links = np.sort(random.choice(8, 4, replace=False))
        sides.append(flow_group(index, links.tolist(), random.integers(1, 4, 4).tolist()))
    owner = np.repeat([0, 1], 4)
    links = np.concatenate([one.links for one in sides])
    usage = np.concatenate([one.usage for one in sides])
    together = max_min_rates(owner, links, capacity, flows=2, usage=usage)
    alone = [float((capacity[one.links] / one.usage).min()) for one in sides]
    found = pair_slowdown(*sides, capacity)
    assert [found.one, found.other] == pytest.approx([alone[0] / together[0], alone[1] / together[1]])


def test_collectives_without_a_common_link_do_not_meet() -> None:
    """Nothing is lost on links of one's own; a round that meets counts with its share of the time."""
    near, far, other = flow_group(0, [0], [1]), flow_group(1, [1], [1]), flow_group(2, [1], [1])
    capacity = np.ones(2)
    assert collective_slowdown(plan((near, 1.0, 1)), plan((other, 1.0, 1)), capacity) == APART
    both = collective_slowdown(plan((near, 3.0, 1), (far, 1.0, 1)), plan((other, 1.0, 1)), capacity)
    assert both.one == pytest.approx(1.25)
    assert both.other == pytest.approx(1.25)


def test_a_crowd_shares_the_link_equally() -> None:
    """Of n stages that all use one link each is n times as long; a wide link takes them all."""
    stages = [plan((flow_group(index, [0, 1 + index], [1, 1]), 1.0, 1)) for index in range(4)]
    assert crowded(stages[0], stages[1:], np.array([1.0, 1.0, 1.0, 1.0, 1.0])) == pytest.approx(4.0)
    assert crowded(stages[0], stages[1:], np.array([4.0, 1.0, 1.0, 1.0, 1.0])) == pytest.approx(1.0)

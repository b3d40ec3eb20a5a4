"""Goodput: what checkpoints and restarts leave, and what a machine of failing units can place."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from simulator.errors import ParameterError
from simulator.goodput import (
    best_effective_share,
    best_interval_s,
    best_spares,
    cubed_share,
    cubes,
    effective_share,
    fixed_share,
    host_names,
    job_mtbf_s,
    load_hosts,
    load_parts,
    spared_share,
    spliced_share,
)
from simulator.topology.scale_up import BillItem
from tests.bounds import young_interval_s

HOUR, DAY = 3600.0, 86400.0


def simulated_share(interval_s, write_s, restart_s, mtbf_s, *, segments, generator):
    """Play failures out: a segment of computing and writing counts only if no failure strikes it."""
    elapsed, done = 0.0, 0
    next_failure = generator.exponential(mtbf_s)
    while done < segments:
        if next_failure > interval_s + write_s:
            elapsed, next_failure, done = (
                elapsed + interval_s + write_s,
                next_failure - interval_s - write_s,
                done + 1,
            )
            continue
        elapsed += next_failure
        while (next_failure := generator.exponential(mtbf_s)) <= restart_s:
            elapsed += next_failure
        elapsed, next_failure = elapsed + restart_s, next_failure - restart_s
    return segments * interval_s / elapsed


@pytest.mark.parametrize(("interval_s", "restart_s"), [(900.0, 300.0), (3600.0, 1200.0), (7200.0, 60.0)])
def test_effective_share_is_what_played_out_failures_leave(interval_s, restart_s):
    """Daly 2006, eq. 20, against a Monte Carlo of the same renewal process."""
    runs = [
        simulated_share(
            interval_s, 60.0, restart_s, 2 * HOUR, segments=400, generator=np.random.default_rng(seed)
        )
        for seed in range(24)
    ]
    exact = effective_share(interval_s, write_s=60.0, restart_s=restart_s, mtbf_s=2 * HOUR)
    error = np.std(runs) / math.sqrt(len(runs))
    assert abs(np.mean(runs) - exact) < 4 * error + 0.003


@pytest.mark.parametrize("ratio", [1e-5, 1e-3, 0.1, 1.0, 3.0])
def test_best_interval_beats_its_neighbours(ratio):
    """Daly 2006: the optimum of the complete model; Young 1974 is its limit for short writes."""
    mtbf_s = 10 * HOUR
    write_s = ratio * mtbf_s
    best_s = best_interval_s(write_s, mtbf_s)
    keys = {"write_s": write_s, "restart_s": 100.0, "mtbf_s": mtbf_s}
    at = effective_share(best_s, **keys)
    assert at == best_effective_share(**keys)
    for factor in (0.7, 0.9, 0.99, 1.01, 1.1, 1.4):
        assert effective_share(best_s * factor, **keys) < at
    assert best_s <= young_interval_s(write_s, mtbf_s)
    if ratio == 1e-5:
        assert best_s == pytest.approx(young_interval_s(write_s, mtbf_s), rel=5e-3)


@pytest.mark.parametrize(
    ("nodes", "per_kilo_node_day", "write_s", "restart_s", "expected"),
    [
        (1500, 6.5, 10, 0, 0.954),
        (1500, 6.5, 10, 300, 0.921),
        (2048, 3.789, 30, 300, 0.903),
        (2048, 3.789, 60, 600, 0.850),
    ],
)
def test_small_losses_give_the_published_formula(nodes, per_kilo_node_day, write_s, restart_s, expected):
    """(1 - N r (u + dt/2)) / (1 + w/dt) of arXiv:2410.21680, the first order of the complete model."""
    mtbf_s = DAY / (nodes * per_kilo_node_day / 1000)
    found = best_effective_share(write_s=write_s, restart_s=restart_s, mtbf_s=mtbf_s)
    interval_s = young_interval_s(write_s, mtbf_s)
    first_order = (1 - (restart_s + interval_s / 2) / mtbf_s) / (1 + write_s / interval_s)
    assert first_order == pytest.approx(expected, abs=6e-4)
    assert found == pytest.approx(expected, abs=4e-3)


def test_limits_of_the_effective_share():
    """No failures leave tau / (tau + w); failures all the time leave nothing; each loss lowers it."""
    keys = {"write_s": 10.0, "restart_s": 100.0, "mtbf_s": HOUR}
    assert effective_share(90.0, write_s=10.0, restart_s=100.0, mtbf_s=1e15) == pytest.approx(0.9)
    assert effective_share(90.0, write_s=10.0, restart_s=100.0, mtbf_s=0.01) == 0.0
    assert best_effective_share(write_s=0.0, restart_s=60.0, mtbf_s=HOUR) == math.exp(-60.0 / HOUR)
    base = best_effective_share(**keys)
    for name, factor in (("write_s", 2), ("restart_s", 2), ("mtbf_s", 0.5)):
        assert best_effective_share(**(keys | {name: keys[name] * factor})) < base
    with pytest.raises(ParameterError, match="must be positive"):
        effective_share(0.0, **keys)


@pytest.mark.parametrize("count", [1, 5, 16, 32, 48, 64])
def test_spliced_share_is_the_mean_over_healthy_cubes(count):
    """E[k floor(H / k)] / cubes of arXiv:2304.01433, term by term, with 64 cubes of 16 hosts."""
    up = 0.99**16
    chances = [math.comb(64, healthy) * up**healthy * (1 - up) ** (64 - healthy) for healthy in range(65)]
    mean = sum(count * (healthy // count) * chance for healthy, chance in enumerate(chances)) / 64
    assert spliced_share(64, count, up) == pytest.approx(mean, rel=1e-12)
    assert fixed_share(64, count, up) <= spliced_share(64, count, up) + 1e-12


SOME = [(units, group) for units, most in ((3, 3), (8, 8), (10, 8)) for group in range(1, most + 1)]
"""Hosts, and those of a group, of which at least one finds a place."""


@pytest.mark.parametrize(("units", "group"), SOME)
def test_cubes_are_placed_as_they_count(units, group):
    """The mean over every state of every host: whole cubes joined, boxes within one, a part of a cube."""
    cube, up = 4, 0.8
    states = np.array(list(product([False, True], repeat=units)))
    likely = up ** states.sum(axis=1) * (1.0 - up) ** (~states).sum(axis=1)
    placed = cubes(cube, group)
    mean = likely @ [placed(state) for state in states] / units
    assert cubed_share(units, group, cube, up) == pytest.approx(mean)
    assert all(placed(state) <= state.sum() for state in states)


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16, 32, 64])
def test_a_failed_node_takes_away_its_box_and_no_more(group):
    """Of cubes of 16 nodes; it takes a whole one from those that need all of it."""
    works = np.ones(256, dtype=bool)
    assert cubes(16, group)(works) == 256
    works[37] = False
    assert 256 - cubes(16, group)(works) == group
    assert cubed_share(256, group, 16, 1.0) == 1.0


def test_shares_have_their_limits():
    assert spliced_share(100, 30, 1.0) == fixed_share(100, 30, 1.0) == pytest.approx(0.9)
    assert spliced_share(4000, 4, 0.9) == pytest.approx(0.9, abs=0.001)
    assert fixed_share(1024, 256, 0.99) == pytest.approx(0.99**256)
    with pytest.raises(ParameterError, match="does not fit"):
        spliced_share(4, 5, 0.9)
    with pytest.raises(ParameterError, match="from 0 to 1"):
        fixed_share(4, 2, 1.1)


def test_spares_pay_until_they_idle():
    """Never worse than none; more failures need more of them; none at all where nothing fails."""
    assert best_spares(100, 1.0) == 0
    found = [best_spares(256, availability) for availability in (0.999, 0.99, 0.97)]
    assert found == sorted(found)
    assert found[0] > 0
    best = spared_share(256, found[1], 0.99)
    assert best > spared_share(256, 0, 0.99) == pytest.approx(0.99**256)
    for spares in (found[1] - 1, found[1] + 1, 4 * found[1]):
        assert spared_share(256, spares, 0.99) <= best


def test_rates_of_independent_failures_add():
    hosts, parts = load_hosts("llama-3"), {part.name: part for part in load_parts()}
    bill = {
        "transceiver": BillItem(count=1000, w_each=0, usd_each=0),
        "nic": BillItem(count=9, w_each=0, usd_each=0),
    }
    alone = job_mtbf_s(hosts, 64, {}, parts)
    assert alone == pytest.approx(hosts.mtbf_s / 8)
    both = job_mtbf_s(hosts, 64, bill, parts)
    assert 1 / both == pytest.approx(1 / alone + 1000 / parts["transceiver"].mtbf_s)
    assert job_mtbf_s(hosts, 65, {}, parts) == pytest.approx(hosts.mtbf_s / 9)


@pytest.mark.parametrize("name", host_names())
def test_availability_is_up_time_over_all_time(name):
    hosts = load_hosts(name)
    assert hosts.mtbf_s / (hosts.mtbf_s + hosts.mttr_s) == pytest.approx(hosts.availability)
    assert replace(hosts, availability=1.0).mttr_s == 0.0

"""Published losses of hashed flows, and the same by a hash and a filling of our own."""

import csv
import hashlib

import numpy as np
import pytest

from electronic.devices import load_packet_switch
from experiments.validation.network import HASHED_SIZES, hashed_share, outcomes
from experiments.validation.rows import REFERENCE, FileError, Record

METRIC = "hashed flows' share of the line rate"


def one(system, value, config):
    cells = {"system": system, "metric": METRIC, "value": value, "unit": "%", "config": config}
    return next(iter(outcomes(Record("rows.csv:2", cells))))


@pytest.mark.parametrize(
    ("system", "published", "config"),
    [
        ("Baidu AIPod", 70, "two levels, 2 queue pairs"),
        ("NVIDIA Spectrum-X", 60, "standard Ethernet, three levels"),
    ],
)
def test_hashed_flows_keep_what_operators_publish(system, published, config):
    """Both say "about" or a round number; what pairs communicate they do not say, hence 10 %."""
    found = one(system, str(published), config)
    assert found.predicted == pytest.approx(published / 100, rel=0.10)


def test_a_row_without_levels_is_left_out_with_the_reason():
    assert "levels" in one("Baidu AIPod", "70", "100 Gb/s links").skipped


def filled(paths):
    """Return max-min rates of flows over links of capacity one, by filling all links step by step."""
    rates, left, load = np.zeros(len(paths)), {}, {}
    for path in paths:
        for link in path:
            left[link], load[link] = 1.0, load.get(link, 0) + 1
    moving = set(range(len(paths)))
    while moving:
        step = min(left[link] / load[link] for link in left if load[link])
        for link in left:
            left[link] -= step * load[link]
        for flow in moving:
            rates[flow] += step
        full = {link for link in left if left[link] < 1e-9}
        for flow in [flow for flow in moving if full & set(paths[flow])]:
            moving.remove(flow)
            for link in paths[flow]:
                load[link] -= 1
    return rates


@pytest.mark.parametrize("pairs", [1, 2])
def test_an_independent_hash_and_filling_lose_as_much(pairs):
    """BLAKE2 of the headers over 2 levels filled link by link: within 0.02 of the share."""
    ports, radix = HASHED_SIZES["two"]
    down, leaves = radix // 2, 2 * ports // radix
    shift = 1 + np.random.default_rng(5).integers(leaves - 1, size=down)
    paths = []
    for source in range(ports):
        leaf, place = divmod(source, down)
        there = (leaf + shift[place]) % leaves
        for pair in range(pairs):
            head = hashlib.blake2b(f"{source},{there},{pair}".encode(), digest_size=8).digest()
            spine = int.from_bytes(head) % down
            paths.append(
                (("card", source), ("up", leaf, spine), ("down", there, spine), ("to", there, place))
            )
    share = filled(paths).sum() / ports
    assert share == pytest.approx(np.mean([hashed_share(ports, radix, pairs, s) for s in range(3)]), abs=0.02)


CONTROL_BYTES, PACKET_BYTES = 64, 4096
"""Packets of that simulator: answers and headers, and data."""


@pytest.mark.parametrize(("over", "cut"), [(1, 0.0), (2, 340_213 / 317_504), (4, 1_129_676 / 317_504)])
def test_what_a_packet_simulator_takes_longer_is_its_control_packets(over, cut):
    """`cut` of its packets arrive as headers alone before each that arrives whole; all are answered twice."""
    with (REFERENCE / "network.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "last flow, shift by a leaf"]
    row = next(row for row in rows if f"over={over}," in row["config"])
    found = next(iter(outcomes(Record("rows.csv:2", row))))
    wires = found.predicted * load_packet_switch("switch-400g").adaptive_efficiency
    control = (cut + 2 * (1 + cut)) * CONTROL_BYTES / PACKET_BYTES
    assert wires * (1 + control) == pytest.approx(found.measured, rel=0.02)


def test_leaves_that_do_not_fill_are_told():
    config = "N=60, down=8, over=1, rate=400 Gb/s, flow=20 MB, payload=4032 B, packet=4096 B"
    cells = {"system": "csg-htsim", "metric": "last flow, all-to-all", "value": "1", "config": config}
    with pytest.raises(FileError, match="leaves of 8 must fill 60 hosts"):
        next(iter(outcomes(Record("rows.csv:2", cells))))

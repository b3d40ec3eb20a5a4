"""`heliograph cost goodput`: points by size and fabric, changes of the fleet, files."""

import json

import pytest

from experiments.cli import BAD_INPUT
from experiments.cost.goodput import GoodputOf, Splicing, goodput, placed_share
from simulator.goodput import load_hosts
from simulator.parameter_tree import numeric_leaves
from tests import builders


def call(capsys, *arguments):
    return builders.call(capsys, "cost", "goodput", *arguments)


def last(fabric="rails", *assignments, machine=1024):
    request = GoodputOf(machine=machine, fabric=(fabric,), settings=assignments)
    return goodput(request).points[-2]


def test_published_slices_of_tpu_v4():
    """arXiv:2304.01433: 50 % and 75 % of 4096 chips with circuits; without them next to nothing."""
    hosts = load_hosts("tpu-v4-hosts")
    assert placed_share(4096, 2048, hosts, Splicing.CUBE) == pytest.approx(0.50, abs=0.005)
    assert placed_share(4096, 3072, hosts, Splicing.CUBE) == pytest.approx(0.75, abs=0.01)
    assert placed_share(4096, 1024, hosts, Splicing.FIXED) < 0.1


def test_larger_jobs_stop_more_often_and_keep_less():
    found = goodput(GoodputOf(machine=2048, fabric=("rails",))).points
    assert [one.mtbf_s for one in found] == sorted((one.mtbf_s for one in found), reverse=True)
    assert [one.effective for one in found] == sorted((one.effective for one in found), reverse=True)
    assert all(one.mtbf_s < one.hosts_mtbf_s for one in found[4:])


def test_hosts_larger_than_a_cube_are_spliced_one_by_one():
    few, many = (last("torus", f"hosts.accelerators={size}", machine=8192) for size in (64, 1024))
    assert 0.0 < many.placed <= 1.0
    assert many.placed != few.placed


def test_every_number_of_the_fleet_moves_some_fabric():
    """No dead knob: each number of hosts, checkpoints and parts changes goodput or its splicing."""
    fabrics = ("rails", "ocs_rails", "torus")
    fleet = goodput(GoodputOf(machine=512, fabric=fabrics)).fleet
    base = goodput(GoodputOf(machine=512, fabric=fabrics)).points
    for path, value in numeric_leaves(fleet).items():
        new = value * (0.99 if path.endswith("availability") else 2)
        assert goodput(GoodputOf(machine=512, fabric=fabrics, settings=(f"{path}={new}",))).points != base, (
            path
        )


def test_better_hosts_and_faster_checkpoints_help():
    base = last()
    assert last("rails", "hosts.mtbf_s=69120 h").effective > base.effective
    assert last("rails", "hosts.write_s=1").effective > base.effective
    assert last("rails", "hosts.availability=0.999").spared > base.spared
    assert last("rails", "parts.packet switch.mtbf_s=1000 h").mtbf_s < base.mtbf_s


def test_files_hold_the_points(capsys, tmp_path):
    code, out, _ = call(
        capsys, "--machine", 512, "--fabric", "rails", "--fabric", "torus", "--out", tmp_path, "--json"
    )
    assert code == 0
    found = json.loads(out)
    rows = builders.csv_rows(tmp_path / "goodput.csv")
    assert len(rows) == len(found["points"])
    assert {row["fabric"] for row in rows} == {"rails", "torus"}
    for row in rows:
        assert float(row["goodput"]) == pytest.approx(float(row["placed"]) * float(row["effective"]))
    assert (tmp_path / "goodput.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hosts", "llama"), "reliability.csv has no device 'llama'"),
        (("--fabric", "railz"), "no fabric 'railz'"),
        (("--machine", "12"), "whole hosts of 8"),
        (("--set", "hosts.availability=2"), "availability"),
        (("--set", "hosts.mtbf_s=inf"), "mtbf_s must be finite"),
        (("--set", "hosts.mtbf_s=5e-324"), "mtbf_s must be at least 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, arguments, message):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err

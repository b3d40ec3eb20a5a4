"""`heliograph network circuits`: a demand from a file, schedules, a table, files and a picture."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.cli import BAD_INPUT
from experiments.network.circuits import OPTICS, SWITCH, bank_of, read_demand, schedule_demand
from heliograph.figures import DPI, WIDTH_IN
from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.schedule import DARK, SchedulePolicy
from simulator.errors import ParameterError
from tests import builders

BARE = "0,8e6,1e6\n2e6,0,9e6\n5e6,1e6,0\n"
NAMED = "bytes,to a,to b,to c\na,0,8e6,1e6\nb,2e6,0,9e6\nc,5e6,1e6,0\n"


def file_of(tmp_path, text, name="demand.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def call(capsys, *arguments):
    return builders.call(capsys, "network", "circuits", *arguments)


@pytest.mark.parametrize("text", [BARE, NAMED, "x,y,z\n" + BARE, BARE.replace(",", " , ") + "\n\n"])
def test_a_demand_reads_with_and_without_names(tmp_path, text):
    np.testing.assert_array_equal(
        read_demand(file_of(tmp_path, text)), [[0, 8e6, 1e6], [2e6, 0, 9e6], [5e6, 1e6, 0]]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n2,x\n", "demand.csv:2: column 2 is 'x'"),
        ("a,b\n0,1\n-2,0\n", "demand.csv:3: column 1 is '-2'"),
        ("0,1\n2,nan\n", "demand.csv:2: column 2 is 'nan'"),
        ("0,1\n2,inf\n", "demand.csv:2: column 2 is 'inf'"),
        ("0,1\n\n2\n", "demand.csv:3: has 1 numbers, and the file 2 rows"),
        ("0,1,2\n1,0,2\n", "demand.csv:1: has 3 numbers, and the file 2 rows"),
        ("1\n", "holds 1 rows of numbers"),
        ("0,1MB\n2MB,0\n", "demand.csv:1: column 2 is '1MB'"),
        ("1MB,2MB\n3MB,4MB\n", "demand.csv:1: column 1 is '1MB'"),
        ("a,b\n", "holds 0 rows of numbers"),
        ("", "is empty"),
    ],
)
def test_what_is_no_demand_names_file_and_line(tmp_path, capsys, text, message):
    code, out, err = call(capsys, file_of(tmp_path, text))
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--policy", "eclipsed", "no policy 'eclipsed'; did you mean 'eclipse'?"),
        ("--reconfiguration", "25 GB", "unit 'GB' does not fit"),
        ("--reconfiguration", "-1us", "reconfiguration_s must be at least 0"),
        ("--rate", "0", "rate_bytes_per_s must be above 0"),
        ("--planes", "0", "switches must be at least 1"),
        ("--planes", "1000000", "switches must be at least 1 and at most 1024"),
        ("--switch", "palomar", "palomar-mems"),
    ],
)
def test_what_cannot_be_is_exit_code_2(tmp_path, capsys, option, value, message):
    code, out, err = call(capsys, file_of(tmp_path, BARE), f"{option}={value}")
    assert (code, out) == (BAD_INPUT, "")
    assert message in err


def test_the_delay_and_the_rate_are_those_of_devices_unless_given(tmp_path):
    path = file_of(tmp_path, BARE)
    plant = bank_of()
    assert plant.reconfiguration_s == load_switch(SWITCH).reconfiguration_s
    assert plant.rate_bytes_per_s == load_optics(OPTICS).bandwidth_bytes_per_s
    given = bank_of(reconfiguration_s=25e-6, rate_bytes_per_s=50e9, packet_rate_bytes_per_s=5e9)
    numbers = (given.reconfiguration_s, given.rate_bytes_per_s, given.packet_rate_bytes_per_s)
    assert numbers == pytest.approx((25e-6, 50e9, 5e9))
    slow, usual = (schedule_demand(path, bank) for bank in (bank_of("palomar-mems"), plant))
    assert slow.best.makespan_s > usual.best.makespan_s


def test_every_policy_prints_draws_and_writes(tmp_path, capsys):
    path, out_dir = file_of(tmp_path, NAMED), tmp_path / "out"
    code, out, _ = call(capsys, path, "--reconfiguration", "25us", "--rate", "50GB/s", "--out", out_dir)
    assert code == 0
    assert all(policy in out for policy in SchedulePolicy)
    assert "No schedule takes less than" in out
    assert imread(out_dir / "circuits.png").shape[1] == WIDTH_IN * DPI
    rows = builders.csv_rows(out_dir / "circuits_configurations.csv")
    counts = {
        row["policy"]: int(row["configurations"]) for row in builders.csv_rows(out_dir / "circuits.csv")
    }
    for policy, count in counts.items():
        assert sum(row["policy"] == policy for row in rows) == count


def test_json_holds_what_the_schedules_say(tmp_path, capsys):
    path = file_of(tmp_path, BARE)
    options = ("--policy", "spectra,solstice", "--planes", "2", "--packet-rate", "1GB/s")
    code, out, _ = call(capsys, path, *options, "--json", "--out", tmp_path / "out")
    record = json.loads(out)
    assert code == 0
    assert [one["policy"] for one in record["policies"]] == ["solstice", "spectra"]
    found = schedule_demand(path, bank_of(planes=2, packet_rate_bytes_per_s=1e9), "spectra,solstice")
    for one, schedule in zip(record["policies"], found.schedules, strict=True):
        assert one["makespan_s"] == schedule.makespan_s >= record["bound_s"] * (1 - 1e-9)
        assert (schedule.permutations != DARK).any()
    assert record["best"] == found.best.policy


def test_no_traffic_needs_no_circuit(tmp_path, capsys):
    code, out, _ = call(capsys, file_of(tmp_path, "0,0\n0,0\n"), "--out", tmp_path / "out")
    assert code == 0
    assert "No schedule takes less than 0 s" in out


def test_a_directory_that_is_a_file_is_refused(tmp_path, capsys):
    path = file_of(tmp_path, BARE)
    code, _, err = call(capsys, path, "--policy", "double", "--out", path)
    assert code == BAD_INPUT
    assert "--out" in err
    with pytest.raises(ParameterError, match="no policy"):
        schedule_demand(path, bank_of(), "none")

"""Published runs of switches that turn in a fixed round, and what a reduction in light keeps."""

import json

import pytest

from experiments.__main__ import main
from experiments.validation.driver import validate
from experiments.validation.network import outcomes
from experiments.validation.network_costs import paper_usd, ring_prices
from experiments.validation.rows import Record
from heliograph.simulation import run_step
from heliograph.systems import build_system
from heliograph.tables import comparison_rows
from heliograph.workload import plan_for
from workloads.models.config import load_model

SETTING = "N=16, u=4, r=10 us, T_ss=100.9 us, hosts=4, rate=10 Gb/s, pair=3 MB, payload=1436 B, packet=1500 B"


def one(metric, value, config=SETTING, unit="share"):
    cells = {"system": "RotorNet", "metric": metric, "value": value, "unit": unit, "config": config}
    return next(iter(outcomes(Record("rows.csv:2", cells))))


@pytest.mark.slow
def test_a_packet_simulator_s_rotors_are_bounded_and_nearly_met():
    """Mellette et al., SIGCOMM 2017: duty 1 - r / (u T_ss), uniform traffic (N - 1) / N of it."""
    duty = 1 - 10 / (4 * 100.9)
    found = {
        row.id.split("packet=1500 B ")[1]: row for row in validate("network").outcomes if "Rotor" in row.id
    }
    assert found["duty cycle"].predicted == pytest.approx(duty)
    assert "below the law" in found["duty cycle"].hint
    busy = found["utilisation of lanes, all-to-all"]
    assert busy.predicted == pytest.approx(15 / 16 * duty)
    assert busy.measured < busy.predicted < 1.02 * busy.measured
    mean = found["mean flow completion, all-to-all"]
    assert 0.98 * mean.measured < mean.predicted < mean.measured


@pytest.mark.parametrize(
    ("old", "new", "later"),
    [("r=10 us", "r=40 us", True), ("pair=3 MB", "pair=6 MB", True), ("u=4", "u=8", False)],
)
def test_an_all_to_all_takes_longer_in_the_dark_and_shorter_over_more_lanes(old, new, later):
    before = one("mean flow completion, all-to-all", "167.4", unit="ms").predicted
    after = one("mean flow completion, all-to-all", "167.4", SETTING.replace(old, new), "ms").predicted
    assert (after > before) is later


def test_the_duty_is_counted_and_not_the_law():
    """RotorNet, section 4: a packet that a slot does not hold waits: up to one a slot is lost."""
    duty, slot_s, rate = 1 - 10 / 403.6, 403.6e-6, 1.25e9
    for packet in (64, 9000, 60000, 200000):
        found = one(
            "duty cycle", "0.9752", SETTING.replace("packet=1500", f"packet={packet}").replace("1436", "60")
        )
        assert duty - packet / (rate * slot_s) < found.predicted <= duty * (1 + 1e-9)
    assert found.predicted < 0.9 * duty
    assert one("duty cycle", "1", SETTING.replace("u=4", "u=16")).predicted == 1.0
    short = SETTING.replace("packet=1500", "packet=2000000")
    assert one("mean flow completion, all-to-all", "167.4", short, "ms").hint == "ours is fluid"


@pytest.mark.parametrize(
    ("old", "new"),
    [("N=16", "N=1.5"), ("u=4", "u=0"), ("r=10", "r=x"), ("r=10", "r=900"), ("payload=1436", "payload=1600")],
)
def test_a_setting_that_cannot_be_is_one_sentence_and_exit_code_2(tmp_path, capsys, old, new):
    path = tmp_path / "rows.csv"
    config = SETTING.replace(old, new)
    path.write_text(
        f'system,metric,value,unit,config\nRotorNet,duty cycle,0.9,share,"{config}"\n', encoding="utf-8"
    )
    assert main(["validate", "network", "--json", "--data", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "rows.csv:2" in err
    assert err.count("\n") == 1


def test_a_share_above_one_is_refused_and_a_missing_setting_skipped(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text(
        f'system,metric,value,unit,config\nRotorNet,duty cycle,1.5,share,"{SETTING}"\n', encoding="utf-8"
    )
    assert main(["validate", "network", "--data", str(path)]) == 2
    assert "at most 1" in capsys.readouterr().err
    assert "has no T_ss" in one("duty cycle", "0.9", SETTING.replace("T_ss=100.9 us, ", "")).skipped


def test_a_ring_of_transceivers_costs_less_than_a_switched_domain():
    """Shou et al., InfiniteHBD, SIGCOMM 2025: 31 %; ours by the bills of the fabrics that ship."""
    prices = ring_prices()
    assert 0.31 < prices.as_built < prices.same_rate < 1.0
    assert prices.paper == pytest.approx(0.31, abs=0.005)
    assert paper_usd("nvl-72") == pytest.approx((18 * 28000 + 5184 * 35.6) / 72)
    assert paper_usd("infinite-hbd") == pytest.approx(4 * 600 + 199.6 + 4 * 6.8)


def test_bits_of_a_reduction_in_light_are_shown_where_a_fabric_has_one(capsys):
    config = load_model("llama-3-8b")
    records = []
    for name in ("gpu_packet@optical_reduction", "gpu_packet@fat_tree"):
        system = build_system(name, accelerators=32)
        memory_bytes = system.node().memory.capacity_bytes
        plan = plan_for(config, "", accelerators=32, memory_bytes=memory_bytes)
        records.append(run_step(system, config, plan).record() | {"inputs_by_status": {}})
    bits = build_system("gpu_packet@optical_reduction", accelerators=32).fabric.effective_bits
    rows = {row.label.strip(): row.values for row in comparison_rows(records)}
    assert rows["of gradients added in light"] == (f"{bits:.2f}", "not in light")
    assert "of gradients added in light" not in {row.label.strip() for row in comparison_rows(records[1:])}
    assert "reduction_effective_bits" not in records[1]
    assert main(["show", "optical_reduction", "--json"]) == 0
    shown = {item["path"]: item["value"] for item in json.loads(capsys.readouterr().out)["parameters"]}
    assert 0 < shown["effective_bits"] <= bits
    assert main(["show", "fat_tree", "--json"]) == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert "effective_bits" not in {item["path"] for item in parameters}

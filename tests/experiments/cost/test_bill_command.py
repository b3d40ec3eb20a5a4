"""`heliograph cost bill`: items that add up to the fabric, ranges of the tables, parts by name, files."""

import itertools
import json
from dataclasses import replace

import pytest

from electronic.devices import Transceiver, load_transceiver
from experiments.cli import BAD_INPUT
from experiments.cost.bill import POWER, PRICE, BillOf, Priced, bill_of
from experiments.study import Progress
from heliograph.systems import build_system
from heliograph.systems.fabrics import FABRICS, build_fabric, network_parts
from simulator.topology.scale_up import BillItem, bill_power_w, bill_price_usd, load_cables
from tests import builders

N = 256
CABLES = ("fibre (m)", "patch panel place")


def one(**keys):
    return BillOf(accelerators=N, **keys).run(Progress()).bills[0]


def call(capsys, *arguments):
    return builders.call(capsys, "cost", "bill", *arguments)


@pytest.mark.parametrize("name", FABRICS)
def test_lines_add_up_to_what_the_fabric_answers(name):
    """Conservation: what is billed beside the cables is the fabric's own power and price."""
    bill, fabric = one(fabric=name), build_fabric(name, N, "h100")
    lines = [line for line in bill.lines if line.item not in CABLES]
    assert sum(line.power_w.value for line in lines) == pytest.approx(fabric.static_w)
    assert sum(line.price_usd.value for line in lines) == pytest.approx(fabric.cost_usd)
    for line in bill.lines:
        for span in (line.power_w, line.price_usd):
            assert 0.0 <= span.low <= span.value <= span.high
    assert bill.total(PRICE).low < bill.total(PRICE).value < bill.total(PRICE).high


@pytest.mark.slow
def test_a_system_adds_its_accelerators():
    system = build_system("photonic_packet", accelerators=N)
    lines = {line.item: line for line in one(system="photonic_packet").lines}
    assert lines["accelerator"].price_usd.value == pytest.approx(N * system.accelerator_usd())
    assert lines["accelerator"].power_w.value == pytest.approx(N * system.accelerator_peak_w())
    assert lines["accelerator"].price_usd.low < lines["accelerator"].price_usd.value
    assert lines["accelerator"].power_w.high <= N * system.gpu.chip.tdp_w  # boards are held to their limit
    below = one(system="photonic_packet", settings=("photonic.cores=30",)).lines
    power_w = next(line.power_w for line in below if line.item == "accelerator")
    assert power_w.low < power_w.value < power_w.high <= N * system.gpu.chip.tdp_w


def test_ranges_are_those_of_the_table_times_the_count():
    """A line is linear in its price, so the ends are the table's: 300 and 1200 USD around 600."""
    line = next(line for line in one(fabric="rails").lines if line.item == "transceiver")
    span = line.price_usd
    assert (span.low / span.value, span.high / span.value) == (pytest.approx(0.5), pytest.approx(2.0))
    assert line.status(PRICE) == "assumed"
    assert line.status(POWER) == "derived"


def test_a_number_that_the_user_sets_has_no_range():
    free = one(fabric="rails", settings=("transceiver.price_usd=500",))
    line = next(line for line in free.lines if line.item == "transceiver")
    span = line.price_usd
    assert span.low == span.value == span.high == 500 * line.count


def test_ends_at_which_no_light_arrives_are_left_out_and_named():
    bill = one(fabric="ocs_rails")
    assert any("does not close" in text for text in bill.refused)


def test_kinds_of_modules_are_chosen_by_name():
    """20, 10.6 and 5.6 pJ/bit of pluggable, linear and co-packaged optics at 400G order the bills."""
    watts = [
        one(fabric="fat_tree", settings=(f"transceiver={kind}-400g",)).total(POWER).value
        for kind in ("dr4", "lpo", "cpo")
    ]
    assert watts[0] > watts[1] > watts[2]
    kinds = {load_transceiver(name) for name in network_parts(Transceiver)}
    assert {kind.bandwidth_bytes_per_s for kind in kinds} >= {50e9, 100e9, 200e9}
    for kind in kinds:
        per_bit_j = kind.static_w / (8 * kind.bandwidth_bytes_per_s)
        assert kind.energy_j_per_bit == pytest.approx(per_bit_j)


def test_fibres_follow_the_ends_and_the_metres():
    plant = load_cables("panels")
    dark = BillItem(count=3, w_each=1, usd_each=1)
    parts = {"a": replace(dark, count=10, fibre_ends=8, fibre_m=100), "b": dark}
    found = plant.bill(parts)
    assert (found["fibre (m)"].count, found["patch panel place"].count) == (1000, 80 * plant.panels)
    assert plant.bill({"b": parts["b"]}) == {}
    for name in ("fibre_usd_per_m", "panels", "port_usd", "port_w"):
        more = replace(plant, **{name: getattr(plant, name) * 2 + 1}).bill(parts)
        assert (bill_power_w(more), bill_price_usd(more)) != (bill_power_w(found), bill_price_usd(found))


def test_corners_contain_each_number_alone():
    """Monotone: no single end of a range leads outside the bill's range."""
    system = build_system("gpu_packet", accelerators=64)
    bill = bill_of(Priced(system=system, cables=load_cables("panels"), whole=False), "rails")
    for price in (350, 1400):
        changed = build_system("gpu_packet", accelerators=64, assignments=(f"switch.port_price_usd={price}",))
        extra = bill.total(PRICE).value - system.fabric.cost_usd
        total = changed.fabric.cost_usd + extra
        assert bill.total(PRICE).low <= total <= bill.total(PRICE).high


@pytest.mark.slow
def test_all_fabrics_stand_beside_each_other_with_files(capsys, tmp_path):
    code, out, _ = call(capsys, "--accelerators", N, "--out", tmp_path, "--json")
    assert code == 0
    found = json.loads(out)
    assert [bill["name"] for bill in found["bills"]] == list(FABRICS)
    rows = builders.csv_rows(tmp_path / "bill.csv")
    total = sum(float(row["price_usd"]) for row in rows if row["bill"] == "rails")
    assert total == pytest.approx(found["bills"][0]["price_usd"]["value"])
    assert (tmp_path / "bill.png").stat().st_size > 10_000
    assert all("assumed" in row["sources"] for row in rows if row["item"] == "transceiver")


@pytest.mark.parametrize("price", [{}, {"price_usd": 1000.0}])
def test_parts_of_a_drawn_graph_without_prices_are_not_free(monkeypatch, capsys, tmp_path, price):
    """Once 0 USD, exact."""
    monkeypatch.setenv("COLUMNS", "200")  # one line for each row
    nodes = [{"id": f"g{place}", "kind": "endpoint"} for place in range(8)]
    nodes.append({"id": "leaf", "kind": "switch"} | price)
    links = [{"source": f"g{place}", "target": "leaf"} for place in range(8)]
    graph = {"graph": {"capacity_bytes_per_s": 5e10, "latency_s": 1e-6}, "nodes": nodes, "links": links}
    file = tmp_path / "net.json"
    file.write_text(json.dumps(graph))
    fabric = ("--fabric", f"graph:{file}", "--accelerators", 8)
    code, out, _ = call(capsys, *fabric, "--out", tmp_path / "bill")
    assert code == 0
    told = {line.split()[0]: line for line in out.partition("Price of")[2].splitlines() if "USD" in line}
    assert ("not given, counts as 0" in told["switch"]) == (not price)
    assert "not given, counts as 0" in told["endpoint"]
    plan = ("--plan", "dp=8,global_batch=8,recompute=full", "--objective", "cost", "--top", "1")
    asked = ("--model", "llama-3-8b", *fabric, *plan, "--out", tmp_path / "search")
    code, _, err = builders.call(capsys, "search", *asked)
    assert (code == BAD_INPUT) == (not price)
    assert ("no part has 'price_usd', so that the least cost cannot be told" in err) == (not price)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fabric", "railz"), "no fabric 'railz'"),
        (("nothing",), "no system 'nothing'"),
        (("--fabric", "rails", "--set", "transceiver=cpo-900g"), "choose one of"),
        (("--cables", "string"), "cables.csv has no device 'string'"),
        (("--fabric", "rails", "--accelerators", "12"), "must fill nodes of 8"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys, arguments, message):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err


@pytest.mark.slow
def test_a_bill_says_which_light_it_has():
    def told(system, *settings):
        blocks = BillOf(system=system, accelerators=N, settings=settings).run(Progress()).report()
        return [block for block in blocks if isinstance(block, str) and block.startswith("Light: ")]

    assert told("gpu_packet") == []
    assert "as shipped" in told("photonic_packet")[0]
    assert "sizes it" in told("photonic_packet")[0]
    (fixed,) = told("photonic_packet", "laser_power_w=0.15")
    assert fixed.startswith("Light: as it stands, 150 mW a laser or line.\nDies, stacked in pairs: ")


def test_numbers_of_an_axis_stand_apart():
    """A whole system's price has seven digits at the end of its range."""
    found = BillOf(accelerators=64, system="photonic_ocs").run(Progress())
    figure = found.figure()
    figure.canvas.draw()
    for axes in figure.axes:
        labels = [one.label1 for one in axes.xaxis.get_major_ticks() if one.label1.get_text()]
        boxes = [one.get_window_extent() for one in labels]
        inside = sorted((box.x0, box.x1) for box in boxes if axes.bbox.x0 <= box.x0 <= axes.bbox.x1)
        assert len(inside) >= 3
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(inside))

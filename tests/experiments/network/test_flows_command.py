"""`heliograph network flows`: lists of flows and matrices on any fabric."""

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.hardware import Hardware
from experiments.network.flows import FlowsOnFabric, read_flows
from experiments.study import Progress
from heliograph.systems.fabrics import FABRICS
from simulator.errors import ParameterError
from tests.builders import csv_rows

LIST = "source,destination,bytes,start_s,after\n0,8,1e9,,\n1,9,1e9,0.01,\n0,9,2e9,,0\n8,3,5e8,,\n"


def ran(path, text, *, fabric=None, accelerators=16, settings=(), system="gpu_packet"):
    path.write_text(text)
    hardware = Hardware(fabric=fabric, settings=settings)
    study = FlowsOnFabric(file=path, system=system, accelerators=accelerators, hardware=hardware)
    return study.run(Progress())


def test_flows_take_what_a_calculator_says(tmp_path):
    """0 to 8 alone; 1 to 9 with half of a card from when 0 to 9 starts; that one then has it to itself."""
    found = ran(tmp_path / "list.csv", LIST)
    rate, waits = (
        found.fabric.port_bytes_per_s,
        float(found.times.finish_s[0] - 1e9 / found.fabric.port_bytes_per_s),
    )
    assert 0.0 < waits < 1e-5
    met_s = 1e9 / rate + waits
    alone_bytes = (met_s - 0.01) * rate
    second_s = met_s + 2 * (1e9 - alone_bytes) / rate
    third_s = second_s + (2e9 - (1e9 - alone_bytes)) / rate
    expected = [met_s, second_s + waits, third_s + waits, 5e8 / rate + waits]
    np.testing.assert_allclose(found.times.finish_s, expected, rtol=1e-6)


@pytest.mark.parametrize("fabric", sorted(set(FABRICS) - {"hbd_ring"}))
def test_every_fabric_carries_a_list_and_its_links_add_up(tmp_path, fabric):
    found = ran(tmp_path / "list.csv", LIST, fabric=fabric, accelerators=64)
    assert np.isfinite(found.times.finish_s).all()
    np.testing.assert_allclose(
        found.carried_bytes.sum(axis=1),
        found.times.link_bytes[: len(found.carried_bytes)],
        rtol=1e-9,
        atol=1.0,
    )
    capacity = (
        found.graph.capacity_bytes_per_s[:, None] * found.times.makespan_s / found.carried_bytes.shape[1]
    )
    assert (found.carried_bytes <= capacity * (1 + 1e-9)).all()


def test_a_matrix_is_the_list_of_its_entries(tmp_path):
    matrix = np.full((16, 16), 1e8) - np.diag(np.full(16, 1e8))
    text = "\n".join(",".join(f"{cell:g}" for cell in row) for row in matrix)
    pairs = "".join(f"{a},{b},1e8\n" for a in range(16) for b in range(16) if a != b)
    one, other = (
        ran(tmp_path / "matrix.csv", text),
        ran(tmp_path / "list.csv", "source,destination,bytes\n" + pairs),
    )
    assert one.times.makespan_s == other.times.makespan_s
    assert one.times.makespan_s == pytest.approx(8 * 1e8 / one.fabric.port_bytes_per_s, rel=1e-3)


def test_hashed_queue_pairs_and_valiant_ways_stand_between_the_best_and_the_worst(tmp_path):
    text = "source,destination,bytes\n" + "".join(f"{a},{(a + 64) % 128},1e9\n" for a in range(128))
    times = {
        pairs: ran(
            tmp_path / "shift.csv",
            text,
            fabric="fat_tree",
            accelerators=128,
            settings=("spreading=hashed", f"queue_pairs={pairs}"),
        ).times.makespan_s
        for pairs in (1, 4)
    }
    sprayed = ran(
        tmp_path / "shift.csv", text, fabric="fat_tree", accelerators=128, settings=("spreading=sprayed",)
    )
    assert sprayed.times.makespan_s < times[4] < times[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("source,destination,bytes\n0,1,-3\n", "list.csv:2: bytes is '-3'"),
        ("source,destination,bytes\n0,1.5,3\n", "list.csv:2: destination is '1.5'"),
        ("source,bytes\n0,1\n", "lacks column 'destination'"),
        ("source,destination,bytes,weight\n0,1,2,3\n", "column 'weight'"),
        ("source,destination,bytes,after\n0,1,2,7\n", "after \\(7\\) must number another flow"),
        ("source,destination,bytes\n", "holds 0 flows"),
        ("source,destination,bytes\n0,1\n", "2 cells, and the header 3"),
    ],
)
def test_what_cannot_be_a_flow_is_named_with_its_line(tmp_path, text, says):
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(ParameterError, match=says):
        read_flows(path)


def test_an_endpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"names endpoint 9, and .* has 8"):
        ran(tmp_path / "list.csv", LIST, accelerators=8)


def test_circuits_that_cannot_all_stand_are_refused_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "fan.csv"
    path.write_text("source,destination,bytes\n" + "".join(f"0,{8 * k},1e6\n" for k in range(1, 8)))
    assert main(["network", "flows", str(path), "--system", "gpu_ocs", "--out", str(tmp_path / "out")]) == 2
    assert "circuits" in capsys.readouterr().err


def test_the_command_writes_flows_and_links(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(LIST)
    assert main(["network", "flows", str(path), "--fabric", "torus", "--out", str(tmp_path / "out")]) == 0
    rows = csv_rows(tmp_path / "out" / "flows_links.csv")
    assert {"link", "tail", "head", "from_s", "to_s", "bytes"} <= set(rows[0])


@pytest.mark.parametrize(
    "words", ["--core mzi_mesh", "--basis area", "--penalties none", "--precision-target int8"]
)
def test_options_of_compute_are_refused_of_flows(tmp_path, capsys, words):
    path = tmp_path / "list.csv"
    path.write_text(LIST)
    command = ["network", "flows", str(path), "--system", "photonic_packet", *words.split(), "--json"]
    assert main(command) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{words.split()[0]} ({words.split()[1]}) is not used: flows have no compute" in told.err


def shifts(count, size="1e9"):
    """Return flows from every of 128 accelerators to its places in the next nodes."""
    pairs = ((one, (one + 8 * node) % 128) for node in range(1, count + 1) for one in range(128))
    return "source,destination,bytes\n" + "".join(f"{one},{other},{size}\n" for one, other in pairs)


def test_more_traffic_on_a_rotor_never_takes_less(tmp_path):
    """Relays once carried 14 shifts as though each flow were alone: 662 ms, where all 15 took 367."""
    texts = (shifts(1), shifts(8), shifts(14), shifts(15), shifts(15) + "0,8,1\n", shifts(15) + "0,8,1e9\n")
    times = [
        ran(tmp_path / "k.csv", text, fabric="rotor", accelerators=128).times.makespan_s for text in texts
    ]
    assert (np.diff(times) > -1e-9).all()
    assert times[4] == pytest.approx(times[2], rel=1e-6)
    assert times[0] < 0.5 * times[1]  # a lone shift goes over relays


def test_shifts_on_a_rotor_one_after_another_each_have_all_relays(tmp_path):
    """Two that start a second apart take what one takes, not what two at once do."""
    head, *rows = shifts(1).splitlines()
    text = "\n".join([f"{head},start_s", *(f"{row},{start}" for start in (0, 1) for row in rows)])
    one = ran(tmp_path / "one.csv", shifts(1), fabric="rotor", accelerators=128)
    both = ran(tmp_path / "both.csv", text, fabric="rotor", accelerators=128)
    assert both.times.makespan_s == pytest.approx(1.0 + one.times.makespan_s, rel=1e-3)


def test_flows_of_opera_above_its_size_wait_for_circuits_and_others_do_not(tmp_path):
    """Once all counted as one byte, so that a gigabyte took several hops at once."""
    given = {"fabric": "opera", "accelerators": 128}
    bulk = ran(tmp_path / "k.csv", shifts(15), **given)
    every = ran(tmp_path / "k.csv", shifts(15), **given, settings=("bulk_bytes=0",))
    assert bulk.times.makespan_s == every.times.makespan_s
    mixed = ran(tmp_path / "mixed.csv", shifts(15) + "0,1,1e9\n0,10,0\n0,9,1e3\n", **given)
    assert mixed.times.finish_s[-1] < mixed.fabric.rotation.wait_s < mixed.times.finish_s[0]

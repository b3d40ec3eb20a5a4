import dataclasses
import json
import math
import warnings

import networkx as nx
import pytest

import heliograph
from electronic.fabrics.fat_tree import FatTree
from electronic.fabrics.packets import RailFabric
from electronic.fabrics.torus import Medium, TorusFabric
from experiments.__main__ import main
from heliograph.simulation import run_step
from heliograph.systems import build_system
from heliograph.systems.fabrics import FABRICS, build_fabric, register_fabric, unregister_fabric
from heliograph.workload import plan_for
from optical.fabrics.cubes import CubeFabric
from optical.fabrics.rails import OcsRails
from simulator.errors import ParameterError, SuspectWarning
from simulator.fabric import CircuitPolicy, Fabric
from tests.conformance.registered import TOYS, Hub, toys
from workloads.models.config import load_model

MODEL = load_model("llama-3-8b")
PLAN = "tp=8,pp=2,dp=2,global_batch=8,sequence_length=1024"
N = 32


def step_s(system):
    return run_step(
        system, MODEL, plan_for(MODEL, PLAN, accelerators=N, memory_bytes=math.inf)
    ).metrics.step_time_s


@pytest.mark.parametrize("name", FABRICS)
def test_every_fabric_runs_a_step(name):
    system = build_system(f"gpu_packet@{name}", accelerators=N)
    assert system.fabric.endpoints == N
    assert step_s(system) > 0


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("endpoints", [1, 2, 8, 1024, 16384])
def test_every_fabric_is_built_at_any_usual_size(name, endpoints):
    fabric = build_fabric(name, endpoints, "h100")
    assert fabric.endpoints == endpoints
    assert fabric.static_w >= 0.0


@pytest.mark.parametrize("name", ["direct_connect", "hybrid", "regional_ocs"])
def test_lanes_too_slow_for_a_card_are_refused_in_words(name):
    with pytest.raises(ParameterError, match=r"raise optics\.bandwidth_bytes_per_s until at most 1024 are"):
        build_system(f"gpu_packet@{name}", accelerators=N).with_({"optics.bandwidth_bytes_per_s": 1e-12})


def test_more_lanes_than_anybody_has_are_refused_in_words():
    with pytest.raises(ParameterError, match="lanes"):
        build_system("gpu_ocs", accelerators=N).with_({"fabric.lanes": 4 * 10**9})


def test_the_default_is_what_it_was():
    assert isinstance(build_system("gpu_packet", accelerators=N).fabric, RailFabric)
    assert isinstance(build_system("gpu_ocs", accelerators=N).fabric, OcsRails)
    assert isinstance(build_system("gpu_packet@ocs_rails", accelerators=N).fabric, OcsRails)


def test_a_core_and_a_fabric_fit_in_one_name():
    system = build_system("photonic_packet:homodyne@torus", accelerators=N)
    assert isinstance(system.fabric, TorusFabric)
    assert "homodyne" in system.photonic.core.name


def test_an_option_chooses_the_fabric_of_packet_systems():
    assert isinstance(build_system("gpu_packet", accelerators=N, fabric="fat_tree").fabric, FatTree)


def test_its_numbers_are_set_by_path():
    system = build_system(
        "gpu_packet@fat_tree", accelerators=N, assignments=("fabric.oversubscription=4", "switch.radix=16")
    )
    assert (system.fabric.oversubscription, system.fabric.clos.levels) == (4.0, 2)
    torus = build_system("gpu_packet@torus", accelerators=N, assignments=("medium=optical", "fabric.x=4"))
    assert torus.fabric.medium is Medium.OPTICAL
    assert torus.fabric.shape == (4, 4, 2)


def test_tighter_trees_slow_a_step_down():
    times = [
        step_s(
            build_system(
                "gpu_packet@fat_tree",
                accelerators=N,
                assignments=("switch.radix=16", f"oversubscription={ratio}"),
            )
        )
        for ratio in (1.0, 7.0)
    ]
    assert times[1] > 1.01 * times[0]


@pytest.mark.parametrize("turning", ["asked", "ahead"])
def test_rails_that_turn_cost_less_than_six_percent(turning):
    """Opus, arXiv:2602.12521: photonic rails turned between phases cost training less than 6 %."""
    turning_rails = build_system(
        "gpu_packet@ocs_rails", accelerators=N, assignments=(f"fabric.turning={turning}",)
    )
    turning_rails = dataclasses.replace(turning_rails, circuits=CircuitPolicy.PER_AXIS)
    plan = plan_for(MODEL, PLAN, accelerators=N, memory_bytes=math.inf)
    found = run_step(turning_rails, MODEL, plan)
    assert found.trace.reconfigurations > 0
    packets = step_s(build_system("gpu_packet", accelerators=N))
    assert packets <= found.metrics.step_time_s < 1.06 * packets


@pytest.mark.parametrize(
    "text",
    [
        'base = "gpu_packet"\nfabric = "fat_tree"\n"fabric.oversubscription" = 3\n',
        'base = "gpu_packet"\n[fabric]\nkind = "fat_tree"\noversubscription = 3\n',
    ],
)
def test_a_file_names_a_fabric_and_its_numbers(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    system = build_system(str(tmp_path / "mine.toml"), accelerators=N)
    assert isinstance(system.fabric, FatTree)
    assert system.fabric.oversubscription == 3.0


def star(path, count=N):
    graph = nx.star_graph(count)
    graph.graph |= {"capacity_bytes_per_s": "50 GB/s", "latency_s": "1 us"}
    for node in graph:
        graph.nodes[node]["kind"] = "switch" if node == 0 else "endpoint"
    path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))


def test_a_graph_file_stands_beside_the_system_that_names_it(tmp_path):
    star(tmp_path / "star.json")
    (tmp_path / "mine.toml").write_text('base = "gpu_packet"\nfabric = "graph:star.json"\n')
    by_file = build_system(str(tmp_path / "mine.toml"), accelerators=N)
    by_name = build_system(f"gpu_packet@graph:{tmp_path / 'star.json'}", accelerators=N)
    assert step_s(by_file) == step_s(by_name)


@pytest.mark.parametrize("turn", [1, -1])
def test_numbers_that_need_each_other_come_in_any_order(tmp_path, turn):
    """Routers with more endpoints are of smaller groups; one by one, either order of some was refused."""
    numbers = {"fabric.terminals": 32, "fabric.routers": 4, "fabric.global_links": 2, "fabric.local_width": 8}
    changes = dict(list(numbers.items())[::turn])
    dragonfly = "gpu_packet@dragonfly"
    file = tmp_path / "own.toml"
    lines = (f"{path.partition('.')[2]} = {value}" for path, value in changes.items())
    file.write_text("\n".join(['base = "gpu_packet"', "[fabric]", 'kind = "dragonfly"', *lines]))
    found = [
        build_system(dragonfly, accelerators=512, assignments=[f"{k}={v}" for k, v in changes.items()]),
        build_system(dragonfly, accelerators=512).with_(changes),
        build_system(str(file), accelerators=512),
    ]
    assert {one.fabric.switches for one in found} == {16}


def test_of_numbers_that_do_not_go_together_the_wrong_one_is_named(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('base = "gpu_packet"\n[fabric]\nkind = "dragonfly"\nrouters = 4\nterminals = 70\n')
    with pytest.raises(ParameterError, match=r"own.toml:5: fabric.terminals: a router needs 89 ports"):
        build_system(str(file), accelerators=512)
    with pytest.raises(ParameterError, match="a router needs 84 ports"):
        build_system("gpu_packet@dragonfly", accelerators=512).with_({"terminals": 60, "local_width": 1})


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("gpu_packet@tore", {}, "no fabric 'tore'; did you mean 'torus'"),
        ("gpu_packet", {"fabric": "dragon"}, "did you mean 'dragonfly'"),
        ("gpu_ocs", {"fabric": "tore"}, "no fabric 'tore'"),
        ("gpu_ocs@torus", {}, "write gpu_packet@torus"),
        ("gpu_pack@torus", {}, "did you mean 'gpu_packet'"),
        ("gpu_packet@graph:none.graphml", {}, "no file 'none.graphml'"),
    ],
)
def test_a_wrong_fabric_gets_one_sentence(name, options, match):
    with pytest.raises(ParameterError, match=match) as caught:
        build_system(name, accelerators=N, **options)
    assert "\n" not in str(caught.value)


def test_the_loss_of_circulators_that_are_not_there_is_refused():
    """A fibre for each way has none; a duplex one has two, whose loss its lasers make up for."""
    with pytest.raises(ParameterError, match="circulator_loss_db changes nothing: 'lane-100g' has no circ"):
        build_system("gpu_ocs", accelerators=16, assignments=("circulator_loss_db=1",))
    duplex = "optics=lane-100g-duplex"
    more, less = (
        build_system("gpu_ocs", accelerators=16, assignments=(duplex, f"circulator_loss_db={loss}"))
        for loss in (1.0, 0.5)
    )
    assert more.fabric.static_w > less.fabric.static_w


def test_a_kind_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "mine.toml").write_text('base = "gpu_packet"\nfabric = 3\n')
    with pytest.raises(ParameterError, match="key 'fabric' must be the name"):
        build_system(str(tmp_path / "mine.toml"), accelerators=N)


def test_commands_list_show_and_run_fabrics(capsys):
    assert main(["list", "fabrics", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["names"]) == set(FABRICS)
    assert main(["show", "dragonfly"]) == 0
    assert "terminals" in capsys.readouterr().out
    step = ["step", "--system", "gpu_packet", "--model", "llama-3-8b", "--plan", PLAN, "--fabric"]
    assert main([*step, "torus", "--set", "link.bandwidth_bytes_per_s=100 GB/s"]) == 0
    assert " torus" in capsys.readouterr().out
    assert main([*step, "tore"]) == 2
    assert "did you mean 'torus'" in capsys.readouterr().err


def test_every_exchange_of_experts_pays_for_its_own_turns(capsys, monkeypatch):
    """Four exchanges a layer of 32, each in two turns of four lanes; eight lanes stand still.

    Nodes that passed on would spare the turns, so that they must not here; and all ports turn alike.
    """
    monkeypatch.setattr("simulator.collectives.ways.forwarded_rounds", lambda *_, **__: ())
    asked = ["step", "--system", "gpu_ocs", "--model", "mixtral-8x7b", "--json"]
    asked += ["--plan", "tp=8,ep=8,dp=8,global_batch=8,sequence_length=1024", "--set", "switch_tail=1"]
    asked += ["--set", "host_operator_s=0"]  # launches would fill a part of the dark
    found = {}
    for lanes in (4, 8):
        assert main([*asked, "--set", f"lanes={lanes}", "--set", "fabric.policy=per-axis"]) == 0
        found[lanes] = json.loads(capsys.readouterr().out)
    turns = found[4]["reconfigurations"]
    assert turns == 32 * 4 * 2
    assert found[4]["dark_s"] == pytest.approx(turns * 1.31e-3)
    assert found[8]["reconfigurations"] <= 1
    times = {lanes: one["time_by_category_s"] for lanes, one in found.items()}
    assert times[4]["reconfiguration"] == pytest.approx(turns * 1.31e-3)
    assert times[8]["reconfiguration"] < 1.32e-3
    assert times[4]["exposed communication"] >= times[8]["exposed communication"]  # fewer lanes at a time
    assert found[4]["step_time_s"] > 2 * found[8]["step_time_s"]


@pytest.mark.parametrize("name", TOYS)
def test_a_fabric_from_elsewhere_runs_a_step_as_any_other(name, capsys):
    with toys():
        system = build_system(f"gpu_packet@{name}", accelerators=N)
        assert type(system.fabric) is TOYS[name]
        assert step_s(system) > 0
        step = ["step", "--system", "gpu_packet", "--model", "llama-3-8b", "--plan", PLAN]
        assert main([*step, "--fabric", name]) == 0
        assert main(["list", "fabrics", "--json"]) == 0
        assert name in capsys.readouterr().out
    with pytest.raises(ParameterError, match=f"no fabric '{name}'"):
        build_system(f"gpu_packet@{name}", accelerators=N)


def test_circuits_from_elsewhere_move_in_a_step_and_their_ports_fail():
    with toys():
        system = build_system("gpu_packet@toy_turntable", accelerators=N)
    plan = plan_for(MODEL, PLAN, accelerators=N, memory_bytes=math.inf)
    found = run_step(system, MODEL, plan)
    assert found.trace.reconfigurations > 0
    assert found.metrics.dark_s > 0


class Mute(Fabric):
    """A fabric that carries nothing."""

    name, endpoints = "mute", 2

    def graph(self, circuits):
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needy(Hub):
    """A hub that wants to know more."""

    x: int


class Stranger:
    """No fabric at all."""

    name, endpoints = "stranger", N


@pytest.mark.parametrize(
    ("name", "build", "match"),
    [
        ("torus", Hub, "there is a fabric 'torus' already .*; take another name"),
        ("", Hub, "'' cannot be the name of a fabric"),
        ("mine", 3, "fabric 'mine': 3 is no class and no function"),
        ("mine", lambda: None, "cannot be made of endpoints and scale_up alone: too many positional"),
        ("graph:mine", Hub, "cannot be the name of a fabric"),
        ("mute", Mute, "class Mute is no fabric: it lacks route, transfer_energy_j; inherit from"),
        ("mine", Needy, "cannot be made of endpoints and scale_up alone: missing a required argument: 'x'"),
        ("stranger", Stranger, "class Stranger is no fabric: it lacks graph, route, transfer_energy_j; "),
    ],
)
def test_what_cannot_be_registered_is_told_why_in_one_sentence(name, build, match):
    with pytest.raises(ParameterError, match=match) as caught:
        register_fabric(name, build)
    assert "\n" not in str(caught.value)
    assert (name in FABRICS) is (name == "torus")


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda count, _: Stranger(), r"what 'odd' builds \(Stranger\) is no fabric: it lacks graph, "),
        (lambda count, _: Hub(endpoints=count + 1), "for 32 accelerators: it joins 33"),
    ],
)
def test_what_a_builder_returns_is_looked_at(build, match):
    register_fabric("odd", build)
    try:
        with pytest.raises(ParameterError, match=match):
            build_fabric("odd", N, "h100")
    finally:
        unregister_fabric("odd")


def test_a_step_takes_the_sides_of_a_torus_on_which_it_is_fastest():
    """Tensor groups of eight on an axis of eight, where the last one of the usual sides has four."""
    config = dataclasses.replace(load_model("llama-3-8b"), layers=2)
    plan = "tp=8,dp=32,global_batch=32,sequence_length=2048"
    free, usual, right = (
        heliograph.simulate(
            build_system("gpu_packet@torus", accelerators=256, assignments=sides), config, plan
        )
        for sides in ((), ("fabric.x=8", "fabric.y=8"), ("fabric.x=8", "fabric.y=4"))
    )
    assert free.metrics.step_time_s == right.metrics.step_time_s < usual.metrics.step_time_s
    assert free.system.fabric.name == "torus, 8 x 4"


@pytest.mark.parametrize(
    ("gpu", "fabric", "link", "x"),
    [
        ("tpu-v5p", None, "ici-v5p", None),
        ("tpu-v6e", None, "ici-v6e", 1),
        ("tpu-v7", "torus", "ici-v7", None),
        ("tpu-v7", "ocs_cubes", "ici-v7", None),
        ("h100", "torus", "ici-v4", None),
    ],
)
def test_a_tpu_stands_on_a_torus_of_its_own_links(gpu, fabric, link, x):
    for name, basis in (("gpu_packet", None), ("photonic_packet", "count")):
        found = build_system(name, accelerators=64, gpu=gpu, fabric=fabric, basis=basis).fabric
        assert isinstance(found, TorusFabric if fabric in {None, "torus"} else CubeFabric)
        assert (found.link.name, found.x) == (link, x)


def test_a_torus_of_two_axes_keeps_to_two():
    flat = build_system("gpu_packet", accelerators=64, gpu="tpu-v6e").fabric
    assert {name: one.shape for name, one in flat.variants().items()} == {"1 x 4": (1, 4, 16)}


def test_switched_nodes_in_place_of_a_torus_are_told():
    with pytest.warns(
        SuspectWarning, match="tpu-v5p stands on a torus of its own links, and 'optical rails'"
    ):
        build_system("gpu_ocs", accelerators=64, gpu="tpu-v5p")
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        build_system("gpu_packet", accelerators=64, gpu="tpu-v5p")
        build_system("gpu_ocs", accelerators=64, gpu="h100")

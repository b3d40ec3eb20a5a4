"""Cores, fabrics, models and schedules from outside, by registration, by file and by entry point."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import heliograph as hg
from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from heliograph.catalogue import listing
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.search import ranked_as
from heliograph.systems import build_system, fabrics
from optical.conversion import planned_specs
from optical.cores import CORES, registry
from optical.cores.analog import source_parts
from simulator.errors import HeliographError, ParameterError, SuspectWarning
from simulator.interfaces import LinkGraph
from simulator.topology.scale_up import BillItem
from tests.conformance.bare_core import Bare
from tests.conformance.lithium_niobate import LithiumNiobate
from tests.conformance.registered import Hub
from tests.workloads.pipeline.eager import EAGER
from workloads.models import config as models
from workloads.pipeline import schedule as schedules

ROOT = Path(__file__).parents[2]
CORE = f"{ROOT}/tests/conformance/lithium_niobate.py:LithiumNiobate"
FABRIC = f"{ROOT}/tests/conformance/registered.py:Hub"
SCHEDULE = f"{ROOT}/tests/workloads/pipeline/eager.py:EAGER"
SHAPE = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
}
PLAN = "pp=4,dp=2,global_batch=16,sequence_length=512"


@pytest.fixture(autouse=True)
def forgotten():
    """Forget afterwards what a test registered."""
    known = (registry._CORES, fabrics._REGISTERED, models._REGISTERED, schedules._KNOWN)
    before = [dict(one) for one in known]
    yield
    for one, was in zip(known, before, strict=True):
        for name in set(one) - set(was):
            del one[name]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"

    def write(text):
        path.write_text(text)
        return str(path)

    return write


def package(tmp_path, monkeypatch, module, points):
    """Install a package with entry points where Python looks for them."""
    (tmp_path / "mine_outside.py").write_text(module)
    info = tmp_path / "mine_outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-outside\nVersion: 1.0\n")
    groups = "".join(f"[{group}]\n{line}\n\n" for group, line in points.items())
    (info / "entry_points.txt").write_text(groups)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_outside", raising=False)


def check_run(light, packets):
    """Check a comparison of a core and a fabric from outside."""
    assert isinstance(light.system.photonic.core, LithiumNiobate)
    assert isinstance(packets.system.fabric, Hub)
    for result in (light, packets):
        assert result.step_time_s > 0.0
        assert sum(result.energy_by_part_j.values()) == pytest.approx(result.energy_j)


def unsized(name):
    """Return a system whose laser stays as it stands: the toy core reaches no format's precision."""
    return hg.system(name, accelerators=8).with_({"lighting.target": "none"})


@pytest.mark.slow
def test_what_is_registered_runs_by_name():
    hg.register_core("toy_core", LithiumNiobate)
    hg.register_fabric("toy_hub", Hub)
    hg.register_model("toy_model", SHAPE)
    hg.register_schedule("toy_order", EAGER)
    found = hg.compare(
        [unsized("photonic_ocs:toy_core"), "gpu_packet@toy_hub"], "toy_model", f"{PLAN},schedule=toy_order"
    )
    check_run(*found.results)
    assert found.config.name == "toy_model"
    assert str(found.plan.schedule.kind) == "toy_order"
    assert "schedule=toy_order" in found.rows()[0]["plan"]
    ran = found.results[0].system
    assert ran.photonic == hg.system("photonic_ocs", core="toy_core", accelerators=8).photonic
    assert "toy_core" in listing("cores")
    assert hg.show("toy_hub").rows()


def test_a_file_s_core_and_fabric_are_shown():
    assert "laser_power_w" in {row["path"] for row in hg.show(CORE).rows()}
    assert [row["path"] for row in hg.show(FABRIC).rows()] == ["endpoints"]


def test_a_model_of_torch_runs_on_a_file_s_core():
    """A command took such a name; `convert` asked for the class to be registered first."""
    layer = torch.nn.Linear(16, 16)
    specs = [planned_specs(hg.convert(layer, core)) for core in (CORE, LithiumNiobate.default())]
    assert specs[0] == specs[1]


def test_a_core_on_no_base_of_ours_runs_as_the_one_within_it():
    hg.register_core("bare", Bare)
    found = [hg.simulate(unsized(f"photonic_packet:{core}"), SHAPE, PLAN) for core in ("bare", "homodyne")]
    assert found[0].step_time_s == found[1].step_time_s
    assert found[0].energy_by_part_j == found[1].energy_by_part_j
    assert found[0].snr_db == found[1].snr_db


@pytest.mark.slow
def test_files_bring_the_same_on_the_command_line(capsys, tmp_path, file):
    shape = file(f"SHAPE = {SHAPE!r}")
    arguments = ["compare", "--json", "--systems", "photonic_packet,gpu_packet"]
    arguments += ["--core", CORE, "--fabric", FABRIC, "--model", f"{shape}:SHAPE"]
    arguments += ["--precision-target", "none", "--plan", f"{PLAN},schedule={SCHEDULE}"]
    arguments += ["--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    by_file = json.loads(capsys.readouterr().out)["systems"]
    hg.register_core("toy_core", LithiumNiobate)
    hg.register_fabric("toy_hub", Hub)
    hg.register_schedule("toy_order", EAGER)
    plan = f"{PLAN},schedule=toy_order"
    for name, record in zip(("photonic_packet:toy_core@toy_hub", "gpu_packet@toy_hub"), by_file, strict=True):
        by_name = hg.simulate(unsized(name) if "toy_core" in name else name, hg.model(SHAPE), plan)
        assert record["step_time_s"] == by_name.step_time_s
        assert record["energy_j"] == by_name.energy_j


def test_a_schedule_of_a_file_draws_itself(capsys, tmp_path):
    asked = ["network", "schedule", SCHEDULE, "--microbatches", "10"]
    assert main([*asked, "--json", "--out", str(tmp_path / "eager.png")]) == 0
    assert json.loads(capsys.readouterr().out)["peak_microbatches"] == [7, 5, 3, 1]


SEARCHED = "pp=2,tp=2,cp=1,micro_batch=1,recompute=none,overlap_tensor=false,global_batch=16"


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [SCHEDULE, "v_half", "pipedream", "zb_v"])
def test_a_search_runs_the_schedule_that_is_asked_for_and_no_other(schedule):
    """With a closed form, without one, and from a file."""
    found = hg.search("gpu_packet", SHAPE, f"{SEARCHED},schedule={schedule}", accelerators=8, top=2)
    assert {str(one.plan.schedule.kind) for one in found.found} == {schedule}
    assert found.winner.result.step_time_s > 0.0
    assert 0.5 < found.winner.estimate[Objective.TIME] / found.winner.result.step_time_s < 2.0


@pytest.mark.slow
def test_a_free_search_tries_schedules_of_installed_packages(tmp_path, monkeypatch):
    points = "outside_order = mine_outside:EAGER\nbad = mine_outside:NONE"
    module = "from tests.workloads.pipeline.eager import EAGER\n"
    package(tmp_path, monkeypatch, module, {"heliograph.schedules": points})
    told = []
    with pytest.warns(SuspectWarning, match="schedule 'bad' is not tried: "):
        hg.search(
            "gpu_packet", SHAPE, SEARCHED, accelerators=8, top=1, progress=lambda what, *_: told.append(what)
        )
    assert any("the same with outside_order" in one for one in told)


def test_a_schedule_without_closed_form_is_ranked_as_one_that_keeps_as_much():
    known = schedules.SCHEDULES
    assert ranked_as(known["zb_v"]) is known["zb_v"]
    assert ranked_as(known["v_half"]) is ranked_as(known["pipedream"]) is known["1f1b"]
    assert ranked_as(EAGER) is known["gpipe"]


def test_a_file_s_attribute_stands_in_a_name_and_in_a_system_file(tmp_path):
    named = build_system(f"photonic_packet:{CORE}@{FABRIC}", accelerators=8)
    assert dataclasses.asdict(named.photonic.core) == dataclasses.asdict(LithiumNiobate.default())
    assert named.fabric.name == "hub"
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "photonic_packet"\ncore = "{CORE}"\nfabric = "{FABRIC}"\n')
    told = build_system(str(path), accelerators=8)
    assert (told.photonic, told.fabric.endpoints) == (named.photonic, 8)


def test_installed_packages_are_asked_only_for_names_that_are_not_known(tmp_path, monkeypatch):
    module = (
        "from tests.conformance.lithium_niobate import LithiumNiobate\n"
        "from tests.conformance.registered import Hub\n"
        "from tests.workloads.pipeline.eager import EAGER\n"
        f"SHAPE = {SHAPE!r}\n"
    )
    points = {
        "heliograph.cores": "outside_core = mine_outside:LithiumNiobate",
        "heliograph.fabrics": "outside_hub = mine_outside:Hub",
        "heliograph.models": "outside_model = mine_outside:SHAPE",
        "heliograph.schedules": "outside_order = mine_outside:EAGER",
    }
    package(tmp_path, monkeypatch, module, points)
    build_system("photonic_packet:crossbar@rails", accelerators=8)
    assert "outside_core" not in CORES
    for name, path in (("core", "laser_power_w"), ("hub", "endpoints"), ("model", "hidden")):
        assert path in {row["path"] for row in hg.show(f"outside_{name}").rows()}
    systems = [unsized("photonic_packet:outside_core"), "gpu_packet@outside_hub"]
    found = hg.compare(systems, "outside_model", f"{PLAN},schedule=outside_order")
    check_run(*found.results)
    assert {"outside_core"} <= set(listing("cores"))
    assert {"outside_hub"} <= set(listing("fabrics"))
    assert {"outside_model"} <= set(listing("models"))


def test_a_package_that_fails_does_not_hide_the_others(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, "import no_such_module\n", {"heliograph.cores": "bad = mine_outside:Core"})
    with pytest.raises(ParameterError, match=r"'bad', heliograph\.cores .*: ModuleNotFoundError: No module"):
        build_system("photonic_packet:bad", accelerators=8)
    listed = listing("cores")
    assert "cannot be loaded" in listed["bad"]
    assert set(CORES) <= set(listed)


WRONG = [
    ("core", "", "nowhere/mine.py:Core", "there is no file nowhere/mine.py"),
    ("core", "class MyCore: pass", "{}:MyCor", "has no 'MyCor'; did you mean 'MyCore'"),
    ("core", "", "{}:MyCore", "has no 'MyCore'; known names: none"),
    ("core", "class MyCore: pass", "{}:MyCore", "does not answer `optical.cores.Core`; it lacks"),
    ("core", "3 +", "{}:MyCore", "mine.py: SyntaxError"),
    ("core", "1 / 0", "{}:MyCore", "mine.py: ZeroDivisionError: division by zero"),
    ("core", "raise SystemExit('gone')", "{}:MyCore", "mine.py: SystemExit: gone"),
    ("fabric", "", "{}", "names a file and nothing in it"),
    ("fabric", "class MyFabric: pass", "{}:MyFabric", "is no fabric: it lacks"),
    ("fabric", "MyFabric = 3", "{}:MyFabric", "is no class and no function"),
    ("fabric", "MyFabric = int", "{}:MyFabric", "class int is no fabric: it lacks"),
]


@pytest.mark.parametrize(("option", "text", "reference", "says"), WRONG, ids=[one[3] for one in WRONG])
def test_what_cannot_be_brought_in_is_told_in_one_sentence(file, option, text, reference, says):
    with pytest.raises(HeliographError) as caught:
        build_system("photonic_packet", accelerators=8, **{option: reference.format(file(text))})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def changed(**numbers):
    """Return a core's events for a product with some of them otherwise."""
    return lambda self, operator, cores: dataclasses.replace(
        LithiumNiobate.events(self, operator, cores), **numbers
    )


@staticmethod
def slow():
    """Return a core whose symbol rate is in GHz."""
    return dataclasses.replace(LithiumNiobate.default(), symbol_rate_hz=40.0)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"parts": lambda self: None}, "parts must return a tuple of Part, the laser among them; got None"),
        ({"parts": lambda self: ()}, "parts must return a tuple of Part"),
        ({"parts": lambda self: ({"laser": 1},)}, "parts must return a tuple of Part"),
        ({"parts": lambda self: tuple(LithiumNiobate.parts(self)[1:])}, "parts lists no laser; take"),
        ({"parts": source_parts}, "parts lists no converter of samples"),
        ({"default": slow}, "symbol_rate_hz is 40 symbols a second; write it in Hz"),
        ({"light": 0.1}, "light must be a Light; got 0.1"),
        ({"sides": ("row",)}, "its sides: no parameter 'row'; did you mean"),
        ({"analog": lambda self, phase: None}, "analog must return an AnalogSpec for forward; got None"),
        ({"events": lambda self, operator, cores: None}, "fails when it is tried, AttributeError"),
        ({"events": changed(cycles=-1.0)}, "light_s of a product must be finite and at least 0"),
        ({"events": changed(samples=-1.0)}, "energy_j of 'adc' of a product must be finite and at least 0"),
        ({"events": changed(operand_bytes=float("nan"))}, "operand_bytes of a product must be finite"),
        ({"full_load": 3.0}, "full_load must be Events of a second; got 3.0"),
    ],
)
def test_a_mistake_in_a_core_from_outside_is_one_sentence(members, says):
    kind = dataclasses.dataclass(frozen=True, kw_only=True)(type("Mistaken", (LithiumNiobate,), members))
    hg.register_core("mistaken", kind)
    with pytest.raises(ParameterError, match=re.escape(says)) as caught:
        hg.system("photonic_packet", core="mistaken", accelerators=8)
    assert "\n" not in str(caught.value)


def mistaken(**members):
    """Return a hub with members that are wrong."""
    return dataclasses.dataclass(frozen=True, kw_only=True)(type("Mistaken", (Hub,), members))


def links(capacity_bytes_per_s, latency_s):
    return lambda self, circuits: LinkGraph(
        capacity_bytes_per_s=np.array(capacity_bytes_per_s), latency_s=np.array(latency_s)
    )


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"graph": links([1e9] * 16, [-1e-6] * 16)}, "latency_s of graph must be finite and at least 0"),
        ({"graph": links([float("nan")] * 16, [1e-6] * 16)}, "capacity_bytes_per_s of graph must be finite"),
        ({"graph": links([0.0] * 16, [1e-6] * 16)}, "each flow over links that have capacity"),
        ({"graph": links([1e9] * 16, [1e-6] * 15)}, "latency_s of graph must be an array of one number for"),
        ({"graph": lambda self, circuits: None}, "graph must return a LinkGraph; got None"),
        ({"route": lambda self, circuits, flows: flows.sources}, "link numbers of shape [flows, hops]"),
        (
            {"route": lambda self, circuits, flows: flows.sources[:, None] + 16},
            "links 0 to 15, padded with -1",
        ),
        ({"route": lambda self, circuits, flows: 1 / 0}, "fails for 8 accelerators, ZeroDivisionError"),
        ({"transfer_energy_j": lambda self, flows: -1.0}, "transfer_energy_j must return one finite number"),
        ({"transfer_energy_j": lambda self, flows: flows.sizes_bytes}, "transfer_energy_j must return one"),
        ({"bill": lambda self: {"port": 5.0}}, "bill must return a BillItem for each name"),
        (
            {"bill": lambda self: {"port": BillItem(count=1, w_each=-5.0, usd_each=1.0)}},
            "w_each must be at least 0",
        ),
    ],
)
def test_a_mistake_in_a_fabric_from_outside_is_one_sentence(members, says):
    hg.register_fabric("mistaken", mistaken(**members))
    with pytest.raises(ParameterError, match=re.escape(says)) as caught:
        hg.system("gpu_packet@mistaken", accelerators=8)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (links([50.0] * 16, [1e-6] * 16), "a link carries 50 B/s; .* is in bytes per second"),
        (links([50e9] * 16, [1.0] * 16), "a link takes 1 s; latency_s is in seconds"),
    ],
)
def test_links_in_other_units_are_doubted(graph, says):
    hg.register_fabric("mistaken", mistaken(graph=graph))
    with pytest.warns(SuspectWarning, match=f"'mistaken': {says}"):
        hg.system("gpu_packet@mistaken", accelerators=8)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "{}:THREE"), "is no model"),
        (("--model", "{}:asking"), "or a function without arguments that returns one of them"),
        (("--model", "gpt2", "--plan", "dp=8,global_batch=8,schedule={}:THREE"), "must be a Schedule"),
        (("--model", "gpt2", "--plan", "dp=8,global_batch=8,schedule={}:FOUR"), "has no 'FOUR'"),
    ],
)
def test_the_command_line_says_so_too(capsys, file, arguments, says):
    path = file("THREE = 3\ndef asking(x): return x")
    assert main(["step", "--accelerators", "8", *(one.format(path) for one in arguments)]) == BAD_INPUT
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1

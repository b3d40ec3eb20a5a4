import dataclasses
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import heliograph as hg
from experiments.__main__ import main
from heliograph.comparison.comparison import Request, build_systems
from simulator.errors import HeliographError, ParameterError, RangeWarning, SuspectWarning
from simulator.parameter_tree import get_at
from workloads.plan.plan import plan_text

ROOT = Path(__file__).parents[2]
PLAN = "tp=8,dp=2,global_batch=16,sequence_length=2048"
MODEL = "llama-3-8b"
N = 16


@pytest.fixture(scope="module")
def light():
    return hg.system("photonic_packet", accelerators=N)


@pytest.fixture(scope="module")
def result(light):
    return hg.simulate(light, MODEL, PLAN)


def lines(thing):
    return repr(thing).splitlines()


@pytest.mark.slow
def test_importing_brings_nothing_heavy_and_listing_it_neither():
    program = (
        "import sys, heliograph as hg\n"
        "assert sorted(hg.__all__) == sorted(dir(hg))\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'scipy', 'rich', 'simpy', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "hg.simulate('photonic_packet', 'llama-3-8b', 'tp=8,global_batch=8,sequence_length=2048')\n"
        "heavy = {'torch', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)


def test_every_name_is_there_and_no_module_hides_one():
    modules = {path.stem for path in Path(hg.__file__).parent.glob("*.py")}
    for name in hg.__all__:
        assert getattr(hg, name) is not None
    assert not modules & set(hg.__all__)
    with pytest.raises(AttributeError, match="no attribute 'systm'"):
        _ = hg.systm


def test_a_name_means_the_same_after_all_modules_are_loaded():
    for name in ("system", "model", "plan", "simulate", "compare", "search", "sweep", "show", "convert"):
        assert callable(getattr(hg, name))


@pytest.mark.parametrize("core", ["crossbar", "ring_bank", "mzi_mesh", "homodyne"])
def test_changing_a_system_is_building_it_with_the_change(core):
    name = f"photonic_packet:{core}"
    power = hg.system(name, accelerators=N).photonic.core.laser_power_w
    changes = {"laser_power_w": 1.05 * power, "gpu.memory.bandwidth_bytes_per_s": "3 TB/s"}
    asked = hg.system(name, changes, accelerators=N)
    changed = hg.system(name, accelerators=N)
    for path, value in changes.items():
        changed = changed.with_({path: value})
    assert changed == asked
    assert dict(changed.settings) == dict(asked.settings)


def test_a_changed_system_is_sized_anew(light):
    frugal = light.with_({"core.adc": "adc_survey_7b"}, laser_power_w="5 mW")
    assert frugal.photonic.cores > light.photonic.cores
    assert frugal.accelerator_peak_w() <= light.gpu.chip.tdp_w
    assert frugal.photonic.core.core.core.core.adc.name == "adc_survey_7b"


@pytest.mark.parametrize("name", ["gpu_packet", "gpu_ocs"])
def test_nodes_of_another_size_are_filled_by_other_numbers_of_accelerators(name):
    with pytest.raises(ParameterError, match=r"fill nodes of 8 .* or nodes of 6 \(scale_up.size=6\)"):
        hg.system(name, accelerators=12)
    small = hg.system(name, {"scale_up.size": 4}, accelerators=12)
    assert small.fabric.scale_up.nodes(12) == 3
    asked = Request(systems=(name,), accelerators=12, assignments=("scale_up.size=4",))
    assert build_systems(asked).systems[0].fabric == small.fabric


def test_systems_take_numbers_of_parts_that_are_named_before_them():
    named = ("core.amplifier=soa_typical", "core.amplifier.gain_db=9", "core.driver.power_w=0.45")
    built = build_systems(
        Request(systems=("photonic_packet", "gpu_packet"), accelerators=16, assignments=named)
    )
    assert get_at(built.systems[0], "core.amplifier.gain_db") == 9.0
    assert get_at(built.systems[0], "core.driver.power_w") == 0.45


def test_a_step_runs_whose_products_have_one_channel():
    """All that a core with electronic channels would multiply is then electronic."""
    plan = "dp=8,global_batch=8,sequence_length=1"
    result = hg.simulate(hg.system("photonic_packet", accelerators=8), "gpt2", plan)
    assert result.snr_db > 25.0


def test_cores_that_are_set_stay_when_something_else_changes(light):
    fixed = light.with_(cores=24)
    assert fixed.photonic.cores == 24
    assert fixed.with_(laser_power_w="5 mW").photonic.cores == 24


def test_numbers_are_si_and_text_has_units(light):
    assert light.with_(laser_power_w=0.02) == light.with_(laser_power_w="20 mW")
    assert light.with_(laser_power_w=0.02).settings == (
        ("photonic.core.core.core.core.laser_power_w", "0.02"),
    )


@pytest.mark.parametrize("tenth", [np.float32(0.1), np.float64(0.1), Fraction(1, 10)])
def test_numbers_of_numpy_and_fractions_are_numbers(light, tenth):
    assert light.with_(laser_power_w=tenth).laser_power_w == pytest.approx(0.1)
    assert hg.system("gpu_packet", accelerators=np.int64(N)).accelerators == N


def test_what_is_long_is_told_by_its_kind(light):
    with pytest.raises(ParameterError, match=r"such as it holds; got a System$"):
        hg.simulate(MODEL, light, PLAN)


def test_a_model_is_converted_to_a_core_by_its_name():
    layer = hg.convert(nn.Linear(4, 4), "homodyne")
    assert layer.heliograph_site is not None
    with pytest.raises(ParameterError, match="no core 'homodine'; did you mean 'homodyne'"):
        hg.convert(nn.Linear(4, 4), "homodine")


def test_a_grid_draws_step_times_over_what_is_swept():
    grid = hg.sweep(
        "gpu_packet",
        model="gpt2",
        plan="dp=8,global_batch=8",
        accelerators=8,
        **{"gpu.chip.launch_s": [1e-6, 1e-5]},
    )
    (axes,) = grid.plot().axes
    assert "step" in axes.get_ylabel()


def test_a_plan_asks_for_nothing_that_the_system_holds(light):
    chosen = hg.plan(model=MODEL, system=light)
    assert chosen.axes.ranks == light.accelerators
    assert hg.plan(PLAN, model=MODEL) == hg.plan(PLAN, model=hg.model(MODEL), system=light)
    keys = {"tp": 8, "dp": 2, "global_batch": 16, "sequence_length": 2048}
    assert hg.plan(keys, model=MODEL) == hg.plan(PLAN, model=MODEL)


def test_a_format_that_no_product_takes_is_refused():
    said = "plan: precision=bf16 is not used: the products of 'gpu_packet:fp8' run in fp8; leave one"
    plan = f"{PLAN},precision=bf16"
    for call in (
        lambda: hg.simulate("gpu_packet:fp8", MODEL, plan),
        lambda: hg.compare(["gpu_packet:fp8"], MODEL, plan),
        lambda: hg.search("gpu_packet:fp8", MODEL, "global_batch=16,precision=bf16", accelerators=N),
        lambda: main(["step", "--system", "gpu_packet:fp8", "--model", MODEL, "--plan", plan, "--debug"]),
    ):
        with pytest.raises(ParameterError, match=said):
            call()
    assert hg.simulate("gpu_packet:fp8", MODEL, f"{PLAN},precision=fp8").step_time_s > 0.0


def test_a_system_by_name_takes_the_accelerators_of_the_plan(result, light):
    named = hg.simulate("photonic_packet", MODEL, PLAN)
    assert named.system == light.with_core(named.system.photonic.core)
    assert named.record() == result.record()


def test_a_model_comes_by_name_by_file_and_as_a_mapping(tmp_path):
    import json

    shipped = (
        Path(hg.model.__code__.co_filename).parents[1] / "workloads" / "models" / "configs" / "gpt2.json"
    )
    content = json.loads(shipped.read_text())
    (tmp_path / "mine.json").write_text(shipped.read_text())
    named = hg.model("gpt2")
    for source in (named, tmp_path / "mine.json", str(tmp_path / "mine.json"), content):
        assert dataclasses.replace(hg.model(source), name="gpt2") == named


def test_the_parts_of_a_result_add_up(result):
    assert sum(result.energy_by_part_j.values()) == pytest.approx(result.energy_j)
    assert sum(result.time_by_category_s.values()) == pytest.approx(result.step_time_s)
    assert result.energy_per_token_j * 16 * 2048 == pytest.approx(result.energy_j)
    assert result.trace.perfetto_events()


def test_shown_things_are_short(light, result):
    compared = hg.compare(["gpu_packet", light], MODEL, PLAN)
    grid = hg.sweep(light, model=MODEL, plan=PLAN, laser_power_w=["10 mW", "15 mW"])
    assert repr(result.trace).startswith(f"Trace of {result.step_time_s:.4g} s: ")
    assert len(lines(result.trace)) == 1
    for thing in (light, result, compared, grid, light.with_(laser_power_w="5 mW")):
        assert 2 <= len(lines(thing)) <= 12
        assert all(len(line) <= 130 for line in lines(thing))
        assert thing._repr_html_().startswith("<table>")
        assert "<script" not in dataclasses.replace(light, name="<script>")._repr_html_()


def test_models_and_plans_show_what_is_unusual_about_them():
    assert repr(hg.plan("tp=4,zero=0", model="gpt2")) == "Plan.of(tp=4, sequence_length=1024, zero=0)"
    assert repr(hg.model("gpt2")).startswith("TransformerConfig(name=gpt2, layers=12, hidden=768, heads=12")
    assert all(len(repr(hg.model(name))) < 500 for name in ("llama-3.1-405b", "mixtral-8x7b"))


def test_pictures_are_figures_of_matplotlib(result, light):
    from matplotlib.figure import Figure

    grid = hg.sweep(light, model=MODEL, plan=PLAN, laser_power_w=["10 mW", "15 mW"])
    compared = hg.compare(["gpu_packet", light], MODEL, PLAN)
    figures = (result.plot(), compared.plot(), grid.plot("laser_power_w", "energy_per_token_j"))
    assert all(isinstance(figure, Figure) for figure in figures)
    (axes,) = figures[2].axes
    assert axes.get_xlabel() == "laser power (mW)"
    assert axes.lines[0].get_xdata() == pytest.approx([10.0, 15.0])
    with pytest.raises(ParameterError, match="no column '3' to draw"):
        grid.plot(3, 4)


@pytest.mark.parametrize(
    "draw",
    [
        "heliograph.figures.range_bars({'time': (1.0, [('a', 0.5, None)])})",
        "heliograph.figures.lines_figure({'a': [(1.0, 2.0)]}, x='x', y='y')",
    ],
)
def test_a_backend_that_is_unknown_is_named_in_one_sentence(draw):
    """In a process of its own: matplotlib reads the environment once."""
    caught = "except heliograph.HeliographError as error:\n    print(error)"
    program = f"import heliograph.figures\ntry:\n    {draw}\n{caught}"
    command, environment = [sys.executable, "-c", program], os.environ | {"MPLBACKEND": "nonsense"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("MPLBACKEND is 'nonsense', which matplotlib does not know; unset it")


def test_comparing_is_simulating_each(result, light):
    compared = hg.compare(["gpu_packet", light], MODEL, PLAN)
    assert [one.system.name for one in compared.results] == ["gpu_packet", "photonic_packet"]
    assert compared.results[1].record() == result.record()
    assert compared.rows()[1] == result.rows()[0]


def test_a_search_finds_the_plan_that_is_faster_than_the_usual_one():
    found = hg.search("gpu_packet", "gpt2", "global_batch=32", accelerators=8, top=1)
    usual = hg.simulate("gpu_packet", "gpt2", "dp=8,global_batch=32")
    best = hg.simulate("gpu_packet", "gpt2", found.winner.plan)
    assert best.step_time_s == found.winner.value(found.objective) <= usual.step_time_s
    assert found.rows()[0]["plan"] == plan_text(found.winner.plan)
    assert f"Best of {found.ranked:,} plans of gpt2" in repr(found)
    assert 2 <= len(lines(found)) <= 12


def test_a_search_keeps_to_what_is_named():
    found = hg.search("gpu_packet", "gpt2", {"global_batch": 32, "tp": 2}, accelerators=8, objective="energy")
    energies_j = [one.value(found.objective) for one in found.ordered]
    assert {one.plan.axes.tp for one in found.found} == {2}
    assert energies_j == sorted(energies_j)
    assert len(found.plot().subfigs) == 2


def test_systems_by_name_have_the_accelerators_that_are_asked_for():
    compared = hg.compare(["gpu_packet", "gpu_ocs"], "gpt2", accelerators=8, quick=True)
    assert {one.system.accelerators for one in compared.results} == {8}
    assert hg.simulate("gpu_packet", "gpt2", accelerators=8).system.accelerators == 8


def test_a_seed_without_the_training_that_it_is_of_is_an_error():
    with pytest.raises(ParameterError, match="seed is of the training that accuracy runs"):
        hg.compare(["gpu_packet"], "gpt2", "dp=8,global_batch=8", seed=3)


def test_a_thing_is_shown_by_name_and_by_itself(light, result):
    crossbar = {row["path"]: row for row in hg.show("crossbar").rows()}
    assert crossbar["laser.wall_plug_efficiency"]["low"] == 0.05
    assert crossbar["laser.wall_plug_efficiency"]["source"]
    named = hg.system("photonic_packet:ring_bank", accelerators=N)
    assert hg.show(named.photonic.core).parameters == hg.show("ring_bank").parameters
    assert hg.show(result).parameters == hg.show(light.with_core(result.system.photonic.core)).parameters
    bright = {row["path"]: row for row in hg.show(light.with_({"laser.wall_plug_efficiency": 0.1})).rows()}
    assert bright["photonic.core.core.core.core.laser.wall_plug_efficiency"]["status"] == "set"
    assert hg.show(hg.model("gpt2")).parameters == hg.show("gpt2").parameters


WRONG = [
    (lambda light: hg.system(None), "must be text"),
    (lambda light: hg.system("gpu_packet", gpu=3), "gpu must be text"),
    (lambda light: hg.system("gpu_packet", accelerators="many"), "whole number"),
    (lambda light: hg.system("gpu_packet", 3), "mapping"),
    (lambda light: light.with_(laser_power_w=None), "laser_power_w must be a number"),
    (lambda light: light.with_(laser_power_w=True), "laser_power_w must be a number"),
    (lambda light: light.with_(laser_powr_w=1.0), "laser_power_w"),
    (lambda light: light.with_(laser_power_w="5 Hz"), r"^photonic\.core\.laser_power_w: unit 'Hz'"),
    (lambda light: hg.simulate(None, MODEL), "a system is a name"),
    (lambda light: hg.simulate(light, 3), "a model is a name"),
    (lambda light: hg.simulate(light, "lama-3-8b"), "did you mean 'llama-3-8b'"),
    (lambda light: hg.simulate(light, MODEL, 8), "a plan is text"),
    (lambda light: hg.simulate(light, MODEL, {"tp": 8, "pq": 2}), "unknown key 'pq'"),
    (lambda light: hg.simulate(light, MODEL, "tp=8,dp=4,global_batch=4"), "there are 16"),
    (lambda light: hg.plan(model=MODEL), "needs text"),
    (lambda light: hg.plan(PLAN, model=MODEL, system="gpu_packet"), "heliograph.system"),
    (lambda light: hg.compare("gpu_packet", MODEL), "must be a list"),
    (lambda light: hg.compare([], MODEL), "must be a list"),
    (lambda light: hg.compare([light, light], MODEL, PLAN), "may stand once"),
    (lambda light: hg.compare([light], MODEL, accelerators=8), "accelerators .8. is not used"),
    (lambda light: hg.simulate(light, MODEL, PLAN, accelerators=8), "accelerators .8. is not used"),
    (lambda light: hg.search(light, MODEL, objective="speed"), "no objective 'speed'"),
    (lambda light: hg.search(light, MODEL, top=0), "top must be a whole number"),
    (lambda light: hg.search(light, MODEL, hg.plan(PLAN, model=MODEL)), "plan must be text or a mapping"),
    (lambda light: hg.search(light, MODEL, "tp=3"), "no plan"),
    (lambda light: hg.show(3), "show takes"),
    (lambda light: hg.show("nothing_of_that_name"), "nothing is called"),
    (lambda light: hg.sweep(light, model=MODEL), "nothing to sweep"),
    (lambda light: hg.sweep(light, model=MODEL, laser_power_w=[]), "no values"),
    (lambda light: hg.sweep(light, model=MODEL, gpu=["h100"]), "by the name of one"),
    (lambda light: hg.sweep(light, model=MODEL, laser_power_w=[10**400]), "must be a number"),
    (lambda light: hg.simulate(light, MODEL, PLAN, placement="tp dp"), "each of tp cp dp pp once"),
    (lambda light: hg.simulate(light, MODEL, "dp=2147483648"), "at most 2,147,483,647"),
    (lambda light: light.with_(laser_power_w=10**400), "must be a number"),
    (lambda light: light.with_(laser_power_w="1e400"), "1e400 is beyond the largest number"),
    (lambda light: light.with_(laser_power_w="1e308 GW"), "1e308 GW is beyond the largest number"),
    (lambda light: light.with_(accelerators=4), "chosen when one is made"),
    (lambda light: light.with_(core="mzi_mesh"), "chosen when one is made"),
    (lambda light: hg.plan(model=MODEL, system=light, accelerators=4), "the system has 16"),
    (lambda light: hg.sweep(light, model=MODEL, laser_power_w=[0.1, 0.1]), "0.1 stands twice"),
    (lambda light: hg.register_core("a:b", type(light.photonic.core)), "without blanks and"),
]


@pytest.mark.parametrize(("call", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_wrong_gets_one_sentence(light, call, says):
    with pytest.raises(HeliographError, match=says) as caught:
        call(light)
    assert "\n" not in str(caught.value)


class Odd:
    """Something that no argument can be."""

    def __repr__(self):
        return "<odd>"


def fits(light, **changes):
    return hg.sweep(light, **({"model": MODEL, "plan": PLAN, "laser_power_w": ["300 mW"]} | changes))


ARGUMENTS = {
    "system": lambda light, odd: hg.system(odd),
    "system, changes": lambda light, odd: hg.system("gpu_packet", odd),
    "system, accelerators": lambda light, odd: hg.system("gpu_packet", accelerators=odd),
    "system, gpu": lambda light, odd: hg.system("gpu_packet", gpu=odd),
    "system, core": lambda light, odd: hg.system("photonic_packet", core=odd),
    "system, fabric": lambda light, odd: hg.system("gpu_packet", fabric=odd),
    "with_": lambda light, odd: light.with_(odd),
    "with_, path": lambda light, odd: light.with_({id(odd): 1.0}),
    "with_, value": lambda light, odd: light.with_(laser_power_w=odd),
    "simulate, system": lambda light, odd: hg.simulate(odd, MODEL, PLAN),
    "simulate, model": lambda light, odd: hg.simulate(light, odd, PLAN),
    "simulate, plan": lambda light, odd: hg.simulate(light, MODEL, odd),
    "simulate, key of plan": lambda light, odd: hg.simulate(light, MODEL, {"tp": odd}),
    "simulate, placement": lambda light, odd: hg.simulate(light, MODEL, PLAN, placement=odd),
    "model": lambda light, odd: hg.model(odd),
    "model, key": lambda light, odd: hg.model({"model_type": "llama", "hidden_size": odd}),
    "to_csv": lambda light, odd: hg.show(light).to_csv(odd),
    "plan": lambda light, odd: hg.plan(odd, model="gpt2"),
    "plan, system": lambda light, odd: hg.plan("tp=2", model="gpt2", system=odd),
    "compare": lambda light, odd: hg.compare(odd, MODEL, PLAN),
    "compare, member": lambda light, odd: hg.compare([light, odd], MODEL, PLAN),
    "compare, plan": lambda light, odd: hg.compare([light], MODEL, odd),
    "compare, accelerators": lambda light, odd: hg.compare(["gpu_packet"], "gpt2", accelerators=odd),
    "search": lambda light, odd: hg.search(odd, MODEL),
    "search, model": hg.search,
    "search, plan": lambda light, odd: hg.search(light, MODEL, odd),
    "search, key of plan": lambda light, odd: hg.search(light, MODEL, {"tp": odd}),
    "search, objective": lambda light, odd: hg.search(light, MODEL, objective=odd),
    "search, top": lambda light, odd: hg.search(light, MODEL, top=odd),
    "search, accelerators": lambda light, odd: hg.search("gpu_packet", "gpt2", accelerators=odd),
    "sweep, changes": lambda light, odd: hg.sweep(light, odd, model=MODEL, plan=PLAN),
    "sweep, system": lambda light, odd: fits(odd),
    "sweep, model": lambda light, odd: fits(light, model=odd),
    "sweep, plan": lambda light, odd: fits(light, plan=odd),
    "sweep, values": lambda light, odd: fits(light, laser_power_w=odd),
    "sweep, value": lambda light, odd: fits(light, laser_power_w=[odd]),
    "sweep, zips": lambda light, odd: fits(light, zips=[odd]),
    "sweep, all zips": lambda light, odd: fits(light, zips=odd),
    "sweep, where": lambda light, odd: fits(light, where=odd),
    "sweep, condition": lambda light, odd: fits(light, where=[odd]),
    "sweep, store": lambda light, odd: fits(light, store=odd),
    "sweep, workers": lambda light, odd: fits(light, workers=odd),
    "sweep, engine": lambda light, odd: fits(light, engine=odd),
    "sweep, scheduler": lambda light, odd: fits(light, engine="dask", scheduler=odd),
    "show": lambda light, odd: hg.show(odd),
    "register_core": lambda light, odd: hg.register_core("odd", odd),
    "register_core, name": lambda light, odd: hg.register_core(odd, type(light.photonic.core)),
    "register_fabric": lambda light, odd: hg.register_fabric("odd", odd),
    "register_fabric, name": lambda light, odd: hg.register_fabric(odd, odd),
    "register_model": lambda light, odd: hg.register_model("odd", odd),
    "register_model, name": lambda light, odd: hg.register_model(odd, hg.model("gpt2")),
    "register_schedule": lambda light, odd: hg.register_schedule("odd", odd),
    "register_schedule, name": lambda light, odd: hg.register_schedule(odd, odd),
    "convert": lambda light, odd: hg.convert(odd, light),
    "convert, system": lambda light, odd: hg.convert(nn.Linear(2, 2), odd),
    "convert, include": lambda light, odd: hg.convert(nn.Linear(2, 2), light, include=odd),
    "convert, exclude": lambda light, odd: hg.convert(nn.Linear(2, 2), light, exclude=[odd]),
    "convert, policy": lambda light, odd: hg.convert(nn.Linear(2, 2), light, policy=odd),
    "convert, model_key": lambda light, odd: hg.convert(nn.Linear(2, 2), light, model_key=odd),
}


@pytest.mark.parametrize("odd", [Odd(), 3.5, [None]], ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("call", ARGUMENTS.values(), ids=ARGUMENTS)
def test_an_argument_of_a_wrong_type_gets_one_sentence(light, call, odd):
    with pytest.raises(HeliographError) as caught:
        call(light, odd)
    assert "\n" not in str(caught.value)


def test_a_warning_names_a_number_as_a_reader_writes_it(light):
    with pytest.warns(RangeWarning, match=r"photonic\.core\.laser\.wall_plug_efficiency is 0\.99"):
        light.with_(wall_plug_efficiency=0.99)


def test_one_condition_needs_no_list(light):
    assert len(fits(light, where="laser_power_w < '1 W'").rows()) == 1


def test_the_unsized_way_is_no_part_of_the_front_door(light):
    assert not [name for name in hg.__all__ if "replace" in name]
    with pytest.raises(ParameterError, match="photonic cores need"):
        hg.system("photonic_packet:crossbar", accelerators=N).with_(laser_power_w="100 W")


IDLE = (
    "reshard=false",
    "prefetch=false",
    "context_exchange=all_to_all",
    "graphs=router",
    "overlap_sends=false",
)


@pytest.mark.parametrize(
    ("plan", "key"),
    [
        *(("tp=2,dp=4,zero=1", key) for key in (*IDLE, "recompute=selective")),
        ("tp=2,dp=4,zero=3", "grad_buckets=8"),
        ("tp=8,dp=1,zero=0", "grad_buckets=8"),
    ],
)
def test_a_key_of_a_plan_that_changes_nothing_is_told(plan, key):
    plan = f"{plan},global_batch=8,sequence_length=1024"
    with pytest.warns(SuspectWarning, match=f"plan: {key.partition('=')[0]}=.* changes nothing: "):
        named = hg.simulate("gpu_packet", "llama-3-8b", f"{plan},{key}")
    plain = hg.simulate("gpu_packet", "llama-3-8b", plan)
    assert (named.step_time_s, named.energy_j) == (plain.step_time_s, plain.energy_j)


MEANT = ("zero=3,reshard=false,prefetch=false", "grad_buckets=8", "recompute=selective,attention=full")


def test_a_key_that_changes_something_is_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        for more in (
            "zero=3,reshard=false,prefetch=false",
            "grad_buckets=8",
            "recompute=selective,attention=full",
        ):
            hg.plan(
                f"tp=2,dp=4,global_batch=8,sequence_length=1024,{more}", model="llama-3-8b", accelerators=8
            )

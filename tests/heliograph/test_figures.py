import copy

import numpy as np
import pytest
from matplotlib.image import imread

from heliograph import figures
from heliograph.figures import (
    DPI,
    ENERGY_FAMILIES,
    ENERGY_LOOKS,
    PALETTE,
    TIME_LOOKS,
    WIDTH_IN,
    energy_families,
    label,
    lines_figure,
    looks_of,
    loss_curves,
    new_figure,
    plain_ticks,
    row_label,
    save,
    signed_ticks,
    step_figure,
    styled,
)
from heliograph.simulation import simulate
from simulator.errors import HeliographError


def record(system="gpu", **changes):
    return {
        "system": system,
        "step_time_s": 3.5,
        "time_by_category_s": {"compute": 2.0, "exposed communication": 1.0, "bubble": 0.5},
        "energy_per_token_j": 0.9,
        "energy_by_component_j_per_token": {"laser": 0.5, "adc": 0.4},
    } | changes


def curve(label="exact", seeds=3, **changes):
    return {
        "label": label,
        "steps": [0, 10, 20],
        "losses": [[5.5, 3.0, 2.0 + 0.1 * i] for i in range(seeds)],
    } | changes


def step_time_bars(records, path):
    return save(step_figure(records, energy=False), path)


def energy_bars(records, path):
    return save(step_figure(records, time=False), path)


@pytest.mark.parametrize("draw", [step_time_bars, energy_bars])
def test_bars_are_written_as_png_and_svg(tmp_path, draw):
    png, svg = draw([record("gpu"), record("photonic")], tmp_path / "bars.png")
    assert imread(png).shape[1] == WIDTH_IN * DPI
    assert svg.read_text().lstrip().startswith("<?xml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.png", "bars.svg"]


def test_curves_are_written_as_png_and_svg(tmp_path):
    png, svg = loss_curves([curve(reference=True), curve("photonic")], tmp_path / "loss")
    assert (png.name, svg.name) == ("loss.png", "loss.svg")
    assert imread(png).std() > 0.01


def test_the_same_record_gives_the_same_bytes_and_stays_as_it_was(tmp_path):
    records = [record()]
    kept = copy.deepcopy(records)
    first = [path.read_bytes() for path in step_time_bars(records, tmp_path / "a")]
    assert [path.read_bytes() for path in step_time_bars(records, tmp_path / "b")] == first
    assert records == kept


def test_another_number_gives_another_picture(tmp_path):
    one, _ = energy_bars([record()], tmp_path / "one")
    other = record(energy_by_component_j_per_token={"laser": 0.5, "adc": 0.3})
    two, _ = energy_bars([other], tmp_path / "two")
    assert one.read_bytes() != two.read_bytes()


def bars_of(records, **drawn):
    """Return the width of every bar, shape [parts, records], in the base unit."""
    axes = step_figure(records, **drawn).axes[0]
    factor = {"m": 1e-3, "": 1.0, "\u00b5": 1e-6}[axes.get_xlabel().rsplit("(", 1)[1][:-2]]
    return np.array([[bar.get_width() for bar in part] for part in axes.containers]) * factor


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_bars_add_up_to_the_recorded_parts(scale):
    parts = {f"c{index}": scale * 2.0**-index for index in range(20)}
    records = [
        record(energy_by_component_j_per_token=parts),
        record(energy_by_component_j_per_token={"c3": scale}),
    ]
    widths = bars_of(records, time=False)
    assert widths.sum(axis=0) == pytest.approx([sum(parts.values()), scale])
    assert len(widths) < len(parts)


def test_a_part_that_is_missing_from_one_system_is_zero_there():
    records = [record(), record("ocs", time_by_category_s={"compute": 2.0, "dark": 0.25})]
    widths = bars_of(records, energy=False)
    assert widths.tolist() == [[2.0, 2.0], [1.0, 0.0], [0.5, 0.0], [0.0, 0.25]]


@pytest.mark.parametrize("parts", [TIME_LOOKS, ENERGY_LOOKS], ids=["time", "energy"])
def test_a_part_keeps_its_look_whatever_stands_beside_it_and_no_two_look_alike(parts):
    names = [*parts, *(f"c{index}" for index in range(4))]
    looks = looks_of(names)
    assert len(set(looks)) == len(looks)
    for few in (["laser", "c1"], ["c1", "adc", "products"], list(reversed(names))[:9]):
        known = dict(zip(names, looks, strict=True))
        assert [known[name] for name in few if name in parts] == [
            look for name, look in zip(few, looks_of(few), strict=True) if name in parts
        ]
    assert looks_of(["c1"]) == looks_of(["c2", "c1"])[1:]


def test_every_part_of_a_step_has_a_look_of_its_own():
    record = simulate("photonic_ocs", "llama-3-8b", "tp=8,dp=2,global_batch=16,sequence_length=2048").record()
    assert set(record["time_by_category_s"]) <= set(TIME_LOOKS)
    assert set(record["energy_by_component_j_per_token"]) <= set(ENERGY_LOOKS)


def test_every_part_of_energy_is_of_one_family_and_families_look_apart():
    members = [part for parts in ENERGY_FAMILIES.values() for part in parts]
    assert len(members) == len(set(members))
    assert set(members) | {"other"} == set(ENERGY_LOOKS)
    looks = looks_of([*ENERGY_FAMILIES, "other"])
    assert len(set(looks)) == len(looks)
    parts = {name: np.array([1.0 + place, 2.0]) for place, name in enumerate([*ENERGY_LOOKS, "mine"])}
    folded = energy_families(parts)
    assert sum(folded.values()) == pytest.approx(sum(parts.values()))
    network = sum(parts[one] for one in ENERGY_FAMILIES["network"])
    assert folded["network"] == pytest.approx(network)
    tiny = energy_families({"laser": np.array([1.0]), "adc": np.array([1e-3]), "mine": np.array([0.0])})
    assert list(tiny) == ["laser and receivers", "other"]


@pytest.mark.parametrize("draw", [step_time_bars, energy_bars, loss_curves])
def test_nothing_to_draw_is_said(tmp_path, draw):
    with pytest.raises(HeliographError, match="nothing to draw"):
        draw([], tmp_path / "x")


def test_a_step_of_zero_parts_is_said(tmp_path):
    with pytest.raises(HeliographError, match="nothing to draw: every part"):
        step_time_bars([record(time_by_category_s={"compute": 0.0})], tmp_path / "x")


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_part_that_is_no_amount_is_refused_by_name(tmp_path, value):
    with pytest.raises(HeliographError, match="time_by_category_s of 'gpu': compute is"):
        step_time_bars([record(time_by_category_s={"compute": value})], tmp_path / "x")


@pytest.mark.parametrize("losses", [[], [[1.0, 2.0]], [[1.0, 2.0, 3.0], [1.0]]])
def test_losses_must_fit_the_steps(tmp_path, losses):
    with pytest.raises(HeliographError, match="every seed needs 3 losses"):
        loss_curves([curve(losses=losses)], tmp_path / "x")


def test_a_curve_that_diverged_is_drawn_to_where_it_did(tmp_path, monkeypatch):
    caught = []
    monkeypatch.setattr(figures, "save", lambda figure, path: caught.append(figure) or (path, path))
    loss_curves([curve(), curve("bad", losses=[[5.0, 4.0, float("nan")], [5.0, 4.0, 3.0]])], tmp_path / "x")
    lines = {line.get_label(): line.get_xdata() for line in caught[0].axes[0].lines}
    assert lines["bad (diverged)"].tolist() == [0.0, 10.0]
    assert lines["exact"].tolist() == [0.0, 10.0, 20.0]


def test_one_seed_and_one_step_are_enough(tmp_path):
    for path in loss_curves([curve(steps=[0], losses=[[5.5]])], tmp_path / "x"):
        assert path.stat().st_size > 0
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg"}


@pytest.mark.parametrize(
    "name", ["$x^$", "_hidden", "a\x1b[31mb", "x" * 300, "", "\U0001f600 \u6f22", "a\nb"]
)
def test_any_name_can_be_drawn(tmp_path, name):
    step_time_bars([record(name, time_by_category_s={name: 1.0})], tmp_path / "bars")
    loss_curves([curve(name)], tmp_path / "loss")
    assert 0 < len(label(name)) <= 28
    assert label(name).isprintable()


def test_a_rate_has_a_prefix_on_its_axis_as_in_a_table():
    points = [(12.5e9, 3e-3), (100e9, 2e-3)]
    (axes,) = lines_figure({"h100": points}, x="nic.bandwidth_bytes_per_s", y="step_time_s").axes
    assert axes.get_xlabel() == "nic.bandwidth (GB/s)"
    assert axes.get_ylabel() == "step time (ms)"
    assert axes.lines[0].get_xdata() == pytest.approx([12.5, 100.0])


def test_a_plan_beside_its_bar_is_read_whole():
    """Plans of one search differ in the middle, which a short label leaves out."""
    plan = "tp4 cp2 pp32 dp4 mb1 zero1 zb_v fp8_params buckets8"
    assert row_label(plan) == "tp4 cp2 pp32 dp4 mb1 zero1\nzb_v fp8_params buckets8"
    assert row_label("gpu_packet:h100:bf16") == "gpu_packet:h100:bf16"
    assert all(len(line) <= 28 for line in row_label("x" * 300 + " y" * 100).splitlines())
    assert row_label("") == label("")


def test_palette_has_no_colour_twice():
    assert len(set(PALETTE)) == len(PALETTE)


def widest_legend(figure):
    """Return the width of the widest legend of a figure or of its panels over the figure's."""
    legends = [*figure.legends, *(one for panel in figure.subfigs for one in panel.legends)]
    return max(one.get_window_extent().width for one in legends) / figure.bbox.width


@pytest.mark.parametrize(
    ("least", "most", "linear"),
    [(-46.6, 300.0, 100.0), (-30.0, 1500.0, 12.0), (0.0, 5.0, 1.0), (-3.0, 0.0, 2.0)],
)
def test_each_side_of_a_signed_axis_that_reaches_out_has_a_tick(least, most, linear):
    ticks = signed_ticks(least, most, linear)
    assert 0.0 in ticks
    assert (min(ticks) < 0.0, max(ticks) > 0.0) == (least < 0.0, most > 0.0)
    assert all(not tick or abs(tick) >= linear / 3.0 for tick in ticks)


def test_legends_are_no_wider_than_the_figure():
    parts = dict.fromkeys([*TIME_LOOKS][:8], 1.0)
    assert widest_legend(step_figure([record(time_by_category_s=parts)])) <= 1.0
    lines = {f"photonic_packet, wall plug efficiency {size}": [(1.0, size)] for size in (1, 2, 3)}
    assert widest_legend(lines_figure(lines, x="laser_power_w", y="step_time_s")) <= 1.0
    short = lines_figure({name: [(1.0, 2.0)] for name in "abc"}, x="laser_power_w", y="step_time_s")
    assert short.legends[0]._ncols == 3


def tick_texts(axis):
    axis.figure.canvas.draw()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    return [text for one in ticks if (text := one.label1.get_text())]


@pytest.mark.parametrize("most", [3.0, 40.0, 1e5])
def test_logarithmic_axes_tell_plain_numbers(most):
    """Formulas are not set, so a power would stand there as its source."""
    axes = lines_figure({"a": [(1.0, 1.0), (most, most)]}, x="x", y="y").axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        assert len([float(one.replace(",", "")) for one in tick_texts(axis)]) >= 1
    with styled():
        panel = new_figure(2.0).add_subplot()
        panel.plot([1.0, most], [1.0, most])
        panel.set_yscale("log")
        plain_ticks(panel.yaxis)
        texts = tick_texts(panel.yaxis)
    assert len([float(one) for one in texts]) >= 2

"""Default parts are those that the command's rule chooses: described, losses published, least energy."""

from dataclasses import replace

import pytest

from experiments.cores.rescue import PartRanking, PartRow, RankParts, is_eligible
from experiments.study import Progress
from heliograph.systems import build_system
from optical.cores.analog import DEFAULT_CROSSING, DEFAULT_FEED, DEFAULT_MODULATOR, DRIVER
from optical.cores.homodyne import default_homodyne
from optical.devices.named_parts import named_parts
from simulator.errors import ParameterError
from simulator.operands.statistics import OperandKind
from simulator.parameter_tree import get_at

pytestmark = pytest.mark.filterwarnings("ignore")


def test_only_described_parts_with_published_losses_are_eligible():
    assert is_eligible("mzm_tfln_5mm")
    assert is_eligible("waveguide_sin_2014")
    assert not is_eligible("mzm_quoted")  # one energy of a symbol, quoted
    assert not is_eligible("mzm_bto_2019")  # its loss is recalled
    assert named_parts()[DRIVER].build().swing_v > 0.0


def test_the_default_feed_is_the_one_that_the_rule_chooses():
    found = RankParts(places=("feed",)).run(Progress())
    best = found.best("feed")
    assert best.part == DEFAULT_FEED
    cheaper = [one for one in found.parts if one.j_per_mac and one.j_per_mac < best.j_per_mac]
    assert not any(one.eligible for one in cheaper)
    strip = next(one for one in found.parts if one.part == "si_waveguide")
    assert strip.j_per_mac > 1.03 * best.j_per_mac  # bright light is absorbed in it
    assert found.record()["chosen"] == {"feed": DEFAULT_FEED}
    assert len(found.rows()) == len(found.parts)


def test_where_no_part_serves_nothing_is_drawn():
    row = PartRow(place="modulator", part="mzm_quoted", eligible=False, why_not="no light reaches it")
    given = {"core": "crossbar", "target": "fp8", "target_db": 28.5, "operands": OperandKind.GAUSSIAN}
    assert PartRanking(parts=(row,), **given).figures() == {}
    assert set(PartRanking(parts=(replace(row, j_per_mac=1e-12),), **given).figures()) == {""}


@pytest.mark.slow
def test_the_default_crossing_and_size_are_those_that_the_rule_chooses():
    found = RankParts(places=("crossing", "size")).run(Progress())
    assert found.best("crossing").part == DEFAULT_CROSSING
    single = default_homodyne()
    assert found.best("size").part == f"{single.rows} x {single.columns}"
    passed = next(one for one in found.parts if one.part == "48 x 48")
    assert not passed.eligible
    assert "a packaged laser has had" in passed.why_not


@pytest.mark.slow
def test_the_default_modulator_is_the_one_that_the_rule_chooses():
    found = RankParts(places=("modulator",)).run(Progress())
    assert found.best("modulator").part == DEFAULT_MODULATOR


@pytest.mark.parametrize("core", ["ring_bank", "mzi_mesh"])
def test_usual_places_that_a_core_has_not_are_left_out(core):
    found = RankParts(core=core, target="10").run(Progress())
    assert "crossing" not in {one.place for one in found.parts}
    assert {"modulator", "feed"} <= {one.place for one in found.parts}


def test_operands_other_than_captured_have_sums_of_one_length():
    captured, drawn = (
        RankParts(places=("feed",), operands=kind).run(Progress())
        for kind in (OperandKind.CAPTURED, OperandKind.GAUSSIAN)
    )
    assert captured.target_db == pytest.approx(31.2, abs=0.1)
    assert drawn.target_db == pytest.approx(28.5, abs=0.1)
    titles = [found.report()[0].title for found in (captured, drawn)]
    assert ["sums of 4,096" in title for title in titles] == [False, True]


def test_a_place_that_a_core_has_not_is_told():
    with pytest.raises(ParameterError, match="has no place 'comb' for named parts"):
        RankParts(core="homodyne", places=("comb",)).run(Progress())


def test_what_is_chosen_is_told_as_settings_of_a_system():
    found = RankParts(places=("feed", "size"), target="20").run(Progress())
    size = found.best("size").part.partition(" x ")[0]
    wanted = (f"core.feed={found.best('feed').part}", f"core.rows={size}", f"core.columns={size}")
    assert found.chosen_settings == wanted
    assert found.report()[-1] == "\nTo take every choice: " + " ".join(f"--set {one}" for one in wanted)
    assert get_at(build_system("photonic_packet", accelerators=8, assignments=wanted), "core.rows") == int(
        size
    )

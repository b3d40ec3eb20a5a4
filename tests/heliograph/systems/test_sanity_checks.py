import math
import re
import warnings

import pytest

from experiments.__main__ import main
from heliograph.systems import build_system
from heliograph.systems.sanity_checks import built_snr_db, chip_warning, least_j_per_mac
from optical.devices.limits import sampling_floor_j
from simulator.errors import LimitWarning, LinkError, ParameterError, RangeWarning, SuspectWarning
from simulator.parameter_tree import replace_at

PRECISE = ("adc.nominal_bits=12", "adc.enob_bits=9", "dac.enob_bits=8")
FREE = (
    "adc.power_w=0",
    "dac.power_w=0",
    "core.modulator=mzm_quoted",
    "modulator.symbol_energy_j=0",
    "detector.bias_v=0",
    "laser.wall_plug_efficiency=1",
    "bias.power_w=0",
    "tia.power_w=0",
    "overhead=1",
)
UNSIZED = "lighting.target=none"


def test_no_system_that_ships_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspectWarning)
        for name in ("gpu_packet", "photonic_packet:crossbar", "photonic_ocs"):
            build_system(name, accelerators=8)


def test_an_accelerator_whose_steps_are_predicted_too_fast_is_warned_of():
    with pytest.warns(SuspectWarning, match=r"published steps of trainium2 take 2 to 2\.7 times as long"):
        build_system("gpu_packet", accelerators=16, gpu="trainium2")


def test_precision_of_the_best_whole_chip_is_that_of_executed_products():
    """PACE: 7.61 bits of full scale, 47.6 dB of a sine; sums of 64 uniform products are 24.6 dB below it."""
    assert built_snr_db() == pytest.approx(6.02 * 7.61 + 1.76 - 10.0 * math.log10(64 * 4.5), abs=0.01)
    assert least_j_per_mac(built_snr_db()) == pytest.approx(0.6 * 0.84e-12)
    assert least_j_per_mac(built_snr_db() + 6.02) == pytest.approx(2.0 * 0.6 * 0.84e-12)


@pytest.mark.parametrize("assignments", [FREE, (*PRECISE, *FREE)])
def test_a_chip_better_than_any_built_is_warned_of_at_any_precision(assignments):
    """PACE, Nature 640, 361 (2025): a whole chip takes 0.84 pJ/MAC at 7.61 effective bits."""
    with pytest.warns(SuspectWarning, match="whole chips of today take 0.84 at 23 dB") as caught:
        system = build_system("photonic_packet:crossbar", accelerators=8, assignments=[*assignments, UNSIZED])
    assert sum(not issubclass(one.category, RangeWarning) for one in caught) == 1
    assert system.photonic.peak_power_w / system.photonic.peak_macs_per_s < 0.84e-12


def test_precision_that_is_paid_for_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeWarning)
        system = build_system("photonic_packet:crossbar", accelerators=8, basis="count", assignments=PRECISE)
    assert chip_warning("it", system.photonic) is None


def test_the_warning_lies_at_the_bound_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = build_system(
            "photonic_packet:crossbar", accelerators=8, assignments=[*PRECISE, *FREE, UNSIZED]
        )
    unit = system.photonic
    said = chip_warning("it", unit)
    least_j = float(re.search(r"less than ([\d.]+) is doubted", said)[1]) * 1e-12
    missing_w = least_j * unit.peak_macs_per_s - unit.peak_power_w
    each_w = missing_w * unit.electronics.regulator.efficiency / (unit.cores / unit.core.cluster)
    for share, warned in ((0.97, True), (1.03, False)):
        clock_w = unit.electronics.clock.power_w + share * each_w
        other = replace_at(unit, "electronics.clock.power_w", clock_w)
        assert (chip_warning("it", other) is not None) == warned


@pytest.mark.slow
def test_the_command_line_says_it_once_in_one_sentence_and_goes_on(capsys):
    sets = [word for one in (*PRECISE, *FREE, UNSIZED) for word in ("--set", one)]
    plan = "dp=8,micro_batch=1,global_batch=8"
    code = main(
        [
            "step",
            "--model",
            "gpt2",
            "--system",
            "photonic_packet:crossbar",
            "--accelerators",
            "8",
            "--plan",
            plan,
            *sets,
        ]
    )
    captured = capsys.readouterr()
    assert code == 0
    assert captured.out
    assert captured.err.count("whole chips of today") == 1
    assert "heliograph: warning: system 'photonic_packet:crossbar' needs" in captured.err
    assert all(line.startswith("heliograph: warning: ") for line in captured.err.splitlines())


def test_a_number_without_its_unit_is_warned_of():
    """A laser of 5 W a line instead of 5 mW: what was read, what stood there, and how to write it."""
    said = r"laser_power_w=5 is 5.00 W, and \d+\.\d mW stood there; .* e.g. laser_power_w="
    options = {"accelerators": 8, "basis": "count"}
    with pytest.warns(SuspectWarning, match=said):
        build_system("photonic_packet:crossbar", **options, assignments=["laser_power_w=5"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for plain in ("laser_power_w=0.02", "laser_power_w=5 mW", "laser_power_w=6e-3", "rows=24"):
            build_system("photonic_packet:crossbar", **options, assignments=[plain])


@pytest.mark.parametrize("core", ["crossbar", "residue", "mzi_mesh"])
def test_bits_that_sampling_cannot_give_are_warned_of(core):
    """8 k T SNR of a sampled capacitor (Murmann 2015): more effective bits alone cost nothing here."""
    named = f"photonic_packet:{core}"
    many = ("adc.nominal_bits=24", "adc.enob_bits=20")
    with pytest.warns(SuspectWarning, match=r"20 effective bits need .* by sampling alone"):
        system = build_system(named, accelerators=8, basis="count", assignments=many)
    adc = getattr(system.photonic.core, "adc", None) or system.photonic.core.core.adc
    watts = sampling_floor_j(20.0) * adc.rate_hz
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RangeWarning)
        build_system(named, accelerators=8, basis="count", assignments=["adc.enob_bits=5"])
        paid = (*many, f"adc.power_w={2 * watts}")
    assert "by sampling alone" not in str(said_of(named, paid))
    assert "by sampling alone" in str(said_of(named, (*many, f"adc.power_w={watts / 2}")))


def said_of(named, assignments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_system(named, accelerators=8, basis="count", assignments=assignments)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            "wall_plug_efficiency=0.99",
            "is 0.99, and its row of the tables ranges from 0.05 to 0.3",
        ),
        (
            "responsivity_a_per_w=50",
            "is 50 A/W, and its row of the tables ranges from 0.8 A/W",
        ),
    ],
)
def test_a_number_beyond_the_range_of_its_row_is_doubted(assignment, said):
    with pytest.warns(RangeWarning) as caught:
        build_system("photonic_packet:crossbar", accelerators=8, assignments=[assignment])
    assert [said in str(one.message) for one in caught] == [True]


@pytest.mark.parametrize("assignment", ["wall_plug_efficiency=0.3", "wall_plug_efficiency=1", "bias_v=0"])
def test_an_end_of_the_range_and_an_ideal_are_not_doubted(assignment):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RangeWarning)
        build_system("photonic_packet:crossbar", accelerators=8, assignments=[assignment])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ["link.field_area_m2=400 mm^2", UNSIZED],
            r"covers \d\d\d mm2, and a scanner exposes 400 mm2 at once",
        ),
        (
            ["core.feed=si_waveguide", "laser_power_w=4 W"],
            r"guides \d+ mW, and \d\d\.\d dB of the light are lost",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_number_that_forbids_it(changes, said):
    """Light crosses no dies, so cores that share it stand on one; rings hold their line; waveguides carry."""
    with pytest.raises(LinkError, match=r"cannot be built: .*" + said):
        build_system("photonic_packet:crossbar", accelerators=8, basis="count", assignments=changes)


def test_cores_that_share_no_light_stand_on_dies_of_their_own():
    small = ["link.field_area_m2=400 mm^2", UNSIZED]
    with pytest.warns(LimitWarning) as caught:
        build_system("photonic_packet:mzi_mesh", accelerators=8, assignments=small)
    assert not any("scanner" in str(one.message) for one in caught)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("laser_power_w=inf", "laser_power_w must be above 0 and at most 1e+06 W; got inf"),
        ("laser_power_w=1e300", "laser_power_w must be above 0 and at most 1e+06 W; got 1e+300"),
        ("chip_seed=-1", "chip_seed must be a whole number of at least 0; got -1"),
        ("laser_power_w=\uff11\uff15e-3", "laser_power_w must be a number, with or without a unit; got"),
        ("core.dac.enob_bits=0", "enob_bits must be above 0 and at most 8"),
        ("core.dac.enob_bits=20", "enob_bits must be above 0 and at most 8"),
        ("scale_up.size=1e30", "fabric.scale_up.size must be at most 9,007,199,254,740,992; got 1e30"),
        ("core.adc=nosuch", "photonic.core.adc: no part 'nosuch'"),
    ],
)
def test_what_cannot_be_is_said_of_the_number_itself(assignment, said):
    with pytest.raises(ParameterError) as caught:
        build_system("photonic_packet:crossbar+block", accelerators=8, assignments=[assignment])
    assert said in str(caught.value)
    assert "core.core" not in str(caught.value)

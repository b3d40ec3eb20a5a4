import dataclasses
import math

import pytest

from heliograph.systems import build_system
from optical.accelerator import PhotonicUnit, memory_traffic_bytes
from optical.cores import Crossbar, default_crossbar
from optical.devices.named_parts import named_parts
from optical.execution import Rounding
from simulator.errors import BudgetError, LinkError, ParameterError, WorkloadError
from simulator.interfaces import Bound, ComputeUnit
from simulator.operators import Elementwise, MatMul, Phase
from simulator.parameter_tree import replace_at
from tests.builders import HBM

CORE = default_crossbar()
LT_CORE = dataclasses.replace(
    CORE,
    tia=named_parts()["tia_lightening_transformer"].build(),
    modulator=named_parts()["mzm_quoted"].build(),
    crossing=named_parts()["crossing"].build(),
    laser_power_w=0.045,
)
LT_B = PhotonicUnit(core=LT_CORE, cores=8, memory=HBM, sram_bytes=2**21)
ELECTRONICS = (
    "modulator bias",
    "gain stage",
    "control",
    "clock",
    "wires",
    "serialiser",
    "regulators",
    "overhead",
)
"""Parts of a chip that LT does not count."""
PICO = 1e-12


def product(batch=1, m=1, k=1, n=1, phase=Phase.FORWARD):
    return MatMul(name="product", phase=phase, batch=batch, m=m, k=k, n=n)


def solo(core=CORE):
    return dataclasses.replace(core, broadcast=1, summed=1)


def test_lt_b_peaks_at_138_tops():
    """LT (HPCA 2024): 4 tiles x 2 cores, 12 x 12 x 12 at 5 GHz, two operations per multiply-accumulate."""
    assert LT_B.peak_flop_per_s == pytest.approx(138.24e12, rel=1e-12)


@pytest.mark.parametrize(
    ("part", "published_mm2", "tolerance"),
    [
        ("dac", 15.84, 1e-6),
        ("adc", 1.6416, 1e-6),
        ("tia", 0.0288, 1e-6),
        ("adder", 0.0512, 1e-3),
        # rings: LT keeps a full set per core, here the shared modulators share them
        ("modulator", 7.5942, 0.01),
        # nodes: ours add a crossing of 55 um2 to LT's 9823 um2
        ("node", 11.318, 0.02),
        # LT shares six sources among eight cores, here each core has one
        ("laser", 0.72 * 8 / 6, 1e-6),
        ("micro-comb", 8.4111 * 8 / 6, 1e-3),
    ],
)
def test_area_of_lt_b_by_part(part, published_mm2, tolerance):
    """LT simulator, area of LT-B by part."""
    assert LT_B.area_breakdown_m2()[part] * 1e6 == pytest.approx(published_mm2, rel=tolerance)


def test_area_of_lt_b_is_five_percent_above_published():
    """LT simulator: 60.301 mm2. Ours has eight sources for its six, one level of buffer for its two."""
    assert LT_B.area_m2 * 1e6 == pytest.approx(60.301, rel=0.06)


@pytest.mark.parametrize(
    ("parts", "published_w", "tolerance"),
    [
        (("modulator", "ring tuning"), 4.032, 1e-6),
        # LT's detectors take 1.1 mW each whatever the light, ours bias times photocurrent: not compared
        (("tia",), 1.728, 1e-6),
        (("dac",), 25.714, 1e-4),
        # LT's power profile converts every symbol; three symbols are accumulated here
        (("adc",), 4.2624 / 3, 1e-6),
    ],
)
def test_power_of_lt_b_by_part(parts, published_w, tolerance):
    """LT simulator, power of LT-B at 8 bits by part."""
    breakdown = LT_B.power_breakdown_w()
    assert sum(breakdown[part] for part in parts) == pytest.approx(published_w, rel=tolerance)


def test_power_of_lt_b_exceeds_published_by_light_and_buffer():
    """LT: 50.9 W at 8 bits, with 12.3 W of laser and 0.3 W of memory.

    Ours is higher since the comb converts 30 %, coupling and waveguides lose light, and the DACs' words are
    read from the buffer here too; the rest differs by the ADC, which reads every third symbol, and the adder.
    """
    assert LT_B.peak_power_w > 50.9
    breakdown = LT_B.power_breakdown_w()
    here_only = ("laser", "sram", "sram leakage", "photodetector", *ELECTRONICS)
    common = LT_B.peak_power_w - sum(breakdown[part] for part in here_only)
    assert common == pytest.approx(50.935 - 12.321 - 0.316 - 2.534 - 4.262 * 2 / 3, rel=0.01)


def test_whole_tiles_match_published_event_formulas():
    """LT, section on energy and latency: events of a product whose sizes divide evenly."""
    m, k, n = 48 * 4, 24 * 6, 12 * 7
    events = CORE.events(product(m=m, k=k, n=n), cores=8)
    i_m, i_n, i_k = m // 12, n // 12, k // 12
    assert events.cycles == i_m * i_n * i_k // 8
    assert events.symbols == m * k * i_n + i_m * k * n // 4
    assert events.samples == m * n * math.ceil(i_k / 2 / 3)


def test_full_array_works_at_its_peak():
    cycles = CORE.events(product(m=480, k=240, n=120), cores=8).cycles
    assert 480 * 240 * 120 == cycles * 8 * 12 * 12 * 12


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 13, 25, 49), (96, 197, 64, 197), (1, 4096, 8192, 11)])
def test_no_product_runs_above_peak(sizes):
    operator = product(*sizes)
    assert operator.macs <= LT_B.cost(operator).time_s * LT_B.peak_macs_per_s * (1 + 1e-12)


def test_independent_products_spread_over_clusters():
    one = dataclasses.replace(LT_B, cores=8)
    two = dataclasses.replace(LT_B, cores=16)
    operator = product(batch=64, m=48, k=240, n=12)
    assert one.core.events(operator, 8).cycles == 2 * two.core.events(operator, 16).cycles


def test_shared_modulators_save_operand_symbols():
    operator = product(m=480, k=240, n=120)
    assert CORE.events(operator, 8).symbols < solo().events(operator, 8).symbols


def test_peak_power_is_the_power_of_a_full_product():
    """A product that fills the array draws its static plus dynamic power, memory aside."""
    operator = product(m=48 * 40, k=72 * 40, n=48 * 40)
    cost = LT_B.cost(operator)
    dynamic = {part: cost.energy_j[part] for part in ("modulator", "dac", "adc", "adder")}
    expected = LT_B.power_breakdown_w()
    for part, energy_j in dynamic.items():
        assert energy_j / cost.time_s == pytest.approx(expected[part], rel=1e-9)


def test_gradient_operands_are_rounded_stochastically():
    assert CORE.analog(Phase.FORWARD).rounding is Rounding.NEAREST
    for phase in (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT):
        assert CORE.analog(phase).rounding is Rounding.STOCHASTIC
        nearest = dataclasses.replace(CORE, gradient_rounding=Rounding.NEAREST)
        assert nearest.analog(phase) == CORE.analog(Phase.FORWARD)


def test_a_cluster_with_the_default_laser_stands_under_a_gpu_s_power():
    """The design choice of the default: room for one cluster, and receivers with 11 times the ADC's noise."""
    names = {"accelerators": 1, "core": "crossbar"}
    dark = "lighting.target=none"
    assert build_system("photonic_packet", assignments=[dark], **names).photonic.cores == CORE.cluster
    with pytest.raises(BudgetError, match="8 photonic cores need"):
        build_system("photonic_packet", assignments=["laser_power_w=200 mW"], **names)
    receiver = 1.0 / CORE.budget.typical_snr
    adc = CORE.adc_range_sigma**2 / 3.0 * 4.0**-CORE.adc.enob_bits
    assert 10.0 < receiver / adc < 11.0


def test_analog_length_counts_every_summing():
    assert CORE.analog_length == CORE.analog(Phase.FORWARD).analog_length == 12 * 3 * 2


def test_peak_rate_does_not_depend_on_sharing():
    assert solo().peak_macs_per_s == CORE.peak_macs_per_s


def test_traffic_of_a_product_that_fits_touches_everything_once():
    operator = product(batch=5, m=64, k=64, n=64)
    assert memory_traffic_bytes(operator, 1e9) == operator.operand_bytes


@pytest.mark.parametrize("buffer_bytes", [64, 1e4, 1e5, 1e6, 1e7])
@pytest.mark.parametrize("sizes", [(1, 1000, 1000, 1000), (2, 64, 8192, 4096), (1, 5, 100_000, 7)])
def test_traffic_lies_between_its_bounds(sizes, buffer_bytes):
    operator = product(*sizes)
    moved = memory_traffic_bytes(operator, buffer_bytes)
    assert (
        operator.operand_bytes <= moved <= 2 * (2 * operator.macs + operator.batch * operator.m * operator.n)
    )
    elements = buffer_bytes / operator.element_bytes
    # Hong and Kung's bound, in the form 2 MNK / sqrt(S) - 2 S of later authors, per member of the batch
    lowest = 2 * operator.macs / math.sqrt(elements) / math.sqrt(2) - 2 * elements * operator.batch
    assert moved >= operator.element_bytes * lowest


def test_larger_buffer_never_moves_more():
    operator = product(m=3000, k=5000, n=2000)
    moved = [memory_traffic_bytes(operator, 2.0**bits) for bits in range(10, 30)]
    assert moved == sorted(moved, reverse=True)


def test_thin_product_is_bound_by_memory_and_thick_one_by_light():
    assert LT_B.cost(product(m=1, k=8192, n=8192)).bound is Bound.MEMORY
    assert LT_B.cost(product(m=4096, k=4096, n=4096)).bound is Bound.COMPUTE


def test_buffer_energy_counts_every_word_and_twice_every_byte_of_memory():
    operator = product(m=48, k=72, n=24)
    cost, events = LT_B.cost(operator), CORE.events(operator, 8)
    moved = memory_traffic_bytes(operator, LT_B.sram_bytes / 2)
    per_byte = LT_B.sram.energy_j_per_byte
    assert cost.energy_j["sram"] == pytest.approx(per_byte * (events.symbols * 8 / 8 + 2 * moved), rel=1e-12)
    assert cost.energy_j["hbm"] == pytest.approx(31.2e-12 * moved, rel=1e-12)


def test_static_power_leaves_the_shared_memory_to_the_node():
    hot = dataclasses.replace(LT_B, memory=dataclasses.replace(HBM, static_w=500.0))
    assert hot.static_w == LT_B.static_w


def test_unit_is_a_compute_unit_for_products_only():
    assert isinstance(LT_B, ComputeUnit)
    softmax = Elementwise(name="softmax", phase=Phase.FORWARD, flops=1.0, read_bytes=1.0, written_bytes=1.0)
    assert LT_B.accepts(product())
    assert not LT_B.accepts(softmax)
    with pytest.raises(WorkloadError, match="runs products only, not 'softmax'"):
        LT_B.cost(softmax)


def test_resized_unit_keeps_its_proportions():
    large = LT_B.resized(32)
    for quantity in ("peak_macs_per_s", "static_w", "area_m2", "peak_power_w"):
        assert getattr(large, quantity) == pytest.approx(4 * getattr(LT_B, quantity), rel=1e-12)
    assert large.dies == 1
    assert large.price_usd > 4 * LT_B.price_usd  # of larger dies fewer work


def test_part_of_a_cluster_is_refused():
    with pytest.raises(ParameterError, match=r"cores \(12\) must be whole clusters of 8 .*try 8 or 16"):
        PhotonicUnit(cores=12, memory=HBM, sram_bytes=2**21)


def test_unit_with_an_open_link_is_refused():
    with pytest.raises(LinkError, match="does not close"):
        PhotonicUnit(core=replace_at(CORE, "laser_power_w", 1e-9), cores=8, memory=HBM, sram_bytes=2**21)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows", 0), ("rows", 2.5), ("symbol_rate_hz", 0.0), ("laser_power_w", -1.0), ("summed", 0)],
)
def test_impossible_core_is_refused(field, value):
    with pytest.raises(ParameterError, match=field):
        dataclasses.replace(CORE, **{field: value})


def test_core_is_frozen_and_hashable():
    assert hash(CORE) == hash(default_crossbar())
    with pytest.raises(dataclasses.FrozenInstanceError):
        CORE.rows = 3
    assert isinstance(CORE, Crossbar)


def test_eight_bit_energy_of_today_is_that_of_measured_chips():
    """LT's 8-bit model is 0.97 pJ/MAC; full chips are at 0.84 (PACE) and 2.43 (Lightmatter 2025).

    Beyond them, twice at most: both hold their weights, and here both operands are sent anew, and pay for
    the rings and routes that they pass.
    """
    operator = product(m=4096, k=4096, n=4096)
    cost = LT_B.cost(operator)
    total_j = sum(cost.energy_j.values()) + LT_B.static_w * cost.time_s
    assert 0.84 * PICO < total_j / operator.macs < 2.0 * 2.43 * PICO

"""How much of an accelerator is shared by its cores."""

import dataclasses
import math

import numpy as np
import pytest

from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import CORES, default_crossbar, load_core
from optical.devices import mean_distance_m
from simulator.errors import ParameterError, WorkloadError
from simulator.interfaces import Bound
from simulator.operators import Elementwise, MatMul, Phase
from simulator.parameter_tree import replace_at
from tests.builders import HBM

MEBIBYTE = 2**20


def test_the_published_chip_has_its_published_buffer():
    """Lightening-Transformer (HPCA 2024), LT-B: eight cores, 2 MB of global buffer in 14.35 mm2."""
    core = default_crossbar()
    assert proportionate_buffer_bytes(core, 8) == pytest.approx(2 * MEBIBYTE, rel=1e-12)
    chip = PhotonicUnit(core=core, cores=8, memory=HBM, sram_bytes=proportionate_buffer_bytes(core, 8))
    assert chip.area_breakdown_m2()["sram"] == pytest.approx(14.348e-6, rel=1e-9)
    assert chip.resized(16).sram_bytes == pytest.approx(4 * MEBIBYTE, rel=1e-12)


@pytest.mark.parametrize("name", CORES)
def test_equal_arithmetic_has_an_equal_buffer_whatever_it_is_built_of(name):
    core, published = load_core(name), default_crossbar()
    rate = published.cluster * published.peak_macs_per_s
    found = proportionate_buffer_bytes(core, 7 * core.cluster)
    assert found == pytest.approx(2 * MEBIBYTE * 7 * core.cluster * core.peak_macs_per_s / rate, rel=1e-12)
    assert found > 2 * 7 * core.cluster * core.operand_bytes_per_symbol


THICK = MatMul(name="product", phase=Phase.FORWARD, batch=1, m=4096, k=4096, n=4096)


def unit(cores=8, name="crossbar", **changes):
    """Return a unit of a core with its buffer, some numbers of it changed."""
    core = load_core(name)
    sram_bytes = proportionate_buffer_bytes(core, cores)
    found = PhotonicUnit(core=core, cores=cores, memory=HBM, sram_bytes=sram_bytes)
    for path, value in changes.items():
        found = replace_at(found, path.replace("__", "."), value)
    return found


def test_mean_distance_is_that_of_random_points():
    points = np.random.default_rng(1).uniform(0.0, 3.0, size=(2, 2, 200_000))
    measured = np.abs(points[0] - points[1]).sum(axis=0).mean()
    assert mean_distance_m(9.0) == pytest.approx(measured, rel=0.005)


def test_words_cross_their_cluster_and_bytes_of_memory_the_die():
    # On one die; and in fields as large as they need.
    one, six = (unit(cores, electronics__link__field_area_m2=1.0) for cores in (8, 48))
    assert six.word_distance_m == pytest.approx(one.word_distance_m)
    assert six.memory_distance_m == pytest.approx(
        math.sqrt(six.cut.die_m2 / one.cut.die_m2) * one.memory_distance_m
    )
    wires = one.cost(THICK).energy_j["wires"] / one.core.work(THICK, 8).operand_bytes
    assert wires == pytest.approx(one.electronics.wire.energy_j_per_byte(one.word_distance_m), rel=0.02)


def test_buffer_that_is_too_narrow_sets_the_time():
    narrow = unit(electronics__ports__width_bytes=16.0)
    assert unit().cost(THICK).bound is Bound.COMPUTE
    assert narrow.cost(THICK).bound is Bound.BUFFER
    work = narrow.core.work(THICK, 8)
    assert narrow.cost(THICK).time_s > work.operand_bytes / narrow.buffer_bytes_per_s > work.time_s


def test_more_than_a_field_is_several_dies_with_links_between_them():
    one, many = unit(8), unit(8 * 40)
    assert one.dies == 1
    assert "die links" not in one.cost(THICK).energy_j
    assert many.dies >= math.ceil(40 * many.cluster_footprint_m2 / 858e-6) > 1
    assert many.cost(THICK).energy_j["die links"] > 0.0


def test_overhead_multiplies_power_and_energy_but_neither_memory_nor_idle_power():
    bare, whole = unit(overhead=1.0), unit(overhead=3.0)
    assert whole.static_w == pytest.approx(3.0 * bare.static_w)
    assert whole.peak_power_w == pytest.approx(3.0 * bare.peak_power_w)
    parts, more = bare.cost(THICK).energy_j, whole.cost(THICK).energy_j
    assert more["hbm"] == parts["hbm"]
    assert sum(more.values()) - more["hbm"] == pytest.approx(3.0 * (sum(parts.values()) - parts["hbm"]))
    with pytest.raises(ParameterError, match="overhead"):
        unit(overhead=0.5)


def test_regulators_lose_their_share_of_all_parts():
    parts = unit(overhead=1.0).power_breakdown_w()
    lossless = unit(overhead=1.0, electronics__regulator__efficiency=1.0).peak_power_w
    assert lossless / sum(parts.values()) == pytest.approx(unit().electronics.regulator.efficiency)


def test_calibrations_take_time_and_energy_and_cannot_take_all_of_it():
    rare, often = (unit(name="ring_bank", calibration_interval_s=seconds) for seconds in (1e9, 1.0))
    took_s = rare.core.calibration.time_s
    times = often.cost(THICK).time_s / rare.cost(THICK).time_s
    assert 0.0 < took_s < 1.0
    assert times == pytest.approx(1.0 / (1.0 - took_s), rel=1e-3)
    assert often.cost(THICK).energy_j["calibration"] > rare.cost(THICK).energy_j["calibration"] > 0.0
    with pytest.raises(ParameterError, match="calibration"):
        dataclasses.replace(rare, calibration_interval_s=took_s)


def test_only_products_are_priced():
    work = Elementwise(name="softmax", phase=Phase.FORWARD, flops=1.0, read_bytes=1.0, written_bytes=1.0)
    with pytest.raises(WorkloadError, match="products only"):
        PhotonicUnit(cores=8, memory=HBM, sram_bytes=2**21).cost(work)

"""How much of an accelerator is shared by its cores."""

import pytest

from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import CORES, default_crossbar, load_core
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

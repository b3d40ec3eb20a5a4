import dataclasses
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electronic.devices import GpuChip, load_memory, table
from electronic.gpu import Gpu, gpu_names, load_gpu
from heliograph.errors import ParameterError
from heliograph.interfaces import Bound, ComputeUnit
from heliograph.memory import Memory
from heliograph.operators import Elementwise, MatMul, Phase

H100 = load_gpu("h100")
POWER_ROUNDING = 1e-9


def product(m, k, n, batch=1, element_bytes=2):
    return MatMul(
        name="p", layer="block", phase=Phase.FORWARD, batch=batch, m=m, k=k, n=n, element_bytes=element_bytes
    )


def stream(moved, flops=1.0):
    return Elementwise(
        name="e",
        layer="block",
        phase=Phase.FORWARD,
        flops=flops,
        read_bytes=moved,
        written_bytes=0.0,
    )


SIZES = st.integers(1, 9000)
PRODUCTS = st.builds(product, m=SIZES, k=SIZES, n=SIZES, batch=st.integers(1, 64))
GPUS = st.sampled_from([load_gpu(name) for name in gpu_names()])


def test_all_named_gpus_load_and_are_compute_units():
    assert set(gpu_names()) == {"a100", "h100", "h200", "b200", "gb200", "tpu-v4"}
    for name in gpu_names():
        gpu = load_gpu(name)
        assert isinstance(gpu, ComputeUnit)
        assert gpu.accepts(product(1, 1, 1))
        assert gpu.accepts(stream(1.0))


@pytest.mark.parametrize(
    ("name", "tera"),
    [("a100", 312), ("h100", 989), ("h200", 989), ("b200", 2250), ("gb200", 2500), ("tpu-v4", 275)],
)
def test_peak_is_what_the_vendor_quotes(name, tera):
    assert load_gpu(name).peak_flop_per_s / 1e12 == pytest.approx(tera, rel=2e-3)


@given(gpu=GPUS, work=PRODUCTS)
def test_never_above_peak_nor_faster_than_memory(gpu, work):
    time_s = gpu.cost(work).time_s
    assert work.flops / time_s <= gpu.peak_flop_per_s * gpu.chip.matmul_efficiency * (1 + POWER_ROUNDING)
    assert time_s >= gpu.memory.time_s(work.operand_bytes)
    assert time_s >= gpu.chip.launch_s


@given(gpu=GPUS, work=PRODUCTS)
def test_power_never_exceeds_the_limit(gpu, work):
    cost = gpu.cost(work)
    dynamic_w = sum(cost.energy_j.values()) / cost.time_s
    assert dynamic_w + gpu.static_w + gpu.memory.static_w <= gpu.chip.tdp_w * (1 + POWER_ROUNDING)


@given(gpu=GPUS, moved=st.floats(1, 1e10), flops=st.floats(1, 1e13))
def test_elementwise_power_never_exceeds_the_limit(gpu, moved, flops):
    cost = gpu.cost(stream(moved, flops))
    dynamic_w = sum(cost.energy_j.values()) / cost.time_s
    assert dynamic_w + gpu.static_w + gpu.memory.static_w <= gpu.chip.tdp_w * (1 + POWER_ROUNDING)


@pytest.mark.parametrize("name", gpu_names())
def test_a_large_product_draws_nearly_the_limit(name):
    gpu = load_gpu(name)
    cost = gpu.cost(product(128 * gpu.chip.units * 8, 16384, 256 * 32))
    total_w = sum(cost.energy_j.values()) / cost.time_s + gpu.static_w + gpu.memory.static_w
    assert total_w > 0.9 * gpu.chip.tdp_w


@settings(max_examples=60)
@given(gpu=GPUS, work=PRODUCTS, more=st.integers(1, 3000), which=st.sampled_from(["m", "k", "n", "batch"]))
def test_more_work_is_never_faster_nor_cheaper(gpu, work, more, which):
    small = gpu.cost(work)
    large = gpu.cost(replace(work, **{which: getattr(work, which) + more}))
    assert large.time_s >= small.time_s * (1 - POWER_ROUNDING)
    assert large.energy_j["compute"] > small.energy_j["compute"]


def test_one_tile_more_than_units_costs_more():
    units = H100.chip.units
    full = H100.cost(product(128 * units, 4096, 256)).time_s
    spilled = H100.cost(product(128 * (units + 1), 4096, 256)).time_s
    assert spilled > 1.1 * full


def test_inner_dimension_is_padded():
    step = H100.chip.k_step
    rows = 128 * (H100.chip.units + 1)
    odd, padded = (H100.cost(product(rows, depth, 256)).time_s for depth in (60 * step + 1, 61 * step))
    assert odd == pytest.approx(padded, rel=1e-3)


def test_split_inner_dimension_fills_the_chip():
    long = product(512, 65536, 512)
    tiles_only = long.flops / (H100.peak_flop_per_s * 8 / H100.chip.units)
    assert H100.cost(long).time_s < 0.5 * tiles_only


def test_bounds_name_what_limits():
    assert H100.cost(product(8192, 8192, 8192)).bound is Bound.COMPUTE
    assert H100.cost(product(16, 8192, 8192)).bound is Bound.MEMORY
    assert H100.cost(product(16, 16, 16)).bound is Bound.LAUNCH
    assert H100.cost(stream(1e9)).bound is Bound.MEMORY
    assert H100.cost(stream(1.0, flops=1e12)).bound is Bound.COMPUTE
    assert H100.cost(stream(1.0)).bound is Bound.LAUNCH


def test_streams_run_at_memory_speed():
    moved = 4e9
    expected = H100.chip.launch_s + moved / (H100.memory.bandwidth_bytes_per_s * H100.memory.efficiency)
    assert H100.cost(stream(moved)).time_s == pytest.approx(expected)


def outputs(gpu):
    work = (
        product(8192, 8192, 8192),
        product(1000, 1000, 16, batch=7),
        product(16, 8192, 8192),
        product(512, 256, 512),
        product(1536, 1024, 1024),
        product(8192, 256, 8192),
        product(128 * 109, 2060, 256),
        stream(1e9, 1e6),
        stream(1.0, 1e12),
    )
    costs = [gpu.cost(item) for item in work]
    totals = [gpu.static_w, gpu.price_usd, gpu.area_m2, gpu.memory.static_w, gpu.memory.capacity_bytes]
    return [value for cost in costs for value in (cost.time_s, *cost.energy_j.values())] + totals


@pytest.mark.parametrize(
    ("part", "parameter"),
    [("chip", item.name) for item in dataclasses.fields(GpuChip) if item.name != "name"]
    + [("memory", item.name) for item in dataclasses.fields(Memory) if item.name != "name"],
)
def test_no_knob_is_dead(part, parameter):
    device = getattr(load_gpu("a100"), part)
    value = getattr(device, parameter)
    moved = value * 2 if isinstance(value, int) else value * 0.9 if value else 0.5
    changed = replace(load_gpu("a100"), **{part: replace(device, **{parameter: moved})})
    assert outputs(changed) != outputs(load_gpu("a100"))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("units", 0),
        ("clock_hz", -1.0),
        ("matmul_efficiency", 1.2),
        ("matmul_efficiency", 0.0),
        ("store_overlap", -0.1),
        ("launch_s", math.nan),
        ("price_usd", -5.0),
    ],
)
def test_bad_values_are_refused(parameter, value):
    with pytest.raises(ParameterError, match=parameter):
        replace(H100.chip, **{parameter: value})


def test_limit_below_idle_is_refused():
    with pytest.raises(ParameterError, match="must exceed idle_w"):
        Gpu(chip=replace(H100.chip, tdp_w=60.0), memory=H100.memory)


def test_unknown_gpu_is_one_clear_sentence():
    with pytest.raises(ParameterError, match="did you mean 'h100'"):
        load_gpu("h10")


def test_every_number_has_a_range_that_holds_it():
    for file in ("gpus", "vector", "network"):
        for row in table(file).rows:
            assert row.low is None or row.low <= row.value, row.where
            assert row.high is None or row.value <= row.high, row.where


def test_memory_rows_make_a_memory():
    assert load_memory("h100", "gpus").capacity_bytes == pytest.approx(80e9)

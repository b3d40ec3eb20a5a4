import dataclasses
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electronic.devices import GpuChip, load_memory, table
from electronic.gpu import Gpu, attention_share, gpu_names, load_gpu
from experiments.validation.kernels import kernel_time_s
from simulator.amounts import Matrices
from simulator.errors import ParameterError
from simulator.interfaces import Bound, ComputeUnit
from simulator.node import Memory
from simulator.operators import Elementwise, Held, MatMul, Phase

H100 = load_gpu("h100")
POWER_ROUNDING = 1e-9


def product(m, k, n, batch=1, element_bytes=2, **more):
    return MatMul(
        **{
            "name": "p",
            "phase": Phase.FORWARD,
            "held": Held.B,
            "batch": batch,
            "m": m,
            "k": k,
            "n": n,
            "element_bytes": element_bytes,
            **more,
        }
    )


def stream(moved, flops=1.0):
    return Elementwise(
        name="e",
        phase=Phase.FORWARD,
        flops=flops,
        read_bytes=moved,
        written_bytes=0.0,
    )


SIZES = st.integers(1, 9000)
ALIGNED = st.integers(1, 1000).map(lambda size: 8 * size)
PRODUCTS = st.builds(product, m=SIZES, k=SIZES, n=SIZES, batch=st.integers(1, 64))
TIDY = st.builds(product, m=ALIGNED, k=ALIGNED, n=ALIGNED, batch=st.integers(1, 64))
GPUS = st.sampled_from([load_gpu(name) for name in gpu_names()])


def test_all_named_gpus_load_and_are_compute_units():
    assert set(gpu_names()) >= {
        "a100",
        "h100",
        "h200",
        "b200",
        "gb200",
        "v100",
        "mi300x",
        "tpu-v4",
        "tpu-v5p",
    }
    for name in gpu_names():
        gpu = load_gpu(name)
        assert isinstance(gpu, ComputeUnit)
        assert gpu.accepts(product(1, 1, 1))
        assert gpu.accepts(stream(1.0))


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        *(("a100", 312), ("h100", 989), ("h200", 989), ("b200", 2250), ("gb200", 2500), ("v100", 125.3)),
        *(
            ("mi300x", 1307),
            ("h20", 148),
            ("tpu-v4", 275),
            ("tpu-v5e", 197),
            ("tpu-v5p", 459),
            ("tpu-v6e", 918),
            ("tpu-v7", 2307),
            ("mi325x", 1307),
            ("mi355x", 2517),
            ("gaudi2", 432),
            ("gaudi3", 1835),
            ("trainium1", 190),
            ("trainium2", 667),
            ("l40s", 362),
            ("rtx-4090", 165.2),
        ),
    ],
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


def test_a_running_chip_draws_more_than_idle_where_the_limit_leaves_it():
    """Eight sequences at once on H100s draw 410 to 540 W (ML.ENERGY), though memory's bytes take 60 to 70."""
    streamed = H100.cost(stream(1e10))
    assert streamed.energy_j["gpu active"] == pytest.approx(H100.chip.active_w * streamed.time_s)
    drawn_j = streamed.energy_j["compute"] + streamed.energy_j["hbm"]
    assert 400.0 < H100.power_w(drawn_j, streamed.time_s) < 550.0
    large = H100.cost(product(16384, 16384, 16384))
    assert large.energy_j["gpu active"] < 0.02 * large.energy_j["compute"]
    assert H100.power_w(large.energy_j["compute"], large.time_s) <= H100.chip.tdp_w * (1 + POWER_ROUNDING)
    fused = H100.cost(stream(0.0, 1e9))
    assert fused.energy_j["gpu active"] == fused.time_s == 0.0


@pytest.mark.parametrize("change", [{"bandwidth_bytes_per_s": 33.5e12}, {"energy_j_per_byte": 2.8e-10}])
@pytest.mark.parametrize("flops", [0.0, 1e6, 1e12])
def test_memory_beyond_the_power_limit_is_slowed_to_it(change, flops):
    """Ten times the rate, or the energy of a byte: look-ups that compute nothing have no clock to lower."""
    gpu = replace(H100, memory=replace(H100.memory, **change))
    cost = gpu.cost(stream(1e10, flops))
    assert cost.energy_j["hbm"] == gpu.memory.energy_j(1e10)
    assert sum(cost.energy_j.values()) / cost.time_s <= gpu.dynamic_w * (1 + POWER_ROUNDING)


@pytest.mark.parametrize(
    ("m", "n", "k", "tera"),
    [
        (2048, 2048, 2048, 727),
        (4096, 4096, 4096, 1085),
        (8192, 8192, 8192, 1223),
        (16384, 16384, 16384, 1081),
        (6144, 12288, 12288, 1149),
    ],
)
def test_fp8_on_an_mi300x_has_the_rate_of_azure(m, n, k, tera):
    """Azure AI-benchmarking-guide, ND_MI300X_v5_results.md; rates there differ from size to size by 12 %."""
    rate_flop_per_s = 2.0 * m * n * k / kernel_time_s("mi300x", "matmul", m, n, k, 1, "fp8")
    assert rate_flop_per_s == pytest.approx(tera * 1e12, rel=0.12)


@pytest.mark.parametrize("name", ["a100", "a100-pcie", "h100", "h200", "b200", "gb200", "mi300x"])
def test_a_large_product_draws_nearly_the_limit(name):
    gpu = load_gpu(name)
    cost = gpu.cost(product(128 * gpu.chip.units * 8, 16384, 256 * 32))
    total_w = sum(cost.energy_j.values()) / cost.time_s + gpu.static_w + gpu.memory.static_w
    assert total_w > 0.9 * gpu.chip.tdp_w


@settings(max_examples=60)
@given(gpu=GPUS, work=TIDY, more=ALIGNED, which=st.sampled_from(["m", "k", "n", "batch"]))
def test_more_work_is_never_faster_nor_cheaper(gpu, work, more, which):
    small = gpu.cost(work)
    large = gpu.cost(replace(work, **{which: getattr(work, which) + more}))
    assert large.time_s >= small.time_s * (1 - POWER_ROUNDING)
    assert sum(large.energy_j.values()) > sum(small.energy_j.values())


def rate(gpu, work):
    return work.flops / gpu.cost(work).time_s


def test_a_lower_power_limit_lowers_the_clock_by_the_cube_root():
    work = product(8192, 8192, 8192)
    chip = replace(H100.chip, store_overlap=1.0)
    full, half = (
        rate(replace(H100, chip=replace(chip, tdp_w=H100.static_w + H100.memory.static_w + limit)), work)
        for limit in (600.0, 300.0)
    )
    assert full / half == pytest.approx(2 ** (1 / 3), rel=0.03)


def test_a_limit_that_is_not_reached_changes_no_energy():
    """An operation takes its energy whatever limit its owner sets, also one on vector lanes."""
    sold, lower, free = (
        replace(H100, chip=replace(H100.chip, tdp_w=share * H100.chip.tdp_w)).cost(stream(1e9, 1e9))
        for share in (1.0, 0.9, 100.0)
    )
    assert sold.time_s == lower.time_s == free.time_s
    assert sold.energy_j["compute"] == lower.energy_j["compute"] == free.energy_j["compute"] > 0.0


def test_a_half_empty_last_wave_costs_less_when_power_is_short():
    pcie = load_gpu("a100-pcie")
    free = replace(pcie, chip=replace(pcie.chip, tdp_w=5000.0))
    full, ragged = product(4096, 4096, 108 * 256), product(4096, 4096, 1024)
    assert rate(pcie, ragged) / rate(pcie, full) > 1.05 * rate(free, ragged) / rate(free, full)


def test_narrow_operands_run_faster_and_wide_ones_slower():
    halves, bytes_, words = (rate(H100, product(8192, 8192, 8192, element_bytes=size)) for size in (2, 1, 4))
    assert 1.6 * halves < bytes_ < 2.1 * halves
    assert words < 0.6 * halves


def test_odd_rows_are_slower_and_odd_heads_much_slower():
    assert rate(H100, product(8192, 4096, 50257)) < 0.7 * rate(H100, product(8192, 4096, 50304))
    # Rows of tokens do not lie along memory.
    assert rate(H100, product(8190, 4096, 50304)) > 0.9 * rate(H100, product(8192, 4096, 50304))
    tidy, odd = (product(2048, size, 2048, batch=64, held=Held.NONE) for size in (112, 108))
    assert rate(H100, odd) < 0.1 * rate(H100, tidy)


def test_weight_gradients_are_summed_in_single_precision():
    plain, a100 = product(8192, 1024, 8192), load_gpu("a100")
    assert rate(a100, replace(plain, result_bytes=8.0)) < 0.95 * rate(a100, plain)
    assert replace(plain, result_bytes=8.0).operand_bytes == plain.operand_bytes + 6 * 8192**2


def test_scales_of_32_elements_need_units_of_their_own():
    """NVIDIA Transformer Engine, GEMM profiling tutorial, B300: 7.16 ms a layer in MXFP8, 6.81 in fp8."""
    block = product(15872, 4096, 16384, element_bytes=1 + 1 / 32, result_bytes=2.0)
    b300 = replace(load_gpu("b300"), alone=True)
    ratio = b300.cost(block).time_s / b300.cost(replace(block, element_bytes=1)).time_s
    assert 1.0 < ratio <= 7.161 / 6.812 + 1e-3
    with pytest.raises(ParameterError, match=r"h100 has no units for scales of 32 elements .* try precision"):
        H100.cost(block)


def attention(heads, on_chip, phase=Phase.FORWARD, sequence=4096, head=128):
    inner, columns = (head, sequence) if on_chip is Matrices.C else (sequence, head)
    return product(
        sequence, inner, columns, batch=heads, held=Held.NONE, on_chip=on_chip, phase=phase, element_bytes=2
    )


def test_fused_attention_runs_at_its_own_share_and_starts_once():
    unlimited = replace(H100, alone=True, chip=replace(H100.chip, tdp_w=math.inf))
    scores, values = attention(256, Matrices.C), attention(256, Matrices.A)
    share = rate(unlimited, values) / H100.peak_flop_per_s
    assert share == pytest.approx(H100.chip.attention_efficiency, rel=0.1)
    assert rate(H100, values) < rate(unlimited, values)  # where it lasts, the power limit bites
    begun_s = unlimited.cost(scores).time_s - unlimited.cost(values).time_s
    blocks = 256 * 4096 / 128 / H100.chip.units + 1.0  # of queries on a unit, the last one late
    fills_s = blocks * H100.chip.attention_fill_s
    assert begun_s == pytest.approx(H100.chip.launch_s + fills_s * unlimited.penalties.lag, rel=1e-6)
    assert rate(H100, attention(256, Matrices.A, Phase.GRAD_INPUT)) < rate(H100, values)
    assert rate(H100, attention(2, Matrices.A)) < 0.7 * rate(H100, values)


def test_a_window_of_keys_costs_the_beginning_and_end_of_each_block():
    """cuDNN 9.22 on GB200: 8,192 tokens, 256 heads of 64, windows of 128 keys (reference/kernels.csv)."""
    note = "batch=2, seq_len=8192, head_num=128, qk_head_dim=64, v_head_dim=64, window=128, clock=full"
    forward, backward = (kernel_time_s("gb200", op, 0, 0, 0, note=note) for op in ("sdp_fwd", "sdp_bwd"))
    assert forward == pytest.approx(0.414e-3, rel=0.1)
    assert backward == pytest.approx(0.911e-3, rel=0.1)
    all_keys = kernel_time_s("gb200", "sdp_fwd", 0, 0, 0, note=note.replace("window=128, ", ""))
    assert 5 * forward < all_keys < 15 * forward  # of 4,096 keys a query on average, 127 are left


def test_an_operator_that_moves_nothing_is_part_of_another_kernel():
    inside = stream(0.0, flops=1e9)
    assert H100.cost(inside).time_s == 0.0
    assert H100.cost(inside).energy_j["compute"] > 0.0


def test_the_host_issues_operators_and_experts_are_calls_of_their_own():
    chip = H100.chip
    assert H100.cost(stream(8.0)).host_s == chip.host_operator_s
    many = H100.cost(replace(stream(8.0), issued=10))
    assert many.host_s == pytest.approx(10 * chip.host_operator_s)
    assert many.time_s - H100.cost(stream(8.0)).time_s == pytest.approx(9 * chip.launch_s)
    experts = product(8, 64, 64, batch=32)
    assert H100.cost(experts).host_s == pytest.approx(chip.host_operator_s + 31 * chip.host_launch_s)
    assert H100.cost(attention(256, Matrices.A)).host_s == 0.0


def test_the_slowest_of_many_chips_sets_the_pace():
    work = product(8192, 8192, 8192)
    times = [replace(H100, slowest_of=count).cost(work).time_s for count in (1, 8, 1024)]
    assert times == sorted(times)
    assert times[0] == H100.cost(work).time_s
    spread = H100.chip.clock_spread
    # Tables of normal order statistics: the largest of 8 is expected at 1.42, of 1024 at 3.24.
    assert times[1] / times[0] == pytest.approx(1 + 1.42 * spread, abs=0.002)
    assert times[2] / times[0] == pytest.approx(1 + 3.24 * spread, abs=0.002)


def test_products_within_a_step_are_slower_than_alone():
    a100, work = load_gpu("a100"), product(512, 8192, 8192)
    alone = replace(a100, alone=True).cost(work).time_s - a100.chip.launch_s
    within = a100.cost(work).time_s - a100.chip.launch_s
    assert alone < within <= alone / a100.chip.in_situ_efficiency * (1 + 1e-9)


def test_one_tile_more_than_units_costs_more():
    units = H100.chip.units
    full = H100.cost(product(128 * units, 4096, 256)).time_s
    spilled = H100.cost(product(128 * (units + 1), 4096, 256)).time_s
    assert spilled > 1.1 * full


def test_inner_dimension_is_padded():
    step = H100.chip.k_step
    rows = 128 * (H100.chip.units + 1)
    odd, padded = (H100.cost(product(rows, depth, 256)).time_s for depth in (60 * step + 8, 61 * step))
    assert odd == pytest.approx(padded, rel=0.01)


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


@pytest.mark.parametrize(
    ("name", "measured", "tolerance"),
    [("b200", 879 / 1330, 0.13), ("h20", 126.1 / 129.1, 0.1)],
)
def test_softmax_weighs_the_more_the_shorter_heads_and_the_faster_products(name, measured, tolerance):
    """Rates of heads of 64 over those of 128, no mask: FlashAttention, pull request 2605 (version 4 on B200,
    16,384 tokens, which computes a part of the exponentials as products) and issue 1310 (cuDNN on H20, 2,048
    tokens)."""
    chip = load_gpu(name).chip
    forward, backward = (
        [attention_share(chip, d, forward=way) for d in (64, 128, 256)] for way in (True, False)
    )
    assert forward[0] / forward[1] == pytest.approx(measured, rel=tolerance)
    assert (forward[1], backward[1]) == pytest.approx(
        (chip.attention_efficiency, chip.attention_backward_efficiency)
    )
    assert forward[0] / forward[1] < backward[0] / backward[1] < 1.0 == forward[2] / forward[1]


def test_arrays_as_deep_as_heads_take_whole_ones():
    """A head of 64 fills a quarter of an array of 256 x 256 (Google Cloud TPU documentation, v6e)."""
    tpu = load_gpu("tpu-v6e")
    times = [tpu.cost(attention(256, Matrices.A, head=head)).time_s for head in (64, 128, 256, 257)]
    assert times[0] == pytest.approx(times[2], rel=0.01)
    assert times[1] == pytest.approx(times[2], rel=0.01)
    assert times[3] > 1.5 * times[2]


def test_kernels_of_one_operator_are_started_and_called_one_by_one():
    chip = H100.chip
    one, many = stream(8e6), replace(stream(8e6), kernels=10)
    assert H100.cost(many).time_s - H100.cost(one).time_s == pytest.approx(10 * chip.launch_s)
    assert H100.cost(many).host_s - H100.cost(one).host_s == pytest.approx(10 * chip.host_launch_s)


def test_streams_run_at_memory_speed():
    moved = 4e9
    kept = H100.memory.efficiency * H100.memory.turnaround_efficiency
    expected = H100.chip.launch_s + moved / (H100.memory.bandwidth_bytes_per_s * kept)
    assert H100.cost(stream(moved)).time_s == pytest.approx(expected)
    both_ways = replace(stream(0.75 * moved), written_bytes=0.25 * moved)
    assert H100.cost(both_ways) == H100.cost(stream(moved))


def outputs(gpu):
    work = (
        product(8192, 8192, 8192),
        product(1000, 1000, 16, batch=7),
        product(16, 8192, 8192),
        product(512, 256, 512),
        product(1536, 1024, 1024),
        product(8192, 256, 8192),
        product(128 * 109, 2072, 256),
        product(1000, 1001, 1000, batch=7, held=Held.NONE),
        product(1000, 1001, 1000),
        product(8, 64, 64, batch=32),
        product(4096, 4096, 4096, element_bytes=1),
        *([product(4096, 4096, 4096, element_bytes=0.5625)] if gpu.chip.nibble_flops_per_cycle else []),
        *([product(4096, 4096, 4096, element_bytes=1.03125)] if gpu.chip.block_efficiency else []),
        product(4096, 4096, 4096, element_bytes=4),
        replace(product(4096, 4096, 4096), sparse=True),
        attention(64, Matrices.C),
        attention(64, Matrices.C, head=64),
        attention(64, Matrices.A, Phase.GRAD_INPUT),
        attention(64, Matrices.C, Phase.GRAD_INPUT),
        stream(1e9, 1e6),
        stream(1.0, 1e12),
    )
    gpu = replace(gpu, slowest_of=8)
    costs = [gpu.cost(item) for item in work]
    totals = [gpu.static_w, gpu.price_usd, gpu.area_m2, gpu.memory.static_w, gpu.memory.capacity_bytes]
    totals.append(gpu.penalties.collective_share)  # the engine's
    return [value for cost in costs for value in (cost.time_s, cost.host_s, *cost.energy_j.values())] + totals


@pytest.mark.parametrize(
    ("part", "parameter"),
    [("chip", item.name) for item in dataclasses.fields(GpuChip) if item.name != "name"]
    + [("memory", item.name) for item in dataclasses.fields(Memory) if item.name != "name"],
)
def test_no_knob_is_dead(part, parameter):
    gpu = load_gpu("b300" if parameter in {"nibble_flops_per_cycle", "block_efficiency"} else "a100")
    device = getattr(gpu, part)
    value = getattr(device, parameter)
    moved = value * 2 if isinstance(value, int) else value * 0.9 if value else 0.5
    changed = replace(gpu, **{part: replace(device, **{parameter: moved})})
    assert outputs(changed) != outputs(gpu)


def test_four_bits_need_units_of_their_own():
    """NVIDIA: 9 PFLOP/s dense FP4 on HGX B200, 15 on GB300; Hopper has no such units."""
    nibbles = replace(product(8192, 8192, 8192), element_bytes=0.5625)
    for name, peak in (("b200", 9e15), ("gb200", 10e15), ("gb300", 15e15)):
        assert load_gpu(name).peak_flop_per_s_of(0.5625) == pytest.approx(peak, rel=0.01)
    b200 = load_gpu("b200")
    assert b200.cost(nibbles).time_s < 0.7 * b200.cost(replace(nibbles, element_bytes=1)).time_s
    assert sum(b200.cost(nibbles).energy_j.values()) < sum(
        b200.cost(replace(nibbles, element_bytes=1)).energy_j.values()
    )
    with pytest.raises(
        ParameterError, match=r"h100 has no units for operands of 4 bits .* try precision=fp8"
    ):
        load_gpu("h100").cost(nibbles)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("units", 0),
        ("clock_hz", -1.0),
        ("matmul_efficiency", 1.2),
        ("matmul_efficiency", 0.0),
        ("store_overlap", -0.1),
        ("launch_s", math.nan),
        ("host_launch_s", -1.0),
        ("misaligned_efficiency", 0.0),
        ("attention_efficiency", 1.1),
        ("energy_j_per_flop", 0.0),
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


def test_experts_fill_the_chip_four_at_a_time_unless_a_kernel_holds_it():
    """A library call for each expert, on four streams (Transformer Engine, GroupedLinear)."""
    free = {"launch_s": 0.0, "host_launch_s": 0.0, "fill_s": 0.0, "tdp_w": 1e9}
    gpu = replace(H100, memory=replace(H100.memory, bandwidth_bytes_per_s=1e18))
    holding, shared = (
        replace(gpu, chip=replace(gpu.chip, units=100, store_overlap=0.0, experts_together=count, **free))
        for count in (1, 4)
    )
    work = {n: product(64, 8192, 64 * 30, batch=n) for n in (1, 4, 8, 16)}
    alone, times = ({n: one.cost(each).time_s for n, each in work.items()} for one in (holding, shared))
    assert alone[16] == pytest.approx(16 * alone[1])
    assert times[8] == pytest.approx(2 * times[4])
    assert times[16] == pytest.approx(4 * times[4])
    one_kernel = shared.cost(product(64, 8192, 64 * 30, batch=16, held=Held.NONE)).time_s
    assert one_kernel < times[16] < alone[16]


@pytest.mark.parametrize(
    ("experts", "rows", "columns", "inner", "measured_us"),
    [(32, 1024, 4096, 7168, 1866.9), (20, 1232, 5120, 1536, 437.9), (40, 2460, 3072, 5120, 2825.9)],
)
def test_grouped_products_of_many_rows_are_met(experts, rows, columns, inner, measured_us):
    """SimuMax, b200_bf16_ceperm.json, forward; an A100, whose kernels share the chip, is met as well."""
    note = "stage=fwd, accumulate=False"
    time_s = kernel_time_s("b200", "group_matmul", rows, columns, inner, experts, note=note)
    assert time_s == pytest.approx(measured_us * 1e-6, rel=0.11)
    old_s = kernel_time_s("a100-pcie", "group_matmul", 616, 3072, 5120, 40, note=note)
    assert old_s == pytest.approx(3936.6e-6, rel=0.05)

import time

import pytest

from electronic.gpu import gpu_of, load_gpu
from experiments.validation.kernels import ELEMENTWISE, HOST_TIMED_S, kernel_time_s
from experiments.validation.kernels import outcome as outcome_of
from experiments.validation.rows import Record
from simulator.errors import ParameterError

SHAPE = "batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=128, v_head_dim=128"


def outcome(**changes):
    cells = {
        "gpu": "A100",
        "op": "matmul",
        "m": "8192",
        "n": "8192",
        "k": "8192",
        "batch": "1",
        "dtype": "bf16",
        "layout_or_note": "",
        "time_ms": "",
        "efficiency_vs_peak": "0.5",
        "source": "a page",
        "url": "https://example.org",
    }
    found = outcome_of(Record("row 1", cells | changes))
    return found


# LLMCompass (ISCA 2024) figure 5: fp16 products on an A100, milliseconds.
@pytest.mark.parametrize(
    ("m", "n", "milliseconds"),
    [
        (64, 12288, 0.19),
        (1024, 12288, 1.199),
        (32768, 12288, 35.44),
        (8192, 8192, 3.961),
        (8192, 4096, 1.021),
    ],
)
def test_products_take_what_llmcompass_measured(m, n, milliseconds):
    predicted = kernel_time_s("A100", "matmul", m, n, n, 1, "fp16", host_timed=True)
    assert predicted == pytest.approx(milliseconds * 1e-3, rel=0.08)


def test_narrow_operands_write_two_bytes_as_within_a_step_unless_the_row_says_otherwise():
    """Azure's H100 takes 802816 x 192 x 768 at 664 TFLOP/s; with one byte a result it would take 914 here."""
    m, n, k = 802_816, 192, 768
    times = [
        kernel_time_s("h100", "matmul", m, n, k, 1, "fp8", note)
        for note in ("", "out_dtype=bf16", "out_dtype=fp8", "out_dtype=fp32")
    ]
    assert times[0] == times[1]
    assert times[2] < times[0] < times[3]
    assert 2.0 * m * n * k / times[0] == pytest.approx(664e12, rel=0.2)


@pytest.mark.parametrize(
    ("label", "name"),
    [("a100_pcie", "a100-pcie"), ("A100", "a100"), ("b200_bf16_ceperm", "b200"), ("H100-80GB SXM", "h100")],
)
def test_labels_name_gpus(label, name):
    assert gpu_of(label) == name


def test_attention_takes_longer_backward_and_grows_with_the_square_of_the_sequence():
    forward = kernel_time_s("h100", "sdp_fwd", 0, 0, 0, note=SHAPE)
    backward = kernel_time_s("h100", "sdp_bwd", 0, 0, 0, note=SHAPE)
    assert 2.0 < backward / forward < 4.0
    longer = kernel_time_s("h100", "sdp_fwd", 65536, 32, 128)
    assert longer / kernel_time_s("h100", "sdp_fwd", 32768, 32, 128) == pytest.approx(4.0, rel=0.1)


def test_shares_of_peak_become_times():
    peak = load_gpu("a100").peak_flop_per_s
    assert outcome().measured == pytest.approx(2 * 8192**3 / (0.5 * peak))
    assert outcome(time_ms="2.5").measured == pytest.approx(2.5e-3)
    fused = outcome(op="sdp_bwd", layout_or_note=SHAPE).measured
    assert fused == pytest.approx(5 * 32 * 4096**2 * 256 / (0.5 * peak))


def test_a_clock_on_the_host_sees_the_wait():
    assert outcome(time_ms="3").predicted - outcome().predicted == pytest.approx(HOST_TIMED_S)


@pytest.mark.parametrize("op", list(ELEMENTWISE))
def test_elementwise_kernels_run_at_memory_speed(op):
    gpu = load_gpu("h100")
    kind = ELEMENTWISE[op]
    moved = (kind.reads + kind.writes) * 2 * 65536 * 8192
    expected = gpu.memory.mixed_time_s(moved) + gpu.chip.launch_s
    assert kernel_time_s("h100", op, 65536, 8192, 1) == pytest.approx(expected, rel=0.01)


def test_weight_gradient_of_experts_swaps_what_is_summed():
    note = "stage=bwd_grad_w, accumulate=True, main_grad_dtype=fp32"
    thin = kernel_time_s("a100", "group_matmul", 64, 4096, 4096, 8, note=note)
    assert thin > 2 * kernel_time_s("a100", "group_matmul", 64, 4096, 4096, 8, note="stage=fwd")


def test_a_product_is_priced_in_far_less_than_a_millisecond():
    start = time.perf_counter()
    for size in range(200):
        kernel_time_s("a100", "matmul", 4096 + size, 4096, 4096)
    assert (time.perf_counter() - start) / 200 < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [({"gpu_name": "x100"}, "no GPU"), ({"op": "matmull"}, "did you mean"), ({"dtype": "bf8"}, "no type")],
)
def test_unknown_names_are_one_clear_sentence(change, message):
    plain = {"gpu_name": "a100", "op": "matmul", "m": 8, "n": 8, "k": 8}
    with pytest.raises(ParameterError, match=message):
        kernel_time_s(**(plain | change))

"""Power of GPU boards that generate text."""

import dataclasses

import numpy as np
import pytest

from electronic.gpu import load_gpu
from experiments.validation import kernels
from experiments.validation.driver import REFERENCE, validate
from experiments.validation.rows import read_records

RECORDS = read_records(REFERENCE / "boards.csv", needs=kernels.BOARD_NEEDS)


def errors(monkeypatch, name, active_w):
    """Errors of a GPU's rows by their number in the table, with some power of a running chip."""
    gpu = load_gpu(name)
    gpu = dataclasses.replace(gpu, chip=dataclasses.replace(gpu.chip, active_w=active_w))
    monkeypatch.setattr(kernels, "load_gpu", lambda _: gpu)
    found = {
        number: kernels.board_outcome(one)
        for number, one in enumerate(RECORDS)
        if one.text("gpu").lower() == name
    }
    return {number: one.relative_error for number, one in found.items() if one.skipped is None}


@pytest.mark.parametrize("name", ["h100", "b200"])
def test_power_of_a_running_chip_is_what_even_rows_ask_for_and_odd_ones_are_met(monkeypatch, name):
    fitted_w = load_gpu(name).chip.active_w

    def mean_error(active_w, odd):
        found = errors(monkeypatch, name, active_w)
        return np.mean([abs(error) for number, error in found.items() if number % 2 == odd])

    tried = [fitted_w + 10.0 * step for step in range(-5, 6)]
    assert min(tried, key=lambda active_w: mean_error(active_w, 0)) == fitted_w
    assert mean_error(fitted_w, 1) < 0.07
    assert np.mean(list(errors(monkeypatch, name, 0.0).values())) < -0.35  # what was charged before


def test_measured_boards_are_met():
    found = validate("boards")
    assert len(found.predicted) > 100
    assert found.overall().mean_abs_error < 0.07
    assert abs(found.overall().bias) < 0.02
    assert found.overall().constant_mean_abs_error > 0.2  # the limit of the board
    assert all("waited for its host" in one.skipped for one in found.skipped)


@pytest.mark.parametrize("tokens", [0, 2 * kernels.PROMPT_TOKENS])
def test_prompts_matter_little(monkeypatch, tokens):
    before = validate("boards").overall().mean_abs_error
    monkeypatch.setattr(kernels, "PROMPT_TOKENS", tokens)
    assert abs(validate("boards").overall().mean_abs_error - before) < 0.005


def test_a_row_of_ones_own_says_what_is_wrong(tmp_path):
    head = "gpu,gpus,layers,hidden,heads,kv_heads,head_dim,ffn_hidden,vocab,weight_bytes,sequences"
    head += ",tokens_per_s,power_w"

    def validated(gpu="H100", layers="32", rate="1069.6", power="486"):
        path = tmp_path / "boards.csv"
        path.write_text(f"{head}\n{gpu},1,{layers},4096,32,8,128,14336,128256,2,8,{rate},{power}\n")
        return validate("boards", data=path).outcomes[0]

    assert abs(validated().relative_error) < 0.15
    assert validated(rate="900").predicted < validated().predicted
    assert "no GPU is called" in validated(gpu="X1").skipped
    assert "no layers" in validated(layers="").skipped
    assert "nothing measured" in validated(power="").skipped
    assert "waited for its host" in validated(rate="100").skipped

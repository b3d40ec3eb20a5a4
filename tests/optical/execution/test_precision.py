"""Predicted against executed signal-to-noise ratio of the cores."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from optical.cores import CORES, load_core
from optical.execution import AnalogSpec
from optical.execution.numerics import AnalogNumerics
from optical.execution.precision import predicted
from optical.noise.chip import EncodingNoise, LaserNoise, Mismatch
from simulator.operands.statistics import OperandKind, operands_of, signal_to_noise_db
from simulator.operators import Phase


def executed_db(spec, operands, length, draws, rows=128, *, by_sample=False):
    """Return the mean noise over signal of some draws, in decibels of signal over noise."""
    noise = []
    for seed in range(draws):
        a, b = operands.draw(np.random.default_rng(seed), rows, length, rows)
        single = [torch.tensor(np.ascontiguousarray(x), dtype=torch.float32)[None] for x in (a, b)]
        found = AnalogNumerics(spec, exact_tiles=by_sample).matmul(*single, seed)[0].numpy()
        noise.append(10.0 ** (-signal_to_noise_db(a @ b, found) / 10.0))
    return -10.0 * math.log10(np.mean(noise))


THINNED = [
    *((name, OperandKind.GAUSSIAN) for name in CORES),
    *((name, OperandKind.UNIFORM) for name in ("homodyne", "residue", "pcm_crossbar", "mzi_mesh")),
    *((name, OperandKind.OUTLIERS) for name in ("crossbar", "block_float", "phase_residue", "mzi_mesh")),
    *((name, OperandKind.GRADIENTS) for name in ("ring_bank", "block_float", "mzi_mesh")),
]
"""Of all cores and kinds those that differ; `heliograph core precision` has them all."""


@pytest.mark.parametrize(("name", "kind"), THINNED)
def test_predicted_ratio_is_the_executed_one(name, kind):
    """Within the half decibel that the law is held to."""
    phase = Phase.GRAD_INPUT if kind is OperandKind.GRADIENTS else Phase.FORWARD
    spec, operands = load_core(name).analog(phase), operands_of(kind)
    draws = 4 if kind in {OperandKind.OUTLIERS, OperandKind.GRADIENTS} else 1
    length = 1024
    assert predicted(spec, operands, length).snr_db == pytest.approx(
        executed_db(spec, operands, length, draws), abs=0.5
    )


@pytest.mark.parametrize("by_sample", [True, False])
@pytest.mark.parametrize("length", [512, 1024])
def test_what_clipping_takes_off_all_samples_alike_is_a_gain(length, by_sample):
    """Of two and four samples one has the loud channel, and clips: a law without a gain is 2 dB too low."""
    spec, operands = load_core("homodyne").analog(Phase.FORWARD), operands_of(OperandKind.OUTLIERS)
    stated = predicted(spec, operands, length).snr_db
    assert stated == pytest.approx(executed_db(spec, operands, length, 6, by_sample=by_sample), abs=0.5)


@pytest.mark.parametrize("kind", [OperandKind.OUTLIERS, OperandKind.GRADIENTS])
def test_a_passive_tile_is_as_dim_as_its_loudest_channels_make_it(kind):
    """A has fewer rows than B columns, and is loaded, of more channels than are drawn; no converters."""
    found = load_core("mzi_mesh").analog(Phase.FORWARD)
    spec = dataclasses.replace(
        AnalogSpec.ideal(),
        analog_length=found.analog_length,
        tile=found.tile,
        load_variance=found.load_variance,
        chip=found.chip,
    )
    operands, length, rows, columns = operands_of(kind), 3072, 48, 96
    noise = []
    for seed in range(4):
        a, b = operands.draw(np.random.default_rng(seed), rows, length, columns)
        single = [torch.tensor(np.ascontiguousarray(x), dtype=torch.float32)[None] for x in (a, b)]
        delivered = AnalogNumerics(spec).matmul(*single, seed)[0].numpy()
        noise.append(10.0 ** (-signal_to_noise_db(a @ b, delivered) / 10.0))
    stated = predicted(spec, operands, length, rows=rows, columns=columns).snr_db
    assert stated == pytest.approx(-10.0 * math.log10(np.mean(noise)), abs=0.5)


@pytest.mark.parametrize("mismatch", list(Mismatch))
@pytest.mark.parametrize("name", ["crossbar", "homodyne", "ring_bank"])
def test_unlike_parts_and_shared_noise_are_predicted(name, mismatch):
    """A chip is one draw of its errors, of which a uniform operand's couplers see few: 0.8 dB for two."""
    core = load_core(name)
    shared = {"laser_noise": LaserNoise.COMMON, "encoding_noise": EncodingNoise.COMMON}
    chip = dataclasses.replace(core.chip, mismatch=mismatch, **shared)
    specs = [dataclasses.replace(core, chip=chip, chip_seed=seed).analog(Phase.FORWARD) for seed in (1, 2)]
    for kind in (OperandKind.UNIFORM, OperandKind.GAUSSIAN):
        operands = operands_of(kind)
        found = predicted(specs[0], operands, 512).snr_db
        executed = np.mean([10 ** (-0.1 * executed_db(spec, operands, 512, 1)) for spec in specs])
        assert found == pytest.approx(-10 * math.log10(executed), abs=0.8)


def test_exact_core_loses_nothing():
    spec = AnalogSpec.ideal()
    found = predicted(spec, operands_of(OperandKind.GAUSSIAN), 512)
    assert math.isinf(found.snr_db)
    assert not found.noise


def test_every_noise_lowers_the_ratio():
    spec, operands = load_core("crossbar").analog(Phase.FORWARD), operands_of(OperandKind.GAUSSIAN)
    present = predicted(spec, operands, 1024).snr_db
    for name in ("thermal", "shot", "rin", "encoding", "load"):
        field = f"{name}_variance"
        worse = dataclasses.replace(spec, **{field: 4.0 * getattr(spec, field) + 1e-3})
        assert predicted(worse, operands, 1024).snr_db < present
    assert predicted(dataclasses.replace(spec, adc_enob_bits=4.0), operands, 1024).snr_db < present
    assert predicted(dataclasses.replace(spec, dac_bits=4.0), operands, 1024).snr_db < present

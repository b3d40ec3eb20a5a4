"""What every photonic core must keep: one list of units, each built around one core."""

import dataclasses
import math

import pytest
import torch

from optical.accelerator import PhotonicUnit
from optical.cores import CORES, load_core
from optical.cores.core import Core
from optical.execution import AnalogSpec, Scale, loads_second
from optical.execution.numerics import AnalogNumerics
from simulator.errors import HeliographError
from simulator.node import Memory
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import get_at, numeric_leaves, replace_at

HBM = Memory(
    capacity_bytes=80e9, bandwidth_bytes_per_s=3e12, efficiency=0.9, energy_j_per_byte=31.2e-12, static_w=20.0
)


UNITS = [
    PhotonicUnit(core=core, cores=8 * core.cluster // math.gcd(8, core.cluster), memory=HBM, sram_bytes=2**21)
    for core in (load_core(name) for name in CORES)
]
NAMED = [pytest.param(name, id=name) for name in CORES]


def has_chip(core):
    """Return whether a core tells parts of a chip apart; one that holds digits as phases does not."""
    return hasattr(core, "chip") or hasattr(getattr(core, "core", None), "chip")


UNLIKE = [
    replace_at(
        replace_at(replace_at(unit, "chip.mismatch", "calibrated"), "chip.laser_noise", "common"),
        "chip.encoding_noise",
        "common",
    )
    if has_chip(unit.core)
    else unit
    for unit in UNITS
]
"""The same as chips whose parts differ and whose outputs share their lines."""
NODE_ONLY = {"memory.capacity_bytes", "memory.static_w", "memory.turnaround_efficiency"}
"""Numbers of the shared memory that the node or its vector lanes charge, not its matrix units."""
UNUSED = {
    "residue": {
        "core.core.temporal_accumulation",
        "core.core.summed",
        "core.core.adc_range_sigma",
        "core.core.adc.nominal_bits",
        "core.core.chip_seed",
    },
    "phase_residue": {"core.core.adc.nominal_bits", "core.core.segment_dac.nominal_bits"},
}
"""Numbers of a wrapped core that its number format settles: residues fix the length of a sum (the core's own
entry tries it), the ADC's range is a modulus, and only its effective bits tell how well one is read; phases
are set and read to the nearest step, so that again only effective bits tell how often it is the wrong one.
What a chip adds counts as noise that makes a remainder misread, whichever chip it is."""
KNOBS = [
    pytest.param(unit, path, id=f"{unit.core.name}-{path}")
    for unit in UNLIKE
    for path in numeric_leaves(unit)
    if path not in NODE_ONLY | UNUSED.get(unit.core.name, set())
]


def product(m, k, n, phase=Phase.FORWARD):
    return MatMul(name="product", layer="block", phase=phase, batch=1, m=m, k=k, n=n)


MANY = 1024
"""Times the cores at which even cores that are slow to load wait for memory."""
THICK = product(4100, 4100, 4100)
THIN = product(8, 8192, 8192)
each_unit = pytest.mark.parametrize("unit", UNITS, ids=[unit.core.name for unit in UNITS])
GAUSSIAN = [unit for unit in UNITS if unit.core.analog(Phase.FORWARD).residues is None]
"""Units whose samples err a little every time; those of residue numbers err seldom and by much."""
each_gaussian_unit = pytest.mark.parametrize("unit", GAUSSIAN, ids=[unit.core.name for unit in GAUSSIAN])


def error_variance(spec):
    """Variance of one sample for operands spread evenly over [-1, 1], relative to its signal.

    Of residue numbers, which err by misreading alone: how likely that is.
    """
    if spec.residues is not None:
        return spec.residues.wrong_sample
    n, square = spec.analog_length, 1.0 / 3.0
    noise = spec.thermal_variance + n * spec.fluctuation * square**2
    noise += 2 * n * square * (spec.shot_variance + spec.encoding_variance) + n * square * spec.load_variance
    if spec.chip is not None:
        noise += n * square**2 * (spec.chip.element_gain + spec.chip.output_gain)
        noise += n * square * spec.chip.repeated_variance + spec.chip.imbalance * n * 2 / 45
    return noise / (n * square**2)


def answers(unit):
    costs = [unit.cost(operator) for operator in (THICK, THIN)]
    costs.append(dataclasses.replace(unit, cores=MANY * unit.cores).cost(THIN))
    wear = unit.wear(THICK)
    numbers = [wear, unit.static_w, unit.area_m2, unit.price_usd, unit.peak_power_w]
    numbers += [number for cost in costs for number in (cost.time_s, *cost.energy_j.values())]
    records = [dataclasses.astuple(unit.core.analog(phase)) for phase in Phase]
    uncalibrated = replace_at(unit.core, "chip.mismatch", "raw") if has_chip(unit.core) else unit.core
    return numbers, [*records, dataclasses.astuple(uncalibrated.analog(Phase.FORWARD))]


@pytest.mark.parametrize("name", NAMED)
def test_a_core_answers_to_its_name(name):
    called = load_core(name).name
    assert called == name, (
        f"the entry '{name}' of CORES builds a core that is called '{called}'; give its field `name` the "
        "entry's name, or tables, messages and these tests take one for the other"
    )


@each_unit
def test_a_core_keeps_the_protocol(unit):
    assert isinstance(unit.core, Core)
    whole, light = unit.core.effective_bits, unit.core.budget.effective_bits
    assert whole <= light, (
        f"{unit.core.name}: {whole:.4g} effective bits with converters, {light:.4g} of the light alone; "
        "converters can only add noise: are theirs in effective_bits?"
    )
    assert (unit.core.reload.time_s > 0.0) == unit.core.holds_weights


@each_unit
def test_loading_takes_time_only_where_weights_are_held(unit):
    for operator in (THICK, THIN):
        work = unit.core.work(operator, unit.cores)
        assert (work.programming_s > 0.0) == (work.writes > 0.0) == unit.core.holds_weights
        assert unit.cost(operator).time_s >= work.time_s
        assert set(work.energy_j) < set(unit.cost(operator).energy_j)


@each_unit
@pytest.mark.parametrize("operator", [THICK, THIN], ids=["thick", "thin"])
def test_energy_parts_are_never_negative_and_name_the_memory(unit, operator):
    cost = unit.cost(operator)
    assert all(energy_j >= 0.0 for energy_j in cost.energy_j.values())
    assert cost.energy_j["hbm"] > 0.0
    assert cost.time_s > 0.0


@each_unit
def test_parts_add_up_to_the_whole(unit):
    assert math.fsum(unit.static_parts_w().values()) == pytest.approx(unit.static_w, rel=1e-12)
    assert math.fsum(unit.power_breakdown_w().values()) == pytest.approx(unit.peak_power_w, rel=1e-12)
    assert math.fsum(unit.area_breakdown_m2().values()) == pytest.approx(unit.area_m2, rel=1e-12)
    assert unit.static_w < unit.peak_power_w


@each_unit
def test_no_product_beats_the_peak(unit):
    for operator in (THICK, THIN):
        most = unit.cost(operator).time_s * unit.peak_macs_per_s
        assert operator.macs <= most * (1 + 1e-12), (
            f"{unit.core.name}: {operator.macs:.4g} multiply-accumulates in a time for {most:.4g} at peak; "
            "is a part of light_s, or a factor of peak_macs_per_s, missing?"
        )


@each_unit
@pytest.mark.parametrize("operator", [THICK, THIN], ids=["thick", "thin"])
def test_no_product_draws_more_than_the_peak_power(unit, operator):
    """Power is energy over time: a part in nJ, or one left out of the breakdown, shows here."""
    work = unit.core.work(operator, unit.cores)
    drawn_w = math.fsum(work.energy_j.values()) / unit.cost(operator).time_s + unit.static_w
    assert drawn_w <= unit.peak_power_w * (1 + 1e-9), (
        f"{unit.core.name}: a product draws {drawn_w:.3g} W, "
        f"power_breakdown_w adds up to {unit.peak_power_w:.3g} W; "
        f"work has, in J, {dict(work.energy_j)}; which part is in another unit, or missing in the breakdown?"
    )


LEAST_J_PER_MAC = 50e-21
"""Detected light alone, at its quantum limit: 50 zJ a multiplication (Hamerly et al. 2019,
doi:10.1103/PhysRevX.9.021032, abstract)."""
MOST_J_PER_MAC = 1e-10
"""Twenty times what float32 took in electronics of 45 nm, 4.6 pJ (Horowitz, ISSCC 2014, fig. 1.1.9)."""


@each_unit
def test_energy_per_multiplication_is_of_a_physical_order(unit):
    """No core beats what Hamerly et al. allow light alone, none takes twenty times old electronics."""
    per_mac_j = {part: j / THICK.macs for part, j in unit.core.work(THICK, unit.cores).energy_j.items()}
    total_j = math.fsum(per_mac_j.values())
    assert LEAST_J_PER_MAC < total_j < MOST_J_PER_MAC, (
        f"{unit.core.name}: {total_j:.2g} J per multiply-accumulate, "
        f"beyond {LEAST_J_PER_MAC:g} to {MOST_J_PER_MAC:g}; "
        f"energies are in J, not in nJ or pJ; by part: {per_mac_j}"
    )


@each_unit
def test_twice_the_work_takes_twice_as_long(unit):
    double = dataclasses.replace(THICK, batch=2)
    once, twice = unit.cost(THICK), unit.cost(double)
    assert twice.time_s == pytest.approx(2 * once.time_s, rel=0.01)
    for part, energy_j in once.energy_j.items():
        assert twice.energy_j[part] == pytest.approx(2 * energy_j, rel=1e-12)


@each_unit
@pytest.mark.parametrize("phase", list(Phase))
def test_brighter_laser_costs_energy_and_lowers_error(unit, phase):
    bright = replace_at(unit, "core.laser_power_w", 2 * get_at(unit, "core.laser_power_w"))
    name, watts = unit.core.name, (bright.static_w, unit.static_w)
    assert watts[0] > watts[1], (
        f"{name}: twice the laser power leaves static power at {watts[1]:.4g} W ({watts[0]:.4g} W brighter); "
        "is the laser, over its wall-plug efficiency, in static_parts_w?"
    )
    assert bright.cost(THICK).time_s == unit.cost(THICK).time_s, f"{name}: laser power moves the time"
    errors = [error_variance(one.core.analog(phase)) for one in (bright, unit)]
    assert errors[0] < errors[1], (
        f"{name}, {phase.value}: twice the laser power takes the error's variance from {errors[1]:.4g} to "
        f"{errors[0]:.4g}; shot and thermal noise of analog() must fall with the light of the budget"
    )


@each_unit
@pytest.mark.parametrize("phase", list(Phase))
def test_faster_symbols_cut_time_and_raise_error(unit, phase):
    fast = replace_at(unit, "core.symbol_rate_hz", 2 * unit.core.symbol_rate_hz)
    slow_work, fast_work = (one.core.work(THICK, one.cores) for one in (unit, fast))
    name, light_s = unit.core.name, (fast_work.light_s, slow_work.light_s)
    assert light_s[0] == pytest.approx(light_s[1] / 2, rel=1e-12), (
        f"{name}: twice the symbol rate takes light_s from {light_s[1]:.4g} to {light_s[0]:.4g} s, not "
        "to half; light_s of work() is symbols over symbol_rate_hz"
    )
    assert fast_work.programming_s == slow_work.programming_s, f"{name}: the symbol rate moves programming_s"
    assert fast.cost(THICK).time_s < unit.cost(THICK).time_s, f"{name}: faster symbols save no time"
    errors = [error_variance(one.core.analog(phase)) for one in (fast, unit)]
    assert errors[0] > errors[1], (
        f"{name}, {phase.value}: twice the symbol rate takes the error's variance from {errors[1]:.4g} to "
        f"{errors[0]:.4g}; noise grows with the bandwidth that the budget takes"
    )


@pytest.mark.parametrize(("unit", "path"), KNOBS)
def test_every_number_moves_some_answer(unit, path):
    value = numeric_leaves(unit)[path]
    nudged = [value * 2, value // 2] if isinstance(value, int) else [value * 1.5, value * 0.7]
    allowed = 0
    for other in nudged:
        try:
            changed = replace_at(unit, path, other)
        except HeliographError:
            continue
        allowed += 1
        assert answers(changed) != answers(unit), (
            f"{unit.core.name}: {path}: {value} -> {other} changes nothing: not time, energy, area, price, "
            "power, wear or the record of execution; use it there, or leave it out"
        )
    assert allowed, f"{path}: neither {nudged[0]} nor {nudged[1]} is accepted"


@each_unit
def test_noiseless_limit_is_the_exact_product(unit):
    limit = dataclasses.replace(
        unit.core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        adc_range_sigma=math.inf,
        thermal_variance=0.0,
        shot_variance=0.0,
        rin_variance=0.0,
        encoding_variance=0.0,
        load_variance=0.0,
        product_gain=1.0,
        residues=None,
        chip=None,
    )
    a, b = operands(rows=7, length=150)
    for spec in (limit, AnalogSpec.ideal()):
        torch.testing.assert_close(AnalogNumerics(spec).matmul(a, b, key=1), a @ b, rtol=1e-5, atol=1e-5)


@each_gaussian_unit
def test_executed_noise_has_the_stated_variance(unit):
    """One analog sample, converters aside: the scaled error has variance 1 within 5 standard errors."""
    spec = dataclasses.replace(
        unit.core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        adc_range_sigma=math.inf,
        load_variance=0.0,
        product_gain=1.0,
        chip=None,
    )
    a, b = operands(rows=96, length=spec.analog_length)
    noise = AnalogNumerics(spec).matmul(a, b, key=3).double() - a.double() @ b.double()
    a2, b2 = a.double().square(), b.double().square()
    operands_square = a2.sum(-1, keepdim=True) + b2.sum(-2, keepdim=True)
    variance = spec.thermal_variance + (spec.shot_variance + spec.encoding_variance) * operands_square
    variance = variance + spec.rin_variance * (a2 @ b2)
    standardised = noise / variance.sqrt()
    count = standardised.numel()
    assert float(standardised.mean()) == pytest.approx(0.0, abs=5 / math.sqrt(count))
    assert float(standardised.var()) == pytest.approx(1.0, abs=5 * math.sqrt(2 / count))


UNLIKE_GAUSSIAN = [unit for unit in UNLIKE if unit.core.analog(Phase.FORWARD).residues is None]
each_unlike_unit = pytest.mark.parametrize(
    "unit", UNLIKE_GAUSSIAN, ids=[unit.core.name for unit in UNLIKE_GAUSSIAN]
)


@each_unlike_unit
def test_signal_over_noise_in_torch_is_that_of_the_record(unit):
    """All a core adds to a sample, over 40 chips and uses: its mean square within 5 standard errors.

    Converters and the known gain aside; the standard error is that over the chips, whose outputs err
    together.
    """
    spec = dataclasses.replace(
        unit.core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        adc_range_sigma=math.inf,
        product_gain=1.0,
        scale=Scale.ROW,
    )
    assert spec.chip is not None
    assert spec.common is not None
    assert spec.encoding is not None
    a, b = operands(rows=24, length=spec.analog_length)
    stated = error_variance(spec) * spec.analog_length / 9.0
    powers = []
    for seed in range(40):
        other = dataclasses.replace(spec, chip=dataclasses.replace(spec.chip, seed=seed))
        powers.append(float((AnalogNumerics(other).matmul(a, b, key=seed) - a @ b).square().mean()))
    found = torch.tensor(powers, dtype=torch.float64)
    exact = exact_variance(spec, a, b)
    assert float(found.mean()) == pytest.approx(exact, abs=5 * float(found.std()) / math.sqrt(40))
    assert exact == pytest.approx(stated, rel=0.25)


def exact_variance(spec, a, b):
    """Mean over the outputs of the variance that a record states for just these operands."""
    a2, b2 = a.double().square(), b.double().square()
    second = loads_second(a.shape[1], b.shape[2])
    streamed = (a2.sum(-1, keepdim=True) if second else b2.sum(-2, keepdim=True)).expand(
        -1, a.shape[1], b.shape[2]
    )
    both, squares = a2.sum(-1, keepdim=True) + b2.sum(-2, keepdim=True), a2 @ b2
    signal = (a.double() @ b.double()).square()
    shared = signal if spec.common.length > 1 else squares
    noise = spec.thermal_variance + (spec.shot_variance + spec.encoding_variance) * both
    noise = noise + spec.rin_variance * squares + spec.common.variance * shared
    noise = noise + (spec.load_variance + spec.chip.repeated_variance) * streamed
    noise = noise + spec.chip.element_gain * squares + spec.chip.output_gain * signal
    uneven = a2.sum(-1, keepdim=True) - b2.sum(-2, keepdim=True)
    noise = noise + spec.chip.imbalance * uneven.square() / 4
    return float(noise.mean())


@each_gaussian_unit
def test_brighter_laser_lowers_executed_error(unit):
    a, b = operands(rows=64, length=4 * unit.core.analog(Phase.FORWARD).analog_length)
    exact = a @ b

    def error(power):
        lit = replace_at(unit, "core.laser_power_w", power * get_at(unit, "core.laser_power_w"))
        return float((lit.numerics(Phase.FORWARD).matmul(a, b, key=2) - exact).square().mean())

    assert error(8.0) < error(1.0) < error(0.125)


@each_unit
def test_same_key_gives_the_same_noise(unit):
    a, b = operands(rows=16, length=100)
    numerics = unit.numerics(Phase.GRAD_WEIGHT)
    assert torch.equal(numerics.matmul(a, b, key=4), numerics.matmul(a, b, key=4))
    assert not torch.equal(numerics.matmul(a, b, key=4), numerics.matmul(a, b, key=5))


def operands(rows, length):
    """Operands whose rows and columns reach full scale, so that they are encoded as they are."""
    generator = torch.Generator().manual_seed(11)
    a = 2 * torch.rand(1, rows, length, generator=generator) - 1
    b = 2 * torch.rand(1, length, rows, generator=generator) - 1
    a[..., 0] = 1.0
    b[:, 0] = -1.0
    return a, b

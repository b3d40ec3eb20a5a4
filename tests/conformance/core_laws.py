"""Laws that every photonic core keeps, each a function of a unit built around it; a broken one says why.

``check_core(MyCore)`` runs all of them on a class from anywhere, `test_cores` on every core with a name.
"""

import dataclasses
import math

import pytest
import torch

from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import CORES, AnalogCore, Core, load_core
from optical.cores.registry import wrong_answers
from optical.devices import Domain, Modulator, Per, area_m2, full_load_w, static_w
from optical.execution import AnalogSpec, Scale
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import loads_second
from optical.noise.link_budget import spread_norm
from simulator.errors import HeliographError
from simulator.interfaces import Bound
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import get_at, numeric_leaves, replace_at
from tests.builders import HBM, product

NODE_ONLY = {"memory.capacity_bytes", "memory.static_w", "memory.turnaround_efficiency"}
"""Numbers of the shared memory that the node or its vector lanes charge, not its matrix units."""
BY_TIME = {"calibration", "regulators", "overhead"}
"""Parts of the energy that go with the time of a product, or have a share of one that does."""
MANY = 1024
"""Times the cores at which even cores that are slow to load wait for memory."""


def unit_of(core):
    """Return a unit of whole clusters of a core, eight cores if those are, and a buffer that feeds them."""
    cores = 8 * core.cluster // math.gcd(8, core.cluster)
    sram_bytes = max(2.0**21, proportionate_buffer_bytes(core, cores))
    return PhotonicUnit(core=core, cores=cores, memory=HBM, sram_bytes=sram_bytes)


def cores_that(fit):
    """Return the names of the cores that fit; one that cannot be built fails in its own tests, not here."""
    found = []
    for name in CORES:
        try:
            core = load_core(name)
        except Exception:
            continue
        if fit(core):
            found.append(name)
    return found


def has_chip(core):
    """Return whether a core tells parts of a chip apart; one that holds digits as phases does not."""
    while not hasattr(core, "chip") and hasattr(core, "core"):
        core = core.core
    return hasattr(core, "chip")


def unlike(unit):
    """Return the same as a chip whose parts differ, whose outputs share their lines, of dies with spares.

    A scanner's field holds 20 clusters, of a wafer that holds many; one in four clusters has a defect, and
    packaging is dear, so that both the field and the spares that a die may have bind.
    """
    cluster_m2, links = unit.cluster_footprint_m2, unit.electronics.link
    changes = {
        "electronics.link.field_area_m2": 20.5 * cluster_m2 + links.area_m2,
        "electronics.link.package_usd": 10.0 * unit.price_usd * unit.core.cluster / unit.cores,
        "electronics.wafer.diameter_m": 1e3 * math.sqrt(cluster_m2),
        "electronics.die_yield.defects_per_cm2": -math.log(0.75) / (1e4 * cluster_m2),
    }
    for path, value in changes.items():
        unit = replace_at(unit, path, value)
    if not has_chip(unit.core):
        return unit
    for path, value in (("mismatch", "calibrated"), ("laser_noise", "common"), ("encoding_noise", "common")):
        unit = replace_at(unit, f"chip.{path}", value)
    return unit


def error_variance(spec):
    """Variance of one sample for operands spread evenly over [-1, 1], relative to its signal.

    Of residue numbers, which err by misreading alone: how likely that is.
    """
    if spec.residues is not None:
        return spec.residues.wrong_sample
    n, square = spec.analog_length, 1.0 / 3.0
    shared = spec.common.variance if spec.common is not None else 0.0
    noise = spec.thermal_variance + n * (spec.rin_variance + shared) * square**2
    of_element = 1.0 if spec.tile is None else square
    noise += 2 * n * square * (spec.shot_variance + spec.encoding_variance)
    noise += n * square * spec.load_variance * of_element + spec.norm_variance * spread_norm(n, square)
    if spec.chip is not None:
        noise += n * square**2 * (spec.chip.element_gain + spec.chip.output_gain)
        noise += n * square * spec.chip.repeated_variance * of_element + spec.chip.imbalance * n * 2 / 45
    return noise / (n * square**2)


def answers(unit):
    costs = [unit.cost(operator) for operator in (THICK, THIN)]
    many = unit.resized(MANY * unit.cores)
    costs.append(many.cost(THIN))  # waits for memory, and takes several dies
    links = "electronics.link.bandwidth_bytes_per_s"
    narrow = many.electronics.link.bandwidth_bytes_per_s / MANY**3
    costs.append(replace_at(many, links, narrow).cost(THIN))  # for the links between them
    costs.append(dataclasses.replace(unit, sram_bytes=unit.sram_bytes / MANY).cost(THICK))  # for its buffer
    wear = unit.wear(THICK)
    numbers = [wear, unit.static_w, unit.area_m2, unit.price_usd, unit.peak_power_w]
    numbers += [many.area_m2, many.price_usd]
    numbers += [number for cost in costs for number in (cost.time_s, *cost.energy_j.values())]
    records = [dataclasses.astuple(unit.core.analog(phase)) for phase in Phase]
    uncalibrated = replace_at(unit.core, "chip.mismatch", "raw") if has_chip(unit.core) else unit.core
    return numbers, [*records, dataclasses.astuple(uncalibrated.analog(Phase.FORWARD))]


def norm_square(spec, loaded):
    """Mean over the outputs of the square of the largest singular value of their tiles, a sample high."""
    parts = loaded.double()[0].split(spec.tile.outputs if spec.tile else loaded.shape[2], 1)
    return sum(part.shape[1] * torch.linalg.matrix_norm(part, 2) ** 2 for part in parts) / loaded.shape[2]


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
    loaded = b if second else a.mT
    of_element = 1.0 if spec.tile is None else loaded.double().square().mean()  # one tile
    noise = noise + (spec.load_variance + spec.chip.repeated_variance) * of_element * streamed
    noise = noise + spec.norm_variance * norm_square(spec, loaded)
    noise = noise + spec.chip.element_gain * squares + spec.chip.output_gain * signal
    uneven = a2.sum(-1, keepdim=True) - b2.sum(-2, keepdim=True)
    noise = noise + spec.chip.imbalance * uneven.square() / 4
    return float(noise.mean())


def operands(rows, length):
    """Operands whose rows and columns reach full scale, so that they are encoded as they are."""
    generator = torch.Generator().manual_seed(11)
    a = 2 * torch.rand(1, rows, length, generator=generator) - 1
    b = 2 * torch.rand(1, length, rows, generator=generator) - 1
    a[..., 0] = 1.0
    b[:, 0] = -1.0
    return a, b


def noise_alone_and_together(spec):
    """Signal over noise of a full-scale sample if intensity noise of its products adds up as powers, and as
    fields; thermal and shot noise as powers."""
    length = spec.analog_length
    still = spec.thermal_variance + 2 * length * spec.shot_variance + spec.norm_variance * length**2
    light = spec.rin_variance + (spec.common.variance if spec.common is not None else 0.0)
    return tuple(length**2 / (still + count * light) for count in (length, length**2))


THICK = product(4100, 4100, 4100)
THIN = product(8, 8192, 8192)


def keeps_the_seam(unit):
    """It answers `Core`; converters only add noise; loading takes time exactly where weights are held."""
    assert isinstance(unit.core, Core)
    assert (wrong := next(wrong_answers(unit.core), "")) == "", f"{unit.core.name}: {wrong}"
    whole, light = unit.core.effective_bits, unit.core.budget.effective_bits
    assert whole <= light, (
        f"{unit.core.name}: {whole:.4g} effective bits with converters, {light:.4g} of the light alone; "
        "converters can only add noise: are theirs in effective_bits?"
    )
    assert (unit.core.reload.time_s > 0.0) == unit.core.holds_weights


def loads_only_where_weights_are_held(unit):
    """Programming and writes go together with held weights; no cost is less than its work."""
    for operator in (THICK, THIN):
        work = unit.core.work(operator, unit.cores)
        assert (work.programming_s > 0.0) == (work.writes > 0.0) == unit.core.holds_weights
        assert unit.cost(operator).time_s >= work.time_s
        assert set(work.energy_j) < set(unit.cost(operator).energy_j)


def energy_parts_are_never_negative(unit):
    """No part gives energy back, and the memory is charged."""
    for operator in (THICK, THIN):
        cost = unit.cost(operator)
        assert all(energy_j >= 0.0 for energy_j in cost.energy_j.values())
        assert cost.energy_j["hbm"] > 0.0
        assert cost.time_s > 0.0


def parts_add_up_to_the_whole(unit):
    """Power and area by component sum to the totals, and work comes on top of waiting."""
    assert math.fsum(unit.static_parts_w().values()) == pytest.approx(unit.static_w, rel=1e-12)
    assert math.fsum(unit.power_breakdown_w().values()) == pytest.approx(unit.peak_power_w, rel=1e-12)
    assert math.fsum(unit.area_breakdown_m2().values()) == pytest.approx(unit.area_m2, rel=1e-12)
    assert unit.static_w < unit.peak_power_w


def no_product_beats_the_peak(unit):
    """No product is done faster than the peak rate allows."""
    for operator in (THICK, THIN):
        most = unit.cost(operator).time_s * unit.peak_macs_per_s
        assert operator.macs <= most * (1 + 1e-12), (
            f"{unit.core.name}: {operator.macs:.4g} multiply-accumulates in a time for {most:.4g} at peak; "
            "is a part of light_s, or a factor of peak_macs_per_s, missing?"
        )


def a_full_product_reaches_the_peak(unit):
    """Tiles that are hardly ever filled in part take no more light than at the peak rate, within 5 %."""
    least_s = FULL.macs / unit.cores / unit.core.peak_macs_per_s
    light_s = unit.core.work(FULL, unit.cores).light_s
    assert light_s <= 1.05 * least_s, (
        f"{unit.core.name}: full tiles take {light_s:.4g} s of light and {least_s:.4g} s at peak_macs_per_s; "
        "is a factor in peak_macs_per_s, or in cycles, too many?"
    )


def operands_are_fetched_once_a_symbol(unit):
    """Where nothing is held, each symbol is a word from the buffer."""
    core = unit.core
    if core.holds_weights or not isinstance(core, AnalogCore):
        return
    for operator in (THICK, THIN):
        found = core.events(operator, unit.cores)
        words = float(found.operand_bytes / found.symbols / core.word_bytes)
        assert 0.0 < words <= 1.0 + 1e-12, (
            f"{core.name}: events fetch {words:.3g} words for a symbol; they are symbols times word_bytes"
        )


LEAST_W = 1e-10
"""Power that no device stands on: detectors in the dark draw a hundred times as much."""


def what_stands_draws_watts(unit):
    """A use in joules that is told as a power is far below that of any device."""
    for part in unit.core.parts():
        if part.per is Per.CORE and part.each:
            assert part.each >= LEAST_W, (
                f"{unit.core.name}: part '{part.name}' stands on {part.each:.3g} W each; is that the energy "
                "of a use, in J? then say of what: per=Per.SAMPLE, Per.SYMBOL"
            )


def no_product_draws_more_than_the_peak_power(unit):
    """Power is energy over time: a part in nJ, or one left out of the breakdown, shows here."""
    for operator in (THICK, THIN):
        work = unit.core.work(operator, unit.cores)
        drawn_w = math.fsum(work.energy_j.values()) / unit.cost(operator).time_s + unit.static_w
        assert drawn_w <= unit.peak_power_w * (1 + 1e-9), (
            f"{unit.core.name}: a product draws {drawn_w:.3g} W, "
            f"power_breakdown_w adds up to {unit.peak_power_w:.3g} W; "
            f"work has, in J, {dict(work.energy_j)}; which part is in another unit, or missing there?"
        )


LEAST_J_PER_MAC = 50e-21
"""Detected light alone, at its quantum limit: 50 zJ a multiplication (Hamerly et al. 2019,
doi:10.1103/PhysRevX.9.021032, abstract)."""
MOST_J_PER_MAC = 1e-10
"""Twenty times what float32 took in electronics of 45 nm, 4.6 pJ (Horowitz, ISSCC 2014, fig. 1.1.9)."""


def energy_per_multiplication_is_of_a_physical_order(unit):
    """No core beats what Hamerly et al. allow light alone, none takes twenty times old electronics."""
    per_mac_j = {part: j / THICK.macs for part, j in unit.core.work(THICK, unit.cores).energy_j.items()}
    total_j = math.fsum(per_mac_j.values())
    assert LEAST_J_PER_MAC < total_j < MOST_J_PER_MAC, (
        f"{unit.core.name}: {total_j:.2g} J per multiply-accumulate, "
        f"beyond {LEAST_J_PER_MAC:g} to {MOST_J_PER_MAC:g}; "
        f"energies are in J, not in nJ or pJ; by part: {per_mac_j}"
    )


def twice_the_work_takes_twice_as_long(unit):
    """A batch of two costs twice the energy and, to 1 %, the time."""
    double = dataclasses.replace(THICK, batch=2)
    once, twice = unit.cost(THICK), unit.cost(double)
    assert twice.time_s == pytest.approx(2 * once.time_s, rel=0.01)
    for part, energy_j in once.energy_j.items():
        rel = 0.01 if part in BY_TIME else 1e-12
        assert twice.energy_j[part] == pytest.approx(2 * energy_j, rel=rel)


PLUG = "core.laser.wall_plug_efficiency"


def brighter_laser_costs_energy_and_lowers_error(unit):
    """More light: more static power, the same time, less error."""
    for phase in Phase:
        bright = replace_at(unit, "core.laser_power_w", 2 * get_at(unit, "core.laser_power_w"))
        name, watts = unit.core.name, (bright.static_w, unit.static_w)
        told = (
            f"{name}: twice the laser power leaves static power at {watts[1]:.4g} W "
            f"({watts[0]:.4g} W brighter); is the laser, over its wall-plug efficiency, in parts()?"
        )
        assert watts[0] > watts[1], told
        if PLUG in numeric_leaves(unit):  # detectors draw more with more light, too
            assert replace_at(unit, PLUG, 0.5 * get_at(unit, PLUG)).static_w > watts[1], told
        assert bright.cost(THICK).time_s == unit.cost(THICK).time_s, f"{name}: laser power moves the time"
        errors = [error_variance(one.core.analog(phase)) for one in (bright, unit)]
        assert errors[0] < errors[1], (
            f"{name}, {phase.value}: twice the laser power takes the error's variance from {errors[1]:.4g} "
            f"to {errors[0]:.4g}; shot and thermal noise of analog() must fall with the light of the budget"
        )


def faster_symbols_cut_time_and_raise_error(unit):
    """A symbol rate at which converters still keep up: less time of light, the same loading, more error."""
    faster = 1.5
    for phase in Phase:
        fast = replace_at(unit, "core.symbol_rate_hz", faster * unit.core.symbol_rate_hz)
        slow_work, fast_work = (one.core.work(THICK, one.cores) for one in (unit, fast))
        name, light_s = unit.core.name, (fast_work.light_s, slow_work.light_s)
        assert light_s[0] == pytest.approx(light_s[1] / faster, rel=1e-12), (
            f"{name}: {faster} times the symbol rate takes light_s from {light_s[1]:.4g} to {light_s[0]:.4g} "
            "s; light_s of work() is symbols over symbol_rate_hz"
        )
        assert fast_work.programming_s == slow_work.programming_s, (
            f"{name}: the symbol rate moves programming_s"
        )
        before, after = unit.cost(THICK), fast.cost(THICK)
        assert after.time_s < before.time_s or before.bound is Bound.BUFFER, (
            f"{name}: faster symbols save no time"
        )
        errors = [error_variance(one.core.analog(phase)) for one in (fast, unit)]
        assert errors[0] > errors[1], (
            f"{name}, {phase.value}: more symbols a second take the error's variance from {errors[1]:.4g} "
            f"to {errors[0]:.4g}; noise grows with the bandwidth that the budget takes"
        )


def not_there(unit):
    """Return the numbers of a chip's electronics that a core has no use for."""
    standing = [part.device for part in unit.core.parts() if part.per is Per.CORE]
    formats = any(part.per is Per.ELEMENT for part in unit.core.parts())
    absent = {
        "calibration_interval_s": not unit.core.calibration.time_s,
        "electronics.bias.power_w": not any(isinstance(one, Modulator) for one in standing),
        "electronics.scaler.element_j": formats,
        "electronics.serialiser.area_m2": not any(
            part.name == "dac" for part in unit.core.parts() if part.per is Per.CORE
        ),
    }
    return {path for path, without in absent.items() if without}


def every_number_moves_some_answer(unit, unused=frozenset()):
    """No dead knob: each number moves time, energy, area, price, power, wear or the record of execution."""
    unit = unlike(unit)
    present = answers(unit)
    for path, value in numeric_leaves(unit).items():
        if path in NODE_ONLY | unused | not_there(unit):
            continue
        nudged = [value * 2, value // 2] if isinstance(value, int) else [value * 1.5, value * 0.7]
        allowed = 0
        for other in nudged:
            try:
                changed = replace_at(unit, path, other)
            except HeliographError:
                continue
            allowed += 1
            assert answers(changed) != present, (
                f"{unit.core.name}: {path}: {value} -> {other} changes nothing: not time, energy, area, "
                "price, power, wear or the record of execution; use it there, or leave it out"
            )
        assert allowed, f"{path}: neither {nudged[0]} nor {nudged[1]} is accepted"


def noiseless_limit_is_the_exact_product(unit):
    """Without noise and with infinite bits the product is exact."""
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
        tile=None,
        chip=None,
        common=None,
    )
    a, b = operands(rows=7, length=150)
    for spec in (limit, AnalogSpec.ideal()):
        torch.testing.assert_close(AnalogNumerics(spec).matmul(a, b, key=1), a @ b, rtol=1e-5, atol=1e-5)


def executed_noise_has_the_stated_variance(unit):
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
        transforms=None,  # of a sample, as it reaches the light
    )
    a, b = operands(rows=96, length=spec.analog_length)
    noise = AnalogNumerics(spec).matmul(a, b, key=3).double() - a.double() @ b.double()
    a2, b2 = a.double().square(), b.double().square()
    operands_square = a2.sum(-1, keepdim=True) + b2.sum(-2, keepdim=True)
    variance = spec.thermal_variance + (spec.shot_variance + spec.encoding_variance) * operands_square
    variance = variance + spec.rin_variance * (a2 @ b2) + spec.norm_variance * norm_square(spec, b)
    standardised = noise / variance.sqrt()
    count = standardised.numel()
    assert float(standardised.mean()) == pytest.approx(0.0, abs=5 / math.sqrt(count))
    assert float(standardised.var()) == pytest.approx(1.0, abs=5 * math.sqrt(2 / count))


def signal_over_noise_in_torch_is_that_of_the_record(unit):
    """All a core adds to a sample, over 40 chips and uses: its mean square within 5 standard errors.

    Converters and the known gain aside; the standard error is that over the chips, whose outputs err
    together.
    """
    unit = unlike(unit)
    spec = dataclasses.replace(
        unit.core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        adc_range_sigma=math.inf,
        product_gain=1.0,
        scale=Scale.ROW,
        transforms=None,  # of a sample, as it reaches the light
    )
    assert None not in (spec.chip, spec.common, spec.encoding), f"{unit.core.name}: a chip leaves no trace"
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


def brighter_laser_lowers_executed_error(unit):
    """Executed products err less with more light."""
    a, b = operands(rows=64, length=4 * unit.core.analog(Phase.FORWARD).analog_length)
    exact = a @ b

    def error(power):
        lit = replace_at(unit, "core.laser_power_w", power * get_at(unit, "core.laser_power_w"))
        return float((lit.numerics(Phase.FORWARD).matmul(a, b, key=2) - exact).square().mean())

    assert error(8.0) < error(1.0) < error(0.125)


def same_key_gives_the_same_noise(unit):
    """Noise follows its key, and another key draws other noise."""
    a, b = operands(rows=16, length=100)
    numerics = unit.numerics(Phase.GRAD_WEIGHT)
    assert torch.equal(numerics.matmul(a, b, key=4), numerics.matmul(a, b, key=4))
    assert not torch.equal(numerics.matmul(a, b, key=4), numerics.matmul(a, b, key=5))


def noise_of_a_sample_is_that_of_the_link_budget(unit):
    """One light, one answer: what is executed errs as the budget that sets laser and loss says, exactly."""
    for phase in Phase:
        found = noise_alone_and_together(unit.core.analog(phase))
        stated = unit.core.budget.snr
        assert any(math.isclose(one, stated, rel_tol=1e-9) for one in found), (
            f"{unit.core.name}, {phase.value}: a full-scale sample of analog() is {found[0]:.6g} times its "
            f"noise ({found[1]:.6g} if its light fluctuates together), budget.snr is {stated:.6g}; take "
            "thermal, shot and rin variances from the budget, in units of one full-scale product squared"
        )


def equal_products_take_the_same_in_every_phase(unit):
    """No core keeps a whole model: gradients load and convert operands as the forward pass does."""
    for operator in (THICK, THIN):
        first = unit.core.work(operator, unit.cores)
        for phase in Phase:
            other = unit.core.work(dataclasses.replace(operator, phase=phase), unit.cores)
            for what in ("light_s", "programming_s", "operand_bytes", "writes"):
                assert getattr(other, what) == getattr(first, what), (
                    f"{unit.core.name}: {what} of the same product is {getattr(other, what):.6g} in "
                    f"{phase.value} and {getattr(first, what):.6g} forward; operands change every time"
                )
            assert dict(other.energy_j) == dict(first.energy_j), (
                f"{unit.core.name}: {phase.value} has other energies than forward for the same product"
            )


def no_core_is_for_free(unit):
    """Both dies have area, converters too."""
    photonic, electronic = (area_m2(unit.core.parts(), domain) for domain in Domain)
    for kind, parts in (("photonic", photonic), ("electronic", electronic)):
        assert math.fsum(parts.values()) > 0.0, (
            f"{unit.core.name}: the {kind} area of parts() adds up to 0 ({parts}); price follows from area, "
            "so that these parts would cost nothing"
        )
        assert all(area_m2 >= 0.0 for area_m2 in parts.values()), f"{unit.core.name}: {parts}"
    drawn = full_load_w(unit.core.parts(), unit.core.full_load)
    for part in ("dac", "adc"):
        assert electronic.get(part, 0.0) > 0.0 or part not in drawn, (
            f"{unit.core.name}: the {part} draws {drawn.get(part)} W and takes no electronic area"
        )


FULL = MatMul(name="product", phase=Phase.FORWARD, batch=1, m=65536, k=8192, n=8192)
"""A product of so many tiles that hardly any of them is filled in part."""


def a_full_core_draws_what_full_load_says(unit):
    """Energy of a product that fills the arrays, over the time of its light, part by part to 2 %.

    Accelerators are sized by `full_load`: a part left out there is power for nothing. Loads of
    weights and what prepares them are no part of it, for inputs do not stream meanwhile; nor are transforms
    of operands, once for a product, while elements are sent again and again.
    """
    work, stated = unit.core.work(FULL, unit.cores), full_load_w(unit.core.parts(), unit.core.full_load)
    loading = {"reload", "programming", "decomposition"} if unit.core.holds_weights else set()
    loading.add("operand transform")
    assert set(work.energy_j) - loading == set(stated), (
        f"{unit.core.name}: work() has the parts {sorted(work.energy_j)}, full load has "
        f"{sorted(stated)}; both need every part that draws while inputs stream"
    )
    for part, stated_w in stated.items():
        drawn_w = work.energy_j[part] / (work.light_s * unit.cores)
        assert math.isclose(drawn_w, stated_w, rel_tol=0.02), (
            f"{unit.core.name}: the {part} of a core takes {drawn_w:.4g} W in a product that fills it, and "
            f"{stated_w:.4g} W at full load; which of the two counts too many or too few?"
        )


def a_full_core_fetches_what_it_states(unit):
    """Words of a product that fills the arrays, over its symbols, partial sums included; to 2 %.

    What feeds the converters, and the ports of the buffer, are sized by `operand_bytes_per_symbol`.
    """
    core, work = unit.core, unit.core.work(FULL, unit.cores)
    fetched = work.operand_bytes / (work.light_s * core.symbol_rate_hz * unit.cores)
    assert math.isclose(fetched, core.operand_bytes_per_symbol, rel_tol=0.02), (
        f"{core.name}: a core fetches {fetched:.4g} bytes a symbol in a product that fills it, and "
        f"operand_bytes_per_symbol is {core.operand_bytes_per_symbol:.4g}; which of the two leaves some out?"
    )


MOST_W_PER_M2 = 790e4
"""Heat that microchannels took off a silicon chip: 790 W/cm2 (Tuckerman and Pease, IEEE Electron Device
Letters 2 (1981) 126, abstract)."""


def a_chip_can_be_cooled(unit):
    """No more power of parts on a die than microchannels take away: one in mW instead of W shows here."""
    beside = ("regulators", "overhead")
    on_die_w = math.fsum(power_w for part, power_w in unit.power_breakdown_w().items() if part not in beside)
    density_w_per_m2 = on_die_w / unit.area_m2
    assert density_w_per_m2 < MOST_W_PER_M2, (
        f"{unit.core.name}: {density_w_per_m2 * 1e-4:.4g} W/cm2 on its dies, and the best cooling takes "
        f"{MOST_W_PER_M2 * 1e-4:g}; static parts, in W: {static_w(unit.core.parts())}; dynamic: "
        f"{full_load_w(unit.core.parts(), unit.core.full_load)}; is one in mW, or an area in um2?"
    )


SPOILS = (
    "laser_power_w",
    "laser.rin_db_per_hz",
    "laser.coupling_loss_db",
    "modulator.insertion_loss_db",
    "waveguide.loss_db_per_m",
    "detector.responsivity_a_per_w",
    "detector.dark_current_a",
    "tia.noise_a_per_sqrt_hz",
    "dac.enob_bits",
    "adc.enob_bits",
)
"""Numbers that every textbook has in the error of a sample."""


def what_spoils_a_sample_reaches_the_record(unit):
    """One road to accuracy too: that a number moves time or energy does not excuse it from the noise."""
    leaves = numeric_leaves(unit)
    for path in (path for path in leaves if path.endswith(tuple(f".{end}" for end in SPOILS))):
        changed = replace_at(unit, path, 0.8 * leaves[path])
        assert changed.core.analog(Phase.FORWARD) != unit.core.analog(Phase.FORWARD), (
            f"{unit.core.name}: {path}: {leaves[path]:.4g} -> {0.8 * leaves[path]:.4g} leaves analog() as it "
            "is; take it from the budget and the converters, not from a number of its own"
        )


GAUSSIAN_LAWS = (
    executed_noise_has_the_stated_variance,
    signal_over_noise_in_torch_is_that_of_the_record,
    brighter_laser_lowers_executed_error,
    noise_of_a_sample_is_that_of_the_link_budget,
)
"""Laws of cores whose samples err a little every time; those of residue numbers err seldom and by much."""
LAWS = (
    keeps_the_seam,
    loads_only_where_weights_are_held,
    energy_parts_are_never_negative,
    parts_add_up_to_the_whole,
    no_product_beats_the_peak,
    a_full_product_reaches_the_peak,
    operands_are_fetched_once_a_symbol,
    what_stands_draws_watts,
    no_product_draws_more_than_the_peak_power,
    energy_per_multiplication_is_of_a_physical_order,
    twice_the_work_takes_twice_as_long,
    brighter_laser_costs_energy_and_lowers_error,
    faster_symbols_cut_time_and_raise_error,
    every_number_moves_some_answer,
    noiseless_limit_is_the_exact_product,
    executed_noise_has_the_stated_variance,
    signal_over_noise_in_torch_is_that_of_the_record,
    brighter_laser_lowers_executed_error,
    same_key_gives_the_same_noise,
    noise_of_a_sample_is_that_of_the_link_budget,
    equal_products_take_the_same_in_every_phase,
    no_core_is_for_free,
    a_full_core_draws_what_full_load_says,
    a_full_core_fetches_what_it_states,
    a_chip_can_be_cooled,
    what_spoils_a_sample_reaches_the_record,
)
"""Every law; each takes a unit."""


def laws_of(unit):
    """Return the laws that a unit's core must keep."""
    counts = unit.core.analog(Phase.FORWARD).residues is not None
    return tuple(law for law in LAWS if not (counts and law in GAUSSIAN_LAWS))


def check_core(core_class, *, unused=frozenset()):
    """Check all laws on a class of cores, from this repository or another.

    Parameters
    ----------
    core_class : type
        Class with ``default()``, as `optical.cores.register_core` takes it.
    unused : set of str
        Paths of numbers that the core takes over and has no use for, with good reason.

    Raises
    ------
    AssertionError
        If a law is broken; its message names the core and what to mend.
    """
    unit = unit_of(core_class.default())
    for law in laws_of(unit):
        if law is every_number_moves_some_answer:
            law(unit, unused)
        else:
            law(unit)

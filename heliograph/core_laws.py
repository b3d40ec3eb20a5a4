"""Laws that every photonic core must keep, and `faults_of`, which checks all of them.

A law is a function that takes a `PhotonicUnit` built around the core and yields a sentence for each fault,
with advice. Laws of numbers also take the paths of numbers that the core inherits but does not use.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from electronic.gpu import load_gpu
from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import AnalogCore, Core
from optical.cores.registry import wrong_answers
from optical.devices import Comb, Domain, Laser, Modulator, Per, area_m2, full_load_w, static_w
from optical.devices.devices import Soa
from optical.execution import AnalogSpec, Scale
from optical.execution.spec import loads_second
from optical.noise.link_budget import spread_norm
from simulator.errors import HeliographError, in_one_sentence
from simulator.interfaces import Bound
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import get_at, numeric_leaves, path_of, replace_at

if TYPE_CHECKING:
    from torch import Tensor

GPU = "h100"
"""GPU whose memory the unit has."""
NODE_ONLY = frozenset({"memory.capacity_bytes", "memory.static_w", "memory.turnaround_efficiency"})
"""Numbers of the shared memory that the node or its vector lanes use, but no matrix unit."""
BY_TIME = frozenset({"calibration", "regulators", "overhead"})
"""Parts of the energy in proportion to the time of a product, or that include such a part."""
MANY = 1024
"""Factor on the number of cores; its third power narrows a rate so far that cores wait. Dimensionless."""
NARROWED = (
    "memory.bandwidth_bytes_per_s",
    "electronics.link.bandwidth_bytes_per_s",
    "electronics.ports.rate_hz",
)
"""Rates that are narrowed, one at a time."""
EXACT = 1e-9
"""Relative tolerance of sums that are equal but for rounding."""


def product(m: int, k: int, n: int) -> MatMul:
    """Return a forward product of given sides."""
    return MatMul(name="product", phase=Phase.FORWARD, batch=1, m=m, k=k, n=n)


THICK = product(4100, 4100, 4100)
"""Large product whose sides are no multiples of an array's."""
THIN = product(8, 8192, 8192)
"""Product of few rows, which waits for loads or memory."""
FULL = product(65536, 8192, 8192)
"""Product of so many tiles that hardly any is filled only in part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Breach of a law by a core."""

    law: str
    """Name of the law."""
    text: str
    """Fault, and advice."""

    def __str__(self) -> str:
        """Return both in one sentence."""
        return f"{self.law.replace('_', ' ')}: {self.text}"


def unit_of(core: Core) -> PhotonicUnit:
    """Return a unit of whole clusters, the fewest that make a multiple of eight cores, with its buffer."""
    cores = 8 * core.cluster // math.gcd(8, core.cluster)
    sram_bytes = max(2.0**21, proportionate_buffer_bytes(core, cores))
    return PhotonicUnit(core=core, cores=cores, memory=load_gpu(GPU).memory, sram_bytes=sram_bytes)


def has_chip(core: object) -> bool:
    """Return whether a core, or the core that it wraps, models the spread of a chip's parts."""
    while not hasattr(core, "chip") and hasattr(core, "core"):
        core = core.core
    return hasattr(core, "chip")


def with_imperfect_chip(unit: PhotonicUnit) -> PhotonicUnit:
    """Return the unit as a chip whose parts differ, whose outputs share noise, and whose dies have spares.

    A scanner's field holds 20 clusters and a wafer many fields; one in four clusters has a defect, and
    packaging is expensive. So both the field and the number of spares matter.
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
    for name, choice in (("mismatch", "calibrated"), ("laser_noise", "common"), ("encoding_noise", "common")):
        unit = replace_at(unit, f"chip.{name}", choice)
    return unit


def error_variance(spec: AnalogSpec) -> float:
    """Return the noise-to-signal ratio of one sample for operands uniform in [-1, 1].

    Of residue numbers, whose only error is to misread a sample, the probability of that.
    """
    if spec.residues is not None:
        return float(spec.residues.wrong_sample)
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


def answers(unit: PhotonicUnit) -> tuple[list[object], list[object]]:
    """Return all results of a unit (costs, power, area, price, wear), and its records of execution.

    The variants of the unit wait for memory, for the links between dies, and for the ports of the buffer,
    however long its weights take to load.
    """
    costs = [unit.cost(operator) for operator in (THICK, THIN)]
    many = unit.resized(MANY * unit.cores)
    for path in NARROWED:
        costs.append(replace_at(many, path, get_at(many, path) / MANY**3).cost(THIN))
    numbers: list[object] = [unit.wear(THICK), unit.static_w, unit.area_m2, unit.price_usd, unit.peak_power_w]
    numbers += [many.area_m2, many.price_usd]
    numbers += [number for cost in costs for number in (cost.time_s, *cost.energy_j.values())]
    records: list[object] = [dataclasses.astuple(unit.core.analog(phase)) for phase in Phase]
    uncalibrated = replace_at(unit.core, "chip.mismatch", "raw") if has_chip(unit.core) else unit.core
    return numbers, [*records, dataclasses.astuple(uncalibrated.analog(Phase.FORWARD))]


def keeps_the_seam(unit: PhotonicUnit) -> Iterator[str]:
    """Check that all members of `Core` exist, converters only add noise, and loading weights takes time."""
    if not isinstance(unit.core, Core):
        yield "it does not answer optical.cores.Core"
        return
    yield from wrong_answers(unit.core)
    whole, light = unit.core.effective_bits, unit.core.budget.effective_bits
    if whole > light:
        yield (
            f"{whole:.4g} effective bits with converters, {light:.4g} of the light alone; converters can "
            "only add noise: are theirs in effective_bits?"
        )
    if (unit.core.reload.time_s > 0.0) != unit.core.holds_weights:
        yield (
            f"reload takes {unit.core.reload.time_s:g} s and holds_weights is {unit.core.holds_weights}; "
            "loading takes time exactly where weights are held"
        )


def loads_only_where_weights_are_held(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a core programs and writes exactly if it holds weights, and no cost is below its work."""
    for operator in (THICK, THIN):
        work, cost = unit.core.work(operator, unit.cores), unit.cost(operator)
        if not (work.programming_s > 0.0) == (work.writes > 0.0) == unit.core.holds_weights:
            yield (
                f"holds_weights is {unit.core.holds_weights}, and a product takes {work.programming_s:.4g} s "
                f"of programming and {work.writes:.4g} writes; all three go together"
            )
        if cost.time_s < work.time_s:
            yield f"a product costs {cost.time_s:.4g} s, less than the {work.time_s:.4g} s of its work"
        if not set(work.energy_j) < set(cost.energy_j):
            lost = ", ".join(sorted(set(work.energy_j) - set(cost.energy_j)))
            yield f"its cost leaves out parts of the energy of work(): {lost}"


def energy_parts_are_never_negative(unit: PhotonicUnit) -> Iterator[str]:
    """Check that no part has a negative energy, and that the memory's energy is charged."""
    for operator in (THICK, THIN):
        cost = unit.cost(operator)
        for part, energy_j in cost.energy_j.items():
            if not energy_j >= 0.0:
                yield f"the {part} of a product takes {energy_j:.4g} J; no part gives energy back"
        if not cost.energy_j["hbm"] > 0.0:
            yield "a product takes nothing of the memory; are operand_bytes of work() missing?"
        if not cost.time_s > 0.0:
            yield f"a product takes {cost.time_s:.4g} s"


def parts_add_up_to_the_whole(unit: PhotonicUnit) -> Iterator[str]:
    """Check that power and area by component sum to the totals, and peak power exceeds static power."""
    for what, parts, whole in (
        ("static_parts_w", unit.static_parts_w(), unit.static_w),
        ("power_breakdown_w", unit.power_breakdown_w(), unit.peak_power_w),
        ("area_breakdown_m2", unit.area_breakdown_m2(), unit.area_m2),
    ):
        if not math.isclose(added := math.fsum(parts.values()), whole, rel_tol=EXACT):
            yield f"{what} adds up to {added:.6g}, and the whole is {whole:.6g}"
    if not unit.static_w < unit.peak_power_w:
        yield (
            f"it stands on {unit.static_w:.4g} W and works on {unit.peak_power_w:.4g} W; are uses per symbol "
            "or sample missing in parts()?"
        )


def no_product_beats_the_peak(unit: PhotonicUnit) -> Iterator[str]:
    """Check that no product is faster than the peak rate allows."""
    for operator in (THICK, THIN):
        most = unit.cost(operator).time_s * unit.peak_macs_per_s
        if operator.macs > most * (1 + EXACT):
            yield (
                f"{operator.macs:.4g} multiply-accumulates in a time for {most:.4g} at peak; is a part of "
                "light_s, or a factor of peak_macs_per_s, missing?"
            )


def a_full_product_reaches_the_peak(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a product of full tiles takes the time of light of the peak rate, within 5 %."""
    least_s = FULL.macs / unit.cores / unit.core.peak_macs_per_s
    light_s = unit.core.work(FULL, unit.cores).light_s
    if light_s > 1.05 * least_s:
        yield (
            f"full tiles take {light_s:.4g} s of light and {least_s:.4g} s at peak_macs_per_s; is a factor "
            "in peak_macs_per_s, or in cycles, too many?"
        )


def operands_are_fetched_once_a_symbol(unit: PhotonicUnit) -> Iterator[str]:
    """Check, if no operand is held, that each symbol takes at most one word from the buffer."""
    core = unit.core
    if core.holds_weights or not isinstance(core, AnalogCore):
        return
    for operator in (THICK, THIN):
        found = core.events(operator, unit.cores)
        words = float(found.operand_bytes / found.symbols / core.word_bytes)
        if not 0.0 < words <= 1.0 + EXACT:
            yield f"events fetch {words:.3g} words for a symbol; they are symbols times word_bytes"


LEAST_W = 1e-10
"""Least plausible static power of a device; detectors in the dark draw a hundred times as much."""


def what_stands_draws_watts(unit: PhotonicUnit) -> Iterator[str]:
    """Check that no static power is below `LEAST_W`, as an energy per use given as a power would be."""
    for part in unit.core.parts():
        if part.per is Per.CORE and part.each and part.each < LEAST_W:
            yield (
                f"part '{part.name}' stands on {part.each:.3g} W each; is that the energy of a use, in J? "
                "then say of what: per=Per.SAMPLE, Per.SYMBOL"
            )


def no_product_draws_more_than_the_peak_power(unit: PhotonicUnit) -> Iterator[str]:
    """Check that energy over time is at most peak power; a part in nJ, or left out, breaks this."""
    for operator in (THICK, THIN):
        work = unit.core.work(operator, unit.cores)
        drawn_w = math.fsum(work.energy_j.values()) / unit.cost(operator).time_s + unit.static_w
        if drawn_w > unit.peak_power_w * (1 + EXACT):
            yield (
                f"a product draws {drawn_w:.3g} W, power_breakdown_w adds up to {unit.peak_power_w:.3g} W; "
                f"work has, in J, {dict(work.energy_j)}; which part is in another unit, or missing there?"
            )


LEAST_J_PER_MAC = 50e-21
"""Detected light alone, at its quantum limit: 50 zJ a multiplication (Hamerly et al. 2019,
doi:10.1103/PhysRevX.9.021032, abstract)."""
MOST_J_PER_MAC = 1e-10
"""Twenty times the energy of float32 in 45 nm electronics, 4.6 pJ (Horowitz, ISSCC 2014, fig. 1.1.9)."""


def energy_per_multiplication_is_of_a_physical_order(unit: PhotonicUnit) -> Iterator[str]:
    """Check that the energy lies between the quantum limit of light and twenty times old electronics."""
    per_mac_j = {part: j / THICK.macs for part, j in unit.core.work(THICK, unit.cores).energy_j.items()}
    total_j = math.fsum(per_mac_j.values())
    if not LEAST_J_PER_MAC < total_j < MOST_J_PER_MAC:
        yield (
            f"{total_j:.2g} J per multiply-accumulate, beyond {LEAST_J_PER_MAC:g} to {MOST_J_PER_MAC:g}; "
            f"energies are in J, not in nJ or pJ; by part: {per_mac_j}"
        )


def twice_the_work_takes_twice_as_long(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a batch of two takes twice the energy and, within 1 %, twice the time."""
    once, twice = unit.cost(THICK), unit.cost(dataclasses.replace(THICK, batch=2))
    if not math.isclose(twice.time_s, 2 * once.time_s, rel_tol=0.01):
        yield f"a product takes {once.time_s:.6g} s, and a batch of two {twice.time_s:.6g} s"
    for part, energy_j in once.energy_j.items():
        both_j = twice.energy_j[part]
        if not math.isclose(both_j, 2 * energy_j, rel_tol=0.01 if part in BY_TIME else EXACT):
            yield f"the {part} of a product takes {energy_j:.6g} J, and of a batch of two {both_j:.6g} J"


def no_more_light_is_detected_than_is_emitted(unit: PhotonicUnit) -> Iterator[str]:
    """Check that light on all detectors is at most that of all sources plus the power of amplifiers.

    Notes
    -----
    Emitted light is the power of the lasers in parts() times their wall-plug efficiency and a comb's
    conversion efficiency; detected light is the number of receivers times the budget's light at full scale.
    """
    core = unit.core
    if not isinstance(core, AnalogCore):
        return
    parts = [part for part in core.parts() if part.per is Per.CORE and part.each]
    combs = [part.device.conversion_efficiency for part in core.parts() if isinstance(part.device, Comb)]
    lasers_w = math.fsum(
        part.count * (part.each or 0.0) * part.device.wall_plug_efficiency
        for part in parts
        if isinstance(part.device, Laser)
    )
    pumped_w = math.fsum(part.count * (part.each or 0.0) for part in parts if isinstance(part.device, Soa))
    emitted_w = lasers_w * max(combs, default=1.0) + pumped_w
    detected_w = core.receivers * core.link.pair_w
    if detected_w > emitted_w * (1 + EXACT):
        yield (
            f"{detected_w:.3g} W come to its {core.receivers:g} detectors, and its sources emit "
            f"{emitted_w:.3g} W; does `split` of the link say among how many the light is divided, and do "
            "parts() count every laser?"
        )


PLUG = "core.laser.wall_plug_efficiency"


def brighter_laser_costs_energy_and_lowers_error(unit: PhotonicUnit) -> Iterator[str]:
    """Check that more laser power means more static power, the same time, and less error."""
    bright = replace_at(unit, "core.laser_power_w", 2 * get_at(unit, "core.laser_power_w"))
    dear = bright.static_w > unit.static_w
    if dear and PLUG in numeric_leaves(unit):  # detectors draw more with more light, too
        dear = replace_at(unit, PLUG, 0.5 * get_at(unit, PLUG)).static_w > unit.static_w
    if not dear:
        yield (
            f"twice the laser power leaves static power at {unit.static_w:.4g} W ({bright.static_w:.4g} W "
            "brighter); is the laser, over its wall-plug efficiency, in parts()?"
        )
    if bright.cost(THICK).time_s != unit.cost(THICK).time_s:
        yield "laser power moves the time"
    for phase in Phase:
        after, before = (error_variance(one.core.analog(phase)) for one in (bright, unit))
        if not after < before:
            yield (
                f"{phase.value}: twice the laser power takes the error's variance from {before:.4g} to "
                f"{after:.4g}; shot and thermal noise of analog() must fall with the light of the budget"
            )


def faster_symbols_cut_time_and_raise_error(unit: PhotonicUnit) -> Iterator[str]:
    """Check that faster symbols, as far as converters follow, mean less time of light and more error."""
    rate_hz, faster = unit.core.symbol_rate_hz / 3.0, 1.5
    slow, fast = (replace_at(unit, "core.symbol_rate_hz", one) for one in (rate_hz, faster * rate_hz))
    slow_work, fast_work = (one.core.work(THICK, one.cores) for one in (slow, fast))
    if not math.isclose(fast_work.light_s, slow_work.light_s / faster, rel_tol=EXACT):
        yield (
            f"{faster} times the symbol rate takes light_s from {slow_work.light_s:.4g} to "
            f"{fast_work.light_s:.4g} s; light_s of work() is symbols over symbol_rate_hz"
        )
    if fast_work.programming_s != slow_work.programming_s:
        yield "the symbol rate moves programming_s"
    before, after = slow.cost(THICK), fast.cost(THICK)
    if not (after.time_s < before.time_s or before.bound is Bound.BUFFER):
        yield "faster symbols save no time"
    for phase in Phase:
        slower, quicker = (error_variance(one.core.analog(phase)) for one in (slow, fast))
        if not quicker > slower:
            yield (
                f"{phase.value}: more symbols a second take the error's variance from {slower:.4g} to "
                f"{quicker:.4g}; noise grows with the bandwidth that the budget takes"
            )


def unused_electronics(unit: PhotonicUnit) -> set[str]:
    """Return the paths of numbers of the chip's electronics that a core does not use."""
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


FROM_ZERO = (1e-12, 1e-6, 0.1)
"""Values to which a number of zero is changed, the largest last."""


def every_number_moves_some_answer(unit: PhotonicUnit, unused: Collection[str]) -> Iterator[str]:
    """Check that each number moves time, energy, area, price, power, wear or the record of execution."""
    unit = with_imperfect_chip(unit)
    present, idle = answers(unit), {*NODE_ONLY, *unused, *unused_electronics(unit)}
    for path, value in numeric_leaves(unit).items():
        if path in idle:
            continue
        if value == 0.0:
            nudged: tuple[float | int, ...] = (1,) if isinstance(value, int) else FROM_ZERO
        else:
            nudged = (value * 2, value // 2) if isinstance(value, int) else (value * 1.5, value * 0.7)
        moved = {other: _moves(unit, path, other, present) for other in nudged}
        tried = [one for one in moved.values() if one is not None]
        if not tried:
            yield f"{path}: neither {nudged[0]} nor {nudged[-1]} is accepted"
        elif not any(tried) or (value != 0.0 and not all(tried)):
            dead = next(other for other, one in moved.items() if one is False)
            yield (
                f"{path}: {value:g} -> {dead:g} changes nothing: not time, energy, area, price, power, wear "
                "or the record of execution; use it there, leave it out, or say that it is unused"
            )


def _moves(unit: PhotonicUnit, path: str, value: float, present: object) -> bool | None:
    """Return whether a new value of a number moves a result; None if the value is refused."""
    try:
        changed = replace_at(unit, path, value)
    except HeliographError:
        return None
    return answers(changed) != present


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
"""Numbers that contribute to the error of a sample in every textbook, by the end of their path."""


def what_spoils_a_sample_reaches_the_record(unit: PhotonicUnit, unused: Collection[str]) -> Iterator[str]:
    """Check that each number in `SPOILS` moves the record of execution."""
    present = unit.core.analog(Phase.FORWARD)
    for path, value in numeric_leaves(unit).items():
        if path in unused or not path.endswith(tuple(f".{end}" for end in SPOILS)):
            continue
        nudged = (0.8 * value,) if value else FROM_ZERO
        if all(replace_at(unit, path, other).core.analog(Phase.FORWARD) == present for other in nudged):
            yield (
                f"{path}: {value:.4g} -> {nudged[-1]:.4g} leaves analog() as it is; take it from the budget "
                "and the converters, not from a number of its own"
            )


LOSSES = ("loss_db", "loss_db_per_m")
"""Ends of the paths of losses."""


def more_loss_is_never_less_noise(unit: PhotonicUnit, unused: Collection[str]) -> Iterator[str]:
    """Check that more loss never lowers the error; a loss used as a ratio or a gain breaks this."""
    before = error_variance(unit.core.analog(Phase.FORWARD))
    for path, value in numeric_leaves(unit.core).items():
        if f"core.{path}" in unused or not path.endswith(LOSSES):
            continue
        more = 1.2 * value or FROM_ZERO[-1]
        try:
            after = error_variance(replace_at(unit.core, path, more).analog(Phase.FORWARD))
        except HeliographError:  # no light is left
            continue
        if after < before * (1 - EXACT):
            yield (
                f"core.{path}: {value:.4g} -> {more:.4g} takes the error's variance from {before:.4g} to "
                f"{after:.4g}; losses are in decibels, and add up along the path of the link"
            )


def operands(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Return random operands whose rows and columns reach full scale, so that no scaling is applied.

    Shapes are [1, rows, length] and [1, length, rows].
    """
    import torch  # noqa: PLC0415 - only to execute

    generator = torch.Generator().manual_seed(11)
    a = 2 * torch.rand(1, rows, length, generator=generator) - 1
    b = 2 * torch.rand(1, length, rows, generator=generator) - 1
    a[..., 0] = 1.0
    b[:, 0] = -1.0
    return a, b


def executed(spec: AnalogSpec, a: Tensor, b: Tensor, key: int) -> Tensor:
    """Return a product executed by a record of execution, with random draws of a key."""
    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - only to execute

    return AnalogNumerics(spec).matmul(a, b, key=key)


def through_perfect_converters(spec: AnalogSpec, **changes: object) -> AnalogSpec:
    """Return a record of execution without converters' errors and known gain, and with further changes."""
    perfect = {
        "dac_bits": math.inf,
        "adc_bits": math.inf,
        "adc_enob_bits": math.inf,
        "adc_range_sigma": math.inf,
        "product_gain": 1.0,
    }
    return dataclasses.replace(spec, **{**perfect, **changes})  # type: ignore[arg-type]


def noiseless_limit_is_the_exact_product(unit: PhotonicUnit) -> Iterator[str]:
    """Check that without noise and with infinite bits the product is exact."""
    nothing = ("thermal", "shot", "rin", "encoding", "load")
    limit = through_perfect_converters(
        unit.core.analog(Phase.FORWARD),
        **{f"{one}_variance": 0.0 for one in nothing},
        residues=None,
        tile=None,
        chip=None,
        common=None,
    )
    a, b = operands(rows=7, length=150)
    exact = a @ b
    for spec in (limit, AnalogSpec.ideal()):
        error = float((executed(spec, a, b, 1) - exact).abs().max())
        if not error <= 1e-5 * (1.0 + float(exact.abs().max())):
            yield f"without noise and with infinite bits products err by up to {error:.3g}"


def executed_noise_has_the_stated_variance(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a sample's error has the stated variance, without converters (5 standard errors)."""
    spec = through_perfect_converters(
        unit.core.analog(Phase.FORWARD),
        load_variance=0.0,
        chip=None,
        transforms=None,  # operands as they reach the light
    )
    a, b = operands(rows=96, length=spec.analog_length)
    noise = executed(spec, a, b, 3).double() - a.double() @ b.double()
    a2, b2 = a.double().square(), b.double().square()
    operands_square = a2.sum(-1, keepdim=True) + b2.sum(-2, keepdim=True)
    variance = spec.thermal_variance + (spec.shot_variance + spec.encoding_variance) * operands_square
    variance = variance + spec.rin_variance * (a2 @ b2) + spec.norm_variance * norm_square(spec, b)
    standardised = noise / variance.sqrt()
    count = standardised.numel()
    mean, spread = float(standardised.mean()), float(standardised.var())
    if not abs(mean) <= 5 / math.sqrt(count) or not abs(spread - 1.0) <= 5 * math.sqrt(2 / count):
        yield (
            f"executed noise over that of analog() has mean {mean:.4g} and variance {spread:.4g}, not 0 and 1"
        )


def norm_square(spec: AnalogSpec, loaded: Tensor) -> float:
    """Return the squared largest singular value of the tiles of a loaded operand, averaged over outputs."""
    import torch  # noqa: PLC0415 - heavy, and of executed products alone

    parts = loaded.double()[0].split(spec.tile.outputs if spec.tile else loaded.shape[2], 1)
    squares = (part.shape[1] * float(torch.linalg.matrix_norm(part, 2)) ** 2 for part in parts)
    return math.fsum(squares) / loaded.shape[2]


def exact_variance(spec: AnalogSpec, a: Tensor, b: Tensor) -> float:
    """Return the error's variance that a record states for given operands, averaged over outputs."""
    if spec.chip is None or spec.common is None:
        return math.nan
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


LEFT_OUT = {
    "chip": "the spread of its parts (core.chip)",
    "common": "the intensity noise that its outputs share (laser.rin_db_per_hz, through the link's receiver)",
    "encoding": "the errors of its modulators (modulator.extinction_ratio_db, dac)",
}
"""Cause of error that is missing from a record whose field of this name is None."""


def signal_over_noise_in_torch_is_that_of_the_record(unit: PhotonicUnit) -> Iterator[str]:
    """Check that the executed mean square error over 40 chips is the stated one (5 standard errors).

    Converters and known gain are left out. The standard error is taken over chips, since the outputs of one
    chip err together.
    """
    spec = through_perfect_converters(
        with_imperfect_chip(unit).core.analog(Phase.FORWARD),
        scale=Scale.ROW,
        transforms=None,  # operands as they reach the light
    )
    lacking = [cause for name, cause in LEFT_OUT.items() if getattr(spec, name) is None]
    if spec.chip is None or lacking:
        yield f"analog() of a chip whose parts differ lacks {' and '.join(lacking)}"
        return
    a, b = operands(rows=24, length=spec.analog_length)
    powers = []
    for seed in range(40):
        other = dataclasses.replace(spec, chip=dataclasses.replace(spec.chip, seed=seed))
        powers.append(float((executed(other, a, b, seed) - a @ b).square().mean()))
    mean = math.fsum(powers) / len(powers)
    spread = math.sqrt(math.fsum((power - mean) ** 2 for power in powers) / (len(powers) - 1))
    exact = exact_variance(spec, a, b)
    if not abs(mean - exact) <= 5 * spread / math.sqrt(len(powers)):
        yield f"executed errors have a mean square of {mean:.4g}, and analog() states {exact:.4g}"


def brighter_laser_lowers_executed_error(unit: PhotonicUnit) -> Iterator[str]:
    """Check that executed products have less error with more light."""
    a, b = operands(rows=64, length=4 * unit.core.analog(Phase.FORWARD).analog_length)
    exact = a @ b

    def error(power: float) -> float:
        lit = replace_at(unit, "core.laser_power_w", power * get_at(unit, "core.laser_power_w"))
        return float((executed(lit.core.analog(Phase.FORWARD), a, b, 2) - exact).square().mean())

    eightfold, single, eighth = (error(power) for power in (8.0, 1.0, 0.125))
    if not eightfold < single < eighth:
        yield (
            f"with 8 times, once and an eighth of the light the mean square error is {eightfold:.4g}, "
            f"{single:.4g} and {eighth:.4g}; more light must err less"
        )


def same_key_gives_the_same_noise(unit: PhotonicUnit) -> Iterator[str]:
    """Check that equal keys give equal noise, and different keys different noise."""
    a, b = operands(rows=16, length=100)
    spec = unit.core.analog(Phase.GRAD_WEIGHT)
    first, again, other = (executed(spec, a, b, key) for key in (4, 4, 5))
    if not bool((first == again).all()):
        yield "the same key gives two results"
    if bool((first == other).all()):
        yield "two keys give one result; is there no noise in analog()?"


def snr_independent_and_common(spec: AnalogSpec) -> tuple[float, float]:
    """Return the SNR of a full-scale sample if its lines fluctuate independently, and if they do alike.

    Intensity noise then adds up as powers, or as fields; thermal and shot noise always add up as powers.
    """
    length = spec.analog_length
    other = spec.thermal_variance + 2 * length * spec.shot_variance + spec.norm_variance * length**2
    intensity = spec.rin_variance + (spec.common.variance if spec.common is not None else 0.0)
    return length**2 / (other + length * intensity), length**2 / (other + length**2 * intensity)


def noise_of_a_sample_is_that_of_the_link_budget(unit: PhotonicUnit) -> Iterator[str]:
    """Check that the record of execution has exactly the signal-to-noise ratio of the link budget."""
    for phase in Phase:
        independent, common = snr_independent_and_common(unit.core.analog(phase))
        stated = unit.core.budget.snr
        if not any(math.isclose(snr, stated, rel_tol=EXACT) for snr in (independent, common)):
            yield (
                f"{phase.value}: a full-scale sample of analog() is {independent:.6g} times its noise "
                f"({common:.6g} if its light fluctuates together), budget.snr is {stated:.6g}; take "
                "thermal, shot and rin variances from the budget, in units of one full-scale product squared"
            )


def equal_products_take_the_same_in_every_phase(unit: PhotonicUnit) -> Iterator[str]:
    """Check that equal products cost the same in all phases, as a core cannot keep a whole model."""
    for operator in (THICK, THIN):
        first = unit.core.work(operator, unit.cores)
        for phase in Phase:
            other = unit.core.work(dataclasses.replace(operator, phase=phase), unit.cores)
            for name in ("light_s", "programming_s", "operand_bytes", "writes"):
                value, forward = getattr(other, name), getattr(first, name)
                if value != forward:
                    yield (
                        f"{name} of the same product is {value:.6g} in {phase.value} and {forward:.6g} "
                        "forward; operands change every time"
                    )
            if dict(other.energy_j) != dict(first.energy_j):
                yield f"{phase.value} has other energies than forward for the same product"


def no_core_is_for_free(unit: PhotonicUnit) -> Iterator[str]:
    """Check that both dies have area, and so do converters that draw power."""
    photonic, electronic = (area_m2(unit.core.parts(), domain) for domain in Domain)
    for kind, parts in (("photonic", photonic), ("electronic", electronic)):
        if not math.fsum(parts.values()) > 0.0:
            yield (
                f"the {kind} area of parts() adds up to 0 ({parts}); price follows from area, so that these "
                "parts would cost nothing"
            )
        for part, each_m2 in parts.items():
            if not each_m2 >= 0.0:
                yield f"the {part} takes {each_m2:.4g} m2"
    drawn = full_load_w(unit.core.parts(), unit.core.full_load)
    for part in ("dac", "adc"):
        if part in drawn and not electronic.get(part, 0.0) > 0.0:
            yield f"the {part} draws {drawn[part]} W and takes no electronic area"


def a_full_core_draws_what_full_load_says(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a product that fills the arrays draws `full_load`, by part within 2 %.

    Accelerators are sized by `full_load`, so that a part left out there would draw power unaccounted for.
    Loading weights is not in it, as inputs do not stream meanwhile; nor are transforms of operands, which
    happen once per product while elements are sent many times.
    """
    work, stated = unit.core.work(FULL, unit.cores), full_load_w(unit.core.parts(), unit.core.full_load)
    loading = {"reload", "programming", "decomposition"} if unit.core.holds_weights else set()
    loading.add("operand transform")
    if set(work.energy_j) - loading != set(stated):
        yield (
            f"work() has the parts {sorted(work.energy_j)}, full load has {sorted(stated)}; both need every "
            "part that draws while inputs stream"
        )
    for part, stated_w in stated.items():
        drawn_w = work.energy_j.get(part, 0.0) / (work.light_s * unit.cores)
        if not math.isclose(drawn_w, stated_w, rel_tol=0.02):
            yield (
                f"the {part} of a core takes {drawn_w:.4g} W in a product that fills it, and {stated_w:.4g} "
                "W at full load; which of the two counts too many or too few?"
            )


def a_full_core_fetches_what_it_states(unit: PhotonicUnit) -> Iterator[str]:
    """Check that a product that fills the arrays fetches `operand_bytes_per_symbol`, within 2 %.

    Partial sums are included. The buffer's ports and the feed of the converters are sized by it.
    """
    core, work = unit.core, unit.core.work(FULL, unit.cores)
    fetched = work.operand_bytes / (work.light_s * core.symbol_rate_hz * unit.cores)
    if not math.isclose(fetched, core.operand_bytes_per_symbol, rel_tol=0.02):
        yield (
            f"a core fetches {fetched:.4g} bytes a symbol in a product that fills it, and "
            f"operand_bytes_per_symbol is {core.operand_bytes_per_symbol:.4g}; which leaves some out?"
        )


MOST_W_PER_M2 = 790e4
"""Power density that microchannels removed from a silicon chip: 790 W/cm2 (Tuckerman and Pease, IEEE Electron
Device Letters 2 (1981) 126, abstract)."""


def a_chip_can_be_cooled(unit: PhotonicUnit) -> Iterator[str]:
    """Check that the power density of the dies is at most `MOST_W_PER_M2`; mW taken for W break this."""
    beside = ("regulators", "overhead")
    on_die_w = math.fsum(power_w for part, power_w in unit.power_breakdown_w().items() if part not in beside)
    density_w_per_m2 = on_die_w / unit.area_m2
    if not density_w_per_m2 < MOST_W_PER_M2:
        yield (
            f"{density_w_per_m2 * 1e-4:.4g} W/cm2 on its dies, and the best cooling takes "
            f"{MOST_W_PER_M2 * 1e-4:g}; static parts, in W: {static_w(unit.core.parts())}; dynamic: "
            f"{full_load_w(unit.core.parts(), unit.core.full_load)}; is one in mW, or an area in um2?"
        )


Law = Callable[[PhotonicUnit], Iterator[str]]
LawOfNumbers = Callable[[PhotonicUnit, Collection[str]], Iterator[str]]
GAUSSIAN_LAWS: tuple[Law, ...] = (
    executed_noise_has_the_stated_variance,
    signal_over_noise_in_torch_is_that_of_the_record,
    brighter_laser_lowers_executed_error,
    noise_of_a_sample_is_that_of_the_link_budget,
)
"""Laws of cores with Gaussian noise on every sample; residue numbers instead err rarely and by much."""
LAWS: tuple[Law, ...] = (
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
    no_more_light_is_detected_than_is_emitted,
    brighter_laser_costs_energy_and_lowers_error,
    faster_symbols_cut_time_and_raise_error,
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
)
"""All laws of a unit."""
LAWS_OF_NUMBERS: tuple[LawOfNumbers, ...] = (
    what_spoils_a_sample_reaches_the_record,
    more_loss_is_never_less_noise,
    every_number_moves_some_answer,
)
"""All laws of a unit's numbers."""


def laws_of(unit: PhotonicUnit) -> tuple[Law, ...]:
    """Return the laws that apply to the core of a unit."""
    has_residues = unit.core.analog(Phase.FORWARD).residues is not None
    return tuple(law for law in LAWS if not (has_residues and law in GAUSSIAN_LAWS))


def laws_asked(core: Core, *, unused: Collection[str] = ()) -> Mapping[str, Callable[[], list[Fault]]]:
    """Return a function for each law, by its name, that checks it on a core and returns the faults.

    Parameters
    ----------
    core : Core
        The core, from this repository or another.
    unused : collection of str
        Paths of numbers, or of parts with all their numbers, that the core inherits but does not use for a
        good reason, such as ``core.branch``.

    Raises
    ------
    ParameterError
        If no unit can be built around the core, or it has no number of such a path.
    """
    with in_one_sentence("no unit can be built around the core"):
        unit = unit_of(core)
        laws = laws_of(unit)
    paths: set[str] = set()
    for given in unused:  # all numbers of a part, or a single one
        inside = [leaf for leaf in numeric_leaves(unit) if leaf.startswith(f"{given}.")]
        paths.update(inside or [path_of(unit, given)])
    of_unit = {law.__name__: partial(_check, law.__name__, partial(law, unit)) for law in laws}
    of_numbers = {
        law.__name__: partial(_check, law.__name__, partial(law, unit, paths)) for law in LAWS_OF_NUMBERS
    }
    return of_unit | of_numbers


def _check(name: str, faults_by_law: Callable[[], Iterator[str]]) -> list[Fault]:
    """Return the faults that a law finds; an error of the core while it is checked is one of them."""
    faults = []
    try:
        with in_one_sentence("the core fails when it is asked"):
            for text in faults_by_law():
                faults.append(Fault(law=name, text=text))
    except HeliographError as error:
        faults.append(Fault(law=name, text=str(error)))
    return faults


def faults_of(core: Core, *, unused: Collection[str] = ()) -> tuple[Fault, ...]:
    """Return all faults of a core under all laws; parameters as in `laws_asked`."""
    return tuple(fault for ask in laws_asked(core, unused=unused).values() for fault in ask())

"""Whoever adds a core with one mistake in it is told which: the conformance tests, tested."""

from dataclasses import dataclass, fields, replace

import pytest

from optical.accelerator import PhotonicUnit
from optical.cores.crossbar import Crossbar, default_crossbar
from optical.cores.pcm_crossbar import PcmCrossbar, default_pcm_crossbar
from simulator.operators import Phase
from simulator.parameter_tree import numeric_leaves
from tests.conformance import test_core_records as records
from tests.conformance import test_cores as cores

NANO = 1e9


@dataclass(frozen=True, kw_only=True)
class NanojouleWork(Crossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return replace(found, energy_j={part: NANO * one for part, one in found.energy_j.items()})


@dataclass(frozen=True, kw_only=True)
class NanojouleEverywhere(NanojouleWork):
    def full_load_parts_w(self):
        return {part: NANO * one for part, one in super().full_load_parts_w().items()}


@dataclass(frozen=True, kw_only=True)
class NoiseBeforeGain(Crossbar):
    def analog(self, phase):
        found, gain = super().analog(phase), self.detector.responsivity_a_per_w / 2
        return replace(found, thermal_variance=found.thermal_variance * gain**2)


@dataclass(frozen=True, kw_only=True)
class QuietGradients(Crossbar):
    def analog(self, phase):
        found = super().analog(phase)
        quiet = replace(found, thermal_variance=found.thermal_variance / 100)
        return found if phase is Phase.FORWARD else quiet


@dataclass(frozen=True, kw_only=True)
class NoiseOfItsOwn(Crossbar):
    def analog(self, phase):
        return replace(super().analog(phase), thermal_variance=1e-3, shot_variance=0.0, rin_variance=0.0)


@dataclass(frozen=True, kw_only=True)
class GradientsLoadNothing(PcmCrossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return found if operator.phase is Phase.FORWARD else replace(found, programming_s=0.0, writes=0.0)


@dataclass(frozen=True, kw_only=True)
class DeadKnob(Crossbar):
    detuning: float = 0.3


@dataclass(frozen=True, kw_only=True)
class FreeLight(Crossbar):
    def photonic_area_m2(self):
        return dict.fromkeys(super().photonic_area_m2(), 0.0)


@dataclass(frozen=True, kw_only=True)
class FreeConverters(Crossbar):
    def electronic_area_m2(self):
        return {part: one for part, one in super().electronic_area_m2().items() if part != "adc"}


@dataclass(frozen=True, kw_only=True)
class NoConversionTime(Crossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return replace(found, light_s=found.light_s / self.temporal_accumulation)


@dataclass(frozen=True, kw_only=True)
class LightForNothing(Crossbar):
    def static_parts_w(self):
        return {part: one for part, one in super().static_parts_w().items() if part != "laser"}


@dataclass(frozen=True, kw_only=True)
class StaticMilliwatts(Crossbar):
    def static_parts_w(self):
        return {part: 1e3 * one for part, one in super().static_parts_w().items()}


@dataclass(frozen=True, kw_only=True)
class UncountedConverters(Crossbar):
    def full_load_parts_w(self):
        return {part: one for part, one in super().full_load_parts_w().items() if part != "adc"}


@dataclass(frozen=True, kw_only=True)
class ConverterOfItsOwn(Crossbar):
    def analog(self, phase):
        return replace(super().analog(phase), adc_enob_bits=8.0)


@dataclass(frozen=True, kw_only=True)
class ClockOfItsOwn(Crossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return replace(found, light_s=found.light_s * self.symbol_rate_hz / 5e9)


@dataclass(frozen=True, kw_only=True)
class BetterThanItsLight(Crossbar):
    @property
    def effective_bits(self):
        return self.budget.effective_bits + 1.0


def wrong(kind):
    """Return a unit of wrong cores, all their numbers those of the right one."""
    right = default_pcm_crossbar() if issubclass(kind, PcmCrossbar) else default_crossbar()
    same = {one.name: getattr(right, one.name) for one in fields(right) if one.init}
    core = kind(**same | {"name": kind.__name__})
    return PhotonicUnit(core=core, cores=8, memory=cores.HBM, sram_bytes=2**21)


@pytest.mark.parametrize(
    ("kind", "check", "message"),
    [
        (
            NanojouleWork,
            lambda one: cores.test_no_product_draws_more_than_the_peak_power(one, cores.THICK),
            "W",
        ),
        (NanojouleEverywhere, cores.test_energy_per_multiplication_is_of_a_physical_order, "not in nJ"),
        (
            NoiseBeforeGain,
            lambda one: records.test_noise_of_a_sample_is_that_of_the_link_budget(one, Phase.FORWARD),
            "variances from the budget",
        ),
        (
            QuietGradients,
            lambda one: records.test_noise_of_a_sample_is_that_of_the_link_budget(one, Phase.GRAD_WEIGHT),
            "QuietGradients, grad_weight",
        ),
        (
            NoiseOfItsOwn,
            lambda one: records.test_noise_of_a_sample_is_that_of_the_link_budget(one, Phase.FORWARD),
            "budget.snr is",
        ),
        (
            GradientsLoadNothing,
            lambda one: records.test_equal_products_take_the_same_in_every_phase(one, cores.THICK),
            "programming_s of the same product is 0 in grad_input",
        ),
        (
            DeadKnob,
            lambda one: cores.test_every_number_moves_some_answer(one, "core.detuning"),
            "core.detuning: 0.3 -> 0.4.* changes nothing",
        ),
        (FreeLight, records.test_no_core_is_for_free, r"photonic_area_m2 adds up to 0"),
        (FreeConverters, records.test_no_core_is_for_free, "the adc draws .* takes no electronic area"),
        (NoConversionTime, cores.test_no_product_beats_the_peak, "light_s"),
        (
            LightForNothing,
            lambda one: cores.test_brighter_laser_costs_energy_and_lowers_error(one, Phase.FORWARD),
            "is the laser, over its wall-plug efficiency, in static_parts_w",
        ),
        (StaticMilliwatts, records.test_a_chip_can_be_cooled, "is one in mW"),
        (UncountedConverters, records.test_a_full_core_draws_what_full_load_says, "needs? every part"),
        (ConverterOfItsOwn, records.test_what_spoils_a_sample_reaches_the_record, "core.adc.enob_bits"),
        (
            ClockOfItsOwn,
            lambda one: cores.test_faster_symbols_cut_time_and_raise_error(one, Phase.FORWARD),
            "symbols over symbol_rate_hz",
        ),
        (BetterThanItsLight, cores.test_a_core_keeps_the_protocol, "converters can only add noise"),
    ],
)
def test_a_mistake_in_a_core_is_told(kind, check, message):
    unit = wrong(kind)
    assert "core.symbol_rate_hz" in numeric_leaves(unit)
    with pytest.raises(AssertionError, match=message) as caught:
        check(unit)
    assert kind.__name__ in str(caught.value)

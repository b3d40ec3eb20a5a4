"""Whoever adds a core with one mistake in it is told which: the conformance tests, tested."""

import math
import re
from dataclasses import dataclass, fields, replace
from functools import cached_property

import pytest

from heliograph import core_laws as laws
from optical.cores.crossbar import Crossbar, default_crossbar
from optical.cores.pcm_crossbar import PcmCrossbar, default_pcm_crossbar
from optical.devices import Domain, Per
from optical.noise.link_budget import elements_of
from simulator.operators import Phase
from simulator.parameter_tree import numeric_leaves
from simulator.units import ratio_from_db
from tests.conformance.free_space import NOT_THERE, FreeSpace

NANO = 1e9


@dataclass(frozen=True, kw_only=True)
class NanojouleWork(Crossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return replace(found, energy_j={part: NANO * one for part, one in found.energy_j.items()})


@dataclass(frozen=True, kw_only=True)
class NanojouleEverywhere(Crossbar):
    def parts(self):
        """Every use of a part, billions of times over."""
        return tuple(one if one.per is Per.CORE else one.times(NANO) for one in super().parts())


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
    def parts(self):
        free = {Domain.PHOTONIC: math.inf, Domain.ELECTRONIC: 1.0}
        return tuple(replace(one, fill=free[one.device.domain]) for one in super().parts())


@dataclass(frozen=True, kw_only=True)
class FreeConverters(Crossbar):
    def parts(self):
        return tuple(one for one in super().parts() if one.name != "adc" or one.per is not Per.CORE)


@dataclass(frozen=True, kw_only=True)
class NoConversionTime(Crossbar):
    def work(self, operator, cores):
        found = super().work(operator, cores)
        return replace(found, light_s=found.light_s / self.temporal_accumulation)


@dataclass(frozen=True, kw_only=True)
class LightForNothing(Crossbar):
    def parts(self):
        return tuple(one for one in super().parts() if one.name != "laser")


@dataclass(frozen=True, kw_only=True)
class StaticMilliwatts(Crossbar):
    def parts(self):
        found = [(one, 1e3 if one.per is Per.CORE else 1.0) for one in super().parts()]
        return tuple(replace(one.times(milli), fill=milli * one.fill) for one, milli in found)


@dataclass(frozen=True, kw_only=True)
class UncountedSamples(Crossbar):
    @property
    def full_load(self):
        return replace(super().full_load, samples=0.0)


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
class DrivenTwice(Crossbar):
    def parts(self):
        found = super().parts()
        return (*found, next(one for one in found if one.name == "modulator" and one.per is Per.SYMBOL))


@dataclass(frozen=True, kw_only=True)
class PeakTwice(Crossbar):
    @property
    def peak_macs_per_s(self):
        return 2.0 * super().peak_macs_per_s


@dataclass(frozen=True, kw_only=True)
class NoPartialSums(PcmCrossbar):
    @property
    def operand_bytes_per_symbol(self):
        return self.modulators * self.word_bytes / self.passes


@dataclass(frozen=True, kw_only=True)
class BitsForBytes(Crossbar):
    def events(self, operator, cores):
        found = super().events(operator, cores)
        return replace(found, operand_bytes=8.0 * found.operand_bytes)


@dataclass(frozen=True, kw_only=True)
class JoulesThatStand(Crossbar):
    def parts(self):
        found = super().parts()
        return tuple(replace(one, per=Per.CORE) if one.name == "adder" and one.each else one for one in found)


@dataclass(frozen=True, kw_only=True)
class BetterThanItsLight(Crossbar):
    @property
    def effective_bits(self):
        return self.budget.effective_bits + 1.0


@dataclass(frozen=True, kw_only=True)
class LightUndivided(Crossbar):
    @cached_property
    def link(self):
        return replace(super().link, split=1.0)


@dataclass(frozen=True, kw_only=True)
class OneLaserOfMany(FreeSpace):
    def parts(self):
        return tuple(replace(one, count=1) if one.name == "laser" else one for one in super().parts())


@dataclass(frozen=True, kw_only=True)
class RatiosForDecibels(FreeSpace):
    @cached_property
    def link(self):
        right = super().link
        found = [(one.name, 1, ratio_from_db(-one.loss_db)) for one in right.elements]
        return replace(right, elements=elements_of(found))


@dataclass(frozen=True, kw_only=True)
class QuietLaser(FreeSpace):
    @cached_property
    def link(self):
        right = super().link
        return replace(right, receiver=replace(right.receiver, rin_db_per_hz=-math.inf))


def wrong(kind):
    """Return a unit of wrong cores, all their numbers those of the right one."""
    if issubclass(kind, FreeSpace):
        return laws.unit_of(kind.default())
    right = default_pcm_crossbar() if issubclass(kind, PcmCrossbar) else default_crossbar()
    same = {one.name: getattr(right, one.name) for one in fields(right) if one.init}
    core = kind(**same | {"name": kind.__name__})
    return laws.unit_of(core)


@pytest.mark.parametrize(
    ("kind", "law", "message"),
    [
        (NanojouleWork, laws.no_product_draws_more_than_the_peak_power, "W"),
        (NanojouleEverywhere, laws.energy_per_multiplication_is_of_a_physical_order, "not in nJ"),
        (NoiseBeforeGain, laws.noise_of_a_sample_is_that_of_the_link_budget, "variances from the budget"),
        (
            QuietGradients,
            laws.noise_of_a_sample_is_that_of_the_link_budget,
            "grad_input: a full-scale",
        ),
        (NoiseOfItsOwn, laws.noise_of_a_sample_is_that_of_the_link_budget, "budget.snr is"),
        (
            GradientsLoadNothing,
            laws.equal_products_take_the_same_in_every_phase,
            "programming_s of the same product is 0 in grad_input",
        ),
        (DeadKnob, laws.every_number_moves_some_answer, "core.detuning: 0.3 -> 0.4.* changes nothing"),
        (FreeLight, laws.no_core_is_for_free, "the photonic area of parts.* adds up to 0"),
        (FreeConverters, laws.no_core_is_for_free, "the adc draws .* takes no electronic area"),
        (NoConversionTime, laws.no_product_beats_the_peak, "light_s"),
        (
            LightForNothing,
            laws.brighter_laser_costs_energy_and_lowers_error,
            "is the laser, over its wall-plug efficiency, in parts",
        ),
        (StaticMilliwatts, laws.a_chip_can_be_cooled, "is one in mW"),
        (UncountedSamples, laws.a_full_core_draws_what_full_load_says, "which of the two counts"),
        (ConverterOfItsOwn, laws.what_spoils_a_sample_reaches_the_record, "core.adc.enob_bits"),
        (
            ClockOfItsOwn,
            laws.faster_symbols_cut_time_and_raise_error,
            "symbols over symbol_rate_hz",
        ),
        (DrivenTwice, laws.keeps_the_seam, "parts lists 'modulator' of .* twice"),
        (PeakTwice, laws.a_full_product_reaches_the_peak, "a factor in peak_macs_per_s"),
        (BitsForBytes, laws.operands_are_fetched_once_a_symbol, "fetch 8 words for a symbol"),
        (NoPartialSums, laws.a_full_core_fetches_what_it_states, "which leaves some out"),
        (JoulesThatStand, laws.what_stands_draws_watts, "say of what: per=Per.SAMPLE"),
        (BetterThanItsLight, laws.keeps_the_seam, "converters can only add noise"),
        (
            LightUndivided,
            laws.no_more_light_is_detected_than_is_emitted,
            "how many the light is divided",
        ),
        (OneLaserOfMany, laws.no_more_light_is_detected_than_is_emitted, "0.0[0-9]+ W .* emit 0.002 W"),
        (RatiosForDecibels, laws.more_loss_is_never_less_noise, "core.fan_out.insertion_loss_db: 1.5 -> 1.8"),
        (QuietLaser, laws.signal_over_noise_in_torch_is_that_of_the_record, "laser.rin_db_per_hz"),
    ],
)
def test_a_mistake_in_a_core_is_told(kind, law, message):
    unit = wrong(kind)
    assert "core.symbol_rate_hz" in numeric_leaves(unit)
    found = list(law(unit, NOT_THERE) if law in laws.LAWS_OF_NUMBERS else law(unit))
    assert any(re.search(message, one) for one in found), found

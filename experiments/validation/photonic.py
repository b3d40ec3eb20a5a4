"""Published photonic accelerators against what their own rules, or their parts, give."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError, check_provenance
from experiments.validation.lightening import baseline_area, lightening_parts, lightening_run, part_of
from experiments.validation.outcomes import Outcome
from experiments.validation.photonic_claims import Claim, beyond_reach, claims, unknown_system
from optical.published.albireo import load_albireo
from optical.published.chips import load_chip
from optical.published.lightening_transformer import LighteningTransformer
from simulator.errors import HeliographError, ParameterError
from simulator.units import ratio_from_db

NEEDS = (("system",), ("metric",), ("value",), ("unit",))
"""Columns without which a file is no table of photonic accelerators; of each group one."""


def validate_photonic(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """Return what becomes of each published number of photonic accelerators.

    Raises
    ------
    ParameterError
        If a row holds a number that cannot be one.
    """
    return tuple(_outcome(record, claim) for record in records for claim in claims(record))


def _outcome(record: Record, claim: Claim) -> Outcome:
    own = Record(record.where, record.cells)
    label = " ".join(dict.fromkeys(one for one in (record.text("system"), claim.config) if one))
    blank = Outcome(
        id=f"{label} {claim.metric}",
        source=record.text("source") or "no source",
        unit=claim.unit,
        measured=None,
    )
    try:
        check_provenance(record)
        unit, value = _published(record.text("system"), claim)
        blank = dataclasses.replace(blank, measured=value, unit=unit)
        predicted, hint = _predict(own, claim)
    except ParameterError as error:
        if str(error).startswith("column '"):
            msg = f"{record.where}: {error}"
            raise ParameterError(msg) from None
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    except HeliographError as error:
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    return dataclasses.replace(blank, predicted=predicted, assumed=tuple(own.assumed), hint=hint)


def _published(system: str, claim: Claim) -> tuple[str, float]:
    """Return the SI unit and the published value in it.

    Raises
    ------
    ParameterError
        If the number or its unit cannot be one, whoever it is of.
    SkipError
        If no parts can give it.
    """
    beyond = beyond_reach(claim)
    try:
        found = claim.in_si(claim.number)
    except SkipError as error:
        known = any(re.match(pattern, system, re.IGNORECASE) for pattern in RULES)
        raise SkipError(beyond or (str(error) if known else unknown_system(system))) from None
    if beyond:
        raise SkipError(beyond)
    return found


def _predict(record: Record, claim: Claim) -> tuple[float, str]:
    system = record.text("system")
    for pattern, rule in RULES.items():
        if found := re.match(pattern, system, re.IGNORECASE):
            return rule(record, claim, found)
    raise SkipError(unknown_system(system))


def albireo_parts(record: Record, claim: Claim, _: re.Match[str]) -> tuple[float, str]:
    """Return a power, an area or the energy per MAC of Albireo from its parts."""
    kind, _sep, part = claim.metric.partition(" ")
    scenario = re.search("conservative|moderate|aggressive", claim.config.lower())
    if kind == "area":
        record.assume("areas are the same in all scenarios; photodiodes and ADCs are not published apart")
        parts = load_albireo(scenario[0] if scenario else "conservative").area_parts_m2()
        return part_of(parts, part, "Albireo"), claim.metric
    if not scenario:
        msg = "no scenario (conservative, moderate, aggressive) is given"
        raise SkipError(msg)
    found = load_albireo(scenario[0])
    if kind == "power":
        return part_of(found.power_parts_w(), part, "Albireo"), claim.metric
    if claim.metric == "energy per MAC":
        record.assume("all multipliers busy")
        return found.energy_j_per_mac, claim.metric
    msg = f"metric '{claim.metric}' is not modelled"
    raise SkipError(msg)


def simphony_laser(record: Record, claim: Claim, _: re.Match[str]) -> tuple[float, str]:
    """Return SimPhony's laser power for Lightening-Transformer, with the split loss left out as it is there.

    References
    ----------
    SimPhony at 0bdc10d, insertion loss 6.22 dB and extinction ratio 10 dB as its log prints them.
    """
    if claim.metric != "laser power per laser":
        msg = "SimPhony counts devices twice and drops attention; its totals are not restated"
        raise SkipError(msg)
    machine = LighteningTransformer()
    record.assume("loss 6.22 dB, extinction 10 dB, no split")
    light_w = machine.received_w * ratio_from_db(SIMPHONY_LOSS_DB)
    usable = 1.0 - ratio_from_db(-SIMPHONY_EXTINCTION_DB)
    laser_w = light_w / usable / machine.parts.laser_efficiency
    return laser_w, f"{machine.size**2} times as much with the split loss"


SIMPHONY_LOSS_DB = 6.22
"""Insertion loss of a core in SimPhony's log."""
SIMPHONY_EXTINCTION_DB = 10.0
"""Extinction ratio of its modulator."""


def chip_energy(record: Record, claim: Claim, found: re.Match[str]) -> tuple[float, str]:
    """Return the energy per MAC of a whole chip as far as its parts explain it."""
    if claim.metric != "energy per MAC":
        msg = f"'{claim.metric}' is no energy per MAC"
        raise SkipError(msg)
    chip = load_chip("pace" if found[0].lower() == "pace" else "lightmatter_2025")
    parts = chip.power_parts_w()
    if "excl" in claim.config:
        parts.pop("laser")
    record.assume(
        f"our own devices, {chip.effective_bits:g} effective bits, no electronics beyond converters"
    )
    explained_w, published_w = math.fsum(parts.values()), claim.in_si(claim.number)[1] * chip.macs_per_s
    shown = ", ".join(f"{name} {power / published_w:.0%}" for name, power in parts.items())
    missing = 1.0 - explained_w / published_w
    hint = f"explained: {shown}; unexplained {missing:.0%}: drivers of weights, logic, memory, control"
    return explained_w / chip.macs_per_s, hint


Rule = Callable[[Record, Claim, "re.Match[str]"], tuple[float, str]]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        r"Lightening-Transformer LT-([BL]) (\d)b": lightening_parts,
        r"Lightening-Transformer$": lightening_run,
        r"Lightening-Transformer (MRR|MZI) baseline (\d)b": baseline_area,
        r"LT baselines (dota|mrrbank|mzi)_": lightening_run,
        r"Albireo": albireo_parts,
        r"SimPhony": simphony_laser,
        r"PACE": chip_energy,
        r"Lightmatter 2025": chip_energy,
    }
)
"""How a system's name begins, and what predicts it."""

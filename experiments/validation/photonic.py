"""Published photonic accelerators against what their own rules, or their parts, give."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError, check_provenance
from experiments.validation.outcomes import Outcome
from heliograph.errors import HeliographError, ParameterError
from heliograph.units import ratio_from_db, to_si
from optical.published.albireo import load_albireo
from optical.published.chips import load_chip
from optical.published.lightening_transformer import LighteningTransformer
from optical.published.lightening_workloads import load_workload, total_cost, workload_cost

NEEDS = (("system",), ("metric",), ("value",), ("unit",))
"""Columns without which a file is no table of photonic accelerators; of each group one."""
QUANTITIES = MappingProxyType({"m^2": "x_m2", "W": "x_w", "J": "x_j", "s": "x_s"})
"""SI unit -> the name by which its units are read."""
TILES = MappingProxyType({"B": 4, "L": 8})
"""Variant of Lightening-Transformer -> tiles."""
ANOTHER_MODEL = "model"
"""Note on a number that is another tool's prediction beside the published one."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published number: a row may hold several."""

    metric: str
    """What."""
    value: str
    """How much, as written."""
    unit: str
    """Unit as written."""
    config: str
    """Configuration of the system."""

    @property
    def number(self) -> float:
        """The published value.

        Raises
        ------
        SkipError
            If the text is no single number.
        ParameterError
            If it is not finite and positive.
        """
        try:
            found = float(self.value)
        except ValueError:
            msg = f"'{self.value[:60]}' is no single number"
            raise SkipError(msg) from None
        if not math.isfinite(found) or found <= 0.0:
            msg = f"column 'value' is {self.value}; it must be finite and positive"
            raise ParameterError(msg)
        return found


def claims(record: Record) -> Iterator[Claim]:
    """Yield the numbers of a row, which may stand side by side with a slash between.

    Notes
    -----
    ``1 / 2`` with a unit and a metric that have a slash each are two quantities; ``1/2/3`` with a
    configuration that begins ``a/b/c`` are three configurations; ``1 word / 2 other`` are two of which each
    has its word, and what has ``model`` is somebody else's prediction and no claim; ``= 1 pJ/MAC`` after
    another quantity is that energy.
    """
    whole = Claim(**{name: record.text(name) for name in ("metric", "value", "unit", "config")})
    equal = re.search(r"= ([\d.]+) (\wJ/MAC)$", whole.value)
    if equal:
        yield dataclasses.replace(whole, metric="energy per MAC", value=equal[1], unit=equal[2])
        return
    values = [_NUMBER.match(one.strip()) for one in whole.value.split("/")]
    if len(values) == 1 or not all(values):
        yield whole
        return
    numbers = [(one[1], (one[2] or "").strip()) for one in values if one]
    metrics, units = whole.metric.split(" / "), whole.unit.split(" / ")
    head, *rest = whole.config.split(",", maxsplit=1)
    cases = head.split("/")
    first = metrics[0].split(" ")[0]
    for index, (number, note) in enumerate(numbers):
        if note == ANOTHER_MODEL:
            continue
        if note:
            config = f"{whole.config} {note}".strip()
            yield dataclasses.replace(whole, value=number, config=config)
        elif len(metrics) == len(units) == len(numbers):
            metric = metrics[index] if " " in metrics[index] else f"{first} {metrics[index]}"
            yield dataclasses.replace(whole, metric=metric, value=number, unit=units[index])
        elif len(cases) == len(numbers):
            config = ",".join([cases[index], *rest])
            yield dataclasses.replace(whole, value=number, config=config)
        elif not index:
            yield whole


_NUMBER = re.compile(r"(-?[\d.]+(?:e-?\d+)?|nan|inf)( [a-z][a-z ]*)?$")


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
        number = claim.number
        unit, value = _in_si(claim, number)
        blank = dataclasses.replace(blank, measured=value, unit=unit)
        predicted, hint = _predict(own, claim)
    except ParameterError as error:
        if str(error).startswith("column 'value'"):
            msg = f"{record.where}: {error}"
            raise ParameterError(msg) from None
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    except HeliographError as error:
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    return dataclasses.replace(blank, predicted=predicted, assumed=tuple(own.assumed), hint=hint)


def _in_si(claim: Claim, number: float) -> tuple[str, float]:
    """Return the SI unit and the value in it; ``per MAC`` stays in words."""
    written = claim.unit.partition("/MAC")[0].split(" ")[0]
    for unit, name in QUANTITIES.items():
        try:
            value = to_si(name, number, written)
        except ParameterError:
            continue
        return unit + ("/MAC" if "/MAC" in claim.unit else ""), value
    msg = f"'{claim.metric}' in '{claim.unit}' is no area, power, energy or time"
    raise SkipError(msg)


def _predict(record: Record, claim: Claim) -> tuple[float, str]:
    system = record.text("system")
    for pattern, rule in RULES.items():
        if found := re.match(pattern, system, re.IGNORECASE):
            return rule(record, claim, found)
    msg = f"system '{system}' is not modelled"
    raise SkipError(msg)


def _part(parts: Mapping[str, float], name: str, system: str) -> float:
    if name == "total":
        return math.fsum(parts.values())
    lowered = {key.lower(): value for key, value in parts.items()}
    if name.lower() not in lowered:
        msg = f"'{system}' has no part '{name}'; it has {', '.join(parts)}"
        raise SkipError(msg)
    return lowered[name.lower()]


def lightening_parts(record: Record, claim: Claim, found: re.Match[str]) -> tuple[float, str]:
    """Return an area or a power of LT-B or LT-L by its own rules."""
    machine = LighteningTransformer(tiles=TILES[found[1].upper()], bits=int(found[2]))
    record.assume("Lightening-Transformer's own constants and rules")
    kind, _, part = claim.metric.partition(" ")
    if kind == "area":
        return _part(machine.area_parts_m2(), part, record.text("system")), claim.metric
    if kind == "power":
        return _part(machine.power_parts_w(), part, record.text("system")), claim.metric
    msg = f"metric '{claim.metric}' is neither area nor power"
    raise SkipError(msg)


def lightening_run(record: Record, claim: Claim, _: re.Match[str]) -> tuple[float, str]:
    """Return energy or time of a transformer, or of one kind of its layers, by LT's own rules.

    Notes
    -----
    The configuration reads ``deit-t_197_4bit dota_arch_opt_4t_2c``: model, tokens, bits, tiles, cores.
    Without ``arch_opt`` (``dota_crossbar``) converters and modulators are not shared.
    """
    text = f"{claim.config} {record.text('system')}"
    model = re.search(r"((?:deit|bert)-[tsbl])_(\d+)_(\d+)bit", text)
    chip = re.search(r"dota_(arch_opt|crossbar)_(\d+)t_(\d+)c", text)
    layer, _sep, kind = claim.metric.rpartition(" ")
    if not model or not chip or kind not in {"energy", "latency"}:
        msg = f"'{claim.metric}' of '{text.strip()[:60]}' is not modelled; only its crossbar's runs are"
        raise SkipError(msg)
    machine = LighteningTransformer(
        tiles=int(chip[2]), cores=int(chip[3]), bits=int(model[3]), optimised=chip[1] == "arch_opt"
    )
    workload = load_workload(model[1], tokens=int(model[2]))
    record.assume("Lightening-Transformer's own constants and rules")
    costs = workload_cost(machine, workload) | {"total": total_cost(machine, workload)}
    if layer not in costs:
        msg = f"'{layer}' is no layer of '{workload.name}'; it has {', '.join(costs)}"
        raise SkipError(msg)
    cost = costs[layer]
    return (cost.energy_j if kind == "energy" else cost.time_s), claim.metric


def albireo_parts(record: Record, claim: Claim, _: re.Match[str]) -> tuple[float, str]:
    """Return a power, an area or the energy per MAC of Albireo from its parts."""
    kind, _sep, part = claim.metric.partition(" ")
    scenario = re.search("conservative|moderate|aggressive", claim.config.lower())
    if kind == "area":
        record.assume("areas are the same in all scenarios; photodiodes and ADCs are not published apart")
        parts = load_albireo(scenario[0] if scenario else "conservative").area_parts_m2()
        return _part(parts, part, "Albireo"), claim.metric
    if not scenario:
        msg = "no scenario (conservative, moderate, aggressive) is given"
        raise SkipError(msg)
    found = load_albireo(scenario[0])
    if kind == "power":
        return _part(found.power_parts_w(), part, "Albireo"), claim.metric
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
        msg = f"'{claim.metric}' is not modelled: SimPhony counts devices twice and drops attention"
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
    explained_w, published_w = math.fsum(parts.values()), _in_si(claim, claim.number)[1] * chip.macs_per_s
    shown = ", ".join(f"{name} {power / published_w:.0%}" for name, power in parts.items())
    missing = 1.0 - explained_w / published_w
    hint = f"explained: {shown}; unexplained {missing:.0%}: drivers of weights, logic, memory, control"
    return explained_w / chip.macs_per_s, hint


Rule = Callable[[Record, Claim, "re.Match[str]"], tuple[float, str]]
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        r"Lightening-Transformer LT-([BL]) (\d)b": lightening_parts,
        r"Lightening-Transformer$": lightening_run,
        r"LT baselines dota_crossbar": lightening_run,
        r"Albireo": albireo_parts,
        r"SimPhony": simphony_laser,
        r"PACE": chip_energy,
        r"Lightmatter 2025": chip_energy,
    }
)
"""How a system's name begins, and what predicts it."""

"""Published numbers of photonic accelerators against their own rules, or against our models of their parts.

A row of the table may hold several numbers; `taken_apart` makes a row of each. A number is predicted by the
first rule of `RULES` whose pattern the system's name begins with.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from experiments.validation.peers.chips import (
    digit_accuracy,
    load_albireo,
    load_chip,
    matrix_bits,
    mesh_accuracy,
    photons_of,
)
from experiments.validation.peers.lightening_transformer import (
    BaselineMesh,
    BaselineRingBank,
    LayerCost,
    LighteningTransformer,
    baseline_total_cost,
    baseline_workload_cost,
    load_workload,
    products,
    total_cost,
    workload_cost,
)
from experiments.validation.rows import (
    FileError,
    Outcome,
    Predicted,
    Record,
    Rule,
    SkipError,
    check_provenance,
    judged,
)
from optical.cores.homodyne import Homodyne, default_homodyne
from optical.cores.ring_bank import default_ring_bank
from optical.devices import Converter, Laser, Modulator, device_table, full_load_w, static_w
from optical.devices.named_parts import named_parts
from simulator.errors import ParameterError
from simulator.units import db_from_ratio, ratio_from_db, to_si

QUANTITIES = MappingProxyType(
    {
        "m^2": "x_m2",
        "W": "x_w",
        "J": "x_j",
        "s": "x_s",
        "op/s": "x_op_per_s",
        "op/J": "x_op_per_j",
        "bit": "x_bits",
    }
)
"""Name of a quantity in each SI unit, from whose suffix `to_si` knows the units that it accepts."""
OPERATIONS = MappingProxyType(
    {"op/s": {"TOPS": 1.0, "POPS": 1e3, "GOPS": 1e-3}, "op/J": {"TOPS/W": 1.0, "GOPS/W": 1e-3}}
)
"""By SI unit of operations: the units that papers use, in multiples of 1e12."""
TERA = to_si("x_hz", 1.0, "THz")
"""Factor of the prefix tera."""
KINDS = MappingProxyType({"area": "m^2", "power": "W", "energy": "J", "latency": "s", "peak": "op/s"})
"""SI unit of a metric, by its first or last word."""
SUGGESTED_UNITS = MappingProxyType(
    {"m^2": "mm^2", "W": "mW", "J": "pJ", "s": "ms", "op/s": "TOPS", "op/J": "TOPS/W", "bit": "bit"}
)
"""Unit that an error message suggests, by SI unit."""
ANOTHER_MODEL = "model"
"""Word behind a number that is another tool's prediction, not the published value."""
_NUMBER = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf)(?: ([a-z][a-z ]*)| \((\w+)\))?$")
A_RATIO = "a ratio to another machine, not a number of this one"
"""Reason why a ratio is not predicted."""
BEYOND_PARTS = MappingProxyType(
    {
        r"(\S+ ){0,2}accuracy": "an accuracy on recordings that are not here",
        r".*\bvs\b|claims|.*\bEDP\b|.*scaling|.*saving|optimising": A_RATIO,
        r".*quantum limit": "a limit of physics, no parts give it; tests hold `optical.devices.limits` to it",
        r"photons per": "photons against an accuracy: `heliograph accuracy photons` measures it",
    }
)
"""Reason why no model of a chip gives a metric, by the pattern with which the metric begins."""
UNDISCLOSED = (
    "Taichi|Xu 2021|Feldmann 2021|Homodyne TPU|DxPTA|AWGR|HITOP|Luan|Meyer|Kovaios|Lin 2024|Lightning|"
    "Bandyopadhyay|Tait|DEAP|CrossLight|HolyLight|ADEPT|Mirage|SCATTER|ENLighten|M3ICRO|Shen|"
    "Photonic full-system"
)
"""Pattern of systems of which only totals are published."""
EXECUTED = "Netcast|Pai"
"""Pattern of chips whose accuracy is computed by executing their task."""
PERCENT = 100.0
"""Per cent of one."""
TILES = MappingProxyType({"B": 4, "L": 8})
"""Tiles by variant of Lightening-Transformer."""
OWN_RULES = "Lightening-Transformer's own constants and rules"
"""Assumption of every number that Lightening-Transformer's rules predict."""
BASELINES: Mapping[str, type[BaselineRingBank] | type[BaselineMesh]] = MappingProxyType(
    {"mrr": BaselineRingBank, "mzi": BaselineMesh}
)
"""Baselines of Lightening-Transformer by the beginning of their names."""
OPERATIONS_PER_MAC = 2
"""Operations of a multiply-accumulate."""
NEEDS = (("system",), ("metric",), ("value",), ("unit",))
"""Groups of columns; a table of photonic accelerators has at least one column of each group."""
EQUALISED = 1e3
"""Bandwidth over symbol rate of an equalised modulator: so large that its pole has no effect."""
ZHOU_BANDWIDTH_GHZ = 40.0
"""Bandwidth of the modulators of arXiv:2604.18496: over 40 GHz, abstract."""
LIGHTNING_GHZ = 4.055
"""Rate of products of Lightning (SIGCOMM 2023), abstract."""
SIMPHONY_LOSS_DB = 6.22
"""Insertion loss of a core in SimPhony's log."""
SIMPHONY_EXTINCTION_DB = 10.0
"""Extinction ratio of its modulator."""


def published_number(record: Record) -> float:
    """Return the published value of a row.

    Raises
    ------
    SkipError
        If the text is words or several numbers.
    FileError
        If it is a number that is not finite and positive, or a single word.
    """
    cell = record.text("value")
    try:
        found = float(cell)
    except ValueError:
        if cell and not re.search(r"[\s/]", cell):
            column = f"column 'value' is '{cell[:40]}'"
            msg = f"{record.where}: {column}, which is no number; write digits, or words"
            raise FileError(msg) from None
        msg = "the cell holds words, a range or several quantities, no single number"
        raise SkipError(msg) from None
    if not math.isfinite(found) or found <= 0.0:
        msg = f"{record.where}: column 'value' is {cell}; it must be finite and positive"
        raise FileError(msg)
    return found


def in_si(record: Record, number: float) -> tuple[str, float]:
    """Return the SI unit of a row and a number in it; ``per MAC`` stays in words.

    Raises
    ------
    SkipError
        If it is none of `QUANTITIES`.
    FileError
        If the metric says what it measures and the unit measures something else.
    """
    unit_text, words = record.text("unit"), record.text("metric").split(" ")
    written = unit_text.partition("/MAC")[0].split(" ")[0]
    read = ((unit, _converted(unit, name, number, written)) for unit, name in QUANTITIES.items())
    unit, value = next(((unit, value) for unit, value in read if value is not None), ("", math.nan))
    kind = next((word for word in (words[0], words[-1]) if word in KINDS), None)
    if kind and written not in {"", "x", "%"} and unit != KINDS[kind]:
        cell = f"column 'unit' is '{unit_text}'"
        msg = f"{record.where}: {cell}, which is no unit of {kind}; try {SUGGESTED_UNITS[KINDS[kind]]}"
        raise FileError(msg)
    if not unit:
        msg = "neither area, power, energy, time nor operations: a ratio, a share or a count"
        raise SkipError(msg)
    return unit + ("/MAC" if "/MAC" in unit_text else ""), value


def _converted(unit: str, name: str, number: float, written: str) -> float | None:
    """Return a number in an SI unit; None if the written unit measures something else."""
    if unit in OPERATIONS:
        factor = OPERATIONS[unit].get(written)
        return None if factor is None else number * factor * TERA
    try:
        return to_si(name, number, written)
    except ParameterError:
        return None


def taken_apart(record: Record) -> Iterator[Record]:
    """Yield a row for each number of a row whose cell holds several, with slashes between them.

    Notes
    -----
    Readings of a cell, by its other columns:

    - ``1 / 2``, with a unit and a metric that have a slash each: two quantities. Further numbers with a note
      in brackets are more values of the last quantity.
    - ``1/2/3``, with a configuration that begins ``a/b/c``: one number for each of three configurations.
    - ``1/2/3; 4/5/6 (note)``, with a metric that ends in ``name-a/b/c``: groups of one number for each case.
    - ``1 word / 2 other``: one number for each word. A number with the word ``model`` is another tool's
      prediction, no claim, and is left out.
    - ``... = 1 pJ/MAC``: that energy.
    """
    cell = record.text("value")
    equal = re.search(r"= ([\d.]+) (\wJ/MAC)$", cell)
    if equal:
        yield _changed(record, metric="energy per MAC", value=equal[1], unit=equal[2])
        return
    if ";" in cell:
        yield from _groups(record)
        return
    values = [_NUMBER.match(one.strip()) for one in cell.split("/")]
    if len(values) == 1 or not all(values):
        yield record
        return
    numbers = [_CellNumber(one[1], one[2] or "", one[3] or "") for one in values if one]
    yield from _side_by_side(record, numbers)


class _CellNumber(NamedTuple):
    """One of several numbers in a cell, as text, with the word behind it or the note in brackets."""

    value: str
    word: str
    note: str


def _changed(record: Record, *, note: str = "", **cells: str) -> Record:
    """Return a row with other cells, and a note behind its configuration."""
    config = f"{record.text('config')} {note}".strip()
    return Record(record.where, record.cells | {"config": config} | cells)


def _side_by_side(record: Record, numbers: Sequence[_CellNumber]) -> Iterator[Record]:
    """Yield a row for each number of a cell that has no groups; the row itself if no reading fits."""
    metrics, units = record.text("metric").split(" / "), record.text("unit").split(" / ")
    head, *rest = record.text("config").split(",", maxsplit=1)
    cases = head.split("/")
    quantities = 1 < len(metrics) == len(units) <= len(numbers)
    quantities = quantities and all(number.note for number in numbers[len(metrics) :])
    if not quantities and len(cases) != len(numbers) and not numbers[0].word:
        yield record
    for index, number in enumerate(numbers):
        if number.word == ANOTHER_MODEL:
            continue
        if number.word:
            yield _changed(record, note=number.word, value=number.value)
        elif quantities:
            at = min(index, len(metrics) - 1)
            metric = _whole_metric(metrics, at)
            yield _changed(record, note=number.note, metric=metric, value=number.value, unit=units[at])
        elif len(cases) == len(numbers):
            yield _changed(record, value=number.value, config=",".join([cases[index], *rest]))


def _whole_metric(metrics: Sequence[str], at: int) -> str:
    """Return one of several metrics: of ``energy laser / DAC`` the second is ``energy DAC``."""
    metric = metrics[at]
    shares_first_word = " " not in metric and metric.isalpha() and " " in metrics[0]
    return f"{metrics[0].split(' ')[0]} {metric}" if shares_first_word else metric


def _groups(record: Record) -> Iterator[Record]:
    """Yield a row for each case of each group; the row itself if a group has not a number for each case."""
    stem, _, tail = record.text("metric").rpartition("-")
    found = []
    for group in record.text("value").split(";"):
        values, _, note = group.strip().partition(" (")
        numbers = [one.strip() for one in values.split("/")]
        if len(numbers) != len(tail.split("/")) or not all(_NUMBER.match(one) for one in numbers):
            yield record
            return
        found += [
            _changed(record, note=note.rstrip(")"), metric=f"{stem}-{case}", value=number)
            for case, number in zip(tail.split("/"), numbers, strict=True)
        ]
    yield from found


def beyond_reach(record: Record) -> str | None:
    """Return the reason why parts cannot give a row's number; None if they may."""
    for pattern, reason in BEYOND_PARTS.items():
        if re.match(pattern, record.text("metric"), re.IGNORECASE):
            return reason
    ratio = re.fullmatch(r"x( .*)?", record.text("unit")) or re.match(r"[\d.-]+ x ", record.text("value"))
    return A_RATIO if ratio else None


def unknown_system(system: str) -> str:
    """Return the reason why a system that is not modelled is skipped."""
    if "GPU" in system:
        return "a GPU: `heliograph validate kernels` and `training` judge those"
    if re.match(UNDISCLOSED, system):
        return "no list of its parts and their powers is public, so nothing can be added up"
    return f"system '{system}' is not modelled"


def part_of(parts: Mapping[str, float], name: str, system: str) -> float:
    """Return a part by its name, whatever its case, or the total.

    Raises
    ------
    SkipError
        If there is no such part.
    """
    if name == "total":
        return math.fsum(parts.values())
    lowered = {key.lower(): value for key, value in parts.items()}
    if name.lower() not in lowered:
        msg = f"'{system}' has no part '{name}'; it has {', '.join(parts)}"
        raise SkipError(msg)
    return lowered[name.lower()]


def lightening_parts(record: Record, found: re.Match[str]) -> Predicted:
    """Return an area or a power of Lightening-Transformer's variant B or L by its own rules."""
    metric = record.text("metric")
    machine = LighteningTransformer(tiles=TILES[found[1].upper()], bits=int(found[2]))
    record.assume(OWN_RULES)
    kind, _, part = metric.partition(" ")
    if kind == "area":
        return Predicted(part_of(machine.area_parts_m2(), part, record.text("system")), metric)
    if kind == "power":
        return Predicted(part_of(machine.power_parts_w(), part, record.text("system")), metric)
    msg = f"metric '{metric}' is neither area nor power"
    raise SkipError(msg)


def _layer(costs: Mapping[str, LayerCost], metric: str, workload: str) -> float:
    layer, _sep, kind = metric.rpartition(" ")
    if layer not in costs:
        msg = f"'{layer}' is no layer of '{workload}' there; it has {', '.join(costs)}"
        raise SkipError(msg)
    return costs[layer].energy_j if kind == "energy" else costs[layer].time_s


def lightening_run(record: Record, _: re.Match[str]) -> Predicted:
    """Return energy or time of a transformer, or of one kind of its layers, by LT's own rules.

    Notes
    -----
    The configuration reads ``deit-t_197_4bit dota_arch_opt_4t_2c``: model, tokens, bits, tiles, cores.
    Without ``arch_opt`` (``dota_crossbar``) converters and modulators are not shared; ``mrrbank_broadcast``
    and ``mzi_broadcast`` are the baselines.
    """
    metric = record.text("metric")
    text = f"{record.text('config')} {record.text('system')}"
    model = re.search(r"((?:deit|bert)-[tsbl])_(\d+)_(\d+)bit", text)
    chip = re.search(r"(dota_arch_opt|dota_crossbar|mrrbank_broadcast|mzi_broadcast)_(\d+)t_(\d+)c", text)
    if not model or not chip or not metric.endswith((" energy", " latency")):
        return lightening_derived(record)
    workload = load_workload(model[1], tokens=int(model[2]))
    tiles, cores, bits = int(chip[2]), int(chip[3]), int(model[3])
    record.assume(OWN_RULES)
    if chip[1].startswith("dota"):
        optimised = chip[1] == "dota_arch_opt"
        machine = LighteningTransformer(tiles=tiles, cores=cores, bits=bits, optimised=optimised)
        costs = workload_cost(machine, workload) | {"total": total_cost(machine, workload)}
    else:
        core = BASELINES[chip[1][:3]](tiles=tiles, cores=cores, bits=bits)
        costs = baseline_workload_cost(core, workload) | {"total": baseline_total_cost(core, workload)}
    return Predicted(_layer(costs, metric, workload.name), metric)


def lightening_derived(record: Record) -> Predicted:
    """Return a number that follows from the simulator's output: peak, efficiency, energy per MAC, area."""
    metric = record.text("metric")
    variant = re.search(r"LT-([BL])", record.text("config"))
    if not variant:
        msg = "a number of Lightening-Transformer that its simulator does not print"
        raise SkipError(msg)
    bits = re.search(r"(\d)b\b", record.text("config"))
    machine = LighteningTransformer(tiles=TILES[variant[1]], bits=int(bits[1]) if bits else 4)
    operations_per_s = OPERATIONS_PER_MAC * machine.peak_macs_per_s
    record.assume(OWN_RULES)
    if metric == "peak":
        return Predicted(operations_per_s, metric)
    if metric == "TOPS/W":
        return Predicted(operations_per_s / math.fsum(machine.power_parts_w().values()), metric)
    if metric == "README area total":
        hint = "its README has twice the TIA area that its code adds up"
        return Predicted(math.fsum(machine.area_parts_m2().values()), hint)
    model = re.fullmatch(r"energy per MAC (DeiT-[TSB])", metric)
    if not model:
        msg = "a number of Lightening-Transformer that its simulator does not print"
        raise SkipError(msg)
    workload = load_workload(model[1].lower())
    macs = sum(one.macs for one in products(workload))
    return Predicted(total_cost(machine, workload).energy_j / macs, metric)


def baseline_area(record: Record, found: re.Match[str]) -> Predicted:
    """Return an area of one of Lightening-Transformer's baselines by its own rules."""
    metric = record.text("metric")
    core = BASELINES[found[1].lower()](bits=int(found[2]))
    kind, _, part = metric.partition(" ")
    if kind != "area":
        msg = "of the baselines the simulator prints no power, only areas, energies and times"
        raise SkipError(msg)
    record.assume(OWN_RULES)
    if part == "total":
        return Predicted(core.area_m2, metric)
    return Predicted(part_of(core.area_parts_m2(), part, record.text("system")), metric)


def outcomes(record: Record) -> tuple[Outcome, ...]:
    """Return the outcomes of a row, one for each of its numbers; an invalid one raises `ParameterError`."""
    return tuple(map(_outcome, taken_apart(record)))


def _outcome(record: Record) -> Outcome:
    label = " ".join(dict.fromkeys(one for one in map(record.text, ("system", "config")) if one))
    with judged(record, f"{label} {record.text('metric')}", unit=record.text("unit")) as row:
        check_provenance(record)
        row.unit, row.measured = _published(record)
        row.predicted, row.hint = _predict(record)
    return row


def _published(record: Record) -> tuple[str, float]:
    """Return the SI unit and the published value in it.

    Raises
    ------
    FileError
        If the number or its unit is invalid, whether or not the system is modelled.
    SkipError
        If no rule can give it.
    """
    system = record.text("system")
    executed = re.match(EXECUTED, system, re.IGNORECASE) and record.text("unit") == "%"
    if executed and record.text("metric") == "accuracy":
        return "1", published_number(record) / PERCENT
    beyond = beyond_reach(record)
    try:
        found = in_si(record, published_number(record))
    except SkipError as error:
        known = any(re.match(pattern, system, re.IGNORECASE) for pattern in RULES)
        raise SkipError(beyond or (str(error) if known else unknown_system(system))) from None
    if beyond:
        raise SkipError(beyond)
    return found


def _predict(record: Record) -> Predicted:
    system = record.text("system")
    for pattern, rule in RULES.items():
        if found := re.match(pattern, system, re.IGNORECASE):
            return rule(record, found)
    raise SkipError(unknown_system(system))


def albireo_parts(record: Record, _: re.Match[str]) -> Predicted:
    """Return a power, an area or the energy per MAC of Albireo from its parts."""
    metric = record.text("metric")
    kind, _sep, part = metric.partition(" ")
    scenario = re.search("conservative|moderate|aggressive", record.text("config").lower())
    if kind == "area":
        record.assume("areas are the same in all scenarios; photodiodes and ADCs are not published apart")
        parts = load_albireo(scenario[0] if scenario else "conservative").area_parts_m2()
        return Predicted(part_of(parts, part, "Albireo"), metric)
    if not scenario:
        msg = "no scenario (conservative, moderate, aggressive) is given"
        raise SkipError(msg)
    found = load_albireo(scenario[0])
    if kind == "power":
        return Predicted(part_of(found.power_parts_w(), part, "Albireo"), metric)
    if metric == "energy per MAC":
        record.assume("all multipliers busy")
        return Predicted(found.energy_j_per_mac, metric)
    msg = f"metric '{metric}' is not modelled"
    raise SkipError(msg)


def simphony_laser(record: Record, _: re.Match[str]) -> Predicted:
    """Return SimPhony's laser power for Lightening-Transformer, with the split loss left out as it is there.

    References
    ----------
    SimPhony at 0bdc10d, insertion loss 6.22 dB and extinction ratio 10 dB as its log prints them.
    """
    if record.text("metric") != "laser power per laser":
        msg = "SimPhony counts devices twice and drops attention; its totals are not restated"
        raise SkipError(msg)
    machine = LighteningTransformer()
    record.assume("loss 6.22 dB, extinction 10 dB, no split")
    light_w = machine.received_w * ratio_from_db(SIMPHONY_LOSS_DB)
    usable = 1.0 - ratio_from_db(-SIMPHONY_EXTINCTION_DB)
    laser_w = light_w / usable / machine.parts.laser_efficiency
    return Predicted(laser_w, f"{machine.size**2} times as much with the split loss")


def chip_energy(record: Record, found: re.Match[str]) -> Predicted:
    """Return the energy per MAC, or the light, of a whole chip as far as its parts explain it."""
    metric = record.text("metric")
    chip = load_chip("pace" if found[0].lower() == "pace" else "lightmatter_2025")
    record.assume(f"our own devices and electronics, {chip.effective_bits:g} effective bits")
    if metric == "optical power":
        return Predicted(chip.light_w, "light that the effective bits need, over a path of our parts")
    if metric != "energy per MAC":
        msg = f"'{metric}' is no energy per MAC"
        raise SkipError(msg)
    lasers = "excl" not in record.text("config")
    parts = chip.power_parts_w(lasers=lasers)
    if not lasers:
        parts.pop("laser")
    published_w = in_si(record, published_number(record))[1] * chip.macs_per_s
    explained_w = math.fsum(parts.values())
    shown = ", ".join(f"{name} {power / published_w:.0%}" for name, power in parts.items())
    hint = f"explained: {shown}; unexplained {1.0 - explained_w / published_w:.0%}"
    return Predicted(explained_w / chip.macs_per_s, hint)


LAYERED = "crossing_overpass_2017"
"""Named crossing of a chip whose operands run in two layers, silicon and silicon nitride."""


def homodyne_processor(record: Record, _: re.Match[str]) -> Predicted:
    """Return peak, efficiency, effective bits or a node's area of a homodyne processor, from our core.

    Notes
    -----
    The configuration reads ``256 x 100, 20 GBd``: rows, columns, symbol rate. Converters, and the light of a
    node with the capacitor that goes with it, are those of our core, for theirs are not published. Its
    circuits are silicon and silicon nitride (abstract), so that operands cross in two layers.

    Operands are known before they are sent, so that a driver can equalise the modulators' pole: it overdrives
    each symbol so that it has settled at its end. With e = exp(-2 pi B / f), the largest step takes
    (1 + e) / (1 - e) times the swing, and the field that is left is the inverse of that.
    """
    metric = record.text("metric")
    size = re.match(r"(\d+) x (\d+), (\d+) GBd", record.text("config"))
    if not size:
        msg = "the configuration is not 'rows x columns, N GBd'"
        raise SkipError(msg)
    rate_hz, bandwidth_hz = to_si("x_hz", float(size[3]), "GHz"), to_si("x_hz", ZHOU_BANDWIDTH_GHZ, "GHz")
    usual = default_homodyne()
    core = dataclasses.replace(
        usual,
        rows=int(size[1]),
        columns=int(size[2]),
        symbol_rate_hz=rate_hz,
        crossing=named_parts()[LAYERED].build(),
    )
    share = core.receivers / usual.receivers
    core = dataclasses.replace(core, laser_power_w=usual.laser_power_w * share)
    unsettled = math.exp(-2.0 * math.pi * bandwidth_hz / rate_hz)
    modulator = device_table().build(Modulator, "mzm_quoted")
    swing_db = 2.0 * db_from_ratio((1.0 + unsettled) / (1.0 - unsettled))
    modulator = dataclasses.replace(
        modulator,
        bandwidth_hz=EQUALISED * rate_hz,
        insertion_loss_db=modulator.insertion_loss_db + swing_db,
    )
    core = dataclasses.replace(core, modulator=modulator)
    record.assume(f"our homodyne core and its light, modulators of {ZHOU_BANDWIDTH_GHZ:g} GHz, equalised")
    match metric:
        case "peak":
            return Predicted(
                OPERATIONS_PER_MAC * core.peak_macs_per_s, "arithmetic: nodes, rate and two operations"
            )
        case "effective bits":
            light = core.budget.effective_bits
            return Predicted(
                core.effective_bits,
                f"{light:.2f} bits of the light alone; converters are ours, for theirs are not told",
            )
        case "efficiency":
            efficiency, hint = array_efficiency(core)
            return Predicted(efficiency, f"{hint}; theirs, not told, is of conversions shared by many nodes")
        case "node area":
            return Predicted(
                core.node_area_m2, "with a MEMS phase shifter of 100 x 45 um; theirs is not told"
            )
    msg = f"metric '{metric}' is not modelled"
    raise SkipError(msg)


def array_efficiency(core: Homodyne) -> Predicted:
    """Return the operations per joule of a homodyne core at full load, and where its power goes."""
    parts = core.parts()
    power_w = Counter(static_w(parts))
    power_w.update(full_load_w(parts, core.full_load))
    whole_w = math.fsum(power_w.values())
    shown = ", ".join(f"{name} {one / whole_w:.0%}" for name, one in power_w.most_common(4))
    return Predicted(OPERATIONS_PER_MAC * core.peak_macs_per_s / whole_w, f"of our power: {shown}")


TEMPO_BITS, TEMPO_GHZ = 6.0, 5.0
"""Bits of its operands (its summary at sciencestack.ai), and the rate at which 36 arrays of 32 x 32 nodes
make its 368.6 TOPS; the rate is not in the abstract, and the number of arrays does not matter."""


def slow_light_array(record: Record, _: re.Match[str]) -> Predicted:
    """Return the efficiency of an array of its modulators, with our converters of its bits and our light."""
    metric = record.text("metric")
    if metric != "efficiency":
        msg = f"metric '{metric}' is not modelled"
        raise SkipError(msg)
    usual = default_homodyne()
    fewer = TEMPO_BITS - usual.dac.nominal_bits
    core = dataclasses.replace(
        usual,
        symbol_rate_hz=to_si("x_hz", TEMPO_GHZ, "GHz"),
        modulator=named_parts()["mzm_slow_light_tempo"].build(),
        dac=usual.dac.rescaled(usual.dac.enob_bits + fewer),
        adc=usual.adc.rescaled(usual.adc.enob_bits + fewer),
    )
    record.assume("our homodyne core with its modulators; converters of our families at its bits, our light")
    efficiency, hint = array_efficiency(core)
    return Predicted(efficiency, f"{hint}; its memory and its light are not told")


def two_modulators(record: Record, _: re.Match[str]) -> Predicted:
    """Return the effective bits of products of two modulators in a row, read by one detector and ADC.

    Notes
    -----
    Errors over full scale, root mean square, the other operand being even over its range (mean square 1/3):
    each DAC 2^-ENOB / sqrt(12) / sqrt(3), the ADC 2^-ENOB / sqrt(12), the laser sqrt(RIN B) / 3.
    """
    metric = record.text("metric")
    if metric != "effective bits":
        msg = f"metric '{metric}' is not modelled"
        raise SkipError(msg)
    table = device_table()
    dac, adc = (table.build(Converter, name) for name in ("dac", "adc"))
    rin = ratio_from_db(table.build(Laser, "laser").rin_db_per_hz) * to_si("x_hz", LIGHTNING_GHZ, "GHz") / 2.0
    square = 2.0 * 4.0**-dac.enob_bits / 36.0 + 4.0**-adc.enob_bits / 12.0 + rin / 9.0
    record.assume("our own DACs, ADC and laser; light enough")
    return Predicted(-0.5 * math.log2(12.0 * square), "fibres: drift of bias and polarisation is not here")


def netcast_accuracy(record: Record, _: re.Match[str]) -> Predicted:
    """Return the accuracy of digits read with the stated light, every product executed with its photons."""
    energy = re.match(r"(\d+) aJ", record.text("config"))
    photons = photons_of(to_si("x_j", float(energy[1]), "fJ") / 1e3) if energy else 1.0
    record.assume(
        "digits drawn from fonts, 784-100-100-10; photons counted for both signs, nothing else wrong"
    )
    exact = digit_accuracy(math.inf)
    hint = f"{photons:.3g} photons a multiplication; without noise {exact:.1%}: their digits are easier"
    return Predicted(digit_accuracy(photons), hint)


def mesh_of_four(record: Record, _: re.Match[str]) -> Predicted:
    """Return the accuracy of a mesh of four ports and three layers, trained in itself."""
    record.assume("points in two rings, couplers and heaters of our tables; mean of chips and sets of points")
    return Predicted(mesh_accuracy(), "published is 'more than'; their points and tasks are not these")


def ring_weights(record: Record, _: re.Match[str]) -> Predicted:
    """Return the effective bits of a weight in a bank of a number of rings, from our ring bank."""
    rings = re.match(r"(\d+) ring", record.text("config"))
    if record.text("metric") != "effective bits" or not rings:
        msg = "only effective bits of a bank of 'N rings' are modelled"
        raise SkipError(msg)
    bank = dataclasses.replace(default_ring_bank(), wavelengths=int(rings[1]))
    errors = bank.weight_errors()
    worst = max(errors, key=lambda cause: errors[cause])
    record.assume("our rings, their lock (9 bits, arXiv:2104.01164) and its driver")
    return Predicted(
        bank.weight_bits, f"most by the {worst}; 16 rings {default_ring_bank().weight_bits:.1f} bits"
    )


def programmed_mesh(record: Record, _: re.Match[str]) -> Predicted:
    """Return the effective bits of the matrices that a mesh was set to, from our couplers and heaters."""
    set_to = re.match(r"(\d+) modes, (Haar|permutations)", record.text("config"))
    if record.text("metric") != "effective bits" or not set_to:
        msg = "only effective bits of 'N modes, Haar' or 'N modes, permutations' are modelled"
        raise SkipError(msg)
    bits = matrix_bits(int(set_to[1]), permutation=set_to[2] == "permutations")
    record.assume("our couplers, not corrected, and our heaters; moduli alone, as amplitude fidelities")
    return Predicted(bits, f"amplitude fidelity {1.0 - 2.0 ** (-2.0 * bits) / 24.0:.2%}")


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
        r"Homodyne (TPU|multiplier)": homodyne_processor,
        r"TeMPO": slow_light_array,
        r"Lightning 2023": two_modulators,
        r"Netcast": netcast_accuracy,
        r"Pai 2023": mesh_of_four,
        r"Ring weights": ring_weights,
        r"Universal linear optics|QuiX|Laser-written": programmed_mesh,
    }
)
"""Rules by the pattern with which a system's name begins."""

"""Origin of every number of a step's record: formula, numbers it follows from, parameters that enter it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from heliograph.parameters import Parameter
from heliograph.records import COLUMNS
from heliograph.report import format_quantity, format_si
from heliograph.report_page.page import Formula, Number, parameter_formulas
from simulator.units import dimension_of

SIMULATED, DERIVED, ASSUMED = "simulated", "derived", "assumed"
"""Status of a number of a record: of an event simulation, a closed form, or standing on assumed prices."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """Law of one column."""

    text: str
    status: str
    source: str
    follows: tuple[str, ...] = ()
    """Columns, or mappings of parts, that it follows from."""
    inputs: tuple[str, ...] = ()
    """Patterns of the paths of parameters that enter it."""


_TOKENS = "tokens of a step = global_batch \u00d7 sequence_length of the plan"
_METRICS = "simulator/results/metrics.py"

LAWS: Mapping[str, _Law] = MappingProxyType(
    {
        "step_time_s": _Law(
            text="time from the first to the last task of the simulated step; equals the sum of its parts, "
            "each the mean over ranks",
            status=SIMULATED,
            source="events of compute, network and circuits on one clock (simulator/engine)",
            follows=("time_by_category_s",),
        ),
        "tokens_per_s": _Law(
            text=f"tokens of a step / step time; {_TOKENS}",
            status=DERIVED,
            source=_METRICS,
            follows=("step_time_s",),
        ),
        "model_flop_utilisation": _Law(
            text="operations of the model, without recomputation / (accelerators \u00d7 peak of products "
            "\u00d7 step time)",
            status=DERIVED,
            source=f"{_METRICS}; operations as Korthikanti et al., arXiv:2205.05198, appendix A",
            follows=("step_time_s", "peak_flop_per_s"),
        ),
        "exposed_communication_s": _Law(
            text="time in which compute idles, no circuit moves, and its rank sends, receives or takes part "
            "in a collective; transfers share links max-min fairly",
            status=SIMULATED,
            source=f"{_METRICS}: time_of_class_s",
            inputs=("fabric.*",),
        ),
        "exposed_dark_s": _Law(
            text="time in which compute idles while circuits of its rank move",
            status=SIMULATED,
            source=f"{_METRICS}: time_of_class_s",
            inputs=("fabric.*",),
        ),
        "dark_s": _Law(
            text="longest time of a rank in which its circuits move, hidden behind compute or not",
            status=SIMULATED,
            source=_METRICS,
            inputs=("fabric.*",),
        ),
        "pipeline_bubble_s": _Law(
            text="time in which compute idles and waits for no network, circuit or host: for another stage",
            status=SIMULATED,
            source=f"{_METRICS}: time_of_class_s",
        ),
        "energy_j": _Law(
            text="sum over parts of (energy of events + static power \u00d7 accelerators \u00d7 step time)",
            status=DERIVED,
            source=f"{_METRICS}: summarise",
            follows=("energy_per_token_j", "step_time_s"),
        ),
        "energy_per_token_j": _Law(
            text=f"energy of the step / tokens of a step = sum of its parts; {_TOKENS}",
            status=DERIVED,
            source=f"{_METRICS}: summarise",
            follows=("energy_by_component_j_per_token",),
        ),
        "mean_power_w": _Law(
            text="energy of the step / step time, all accelerators and the fabric",
            status=DERIVED,
            source=_METRICS,
            follows=("energy_j", "step_time_s"),
        ),
        "usd_per_million_tokens": _Law(
            text="(price of the system \u00d7 step time / lifetime + energy \u00d7 power usage effectiveness "
            f"\u00d7 price of electricity) \u00d7 10\u2076 / tokens; {_TOKENS}",
            status=ASSUMED,
            source=f"{_METRICS}: Economics.step_usd; straight-line depreciation without residual value",
            follows=("capital_usd", "step_time_s", "energy_j"),
            inputs=("economics.*",),
        ),
        "capital_usd": _Law(
            text="accelerators \u00d7 price of each + price of the fabric",
            status=ASSUMED,
            source="heliograph/systems/system.py: System.capital_usd",
            follows=("accelerator_usd",),
            inputs=("fabric*price*", "fabric*cost*"),
        ),
        "accelerator_usd": _Law(
            text="price of the GPU; in light, die area \u00d7 price per area + price of the vector engine",
            status=ASSUMED,
            source="heliograph/systems/system.py: System.accelerator_usd",
            follows=("accelerator_area_m2",),
            inputs=("gpu*price_usd", "photonic*price*", "vector*price*"),
        ),
        "accelerator_area_m2": _Law(
            text="area of the GPU's die; in light, of all cores, buffer and electronics + the vector engine",
            status=DERIVED,
            source="heliograph/systems/system.py: System.accelerator_area_m2",
            inputs=("gpu*area_m2", "photonic*area_m2", "vector*area_m2", "photonic.cores"),
        ),
        "snr_db": _Law(
            text="\u221210 log\u2081\u2080 of the mean of noise over signal of the step's products, weighted "
            "with their multiply-accumulates",
            status=DERIVED,
            source="heliograph/accuracy/precision.py: Delivered; docs/noise.md has the law of each cause",
            follows=("laser_line_w",),
            inputs=("photonic.core.*", "operands", "lighting.*"),
        ),
        "laser_line_w": _Law(
            text="least power of a laser, or of a comb's line, at which the products of the step have the "
            "wanted signal over noise; where nobody wants one, as it was set",
            status=DERIVED,
            source="optical/cores/sizing.py: with_laser_for",
            inputs=("lighting.*", "photonic.core.*laser*", "photonic.core.*loss_db*"),
        ),
        "effective_bits": _Law(
            text="(signal over noise of a full-scale sample in dB \u2212 1.76) / 6.02; of a GPU, its "
            "format's significand",
            status=DERIVED,
            source="optical/noise/link_budget.py; IEEE Std 1241",
            inputs=("photonic.core.*",),
        ),
        "memory_bytes": _Law(
            text="memory of the fullest stage: weights + gradients + optimizer + activations + buffers",
            status=DERIVED,
            source="workloads/step/memory.py; Korthikanti et al., arXiv:2205.05198; ZeRO, arXiv:1910.02054",
            follows=("memory_by_kind_bytes",),
        ),
        "memory_capacity_bytes": _Law(
            text="memory of the accelerator, or of the GPU that light replaces",
            status=DERIVED,
            source="table of the accelerator",
            inputs=("gpu.memory.capacity_bytes",),
        ),
        "peak_flop_per_s": _Law(
            text="units \u00d7 operations a cycle \u00d7 clock of a GPU; in light, 2 \u00d7 "
            "multiply-accumulates a symbol \u00d7 symbol rate \u00d7 cores",
            status=DERIVED,
            source="electronic/gpu.py; optical/accelerator.py",
            inputs=(
                "gpu.chip.units",
                "gpu.chip.*flops_per_cycle",
                "gpu.chip.clock_hz",
                "*symbol_rate_hz",
                "photonic.cores",
                "photonic.core.*rows",
                "photonic.core.*columns",
            ),
        ),
        "accelerator_peak_w": _Law(
            text="thermal design power of a GPU; in light, all parts at full load",
            status=DERIVED,
            source="heliograph/systems/system.py: System.accelerator_peak_w",
            inputs=("gpu.chip.tdp_w", "photonic.*"),
        ),
        "fabric_static_w": _Law(
            text="cards, switches, modules and circuits, each number \u00d7 its power",
            status=DERIVED,
            source="bill of materials of the fabric (heliograph cost bill)",
            inputs=("fabric.*_w",),
        ),
        "reduction_effective_bits": _Law(
            text="mean over nodes of (signal over noise of the sum in dB \u2212 1.76) / 6.02",
            status=DERIVED,
            source="optical/fabrics; laser, losses and noise of the unit that adds",
            inputs=("fabric.*",),
        ),
        "photonic_cores": _Law(
            text="as many as fit under the budget that --basis names, in whole clusters",
            status=DERIVED,
            source="heliograph/systems/system.py: System.sized",
            inputs=("basis", "photonic.cores", "gpu.chip.tdp_w"),
        ),
        "sram_bytes": _Law(
            text="buffer that keeps the cores fed",
            status=DERIVED,
            source="optical/accelerator.py",
            inputs=("photonic.sram*",),
        ),
        "reconfigurations": _Law(
            text="changes of circuits in the step",
            status=SIMULATED,
            source="simulator/engine",
            inputs=("fabric.*",),
        ),
        "dropped_share": _Law(
            text="visits to experts beyond their capacity / all visits",
            status=SIMULATED,
            source=_METRICS,
        ),
        "core_lifetime_steps": _Law(
            text="writes that a cell endures / writes of the busiest core in a step",
            status=DERIVED,
            source="heliograph/simulation.py: lifetime_steps",
            inputs=("*endurance*",),
        ),
        "run_steps": _Law(
            text="20 tokens per parameter / tokens of a step",
            status=DERIVED,
            source="Hoffmann et al. 2022, arXiv:2203.15556",
        ),
    }
)
"""Laws of the columns of `heliograph.records.COLUMNS` that are numbers."""

TIME_LAWS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "products": (
            "time of matrix products: operations / (peak \u00d7 efficiency) of a GPU, symbols to send / "
            "symbol rate in light, memory where that is longer",
            ("gpu.chip.*", "gpu.memory.*", "photonic.*", "penalties"),
        ),
        "other work": (
            "operations that are no products / rate of the vector lanes, or bytes / bandwidth of the memory",
            ("gpu.chip.*", "gpu.memory.*", "vector.*"),
        ),
        "waiting for launches": (
            "time of kernels to start, on the chip and by the host",
            ("gpu.chip.*launch_s", "gpu.chip.host_*", "vector.engine.launch_s"),
        ),
        "exposed communication": (LAWS["exposed_communication_s"].text, ("fabric.*",)),
        "reconfiguration": (LAWS["exposed_dark_s"].text, ("fabric.*",)),
        "waiting for the host": ("time in which compute waits for its server", ("host.*", "*host*")),
        "pipeline bubble": (LAWS["pipeline_bubble_s"].text, ()),
    }
)
"""Law of each category of time, by how its name begins, and the parameters that enter it."""

PART_INPUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "network": ("fabric.*",),
        "circuit": ("fabric.*",),
        "compute": ("gpu.chip.*",),
        "gpu": ("gpu.chip.idle_w", "gpu.chip.tdp_w", "penalties"),
        "idle": ("gpu.chip.idle_w", "gpu.chip.tdp_w", "penalties"),
        "hbm": ("gpu.memory.*",),
        "memory": ("gpu.memory.*",),
        "vector": ("vector.*",),
        "laser": ("photonic.core.*laser*", "lighting.*"),
        "photodetector": ("photonic.core.*receiver.*",),
        "integrator": ("photonic.core.*receiver.*",),
        "tia": ("photonic.core.*tia.*", "photonic.core.*receiver.*"),
        "phase": ("photonic.core.*phase*", "photonic.core.*shifter*"),
        "sram": ("photonic.sram*",),
        "wires": ("photonic.electronics.wire.*",),
        "serialiser": ("photonic.electronics.serialiser.*",),
        "regulators": ("photonic.electronics.regulator.*",),
        "overhead": ("photonic.overhead",),
        "control": ("photonic.electronics.sequencer.*",),
        "clock": ("photonic.electronics.clock.*",),
        "gain": ("photonic.electronics.gain.*",),
        "number": ("photonic.core.logic.*",),
        "scaling": ("photonic.core.logic.*", "photonic.electronics.scaler.*"),
        "operand": ("photonic.core.*butterfly.*",),
        "die": ("photonic.electronics.link.*",),
        "calibration": ("photonic.calibration*",),
        "host": ("host.*",),
    }
)
"""Patterns of the parameters of a part of the energy, by its first word; others go by that word."""


def step_formulas(
    record: Mapping[str, Any], parameters: Sequence[Parameter], *, owner: str = ""
) -> dict[str, Formula]:
    """Return what every number of a step's record unfolds to, and the parameters behind them.

    Parameters
    ----------
    record : mapping
        As `StepResult.record` gives it.
    parameters : sequence of Parameter
        Of the system as it was run.
    owner : str
        First part of the keys, ``owner/column`` and ``owner/path``; the system's name if not given.
    """
    own = owner or str(record["system"])
    paths = [one.path for one in parameters]
    found: dict[str, Formula] = {}

    def keys(patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{own}/{path}" for path in paths if any(fnmatchcase(path, one) for one in patterns))

    for column, law in LAWS.items():
        if not is_number(record.get(column)):
            continue
        follows = [f"{own}/{one}" for one in law.follows if is_number(record.get(one))]
        for parts in (record.get(one) for one in law.follows):
            follows += [f"{own}/{column}/{part}" for part in parts] if isinstance(parts, Mapping) else []
        found[f"{own}/{column}"] = Formula(
            label=f"{COLUMNS[column]} ({own})",
            text=law.text,
            status=law.status,
            source=law.source,
            value=told(column, record[column]),
            follows=tuple(follows),
            inputs=keys(law.inputs),
        )
    for part, seconds in record.get("time_by_category_s", {}).items():
        text, inputs = next(law for start, law in TIME_LAWS.items() if part.startswith(start))
        found[f"{own}/step_time_s/{part}"] = Formula(
            label=f"{part} ({own})",
            text=text,
            status=SIMULATED,
            source=f"{_METRICS}: time_of_class_s",
            value=format_si(seconds, "s"),
            inputs=keys(inputs),
        )
    for part, joules in record.get("energy_by_component_j_per_token", {}).items():
        found[f"{own}/energy_per_token_j/{part}"] = Formula(
            label=f"{part} ({own})",
            text="(energy of its events in the step + its static power \u00d7 accelerators \u00d7 step time) "
            f"/ tokens; {_TOKENS}",
            status=DERIVED,
            source=f"{_METRICS}: summarise",
            value=format_si(joules, "J"),
            follows=(f"{own}/step_time_s",),
            inputs=keys(part_inputs(part)) or keys(("photonic.*",)),
        )
    for part, many in record.get("memory_by_kind_bytes", {}).items():
        found[f"{own}/memory_bytes/{part}"] = Formula(
            label=f"{part} ({own})",
            text="bytes of it on the fullest stage, by the plan's axes, sharding and recomputation",
            status=DERIVED,
            source=LAWS["memory_bytes"].source,
            value=format_si(many, "B"),
        )
    return found | parameter_formulas(own, parameters)


def part_inputs(part: str) -> tuple[str, ...]:
    """Return the patterns of the parameters that enter a part of the energy."""
    first = part.split(maxsplit=1)[0]
    return PART_INPUTS.get(first, (f"photonic.*{first}*",))


def told(column: str, value: object) -> str:
    """Return a value of a column with its unit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "" if value is None else str(value)
    if column in _SHOWN:
        return _SHOWN[column](float(value))
    if column.endswith("_usd"):
        return f"{value:,.4g} USD" if value < THOUSAND else f"{value:,.0f} USD"
    unit = (dimension_of(column.rpartition(".")[2]) or ("", "1"))[1]
    return f"{value:,.6g}" if unit == "1" else format_quantity(float(value), unit)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_SHOWN: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "model_flop_utilisation": _percent,
        "dropped_share": _percent,
        "tokens_per_s": _whole,
        "run_steps": _whole,
        "core_lifetime_steps": _whole,
        "energy_per_token_j": lambda value: format_si(value, "J/token"),
        "usd_per_million_tokens": lambda value: f"{value:#.3g} USD",
        "snr_db": lambda value: f"{value:.2f} dB",
        "effective_bits": lambda value: f"{value:.2f} bit",
    }
)
"""Columns that are told in their own way."""
THOUSAND = 1e3
"""Dollars from which on cents are not told."""


def numbers(column: str, value: object, key: str) -> Number:
    """Return a value of a column as a cell that unfolds."""
    order = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return Number(text=told(column, value) or "\u2013", value=order, key=key if order is not None else "")


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Published networks: loads of tori, the optical cubes of TPU v4, and ring collectives of a simulator."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError, check_provenance
from experiments.validation.collective_simulator.networks import NS_PER_S
from experiments.validation.collective_simulator.rows import run_of
from experiments.validation.collective_simulator.tables import answers
from experiments.validation.collective_simulator.wires import wires_s
from experiments.validation.decompositions import permutations_of_dense_demand
from experiments.validation.fault_traces import COLUMN as FAULTS
from experiments.validation.fault_traces import trace_outcomes
from experiments.validation.network_collectives import COLUMNS as COLLECTIVE_COLUMNS
from experiments.validation.network_collectives import collective_outcome, is_collective
from experiments.validation.network_costs import RULES as COST_RULES
from experiments.validation.network_domains import RULES as DOMAIN_RULES
from experiments.validation.network_failures import RULES as FAILURE_RULES
from experiments.validation.network_parameters import claims_of, parameter_of
from experiments.validation.network_rotors import RULES as ROTOR_RULES
from experiments.validation.outcomes import Outcome
from experiments.validation.task_graphs import COLUMN, task_graph_outcome
from experiments.validation.traces import COLUMN as TRACE
from experiments.validation.traces import trace_outcome
from optical.fabrics.switches import load_switch
from simulator.errors import HeliographError, ParameterError
from simulator.topology.torus import TPU_V4, Torus, regular, twisted

NEEDS = (("topology", "system", "gpu"), ("LP_max_load", "cycles_ns", "metric", *COLLECTIVE_COLUMNS))
"""Columns without which a file is no table of networks; of each group one."""
LOADS: Mapping[str, Callable[[Torus], float]] = MappingProxyType(
    {
        "N": lambda torus: torus.nodes,
        "diameter": lambda torus: torus.diameter,
        "mean_dist": lambda torus: torus.mean_hops,
        "distance_bound_load": lambda torus: torus.distance_bound,
        "LP_max_load": lambda torus: torus.max_link_load,
        "per_node_injection_fraction_of_6_links": lambda torus: torus.injection,
    }
)
"""Columns that a torus predicts."""
RUN = ("backend", "collective", "topology", "npus", "algo", "size_bytes", "bw_GBps", "splits", "active")
"""Columns that name a run of the simulator."""
HOST_AVAILABILITY = 0.99
"""Availability of a host where a row names none; dimensionless (arXiv:2304.01433)."""
END_NAMES = MappingProxyType({"low": "low end", "high": "high end"})
"""How the ends of a published range are told apart."""
_NUMBER = r"-?\d+(?:\.\d+)?"
MOST_NODES = 2**20
"""Nodes of a torus above which it is not judged: 128 x 128 x 64, seconds."""
PER_CENT = 0.01
"""One per cent."""


def validate_network(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """Return what becomes of each published number of networks.

    Raises
    ------
    ParameterError
        If a row holds a number that cannot be one (not finite, negative).
    """
    return tuple(outcome for record in records for outcome in _outcomes(record))


def _outcomes(record: Record) -> Iterator[Outcome]:
    if record.text(FAULTS):
        yield from trace_outcomes(record)
        return
    if record.text(COLUMN):
        yield task_graph_outcome(record)
        return
    if record.text(TRACE):
        yield trace_outcome(record)
        return
    if is_collective(record):
        yield collective_outcome(record)
        return
    topology, source = record.text("topology"), record.text("source") or "no source"
    if record.text("cycles_ns"):
        blank = Outcome(
            id=" ".join(record.text(name) for name in RUN), source=source, unit="s", measured=None
        )
        yield _repeated(record, blank)
    elif topology:
        columns = [column for column in LOADS if record.text(column)]
        if not columns:
            name = f"{topology} {record.where}"
            blank = Outcome(id=name, source=source, unit="1", measured=None)
            wanted = ", ".join((*LOADS, "cycles_ns"))
            yield dataclasses.replace(blank, skipped=f"gives no value to judge: one of {wanted}")
        for column in columns:
            blank = Outcome(id=f"{topology} {column}", source=source, unit="1", measured=None)
            yield _outcome(record, blank, _column_of(column), _load_of(column))
    else:
        for claim in claims_of(record):
            yield from _claims(claim, source)


def _claims(record: Record, source: str) -> Iterator[Outcome]:
    name = " ".join(record.text(one) for one in ("system", "config", "metric") if record.text(one))
    for end in _ends(record):
        which = f", {END_NAMES[end.cells['end']]}" if "end" in end.cells else ""
        blank = Outcome(id=f"{name or record.where}{which}", source=source, unit="1", measured=None)
        yield _outcome(end, blank, _measured_claim, _claim)


def _ends(record: Record) -> list[Record]:
    """Return the row, or one for each end of a range, with a bound's or a reduction's number alone."""
    cell = record.text("value")
    found = re.fullmatch(rf"({_NUMBER})(?:-| to )({_NUMBER})", cell)
    if found:
        low, high = sorted((abs(float(one)) for one in found.groups()), key=float)
        ends = (("low", low), ("high", high))
        return [Record(record.where, record.cells | {"value": f"{v:g}", "end": e}) for e, v in ends]
    square = re.fullmatch(r"(\d+)x\1", cell)
    if square:
        return [Record(record.where, record.cells | {"value": square[1]})]
    bound = re.fullmatch(rf"[<>~]?\s*({_NUMBER})(?:\s*x(?: less)?)?", cell)
    if not bound or (cell.startswith("-") and not record.text("unit") == "%"):
        return [record]
    return [Record(record.where, record.cells | {"value": bound[1].removeprefix("-")})]


def _outcome(
    record: Record,
    blank: Outcome,
    measure: Callable[[Record], float],
    predict: Callable[[Record], tuple[float, str]],
) -> Outcome:
    own = Record(record.where, record.cells)
    try:
        check_provenance(own)
        blank = dataclasses.replace(blank, measured=measure(own))
        predicted, hint = predict(own)
    except ParameterError as error:
        if str(error).startswith(own.where):
            raise
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    except HeliographError as error:
        return dataclasses.replace(blank, assumed=tuple(own.assumed), skipped=str(error))
    return dataclasses.replace(blank, predicted=predicted, assumed=tuple(own.assumed), hint=hint)


def _positive(record: Record, column: str) -> float:
    value = record.number(column)
    if not value:
        msg = f"{record.where}: column '{column}' is {record.text(column)}; it must be finite and positive"
        raise ParameterError(msg)
    return value


def _column_of(column: str) -> Callable[[Record], float]:
    return lambda record: _positive(record, column)


def _measured_run(record: Record) -> float:
    return _positive(record, "cycles_ns") / NS_PER_S


def _measured_claim(record: Record) -> float:
    _rule_of(record)
    value = _positive(record, "value")
    return value * PER_CENT if record.text("unit") == "%" else value


def torus_of(text: str) -> Torus:
    """Return the torus that a text such as ``4x4x8 twisted, N=128`` or ``Twisted 4x4x8`` begins with.

    Raises
    ------
    SkipError
        If it begins with no shape.
    ParameterError
        If the torus cannot be built.
    """
    plain = re.sub(r"\s*[x\u00d7*]\s*(?=\d)", "x", text.lower().replace("_", " "))
    found = re.match(r"(?:[a-z ]* )?(\d+(?:x\d+)*)(?![\w.])", plain)
    if not found:
        msg = f"'{text[:60]}' begins with no shape such as 4x4x8 or 4x4x8 twisted"
        raise SkipError(msg)
    sizes = [int(size) for size in found[1].split("x")]
    if math.prod(sizes) > MOST_NODES:
        msg = f"a torus of more than {MOST_NODES} nodes is not judged; '{found[1][:40]}' has more"
        raise SkipError(msg)
    turned = re.search(r"(?<!not )(?<!non-)\btwisted\b", plain)
    return (twisted if turned else regular)(sizes)


def _load_of(column: str) -> Callable[[Record], tuple[float, str]]:
    def load(record: Record) -> tuple[float, str]:
        torus = torus_of(record.text("topology"))
        record.assume("each pair's traffic shared equally among its shortest step vectors")
        return float(LOADS[column](torus)), ""

    return load


def _repeated(record: Record, blank: Outcome) -> Outcome:
    found = _outcome(record, blank, _measured_run, lambda own: (run_of(own).simulated_s(), ""))
    if found.predicted is None:
        return found
    run = run_of(Record(record.where, record.cells))
    hint = f"the same wires allow {wires_s(run) * NS_PER_S:.0f} ns"
    return dataclasses.replace(found, beside=answers(run), hint=hint)


def _claim(record: Record) -> tuple[float, str]:
    rule, found = _rule_of(record)
    return rule(record, found)


def _rule_of(record: Record) -> tuple[Rule, re.Match[str]]:
    system, metric = record.text("system"), record.text("metric")
    for (system_pattern, metric_pattern), rule in RULES.items():
        found = re.match(metric_pattern, metric)
        if found and re.match(system_pattern, system):
            return rule, found
    part = parameter_of(record)
    if part is not None:
        msg = f"a parameter ({part}), which nothing predicts"
        raise SkipError(msg)
    msg = f"'{metric}' of '{system}' is not modelled"
    raise SkipError(msg)


def _machine(name: str) -> Callable[[Record, re.Match[str]], tuple[float, str]]:
    return lambda _record, _found: (float(getattr(TPU_V4, name)), "")


def _ports(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the ports of a switch: both ends of every cube's link, and the spares of the part."""
    switch = load_switch("palomar-mems")
    record.assume(f"{switch.ports - switch.usable_ports} spare ports, as palomar-mems has")
    return float(TPU_V4.ports_per_switch + switch.ports - switch.usable_ports), ""


def _twist(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the ideal gain of a twist: the ratio of the busiest links' loads."""
    shape = [int(size) for size in re.findall(r"\d+", record.text("config").split(" ")[0].split(",")[0])]
    TPU_V4.cubes_of(shape)
    record.assume("ideal: links alone limit, and no software or message adds time")
    return regular(shape).max_link_load / twisted(shape).max_link_load, ""


def _goodput(record: Record, found: re.Match[str]) -> tuple[float, str]:
    cubes, left = divmod(int(found[1]), TPU_V4.nodes_per_cube)
    if left:
        msg = f"a slice of {found[1]} chips is no whole number of cubes of {TPU_V4.nodes_per_cube}"
        raise SkipError(msg)
    named = re.search(r"(?:a ?= ?|availability (?:of )?)(\d+(?:\.\d+)?) ?(%?)", record.text("config"))
    up = HOST_AVAILABILITY if not named else float(named[1]) * (PER_CENT if named[2] else 1.0)
    record.assume(f"hosts up {up:.4g} of the time, failing independently")
    if not 1 <= cubes <= TPU_V4.cubes or not 0.0 <= up <= 1.0:
        msg = f"a slice of {found[1]} of {TPU_V4.nodes} chips with hosts up {up:g} of the time cannot be"
        raise SkipError(msg)
    how = TPU_V4.goodput if found[2] == "with" else TPU_V4.static_goodput
    return how(cubes, up), ""


def _routed(record: Record, _: re.Match[str]) -> tuple[float, str]:
    torus = torus_of(record.text("config"))
    record.assume("fractions of a unit may take different paths; that routing table moves whole units")
    return torus.max_link_load, ""


Rule = Callable[[Record, "re.Match[str]"], tuple[float, str]]
RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        ("TPU v4$", "chips per supercomputer$"): _machine("nodes"),
        ("TPU v4$", "OCS count$"): _machine("switches"),
        ("TPU v4$", "OCS ports"): _ports,
        ("TPU v4$", "optical links per cube$"): _machine("links_per_cube"),
        ("TPU v4$", "fibre strands$"): _machine("fibres"),
        ("TPU v4$", "all-to-all throughput twisted/regular"): _twist,
        ("TPU v4$", r"goodput at (\d+)-chip slices (with|without) OCS$"): _goodput,
        ("TPU twisted-torus", "max directed-edge load"): _routed,
        (
            "BvN$",
            r"permutations(?: for (\d+) % of the volume)?, (\w+) matching$",
        ): permutations_of_dense_demand,
        **FAILURE_RULES,
        **COST_RULES,
        **DOMAIN_RULES,
        **ROTOR_RULES,
    }
)
"""How system and metric of a row read, and what predicts it."""

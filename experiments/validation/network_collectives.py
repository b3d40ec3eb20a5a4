"""Published collectives among rows about networks: columns of NCCL's tests, or claims of their results."""

from __future__ import annotations

import math
import re
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError, check_provenance
from experiments.validation.collectives import RATES, TIMES, validate_collectives
from experiments.validation.outcomes import Outcome
from heliograph.report import format_si
from simulator.errors import HeliographError, ParameterError

COLUMNS = (*TIMES, *RATES)
"""Columns of NCCL's tests that hold a result."""
UNITS = MappingProxyType({"GB/s": "busbw_GBps", "us": "time_us"})
"""Unit of a claim -> column of NCCL's tests."""
DECIMAL = MappingProxyType({"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9})
"""Suffixes by which tables round a size."""
LONG_BYTES = 2**34
"""Size that a claim without one is judged at: its peak."""
CARDS = MappingProxyType({"A3 Mega": "200g"})
"""Machines that rows of several nodes name -> rate of each of their eight cards (Google Cloud, A3 Mega)."""
FROM_BYTES = 2**30
"""Size from which rows of several nodes are judged: below, the latency of their software counts."""
KEPT = ("source", "config", "caller", "gpus_per_process")
"""Columns of a claim that say how it was measured."""
_METRIC = r"(?:all-reduce|AR|peak AR)\b.*(?:busbw|time)"


def is_collective(record: Record) -> bool:
    """Return whether a row has columns of NCCL's tests, or claims a result of them."""
    named = record.text("gpu") and any(record.text(column) for column in COLUMNS)
    claimed = re.match("NCCL", record.text("system")) and re.match(_METRIC, record.text("metric"))
    return bool(named or claimed)


def collective_outcome(record: Record) -> Outcome:
    """Return what becomes of a row about a collective.

    Raises
    ------
    ParameterError
        If it holds a number that cannot be one.
    """
    if record.text("gpu"):
        return validate_collectives([record])[0]
    name = " ".join(record.text(one) for one in ("system", "metric", "config") if record.text(one))
    source = record.text("source") or "no source"
    try:
        check_provenance(record)
        outcome = validate_collectives([_plain(record, name)])[0]
    except ParameterError:
        raise
    except HeliographError as error:
        return Outcome(id=name, source=source, unit="s", measured=None, skipped=str(error))
    return outcome


def _plain(record: Record, name: str) -> Record:
    """Return a claim as columns of NCCL's tests.

    Raises
    ------
    SkipError
        If it names no GPU, had the switches' sums switched off, has no known unit, or is of nodes of which
        too little is known.
    """
    system = f"{record.text('system')} {record.text('metric')}"
    if "disabled" in system:
        msg = "switches that do not add are judged beside the rows, with the table of bus bandwidths"
        raise SkipError(msg)
    nodes = re.search(r"\b(\d+)x(\d+) ([A-Z]+\d+)", system)
    if nodes:
        return _between_nodes(record, name, int(nodes[1]) * int(nodes[2]), nodes[3])
    found = re.search(r"\b(\d+)x([A-Z]+\d+)", system) or re.search(r"()\b([A-Z]+\d+)\b.*?(\d+) GPU", system)
    if not found:
        msg = f"'{system[:60]}' names no number of a GPU such as 8xH100"
        raise SkipError(msg)
    return _claimed(record, name, int(found[1] or found[3]), found[2], _size_bytes(record.text("config")))


def _between_nodes(record: Record, name: str, ranks: int, gpu: str) -> Record:
    """Return a claim about several nodes as columns of NCCL's tests.

    Raises
    ------
    SkipError
        If the nodes' cards are not known, or the message is short.
    """
    known = [cards for machine, cards in CARDS.items() if machine in record.text("system")]
    if not known:
        msg = f"'{record.text('system')[:60]}' has several nodes and names no machine of {', '.join(CARDS)}"
        raise SkipError(msg)
    size_bytes = _size_bytes(record.text("config"))
    if size_bytes < FROM_BYTES:
        msg = (
            f"collectives of several nodes are judged from {format_si(FROM_BYTES, 'B')} on: no source "
            "gives the latency of the software between them"
        )
        raise SkipError(msg)
    return _claimed(record, name, ranks, gpu, size_bytes, cards=known[0])


def _claimed(record: Record, name: str, ranks: int, gpu: str, size_bytes: int, *, cards: str = "") -> Record:
    """Return a claim as columns of NCCL's tests.

    Raises
    ------
    SkipError
        If it has no known unit or no value.
    """
    column = UNITS.get(record.text("unit"))
    if column is None:
        msg = f"unit '{record.text('unit')}' is neither GB/s of bus bandwidth nor us"
        raise SkipError(msg)
    if not record.number("value"):
        msg = f"value '{record.text('value')}' is no time and no bandwidth"
        raise SkipError(msg)
    kept = {one: record.text(one) for one in KEPT}
    cells = {**kept, "id": name, "gpu": gpu, "n_gpus": str(ranks), "cards": cards}
    return Record(record.where, cells | {"bytes": str(size_bytes), column: record.text("value")})


def _size_bytes(config: str) -> int:
    """Return a size such as 32KiB or 8 B, or the power of two that is nearest to a rounded 132K.

    Notes
    -----
    The tables that print K and M list powers of two, some by 1000 and some by 1024, rounded; both readings
    have the same nearest power.
    """
    found = re.match(r"size (\d+(?:\.\d+)?) ?([KMG]?)(i?)B?(?=[;,\s]|$)", config)
    if not found:
        return LONG_BYTES
    if found[3]:
        return round(float(found[1]) * 2 ** (10 * " KMG".index(found[2])))
    value = float(found[1]) * DECIMAL[found[2]]
    return round(value) if not found[2] else 2 ** round(math.log2(value))

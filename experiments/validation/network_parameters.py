"""Published numbers of networks that nothing predicts: those that parts are given, and several in one row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from experiments.validation.cells import Record

PARAMETERS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Palomar/Apollo OCS$", "ports$|reconfiguration time|insertion loss|power"): "palomar-mems",
        ("Calient S320$", "bulk reconfiguration|insertion loss"): "mems-320",
        ("Lumentum R300$", "ports$"): "mems-320, of the same kind",
        (r"Polatis", "ports$|insertion loss"): "polatis-piezo",
        ("Coherent DLC/LCoS", "relative price"): "liquid-crystal",
        ("InfiniteHBD$", "OCSTrx switching latency"): "transceiver-switch",
        ("Rotor switch", "ports$"): "rotor",
        ("Sirius$", "laser tuning|end-to-end reconfiguration"): "sirius-awgr",
        ("Mordia-type", "program|switch|receiver"): "rotor's relock, measured with that switch",
        ("800G module, DSP", "power$"): "dr8-800g",
        ("800G module, LPO", "power$"): "lpo-800g",
        ("NVIDIA pluggable vs CPO", "power per port"): "dr8-1600g and cpo-1600g",
        ("TPU v4$", "ICI links per chip"): "ici-v4",
        ("TPU v4$", "OCS switching time"): "palomar-mems",
        ("InfiniteHBD trace$", "availability|MTBF"): "infinite-hbd of reliability.csv",
        ("NVLink$", "unidirectional"): "nvlink2 to nvlink5",
        ("NCCL tuner$", "base latency|per-hop|NVLS efficiency|per-channel"): "ll, ll128, simple and nvls",
        ("ASTRA-sim$", "HGX"): "a setting of the runs in columns",
        ("RotorNet$", "rotor reconfiguration"): "rotor",
    }
)
"""How system and metric of a row read, and the part whose parameter the number is."""
_PART = re.compile(r"\s+/\s+")


def parameter_of(record: Record) -> str | None:
    """Return the part that is given a row's number, or None if there is none."""
    system, metric = record.text("system"), record.text("metric")
    for (system_pattern, metric_pattern), part in PARAMETERS.items():
        if re.match(system_pattern, system) and re.match(metric_pattern, metric):
            return part
    return None


def claims_of(record: Record) -> Iterator[Record]:
    """Yield a claim, or one for each number of ``a / b / c`` whose metric names as many.

    ``23x less / 4x less`` of ``network power / cost`` is 23 of ``network power`` and 4 of ``cost``.
    """
    values = _PART.split(record.text("value"))
    metrics = _PART.split(record.text("metric"))
    if len(values) != len(metrics) or len(values) == 1:
        yield record
        return
    for value, metric in zip(values, metrics, strict=True):
        yield Record(record.where, record.cells | {"value": value, "metric": metric})

"""Tables beside `heliograph validate network`: claims, assumptions changed one by one, NCCL's rates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from electronic.devices import load_transceiver
from electronic.fabrics.collectives import collective_plan
from electronic.gpu import load_gpu
from experiments.validation.collectives import NEEDS as COLLECTIVE_COLUMNS
from experiments.validation.collectives import bus_bytes, outcome
from experiments.validation.network import NEEDS, outcomes
from experiments.validation.network_costs import (
    OPUS_GPUS,
    Parts,
    hbd_ratios,
    network_usd,
    network_w,
    opus_bills,
    paper_parts,
    paper_prices,
    sirius_saving,
    topoopt_mean,
    tpu_optics,
)
from experiments.validation.network_costs import RULES as COST_RULES
from experiments.validation.network_failures import RULES as FAILURE_RULES
from experiments.validation.peers.astra_sim_traces import runs_record, runs_text, traces_record, traces_text
from experiments.validation.rows import Beside, Record, read_records
from heliograph.report import ReportRow, or_dash, table_text
from optical.fabrics.switches import load_switch
from simulator.operators import CollectiveKind
from simulator.topology.torus import TPU_V4
from simulator.units import BITS_PER_BYTE

CARD_BITS_PER_S = load_transceiver("dr4-400g").bandwidth_bytes_per_s * BITS_PER_BYTE
"""Rate of a card's module in both networks of Opus."""
DOUBLE_DETOUR = 2.0
"""Uplinks of Sirius over those of a non-blocking network if every byte takes two hops; dimensionless."""


AVAILABILITIES = (0.99, 0.995, 0.999)
"""Shares of time that a host is up; dimensionless (arXiv:2304.01433, figure 4)."""
SLICE_CUBES = (1, 2, 4, 8, 16, 32, 48, 64)
"""Cubes of a slice: 64 to 4096 chips."""
REFERENCE = Path(__file__).parent / "reference"
"""Tables that ship."""
GIGABYTE = 1e9
"""Bytes by which NCCL quotes bandwidth."""
ALGORITHMS = ("NVLS", "Ring")
"""What a row's setting may name; a row that names both is of the first from 2 MiB on."""
RECALLED_CLAIMS = (
    {
        "system": "TopoOpt",
        "metric": "Ideal switch cost / TopoOpt cost",
        "value": "3.2",
        "unit": "x",
        "config": "recalled, not judged",
        "source": "Wang et al., TopoOpt, NSDI 2023",
    },
)
"""Claims that nobody has looked up, shown beside the others and counted nowhere."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A published ratio by our bill with one assumption changed."""

    claim: str
    """System and metric."""
    published: str
    """What is published."""
    change: str
    """What is changed, alone."""
    value: float
    """Our value then; dimensionless."""

    @property
    def text(self) -> str:
        """The value as shown, in per cent if it is published so."""
        return f"{self.value:.1%}" if "%" in self.published else f"{self.value:.2f}"


@cache
def differences() -> tuple[Difference, ...]:
    """Return all changes of all claims that our bills miss."""
    return (*_opus(), *_sirius(), *_tpu(), *_infinite_hbd(), *_topoopt())


def differences_text(found: Iterable[Difference]) -> str:
    """Return the same as a table."""
    rows, before = [], ""
    for one in found:
        label = one.change if one.claim == before else f"{one.claim} ({one.published}): {one.change}"
        rows.append(ReportRow(label if one.claim != before else f"    {label}", (one.text,)))
        before = one.claim
    title = "What explains the difference: our bills with one assumption changed at a time"
    return table_text(title, ("ours",), rows, dense=True)


def _changed(claim: str, published: str, values: Mapping[str, float]) -> list[Difference]:
    """Return a claim's values by what is changed."""
    return [
        Difference(claim=claim, published=published, change=change, value=value)
        for change, value in values.items()
    ]


def _opus() -> list[Difference]:
    names = {network_w: ("Opus, network power", "23"), network_usd: ("Opus, network cost", "4")}
    found = []
    for total, told in names.items():
        ratios = {change: total(ours) / total(theirs) for change, ours, theirs in _opus_changes()}
        found += _changed(*told, ratios)
    return found


def _opus_changes() -> Iterator[tuple[str, Parts, Parts]]:
    """Yield what changes, and the bills of packet rails and of photonic rails then."""
    packet, optical = opus_bills()
    yield "as it stands: 400G modules with signal processors at all cards", packet, optical
    for name, what in (("lpo-800g", "linear modules"), ("cpo-1600g", "co-packaged optics")):
        module = load_transceiver(name)
        part = CARD_BITS_PER_S / (BITS_PER_BYTE * module.bandwidth_bytes_per_s)
        lanes = replace(
            optical["optical lane"], w_each=part * module.static_w, usd_each=part * module.price_usd
        )
        yield f"{what} at the cards of photonic rails alone", packet, {**optical, "optical lane": lanes}
    yield "no module at a card counted, on either side", *opus_bills(cards=False)
    mems = load_switch("palomar-mems")
    port = replace(
        optical["optical switch"],
        count=OPUS_GPUS,
        w_each=mems.static_w / mems.usable_ports,
        usd_each=mems.ports * mems.port_price_usd / mems.usable_ports,
    )
    yield "Palomar's ports instead of Polatis's", packet, {**optical, "optical switch": port}


def _sirius() -> list[Difference]:
    changes = {
        "as it stands: three levels, racks' switches on neither side": sirius_saving(3, racks=False),
        "two uplinks for each, all traffic by detours": sirius_saving(3, racks=False, uplinks=DOUBLE_DETOUR),
        "racks' switches counted": sirius_saving(3, racks=True),
        "racks' switches counted, four levels of packet switches": sirius_saving(4, racks=True),
        "racks' switches counted, five levels": sirius_saving(5, racks=True),
    }
    return _changed("Sirius, power less", "74 to 77 %", changes)


def _tpu() -> list[Difference]:
    power_w, price_usd = tpu_optics()
    chip, switch = load_gpu("tpu-v4"), load_switch("palomar-mems")
    lanes = 4 * TPU_V4.fibres
    switches_usd = TPU_V4.switches * switch.ports * switch.port_price_usd
    paper_usd = paper_prices("topoopt").transceiver_usd
    cheap_usd = switches_usd + lanes * paper_usd
    costs = {
        "as it stands: resold modules, chips alone": (price_usd, chip.price_usd),
        f"a lane of 100G at {paper_usd:.0f} USD, TopoOpt's 100G module": (cheap_usd, chip.price_usd),
        "a chip with host and rack at twice the chip": (price_usd, 2 * chip.price_usd),
        "both": (cheap_usd, 2 * chip.price_usd),
        "switches alone, no module counted": (switches_usd, chip.price_usd),
    }
    switches_w = TPU_V4.switches * switch.static_w
    linear_w = TPU_V4.fibres * load_transceiver("lpo-800g").static_w / 2
    powers = {
        "as it stands: 400G modules with signal processors, chips alone": (power_w, chip.chip.tdp_w),
        "modules of linear drive": (switches_w + linear_w, chip.chip.tdp_w),
        "a chip with host and cooling at twice the chip": (power_w, 2 * chip.chip.tdp_w),
        "both": (switches_w + linear_w, 2 * chip.chip.tdp_w),
    }
    found = []
    for what, published, changes in (("cost", "< 5 %", costs), ("power", "< 3 %", powers)):
        shares = {
            change: optics / (optics + TPU_V4.nodes * each) for change, (optics, each) in changes.items()
        }
        found += _changed(f"TPU v4, optics' share of {what}", published, shares)
    return found


def _infinite_hbd() -> list[Difference]:
    ratios, ring, rival = hbd_ratios(), paper_parts("infinite-hbd"), paper_parts("nvl-72")
    changes = {
        "the paper's parts and prices for each GB/s": ratios["paper"],
        "the same for an accelerator": ring.usd / rival.usd,
        "our bills for an accelerator": ratios["as built"],
        "our ring over the paper's domain": ratios["ring"] / rival.usd,
        "the paper's ring over our domain": ring.usd / ratios["domain"],
        "our bills at the same rate": ratios["same rate"],
    }
    return _changed("InfiniteHBD over NVL-72, cost", "31 %", changes)


def _topoopt() -> list[Difference]:
    ratios = {
        "as it stands: a card for each interface": topoopt_mean(),
        "a card for two interfaces": topoopt_mean(cards=0.5),
        "no cards": topoopt_mean(cards=0.0),
        "one panel port and no look-ahead": topoopt_mean(ahead=False),
        "both: a card for two, no look-ahead": topoopt_mean(cards=0.5, ahead=False),
    }
    return _changed("TopoOpt, ideal switch over it", "3.2, recalled", ratios)


def slices_record() -> list[dict[str, Any]]:
    """Return goodput by slice and availability, with circuits and without."""
    return [
        {
            "chips": cubes * TPU_V4.nodes_per_cube,
            "host_availability": up,
            "with_circuits": TPU_V4.goodput(cubes, up),
            "without_circuits": TPU_V4.static_goodput(cubes, up),
        }
        for cubes in SLICE_CUBES
        for up in AVAILABILITIES
    ]


def slices_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the same as a table."""
    lines: dict[int, list[str]] = {}
    for one in found:
        cells = lines.setdefault(one["chips"], [])
        cells += [f"{one['with_circuits']:.1%}", f"{one['without_circuits']:.1%}"]
    columns = tuple(f"{up:.1%} {how}" for up in AVAILABILITIES for how in ("OCS", "fixed"))
    rows = [ReportRow(f"{chips} chips", tuple(cells)) for chips, cells in lines.items()]
    title = "Goodput of TPU v4's slices by hosts' availability: circuits (OCS), fixed slices"
    return table_text(title, columns, rows, dense=True)


@dataclass(frozen=True, kw_only=True)
class Ring:
    """A published bus bandwidth of the ring where the switches could add but did not."""

    gpu: str
    """GPU."""
    ranks: int
    """How many, in one node."""
    size_bytes: int
    """Long message."""
    measured_gb_per_s: float
    """Published."""
    source: str
    """Publication."""


RINGS = (
    Ring(gpu="h200", ranks=8, size_bytes=2**34, measured_gb_per_s=367.61, source="Bekman, ML Engineering"),
    Ring(gpu="h100", ranks=8, size_bytes=2**34, measured_gb_per_s=370.0, source="nccl-tests issue 212"),
)
"""Rings beside the in-network reductions of the same GPUs."""


@cache
def claims_record() -> list[dict[str, Any]]:
    """Return cost, power and failures against what is published, with assumptions and reasons."""
    modelled = {**COST_RULES, **FAILURE_RULES}
    records = read_records(REFERENCE / "network.csv", needs=NEEDS)
    own = [record for record in records if _matches(record, modelled)]
    own += [Record(f"recalled:{place}", dict(one)) for place, one in enumerate(RECALLED_CLAIMS, 1)]
    return [found.record() | {"why": found.hint} for one in own for found in outcomes(one)]


def _matches(record: Record, modelled: Iterable[tuple[str, str]]) -> bool:
    system, metric = record.text("system"), record.text("metric")
    return bool(system) and any(re.match(m, metric) and re.match(s, system) for s, m in modelled)


def claims_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the same as a table, and below it what is assumed and why ours differs."""
    rows = [
        ReportRow(
            one["id"],
            (
                or_dash(one["measured"], "{:.3g}"),
                or_dash(one["predicted"], "{:.3g}"),
                f"{one['relative_error'] or 0.0:+.0%}",
            ),
        )
        for one in found
    ]
    title = "Cost, power and failures: published, and from our bills of materials"
    lines = [f"  {one['id']}: {'; '.join(filter(None, (*one['assumed'], one['why'])))}\n" for one in found]
    table = table_text(title, ("published", "ours", "difference"), rows, dense=True)
    return f"{table}\nWhat each rests on, and why it differs:\n{''.join(lines)}"


@cache
def collectives_record() -> list[dict[str, Any]]:
    """Return, of every published series of all-reduces, the bus bandwidth of its longest message."""
    records = read_records(REFERENCE / "collectives.csv", needs=COLLECTIVE_COLUMNS)
    series: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        series.setdefault((record.text("source"), record.text("gpu")), []).append(record)
    found = []
    for (source, gpu), rows in series.items():
        longest = max(rows, key=lambda record: record.number("bytes") or 0.0)
        errors = [one.relative_error for one in map(outcome, rows) if one.relative_error is not None]
        one = outcome(longest)
        if one.measured is None or one.predicted is None:
            continue
        ranks = longest.whole("n_gpus_one_node") or longest.needed("n_gpus")
        moved = bus_bytes(CollectiveKind.ALL_REDUCE, ranks, longest.needed("bytes")) / GIGABYTE
        config = longest.text("config")
        found.append(
            {
                "source": source,
                "series": f"{ranks} {gpu}, {next((a for a in ALGORITHMS if a in config), 'ring or tree')}",
                "rows": len(errors),
                "measured_gb_per_s": moved / one.measured,
                "predicted_gb_per_s": moved / one.predicted,
                "mean_abs_error": sum(map(abs, errors)) / len(errors),
            }
        )
    return [*found, *(_ring_alone(one) for one in RINGS)]


def _ring_alone(one: Ring) -> dict[str, Any]:
    nbytes = float(one.size_bytes)
    moved = bus_bytes(CollectiveKind.ALL_REDUCE, one.ranks, nbytes) / GIGABYTE
    predicted = moved / collective_plan(one.gpu, one.ranks, nbytes, in_network=False).alone_s
    return {
        "source": one.source,
        "series": f"{one.ranks} {one.gpu.upper()}, Ring, NVLS off",
        "rows": 1,
        "measured_gb_per_s": one.measured_gb_per_s,
        "predicted_gb_per_s": predicted,
        "mean_abs_error": abs(one.measured_gb_per_s / predicted - 1.0),
    }


def collectives_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the same as a table."""
    rows = [
        ReportRow(
            one["series"],
            (
                str(one["rows"]),
                f"{one['measured_gb_per_s']:.1f}",
                f"{one['predicted_gb_per_s']:.1f}",
                f"{one['mean_abs_error']:.1%}",
            ),
            one["source"],
        )
        for one in found
    ]
    title = "NCCL all-reduce: bus bandwidth of the longest message, GB/s; mean error over all sizes"
    return table_text(title, ("rows", "published", "ours", "mean error"), rows, dense=True)


BESIDE = (
    Beside(name="rings", find=runs_record, text=runs_text),
    Beside(name="traces", find=lambda _: traces_record(), text=traces_text),
    Beside(name="claims", find=lambda _: claims_record(), text=claims_text),
    Beside(name="differences", find=lambda _: differences(), text=differences_text),
    Beside(name="slices", find=lambda _: slices_record(), text=slices_text),
    Beside(name="collectives", find=lambda _: collectives_record(), text=collectives_text),
)
"""Tables beside the published networks, first that of the runs among the rows."""

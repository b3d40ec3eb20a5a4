"""Checks of cores: the laws that every core must obey, and predicted precision against execution.

The first check is for authors of a core and names every law that it breaks. The second compares predicted and
executed signal over noise of every core and number format, on every kind of operands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from electronic.formats import FORMATS
from experiments.cores.one import length_text, photonic_unit
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.precision import (
    LENGTHS,
    ROWS,
    captured_products,
    format_precision,
    phase_of,
    told_kinds,
)
from heliograph.core_laws import Fault, laws_asked
from heliograph.report import table_of
from heliograph.systems import build_system
from heliograph.systems.names import DEFAULT_CORE, every_core
from optical.cores import CORES, load_core
from optical.cores.core import Core
from optical.cores.sizing import with_laser_for
from optical.execution import AnalogSpec
from optical.execution.precision import predicted
from simulator.amounts import Reals
from simulator.errors import ParameterError, nearest
from simulator.operands.captured import CapturedProduct, captured_statistics, load_captured, measure_product
from simulator.operands.statistics import OperandKind, Operands, Precision, operands_of, signal_to_noise_db
from simulator.operators import Phase
from simulator.plugins import is_reference
from simulator.units import db_from_ratio, ratio_from_db


@dataclass(frozen=True, kw_only=True)
class CheckedCore(Result):
    """Result of the laws on one core."""

    core: str
    """The core."""
    laws: tuple[str, ...]
    """Names of the laws that were checked."""
    faults: tuple[Fault, ...]
    """All faults; none if the core obeys every law."""

    @property
    def broken(self) -> int:
        """Number of laws with a fault."""
        return len({one.law for one in self.faults})

    def report(self) -> list[Block]:
        """Return every fault, or that there is none."""
        if not self.faults:
            return [f"Core '{self.core}' keeps all {len(self.laws)} laws."]
        return [f"- {one}" for one in self.faults]

    def failure(self) -> str:
        """Return the number of broken laws in a sentence; empty if there is none."""
        if not self.faults:
            return ""
        return f"core '{self.core}' breaks {self.broken} of {len(self.laws)} laws"

    def record(self) -> dict[str, Any]:
        """Return the faults as plain data."""
        faults = [{"law": one.law, "fault": one.text} for one in self.faults]
        return {"core": self.core, "laws": list(self.laws), "faults": faults}

    def rows(self) -> list[Row]:
        """Return a row for each fault, and one for each law without a fault."""
        rows: list[Row] = []
        for law in self.laws:
            texts = [one.text for one in self.faults if one.law == law]
            common: Row = {"core": self.core, "law": law, "kept": not texts}
            rows += [common | {"fault": text} for text in texts or [""]]
        return rows


@dataclass(frozen=True, kw_only=True)
class CheckCore(Study):
    """Check of one core against every law of cores."""

    core: str = option(..., "core by name, or FILE.py:CLASS", positional=True)
    unused: tuple[str, ...] = option(
        (),
        "number, or part with all of its numbers, that the core takes over and has no use for "
        "(core.waveguide); may be repeated",
        metavar="PATH",
    )

    def run(self, progress: Progress) -> CheckedCore:
        """Return every fault of the core."""
        laws, faults = laws_asked(load_core(self.core), unused=self.unused), list[Fault]()
        for done, (law, check) in enumerate(laws.items()):
            progress(law.replace("_", " "), done, len(laws))
            faults += check()
        progress("asked", len(laws), len(laws))
        return CheckedCore(core=self.core, laws=tuple(laws), faults=tuple(faults))


AGREEMENT_DB = 0.5
"""Difference up to which prediction and execution count as agreeing; a choice."""
CAPTURED_ROWS = 96
"""Rows and columns of executed captured products; a choice."""
CERTAIN, MORE_DRAWS = 0.02, 4
"""Operands are drawn until noise over signal has this relative standard error, at most this many times the
requested draws, since loud channels differ from draw to draw. Choices."""
GAIN_ERROR, MOST_ROWS = 0.05, 640
"""Relative standard error of the fitted gain that sets the number of executed outputs, and most rows.
Far below 0 dB a few outputs do not determine the gain: 128 x 128 at -30 dB err by a quarter. Choices."""
FAINT_DB, FAINT_DRAWS = -8.0, 8
"""Signal over noise below which captured products are executed with this many draws of the noise and one gain
fitted to all of them: their power lies in few rows, whose noise alone would move the gain. Choices."""
SIZED_FOR = "fp8"
"""Number format whose precision on captured operands the default core's laser is sized for."""
_QUIET = (OperandKind.UNIFORM, OperandKind.GAUSSIAN)
"""Kinds of operands for which one draw is enough."""


@dataclass(frozen=True, kw_only=True)
class PrecisionCheck:
    """Predicted and executed signal over noise of one core or format on one kind of operands."""

    machine: str
    """Name of the core or number format."""
    operands: OperandKind
    """Statistics of the operands."""
    length: int | None
    """Length K of the sums; None for captured products, which have their own lengths and are averaged."""
    predicted_db: float
    """Predicted signal over noise."""
    executed_db: float
    """Executed signal over noise, from the mean of noise over signal over draws."""
    worst: str
    """Cause of most of the noise."""

    @property
    def difference_db(self) -> float:
        """Predicted less executed."""
        return self.predicted_db - self.executed_db


@functools.cache
def core_of(machine: str) -> Core:
    """Return a core by name; the default core with its parts, its laser sized for `SIZED_FOR`."""
    if machine != DEFAULT_CORE:
        return load_core(machine)
    system = build_system("photonic_packet", core=DEFAULT_CORE, accelerators=1)
    products = captured_products()
    told = format_precision(FORMATS[SIZED_FOR], products)
    return with_laser_for(photonic_unit(system).core, told.snr_db, products)


def executed(
    machine: str, a: Reals, b: Reals, phase: Phase, keys: Sequence[int], *, by_sample: bool = False
) -> float:
    """Return the signal-to-noise ratio of one executed product in decibels.

    Parameters
    ----------
    machine : str
        Core or number format by name.
    a, b : numpy.ndarray
        Operands, shapes [M, K] and [K, N].
    phase : Phase
        Phase of the product.
    keys : sequence of int
        Keys of the core's noise; the product is executed with each, and one gain is fitted to all.
    by_sample : bool
        Whether the samples of a sum have a draw each, as on the chip, instead of one draw for all.
    """
    exact = a @ b
    if machine in FORMATS:
        return signal_to_noise_db(exact, FORMATS[machine].product(a, b, phase))
    spec = core_of(machine).analog(phase)
    results = [_on_core(spec, a, b, key, by_sample=by_sample) for key in keys]
    return signal_to_noise_db(np.concatenate([exact] * len(results)), np.concatenate(results))


def _on_core(spec: AnalogSpec, a: Reals, b: Reals, key: int, *, by_sample: bool) -> Reals:
    """Return the product as a core executes it, shape [M, N]."""
    import torch  # noqa: PLC0415 - products are executed here

    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - the same

    single = (torch.tensor(np.ascontiguousarray(x, dtype=np.float32))[None] for x in (a, b))
    found: Reals = AnalogNumerics(spec, exact_tiles=by_sample).matmul(*single, key)[0].double().numpy()
    return found


def _predicted(machine: str, operands: Operands, length: int, rows: int, phase: Phase) -> Precision:
    """Return the predicted precision of a core or format for products of as many columns as rows."""
    sizes = {"rows": rows, "columns": rows}
    if machine in FORMATS:
        return FORMATS[machine].predicted(operands, length, phase=phase, **sizes)
    return predicted(core_of(machine).analog(phase), operands, length, **sizes)


def rows_for(snr_db: float, least: int) -> int:
    """Return the number of rows, and columns, that determine the fitted gain to `GAIN_ERROR`."""
    outputs = ratio_from_db(-snr_db) / GAIN_ERROR**2
    return min(MOST_ROWS, max(least, math.ceil(math.sqrt(outputs))))


def check_precision(machine: str, kind: OperandKind, length: int, draws: int) -> PrecisionCheck:
    """Return prediction and execution on one kind of operands and one length.

    Notes
    -----
    Operands with outliers are executed sample by sample: a few samples hold the loud channels and clip, which
    one draw for all samples only approximates.
    """
    operands, phase = operands_of(kind), phase_of(kind)
    rows = rows_for(_predicted(machine, operands, length, ROWS, phase).snr_db, ROWS)
    ratios: list[float] = []
    for seed in range(1 if kind in _QUIET else MORE_DRAWS * draws):
        a, b = operands.draw(np.random.default_rng(seed), rows, length, rows)
        found_db = executed(machine, a, b, phase, (seed,), by_sample=kind is OperandKind.OUTLIERS)
        ratios.append(ratio_from_db(-found_db))
        if seed + 1 >= draws > 1 and np.std(ratios, ddof=1) < CERTAIN * np.mean(ratios) * math.sqrt(seed + 1):
            break
    found = _predicted(machine, operands, length, rows, phase)
    return PrecisionCheck(
        machine=machine,
        operands=kind,
        length=length,
        predicted_db=found.snr_db,
        executed_db=-db_from_ratio(math.fsum(ratios) / len(ratios)),
        worst=found.worst,
    )


def check_captured(machine: str, products: Iterable[CapturedProduct]) -> PrecisionCheck:
    """Return prediction and execution on captured products; noise over signal is averaged over products.

    Notes
    -----
    The prediction takes the statistics of the very operands that are executed, measured as those of a trained
    model are: operands drawn from a table do not have a coherence far from one. Samples are executed one by
    one, since converters clip some of them.
    """
    predicted_noise, executed_noise = [], []
    for place, product in enumerate(products):
        operands = captured_statistics(product)
        expected_db = _predicted(machine, operands, product.k, CAPTURED_ROWS, product.phase).snr_db
        rows = rows_for(expected_db, CAPTURED_ROWS)
        a, b = product.draw(rows, rows, np.random.default_rng(place))
        keys = range(place, place + (FAINT_DRAWS if expected_db < FAINT_DB else 1))
        executed_noise.append(ratio_from_db(-executed(machine, a, b, product.phase, keys, by_sample=True)))
        drawn = measure_product(
            a[None],
            b[None],
            model=product.model,
            layer=product.layer,
            product=product.product,
            phase=product.phase,
        )
        found = _predicted(machine, captured_statistics(drawn), product.k, rows, product.phase)
        predicted_noise.append(found.total)
    return PrecisionCheck(
        machine=machine,
        operands=OperandKind.CAPTURED,
        length=None,
        predicted_db=-db_from_ratio(float(np.mean(predicted_noise))),
        executed_db=-db_from_ratio(float(np.mean(executed_noise))),
        worst=found.worst,
    )


@dataclass(frozen=True, kw_only=True)
class PrecisionChecks(Result):
    """Predicted and executed precision of cores and formats."""

    found: tuple[PrecisionCheck, ...]
    """A check for each machine, kind of operands and length."""

    def report(self) -> list[Block]:
        """Return the table, and the largest difference."""
        columns: dict[str, Callable[[PrecisionCheck], str]] = {
            "predicted": lambda one: f"{one.predicted_db:.1f}",
            "executed": lambda one: f"{one.executed_db:.1f}",
            "difference": lambda one: f"{one.difference_db:+.2f}",
            "most noise": lambda one: one.worst,
        }

        def name(one: PrecisionCheck) -> str:
            return f"{one.machine}, {one.operands}, {length_text(one.length)}"

        title = "Signal over noise of products, dB"
        table = table_of(title, self.found, name, columns, section=lambda one: one.machine)
        drawn = [one for one in self.found if one.operands is not OperandKind.CAPTURED]
        lines = []
        for kind, group in (("drawn", drawn), ("captured", [x for x in self.found if x not in drawn])):
            if group:
                worst = max(group, key=lambda one: abs(one.difference_db))
                within = sum(abs(one.difference_db) <= AGREEMENT_DB for one in group)
                lines.append(
                    f"On {kind} operands {within} of {len(group)} within {AGREEMENT_DB:g} dB; the largest "
                    f"difference is {worst.difference_db:+.2f} dB ({worst.machine}, {worst.operands})."
                )
        return [table, *lines]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"held": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each prediction."""
        return [
            {
                "machine": one.machine,
                "operands": str(one.operands),
                "length": "" if one.length is None else one.length,
                "predicted_db": one.predicted_db,
                "executed_db": one.executed_db,
                "difference_db": one.difference_db,
                "worst": one.worst,
            }
            for one in self.found
        ]


@dataclass(frozen=True, kw_only=True)
class PredictedPrecision(Study):
    """Predicted signal over noise of products against execution."""

    directory = "precision"

    machines: str = option("", "cores and number formats, separated by commas; default: all", metavar="NAMES")
    draws: int = option(6, "draws of operands with outliers and of gradients, at least", metavar="N")
    layers: int = option(2, "layers of each captured model, 0 for none", metavar="N")

    def run(self, progress: Progress) -> PrecisionChecks:
        """Return every machine on every kind of operands and length, and on captured products."""
        if self.draws < 1 or self.layers < 0:
            msg = f"draws ({self.draws}) must be at least 1 and layers ({self.layers}) at least 0"
            raise ParameterError(msg)
        for name in self._names:
            if name in (DEFAULT_CORE, *CORES, *FORMATS) or is_reference(name):
                continue
            known = (DEFAULT_CORE, *every_core(), *FORMATS)
            if name not in known:
                msg = f"no core or number format '{name}'; {nearest(name, known)}"
                raise ParameterError(msg)
        return PrecisionChecks(found=tuple(self._checks()))

    @property
    def _names(self) -> tuple[str, ...]:
        return (
            tuple(name.strip() for name in self.machines.split(","))
            if self.machines
            else (DEFAULT_CORE, *every_core(), *FORMATS)
        )

    def _checks(self) -> Iterator[PrecisionCheck]:
        captured = [one for one in load_captured() if one.layer < self.layers]
        for machine in self._names:
            for kind in told_kinds():
                for length in LENGTHS:
                    yield check_precision(machine, kind, length, self.draws)
            if captured:
                yield check_captured(machine, captured)

"""Groups of options that studies share, for workload and hardware; and the command ``heliograph step``."""

from __future__ import annotations

import dataclasses
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.parameters import status_counts
from heliograph.records import canonical_json, check_writable, row_of, write_atomically
from heliograph.report import ReportTable
from heliograph.simulation import StepResult, lit_for_all, run_at_target, wear_warnings
from heliograph.systems import System, build_system
from heliograph.systems.names import DEFAULT_ACCELERATORS, DEFAULT_CORE
from heliograph.tables import comparison_rows
from heliograph.workload import model_named, plan_on, ranks_of
from simulator.errors import HeliographError, ParameterError, SuspectWarning
from simulator.node import Penalties
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import plan_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.figure import Figure

    from simulator.results import Trace

BESIDE_PRODUCTS = ("fabric", "host", "economics", "penalties")
"""Parts of a system that have no effect on the results of products."""
CROSSBAR = "photonic_packet:crossbar"
"""Default system of studies that execute products."""
LIGHTING = ".lighting."
"""Part of the paths of parameters that set the precision for which lasers are sized."""
SYSTEM = "system by name, or a TOML file"
"""Help text of options that name a system."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Group of options: model and plan."""

    model: str = option("llama-3.1-405b", "model by name, or a config.json")
    plan: str = option("", "tp=8,pp=16,dp=8,micro_batch=1,global_batch=512,... (heliograph list plan)")


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Group of options: the GPU, and the basis for the size of photonic accelerators that replace it."""

    gpu: str | None = option(None, "the GPU, or the one that light replaces; default h100")
    basis: str | None = option(None, "size photonic accelerators by power, area or count; default power")

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as arguments of `build_system`."""
        return {
            name: value for name, value in (("gpu", self.gpu), ("basis", self.basis)) if value is not None
        }


def changes(text: str = "") -> Any:  # noqa: ANN401 - a field of any type
    """Return the field of ``--set``: changes of the hardware, each ``path=value``."""
    usual = (
        "change one number of the hardware (heliograph show SYSTEM lists the paths), or one part by its name "
        "(core.adc=NAME, heliograph list parts) or what a file says of it (core.crossing=FILE.s4p); may be "
        "repeated"
    )
    return option((), text or usual, flag="--set", metavar="PATH=VALUE")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Group of options: changes of the named system's hardware."""

    core: str | None = option(
        None, f"core of photonic accelerators (heliograph list cores); default {DEFAULT_CORE}"
    )
    fabric: str | None = option(
        None,
        "fabric of packet systems (heliograph list fabrics), or graph:FILE (GraphML, or JSON node-link); "
        "default rails, or the torus of a TPU",
    )
    replaced: Replaced = field(default_factory=Replaced)
    penalties: Penalties | None = option(
        None, "accelerators that pay for host, company, the slowest of them and idle power; default both"
    )
    precision_target: str | None = option(
        None,
        "format whose signal-to-noise ratio light delivers (fp8, int8, ...), decibels, or none for the laser "
        "as it stands; default fp8, and the laser as it stands where products are only executed (accuracy)",
        metavar="fp8|int8|DB|none",
    )
    settings: tuple[str, ...] = changes()

    @property
    def assignments(self) -> tuple[str, ...]:
        """Changes of the system, ``path=value``: ``--set``, then penalties and precision target if given."""
        chosen = () if self.penalties is None else (f"penalties={self.penalties}",)
        return (*self.settings, *chosen, *_target_setting(self.precision_target))

    def given(self) -> dict[str, Any]:
        """Return the options that were given, as arguments of `build_system`."""
        more = (("core", self.core), ("fabric", self.fabric))
        return self.replaced.given() | {name: value for name, value in more if value is not None}

    def refuse_beside_products(self, systems: Iterable[System]) -> None:
        """Refuse options without effect in studies that only execute products.

        Raises
        ------
        ParameterError
            If one was given: fabric, penalties, basis, a parameter of `BESIDE_PRODUCTS`, or the GPU of a
            photonic system.
        """
        why = "products come out alike on any"
        refuse_unused(self, ("fabric", "penalties"), why)
        refuse_unused(self.replaced, ("basis",), why)
        given = [text.partition("=")[0].strip() for text in self.settings]
        for system in systems:
            if system.photonic is not None:
                refuse_unused(self.replaced, ("gpu",), why)
            beside = [f".{path}" for path, _ in system.settings if path.partition(".")[0] in BESIDE_PRODUCTS]
            unused = [key for key in given if any(path.endswith(f".{key}") for path in beside)]
            if unused:  # a file may describe more of a system than one study uses
                msg = f"--set {unused[0]} is not used: {why}; leave it out"
                raise ParameterError(msg)

    @property
    def crossbar(self) -> str:
        """Default system of studies that execute products: that of a crossbar, unless ``--core`` is given."""
        return CROSSBAR if self.core is None else CROSSBAR.partition(":")[0]

    @property
    def _has_target(self) -> bool:
        """Whether a target of precision was given, for which lasers are sized."""
        named = (text.partition("=")[0].strip() for text in self.settings)
        return self.precision_target is not None or any(LIGHTING in f".{name}" for name in named)

    def lit_for(self, systems: Iterable[System], config: TransformerConfig) -> list[System]:
        """Return systems, with lasers sized for a model's products if a target of precision was given."""
        if self._has_target:
            return [lit_for_all(one, config) for one in systems]
        return self.as_they_stand(systems)

    def as_they_stand(self, systems: Iterable[System]) -> list[System]:
        """Return systems whose lasers have the power of their parameters, instead of being sized.

        Raises
        ------
        ParameterError
            If a target of precision was given.
        """
        if self._has_target:
            msg = "a target of precision is not used: lasers stay as they stand; set laser_power_w instead"
            raise ParameterError(msg)
        return [dataclasses.replace(one, lighting=None) for one in systems]

    def counterpart(
        self, of: System, name: str, other: str | None, *, on: str, accelerators: int | None
    ) -> System:
        """Return the same accelerators on the other kind of network, without the changes of the fabric.

        Parameters
        ----------
        of, name : System, str
            The system, and its name.
        other : str, optional
            Name of the counterpart; by default that of the system with ocs in place of packet, or reversed.
        on : str
            Network of the counterpart, ``circuits`` or ``packets``; also the option that gives `other`.
        accelerators : int, optional
            Number that the user gave; by default that of the system.

        Raises
        ------
        ParameterError
            If the system is a file and no counterpart was named, or the numbers of accelerators differ.
        """
        if other is None and name.endswith(".toml"):
            msg = f"--system {name} is a file; name the same accelerators on {on} with --{on}"
            raise ParameterError(msg)
        settings = tuple(text for text in self.settings if not text.startswith("fabric."))
        found = dataclasses.replace(self, settings=settings).system(
            other or name.partition("@")[0].replace(*_NETWORKS[on]),
            accelerators=accelerators,
            usual_accelerators=of.accelerators,
        )
        if found.accelerators != of.accelerators:
            numbers = (
                f"'{of.name}' has {of.accelerators:,} accelerators and '{found.name}' {found.accelerators:,}"
            )
            msg = f"{numbers}; give both files one number, or --accelerators"
            raise ParameterError(msg)
        return found

    def system(
        self, name: str, *, accelerators: int | None = None, usual_accelerators: int = DEFAULT_ACCELERATORS
    ) -> System:
        """Return a named system with this hardware.

        Parameters
        ----------
        name : str
            Name of the system, or a TOML file.
        accelerators : int, optional
            Number that the user gave.
        usual_accelerators : int
            Number if neither the user nor the file gives one.
        """
        return build_system(
            name,
            accelerators=accelerators,
            usual_accelerators=usual_accelerators,
            **self.given(),
            assignments=self.assignments,
        )


_NETWORKS = {"circuits": ("packet", "ocs"), "packets": ("ocs", "packet")}
"""Word of a system's name that is replaced, and its replacement, by the network of the counterpart."""


def _target_setting(target: str | None) -> tuple[str, ...]:
    """Return the change ``path=value`` that sets a target of precision: a format, or decibels."""
    if target is None:
        return ()
    return (f"lighting.target={target}" if decibels_in(target) is None else f"lighting.target_db={target}",)


def decibels_in(target: str) -> float | None:
    """Return the decibels of a target of precision, ``24`` or ``24dB``; None of a format's name."""
    try:
        found_db = float(target.lower().removesuffix("db"))
    except ValueError:
        return None
    if not math.isfinite(found_db):
        msg = f"a target of signal over noise must be a finite number of decibels; got {target}"
        raise ParameterError(msg)
    return found_db


def one_step(system: str, workload: Workload, hardware: Hardware, *, accelerators: int | None) -> StepResult:
    """Run one step of a model on a system, with the given plan or the default one."""
    config = model_named(workload.model)
    usual = ranks_of(workload.plan) or DEFAULT_ACCELERATORS
    built = hardware.system(system, accelerators=accelerators, usual_accelerators=usual)
    return run_at_target(built, config, plan_on(built, config, workload.plan))


@dataclass(frozen=True, kw_only=True)
class SteppedOnce(Result):
    """Report, record and tables of one step."""

    result: StepResult
    """The simulated step."""
    chakra: str
    """Sentence that names the Chakra traces that were written; empty if there are none."""

    def report(self) -> list[Block]:
        """Return the table of the step."""
        record, plan = self.record(), plan_text(self.result.plan)
        title = f"{self.result.model} on {self.result.system.accelerators} accelerators, {plan}"
        blocks: list[Block] = [
            ReportTable(title, [record["system"]], comparison_rows([record], rest_note="see --json"))
        ]
        blocks += [f"\nWarning: {line}" for line in wear_warnings([record])]
        return blocks + ([f"\n{self.chakra}"] if self.chakra else [])

    def record(self) -> dict[str, Any]:
        """Return the step as plain data, SI throughout."""
        more = {"model": self.result.model, "plan": plan_text(self.result.plan)}
        return self.result.record() | {"inputs_by_status": status_counts(self.result.system)} | more

    def rows(self) -> list[Row]:
        """Return the row of the system."""
        return self.result.rows()

    def tables(self) -> dict[str, list[Row]]:
        """Return the row of the system, and a row for each part of each quantity."""
        return {"": self.rows(), "parts": self.result.parts()}

    def figure(self) -> Figure:
        """Return where time and energy go."""
        return self.result.plot()


@dataclass(frozen=True, kw_only=True)
class Step(Study):
    """One training step of a model on a system."""

    system: str = option("gpu_packet", SYSTEM)
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "accelerators; default: what the plan uses", metavar="N")
    trace: Path | None = option(None, "write the time line for Perfetto", metavar="FILE", written=True)
    chakra: Path | None = option(None, "write the step as PREFIX.<rank>.et", metavar="PREFIX")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> SteppedOnce:
        """Return the step."""
        if self.chakra:  # its name is but the beginning of those of files, and may be a directory's
            check_writable(self.chakra.with_name(f"{self.chakra.name}.0.et"))
        result = self._result(self.hardware)
        warn_if_idle(self.hardware, result, self._result, "this step")
        if self.trace:
            write_timeline(result.trace, self.trace)
        return SteppedOnce(result=result, chakra=write_chakra(result, self.chakra) if self.chakra else "")

    def _result(self, hardware: Hardware) -> StepResult:
        """Return the step on some hardware."""
        return one_step(self.system, self.workload, hardware, accelerators=self.accelerators)


class Recorded(Protocol):
    """Anything that has a record."""

    def record(self) -> dict[str, Any]:
        """Return it as plain data, SI throughout."""
        ...


def warn_if_idle(
    hardware: Hardware, result: Recorded, again: Callable[[Hardware], Recorded], what: str
) -> None:
    """Warn if a result is the same without the changes of ``--set``.

    Parameters
    ----------
    hardware : Hardware
        Hardware with the changes.
    result : Recorded
        Result with them.
    again : callable
        Returns the result of other hardware.
    what : str
        Name of the result for the message, with any explanation.
    """
    if not hardware.settings:
        return
    plain = dataclasses.replace(hardware, settings=())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspectWarning)
            other = again(plain)
    except HeliographError:  # it does not even run without them
        return
    rows = [row_of(one.record()) | {"settings": ""} for one in (result, other)]
    if rows[0] == rows[1]:
        changed = ", ".join(f"--set {text}" for text in hardware.settings)
        warnings.warn(f"{changed} changes nothing of {what}", SuspectWarning, stacklevel=3)


def write_timeline(trace: Trace, path: Path) -> None:
    """Write the time line of a run as a JSON file for Perfetto."""
    write_atomically(path, canonical_json({"traceEvents": trace.perfetto_events()}))


def write_chakra(result: StepResult, prefix: Path) -> str:
    """Write a step as Chakra traces; return the sentence that names the files."""
    from workloads.traces import export_step  # noqa: PLC0415 - only for --chakra

    written = export_step(
        result.graph, result.system.node(), prefix, name=f"{result.model} on {result.system.name}"
    )
    return f"Wrote {written[0]} to {written[-2].name}, and {written[-1].name}."

"""The command line: one driver for every study. Everything heavy is imported by the study that needs it."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heliograph import __version__
from simulator.errors import (
    ClippingWarning,
    HeliographError,
    LimitWarning,
    ParameterError,
    SuspectWarning,
    nearest,
)

if TYPE_CHECKING:
    from experiments.study import Result, Study

NO_PICTURES = (".pdf", ".eps", ".ps", ".jpg", ".jpeg", ".webp", ".html", ".json", ".csv", ".parquet")
"""Suffixes of files that nothing is written to, and that no directory should have."""
BAD_INPUT = 2
"""Exit code for anything wrong with what the user handed in."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass(frozen=True)
class Command:
    """One study on the command line."""

    study: str
    """Module and class."""
    text: str
    """Text of ``--help``."""
    files: str = ""
    """Name of its files, if not its last word."""
    page: str = ""
    """Module and function of its page, which ``--report`` writes; none if empty."""


COMMANDS = MappingProxyType(
    {
        "step": Command("experiments.hardware:Step", "run one training step on one system"),
        "compare": Command(
            "experiments.compare:Compare",
            "compare systems in time, energy, cost and accuracy",
            page="experiments.compare:page",
        ),
        "sweep": Command(
            "experiments.sweep:Sweep",
            "run any study over a grid, or search it for the best",
            page="experiments.sweep:page",
        ),
        "diff": Command("experiments.names:Diff", "tell what differs between two runs, and what that did"),
        "search": Command(
            "experiments.search:PlanSearch",
            "find the best plan, placement and fabric",
            page="experiments.search:page",
        ),
        "split": Command(
            "experiments.split:SplitProducts",
            "find which products of a model belong in light, under a budget of loss",
        ),
        "core": Command(
            "experiments.cores.one:OneCore",
            "show where a photonic core's energy and precision go",
            page="experiments.cores.page:page",
        ),
        "core check": Command(
            "experiments.cores.checks:CheckCore",
            "ask a core, of your own too, every law that all cores keep",
            files="check",
        ),
        "core compare": Command(
            "experiments.cores.every:AllCores",
            "compare all photonic cores by size, reuse and precision",
            files="cores",
        ),
        "core precision": Command(
            "experiments.cores.checks:PredictedPrecision",
            "hold the predicted signal over noise of cores and formats to execution",
            files="precision",
        ),
        "core rescue": Command(
            "experiments.cores.rescue:RankRescues",
            "rank what rescues a core's precision by energy at equal signal over noise",
            files="rescue",
        ),
        "core parts": Command(
            "experiments.cores.rescue:RankParts",
            "rank the parts of a core by energy at equal signal over noise",
            files="parts",
        ),
        "network links": Command("experiments.network.links:Links", "load of every link over a step"),
        "network breakeven": Command(
            "experiments.network.breakeven:Breakeven", "step time against the time that circuits take to move"
        ),
        "network spreading": Command(
            "experiments.network.links:BySpreading",
            "step time by how packets share parallel links, beside optical circuits",
        ),
        "network circuits": Command(
            "experiments.network.circuits:Circuits",
            "schedules of optical circuits for a demand, a collective or a step's phases",
        ),
        "network schedule": Command(
            "experiments.network.schedule:PipelineSchedule", "time line of a pipeline schedule"
        ),
        "network flows": Command(
            "experiments.network.flows:FlowsOnFabric", "flows or a traffic matrix on any fabric"
        ),
        "network trace": Command("experiments.network.flows:ReplayTrace", "run a Chakra execution trace"),
        "accuracy predict": Command(
            "experiments.accuracy.report:Predict",
            "loss that a core's noise costs, predicted and executed",
            files="accuracy",
        ),
        "accuracy encoder": Command(
            "experiments.accuracy.capture:JudgeEncoder",
            "convert a pretrained sentence encoder to cores and judge it by finding halves of texts",
            files="encoder",
        ),
        "accuracy front": Command(
            "experiments.accuracy.front:KnobFront", "loss against energy per token over the knobs of a core"
        ),
        "accuracy training": Command(
            "experiments.accuracy.training:TrainVariants",
            "train through a core: which products are fragile, what rescues them",
        ),
        "accuracy width": Command(
            "experiments.accuracy.width:ByWidth", "noise that a transformer tolerates, by its width"
        ),
        "accuracy law": Command(
            "experiments.accuracy.law:FitLaw", "law of the loss that noise costs, over size, tokens and noise"
        ),
        "accuracy energy": Command(
            "experiments.accuracy.front:ToEqualLoss",
            "energy to the loss of exact arithmetic over laser power, by the law",
        ),
        "accuracy learnt": Command(
            "experiments.accuracy.training:JudgeLearnt", "what the byte-level GPT that ships has learnt"
        ),
        "accuracy capture": Command(
            "experiments.accuracy.capture:Capture", "statistics of a trained transformer's own operands"
        ),
        "accuracy photons": Command(
            "experiments.accuracy.photons:ByPhotons", "accuracy by photons per multiplication"
        ),
        "cost bill": Command("experiments.cost.bill:BillOf", "bill of materials: watts and dollars, ranges"),
        "cost goodput": Command(
            "experiments.cost.goodput:GoodputOf", "goodput of training under failures, by size and fabric"
        ),
        "cost waste": Command(
            "experiments.cost.stranded:Stranded", "accelerators stranded by failed nodes of their group"
        ),
        "cost jobs": Command("experiments.cost.jobs:Jobs", "several jobs on one system, with failures"),
        "validate": Command(
            "experiments.validation.driver:Validate", "predictions against published measurements"
        ),
        "list": Command(
            "experiments.names:Names", "systems, models, cores, fabrics, devices or parts by name"
        ),
        "show": Command("experiments.names:Parameters", "every parameter of something with unit and source"),
    }
)
"""Studies by the words of their command, in the order of the help; a new one is a file and a line here."""
SUBJECTS = MappingProxyType(
    {
        "network": "traffic, optical circuits and pipelines of a step",
        "accuracy": "what a core's noise costs a transformer",
        "cost": "bills of materials, and what failures cost",
    }
)
"""First words that need a second."""
RENAMED = MappingProxyType(
    {
        "cores": "core compare",
        "links": "network links",
        "breakeven": "network breakeven",
        "circuits": "network circuits",
        "schedule": "network schedule",
        "run-trace": "network trace",
        "accuracy-front": "accuracy front",
        "accuracy-training": "accuracy training",
        "accuracy-width": "accuracy width",
        "photons": "accuracy photons",
        "bill": "cost bill",
        "goodput": "cost goodput",
        "waste": "cost waste",
        "jobs": "cost jobs",
    }
)
"""Present names of commands by their old ones."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """Options of the driver itself."""

    json: bool
    """Print one JSON object instead of the report."""
    csv: bool
    """Print the main table as CSV instead."""
    debug: bool
    """Show the traceback of an error."""
    out: Path | None
    """Directory or picture that somebody names."""
    report: Path | None = None
    """File of the page, if one is asked for."""


def run(words: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    if sys.stdout is None:
        sys.stderr.write("heliograph: cannot write the output: standard output is closed\n")
        return BAD_INPUT
    try:
        with _warnings_in_one_line():
            _run(list(words))
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except (HeliographError, MemoryError, OSError) as error:
        if "--debug" in words:
            raise
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()
        print(f"heliograph: {_sentence(error)}", file=sys.stderr)
        return BAD_INPUT
    return 0


def _sentence(error: Exception) -> str:
    """Return what went wrong in one line."""
    match error:
        case MemoryError():
            return "there is not enough memory for what is asked; ask for less"
        case OSError(filename=None):
            return f"cannot write the output: {error.strerror}"
        case OSError():
            return f"{error.filename}: {error.strerror}; --debug shows where"
        case _:
            return " ".join(str(error).splitlines())


def _run(words: list[str]) -> None:
    name = _chosen(words)
    if name is None:
        return
    from simulator.files import ctrl_c_later  # noqa: PLC0415 - not for --help alone

    with ctrl_c_later():  # what libraries do as they are imported can drop a Ctrl-C without a word
        from experiments.study import Parser, add_options, study_from  # noqa: PLC0415 - not for --help alone
        from heliograph.processes import among_ranks  # noqa: PLC0415 - not for --help alone

        module, _, kind_name = COMMANDS[name].study.partition(":")
        kind = getattr(importlib.import_module(module), kind_name)
    parser = Parser(prog=f"heliograph {name}", description=f"{COMMANDS[name].text.capitalize()}.")
    add_options(parser, kind)
    _add_own(parser, paged=bool(COMMANDS[name].page))
    parsed = parser.parse_args(words[len(name.split()) :])
    driven = Driven(
        json=parsed.json, csv=parsed.csv, debug=parsed.debug, out=parsed.out, report=parsed.report
    )
    study = study_from(kind, parsed)
    among_ranks(lambda: drive(name, study, driven))


def _add_own(parser: argparse.ArgumentParser, *, paged: bool) -> None:
    """Add the options that every study has, and that of its page where it has one."""
    group = parser.add_argument_group("every command")
    printed = group.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print one JSON object instead of the report")
    printed.add_argument("--csv", action="store_true", help="print the main table as CSV instead")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write record (json), tables (csv) and pictures (png, svg); FILE.png: the picture alone",
    )
    if paged:
        group.add_argument(
            "--report",
            type=Path,
            metavar="FILE.html",
            help="write everything as one page that opens in a browser, without a network",
        )
    else:
        parser.set_defaults(report=None)
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _chosen(words: Sequence[str]) -> str | None:
    """Return the command that words name; None where help or the version was all that was asked."""
    first, *rest = words or ("--help",)
    second = rest[0] if rest else "--help"
    if first in ("--help", "-h"):
        print(_help())
        return None
    if first == "--version":
        print(f"heliograph {__version__}")
        return None
    if f"{first} {second}" in COMMANDS:
        return f"{first} {second}"
    if first in SUBJECTS and second in ("--help", "-h"):
        print(_subject_help(first))
        return None
    if first in SUBJECTS:
        known = _seconds(first)
        msg = f"'{first}' needs a second word, not '{second}'; {nearest(second, known, noun='word')}"
        raise ParameterError(msg)
    if first in RENAMED:
        msg = f"'{first}' is called '{RENAMED[first]}' now: heliograph {RENAMED[first]} ..."
        raise ParameterError(msg)
    if first not in COMMANDS:
        names = dict.fromkeys(name.partition(" ")[0] for name in COMMANDS)
        msg = f"no command '{first}'; {nearest(first, names, noun='command')}"
        raise ParameterError(msg)
    return first


def _seconds(subject: str) -> list[str]:
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{subject} ")]


def _help() -> str:
    lines = [
        "usage: heliograph COMMAND ... [--json | --csv] [--out DIR]",
        "",
        "Training on photonic compute and optical networks, against GPUs and packet switches.",
        "",
    ]
    for first in dict.fromkeys(name.partition(" ")[0] for name in COMMANDS):
        text = SUBJECTS.get(first) or COMMANDS[first].text
        lines.append(f"  {first:<9} {text}")
        if seconds := _seconds(first):
            own = "NAME, " if first in COMMANDS else ""
            lines.append(f"  {'':<9} {own}{', '.join(seconds)}")
    return "\n".join([*lines, "", "heliograph COMMAND --help tells its options; --version the version."])


def _subject_help(subject: str) -> str:
    lines = [f"usage: heliograph {subject} COMMAND ...", "", f"{SUBJECTS[subject].capitalize()}.", ""]
    lines += [f"  {one:<10} {COMMANDS[f'{subject} {one}'].text}" for one in _seconds(subject)]
    return "\n".join([*lines, "", f"heliograph {subject} COMMAND --help tells its options."])


def drive(name: str, study: Study, driven: Driven) -> None:
    """Run a study, print what it found and write its files."""
    from experiments.study import Progress, written_by  # noqa: PLC0415 - not for --help alone
    from heliograph.processes import reporting  # noqa: PLC0415 - rich takes its time
    from heliograph.records import check_writable  # noqa: PLC0415 - not for --help alone

    if driven.report is not None:
        from heliograph.report_page.page import check_page_path  # noqa: PLC0415 - not for --help alone

        check_page_path(driven.report)
    for path in written_by(study):
        check_writable(path)
    out = _out(name, study, driven.out)
    pictured = out is not None and _is_picture(out)
    directory = out.parent if pictured and out is not None else out
    progress = Progress(directory=directory)
    with _reserved(directory, alone=not pictured):
        try:
            with reporting() as progress.say, _stopped_by_terminating():
                found = study.run(progress)
        except (KeyboardInterrupt, HeliographError):
            if progress.finished is not None and out is not None:
                _write_stopped(name, study, progress.finished, out)
            raise
        _tell(name, study, driven, found, out)
    if failure := found.failure():
        raise ParameterError(failure)


def _is_picture(out: Path) -> bool:
    from experiments.study import PICTURES  # noqa: PLC0415 - not for --help alone

    return out.suffix in PICTURES


def _file_name(name: str, study: Study) -> str:
    """Return what the files of a study are called."""
    return study.record_name(COMMANDS[name].files or name.rpartition(" ")[2])


def _out(name: str, study: Study, asked: Path | None) -> Path | None:
    """Return where files go: a new directory if nobody says, never one that holds a run of something else."""
    from experiments.study import PICTURES, head_of  # noqa: PLC0415 - not for --help alone
    from heliograph.records import check_same_question, new_run_directory  # noqa: PLC0415 - the same

    record = f"{_file_name(name, study)}.json"
    if asked is None:
        usual = study.default_out()
        return None if usual is None else new_run_directory(usual.parent, usual.name, mark=record)
    if asked.suffix in NO_PICTURES:
        msg = (
            f"--out {asked}: files go into a directory, or to a picture that ends in {' or '.join(PICTURES)}"
        )
        raise ParameterError(msg)
    if not _is_picture(asked):
        check_same_question(asked / record, head_of(name, study))
    return asked


def _write_stopped(name: str, study: Study, finished: Result, out: Path) -> None:
    """Write what is finished of a run that was stopped, but not over one that came to its end."""
    from experiments.study import document  # noqa: PLC0415 - not for --help alone
    from heliograph.records import STOPPED, standing_record  # noqa: PLC0415 - not for --help alone

    stands = out if _is_picture(out) else out / f"{_file_name(name, study)}.json"
    if not stands.exists() or STOPPED in (standing_record(stands) or {}):
        _write(name, study, document(name, study, finished) | {STOPPED: True}, finished, out)


@contextmanager
def _stopped_by_terminating() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, so that a scheduler's stop keeps what is finished; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(name: str, study: Study, driven: Driven, found: Result, out: Path | None) -> None:
    """Print what a study found, and write its files."""
    from experiments.study import document, headed  # noqa: PLC0415 - not for --help alone
    from heliograph.records import canonical_json, csv_text  # noqa: PLC0415 - not for --help alone
    from heliograph.report import print_report  # noqa: PLC0415 - not for --help alone

    if out is None and driven.report is None and not (driven.json or driven.csv):
        print_report(found.report())  # a record can take longer than the run: nobody asked for one
        return
    record = document(name, study, found)
    if driven.csv:
        sys.stdout.write(csv_text(headed(record, found.rows())))
    elif not driven.json:
        print_report(found.report())
    # Printed first: a directory that cannot be written takes nothing away.
    written: list[Path] = []
    try:
        written = _write(name, study, record, found, out) if out is not None else []
        if driven.report is not None:
            written.append(_write_page(name, study, found, record, driven.report))
    finally:
        if driven.json:
            print(canonical_json(record | {"files": [str(path) for path in written]}, indent=1))
    if written and not driven.json and not driven.csv:
        print(_wrote(written))


def _write(name: str, study: Study, record: dict[str, Any], found: Result, out: Path) -> list[Path]:
    from experiments.study import draw  # noqa: PLC0415 - not for --help alone

    if _is_picture(out):
        drawn = draw(found, out.with_suffix(""))
        if not drawn:
            told = f"{out} is not written: this run has no picture; --out DIR writes its record"
            warnings.warn(told, SuspectWarning, stacklevel=2)
        return drawn
    return found.write(out, _file_name(name, study), record)


def _write_page(name: str, study: Study, found: Result, record: dict[str, Any], path: Path) -> Path:
    from experiments.study import command_line  # noqa: PLC0415 - not for --help alone
    from heliograph.report_page.page import framed, write_page  # noqa: PLC0415 - only for --report

    module, _, function = COMMANDS[name].page.partition(":")
    page = getattr(importlib.import_module(module), function)(found)
    return write_page(framed(page, ["heliograph", *name.split(), *command_line(study)], record), path)


def _wrote(written: Sequence[Path]) -> str:
    directories = list(dict.fromkeys(path.parent for path in written))
    if len(directories) == 1:
        return f"Wrote {directories[0]}/: {', '.join(path.name for path in written)}."
    return f"Wrote {', '.join(map(str, written))}."


@contextmanager
def _reserved(directory: Path | None, *, alone: bool) -> Iterator[None]:
    """Make a directory before minutes are spent for it; nothing of it stays if nothing came of them.

    It is this run's `alone`: another that writes into it meanwhile is refused.
    """
    from heliograph.records import lock, make_directory, unlock  # noqa: PLC0415 - not for --help alone

    if directory is None:
        yield
        return
    made = not directory.exists()
    make_directory(directory)
    if alone:
        lock(directory)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):
                directory.rmdir()
        raise
    finally:
        unlock(directory)


def _drop_output() -> None:
    """Let what is still buffered go nowhere, so that nothing complains at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentences(messages: Sequence[Warning | str]) -> list[str]:
    """Return each warning once, and of each limit and of converters that clip only the worst."""
    clipping = [one for one in messages if isinstance(one, ClippingWarning)]
    limits = [one for one in messages if isinstance(one, LimitWarning)]
    told = (*clipping, *limits)
    others = [one for one in messages if isinstance(one, SuspectWarning) and one not in told]
    found = list(dict.fromkeys(str(one) for one in others))
    for limit in dict.fromkeys(one.limit for one in limits):
        alike_limits = [one for one in limits if one.limit == limit]
        several = " (the worst of several)" if len({str(one) for one in alike_limits}) > 1 else ""
        found.append(f"{max(alike_limits, key=lambda one: one.excess)}{several}")
    if clipping:
        alike = " (the worst of several)" if len({str(one) for one in clipping}) > 1 else ""
        found.append(f"{max(clipping, key=lambda one: one.share)}{alike}")
    return found


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each warning about a result once, as one sentence, to standard error when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        try:
            yield
        finally:
            for sentence in _sentences([one.message for one in caught]):
                print(f"heliograph: warning: {sentence}", file=sys.stderr)
    for one in caught:
        if not issubclass(one.category, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)

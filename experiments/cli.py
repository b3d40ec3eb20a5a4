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
"""Suffixes that ``--out`` refuses: neither pictures that can be written nor likely names of a directory."""
BAD_INPUT = 2
"""Exit code for invalid input."""
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
    """Stem of the names of its files, if not its last word."""
    page: str = ""
    """Module and function of the HTML page that ``--report`` writes; empty if there is none."""


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
            page="experiments.cores.one:page",
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
class Output:
    """Options of the driver itself: the form of the output, and its files."""

    json: bool
    """Whether one JSON object is printed instead of the report."""
    csv: bool
    """Whether the main table is printed as CSV instead of the report."""
    debug: bool
    """Whether errors show their traceback."""
    out: Path | None
    """``--out``: directory of the files, or a picture."""
    report: Path | None = None
    """``--report``: HTML page."""


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
            _run_command(list(words))
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
    """Return an error's message in one line."""
    match error:
        case MemoryError():
            return "there is not enough memory for what is asked; ask for less"
        case OSError(filename=None):
            return f"cannot write the output: {error.strerror}"
        case OSError():
            return f"{error.filename}: {error.strerror}; --debug shows where"
        case _:
            return " ".join(str(error).splitlines())


def _run_command(words: list[str]) -> None:
    """Parse the words of a command, build its study and run it."""
    name = _command_of(words)
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
    output = Output(
        json=parsed.json, csv=parsed.csv, debug=parsed.debug, out=parsed.out, report=parsed.report
    )
    study = study_from(kind, parsed)
    among_ranks(lambda: drive(name, study, output))


def _add_own(parser: argparse.ArgumentParser, *, paged: bool) -> None:
    """Add the driver's options; ``--report`` only for a study that has a page."""
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


def _command_of(words: Sequence[str]) -> str | None:
    """Return the command that the words begin with; None after printing the help or the version."""
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
        known = _second_words(first)
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


def _second_words(subject: str) -> list[str]:
    """Return the second words of the commands that begin with a subject."""
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
        if words := _second_words(first):
            own = "NAME, " if first in COMMANDS else ""
            lines.append(f"  {'':<9} {own}{', '.join(words)}")
    return "\n".join([*lines, "", "heliograph COMMAND --help tells its options; --version the version."])


def _subject_help(subject: str) -> str:
    lines = [f"usage: heliograph {subject} COMMAND ...", "", f"{SUBJECTS[subject].capitalize()}.", ""]
    lines += [f"  {one:<10} {COMMANDS[f'{subject} {one}'].text}" for one in _second_words(subject)]
    return "\n".join([*lines, "", f"heliograph {subject} COMMAND --help tells its options."])


def drive(name: str, study: Study, output: Output) -> None:
    """Run a study, print its result and write its files."""
    from experiments.study import Progress, written_by  # noqa: PLC0415 - not for --help alone
    from heliograph.processes import reporting  # noqa: PLC0415 - rich takes its time
    from heliograph.records import check_writable  # noqa: PLC0415 - not for --help alone

    if output.report is not None:
        from heliograph.report_page.page import check_page_path  # noqa: PLC0415 - not for --help alone

        check_page_path(output.report)
    for path in written_by(study):
        check_writable(path)
    out = _output_path(name, study, output.out)
    pictured = out is not None and _is_picture(out)
    directory = out.parent if pictured and out is not None else out
    progress = Progress(directory=directory)
    with _reserved(directory, exclusive=not pictured):
        try:
            with reporting() as progress.say, _stopped_by_terminating():
                result = study.run(progress)
        except (KeyboardInterrupt, HeliographError):
            if progress.finished is not None and out is not None:
                _write_stopped(name, study, progress.finished, out)
            raise
        _print_and_write(name, study, output, result, out)
    if failure := result.failure():
        raise ParameterError(failure)


def _is_picture(out: Path) -> bool:
    from experiments.study import PICTURES  # noqa: PLC0415 - not for --help alone

    return out.suffix in PICTURES


def _file_name(name: str, study: Study) -> str:
    """Return the stem of the names of a study's files."""
    return study.record_name(COMMANDS[name].files or name.rpartition(" ")[2])


def _output_path(name: str, study: Study, requested: Path | None) -> Path | None:
    """Return the directory or picture that a run writes to; None if it writes no files.

    Without ``--out`` it is a new directory of the study's own choice. A directory with the record of a run
    with other options is refused.
    """
    from experiments.study import PICTURES, head_of  # noqa: PLC0415 - not for --help alone
    from heliograph.records import check_same_question, new_run_directory  # noqa: PLC0415 - the same

    record = f"{_file_name(name, study)}.json"
    if requested is None:
        default = study.default_out()
        return None if default is None else new_run_directory(default.parent, default.name, mark=record)
    if requested.suffix in NO_PICTURES:
        suffixes = " or ".join(PICTURES)
        msg = f"--out {requested}: files go into a directory, or to a picture that ends in {suffixes}"
        raise ParameterError(msg)
    if not _is_picture(requested):
        check_same_question(requested / record, head_of(name, study))
    return requested


def _write_stopped(name: str, study: Study, finished: Result, out: Path) -> None:
    """Write the partial result of an interrupted run, except over the files of a complete one."""
    from experiments.study import document  # noqa: PLC0415 - not for --help alone
    from heliograph.records import STOPPED, standing_record  # noqa: PLC0415 - not for --help alone

    existing = out if _is_picture(out) else out / f"{_file_name(name, study)}.json"
    if not existing.exists() or STOPPED in (standing_record(existing) or {}):
        _write(name, study, document(name, study, finished) | {STOPPED: True}, finished, out)


@contextmanager
def _stopped_by_terminating() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C in the main thread, so that a scheduler's stop keeps the partial result."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_and_write(name: str, study: Study, output: Output, result: Result, out: Path | None) -> None:
    """Print a study's result in the form that was asked for, and write its files."""
    from experiments.study import document, headed  # noqa: PLC0415 - not for --help alone
    from heliograph.records import canonical_json, csv_text  # noqa: PLC0415 - not for --help alone
    from heliograph.report import print_report  # noqa: PLC0415 - not for --help alone

    if out is None and output.report is None and not (output.json or output.csv):
        print_report(result.report())  # a record can take longer than the run: nobody asked for one
        return
    record = document(name, study, result)
    if output.csv:
        sys.stdout.write(csv_text(headed(record, result.rows())))
    elif not output.json:
        print_report(result.report())
    # Printed first: a directory that cannot be written takes nothing away.
    written: list[Path] = []
    try:
        written = _write(name, study, record, result, out) if out is not None else []
        if output.report is not None:
            written.append(_write_page(name, study, result, record, output.report))
    finally:
        if output.json:
            print(canonical_json(record | {"files": [str(path) for path in written]}, indent=1))
    if written and not output.json and not output.csv:
        print(_wrote(written))


def _write(name: str, study: Study, record: dict[str, Any], result: Result, out: Path) -> list[Path]:
    from experiments.study import draw  # noqa: PLC0415 - not for --help alone

    if _is_picture(out):
        drawn = draw(result, out.with_suffix(""))
        if not drawn:
            message = f"{out} is not written: this run has no picture; --out DIR writes its record"
            warnings.warn(message, SuspectWarning, stacklevel=2)
        return drawn
    return result.write(out, _file_name(name, study), record)


def _write_page(name: str, study: Study, result: Result, record: dict[str, Any], path: Path) -> Path:
    from experiments.study import command_line  # noqa: PLC0415 - not for --help alone
    from heliograph.report_page.page import framed, write_page  # noqa: PLC0415 - only for --report

    module, _, function = COMMANDS[name].page.partition(":")
    page = getattr(importlib.import_module(module), function)(result)
    return write_page(framed(page, ["heliograph", *name.split(), *command_line(study)], record), path)


def _wrote(written: Sequence[Path]) -> str:
    directories = list(dict.fromkeys(path.parent for path in written))
    if len(directories) == 1:
        return f"Wrote {directories[0]}/: {', '.join(path.name for path in written)}."
    return f"Wrote {', '.join(map(str, written))}."


@contextmanager
def _reserved(directory: Path | None, *, exclusive: bool) -> Iterator[None]:
    """Create the output directory before the run, and remove it again if the run fails and left it empty.

    An exclusive directory is locked: another run that would write into it meanwhile is refused.
    """
    from heliograph.records import lock, make_directory, unlock  # noqa: PLC0415 - not for --help alone

    if directory is None:
        yield
        return
    created = not directory.exists()
    make_directory(directory)
    if exclusive:
        lock(directory)
    try:
        yield
    except BaseException:
        if created:
            with suppress(OSError):
                directory.rmdir()
        raise
    finally:
        unlock(directory)


def _drop_output() -> None:
    """Send buffered output to the null device, so that closing a broken pipe raises nothing at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentences(messages: Sequence[Warning | str]) -> list[str]:
    """Return each warning once; of those about one limit, and of clipping converters, only the worst."""
    clipping = [message for message in messages if isinstance(message, ClippingWarning)]
    limits = [message for message in messages if isinstance(message, LimitWarning)]
    grouped = (*clipping, *limits)
    others = [
        message for message in messages if isinstance(message, SuspectWarning) and message not in grouped
    ]
    sentences = list(dict.fromkeys(map(str, others)))
    for limit in dict.fromkeys(message.limit for message in limits):
        alike = [message for message in limits if message.limit == limit]
        worst = max(alike, key=lambda message: message.excess)
        sentences.append(f"{worst}{_of_several(alike)}")
    if clipping:
        worst_clipping = max(clipping, key=lambda message: message.share)
        sentences.append(f"{worst_clipping}{_of_several(clipping)}")
    return sentences


def _of_several(messages: Sequence[Warning]) -> str:
    return " (the worst of several)" if len(set(map(str, messages))) > 1 else ""


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print each warning about a result once, as one sentence, to standard error when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        try:
            yield
        finally:
            for sentence in _sentences([warning.message for warning in caught]):
                print(f"heliograph: warning: {sentence}", file=sys.stderr)
    for warning in caught:
        if not issubclass(warning.category, SuspectWarning):
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)

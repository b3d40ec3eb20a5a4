"""The command line. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.arguments import add_accelerator, add_hardware, add_output, add_recorded, add_workload
from heliograph import __version__
from heliograph.errors import HeliographError, SuspectWarning

if TYPE_CHECKING:
    from experiments.step import StepResult

BAD_INPUT = 2
"""Exit code for anything wrong with what the user handed in."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
DEFAULT_SYSTEM = "gpu_packet"
"""System that runs a step whose time line is drawn, where nobody names one."""
DEFAULT_ACCELERATORS = 1024
"""Accelerators where neither the plan nor the user says how many."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heliograph",
        description="Training on photonic compute and optical networks, against GPUs and packet switches.",
    )
    parser.add_argument("--version", action="version", version=f"heliograph {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    compare = commands.add_parser("compare", help="compare systems in time, energy, cost and accuracy")
    add_workload(compare)
    compare.add_argument(
        "--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N", help="per system"
    )
    compare.add_argument(
        "--systems",
        default="gpu_packet,gpu_ocs,photonic_packet,photonic_ocs",
        help="systems by name, or TOML files, separated by commas",
    )
    compare.add_argument("--out", type=Path, metavar="DIR", help="directory of the run; default results/...")
    compare.add_argument("--quick", action="store_true", help="train the small GPT for fewer steps and seeds")
    compare.add_argument("--no-accuracy", action="store_true", help="do not train the small GPT")
    compare.add_argument("--seed", type=int, default=0, help="first seed of the training runs")
    add_hardware(compare)
    compare.set_defaults(run=_compare)

    _add_step(commands.add_parser("step", help="run one training step on one system"))
    add_recorded(commands.add_parser("run-trace", help="run a Chakra execution trace"), _run_trace)
    schedule = commands.add_parser("schedule", help="draw the time line of a pipeline schedule")
    schedule.add_argument(
        "name", help="schedule (1f1b, gpipe, interleaved, zb_v, ...), or with --plan a model"
    )
    schedule.add_argument("--stages", type=int, default=4, metavar="P", help="pipeline stages")
    schedule.add_argument("--microbatches", type=int, default=8, metavar="M", help="microbatches of a step")
    schedule.add_argument("--chunks", type=int, default=2, metavar="V", help="chunks a stage, if interleaved")
    schedule.add_argument("--forward", type=float, default=1.0, metavar="T", help="time of a forward pass")
    schedule.add_argument("--inputs", type=float, default=1.0, metavar="T", help="of the backward of inputs")
    schedule.add_argument(
        "--weights", type=float, default=1.0, metavar="T", help="of the backward of weights"
    )
    schedule.add_argument(
        "--plan", default="", help="draw a model's step under it: schedule=zb_v,pp=4,dp=2,..."
    )
    schedule.add_argument("--system", help=f"what runs that step; default {DEFAULT_SYSTEM}")
    schedule.add_argument("--accelerators", type=int, metavar="N", help="default: what the plan uses")
    schedule.add_argument("--out", type=Path, metavar="FILE", help="picture; default NAME.png and .svg")
    add_hardware(schedule)
    schedule.set_defaults(run=_schedule)

    _add_core(commands.add_parser("core", help="show where a photonic core's energy and bits go"))

    validation = commands.add_parser("validate", help="compare predictions with published measurements")
    validation.add_argument("kind", metavar="training|kernels|collectives|memory|photonic|network")
    validation.add_argument(
        "--data", type=Path, metavar="FILE", help="CSV of measurements instead of the table that ships"
    )
    validation.add_argument("--out", type=Path, metavar="DIR", help="write the rows and a scatter plot")
    add_output(validation)
    validation.set_defaults(run=_validate)

    _add_photons(commands.add_parser("photons", help="accuracy by photons per multiplication"))

    listing = commands.add_parser("list", help="list systems, models, cores, fabrics or devices")
    listing.add_argument("what", metavar="systems|models|cores|fabrics|devices")
    add_output(listing)
    listing.set_defaults(run=_list)

    show = commands.add_parser("show", help="show every parameter of something with unit and source")
    show.add_argument("name", help="system, core, fabric, accelerator, device or model")
    add_output(show)
    show.set_defaults(run=_show)
    return parser


def _add_step(step: argparse.ArgumentParser) -> None:
    step.add_argument("--system", required=True, help="system by name, or a TOML file")
    add_workload(step)
    step.add_argument(
        "--accelerators", type=int, metavar="N", help="accelerators; default: what the plan uses"
    )
    step.add_argument("--trace", type=Path, metavar="FILE", help="write the time line for Perfetto")
    step.add_argument("--chakra", type=Path, metavar="PREFIX", help="write the step as PREFIX.<rank>.et")
    add_hardware(step)
    step.set_defaults(run=_step)


def _add_core(core: argparse.ArgumentParser) -> None:
    core.add_argument("name", help="core by name (heliograph list cores)")
    core.add_argument("--tokens", type=int, metavar="N", help="vectors that pass a layer: reuse of a weight")
    core.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of pictures; default results/core_NAME"
    )
    add_accelerator(core)
    core.set_defaults(run=_core)


def _add_photons(photons: argparse.ArgumentParser) -> None:
    photons.add_argument("--quick", action="store_true", help="fewer images, seeds and vector lengths")
    photons.add_argument("--seed", type=int, default=0, help="first seed of the networks")
    photons.add_argument(
        "--out", type=Path, default=Path("results/photons"), metavar="DIR", help="default %(default)s"
    )
    add_output(photons)
    photons.set_defaults(run=_photons)


def _compare(arguments: argparse.Namespace) -> None:
    from experiments.compare import Request, compare, write  # noqa: PLC0415 - `--help` answers at once
    from experiments.presentation import comparison_rows  # noqa: PLC0415
    from experiments.progress import reporting  # noqa: PLC0415
    from experiments.records import TrainingCache, canonical_json  # noqa: PLC0415
    from experiments.report import print_table  # noqa: PLC0415
    from experiments.step import plan_text  # noqa: PLC0415
    from experiments.wear import wear_warnings  # noqa: PLC0415

    request = Request(
        model=arguments.model,
        accelerators=arguments.accelerators,
        systems=tuple(name.strip() for name in arguments.systems.split(",") if name.strip()),
        plan=arguments.plan,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        assignments=tuple(arguments.set),
        quick=arguments.quick,
        seed=arguments.seed,
        accuracy=not arguments.no_accuracy,
    )
    cache = TrainingCache((arguments.out.parent if arguments.out else Path("results")) / ".training")
    with reporting() as progress:
        comparison = compare(request, cache=cache, progress=progress)
    directory = write(comparison, arguments.out)
    if arguments.json:
        _print(canonical_json(comparison.summary() | {"directory": str(directory)}, indent=1))
        return
    title = f"{comparison.config.name} on {request.accelerators} accelerators"
    records = comparison.records()
    print_table(title, [record["system"] for record in records], comparison_rows(records))
    for line in wear_warnings(records):
        _print(f"\nWarning: {line}")
    _print(f"\nPlan: {plan_text(comparison.plan)}")
    _print(
        f"Wrote {directory}/: summary.json, table.csv, config.json, pictures (png and svg), and trace.json,"
    )
    _print("which opens at ui.perfetto.dev. Prices are assumed: heliograph show SYSTEM lists every source.")


def _run_one(arguments: argparse.Namespace, *, model: str, system: str) -> StepResult:
    """Return one step of the model, plan and system that the arguments name."""
    from experiments.step import plan_for, run_step  # noqa: PLC0415 - `--help` answers at once
    from experiments.systems import build_system  # noqa: PLC0415
    from workloads.config import load_model  # noqa: PLC0415
    from workloads.parallelism import parse_plan  # noqa: PLC0415

    config = load_model(model)
    accelerators = arguments.accelerators
    if accelerators is None:
        accelerators = parse_plan(arguments.plan).ranks if arguments.plan else DEFAULT_ACCELERATORS
    built = build_system(
        system,
        accelerators=accelerators,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        assignments=arguments.set,
    )
    memory_bytes = built.node().memory.capacity_bytes
    plan = plan_for(config, arguments.plan, accelerators=accelerators, memory_bytes=memory_bytes)
    return run_step(built, config, plan)


def _step(arguments: argparse.Namespace) -> None:
    from experiments.catalogue import status_counts  # noqa: PLC0415 - `--help` answers at once
    from experiments.presentation import comparison_rows  # noqa: PLC0415
    from experiments.records import canonical_json, write_atomically  # noqa: PLC0415
    from experiments.replays import write_chakra  # noqa: PLC0415
    from experiments.report import print_table  # noqa: PLC0415
    from experiments.step import plan_text  # noqa: PLC0415
    from experiments.wear import wear_warnings  # noqa: PLC0415

    result = _run_one(arguments, model=arguments.model, system=arguments.system)
    record = result.record() | {"inputs_by_status": status_counts(result.system)}
    plan = plan_text(result.plan)
    if arguments.trace:
        write_atomically(arguments.trace, canonical_json({"traceEvents": result.trace.perfetto_events()}))
    chakra = write_chakra(result, arguments.chakra) if arguments.chakra else ""
    if arguments.json:
        _print(canonical_json(record | {"model": result.model, "plan": plan}, indent=1))
        return
    title = f"{result.model} on {result.system.accelerators} accelerators, {plan}"
    print_table(title, [record["system"]], comparison_rows([record]))
    for line in wear_warnings([record]):
        _print(f"\nWarning: {line}")
    if chakra:
        _print(f"\n{chakra}")


def _run_trace(arguments: argparse.Namespace) -> None:
    from experiments.replays import run_trace  # noqa: PLC0415 - `--help` answers at once

    _print(run_trace(arguments))


def _schedule(arguments: argparse.Namespace) -> None:
    from experiments.plain import canonical_json  # noqa: PLC0415 - `--help` answers at once
    from experiments.report import print_table  # noqa: PLC0415
    from experiments.schedule import engine_timeline, timeline_rows, unit_timeline  # noqa: PLC0415
    from experiments.timelines import draw_timeline  # noqa: PLC0415
    from workloads.timeline import PassTimes  # noqa: PLC0415

    if arguments.system or arguments.plan:
        system = arguments.system or DEFAULT_SYSTEM
        timeline = engine_timeline(_run_one(arguments, model=arguments.name, system=system))
    else:
        timeline = unit_timeline(
            arguments.name,
            stages=arguments.stages,
            microbatches=arguments.microbatches,
            chunks=arguments.chunks,
            times=PassTimes(forward=arguments.forward, inputs=arguments.inputs, weights=arguments.weights),
        )
    default = Path("schedule_" + "".join(one if one.isalnum() else "_" for one in timeline.name))
    written = draw_timeline(timeline, arguments.out or default)
    if arguments.json:
        pictures = {"pictures": [str(path) for path in written]}
        _print(canonical_json(timeline.record() | pictures, indent=1))
        return
    print_table(f"Schedule {timeline.name}", [timeline.name], timeline_rows(timeline))
    _print(f"Wrote {' and '.join(str(path) for path in written)}.")


def _core(arguments: argparse.Namespace) -> None:
    from experiments.core import PHASES, TOKENS, bench  # noqa: PLC0415 - `--help` answers at once
    from experiments.core_report import study, study_rows, summary_lines, write  # noqa: PLC0415
    from experiments.plain import canonical_json  # noqa: PLC0415
    from experiments.report import print_table  # noqa: PLC0415

    built = bench(
        arguments.name,
        assignments=arguments.set,
        gpu=arguments.gpu,
        basis=arguments.basis,
        tokens=TOKENS if arguments.tokens is None else arguments.tokens,
    )
    found = study(built)
    written = write(found, arguments.out or Path("results") / f"core_{built.name}")
    if arguments.json:
        _print(canonical_json(found.record() | {"files": [str(path) for path in written]}, indent=1))
        return
    print_table(f"Core {built.name}", [str(phase) for phase in PHASES], study_rows(found))
    for line in summary_lines(found):
        _print(line)
    _print(f"Wrote {', '.join(str(path) for path in written)}.")


def _validate(arguments: argparse.Namespace) -> None:
    from experiments.plain import canonical_json  # noqa: PLC0415 - `--help` answers at once
    from experiments.progress import reporting  # noqa: PLC0415
    from experiments.validation import report, validate, write  # noqa: PLC0415

    with reporting() as progress:
        found = validate(arguments.kind, data=arguments.data, progress=progress)
    # Printed first: a directory that cannot be written takes nothing away.
    _print(canonical_json(found.record(), indent=1) if arguments.json else report(found))
    written = write(found, arguments.out) if arguments.out else ()
    if written and not arguments.json:
        _print(f"Wrote {', '.join(str(path) for path in written)}.")


def _photons(arguments: argparse.Namespace) -> None:
    from experiments.photons import Request, run_photons  # noqa: PLC0415 - `--help` answers at once
    from experiments.photons_report import prepare, report, write  # noqa: PLC0415
    from experiments.plain import canonical_json  # noqa: PLC0415
    from experiments.progress import reporting  # noqa: PLC0415

    prepare(arguments.out)
    with reporting() as progress:
        result = run_photons(Request.of(quick=arguments.quick, seed=arguments.seed), progress)
    written = write(result, arguments.out)
    if arguments.json:
        _print(canonical_json(result.record() | {"files": [str(path) for path in written]}, indent=1))
        return
    _print(report(result))
    _print(f"Wrote {', '.join(str(path) for path in written)}.")


def _list(arguments: argparse.Namespace) -> None:
    from experiments.catalogue import listing  # noqa: PLC0415 - `--help` answers at once

    names = listing(arguments.what)
    if arguments.json:
        _print(json.dumps(names, indent=1))
        return
    width = max(len(name) for name in names)
    for name, text in names.items():
        _print(f"{name:<{width}}  {text}")


def _show(arguments: argparse.Namespace) -> None:
    import dataclasses  # noqa: PLC0415 - `--help` answers at once

    from experiments.catalogue import description  # noqa: PLC0415
    from experiments.presentation import parameter_lines  # noqa: PLC0415

    parameters = description(arguments.name)
    if arguments.json:
        _print(json.dumps([dataclasses.asdict(one) for one in parameters], indent=1))
        return
    for line in parameter_lines(parameters):
        _print(line)


def _print(text: str) -> None:
    print(text)


@contextmanager
def _doubts_in_one_line() -> Iterator[None]:
    """Print each doubt about a result once, as one sentence, to standard error when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        try:
            yield
        finally:
            doubts = [str(one.message) for one in caught if issubclass(one.category, SuspectWarning)]
            for sentence in dict.fromkeys(doubts):
                print(f"heliograph: warning: {sentence}", file=sys.stderr)
    for one in caught:
        if not issubclass(one.category, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.
    """
    arguments = _parser().parse_args(argv)
    run: Callable[[Any], None] = arguments.run
    try:
        with _doubts_in_one_line():
            run(arguments)
    except HeliographError as error:
        if arguments.debug:
            raise
        print(f"heliograph: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("heliograph: interrupted; finished training runs are kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

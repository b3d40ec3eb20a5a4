"""One kind of study: options from the fields of a dataclass, how it runs, what its result can tell.

The type of a field says how its option is read: a truth value is a flag, an enumeration a choice, a tuple may
be repeated (or is separated by commas), a number whose name ends in a unit takes a quantity (``delay_s`` is
``--delay 25us``), and a field that is a dataclass brings the options of its own.

A study is a frozen dataclass whose fields are its options (`experiments.study.option`); `Study.run`
computes, and the `Result` tells itself as text, as tidy rows, as pictures and as plain data. The driver
(`experiments.cli`) does everything else: it reads the options, prints, writes, and stops cleanly.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

from heliograph import __version__
from heliograph.records import SCHEMA, TrainingCache, canonical_json, csv_text, whole, write_atomically
from heliograph.report import ReportTable, format_quantity
from simulator.errors import HeliographError, ParameterError, SuspectWarning, nearest, repeated
from simulator.parameter_tree import quantity
from simulator.units import SUFFIXES, TYPED, dimension_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

StudyT = TypeVar("StudyT")
_KEY = "option"


@dataclass(frozen=True, kw_only=True)
class _Told:
    """Description of an option on its field."""

    text: str
    metavar: str | None
    flag: str
    positional: bool
    commas: bool
    written: bool


def option(
    default: object,
    text: str,
    *,
    metavar: str | None = None,
    flag: str = "",
    positional: bool = False,
    commas: bool = False,
    written: bool = False,
) -> Any:  # noqa: ANN401 - a field of any type
    """Return a dataclass field that is an option.

    Parameters
    ----------
    default : object
        Its default; ``...`` for an option that must be given.
    text : str
        What ``--help`` says of it; the default is added.
    metavar : str, optional
        What stands for its value there.
    flag : str
        Its name, if not that of the field.
    positional : bool
        Whether it is told by its place, without a name.
    commas : bool
        Whether the members of a tuple are separated by commas; else the option is repeated.
    written : bool
        Whether it is a file that the study writes, whose place is checked before the study runs.
    """
    told = _Told(text=text, metavar=metavar, flag=flag, positional=positional, commas=commas, written=written)
    if default is ...:
        return dataclasses.field(metadata={_KEY: told})
    return dataclasses.field(default=default, metadata={_KEY: told})


class Parser(argparse.ArgumentParser):
    """Parser whose errors are those of the program: one sentence, told by who catches it."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - as argparse takes them
        super().__init__(**given)
        # argparse takes "-1us" for an option: it knows bare negative numbers only.
        self._negative_number_matcher = re.compile(r"-\.?[0-9].*")

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the command line."""
        msg = f"{message}; see {self.prog} --help"
        raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class _Option:
    """One option of a study."""

    path: tuple[str, ...]
    """Fields from the study down."""
    kind: Any
    """Type of one value."""
    many: bool
    """Whether it takes several."""
    default: Any
    """Its default, or `dataclasses.MISSING`."""
    told: _Told

    @property
    def destination(self) -> str:
        """Name in the parsed namespace."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Its name on the command line, without the unit of a quantity."""
        name = self.path[-1]
        units = (suffix for suffix in SUFFIXES if self.kind is float and name.endswith(suffix))
        plain = name.removesuffix(next(units, ""))
        return self.told.flag or f"--{plain.replace('_', '-')}"


def _options(kind: type, above: tuple[str, ...] = (), defaults: object = None) -> Iterator[_Option]:
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(typing.cast("Any", kind)):
        default = item.default if defaults is None else getattr(defaults, item.name)
        if dataclasses.is_dataclass(hints[item.name]):
            group = item.default_factory() if callable(item.default_factory) else default
            yield from _options(typing.cast("type", hints[item.name]), (*above, item.name), group)
            continue
        if _KEY not in item.metadata:
            msg = f"field '{item.name}' of {kind.__name__} says nothing of its option; write option(...)"
            raise TypeError(msg)
        inner, many = _scalar(hints[item.name])
        yield _Option(
            path=(*above, item.name), kind=inner, many=many, default=default, told=item.metadata[_KEY]
        )


def _scalar(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any annotation
    """Return the type of one value, and whether there may be several."""
    members = [one for one in typing.get_args(hint) if one is not type(None)]
    if isinstance(hint, types.UnionType) and len(members) == 1:
        return _scalar(members[0])
    if typing.get_origin(hint) is tuple:
        return members[0], True
    return hint, False


class _Once(argparse.Action):
    """An option that is given once at most: a second one would be dropped without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - as read
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        seen: set[str] = namespace.__dict__.setdefault("_seen", set())
        if self.dest in seen and option_string is not None:
            before = getattr(namespace, self.dest)
            parser.error(f"{option_string} is given twice ({before}, {values}); one of them would be dropped")
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


def _given(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return what reads an option's text; blanks are most often a variable that is not set."""

    def given(text: str) -> Any:  # noqa: ANN401 - as read
        if not text.strip(" ,\t\n"):
            msg = "is given without a value; write one, or leave the option out"
            raise argparse.ArgumentTypeError(msg)
        try:
            return read(text)
        except HeliographError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return given


def _reader_of(kind: Any, name: str) -> Callable[[str], Any]:  # noqa: ANN401 - any type
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda text: _member(kind, text)
    if kind is int:
        return _whole_number
    if kind is float and (dimension := dimension_of(name)) is not None:
        return lambda text: _with_unit(name, text, dimension[1])
    if kind is float:
        return lambda text: _finite(text, text)
    return typing.cast("Callable[[str], Any]", kind)


_SLOW = types.MappingProxyType({"s": (1.0, math.inf, "25us"), "B/s": (0.0, 1e6, "50GB/s")})
"""Times and rates of networks that nobody means: from, to, and an example of how they are written."""


def _with_unit(name: str, text: str, unit: str) -> float:
    """Return a quantity in SI; a time or rate typed without a unit that is far from any network's is told."""
    number = _finite(quantity(name, text), text)
    low, high, example = _SLOW.get(unit, (math.inf, math.inf, ""))
    if TYPED.fullmatch(text) and low <= number < high and number > 0.0:
        meant = format_quantity(number, unit)
        msg = f"{name}={text} is {meant}; if that is not meant, write the unit, e.g. {example}"
        warnings.warn(msg, SuspectWarning, stacklevel=2)
    return number


def _member(kind: type[Enum], text: str) -> Enum:
    known = {str(member.value): member for member in kind}
    if text not in known:
        msg = f"no '{text}'; {nearest(text, known, noun='choice')}"
        raise ParameterError(msg)
    return known[text]


def _whole_number(text: str) -> int:
    """Return a whole number in plain digits; Python's own reading takes 1_0 and the digits of any script."""
    if not re.fullmatch("[+-]?[0-9]{1,18}", text.strip()):
        msg = f"must be a whole number in plain digits, such as 1024; got '{text}'"
        raise ParameterError(msg)
    return int(text)


def _finite(value: float | str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        msg = f"must be a finite number, such as 0.5; got '{text}'"
        raise ParameterError(msg)
    return number


def _members(read: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return what reads several values with commas between them."""
    return lambda text: tuple(read(part.strip()) for part in text.split(",") if part.strip())


def add_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the options of a study."""
    for one in _options(kind):
        _add(parser, one)


def _add(parser: argparse.ArgumentParser, one: _Option) -> None:
    told, needed = one.told, one.default is dataclasses.MISSING
    shown = "" if needed or one.default in (None, "", (), False, True) else f"; default {_shown(one.default)}"
    said: dict[str, Any] = {"help": f"{told.text}{shown}".replace("%", "%%")}
    if one.kind is bool:
        action = argparse.BooleanOptionalAction if one.default else "store_true"
        parser.add_argument(one.flag, dest=one.destination, default=one.default, action=action, **said)
        return
    choices = "|".join(str(each.value) for each in one.kind) if _is_enum(one.kind) else None
    said["metavar"] = told.metavar or choices or one.flag.strip("-").replace("-", "_").upper()
    read = _reader_of(one.kind, one.path[-1])
    said["type"] = _given(_members(read) if one.many and told.commas else read)
    if told.positional:
        said["metavar"] = told.metavar or choices or one.path[-1]
        parser.add_argument(one.destination, nargs=None if needed else "?", **said)
    elif one.many and not told.commas:
        parser.add_argument(one.flag, dest=one.destination, action="append", **said)
    else:
        parser.add_argument(one.flag, dest=one.destination, required=needed, action=_Once, **said)


def _is_enum(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(map(_shown, default))
    return str(default.value) if isinstance(default, Enum) else str(default)


def study_from(kind: type[StudyT], parsed: argparse.Namespace) -> StudyT:
    """Return the study that parsed options describe."""
    values: dict[str, Any] = {}
    for one in _options(kind):
        value = getattr(parsed, one.destination)
        if value is None:  # not asked of argparse, which would read a default's text as if it were given
            value = one.default
        if one.many and value is not None:
            value = tuple(value)
            if (twice := repeated(value)) is not None:
                msg = f"{one.flag}: {_shown(twice)} is given twice; name it once"
                raise ParameterError(msg)
        values[one.destination] = value
    return _built(kind, values)


def _built(kind: type[StudyT], values: Mapping[str, Any], above: tuple[str, ...] = ()) -> StudyT:
    hints = typing.get_type_hints(kind)
    arguments = {}
    for item in dataclasses.fields(typing.cast("Any", kind)):
        path = (*above, item.name)
        group: Any = hints[item.name]
        arguments[item.name] = (
            _built(typing.cast("type[Any]", group), values, path)
            if dataclasses.is_dataclass(group)
            else values[".".join(path)]
        )
    return kind(**arguments)


def refuse_unused(study: object, names: Collection[str], why: str) -> None:
    """Refuse options that are not at their defaults and that would change nothing.

    Parameters
    ----------
    study : dataclass
        What was asked.
    names : collection of str
        Fields of it whose options are not used; that of a group stands for all of the group.
    why : str
        Why they are not, in words.

    Raises
    ------
    ParameterError
        If one of them was given.
    """
    for one in _options(type(study)):
        value = _value(study, one)
        if one.path[0] in names and value != one.default and value not in (None, ()):
            msg = f"{one.flag} ({_shown(value)}) is not used: {why}; leave it out"
            raise ParameterError(msg)


def _value(study: Any, one: _Option) -> Any:  # noqa: ANN401 - a value of any type
    for name in one.path:
        study = getattr(study, name)
    return study


def written_by(study: object) -> list[Path]:
    """Return the files that the options of a study ask it to write."""
    return [
        getattr(study, one.path[0])
        for one in _options(type(study))
        if one.told.written and getattr(study, one.path[0]) is not None
    ]


def flags_of(kind: type) -> dict[str, str]:
    """Return the flag of every option of a study by its name without dashes; empty where its place tells."""
    return {one.flag.removeprefix("--"): "" if one.told.positional else one.flag for one in _options(kind)}


def options_of(study: object) -> dict[str, Any]:
    """Return every option of a study by its name, groups opened up."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(typing.cast("Any", study)):
        value = getattr(study, item.name)
        found |= options_of(value) if dataclasses.is_dataclass(value) else {item.name: value}
    return found


def command_line(study: object) -> list[str]:
    """Return the words that ask for a study: every option that is not at its default."""
    words: list[str] = []
    for one in _options(type(study)):
        value = _value(study, one)
        if value == one.default or value in (None, ()):
            continue
        shown = [_shown(each) for each in value] if one.many else [_shown(value)]
        if one.many and one.told.commas:
            shown = [",".join(shown)]
        if one.told.positional:
            words += shown
        elif one.kind is bool:
            words.append(one.flag if value else f"--no-{one.flag.removeprefix('--')}")
        else:
            words += [word for each in shown for word in (one.flag, each)]
    return words


PICTURES = (".png", ".svg")
"""Suffixes of a picture."""

Row = dict[str, Any]
"""One row of a tidy table."""
Block = ReportTable | str
"""A table, or text beneath it."""


@dataclass(kw_only=True)
class Progress:
    """Progress of a study: told as it runs, with what is finished already, and what was trained before."""

    say: Callable[[str, int, int], None] = lambda label, done, total: None
    """Told a label, how much is done, and how much there is."""
    directory: Path | None = None
    """Directory of the files, if any are written."""
    finished: Result | None = field(default=None, init=False)
    """Result that is written if the study is stopped."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Tell how much is done."""
        self.say(label, done, total)

    def keep(self, result: Result) -> None:
        """Keep what is finished, so that it is written even if the study is stopped."""
        self.finished = result

    @property
    def training(self) -> TrainingCache:
        """Finished training runs, beside the directory of the study."""
        beside = self.directory.parent if self.directory is not None else Path("results")
        return TrainingCache(beside / ".training")


class Result(Protocol):
    """Findings of a study."""

    def report(self) -> Sequence[Block]:
        """Return what the terminal shows."""
        ...

    def record(self) -> Mapping[str, Any]:
        """Return everything as plain data, SI throughout."""
        ...

    def rows(self) -> list[Row]:
        """Return the main table: flat rows with the same columns in every run."""
        ...

    def figure(self) -> Figure | None:
        """Return the main picture, or None where there is none to draw."""
        return None

    def tables(self) -> Mapping[str, list[Row]]:
        """Return all tables by what they are called after the command; the main one has no such name."""
        return {"": self.rows()}

    def figures(self) -> Mapping[str, Figure]:
        """Return all pictures in the same way."""
        main = self.figure()
        return {} if main is None else {"": main}

    def more_records(self) -> Mapping[str, object]:
        """Return what else is written as JSON, by what it is called after the command and a hyphen."""
        return {}

    def failure(self) -> str:
        """Return the sentence with which a command ends as failed when all is told; nothing if it did not."""
        return ""

    def write(self, directory: Path, name: str, document: Mapping[str, Any]) -> list[Path]:
        """Write record, tables and pictures, all or none; return the files.

        Parameters
        ----------
        directory : pathlib.Path
            Where; exists.
        name : str
            What the files are called.
        document : mapping
            The record with its head, see `document`.

        Raises
        ------
        HeliographError
            If they cannot be written.
        """
        with whole(directory, mark=f"{name}.json") as aside:
            files = [aside / f"{name}.json"]
            write_atomically(files[0], canonical_json(document, indent=1) + "\n")
            for more, rows in self.tables().items():
                files.append(aside / f"{_named(name, more)}.csv")
                write_atomically(files[-1], csv_text(headed(document, rows)))
            for more, records in self.more_records().items():
                files.append(aside / f"{name}-{more}.json")
                write_atomically(files[-1], canonical_json(records, indent=1) + "\n")
            files += draw(self, aside / name)
        return [directory / file.name for file in files]


class Study(Protocol):
    """A frozen dataclass of options that can be run."""

    directory: ClassVar[str] = ""
    """Directory below ``results`` where files go if nobody says, options in braces; empty for none."""

    def record_name(self, word: str) -> str:
        """Return what the files of the study are called, after the word of its command."""
        return word

    def run(self, progress: Progress) -> Result:
        """Return what is found.

        Raises
        ------
        HeliographError
            For anything wrong with what is asked.
        """
        ...

    def default_out(self) -> Path | None:
        """Return where files go if nobody says, numbered if a run stands there; None writes none."""
        if not self.directory:
            return None
        given = {name: file_name(str(value)) for name, value in options_of(self).items()}
        return Path("results") / self.directory.format(**given)


def draw(result: Result, path: Path) -> list[Path]:
    """Write the pictures of a result as PNG and SVG; return the files."""
    from heliograph.figures import save, styled  # noqa: PLC0415 - matplotlib takes its time

    with styled():
        return [
            one
            for more, figure in result.figures().items()
            for one in save(figure, path.with_name(f"{_named(path.name, more)}.png"))
        ]


def file_name(text: str) -> str:
    """Return text as a part of a file's name."""
    return "".join(one if one.isalnum() or one in "-_" else "_" for one in text)


def _named(name: str, more: str) -> str:
    return f"{name}_{more}" if more else name


def document(command: str, study: Study, result: Result) -> dict[str, Any]:
    """Return the record of a result with its head: what was asked of whom, so that files can be told apart.

    Parameters
    ----------
    command : str
        Words of the command.
    study : Study
        What was asked.
    result : Result
        What was found. Its own model, plan and system, as they were run, stand in place of those asked for.
    """
    found = {key: value for key, value in result.record().items() if key not in _OF_THE_HEAD}
    return head_of(command, study) | found


def head_of(command: str, study: Study) -> dict[str, Any]:
    """Return the head of a study's record, which is known before it runs."""
    options = options_of(study)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "command": command,
        "model": options.get("model"),
        "plan": options.get("plan"),
        "system": options.get("system", options.get("systems")),
        "settings": list(options.get("settings", ())),
        "seed": options.get("seed"),
        "options": options,
    }


_OF_THE_HEAD = ("schema", "version", "command", "settings", "options")
HEAD = ("model", "plan", "system", "settings", "seed")
"""Columns before a table's own, as far as the study has such options."""


def headed(document: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """Return rows of a table with what was asked before them, so that tables can be put under each other."""
    options = document["options"]
    known = {"version": document["version"]}
    known |= {name: _cell(document[name]) for name in HEAD if name in options}
    return [known | row for row in rows]


def _cell(value: object) -> object:
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value

"""Protocols of a study and of its result, and the command line that a study's fields declare.

A study is a frozen dataclass. Each field is made by `option` and is one command-line option; its annotation
says how the text is read:

- ``bool``: a flag; an enumeration: one of its values;
- ``tuple``: an option that is repeated, or one text of values separated by commas;
- ``float`` with a name that ends in a unit: a quantity, so that ``delay_s`` is ``--delay 25us``;
- another dataclass: a group of options, its fields.

`Study.run` computes a `Result`, which gives itself as a report for the terminal, as plain data, as tables of
flat rows and as figures. The driver (`experiments.cli`) does the rest for every study alike: it parses the
options, prints, writes files and stops cleanly.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
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
class _Declaration:
    """Arguments of `option`, kept in the metadata of the field."""

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
    """Return a dataclass field that is a command-line option.

    Parameters
    ----------
    default : object
        Default value; ``...`` for a required option.
    text : str
        Text of ``--help``, to which the default is added.
    metavar : str, optional
        Placeholder of the value in ``--help``.
    flag : str
        Flag, if it is not made of the field's name.
    positional : bool
        Whether the option is positional.
    commas : bool
        Whether the members of a tuple are separated by commas; otherwise the option is repeated.
    written : bool
        Whether the study writes to this path, which is then checked before the study runs.
    """
    declaration = _Declaration(
        text=text, metavar=metavar, flag=flag, positional=positional, commas=commas, written=written
    )
    if default is ...:
        return dataclasses.field(metadata={_KEY: declaration})
    return dataclasses.field(default=default, metadata={_KEY: declaration})


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `ParameterError` where argparse prints usage and exits."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - as argparse takes them
        super().__init__(**given)
        # argparse takes "-1us" for an option: it knows bare negative numbers only.
        self._negative_number_matcher = re.compile(r"-\.?[0-9].*")

    def error(self, message: str) -> NoReturn:
        """Raise a `ParameterError` with argparse's message, and with what an unknown flag may have meant."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        msg = f"{message}{self._meant(unknown[1]) if unknown else ''}; see {self.prog} --help"
        raise ParameterError(msg)

    def _meant(self, flag: str) -> str:
        """Return the clause that a flag is spelled like another, or names what stands without a flag."""
        places = [str(one.metavar or one.dest) for one in self._actions if not one.option_strings]
        if flag.removeprefix("--") in map(str.lower, places):
            return f"; write its value alone, without {flag}"
        near = difflib.get_close_matches(flag, self._option_string_actions, n=1, cutoff=0.7)
        return f"; did you mean {near[0]}?" if near else ""


@dataclass(frozen=True, kw_only=True)
class _Option:
    """One option of a study, as its field declares it."""

    path: tuple[str, ...]
    """Names of the fields that lead from the study to this one: the groups, then the field itself."""
    kind: Any
    """Type of one value; of a tuple that of its members."""
    many: bool
    """Whether the field is a tuple."""
    default: Any
    """Default value, or `dataclasses.MISSING`."""
    declaration: _Declaration

    @property
    def destination(self) -> str:
        """Attribute of the parsed namespace."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Flag on the command line; the unit at the end of a quantity's field is left out."""
        name = self.path[-1]
        units = (suffix for suffix in SUFFIXES if self.kind is float and name.endswith(suffix))
        plain = name.removesuffix(next(units, ""))
        return self.declaration.flag or f"--{plain.replace('_', '-')}"

    def value_in(self, study: Any) -> Any:  # noqa: ANN401 - a value of any type
        """Return the option's value in a study."""
        for name in self.path:
            study = getattr(study, name)
        return study

    def is_default(self, value: Any) -> bool:  # noqa: ANN401 - as above
        """Return whether a value is that of a study for which the option is not given."""
        return value == self.default or value in (None, ())


def _options(kind: type, above: tuple[str, ...] = (), defaults: object = None) -> Iterator[_Option]:
    """Yield the options of a study in the order of its fields, groups opened up.

    Parameters
    ----------
    kind : type
        Dataclass of the study or of a group.
    above : tuple of str
        Fields that lead to a group.
    defaults : object, optional
        Instance of a group, whose values are the defaults.
    """
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
            path=(*above, item.name),
            kind=inner,
            many=many,
            default=default,
            declaration=item.metadata[_KEY],
        )


def _scalar(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any annotation
    """Return the type of one value, and whether the annotation is a tuple of them; ``| None`` is dropped."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    if isinstance(hint, types.UnionType) and len(members) == 1:
        return _scalar(members[0])
    if typing.get_origin(hint) is tuple:
        return members[0], True
    return hint, False


class _Once(argparse.Action):
    """Store a value, and refuse a second one, of which argparse would silently keep the last."""

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


def _refusing_blanks(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader that refuses blank text, mostly an unset shell variable, as argparse refuses values."""

    def read_text(text: str) -> Any:  # noqa: ANN401 - as read
        if not text.strip(" ,\t\n"):
            msg = "is given without a value; write one, or leave the option out"
            raise argparse.ArgumentTypeError(msg)
        try:
            return read(text)
        except HeliographError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read_text


def _reader_of(kind: Any, name: str) -> Callable[[str], Any]:  # noqa: ANN401 - any type
    """Return the function that reads one value of a type, for a field of this name."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda text: _read_member(kind, text)
    if kind is int:
        return _read_whole_number
    if kind is float and (dimension := dimension_of(name)) is not None:
        return lambda text: _read_quantity(name, text, dimension[1])
    if kind is float:
        return lambda text: _finite(text, text)
    return typing.cast("Callable[[str], Any]", kind)


_SUSPECT = types.MappingProxyType({"s": (1.0, math.inf, "25us"), "B/s": (0.0, 1e6, "50GB/s")})
"""By SI unit: range, low to high, in which a number typed without a unit is probably in another unit, since
no network is that slow; and an example with a unit."""


def _read_quantity(name: str, text: str, unit: str) -> float:
    """Return a quantity in SI; warn of a number without a unit in the range of `_SUSPECT`."""
    number = _finite(quantity(name, text), text)
    low, high, example = _SUSPECT.get(unit, (math.inf, math.inf, ""))
    if TYPED.fullmatch(text) and low <= number < high and number > 0.0:
        meant = format_quantity(number, unit)
        msg = f"{name}={text} is {meant}; if that is not meant, write the unit, e.g. {example}"
        warnings.warn(msg, SuspectWarning, stacklevel=2)
    return number


def _read_member(kind: type[Enum], text: str) -> Enum:
    known = {str(member.value): member for member in kind}
    if text not in known:
        msg = f"no '{text}'; {nearest(text, known, noun='choice')}"
        raise ParameterError(msg)
    return known[text]


def _read_whole_number(text: str) -> int:
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


def _separated_by_commas(read: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a reader of values separated by commas, from the reader of one."""
    return lambda text: tuple(read(part.strip()) for part in text.split(",") if part.strip())


def add_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add the options of a study to a parser."""
    for each in _options(kind):
        _add_option(parser, each)


def _add_option(parser: argparse.ArgumentParser, added: _Option) -> None:
    declared, required = added.declaration, added.default is dataclasses.MISSING
    silent = required or added.default in (None, "", (), False, True)
    shown = "" if silent else f"; default {_written(added.default)}"
    keywords: dict[str, Any] = {"help": f"{declared.text}{shown}".replace("%", "%%")}
    if added.kind is bool:
        action = argparse.BooleanOptionalAction if added.default else "store_true"
        parser.add_argument(
            added.flag, dest=added.destination, default=added.default, action=action, **keywords
        )
        return
    choices = "|".join(str(member.value) for member in added.kind) if _is_enum(added.kind) else None
    keywords["metavar"] = declared.metavar or choices or added.flag.strip("-").replace("-", "_").upper()
    read = _reader_of(added.kind, added.path[-1])
    listed = added.many and declared.commas
    keywords["type"] = _refusing_blanks(_separated_by_commas(read) if listed else read)
    if declared.positional:
        keywords["metavar"] = declared.metavar or choices or added.path[-1]
        parser.add_argument(added.destination, nargs=None if required else "?", **keywords)
    elif added.many and not declared.commas:
        parser.add_argument(added.flag, dest=added.destination, action="append", **keywords)
    else:
        parser.add_argument(added.flag, dest=added.destination, required=required, action=_Once, **keywords)


def _is_enum(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _written(value: object) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(_written, value))
    return str(value.value) if isinstance(value, Enum) else str(value)


def study_from(kind: type[StudyT], parsed: argparse.Namespace) -> StudyT:
    """Return the study of a kind with the values of parsed options."""
    values: dict[str, Any] = {}
    for each in _options(kind):
        value = getattr(parsed, each.destination)
        if value is None:  # not asked of argparse, which would read a default's text as if it were given
            value = each.default
        if each.many and value is not None:
            value = tuple(value)
            if (twice := repeated(value)) is not None:
                msg = f"{each.flag}: {_written(twice)} is given twice; name it once"
                raise ParameterError(msg)
        values[each.destination] = value
    return _built(kind, values)


def _built(kind: type[StudyT], values: Mapping[str, Any], above: tuple[str, ...] = ()) -> StudyT:
    """Return a study or group with the values of its options, by destination."""
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
    """Refuse options that were given and would change nothing.

    Parameters
    ----------
    study : dataclass
        The study, or a group of its options.
    names : collection of str
        Fields whose options have no effect; the name of a group stands for all of its options.
    why : str
        Reason, in words.

    Raises
    ------
    ParameterError
        If one of them is not at its default.
    """
    for each in _options(type(study)):
        value = each.value_in(study)
        if each.path[0] in names and not each.is_default(value):
            msg = f"{each.flag} ({_written(value)}) is not used: {why}; leave it out"
            raise ParameterError(msg)


def written_by(study: object) -> list[Path]:
    """Return the paths that a study's options ask it to write."""
    paths = (each.value_in(study) for each in _options(type(study)) if each.declaration.written)
    return [path for path in paths if path is not None]


def flags_of(kind: type) -> dict[str, str]:
    """Return the flag of every option of a study by its name without dashes; empty for a positional one."""
    return {
        each.flag.removeprefix("--"): "" if each.declaration.positional else each.flag
        for each in _options(kind)
    }


def options_of(study: object) -> dict[str, Any]:
    """Return the value of every option of a study by the name of its field, groups opened up."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(typing.cast("Any", study)):
        value = getattr(study, item.name)
        values |= options_of(value) if dataclasses.is_dataclass(value) else {item.name: value}
    return values


def command_line(study: object) -> list[str]:
    """Return the words of the command line that gives this study: every option that is not at its default."""
    words: list[str] = []
    for each in _options(type(study)):
        value = each.value_in(study)
        if each.is_default(value):
            continue
        texts = [_written(member) for member in value] if each.many else [_written(value)]
        if each.many and each.declaration.commas:
            texts = [",".join(texts)]
        if each.declaration.positional:
            words += texts
        elif each.kind is bool:
            words.append(each.flag if value else f"--no-{each.flag.removeprefix('--')}")
        else:
            words += [word for text in texts for word in (each.flag, text)]
    return words


PICTURES = (".png", ".svg")
"""Suffixes of a picture."""

Row = dict[str, Any]
"""One row of a tidy table."""
Block = ReportTable | str
"""A table, or text beneath it."""


@dataclass(kw_only=True)
class Progress:
    """Callback that a running study reports to, and the result so far if it is interrupted."""

    say: Callable[[str, int, int], None] = lambda label, done, total: None
    """Called with a label, the amount done and the total."""
    directory: Path | None = None
    """Output directory; None if no files are written."""
    finished: Result | None = field(default=None, init=False)
    """Partial result, which is written if the study is interrupted."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Report an amount done of a total."""
        self.say(label, done, total)

    def keep(self, result: Result) -> None:
        """Replace the partial result."""
        self.finished = result

    @property
    def training(self) -> TrainingCache:
        """Cache of finished training runs, beside the output directory."""
        beside = self.directory.parent if self.directory is not None else Path("results")
        return TrainingCache(beside / ".training")


class Result(Protocol):
    """Findings of a study."""

    def report(self) -> Sequence[Block]:
        """Return the report on the terminal: tables and text."""
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
        """Return every table by the suffix of its file's name; that of the main one is empty."""
        return {"": self.rows()}

    def figures(self) -> Mapping[str, Figure]:
        """Return every figure by the suffix of its file's name; that of the main one is empty."""
        main = self.figure()
        return {} if main is None else {"": main}

    def more_records(self) -> Mapping[str, object]:
        """Return further JSON files: plain data by the suffix of the file's name."""
        return {}

    def failure(self) -> str:
        """Return the message with which the command fails after its report; empty if it succeeded."""
        return ""

    def write(self, directory: Path, name: str, document: Mapping[str, Any]) -> list[Path]:
        """Write record, tables and figures, all or none; return the files.

        Parameters
        ----------
        directory : pathlib.Path
            Existing directory.
        name : str
            Stem of the files' names.
        document : mapping
            Record with its head, as `document` returns it.

        Raises
        ------
        HeliographError
            If they cannot be written.
        """
        with whole(directory, mark=f"{name}.json") as aside:
            files = [aside / f"{name}.json"]
            write_atomically(files[0], canonical_json(document, indent=1) + "\n")
            for suffix, rows in self.tables().items():
                files.append(aside / f"{_suffixed(name, suffix)}.csv")
                write_atomically(files[-1], csv_text(headed(document, rows)))
            for suffix, records in self.more_records().items():
                files.append(aside / f"{name}-{suffix}.json")
                write_atomically(files[-1], canonical_json(records, indent=1) + "\n")
            files += draw(self, aside / name)
        return [directory / file.name for file in files]


class Study(Protocol):
    """A frozen dataclass of options that can be run."""

    directory: ClassVar[str] = ""
    """Default output directory below ``results``, a format string over the options; empty for none."""

    def record_name(self, word: str) -> str:
        """Return the stem of the names of the study's files; by default the last word of its command."""
        return word

    def run(self, progress: Progress) -> Result:
        """Compute and return the result.

        Raises
        ------
        HeliographError
            If an option is invalid or the study cannot be run with it.
        """
        ...

    def default_out(self) -> Path | None:
        """Return the output directory if ``--out`` is not given; None writes no files."""
        if not self.directory:
            return None
        given = {name: file_name(str(value)) for name, value in options_of(self).items()}
        return Path("results") / self.directory.format(**given)


def draw(result: Result, path: Path) -> list[Path]:
    """Write the pictures of a result as PNG and SVG; return the files."""
    from heliograph.figures import save, styled  # noqa: PLC0415 - matplotlib takes its time

    with styled():
        return [
            file
            for suffix, figure in result.figures().items()
            for file in save(figure, path.with_name(f"{_suffixed(path.name, suffix)}.png"))
        ]


def file_name(text: str) -> str:
    """Return a text with every character that a file's name should not have replaced by an underscore."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in text)


def _suffixed(name: str, suffix: str) -> str:
    return f"{name}_{suffix}" if suffix else name


def document(command: str, study: Study, result: Result) -> dict[str, Any]:
    """Return the record of a result with a head that names command, options and version.

    Parameters
    ----------
    command : str
        Words of the command.
    study : Study
        The study that was run.
    result : Result
        Its result, whose model, plan and system, as they were run, replace those of the options.
    """
    record = {key: value for key, value in result.record().items() if key not in _OF_THE_HEAD}
    return head_of(command, study) | record


def head_of(command: str, study: Study) -> dict[str, Any]:
    """Return the head of a study's record, which is known before the study runs."""
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
"""Keys of the head that a result's own record does not replace."""
HEAD = ("model", "plan", "system", "settings", "seed")
"""Keys of the head that become the first columns of every table, if the study has such options."""


def headed(document: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """Return rows of a table with the columns `HEAD` in front, so that tables of several runs can be joined.

    Parameters
    ----------
    document : mapping
        Record of the run, as `document` returns it.
    rows : sequence of dict
        Rows of one of its tables.
    """
    options = document["options"]
    known = {"version": document["version"]}
    known |= {name: _cell(document[name]) for name in HEAD if name in options}
    return [known | row for row in rows]


def _cell(value: object) -> object:
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value

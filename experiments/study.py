"""One kind of study: what is asked, how it is run, and what every result can tell.

A study is a frozen dataclass whose fields are its options (`experiments.options.option`); `Study.run`
computes, and the `Result` tells itself as text, as tidy rows, as pictures and as plain data. The driver
(`experiments.cli`) does everything else: it reads the options, prints, writes, and stops cleanly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from experiments.options import options_of
from heliograph import __version__
from heliograph.records import SCHEMA, TrainingCache, canonical_json, csv_text, whole, write_atomically
from heliograph.report import ReportTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    def of(self, what: str) -> Callable[[int, int, str], None]:
        """Return what training tells of its runs: number done, number in all, label."""
        return lambda done, total, label: self.say(f"{what}, {label}", done, total)

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
            files += draw(self, aside / name)
        return [directory / file.name for file in files]


class Study(Protocol):
    """A frozen dataclass of options that can be run."""

    directory: ClassVar[str] = ""
    """Directory below ``results`` where files go if nobody says, options in braces; empty for none."""

    def run(self, progress: Progress) -> Result:
        """Return what is found.

        Raises
        ------
        HeliographError
            For anything wrong with what is asked.
        """
        ...

    def default_out(self) -> Path | None:
        """Return where files go if nobody says; None writes none."""
        if not self.directory:
            return None
        given = {name: file_name(str(value)) for name, value in options_of(self).items()}
        return Path("results") / self.directory.format(**given)


def draw(result: Result, path: Path) -> list[Path]:
    """Write the pictures of a result as PNG and SVG; return the files."""
    from heliograph.style import save, styled  # noqa: PLC0415 - matplotlib takes its time

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
    options = options_of(study)
    head = {
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
    found = {key: value for key, value in result.record().items() if key not in _OF_THE_HEAD}
    return head | found


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

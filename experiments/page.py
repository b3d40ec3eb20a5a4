"""Pages of studies, what ``--report`` writes: what all of them begin and end with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.study import Study, command_line
from heliograph.parameters import tables
from heliograph.records import git_commit, plain, versions
from heliograph.report import ReportTable
from heliograph.report_page.page import Cell, Number, Section, Sheet


def asked(name: str, study: Study, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was asked, in words: the command that asks it again first.

    Parameters
    ----------
    name : str
        Words of the command.
    study : Study
        What was asked.
    document : mapping
        The record with its head (`experiments.study.document`).
    """
    words = ["heliograph", *name.split(), *command_line(study)]
    found = [("command", shlex.join(words))]
    for key in ("model", "plan", "accelerators"):
        value = document.get(key)
        if value not in (None, "", []):
            found.append((key, f"{value:,}" if isinstance(value, int) else str(value)))
    settings = document.get("settings") or ()
    found.append(("changed", "; ".join(map(str, settings)) or "nothing"))
    return found


def end(document: Mapping[str, Any]) -> Section:
    """Return configuration and versions: what somebody needs to run the same again."""
    options = [[key, _text(value)] for key, value in document["options"].items()]
    commit = git_commit()
    made = [*versions().items(), *([("commit", commit)] if commit else [])]
    hashes = [[f"{one.path.parent.parent.name}/{one.path.name}", one.sha256] for one in tables()]
    return Section(
        title="Configuration and versions",
        blocks=[
            Sheet(title="Options", heads=("option", "value"), rows=options),
            Sheet(title="Versions", heads=("what", "version"), rows=[[key, value] for key, value in made]),
            Sheet(title="Parameter tables by hash", heads=("table", "SHA-256"), rows=hashes, folded=True),
        ],
    )


def _text(value: object) -> str:
    shown = plain(value)
    if isinstance(shown, list):
        return ", ".join(map(str, shown)) or "\u2013"
    return "\u2013" if shown is None or shown == "" else str(shown)


def sheet(table: ReportTable, head: str = "", *, key: str = "") -> Sheet:
    """Return a table of the terminal as one of a page, notes as its last column.

    Parameters
    ----------
    table : ReportTable
        As the terminal has it.
    head : str
        Head of the column of names.
    key : str
        Key of the formula that all its numbers unfold to.
    """
    noted = any(row.note for row in table.rows)
    rows: list[Sequence[Cell]] = [
        [row.label.strip(), *(_cell(one, key) for one in row.values), *([row.note] if noted else [])]
        for row in table.rows
    ]
    heads = (head, *table.heads, *(["note"] if noted else []))
    return Sheet(title=table.title, heads=heads, rows=rows)


def _cell(shown: str, key: str) -> Cell:
    """Return a value of the terminal: as a number that is sorted as one, or as the text that it is."""
    if _NUMBER.match(shown) is None:
        return shown
    return Number(text=shown, value=_sorted_by(shown), key=key)


def _sorted_by(shown: str) -> float | None:
    """Return the number that a text begins with, where it has no prefix that scales it."""
    found = _PLAIN.fullmatch(shown)
    return float(found[1].replace(",", "")) if found else None


_NUMBER = re.compile(r"[-+\u2013]?\d")
_PLAIN = re.compile(r"([-+]?[\d,]*\.?\d+)(?: (?:dB|%|x|\$))?")

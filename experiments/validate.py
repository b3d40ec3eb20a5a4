"""Predictions against published measurements: the place of `experiments.validation` on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from experiments.validation import KINDS, Validation, report, validate, write


@dataclass(frozen=True, kw_only=True)
class Validated(Result):
    """Rows of a table of measurements, each with what was predicted."""

    validation: Validation
    """All rows."""

    def report(self) -> list[Block]:
        """Return statistics by source, rows that miss, and reasons of skipped ones."""
        return [report(self.validation)]

    def record(self) -> Mapping[str, Any]:
        """Return all rows as plain data."""
        return self.validation.record()

    def rows(self) -> list[Row]:
        """Return a row for each row of the table."""
        found: list[Row] = []
        for one in self.validation.record()["rows"]:
            found.append({key: value for key, value in one.items() if not isinstance(value, dict | list)})
        return found

    def write(self, directory: Path, name: str, document: Mapping[str, Any]) -> list[Path]:
        """Write rows, what stands beside them, and the scatter plot."""
        return list(write(self.validation, directory))


@dataclass(frozen=True, kw_only=True)
class Validate(Study):
    """Predictions of one kind against published measurements."""

    kind: str = option(..., "what is validated", metavar="|".join(KINDS), positional=True)
    data: Path | None = option(None, "CSV of measurements instead of the table that ships", metavar="FILE")

    def run(self, progress: Progress) -> Validated:
        """Return all rows with their predictions."""
        return Validated(validation=validate(self.kind, data=self.data, progress=progress))

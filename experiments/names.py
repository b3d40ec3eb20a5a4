"""Names to choose from, and every parameter of what they stand for with unit and source."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.catalogue import Parameter, description, listing, parameter_lines


@dataclass(frozen=True, kw_only=True)
class Named(Result):
    """Names of a kind with one line on each."""

    names: dict[str, str]
    """Text by name."""

    def report(self) -> list[Block]:
        """Return a line for each name."""
        width = max(len(name) for name in self.names)
        return [f"{name:<{width}}  {text}" for name, text in self.names.items()]

    def record(self) -> dict[str, Any]:
        """Return the names as plain data."""
        return {"names": self.names}

    def rows(self) -> list[Row]:
        """Return a row for each name."""
        return [{"name": name, "text": text} for name, text in self.names.items()]


@dataclass(frozen=True, kw_only=True)
class Names(Study):
    """Names of systems, models, cores, fabrics, devices or parts."""

    what: str = option(
        ..., "what is listed", metavar="systems|models|cores|fabrics|devices|parts", positional=True
    )

    def run(self, progress: Progress) -> Named:
        """Return the names."""
        return Named(names=listing(self.what))


@dataclass(frozen=True, kw_only=True)
class Described(Result):
    """Parameters of something."""

    parameters: tuple[Parameter, ...]
    """All of them."""

    def report(self) -> list[Block]:
        """Return a line for each parameter."""
        return list(parameter_lines(self.parameters))

    def record(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return {"parameters": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each parameter."""
        return [dataclasses.asdict(one) for one in self.parameters]


@dataclass(frozen=True, kw_only=True)
class Parameters(Study):
    """Every parameter of something by name."""

    name: str = option(..., "system, core, fabric, accelerator, device or model", positional=True)

    def run(self, progress: Progress) -> Described:
        """Return its parameters."""
        return Described(parameters=tuple(description(self.name)))

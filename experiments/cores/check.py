"""Laws that every photonic core keeps, asked of one: whoever writes a core learns what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.core_laws import Fault, laws_asked
from optical.cores import load_core


@dataclass(frozen=True, kw_only=True)
class CheckedCore(Result):
    """Faults of a core."""

    core: str
    """The core."""
    laws: tuple[str, ...]
    """Laws that were asked."""
    faults: tuple[Fault, ...]
    """Every fault that was found."""

    @property
    def broken(self) -> int:
        """Laws with a fault."""
        return len({one.law for one in self.faults})

    def report(self) -> list[Block]:
        """Return every fault, or that there is none."""
        if not self.faults:
            return [f"Core '{self.core}' keeps all {len(self.laws)} laws."]
        return [f"- {one}" for one in self.faults]

    def failure(self) -> str:
        """Return how many laws are broken; nothing if none is."""
        if not self.faults:
            return ""
        return f"core '{self.core}' breaks {self.broken} of {len(self.laws)} laws"

    def record(self) -> dict[str, Any]:
        """Return the faults as plain data."""
        faults = [{"law": one.law, "fault": one.text} for one in self.faults]
        return {"core": self.core, "laws": list(self.laws), "faults": faults}

    def rows(self) -> list[Row]:
        """Return a row for each fault, and one for each law that is kept."""
        rows: list[Row] = []
        for law in self.laws:
            told = [one.text for one in self.faults if one.law == law]
            common: Row = {"core": self.core, "law": law, "kept": not told}
            rows += [common | {"fault": text} for text in told or [""]]
        return rows


@dataclass(frozen=True, kw_only=True)
class CheckCore(Study):
    """Every law that all cores keep, asked of one."""

    core: str = option(..., "core by name, or FILE.py:CLASS", positional=True)
    unused: tuple[str, ...] = option(
        (),
        "number, or part with all of its numbers, that the core takes over and has no use for "
        "(core.waveguide); may be repeated",
        metavar="PATH",
    )

    def run(self, progress: Progress) -> CheckedCore:
        """Return every fault of the core."""
        asked, faults = laws_asked(load_core(self.core), unused=self.unused), list[Fault]()
        for done, (law, ask) in enumerate(asked.items()):
            progress(law.replace("_", " "), done, len(asked))
            faults += ask()
        progress("asked", len(asked), len(asked))
        return CheckedCore(core=self.core, laws=tuple(asked), faults=tuple(faults))

"""Pretrained sentence encoder on cores, judged by its own task: to find the text that another belongs to.

Its weights come with a Python package (the extra ``pretrained``); none of it was trained here, so that what a
core's noise costs does not rest on this project's models alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.accuracy.capture import ENCODER, load_encoder, text_halves
from experiments.hardware import Hardware
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.accuracy.small_gpt import standard_error
from heliograph.report import ReportRow, ReportTable
from simulator.errors import ParameterError

if TYPE_CHECKING:
    import torch

    from heliograph.systems import System

SYSTEMS = (
    "photonic_packet",
    "photonic_packet:crossbar",
    "photonic_packet:ring_bank",
    "photonic_packet:mzi_mesh",
    "photonic_packet:pcm_crossbar",
    "photonic_packet:block_float",
)
"""Systems that are judged if nobody names any: the default core, and bare ones."""
PAIRS, QUICK_PAIRS = 48, 8
"""Texts, each in two halves; choices."""
DRAWS = 2
"""Draws of the noise."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the encoder does on one system."""

    system: str
    """Name of the system."""
    core: str
    """Name of its core."""
    cosines: tuple[float, ...]
    """Mean cosine of its sentence vectors to the exact ones, one a draw."""
    found: tuple[float, ...]
    """Share of texts whose other half is the nearest one, 0 to 1, one a draw."""


@dataclass(frozen=True, kw_only=True)
class JudgedEncoder(Result):
    """What the encoder does on all systems."""

    pairs: int
    """Texts."""
    exact: float
    """Share of texts whose other half is found with exact products."""
    judged: tuple[Judged, ...]
    """One for each system."""

    def report(self) -> list[Block]:
        """Return a line for each system."""
        rows = [ReportRow("exact", ("1", f"{self.exact:.0%}"))]
        rows += [
            ReportRow(
                f"{one.system}: {one.core}",
                (f"{_mean(one.cosines):.3f}", f"{_mean(one.found):.0%}{_spread(one.found)}"),
            )
            for one in self.judged
        ]
        title = f"{ENCODER}, {self.pairs} texts; by chance {1.0 / self.pairs:.0%} are found"
        return [ReportTable(title=title, heads=("cosine to its own", "halves found"), rows=rows)]

    def record(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {"pairs": self.pairs, "exact_found": self.exact, "judged": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each system and draw."""
        return [
            {"system": one.system, "core": one.core, "draw": draw, "cosine": cosine, "found": found}
            for one in self.judged
            for draw, (cosine, found) in enumerate(zip(one.cosines, one.found, strict=True))
        ]


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)


def _spread(values: tuple[float, ...]) -> str:
    error = standard_error(values)
    return f" \u00b1 {error:.0%}" if math.isfinite(error) else ""


@dataclass(frozen=True, kw_only=True)
class JudgeEncoder(Study):
    """Pretrained sentence encoder, converted to cores and judged on its own task."""

    system: tuple[str, ...] = option(
        SYSTEMS, "photonic systems by name, or TOML files, separated by commas", metavar="NAMES", commas=True
    )
    seed: int = option(0, "seed of texts and draws")
    quick: bool = option(False, f"{QUICK_PAIRS} texts instead of {PAIRS}, one draw")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> JudgedEncoder:
        """Return what the encoder does on each system."""
        if self.seed < 0:
            msg = f"--seed must be at least 0; got {self.seed}"
            raise ParameterError(msg)
        systems = [self.hardware.system(name) for name in self.system]
        for one in systems:
            if one.photonic is None:
                msg = (
                    f"--system {one.name} has no light to convert to; name photonic ones, as photonic_packet"
                )
                raise ParameterError(msg)
        tokenizer, model = load_encoder()
        pairs = QUICK_PAIRS if self.quick else PAIRS
        task = Task(model=model.eval(), halves=tuple(text_halves(tokenizer, self.seed, pairs)))
        judged = []
        for done, one in enumerate(systems):
            progress(one.name, done, len(systems))
            judged.append(task.judge(one, seed=self.seed, draws=1 if self.quick else DRAWS))
        progress("judged", len(systems), len(systems))
        return JudgedEncoder(pairs=pairs, exact=found_share(*task.exact), judged=tuple(judged))


@dataclass(frozen=True, kw_only=True)
class Task:
    """Halves of texts that an encoder is to find together."""

    model: torch.nn.Module
    """Encoder, in `eval` mode; its first result is a vector for each token, [B, T, C]."""
    halves: tuple[Any, Any]
    """Inputs of the model: first halves, second halves."""

    @property
    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sentence vectors of both halves with exact products, [B, C] each, of length one."""
        return self.vectors(self.model, (0, 0))

    def vectors(self, model: torch.nn.Module, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sentence vectors of both halves, each with draws of its own: alike ones would match."""
        import torch  # noqa: PLC0415 - only to execute

        from optical.conversion import noise_key  # noqa: PLC0415 - torch

        found = []
        for place, half in enumerate(self.halves):
            with torch.no_grad(), noise_key(key[0], len(self.halves) * key[1] + place):
                found.append(torch.nn.functional.normalize(model(**half)[0].mean(1), dim=-1))
        return found[0], found[1]

    def judge(self, system: System, *, seed: int, draws: int) -> Judged:
        """Return what the encoder does on a photonic system."""
        from optical.conversion import Mode, Policy, convert  # noqa: PLC0415 - torch

        exact = self.exact
        noisy = convert(self.model, system, policy=Policy(mode=Mode.INFERENCE)).eval()
        cosines, found = [], []
        for draw in range(draws):
            vectors = self.vectors(noisy, (seed, draw))
            both = [float((a * b).sum(1).mean()) for a, b in zip(exact, vectors, strict=True)]
            cosines.append(math.fsum(both) / len(both))
            found.append(found_share(*vectors))
        return Judged(
            system=system.name,
            core=system.photonic.core.name if system.photonic else "",
            cosines=tuple(cosines),
            found=tuple(found),
        )


def found_share(first_BC: torch.Tensor, second_BC: torch.Tensor) -> float:
    """Return the share of first halves whose nearest second half is their own, by vectors of length one."""
    nearest = (first_BC @ second_BC.T).argmax(1)
    return float((nearest == nearest.new_tensor(range(len(nearest)))).float().mean())

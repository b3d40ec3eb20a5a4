"""What each uncertain number of an accelerator does to energy, time and effective bits, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.catalogue import parameters_of
from experiments.core import layer_products, phase_energy, training_j_per_mac
from heliograph.errors import HeliographError
from heliograph.paths import replace_at

if TYPE_CHECKING:
    from optical.accelerator import PhotonicUnit


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is asked of an accelerator."""

    j_per_mac: float
    """Energy per multiply-accumulate over the three products of a layer."""
    time_s: float
    """Time of the three together."""
    effective_bits: float
    """Effective bits of a full-scale sample."""


@dataclass(frozen=True, kw_only=True)
class Swing:
    """One parameter at both ends of its published range, all else as it is."""

    path: str
    """The parameter, as ``--set`` takes it."""
    unit: str
    """Its unit."""
    low: float
    """Low end, or the present value where the table has none."""
    value: float
    """Present value."""
    high: float
    """High end, or the present value where the table has none."""
    at_low: Answers | None
    """Answers at the low end; None where the core does not work with it."""
    at_high: Answers | None
    """Answers at the high end; None where the core does not work with it."""


def answers(unit: PhotonicUnit, tokens: int) -> Answers:
    """Return energy, time and effective bits of an accelerator."""
    energies = [phase_energy(unit, product) for product in layer_products(tokens)]
    return Answers(
        j_per_mac=training_j_per_mac(energies),
        time_s=sum(one.time_s for one in energies),
        effective_bits=unit.core.effective_bits,
    )


def tornado(unit: PhotonicUnit, tokens: int) -> tuple[Swing, ...]:
    """Return the swing of every parameter that has a range and moves an answer.

    Parameters
    ----------
    unit : PhotonicUnit
        The accelerator; its number of cores stays, so that a hungrier core draws more power.
    tokens : int
        Tokens of the products.

    Notes
    -----
    The laser's power stays too: a lossier part costs bits, not light. Numbers that the user set keep the
    range of the table.
    """
    present = answers(unit, tokens)
    swings = []
    for one in parameters_of(unit):
        if (one.low is None and one.high is None) or isinstance(one.value, str):
            continue
        low = one.value if one.low is None else one.low
        high = one.value if one.high is None else one.high
        ends = [_answers_at(unit, one.path, end, tokens) for end in (low, high)]
        if all(end == present for end in ends):
            continue
        swings.append(
            Swing(
                path=one.path,
                unit=one.unit,
                low=low,
                value=one.value,
                high=high,
                at_low=ends[0],
                at_high=ends[1],
            )
        )
    return tuple(swings)


def _answers_at(unit: PhotonicUnit, path: str, value: float, tokens: int) -> Answers | None:
    try:
        return answers(replace_at(unit, path, value), tokens)
    except HeliographError:
        return None

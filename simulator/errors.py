"""The few kinds of error a user can cause, so that the command line can answer with one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_SHOWN = 12
"""Most names that an error lists."""


class HeliographError(Exception):
    """Anything wrong with what a user handed in; the message names the thing, the rule and the way out."""


class ParameterError(HeliographError):
    """A hardware parameter, table row or system file that breaks its rule."""


class WorkloadError(HeliographError):
    """A model, plan or step graph that cannot be run as described."""


class BudgetError(ParameterError):
    """An accelerator for which a budget of power or area has no room."""


class LinkError(HeliographError):
    """An optical path that does not close: too little light reaches the detector."""


class RouteError(HeliographError):
    """A flow that the fabric cannot carry."""


class SuspectWarning(UserWarning):
    """A result that is possible but better than anything that was built; one sentence, no failure."""


class RangeWarning(SuspectWarning):
    """A number beyond the range of its row, or beyond what is made; one sentence, no failure."""


class LimitWarning(RangeWarning):
    """A limit of light or size that a chip passes."""

    def __init__(self, sentence: str, limit: str, excess: float) -> None:
        super().__init__(sentence, limit, excess)

    def __str__(self) -> str:
        """Return the sentence."""
        return str(self.args[0])

    @property
    def limit(self) -> str:
        """Name of the limit."""
        return str(self.args[1])

    @property
    def excess(self) -> float:
        """What is asked over what is possible."""
        return float(self.args[2])


class ClippingWarning(SuspectWarning):
    """An output converter that clips more than the quick execution of a sum follows."""

    def __init__(self, sentence: str, share: float) -> None:
        super().__init__(sentence, share)

    def __str__(self) -> str:
        """Return the sentence."""
        return str(self.args[0])

    @property
    def share(self) -> float:
        """Part of the error that is clipping, 0 to 1."""
        return float(self.args[1])


class IncompleteWarning(SuspectWarning):
    """A result from an input of which a part was missing and left out; one sentence, no failure."""


def nearest(name: str, known: Iterable[str], *, noun: str = "name") -> str:
    """Return the closing clause of an error about an unknown name.

    Returns
    -------
    str
        ``did you mean 'x'?`` when something is near, whatever its case; otherwise the known names, and of
        more than `MOST_SHOWN` those that are most like it.
    """
    choices = sorted(set(known))
    lowered = {one.lower(): one for one in choices}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.51)
    if near:
        return f"did you mean '{lowered[near[0]]}'?"
    if len(choices) > MOST_SHOWN:
        choices.sort(key=lambda one: -difflib.SequenceMatcher(None, one.lower(), name.lower()).ratio())
    shown = ", ".join(choices[:MOST_SHOWN]) + (", ..." if len(choices) > MOST_SHOWN else "")
    plural = {"policy": "policies", "basis": "bases"}.get(noun, f"{noun}s")
    return f"known {plural}: {shown}"

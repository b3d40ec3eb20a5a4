"""The few kinds of error a user can cause, so that the command line can answer with one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeliographError(Exception):
    """Anything wrong with what a user handed in; the message names the thing, the rule and the way out."""


class ParameterError(HeliographError):
    """A hardware parameter, table row or system file that breaks its rule."""


class WorkloadError(HeliographError):
    """A model, plan or step graph that cannot be run as described."""


class LinkError(HeliographError):
    """An optical path that does not close: too little light reaches the detector."""


class RouteError(HeliographError):
    """A flow that the fabric cannot carry."""


class SuspectWarning(UserWarning):
    """A result that is possible but better than anything that was built; one sentence, no failure."""


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

    Parameters
    ----------
    name : str
        What the user wrote.
    known : iterable of str
        What would have been accepted.
    noun : str
        What the names are called in the sentence.

    Returns
    -------
    str
        ``did you mean 'x'?`` when something is near, otherwise the list of known names.
    """
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.51)
    if near:
        return f"did you mean '{near[0]}'?"
    shown = ", ".join(choices[:12]) + (", ..." if len(choices) > 12 else "")
    return f"known {noun}s: {shown}"

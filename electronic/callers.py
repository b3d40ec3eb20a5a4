"""How benchmarks call a communication library: what a published time holds beside the collective itself."""

from __future__ import annotations

from dataclasses import dataclass

from electronic.devices import table
from heliograph.checks import check_range


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A program that times collectives from the host.

    Notes
    -----
    A process issues the kernels of its GPUs one after the other, and calls in a row overlap with what the
    GPUs still do: short collectives last as long as their issue, however few hops they take. Between events
    on an idle GPU, the host's way to the first kernel counts in full.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md (time over calls in a row) and issue 123 (one process with 2 to 8 A100).
    """

    name: str = "caller"
    """Name shown in tables."""
    issue_s: float
    """Time in which a process issues a collective to one of its GPUs."""
    exposed_s: float
    """Part of the measured time in which the GPUs wait for the host, once a call."""

    def __post_init__(self) -> None:
        check_range(self, "issue_s", "exposed_s")

    def measured_s(self, alone_s: float, gpus_per_process: int) -> float:
        """Return the time that the program prints for a collective.

        Parameters
        ----------
        alone_s : float
            Duration on the GPUs once all have begun.
        gpus_per_process : int
            GPUs that one process drives.
        """
        return self.exposed_s + max(alone_s, gpus_per_process * self.issue_s)


def load_caller(name: str) -> Caller:
    """Return a benchmark from the network table, e.g. ``"nccl-tests"``."""
    return table("network").build(Caller, name)

"""How many versions of weights and gradients stand side by side where steps overlap."""

from __future__ import annotations

from workloads.choices import Schedule
from workloads.plan import Parallelism


def weight_versions(plan: Parallelism, stage: int) -> int:
    """Return how many versions of its weights a stage keeps.

    Notes
    -----
    PipeDream stashes the version that each microbatch under way ran forward with: p - i on stage *i* of *p*,
    from 0 (arXiv:1806.03377, section 3.3). Double-buffered weights are 2 (arXiv:2006.09503, section 3.1); so
    are those of a rank that computes with one version while it pulls the next from parameter servers.
    """
    match plan.schedule:
        case Schedule.PIPEDREAM:
            return plan.pp - stage
        case Schedule.PIPEDREAM_2BW:
            return 2
        case _:
            return 1 if plan.waits_for_pulls else 2


def gradient_copies(plan: Parallelism) -> int:
    """Return how many steps' gradients a rank keeps: those it computes and those still being pushed."""
    return 2 if plan.asynchronous else 1 + plan.delay


def staleness(plan: Parallelism, stage: int) -> int:
    """Return how many updates a gradient is behind the weights it is applied to.

    Notes
    -----
    w(t+1) = w(t) - r grad f(w_0(t-p+1), ..., w_(p-1)(t)) with weight stashing, hence p - 1 - i updates on
    stage *i* (arXiv:1806.03377, section 3.3); one with double-buffered weights (arXiv:2006.09503, section
    3.1); the delay with parameter servers (Li et al., OSDI 2014, section 3.5).
    """
    match plan.schedule:
        case Schedule.PIPEDREAM:
            return plan.pp - 1 - stage
        case Schedule.PIPEDREAM_2BW:
            return 1
        case _:
            return plan.delay


def optimal_in_flight(workers: int, input_replicas: int) -> int:
    """Return the microbatches under way that keep a pipeline busy (PipeDream's NOAM), per input replica.

    Parameters
    ----------
    workers : int
        Accelerators of all stages.
    input_replicas : int
        Accelerators of the first stage.

    References
    ----------
    Narayanan et al., arXiv:1806.03377, section 3.2.
    """
    return -(-workers // input_replicas)

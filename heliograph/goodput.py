"""Goodput of training under failures: what checkpoints and restarts leave, and what a machine can place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from heliograph.errors import ParameterError

MOST_SPARES = 1.0
"""Most spares that are tried, as a share of the job; dimensionless."""


def young_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return Young's interval of computing between checkpoints, ``sqrt(2 w M)``.

    References
    ----------
    Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
    """
    return math.sqrt(2.0 * write_s * mtbf_s)


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return the interval of computing between checkpoints at which `effective_share` is greatest.

    Parameters
    ----------
    write_s : float
        Time of writing a checkpoint; positive.
    mtbf_s : float
        Mean time between interruptions.

    Notes
    -----
    The zero of the derivative, ``tau = M (1 + W(-exp(-1 - w / M)))`` with Lambert's function W on its
    principal branch; Young's interval is its first order in w / M.

    References
    ----------
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006).
    """
    share = float(np.real(scipy.special.lambertw(-math.exp(-1.0 - write_s / mtbf_s))))
    return mtbf_s * (1.0 + share)


def effective_share(interval_s: float, *, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return useful computing over elapsed time of a job that goes on from its last checkpoint.

    Parameters
    ----------
    interval_s : float
        Computing between checkpoints; positive.
    write_s, restart_s : float
        Time of writing a checkpoint, and from a failure until the job computes again.
    mtbf_s : float
        Mean time between interruptions, exponentially distributed.

    Raises
    ------
    ParameterError
        If interval or mean time are not positive.

    Notes
    -----
    Failures may strike during writing and restarting too: ``tau / (M e^(R/M) (e^((tau+w)/M) - 1))``.

    References
    ----------
    Daly, FGCS 22 (2006), eq. 20, the complete model.
    """
    if not (interval_s > 0.0 and mtbf_s > 0.0):
        msg = f"interval ({interval_s:g} s) and mean time between failures ({mtbf_s:g} s) must be positive"
        raise ParameterError(msg)
    exponent = (restart_s / mtbf_s, (interval_s + write_s) / mtbf_s)
    if sum(exponent) > math.log(np.finfo(float).max) / 2:
        return 0.0
    return interval_s / (mtbf_s * math.exp(exponent[0]) * math.expm1(exponent[1]))


def best_effective_share(*, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return `effective_share` at the best interval; its limit ``e^(-R/M)`` where writing takes no time."""
    if write_s == 0.0:
        return math.exp(-restart_s / mtbf_s)
    interval_s = best_interval_s(write_s, mtbf_s)
    return effective_share(interval_s, write_s=write_s, restart_s=restart_s, mtbf_s=mtbf_s)


def spliced_share(units: int, needed: int, availability: float) -> float:
    """Return the share of a machine that works in jobs, if any healthy units can make one.

    Parameters
    ----------
    units : int
        Units of the machine that fail each for itself: hosts, or cubes that circuits join.
    needed : int
        Units of a job; as many jobs as fit are run.
    availability : float
        Share of time that a unit is up, 0 to 1.

    Notes
    -----
    ``E[k floor(H / k)] / units`` with H binomial.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433 (goodput of slices with optical switches).
    """
    _check_share(units, needed, availability)
    healthy = np.arange(needed, units + 1)
    return float(
        (needed * (healthy // needed) * scipy.stats.binom.pmf(healthy, units, availability)).sum() / units
    )


def fixed_share(units: int, needed: int, availability: float) -> float:
    """Return the same share if jobs have fixed places: a place works while all its units are up.

    Parameters
    ----------
    units, needed, availability
        As for `spliced_share`.
    """
    _check_share(units, needed, availability)
    return needed * (units // needed) / units * availability**needed


def spared_share(needed: int, spares: int, availability: float) -> float:
    """Return the share of a job's units and of its own spares that works.

    Parameters
    ----------
    needed, spares : int
        Units that compute, and units that wait to take the place of failed ones.
    availability : float
        Share of time that a unit is up, 0 to 1.

    Notes
    -----
    ``P(at least k of k + s are up) k / (k + s)``; the job waits while too few are up.
    """
    _check_share(needed + spares, needed, availability)
    return float(scipy.stats.binom.sf(needed - 1, needed + spares, availability)) * needed / (needed + spares)


def best_spares(needed: int, availability: float) -> int:
    """Return the number of spares at which `spared_share` is greatest, the fewest of those."""
    most = max(1, math.ceil(needed * MOST_SPARES))
    tried: np.ndarray[Any, Any] = np.arange(most + 1)
    alive = scipy.stats.binom.sf(needed - 1, needed + tried, availability)
    return int(np.argmax(alive * needed / (needed + tried)))


Placement = Callable[[int, int, float], float]
"""Share of a machine by its units, the units of a job and the availability of a unit."""


def _check_share(units: int, needed: int, availability: float) -> None:
    if not 1 <= needed <= units:
        msg = f"a job of {needed} units does not fit {units}; take 1 to {units}"
        raise ParameterError(msg)
    if not 0.0 <= availability <= 1.0:
        msg = f"availability must be from 0 to 1; got {availability}"
        raise ParameterError(msg)

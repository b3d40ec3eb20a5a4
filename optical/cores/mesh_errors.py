"""How wrong a real matrix comes out of two imperfect meshes when it is read in phase with its light.

The laws of `optical.transfer.selfconfiguration` are those of complex unitary matrices. A weight is real, so
are both factors of its singular value decomposition, and a receiver beside a local oscillator sees one
quadrature: most of what errors of first order add stands in the other one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.checks import check_range


@dataclass(frozen=True, kw_only=True)
class RealMatrixError:
    """Expected errors of U S V*, U and V real and Haar-random, for small errors; rms over the rms entry.

    Notes
    -----
    Phases. Every phase that is wrong by d changes a mesh by a matrix of norm d. At an input that matrix is
    imaginary. Between two couplers half of it is a common phase, imaginary, and half a rotation, real, of
    norm^2 d^2/2. Of N(N-1)/2 interferometers in each of two meshes, over the N rows, (N-1) d^2/2 is seen.
    A shifter that lets a share 1 + d of the field through is the same turned by 90 degrees: what was hidden
    is seen, of the inside half, and with it the outputs': 3 (N-1) d^2/2 + 2 d^2 in all.

    Couplers, uncorrected. A coupler that is wrong by e turns two modes in the imaginary direction, norm^2 2
    e^2, so that each mesh is wrong by a relative square of x = 2 (N-1) e^2 there. What is seen is of second
    order: the mean exp(-x/2) for each mesh, hence exp(-x) together, a gain; products of two different
    couplers of one mesh, x^2/2; and of one coupler of each, x^2. The square of the error is 2 x^2.

    Couplers, corrected. An interferometer of rank k has to pass an amplitude r straight with r^2 ~ Beta(1/2,
    k/2) (rows of a random orthogonal matrix; of a unitary one Beta(1, k)), of density 2/B(1/2, k/2) at 0, and
    cannot pass less than |e1 + e2|. What is missed is real: 2 (|e1 + e2| - r)^2 on average over r and e, for
    N - k interferometers of rank k, gives a square that grows as N^1.5 e^3. It falls more slowly than
    the uncorrected one: correction is for errors that are not small, sqrt(N) e above about 0.16, and for
    complex matrices.

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, Optica 8 (2021) 1247: correction and its limit, for unitary
    matrices. N. J. Russell et al., New J. Phys. 19 (2017) 033007: densities of splits. The real case is
    ours; a Monte Carlo with the transfer matrices agrees.
    """

    ports: int
    """Inputs, and outputs."""
    phase_rad: float
    """Standard deviation of every phase."""
    coupler_rad: float
    """Standard deviation of every coupler's angle."""
    amplitude: float = 0.0
    """Relative standard deviation of the field that every shifter lets through, dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "ports", low=2)
        check_range(self, "phase_rad", "coupler_rad", "amplitude")

    @property
    def phases(self) -> float:
        """Error by wrong phases."""
        return math.sqrt((self.ports - 1) / 2.0) * self.phase_rad

    @property
    def amplitudes(self) -> float:
        """Error by shifters that let unlike shares of the field through."""
        return math.sqrt(1.5 * (self.ports - 1) + 2.0) * self.amplitude

    @property
    def hidden(self) -> float:
        """Mean square of what couplers put into the other quadrature of one mesh, relative."""
        return 2.0 * (self.ports - 1) * self.coupler_rad**2

    @property
    def uncorrected(self) -> float:
        """Error by couplers that phases do not allow for, beside the gain."""
        return math.sqrt(2.0) * self.hidden

    @property
    def uncorrected_gain(self) -> float:
        """Mean of the matrix by those couplers."""
        return math.exp(-self.hidden)

    @property
    def corrected(self) -> float:
        """Error by couplers after phases allow for them as far as they can."""
        least_cube = (2.0 * self.coupler_rad**2) ** 1.5 * 2.0 * math.sqrt(2.0 / math.pi)
        ranks = range(1, self.ports)
        density = math.fsum((self.ports - rank) * _density_at_zero(rank) for rank in ranks)
        return math.sqrt(2.0 * (2.0 / 3.0) * least_cube * density / self.ports)


def _density_at_zero(rank: int) -> float:
    """Return the density at 0 of an amplitude whose square is Beta(1/2, rank/2)."""
    beta = math.lgamma(0.5) + math.lgamma(rank / 2.0) - math.lgamma((rank + 1) / 2.0)
    return 2.0 * math.exp(-beta)

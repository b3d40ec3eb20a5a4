"""Errors that fabrication adds to a mesh's design: coupler angles that are off, and phases that are off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optical.transfer.elements import Real, require
from optical.transfer.layout import MeshLayout
from simulator.errors import ParameterError


@dataclass(frozen=True, kw_only=True, eq=False)
class MeshErrors:
    """Errors of one chip: drawn once, the same for every use."""

    splitter_rad: Real
    """Errors of the angles of the first and the second coupler, shape (count, 2)."""
    theta_rad: Real
    """Errors of the phases between the couplers, shape (count,)."""
    phi_rad: Real
    """Errors of the phases at the upper inputs, shape (count,)."""
    output_rad: Real
    """Errors of the phases at the outputs, shape (modes,)."""

    def __post_init__(self) -> None:
        count = np.shape(self.theta_rad)
        if np.shape(self.phi_rad) != count or np.shape(self.splitter_rad) != (*count, 2):
            msg = f"MeshErrors: splitter_rad {np.shape(self.splitter_rad)} and "
            msg += f"phi_rad {np.shape(self.phi_rad)} "
            msg += f"must belong to the interferometers of theta_rad {count}; draw them from one layout"
            raise ParameterError(msg)

    @staticmethod
    def none(layout: MeshLayout) -> MeshErrors:
        """Return the errors of a perfect chip."""
        zeros = np.zeros(layout.count)
        return MeshErrors(
            splitter_rad=np.zeros((layout.count, 2)),
            theta_rad=zeros,
            phi_rad=zeros,
            output_rad=np.zeros(layout.modes),
        )


def draw_errors(
    layout: MeshLayout, *, splitter_rad: float, phase_rad: float, generator: np.random.Generator
) -> MeshErrors:
    """Return the errors of a chip, normal and independent.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    splitter_rad : float
        Standard deviation of the angle of a coupler.
    phase_rad : float
        Standard deviation of every phase.
    generator : numpy.random.Generator
        All the randomness there is.
    """
    require("splitter_rad", splitter_rad, 0.0)
    require("phase_rad", phase_rad, 0.0)
    return MeshErrors(
        splitter_rad=splitter_rad * generator.standard_normal((layout.count, 2)),
        theta_rad=phase_rad * generator.standard_normal(layout.count),
        phi_rad=phase_rad * generator.standard_normal(layout.count),
        output_rad=phase_rad * generator.standard_normal(layout.modes),
    )

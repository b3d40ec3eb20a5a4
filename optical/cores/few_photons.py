"""Homodyne core sized for so many photons per multiplication, as built or with no noise but shot noise."""

from __future__ import annotations

import dataclasses
import math

from optical.cores.homodyne import Homodyne
from optical.execution import AnalogSpec
from simulator.checks import check_positive
from simulator.errors import LinkError, ParameterError
from simulator.operators import Phase

SETTLED = 1e-12
"""How closely photons are found, relative."""
BRIGHTEST_W = 1e6
"""Light beyond which none is looked for."""
MOST_ROUNDS = 200
"""Divisions after which light is taken to be lost in its waveguides."""


def lit_for(core: Homodyne, photons_per_mac: float, *, mean_square: float) -> Homodyne:
    """Return a core whose laser gives so many detected photons per multiplication.

    Parameters
    ----------
    core : Homodyne
        A core; its present laser power does not matter.
    photons_per_mac : float
        Photons of both operands that a detector turns into electrons per product, dimensionless.
    mean_square : float
        Mean of both operands' mean squares, full scale being 1, in (0, 1].

    Raises
    ------
    ParameterError
        If a number is out of range.
    LinkError
        If its waveguides absorb the light that would be needed.

    Notes
    -----
    Photons are proportional to power but for what bright light loses in its waveguides, so that the division
    is repeated. The wavelength does not enter: what is detected is counted in electrons.
    """
    for name, value in (("photons_per_mac", photons_per_mac), ("mean_square", mean_square)):
        if not 0.0 < value < math.inf:
            msg = f"{name} must be positive and finite; got {value:g}"
            raise ParameterError(msg)
    for _ in range(MOST_ROUNDS):
        found = core.photoelectrons_per_mac(mean_square)
        if math.isclose(found, photons_per_mac, rel_tol=SETTLED):
            return core
        power_w = core.laser_power_w * photons_per_mac / found if found else math.inf
        if power_w > BRIGHTEST_W:
            break
        core = dataclasses.replace(core, laser_power_w=power_w)
    msg = f"'{core.name}' guides no light that gives {photons_per_mac:g} photons; its waveguides absorb it"
    raise LinkError(msg)


def shot_limited(core: Homodyne) -> AnalogSpec:
    """Return what reaches the products of a core of which only shot noise is left.

    Notes
    -----
    Amplifier, dark current, intensity noise, leakage, interference, crosstalk, phase errors and both
    converters are taken to be ideal. Path losses and quantum efficiency stay; they are the road from the
    laser to the detected photons and do not matter once those are given. With equal norms the variance is
    the standard quantum limit of Hamerly et al., Phys. Rev. X 9, 021032 (2019).
    """
    link = dataclasses.replace(
        core.link,
        mixing=0.0,
        receiver=dataclasses.replace(
            core.link.receiver,
            noise_a_per_sqrt_hz=0.0,
            dark_current_a=0.0,
            rin_db_per_hz=-math.inf,
            leakage=0.0,
            gain=1.0,
            interference=0.0,
        ),
    )
    return dataclasses.replace(
        AnalogSpec.ideal(),
        analog_length=link.analog_length,
        **dataclasses.asdict(link.noise),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LitCore:
    """Homodyne core with the sizing of its laser, from which each product's specification follows."""

    core: Homodyne
    """What multiplies."""
    photons_per_mac: float
    """Detected photons per multiplication, dimensionless."""
    only_shot_noise: bool
    """Whether everything but shot noise is left out."""

    def __post_init__(self) -> None:
        check_positive(self, "photons_per_mac")

    def spec(self, mean_square: float) -> AnalogSpec:
        """Return what reaches a product whose operands have a mean square.

        Parameters
        ----------
        mean_square : float
            Mean of both operands' mean squares, full scale being 1.

        Raises
        ------
        LinkError
            If the core is taken as it is and the light is too little, or more than its receivers hold.
        """
        core = lit_for(self.core, self.photons_per_mac, mean_square=mean_square)
        return shot_limited(core) if self.only_shot_noise else core.analog(Phase.FORWARD)

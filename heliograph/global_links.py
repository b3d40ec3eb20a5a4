"""Direct links from every group of switches to every other, laid over the switches of a group evenly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.checks import check_range
from heliograph.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class GlobalLinks:
    """As many links between any two groups as their ports allow.

    Notes
    -----
    Channel c of a group ends on place ``c % places``. Channels ``t (groups - 1) + d`` lead to the group that
    follows by d + 1, so that parallel links to one group stand on different places.

    References
    ----------
    Kim, Dally, Scott and Abts, ISCA 2008, section 3; Camarero, Vallejo and Beivide, "Topological
    characterization of Hamming and dragonfly networks", ACM TACO 11 (2014): arrangements of global links.
    """

    groups: int
    """Groups."""
    places: int
    """Switches of a group that have such links."""
    each: int
    """Links of one of them."""

    def __post_init__(self) -> None:
        check_range(self, "groups", "places", low=1)
        check_range(self, "each")
        if self.groups > self.places * self.each + 1:
            most = self.places * self.each + 1
            msg = (
                f"{self.groups} groups need {self.groups - 1} links out of each, and {self.places} switches "
                f"with {self.each} have {self.places * self.each}; {most} groups are possible: try more "
                "global_links, or larger groups"
            )
            raise ParameterError(msg)

    @property
    def parallel(self) -> int:
        """Links between two groups."""
        return self.places * self.each // (self.groups - 1) if self.groups > 1 else 0

    @property
    def per_group(self) -> int:
        """Links out of a group."""
        return self.parallel * (self.groups - 1)

    @property
    def links(self) -> int:
        """Directed links in all."""
        return self.groups * self.per_group

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Place at which each link begins and at which it ends, group times places plus place; shape [L]."""
        if not self.links:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        group, channel = np.divmod(np.arange(self.links), self.per_group)
        turn, ahead = np.divmod(channel, self.groups - 1)
        far = (group + ahead + 1) % self.groups
        back = turn * (self.groups - 1) + (self.groups - 2 - ahead)
        return group * self.places + channel % self.places, far * self.places + back % self.places

    def channel(self, group: np.ndarray, far: np.ndarray, *, spread: np.ndarray) -> np.ndarray:
        """Return a link from groups to other groups.

        Parameters
        ----------
        group, far : numpy.ndarray
            Groups, shape [F]; where they are the same, some link is returned that nobody may use.
        spread : numpy.ndarray
            Numbers that lay flows evenly over parallel links, shape [F].
        """
        if not self.links:
            return np.zeros_like(group)
        ahead = (far - group - 1) % self.groups
        safe = np.minimum(ahead, self.groups - 2)
        return group * self.per_group + spread % self.parallel * (self.groups - 1) + safe

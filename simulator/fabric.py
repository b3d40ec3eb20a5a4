"""What some fabrics can say or do beyond carrying flows, which the choice of an algorithm goes by."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from simulator.interfaces import Circuits, Fabric, Flows
from simulator.topology.scale_up import Adder, ScaleUp


@runtime_checkable
class HasScaleUp(Protocol):
    """A fabric that says what its nodes are made of."""

    @property
    def scale_up(self) -> ScaleUp:
        """The domain inside a node."""
        ...


@runtime_checkable
class HasGrid(Protocol):
    """A fabric on which groups may fill boxes of a torus."""

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box that a group of endpoints fills in order, or None."""
        ...


@runtime_checkable
class HasAdder(Protocol):
    """A fabric whose switches between nodes may add."""

    @property
    def network_adder(self) -> Adder | None:
        """How they add, or None if they do not."""
        ...


@runtime_checkable
class HasStrides(Protocol):
    """A fabric whose circuits form several rings through a group."""

    def strides(self, circuits: Circuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which all of a group have circuits."""
        ...


@runtime_checkable
class HasWays(Protocol):
    """A fabric on which the energy of a transfer depends on the present circuits."""

    def carried_energy_j(self, circuits: Circuits, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once over the present circuits."""
        ...


@runtime_checkable
class HasPeers(Protocol):
    """A fabric whose endpoints have circuits to a few others at once, and nobody who passes on the rest."""

    @property
    def peers(self) -> int | None:
        """Return how many others, or None if circuits do not turn."""
        ...

    @property
    def turn_s(self) -> float:
        """Return how long circuits that turn are dark."""
        ...


def lone_cards(fabric: Fabric) -> int:
    """Return the endpoints of a node if each needs circuits of its own, else 1."""
    return fabric.node_size if isinstance(fabric, HasPeers) else 1


@runtime_checkable
class SizeRouted(Protocol):
    """A fabric on which small transfers go other ways than large ones."""

    @property
    def bulk_bytes(self) -> float:
        """Size from which a transfer is large."""
        ...

"""Whether the light of a module arrives: the loss a link may have against what lies on its way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_range
from heliograph.errors import LinkError
from heliograph.tables import Table, read_table

OPTICAL_HOPS = Path(__file__).parent / "parameters" / "optical_hops.csv"
"""Classes of pluggable optics with the channels that they are made for."""


@dataclass(frozen=True, kw_only=True)
class HopBudget:
    """Where the light of one link goes."""

    losses_db: tuple[tuple[str, float], ...]
    """Each element of the way with its loss, the margin last."""
    allowed_loss_db: float
    """Loss that the optics may have between them."""

    @property
    def loss_db(self) -> float:
        """Loss of the whole way, margin included."""
        return sum(loss for _, loss in self.losses_db)

    @property
    def spare_db(self) -> float:
        """What is left; the link closes if it is not negative."""
        return self.allowed_loss_db - self.loss_db


@dataclass(frozen=True, kw_only=True)
class OpticalHop:
    """A class of pluggable optics and the passive way between two of them.

    Notes
    -----
    The channel insertion loss of a standard is what transmitter power and receiver sensitivity leave once
    penalties of modulation, reflections and dispersion are paid: connectors, fibre and whatever else lies on
    the way have to fit into it.
    """

    name: str = "hop"
    """Name shown in tables."""
    allowed_loss_db: float
    """Channel insertion loss of the standard."""
    connectors: int
    """Mated connectors on the way."""
    connector_loss_db: float
    """Loss of one."""
    fibre_loss_db_per_m: float
    """Loss of the fibre at the standard's wavelengths."""
    margin_db: float
    """Kept for ageing and repair."""

    def __post_init__(self) -> None:
        check_range(self, "allowed_loss_db", "connectors", "connector_loss_db")
        check_range(self, "fibre_loss_db_per_m", "margin_db")

    def budget(self, fibre_m: float, *, elements: tuple[tuple[str, float], ...] = ()) -> HopBudget:
        """Return the loss budget of a link.

        Parameters
        ----------
        fibre_m : float
            Length of its fibre.
        elements : tuple of (str, float)
            Anything else on its way, such as a circuit switch, with its loss in dB.
        """
        losses = (
            *elements,
            ("connectors", self.connectors * self.connector_loss_db),
            ("fibre", fibre_m * self.fibre_loss_db_per_m),
            ("margin", self.margin_db),
        )
        return HopBudget(losses_db=losses, allowed_loss_db=self.allowed_loss_db)

    def closed(
        self, between: str, fibre_m: float, *, elements: tuple[tuple[str, float], ...] = ()
    ) -> HopBudget:
        """Return the loss budget of a link that closes.

        Parameters
        ----------
        between : str
            What it joins, for the message.
        fibre_m, elements
            As in `budget`.

        Raises
        ------
        LinkError
            If more light is lost than may be; names the element that loses most.
        """
        found = self.budget(fibre_m, elements=elements)
        if found.spare_db < 0.0:
            what, greatest_db = max(found.losses_db, key=lambda one: one[1])
            msg = (
                f"the link between {between} does not close: its way loses {found.loss_db:.2f} dB and "
                f"'{self.name}' optics allow {self.allowed_loss_db:g}; the greatest loss is {what} "
                f"({greatest_db:.2f} dB; {fibre_m:g} m of fibre, {self.connectors} connectors); try less of "
                "it, or optics of longer reach ('fr4', 'lr4')"
            )
            raise LinkError(msg)
        return found


@cache
def optical_hop_table() -> Table:
    """Return the table of pluggable optics and their channels."""
    return read_table(OPTICAL_HOPS)


def load_hop(name: str) -> OpticalHop:
    """Return a class of pluggable optics from the table, e.g. ``"dr4"``."""
    return optical_hop_table().build(OpticalHop, name)

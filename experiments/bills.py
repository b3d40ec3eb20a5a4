"""Which bills of materials are asked for: one system, one fabric, or every fabric by name."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.bill import Bill, Priced, bill_of
from experiments.fabrics import CIRCUITS, FABRICS
from experiments.systems import build_system
from heliograph.cable_plant import load_cables
from heliograph.errors import HeliographError, ParameterError

BASE = "gpu_packet"
"""System whose fabric is exchanged for the one that is billed."""
MOVING = "gpu_ocs"
"""The same for rails of optical circuits, so that their paths are those of the named systems."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    system: str | None = None
    """A whole system, or None for fabrics alone."""
    fabric: str | None = None
    """A fabric, or None for the system's own, and without a system for all."""
    accelerators: int
    """How many."""
    gpu: str = "h100"
    """GPU, whose nodes a fabric joins."""
    basis: str = "power"
    """How photonic accelerators are sized."""
    core: str = "crossbar"
    """Core of photonic accelerators."""
    cables: str = "panels"
    """Kind of cable plant."""
    assignments: tuple[str, ...] = ()
    """Changes, each ``path=value``."""


def bills(request: Request) -> list[Bill]:
    """Return the bills that are asked for.

    Raises
    ------
    HeliographError
        If something is unknown, or what is asked for alone cannot be built. Of all fabrics, one that cannot
        be built is an error only if a change or the number of accelerators fits none of them.
    """
    if request.system is not None or request.fabric is not None:
        return [_bill(request, request.fabric)]
    found, errors = [], []
    for name in FABRICS:
        try:
            found.append(_bill(request, name))
        except HeliographError as error:
            errors.append(f"{name}: {error}")
    if not found:
        msg = f"no fabric can be billed; {errors[0]}"
        raise ParameterError(msg)
    return found


def _bill(request: Request, fabric: str | None) -> Bill:
    own = MOVING if fabric == CIRCUITS else BASE
    system = build_system(
        own if request.system is None else request.system,
        accelerators=request.accelerators,
        gpu=request.gpu,
        basis=request.basis,
        core=request.core,
        assignments=request.assignments,
        **({} if fabric is None else {"fabric": fabric}),
    )
    priced = Priced(system=system, cables=load_cables(request.cables), whole=request.system is not None)
    return bill_of(priced, request.system or str(fabric))

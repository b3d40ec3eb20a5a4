"""A text where an enumeration belongs is an error in every description, never another member in silence."""

import dataclasses
from enum import Enum

import pytest

from heliograph.systems import build_system
from heliograph.systems.fabrics import FABRICS, build_fabric
from heliograph.workload import model_named, plan_for
from simulator.errors import HeliographError

CORES = ("homodyne", "mzi_mesh", "ring_bank", "crossbar", "pcm_crossbar", "residue", "phase_residue")
MIXTURE = model_named("mixtral-8x7b")


def descriptions(owner, found):
    """Collect one description of each class in another, by class."""
    if dataclasses.is_dataclass(owner) and not isinstance(owner, type) and type(owner) not in found:
        found[type(owner)] = owner
        for item in dataclasses.fields(owner):
            descriptions(getattr(owner, item.name, None), found)
    elif isinstance(owner, tuple | list):
        for one in owner:
            descriptions(one, found)
    return found


def every():
    found = {}
    for core in CORES:
        descriptions(build_system(f"photonic_ocs:{core}", accelerators=64), found)
    for fabric in FABRICS:
        descriptions(build_fabric(fabric, 64, "h100"), found)
    descriptions(MIXTURE, found)
    memory = build_system("gpu_packet", accelerators=64).node().memory.capacity_bytes
    descriptions(plan_for(MIXTURE, "tp=8,dp=8,ep=8", accelerators=64, memory_bytes=memory), found)
    return [
        pytest.param(one, item.name, id=f"{kind.__name__}.{item.name}")
        for kind, one in found.items()
        for item in dataclasses.fields(one)
        if isinstance(getattr(one, item.name, None), Enum)
    ]


@pytest.mark.parametrize(("owner", "name"), every())
def test_a_text_is_no_member_of_an_enumeration(owner, name):
    value = getattr(owner, name).value
    text = value if isinstance(value, int) else str(value)
    with pytest.raises(HeliographError, match=name if name not in {"kind", "basis"} else None):
        dataclasses.replace(owner, **{name: text})

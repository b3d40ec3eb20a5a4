"""Named systems, and the choice that a name, a file and options make together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from electronic.gpu import load_gpu
from heliograph.fabrics import CIRCUITS, DEFAULT_FABRIC, check_fabric, fabric_in_file
from heliograph.registry import core_named
from heliograph.system_file import Change, flattened, naming
from simulator.errors import ParameterError, nearest
from simulator.files import read_toml

DEFAULT_GPU = "h100"
"""The GPU, or the one that light replaces, where nobody names one."""
DEFAULT_CORE = "crossbar"
"""Core of photonic accelerators where nobody names one."""
DEFAULT_ACCELERATORS = 1024
"""Accelerators where nobody says how many."""
MOST_ACCELERATORS = 2**24
"""Accelerators of the largest system that is built, a choice; three levels of today's switches join fewer."""


class Basis(StrEnum):
    """Budget that a photonic accelerator shares with the GPU that it replaces."""

    POWER = "power"
    AREA = "area"
    COUNT = "count"


@dataclass(frozen=True, kw_only=True)
class NamedSystem:
    """A system that can be asked for by name."""

    summary: str
    """Its line in lists."""
    light: bool
    """Whether its products run in light."""
    circuits: bool
    """Whether its fabric is made of optical circuits."""


SYSTEMS: Mapping[str, NamedSystem] = MappingProxyType(
    {
        "gpu_packet": NamedSystem(
            summary="GPUs in NVLink domains, joined by a rail-optimised packet fabric",
            light=False,
            circuits=False,
        ),
        "gpu_ocs": NamedSystem(
            summary="the same GPUs, joined by optical circuit switches that move in the step where it pays",
            light=False,
            circuits=True,
        ),
        "photonic_packet": NamedSystem(
            summary="accelerators with products in light and the same memory, packet fabric",
            light=True,
            circuits=False,
        ),
        "photonic_ocs": NamedSystem(
            summary="accelerators with products in light, optical circuit switches", light=True, circuits=True
        ),
    }
)
"""Named systems and what they are."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices beside a system's name; None where nobody chose."""

    accelerators: int | None = None
    """Their number."""
    gpu: str | None = None
    """The GPU, or the one that photonic accelerators replace."""
    basis: Basis | str | None = None
    """Sizing of photonic accelerators."""
    core: str | None = None
    """Core of photonic accelerators."""
    fabric: str | None = None
    """Fabric of packet systems."""

    def __post_init__(self) -> None:
        for option in ("gpu", "basis", "core", "fabric"):
            value = getattr(self, option)
            if value is not None and not isinstance(value, str):
                msg = f"{option} must be text, a name; got {value!r}"
                raise ParameterError(msg)
        if self.accelerators is not None:
            check_accelerators(self.accelerators)
        if self.basis is not None:
            object.__setattr__(self, "basis", _basis(self.basis))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A system before any number of it is changed."""

    label: str
    """Name of the system in tables."""
    base: NamedSystem
    """Named system that it starts from."""
    accelerators: int
    """Their number."""
    gpu: str
    """The GPU, or the one that is replaced."""
    basis: Basis
    """Sizing of photonic accelerators."""
    core: str
    """Their core."""
    fabric: str
    """Its fabric."""
    changes: tuple[Change, ...]
    """Numbers and parts that its file changes."""
    contradictions: Mapping[str, str]
    """A sentence by each option that the system cannot use."""


@dataclass(frozen=True, kw_only=True)
class _Said:
    """A system as its name, or a file, tells it; None where it is silent."""

    label: str
    base: str
    core: str | None = None
    fabric: str | None = None
    options: Options = Options()
    changes: tuple[Change, ...] = ()


def check_accelerators(accelerators: int) -> None:
    """Raise an error unless a system can have so many accelerators.

    Raises
    ------
    ParameterError
        If they are none, no whole number, or more than `MOST_ACCELERATORS`.
    """
    if isinstance(accelerators, bool) or not isinstance(accelerators, int) or accelerators < 1:
        msg = f"accelerators must be a whole number of at least 1; got {accelerators!r}"
        raise ParameterError(msg)
    if accelerators > MOST_ACCELERATORS:
        msg = f"accelerators must be at most {MOST_ACCELERATORS:,}; got {accelerators:,}"
        raise ParameterError(msg)


def choice_of(name: str, options: Options, usual_accelerators: int = DEFAULT_ACCELERATORS) -> Choice:
    """Return the choice that a system's name, its file and options make together.

    What the name says holds, then the options, then the file, then the defaults.

    Parameters
    ----------
    name : str
        One of `SYSTEMS`, with a core (``photonic_ocs:crossbar``) or a fabric (``gpu_packet@torus``) of its
        own, or the path of a ``.toml`` file.
    options : Options
        Choices beside the name; those that contradict it are told in `Choice.contradictions`.
    usual_accelerators : int
        Accelerators where neither the options nor the file say how many.

    Raises
    ------
    ParameterError
        For names that are not known, and for a file that contradicts itself.
    """
    said = _said(name)
    base = SYSTEMS[said.base]
    own = said.options
    for core in {said.core, options.core, own.core} - {None}:
        core_named(str(core))  # a wrong name is an error where no light is used, too
    for fabric in {said.fabric, options.fabric, own.fabric} - {None}:
        check_fabric(str(fabric))
    gpu = options.gpu or own.gpu or DEFAULT_GPU
    load_gpu(gpu)
    packets = said.fabric or options.fabric or own.fabric or DEFAULT_FABRIC
    return Choice(
        label=said.label,
        base=base,
        accelerators=options.accelerators or own.accelerators or usual_accelerators,
        gpu=gpu,
        basis=Basis(options.basis or own.basis or Basis.POWER),
        core=said.core or options.core or own.core or DEFAULT_CORE,
        fabric=CIRCUITS if base.circuits else packets,
        changes=said.changes,
        contradictions=_contradictions(name, said, options),
    )


def is_system(name: str) -> bool:
    """Return whether a name is that of a named system, with core or fabric or without, or of a file."""
    base = name.partition("@")[0]
    return base.partition(":")[0] in SYSTEMS or base.endswith(".toml")


def _said(name: str) -> _Said:
    """Return what a system's name and its file say."""
    if not isinstance(name, str) or not name:
        msg = f"a system's name must be text, such as {', '.join(SYSTEMS)}; got {name!r}"
        raise ParameterError(msg)
    base, _, fabric = name.partition("@") if is_system(name) else (name, "", "")
    plain, colon, core = base.partition(":")
    if plain not in SYSTEMS and (base.endswith(".toml") or "/" in base):
        return dataclasses.replace(_from_file(Path(base)), fabric=fabric or None)
    if plain not in SYSTEMS:
        msg = f"no system '{plain}'; {nearest(plain, SYSTEMS, noun='system')}"
        raise ParameterError(msg)
    if colon and not SYSTEMS[plain].light:
        msg = f"system '{base}': {plain} has no photonic core; write {plain}, or photonic_ocs:{core}"
        raise ParameterError(msg)
    if fabric and SYSTEMS[plain].circuits and fabric != CIRCUITS:
        check_fabric(fabric)
        msg = f"system '{name}': {plain} has optical circuits for a fabric; write {_packets(plain)}@{fabric}"
        raise ParameterError(msg)
    return _Said(label=name, base=plain, core=core if colon else None, fabric=fabric or None)


def _contradictions(name: str, said: _Said, options: Options) -> dict[str, str]:
    """Return a sentence by each option that a system does not use."""
    base, found = SYSTEMS[said.base], {}
    if options.core is not None and not base.light:
        found["core"] = (
            f"core '{options.core}' is not used: system '{name}' has no photonic core; leave it out, or take "
            "photonic_packet"
        )
    elif options.core is not None and said.core not in (None, options.core):
        found["core"] = f"core '{options.core}' contradicts system '{name}'; leave one of them out"
    if options.basis is not None and not base.light:
        found["basis"] = (
            f"basis '{options.basis}' is not used: it sizes photonic accelerators, and system '{name}' has "
            "none; leave it out"
        )
    if options.fabric is not None and base.circuits and options.fabric != CIRCUITS:
        found["fabric"] = (
            f"fabric '{options.fabric}' contradicts system '{name}', which has optical circuits for a "
            f"fabric; write {_packets(said.base)}@{options.fabric}"
        )
    elif options.fabric is not None and said.fabric not in (None, options.fabric):
        found["fabric"] = f"fabric '{options.fabric}' contradicts system '{name}'; leave one of them out"
    return found


def _packets(name: str) -> str:
    """Return the named system that has packets in place of circuits and is else the same."""
    wanted = dataclasses.replace(SYSTEMS[name], circuits=False)
    return next(
        one for one, kind in SYSTEMS.items() if (kind.light, kind.circuits) == (wanted.light, wanted.circuits)
    )


def _basis(text: str) -> Basis:
    if text not in set(Basis):
        msg = f"no basis '{text}'; {nearest(str(text), set(Basis), noun='basis')}"
        raise ParameterError(msg)
    return Basis(text)


def _from_file(path: Path) -> _Said:
    """Return what a system's file says; its keys are taken out of what it changes."""
    content = read_toml(path)
    written = content.pop("base", None)
    if not isinstance(written, str):
        msg = f"{path}: key 'base' must name the system to start from: {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    base, colon, own_core = written.partition(":")
    if base not in SYSTEMS:
        with naming(path, "base"):
            msg = f"base: no system '{base}'; {nearest(base, SYSTEMS, noun='system')}"
            raise ParameterError(msg)
    if colon and not SYSTEMS[base].light:
        with naming(path, "base"):
            msg = f"base '{written}': {base} has no photonic core; write {base}, or photonic_ocs:{own_core}"
            raise ParameterError(msg)
    fabric = fabric_in_file(content, path, "") or None
    found: dict[str, str] = {}
    for key, load in (("basis", _basis), ("gpu", load_gpu), ("core", core_named)):
        if key in content:
            with naming(path, key):
                found[key] = str(content.pop(key))
                load(found[key])
    accelerators = content.pop("accelerators", None)
    with naming(path, "accelerators"):
        options = Options(accelerators=accelerators, fabric=fabric, **found)
    said = _Said(label=path.stem, base=base, core=own_core if colon else None)
    for key, sentence in _contradictions(written, said, options).items():
        with naming(path, key):
            raise ParameterError(sentence)
    options = dataclasses.replace(options, core=own_core if colon else options.core)
    label = str(content.pop("name", path.stem))
    return _Said(label=label, base=base, options=options, changes=tuple(flattened(content, path)))

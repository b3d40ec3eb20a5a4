"""Named systems and cores, and the choice that a name, a file and options make together.

A name is ``BASE[:WORD...][@FABRIC]``: one of `SYSTEMS`, then words in any order, each a GPU
(``gpu_packet:b200``), the format of its products (``gpu_packet:b200:fp8``) or a photonic core
(``photonic_ocs:ring_bank:b200``), then a fabric. What the name leaves out, options, file or defaults say.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from electronic.devices import REFERENCE_SYSTEMS
from electronic.gpu import gpu_names, load_gpu
from heliograph.systems.fabrics import CIRCUITS, check_fabric, default_fabric, fabric_in_file
from optical.cores import CORE_GROUP, CORES, load_core
from simulator.errors import ParameterError, SuspectWarning, nearest, plain_number, told
from simulator.files import PART, Change, flattened, naming, read_toml
from simulator.operands.statistics import OperandKind
from simulator.plugins import bring_in
from workloads.plan.parts import Precision

DEFAULT_GPU = "h100"
"""The GPU, or the one that light replaces, where nobody names one."""
RIVAL_GPUS = ("h100", "b200")
"""GPUs that a comparison sets light beside where nobody names one: that of most published training runs, in
bf16 and fp8, and the next generation's, in fp8."""
DEFAULT_CORE = "homodyne+hybrid+rotation+block"
"""Core of photonic accelerators where nobody names one: of those that reach fp8's precision within a GPU's
power, the one that takes least energy a product."""
DEFAULT_PARTS: Mapping[str, str] = MappingProxyType({"adc": "adc_survey_8b"})
"""Parts of that core in a system, in place of those that its cores have; with an output converter of fewer
bits it does not reach that precision."""
DEFAULT_OPERANDS = OperandKind.CAPTURED
"""Operands on which a model's precision is told, and a laser sized, where nobody names others: those of
trained transformers."""
DEFAULT_ACCELERATORS = 1024
"""Accelerators where nobody says how many."""
MOST_ACCELERATORS = 2**24
"""Accelerators of the largest system that is built, a choice; four levels of switches join fewer."""


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
    precision: Precision | str | None = None
    """Format of a GPU's products."""

    def __post_init__(self) -> None:
        for option in ("gpu", "basis", "core", "fabric", "precision"):
            value = getattr(self, option)
            if value is not None and not isinstance(value, str):
                msg = f"{option} must be text, a name; got {told(value)}"
                raise ParameterError(msg)
        if self.accelerators is not None:
            object.__setattr__(self, "accelerators", plain_number(self.accelerators))
            check_accelerators(self.accelerators)
        if self.basis is not None:
            object.__setattr__(self, "basis", _basis(self.basis))
        if self.precision is not None:
            object.__setattr__(self, "precision", _precision(self.precision))


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
    parts: Mapping[str, str]
    """Parts of it in place of its own, by their path in the core."""
    fabric: str
    """Its fabric."""
    precision: Precision | None
    """Format of a GPU's products; None for that of the plan."""
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
    gpu: str | None = None
    precision: Precision | None = None
    fabric: str | None = None
    options: Options = Options()
    changes: tuple[Change, ...] = ()


def every_core() -> tuple[str, ...]:
    """Return the names of all cores, those of installed packages with them; one that fails is told."""
    for name, reason in bring_in(CORE_GROUP, load_core).items():
        warnings.warn(f"core '{name}' is left out: it {reason}", SuspectWarning, stacklevel=2)
    return tuple(CORES)


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
        One of `SYSTEMS`, with a GPU, format or core (``gpu_packet:b200:fp8``, ``photonic_ocs:crossbar``) or a
        fabric (``gpu_packet@torus``) of its own, or the path of a ``.toml`` file.
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
    for one in {said.core, options.core, own.core} - {None}:
        load_core(str(one))  # a wrong name is an error where no light is used, too
    for fabric in {said.fabric, options.fabric, own.fabric} - {None}:
        check_fabric(str(fabric))
    gpu = said.gpu or options.gpu or own.gpu or DEFAULT_GPU
    load_gpu(gpu)
    core = said.core or options.core or own.core or DEFAULT_CORE
    packets = said.fabric or options.fabric or own.fabric or default_fabric(gpu)
    return Choice(
        label=said.label,
        base=base,
        accelerators=options.accelerators or own.accelerators or usual_accelerators,
        gpu=gpu,
        basis=Basis(options.basis or own.basis or Basis.POWER),
        core=core,
        parts=DEFAULT_PARTS if core == DEFAULT_CORE else {},
        fabric=CIRCUITS if base.circuits else packets,
        precision=_format(said.precision or options.precision or own.precision),
        changes=said.changes,
        contradictions=_contradictions(name, said, options),
    )


def is_system(name: str) -> bool:
    """Return whether a name is that of a named system, with words and fabric or without, or of a file."""
    base = name.partition("@")[0]
    return base.partition(":")[0] in SYSTEMS or base.endswith(".toml")


def _said(name: str) -> _Said:
    """Return what a system's name and its file say."""
    if not isinstance(name, str) or not name:
        msg = f"a system's name must be text, such as {', '.join(SYSTEMS)}; got {told(name)}"
        raise ParameterError(msg)
    base, _, fabric = name.partition("@") if is_system(name) else (name, "", "")
    plain = base.partition(":")[0]
    if name.endswith("@"):
        msg = f"system '{name}' names no fabric behind its @; write one, such as {name}torus, or leave @ out"
        raise ParameterError(msg)
    if plain not in SYSTEMS and (base.endswith(".toml") or "/" in base):
        return dataclasses.replace(_from_file(Path(base)), fabric=fabric or None)
    if plain not in SYSTEMS:
        msg = f"no system '{plain}'; {nearest(plain, SYSTEMS, noun='system')}"
        raise ParameterError(msg)
    own = _words(base)
    if fabric and SYSTEMS[plain].circuits and fabric != CIRCUITS:
        check_fabric(fabric)
        msg = f"system '{name}': {plain} has optical circuits for a fabric; write {_packets(plain)}@{fabric}"
        raise ParameterError(msg)
    return dataclasses.replace(own, label=name, fabric=fabric or None)


def words_of(name: str) -> tuple[str, ...]:
    """Return the base of a system's name, its words and its fabric, each by itself."""
    base, _, fabric = name.partition("@")
    return tuple(one for one in (*_pieces(base), fabric) if one)


def _pieces(base: str) -> list[str]:
    """Return a name's base and words; a core of a file (``FILE.py:NAME``) is one word."""
    found: list[str] = []
    for piece in base.split(":"):
        if found and found[-1].endswith(".py"):
            found[-1] += f":{piece}"
        else:
            found.append(piece)
    return found


class _Word(StrEnum):
    """Kind of a word in a name, in the plural."""

    GPU = "GPUs"
    PRECISION = "formats"
    CORE = "cores"


def _word_kind(word: str) -> _Word:
    """Return what a word names: a core unless a GPU or a format is called so."""
    if word in gpu_names():
        return _Word.GPU
    return _Word.PRECISION if word in set(Precision) else _Word.CORE


def _words(base: str) -> _Said:
    """Return what the words of a name say."""
    plain, *words = _pieces(base)
    light = SYSTEMS[plain].light
    found: dict[_Word, str] = {}
    for word in words:
        kind = _word_kind(word)
        if kind in found:
            msg = f"system '{base}' names two {kind}, {found[kind]} and {word}; leave one of them out"
            raise ParameterError(msg)
        if kind is _Word.CORE and not light:
            raise ParameterError(_no_word(base, plain, word))
        if kind is _Word.PRECISION and light:
            raise ParameterError(no_format(base, word))
        found[kind] = word
    return _Said(
        label=base,
        base=plain,
        core=found.get(_Word.CORE),
        gpu=found.get(_Word.GPU),
        precision=Precision(found[_Word.PRECISION]) if _Word.PRECISION in found else None,
    )


def _no_word(base: str, plain: str, word: str) -> str:
    """Return a sentence on a word of an electronic system that is neither GPU nor format."""
    try:
        load_core(word)
    except ParameterError:
        hint = nearest(word, {*gpu_names(), *set(Precision)}, noun="word")
        return f"system '{base}': '{word}' is neither a GPU nor a format; {hint}"
    return f"system '{base}': {plain} has no photonic core; write {plain}, or photonic_ocs:{word}"


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
    if options.gpu is not None and said.gpu not in (None, options.gpu):
        found["gpu"] = f"gpu '{options.gpu}' contradicts system '{name}'; leave one of them out"
    if options.precision is not None and base.light:
        found["precision"] = no_format(name, options.precision)
    elif options.precision is not None and said.precision not in (None, options.precision):
        found["precision"] = (
            f"precision '{options.precision}' contradicts system '{name}'; leave one of them out"
        )
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


def no_format(name: str, precision: str) -> str:
    """Return a sentence on the format of a GPU's products where a system has none."""
    return (
        f"precision '{precision}' is not used: it is the format of a GPU's products, and those of system "
        f"'{name}' are done in light; leave it out"
    )


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


def _precision(text: str) -> Precision:
    if text not in set(Precision):
        msg = f"no precision '{text}'; {nearest(str(text), set(Precision), noun='precision')}"
        raise ParameterError(msg)
    return Precision(text)


def _format(text: str | None) -> Precision | None:
    return None if text is None else Precision(text)


def rivals(gpu: str | None = None) -> tuple[str, ...]:
    """Return the systems that a comparison shows where nobody names any.

    Parameters
    ----------
    gpu : str, optional
        The GPU to compare with; by default those of `RIVAL_GPUS`.

    Notes
    -----
    Each GPU in fp8, or int8, where it has that, and the first one in bf16 too, on packets and on circuits;
    and accelerators in light that replace each of them.
    """
    gpus = RIVAL_GPUS if gpu is None else (gpu,)
    narrow = [(one, narrow_format(one)) for one in gpus]
    electronic = [f"{gpus[0]}:{Precision.BF16}", *(f"{one}:{own}" for one, own in narrow if own is not None)]
    return tuple(
        f"{name}:{word}"
        for name, kind in sorted(SYSTEMS.items(), key=lambda item: item[1].light)
        for word in (gpus if kind.light else electronic)
    )


def narrow_format(gpu: str) -> Precision | None:
    """Return the 8-bit format that a GPU multiplies faster than bf16, fp8 or int8; None if it has none."""
    chip = load_gpu(gpu).chip
    if chip.byte_flops_per_cycle <= chip.flops_per_cycle:
        return None
    return Precision.INT8 if REFERENCE_SYSTEMS[gpu].whole_bytes else Precision.FP8


def left(names: Iterable[str], without: Iterable[str]) -> tuple[str, ...]:
    """Return the systems that are left without those of some names or words.

    Parameters
    ----------
    names : iterable of str
        Systems by name.
    without : iterable of str
        What is left out: a system by its name, or all that have a word of it (``b200``, ``gpu_ocs``).

    Raises
    ------
    ParameterError
        If one of them fits no system.
    """
    names = tuple(names)
    kept = names
    for word in without:
        if not any(word == name or word in words_of(name) for name in names):
            known = {*names, *(one for name in names for one in words_of(name))}
            msg = f"--without {word}: no system of the comparison has it; {nearest(word, known)}"
            raise ParameterError(msg)
        kept = tuple(name for name in kept if word != name and word not in words_of(name))
    return kept


def _from_file(path: Path) -> _Said:
    """Return what a system's file says; its keys are taken out of what it changes."""
    content = read_toml(path)
    written = content.pop("base", None)
    meant = difflib.get_close_matches("base", set(content) - {"basis"}, n=1, cutoff=0.7)
    for key in meant if written is None else ():
        with naming(path, key):
            msg = f"no key '{key}' in a system's file; did you mean 'base'?"
            raise ParameterError(msg)
    if not isinstance(written, str):
        msg = f"{path}: key 'base' must name the system to start from: {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    base = written.partition(":")[0]
    with naming(path, "base"):
        if base not in SYSTEMS:
            msg = f"base: no system '{base}'; {nearest(base, SYSTEMS, noun='system')}"
            raise ParameterError(msg)
        said = _words(written)
    if "set" in content:
        with naming(path, "set"):
            msg = (
                "parameters stand at the top of a system's file, as laser_power_w = \"5 mW\"; leave out 'set'"
            )
            raise ParameterError(msg)
    fabric = fabric_in_file(content, path, "") or None
    found: dict[str, str] = {}
    for key, load in (
        ("basis", _basis),
        ("gpu", load_gpu),
        ("core", load_core),
        ("precision", _precision),
    ):
        value = content.pop(key, None)
        if isinstance(value, Mapping):  # a table that changes numbers of it, and may name it
            content[key] = {name: one for name, one in value.items() if name != PART}
            value = value.get(PART)
        if value is not None:
            with naming(path, key):
                found[key] = str(value)
                load(found[key])
    accelerators = content.pop("accelerators", None)
    with naming(path, "accelerators"):
        options = Options(accelerators=accelerators, fabric=fabric, **found)
    for key, sentence in _contradictions(written, said, options).items():
        with naming(path, key):
            raise ParameterError(sentence)
    options = dataclasses.replace(
        options,
        core=said.core or options.core,
        gpu=said.gpu or options.gpu,
        precision=said.precision or options.precision,
    )
    label = str(content.pop("name", path.stem))
    return _Said(label=label, base=base, options=options, changes=tuple(flattened(content, path)))

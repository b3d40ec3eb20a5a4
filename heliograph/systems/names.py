"""Names of systems, and the `Choice` of parts that a name, a file and options make together.

A name is ``BASE[:WORD...][@FABRIC]``: one of `SYSTEMS`; words in any order, each a GPU (``gpu_packet:b200``),
the format of its products (``gpu_packet:b200:fp8``) or a photonic core (``photonic_ocs:ring_bank:b200``); and
a fabric. Choices that the name leaves open come from the options, then the file, then the defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType

from electronic.devices import REFERENCE_SYSTEMS
from electronic.gpu import gpu_names, load_gpu
from heliograph.systems.fabrics import CIRCUITS, FABRICS, GRAPH, check_fabric, default_fabric, fabric_in_file
from optical.cores import CORE_GROUP, CORES, load_core
from simulator.errors import ParameterError, SuspectWarning, member_named, nearest, plain_number, told
from simulator.files import PART, Change, flattened, naming, read_toml, refuse_key
from simulator.operands.statistics import OperandKind
from simulator.plugins import bring_in
from workloads.plan.parts import Precision

DEFAULT_GPU = "h100"
"""Default GPU of an electronic system, and default GPU that a photonic accelerator replaces."""
RIVAL_GPUS = ("h100", "b200")
"""Default GPUs of a comparison: that of most published training runs, in bf16 and fp8, and the next
generation, in fp8."""
DEFAULT_CORE = "homodyne+hybrid+rotation+block"
"""Default core of photonic accelerators: of those that reach fp8's precision within a GPU's power, the one
with the least energy per product."""
DEFAULT_PARTS: Mapping[str, str] = MappingProxyType({"adc": "adc_survey_8b"})
"""Parts that replace those of the default core in a system; with an output converter of fewer bits it does
not reach fp8's precision."""
DEFAULT_OPERANDS = OperandKind.CAPTURED
"""Default operands for a model's precision and for sizing a laser: those of trained transformers."""
DEFAULT_ACCELERATORS = 1024
"""Default number of accelerators."""
MOST_ACCELERATORS = 2**24
"""Most accelerators of a system; a choice, beyond what four levels of switches can join."""


class Basis(StrEnum):
    """Budget that a photonic accelerator shares with the GPU that it replaces."""

    POWER = "power"
    AREA = "area"
    COUNT = "count"


@dataclass(frozen=True, kw_only=True)
class NamedSystem:
    """System that has a name of its own."""

    summary: str
    """Line in lists."""
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
"""Systems by name."""
TO_PACKETS = ("_ocs", "_packet")
"""Ends of the names of systems on circuits and of the same ones on packets."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices given beside a system's name; None where one was not given."""

    accelerators: int | None = None
    """Number of accelerators."""
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
            object.__setattr__(self, "basis", member_named(Basis, self.basis, "basis"))
        if self.precision is not None:
            object.__setattr__(self, "precision", member_named(Precision, self.precision, "precision"))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A system before any number of it is changed."""

    label: str
    """Name of the system in tables."""
    base: NamedSystem
    """Named system that it starts from."""
    accelerators: int
    """Number of accelerators."""
    gpu: str
    """The GPU, or the one that is replaced."""
    basis: Basis
    """Sizing of photonic accelerators."""
    core: str
    """Core of photonic accelerators."""
    parts: Mapping[str, str]
    """Parts that replace those of the core, by their path in it."""
    fabric: str
    """Name of the fabric."""
    precision: Precision | None
    """Format of a GPU's products; None for that of the plan."""
    changes: tuple[Change, ...]
    """Changes of numbers and parts that its file makes."""
    contradictions: Mapping[str, str]
    """Message for each option that the system cannot use, by the option's name."""


@dataclass(frozen=True, kw_only=True)
class _Described:
    """Description of a system by its name or its file."""

    label: str
    """Name in tables."""
    base: str
    """One of `SYSTEMS`."""
    named: Options = Options()
    """Choices of the name: core, GPU, format, and the fabric behind the @."""
    in_file: Options = Options()
    """Choices of the file."""
    changes: tuple[Change, ...] = ()
    """Changes that the file makes."""


def every_core() -> tuple[str, ...]:
    """Return the names of all cores, those of installed packages included; warn of one that fails to load."""
    for name, reason in bring_in(CORE_GROUP, load_core).items():
        warnings.warn(f"core '{name}' is left out: it {reason}", SuspectWarning, stacklevel=2)
    return tuple(CORES)


def check_accelerators(accelerators: int) -> None:
    """Raise `ParameterError` unless a number of accelerators is whole and from 1 to `MOST_ACCELERATORS`."""
    if isinstance(accelerators, bool) or not isinstance(accelerators, int) or accelerators < 1:
        msg = f"accelerators must be a whole number of at least 1; got {accelerators!r}"
        raise ParameterError(msg)
    if accelerators > MOST_ACCELERATORS:
        msg = f"accelerators must be at most {MOST_ACCELERATORS:,}; got {accelerators:,}"
        raise ParameterError(msg)


def choice_of(name: str, options: Options, usual_accelerators: int = DEFAULT_ACCELERATORS) -> Choice:
    """Return the choice that a system's name, the options, its file and the defaults make, in this order.

    Parameters
    ----------
    name : str
        One of `SYSTEMS`, with a GPU, format or core (``gpu_packet:b200:fp8``, ``photonic_ocs:crossbar``) or a
        fabric (``gpu_packet@torus``) of its own, or the path of a ``.toml`` file.
    options : Options
        Choices given beside the name; those that contradict it get a message in `Choice.contradictions`.
    usual_accelerators : int
        Accelerators where neither the options nor the file give a number.

    Raises
    ------
    ParameterError
        For unknown names, and for a file that contradicts itself.
    """
    described = _described(name)
    base, given = SYSTEMS[described.base], (described.named, options, described.in_file)
    cores, fabrics = ([getattr(one, key) for one in given if getattr(one, key)] for key in ("core", "fabric"))
    for core in cores:
        load_core(core)  # a wrong name is an error also where no core is used
    for fabric in fabrics:
        check_fabric(fabric)
    gpu = next((one.gpu for one in given if one.gpu), DEFAULT_GPU)
    load_gpu(gpu)
    core = next(iter(cores), DEFAULT_CORE)
    packets = next(iter(fabrics), "") or default_fabric(gpu)
    precision = next((one.precision for one in given if one.precision), None)
    return Choice(
        label=described.label,
        base=base,
        accelerators=options.accelerators or described.in_file.accelerators or usual_accelerators,
        gpu=gpu,
        basis=Basis(options.basis or described.in_file.basis or Basis.POWER),
        core=core,
        parts=DEFAULT_PARTS if core == DEFAULT_CORE else {},
        fabric=CIRCUITS if base.circuits else packets,
        precision=None if precision is None else Precision(precision),
        changes=described.changes,
        contradictions=_contradictions(name, described, options),
    )


def is_system(name: str) -> bool:
    """Return whether a text names a system, with or without words and fabric, or a system's file."""
    base = name.partition("@")[0]
    plain = base.partition(":")[0]
    return plain in SYSTEMS or base.endswith(".toml") or plain.endswith(".toml")


def _described(name: str) -> _Described:
    """Return the description that a system's name, or the file that it names, gives."""
    if not isinstance(name, str) or not name:
        msg = f"a system's name must be text, such as {', '.join(SYSTEMS)}; got {told(name)}"
        raise ParameterError(msg)
    base, _, fabric = name.partition("@") if is_system(name) else (name, "", "")
    plain = base.partition(":")[0]
    if name.endswith("@"):
        msg = f"system '{name}' names no fabric behind its @; write one, such as {name}torus, or leave @ out"
        raise ParameterError(msg)
    if plain != base and plain.endswith(".toml"):
        msg = (
            f"system '{name}': words do not stand behind a file's name; write them into {plain}, behind its "
            'base, such as base = "gpu_packet:b200:fp8"'
        )
        raise ParameterError(msg)
    if plain not in SYSTEMS and (base.endswith(".toml") or "/" in base):
        return _with_fabric(_from_file(Path(base)), fabric)
    if plain not in SYSTEMS:
        msg = f"no system '{plain}'; {nearest(plain, SYSTEMS, noun='system')}"
        raise ParameterError(msg)
    if ":" in fabric and not fabric.startswith(GRAPH) and fabric.partition(":")[0] in FABRICS:
        fabric, _, words = fabric.partition(":")
        msg = f"system '{name}': a fabric stands last; write {base}:{words}@{fabric}"
        raise ParameterError(msg)
    described = _describe_words(base)
    if fabric and SYSTEMS[plain].circuits and fabric != CIRCUITS:
        check_fabric(fabric)
        msg = (
            f"system '{name}': {plain} has optical circuits for a fabric; write "
            f"{plain.replace(*TO_PACKETS)}@{fabric}"
        )
        raise ParameterError(msg)
    return _with_fabric(dataclasses.replace(described, label=name), fabric)


def _with_fabric(described: _Described, fabric: str) -> _Described:
    """Return a description with the fabric of its name, if that has one."""
    return dataclasses.replace(described, named=dataclasses.replace(described.named, fabric=fabric or None))


def words_of(name: str) -> tuple[str, ...]:
    """Return the base, the words and the fabric of a system's name."""
    base, _, fabric = name.partition("@")
    return tuple(word for word in (*_split_words(base), fabric) if word)


def _split_words(base: str) -> list[str]:
    """Return a name's base and words; a core of a file (``FILE.py:NAME``) is one word."""
    words: list[str] = []
    for piece in base.split(":"):
        if words and words[-1].endswith(".py"):
            words[-1] += f":{piece}"
        else:
            words.append(piece)
    return words


class _Word(StrEnum):
    """Kind of a word in a name; the text is its plural, for messages."""

    GPU = "GPUs"
    PRECISION = "formats"
    CORE = "cores"


def _describe_words(base: str) -> _Described:
    """Return the description that a name without its fabric gives."""
    plain, *words = _split_words(base)
    light = SYSTEMS[plain].light
    chosen: dict[_Word, str] = {}
    for word in words:
        kind = _Word.GPU if word in gpu_names() else _Word.PRECISION if word in set(Precision) else _Word.CORE
        if kind in chosen:
            msg = f"system '{base}' names two {kind}, {chosen[kind]} and {word}; leave one of them out"
            raise ParameterError(msg)
        if kind is _Word.CORE and not light:
            raise ParameterError(_not_a_word(base, plain, word))
        if kind is _Word.PRECISION and light:
            raise ParameterError(no_format(base, word))
        chosen[kind] = word
    core, gpu, precision = (chosen.get(kind) for kind in (_Word.CORE, _Word.GPU, _Word.PRECISION))
    return _Described(label=base, base=plain, named=Options(core=core, gpu=gpu, precision=precision))


def _not_a_word(base: str, plain: str, word: str) -> str:
    """Return the message for a word of an electronic system that is neither a GPU nor a format."""
    try:
        load_core(word)
    except ParameterError:
        hint = nearest(word, {*gpu_names(), *set(Precision)}, noun="word")
        return f"system '{base}': '{word}' is neither a GPU nor a format; {hint}"
    return f"system '{base}': {plain} has no photonic core; write {plain}, or photonic_ocs:{word}"


def _contradictions(name: str, said: _Described, options: Options) -> dict[str, str]:
    """Return a message for each option that a system cannot use, by the option's name."""
    base, unused = SYSTEMS[said.base], {}
    if base.light:
        unused["precision"] = no_format(name, str(options.precision))
    else:
        unused["core"] = (
            f"core '{options.core}' is not used: system '{name}' has no photonic core; leave it out, or take "
            "photonic_packet"
        )
        unused["basis"] = (
            f"basis '{options.basis}' is not used: it sizes photonic accelerators, and system '{name}' has "
            "none; leave it out"
        )
    if base.circuits and options.fabric != CIRCUITS:
        unused["fabric"] = (
            f"fabric '{options.fabric}' contradicts system '{name}', which has optical circuits for a "
            f"fabric; write {said.base.replace(*TO_PACKETS)}@{options.fabric}"
        )
    found: dict[str, str] = {}
    for option in ("core", "gpu", "precision", "basis", "fabric"):
        given, named = getattr(options, option), getattr(said.named, option)
        if given is None:
            continue
        if option in unused:
            found[option] = unused[option]
        elif named not in (None, given):
            found[option] = f"{option} '{given}' contradicts system '{name}'; leave one of them out"
    return found


def no_format(name: str, precision: str) -> str:
    """Return a sentence on the format of a GPU's products where a system has none."""
    return (
        f"precision '{precision}' is not used: it is the format of a GPU's products, and those of system "
        f"'{name}' are done in light; leave it out"
    )


def rivals(gpu: str | None = None) -> tuple[str, ...]:
    """Return the default systems of a comparison.

    Parameters
    ----------
    gpu : str, optional
        The GPU to compare with; by default those of `RIVAL_GPUS`.

    Notes
    -----
    Each GPU in fp8 or int8, where it has one of them, and the first one also in bf16, each on packets and on
    circuits; and photonic accelerators that replace each of the GPUs.
    """
    gpus = RIVAL_GPUS if gpu is None else (gpu,)
    narrow = [(one, narrow_format(one)) for one in gpus]
    electronic = [
        f"{gpus[0]}:{Precision.BF16}",
        *(f"{one}:{kind}" for one, kind in narrow if kind is not None),
    ]
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
    """Return systems without those that are excluded.

    Parameters
    ----------
    names : iterable of str
        Systems by name.
    without : iterable of str
        Excluded ones: names of systems, or words of names (``b200``, ``gpu_ocs``).

    Raises
    ------
    ParameterError
        If one of the excluded fits no system.
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


def _from_file(path: Path) -> _Described:
    """Return the description that a system's file gives; keys that are no choices are changes."""
    content = read_toml(path)
    written = content.pop("base", None)
    meant = difflib.get_close_matches("base", set(content) - {"basis"}, n=1, cutoff=0.7)
    for key in meant if written is None else ():
        refuse_key(path, key, f"no key '{key}' in a system's file; did you mean 'base'?")
    if not isinstance(written, str):
        msg = f"{path}: key 'base' must name the system to start from: {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    base = written.partition(":")[0]
    with naming(path, "base"):
        if base not in SYSTEMS:
            msg = f"base: no system '{base}'; {nearest(base, SYSTEMS, noun='system')}"
            raise ParameterError(msg)
        described = _describe_words(written)
    if "set" in content:
        sentence = (
            "parameters stand at the top of a system's file, as laser_power_w = \"5 mW\"; leave out 'set'"
        )
        refuse_key(path, "set", sentence)
    fabric = fabric_in_file(content, path)
    chosen: dict[str, str] = {}
    for key, load in (
        ("basis", partial(member_named, Basis, noun="basis")),
        ("gpu", load_gpu),
        ("core", load_core),
        ("precision", partial(member_named, Precision, noun="precision")),
    ):
        value = content.pop(key, None)
        if isinstance(value, Mapping):  # a table that changes numbers of the part, and may name it
            content[key] = {name: one for name, one in value.items() if name != PART}
            value = value.get(PART)
        if value is not None:
            with naming(path, key):
                chosen[key] = str(value)
                load(chosen[key])
    accelerators = content.pop("accelerators", None)
    with naming(path, "accelerators"):
        options = Options(accelerators=accelerators, fabric=fabric, **chosen)
    for key, sentence in _contradictions(written, described, options).items():
        refuse_key(path, key, sentence)
    said = {key: getattr(described.named, key) for key in ("core", "gpu", "precision")}
    options = dataclasses.replace(options, **{key: value for key, value in said.items() if value})
    label = str(content.pop("name", path.stem))
    return _Described(label=label, base=base, in_file=options, changes=tuple(flattened(content, path)))

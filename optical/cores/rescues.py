"""Rescues of precision: a core with electronics around it that a system would add for outliers and long sums.

Each is a core with another inside, so that they combine: rotation of operands, outlier channels that stay
electronic, averaging of repeated products, slices of fewer bits. `optical.cores.number_formats` has block
floating point and residues. Both answers, noise and price, follow from the fields: the record of the core
within gets a transform (`optical.execution.spec.OperandTransforms`), its work gets longer and dearer.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from optical.cores.core import Core, Work
from optical.cores.number_formats import BlockFloatCore, FormattedCore, operand_elements
from optical.devices import Events, FormatLogic, Part, Per, shipped
from optical.devices.devices import Adder
from optical.devices.parts import energy_j, merged
from optical.execution import AnalogSpec, OperandTransforms
from simulator.errors import ParameterError, check_range, check_whole, nearest
from simulator.operators import MatMul, Phase

MOST_CHANNELS = 0.5
"""Largest share of channels that count as the loudest ones; a choice: beyond it light has fewer."""


class RescuedCore(FormattedCore):
    """Base of cores with transformed operands; a subclass states transform, repeats and electronics."""

    @property
    @abstractmethod
    def transforms(self) -> Mapping[str, Any]:
        """Fields of `OperandTransforms` that this rescue sets, with their values."""

    @property
    def repeats(self) -> int:
        """Products of the inner core for one product."""
        return 1

    @property
    def loads(self) -> int:
        """Loads of a weight-stationary inner core for one load."""
        return 1

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, a repeated product counted once."""
        return self.core.peak_macs_per_s / self.repeats

    @property
    def operands_per_symbol(self) -> float:
        """Operand symbols that the converters of one core set at a time."""
        return float(self.core.full_load.symbols) / self.core.symbol_rate_hz

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase: the inner core's, on transformed operands."""
        spec = self.core.analog(phase)
        before = spec.transforms or OperandTransforms()
        return dataclasses.replace(spec, transforms=dataclasses.replace(before, **self.transforms))

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product; electronics keeps pace with the light."""
        work = self.core.work(operator, cores)
        # Electronic products of a part-filled sample are as many as its elements: samples are not rounded up.
        samples = operator.batch * operator.m * operator.n * (operator.k / self.analog_length)
        events = Events(elements=operand_elements(operator), samples=samples)
        core_j = {part: self.repeats * energy for part, energy in work.energy_j.items()}
        return Work(
            light_s=self.repeats * work.light_s,
            programming_s=self.loads * work.programming_s,
            energy_j=merged(core_j, energy_j(self.format_parts, events)),
            operand_bytes=self.repeats * work.operand_bytes,
            writes=self.loads * work.writes,
        )


@dataclass(frozen=True, kw_only=True)
class RotatedCore(RescuedCore):
    """Any core whose operands are rotated along the sum by random signs and Hadamard matrices.

    Notes
    -----
    (A H)(H^T B) = A B for orthogonal H: energy of a loud channel is spread over `width` of them, so that a
    row's full scale falls to that of Gaussian elements. A fast transform takes log2(width) additions for each
    element, once per product for both operands, in adders before the converters.

    References
    ----------
    Ashkboos et al., "QuaRot: outlier-free 4-bit inference in rotated LLMs", arXiv:2404.00456.
    """

    name: str = "rotated"
    """Name shown in tables and messages."""
    width: int = 1024
    """Channels that are mixed, a power of two; a choice."""
    butterfly: Adder = shipped(Adder, "adder")
    """Adder of the fast Hadamard transform."""

    def __post_init__(self) -> None:
        check_range(self, "width", low=2)
        check_whole(self, "width")
        OperandTransforms(rotation_width=self.width)

    @property
    def transforms(self) -> Mapping[str, Any]:
        """Rotation."""
        return {"rotation_width": self.width}

    @cached_property
    def format_parts(self) -> tuple[Part, ...]:
        """Adders, as many as keep pace with the operands' converters, and their additions."""
        rounds = math.log2(self.width)
        lanes = self.operands_per_symbol * rounds
        return (
            Part("operand transform", self.butterfly, lanes),
            Part("operand transform", self.butterfly, rounds, self.butterfly.energy_j, Per.ELEMENT),
        )


@dataclass(frozen=True, kw_only=True)
class HybridCore(RescuedCore):
    """Any core beside electronics that multiplies the loudest channels.

    Notes
    -----
    The light is charged for all channels, as its tiles do not shrink by a few; the electronics for its share
    of the multiply-accumulates in bf16 with sums in fp32.

    References
    ----------
    Dettmers et al., "LLM.int8(): 8-bit matrix multiplication for transformers at scale", arXiv:2208.07339.
    """

    name: str = "hybrid"
    """Name shown in tables and messages."""
    share: float = 0.02
    """Share of the channels, the loudest, that stay electronic, at most `MOST_CHANNELS`; a choice."""
    logic: FormatLogic = shipped(FormatLogic, "outlier_logic")
    """Electronics that find the channels and multiply them."""

    def __post_init__(self) -> None:
        check_range(self, "share", low=0.0, high=MOST_CHANNELS, open_low=True)

    @property
    def transforms(self) -> Mapping[str, Any]:
        """Outlier channels apart."""
        return {"electronic_share": self.share}

    @cached_property
    def format_parts(self) -> tuple[Part, ...]:
        """Multiply-add lanes that keep pace with the light, the search, and the products of a sample."""
        lanes = math.ceil(self.share * self.core.peak_macs_per_s / self.logic.rate_hz)
        products = self.share * self.analog_length
        return (
            Part("outlier channels", self.logic, lanes),
            Part("outlier channels", self.logic, 1, self.logic.element_j, Per.ELEMENT),
            Part("outlier channels", self.logic, products, self.logic.sample_j, Per.SAMPLE),
        )

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product, the indices of the channels fetched as well."""
        work = super().work(operator, cores)
        indices = self.share * operator.batch * operator.k * self.logic.scale_bytes
        return dataclasses.replace(work, operand_bytes=work.operand_bytes + indices)


@dataclass(frozen=True, kw_only=True)
class AveragedCore(RescuedCore):
    """Any core that executes each product several times and takes the mean.

    Notes
    -----
    Noise that is drawn anew falls by the number of passes, in power; errors that are fixed for a chip, and
    rounding of operands to nearest, stay.
    """

    name: str = "averaged"
    """Name shown in tables and messages."""
    passes: int = 4
    """Executions of a product; a choice."""

    def __post_init__(self) -> None:
        check_range(self, "passes", low=1)
        check_whole(self, "passes")

    @property
    def transforms(self) -> Mapping[str, Any]:
        """Passes."""
        return {"passes": self.passes}

    @property
    def repeats(self) -> int:
        """Products of the inner core for one product."""
        return self.passes

    @property
    def format_parts(self) -> tuple[Part, ...]:
        """None: the adders behind the converters add passes as they add samples."""
        return ()


@dataclass(frozen=True, kw_only=True)
class SlicedCore(RescuedCore):
    """Any core whose operands are cut into slices: every slice of A meets every slice of B.

    Notes
    -----
    Two slices of b bits stand for 2 b bits, or more where the converter has more. That lowers rounding, not
    noise of the light: the first slices have the full scale of the whole operand.
    """

    name: str = "sliced"
    """Name shown in tables and messages."""
    slices: int = 2
    """Slices of an operand; a choice."""
    bits: int = 4
    """Bits of a slice; a choice."""
    splitter: Adder = shipped(Adder, "adder")
    """Adder that takes a slice off an operand."""

    def __post_init__(self) -> None:
        check_range(self, "slices", "bits", low=2)
        check_whole(self, "slices", "bits")

    @property
    def transforms(self) -> Mapping[str, Any]:
        """Slices."""
        return {"slices": self.slices, "slice_bits": self.bits}

    @property
    def repeats(self) -> int:
        """Products of the inner core for one product."""
        return self.slices**2

    @property
    def loads(self) -> int:
        """Loads of a weight-stationary core for one: each slice once."""
        return self.slices

    @cached_property
    def format_parts(self) -> tuple[Part, ...]:
        """Adders before the converters, and a subtraction for each slice but the last."""
        return (
            Part("operand transform", self.splitter, self.operands_per_symbol * (self.slices - 1)),
            Part("operand transform", self.splitter, self.slices - 1, self.splitter.energy_j, Per.ELEMENT),
        )


@dataclass(frozen=True, slots=True)
class Rescue:
    """Rescue that can be taken by name."""

    kind: type[BlockFloatCore | RescuedCore]
    """Class of cores that wrap another one."""
    summary: str
    """Description in one line."""


_RESCUES: dict[str, Rescue] = {
    "block": Rescue(BlockFloatCore, "block floating point: a scale for each sample's operands"),
    "rotation": Rescue(RotatedCore, "operands turned along the sum by Hadamard matrices"),
    "hybrid": Rescue(HybridCore, "the loudest 2 % of the channels multiplied electronically"),
    "averaging": Rescue(AveragedCore, "the mean of four executions of each product"),
    "slices": Rescue(SlicedCore, "operands in two slices, four products for one (2 x 4 bits)"),
}
RESCUES: Mapping[str, Rescue] = MappingProxyType(_RESCUES)
"""Rescues by name, as in ``crossbar+rotation+block``: the first is the innermost."""
JOINT = "+"
"""Separator between a core and its rescues in a name."""


def split_name(name: str, cores: Container[str]) -> tuple[str, tuple[str, ...]]:
    """Return the core and the rescues in a name.

    Parameters
    ----------
    name : str
        ``CORE+RESCUE+RESCUE``; the core may be a file, whose path may have a ``+`` of its own.
    cores : container of str
        Names that stand for cores already.
    """
    if name in cores:
        return name, ()
    first, *rest = name.split(JOINT)
    if first in cores:
        return first, tuple(rest)
    names: list[str] = []
    while JOINT in name and name.rpartition(JOINT)[2] in RESCUES:
        name, _, last = name.rpartition(JOINT)
        names.insert(0, last)
    return name, tuple(names)


def rescued(core: Core, names: tuple[str, ...]) -> Core:
    """Return a core with rescues around it, named after both.

    Parameters
    ----------
    core : Core
        Any core.
    names : tuple of str
        Of `RESCUES`, each at most once, the innermost first.

    Raises
    ------
    ParameterError
        If there is no such rescue, or one is named twice.
    """
    for name in names:
        if name not in RESCUES:
            msg = f"no rescue '{name}'; {nearest(name, RESCUES, noun='rescue')}"
            raise ParameterError(msg)
        if names.count(name) > 1:
            msg = f"rescue '{name}' stands twice in {JOINT.join((core.name, *names))}; name it once"
            raise ParameterError(msg)
        core = RESCUES[name].kind(core=core, name=f"{core.name}{JOINT}{name}")
    return core

"""Named systems: an accelerator, a fabric and prices in one frozen description that four questions share.

One sentence about systems that come out better than whole chips of today, or than physics allows.
"""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from electronic.gpu import Gpu, load_gpu
from electronic.hosts import host_of
from electronic.vector import VectorUnit, load_vector
from heliograph.fabrics import DEFAULT_FABRIC, build_fabric, check_effect, fabric_in_file, fabric_of
from heliograph.parameters import beyond_range
from heliograph.parts import names_part, place_for, with_part
from heliograph.report import format_quantity
from heliograph.system_file import Change, flattened, naming
from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import load_core
from optical.cores.core import Core
from optical.devices import Converter
from optical.devices.limits import sampling_floor_j
from optical.devices.named_parts import named_parts
from optical.execution import AnalogSpec
from simulator.errors import ParameterError, RangeWarning, SuspectWarning, nearest
from simulator.fabric import CircuitPolicy, Fabric
from simulator.files import read_toml
from simulator.node import Host, Node
from simulator.operators import Phase
from simulator.parameter_tree import get_at, parse_assignment, replace_at
from simulator.results.metrics import Economics, default_economics
from simulator.units import dimension_of, to_si

SUSPECT_BITS = 8.0
"""Effective bits from which a system's energy is judged; dimensionless."""
SUSPECT_J_PER_MAC = to_si("energy_j", 0.5, "pJ")
"""Energy below which an accelerator of so many bits is doubted; 0.6 of the best whole chip (PACE)."""

FAR = 100.0
"""Factor by which a number without a unit must differ from what stood there to be doubted; dimensionless."""
TYPED = re.compile(r"\s*\d+(\.\d*)?\s*")
"""A number as one writes it who thinks of another unit: 5, 12.5."""


RETICLE_M2 = 26e-3 * 33e-3
"""Field that a scanner exposes at once: 26 mm by 33 mm (ASML NXT:2000i)."""
MOST_ACCELERATORS = 2**24
"""Accelerators of the largest system that is built, a choice; three levels of today's switches join fewer."""


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


def doubt_of_unit(system: System, key: str, text: float | str) -> None:
    """Warn of a number typed without unit or exponent that is far from what stands there.

    Parameters
    ----------
    system : System
        Before the change.
    key : str
        Path of a parameter of it, or an ending.
    text : float or str
        What it becomes; numbers of a program, and text with a unit or an exponent, are not doubted.
    """
    dimension = dimension_of(key)
    if dimension is None or not isinstance(text, str) or not TYPED.fullmatch(text):
        return
    try:
        before = get_at(system, key)
    except ParameterError:  # said where it is changed
        return
    number = float(text)
    if before * number <= 0.0 or before / FAR < number < before * FAR:
        return
    unit = dimension[1]
    stood = format_quantity(before, unit)
    msg = (
        f"{key}={text} is {format_quantity(number, unit)}, and {stood} stood there; "
        f"if that is not meant, write the unit, e.g. {key}='{stood}'"
    )
    warnings.warn(msg, SuspectWarning, stacklevel=3)


def checked(system: System) -> System:
    """Return the system, after a warning for each thing about it that is possible and was never built."""
    for sentence in filter(None, (suspicion(system), converter_doubt(system))):
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    for sentence in filter(None, (reticle_doubt(system), *beyond_range(system))):
        warnings.warn(sentence, RangeWarning, stacklevel=3)
    return system


def reticle_doubt(system: System) -> str | None:
    """Return one sentence about a photonic accelerator whose die no lithography exposes at once, or None."""
    area_m2 = system.accelerator_area_m2()
    if system.photonic is None or area_m2 <= RETICLE_M2:
        return None
    return (
        f"an accelerator of '{system.name}' has a die of {format_quantity(area_m2, 'm^2')}, and a scanner "
        f"exposes {format_quantity(RETICLE_M2, 'm^2')} at once; take --basis area, or fewer cores"
    )


def converter_doubt(system: System) -> str | None:
    """Return one sentence about an output converter with more bits than its energy allows, or None.

    Parameters
    ----------
    system : System
        Any system. A converter set to take no energy at all is meant to be ideal, and not doubted.

    Notes
    -----
    Sampling alone takes 8 k T SNR (`optical.devices.limits.sampling_floor_j`). Named parts beyond it are
    refused; a number that somebody sets may be meant, so that it is doubted.
    """
    core = system.photonic.core if system.photonic else None
    adc = getattr(core, "adc", None) or getattr(getattr(core, "core", None), "adc", None)
    if not isinstance(adc, Converter) or adc.conversion_j == 0.0:
        return None
    floor_j = sampling_floor_j(adc.enob_bits)
    if adc.conversion_j >= floor_j:
        return None
    return (
        f"{adc.name} of '{system.name}' takes {format_quantity(adc.conversion_j, 'J')} a sample, and "
        f"{adc.enob_bits:g} effective bits need {format_quantity(floor_j, 'J')} by sampling alone (8 k T "
        "SNR); power_w does not follow enob_bits: set both, or a part by its name (heliograph list parts)"
    )


def suspicion(system: System) -> str | None:
    """Return one sentence about a photonic accelerator that is better than whole chips of today, or None.

    Parameters
    ----------
    system : System
        Any system; without light there is nothing to say.

    Notes
    -----
    Compared is the photonic unit alone, at full load, without memory and other electronics: what published
    chips state includes more, so the bound is generous.

    References
    ----------
    PACE, Nature 640, 361 (2025): 0.84 pJ/MAC at 7.61 effective bits; Lightmatter, Nature 2025: 2.43 pJ/MAC.
    """
    if system.photonic is None or system.effective_bits() < SUSPECT_BITS:
        return None
    energy_j = system.photonic.peak_power_w / system.photonic.peak_macs_per_s
    if energy_j >= SUSPECT_J_PER_MAC:
        return None
    picojoules = energy_j / to_si("energy_j", 1.0, "pJ")
    return (
        f"system '{system.name}' needs {picojoules:.2f} pJ/MAC at {system.effective_bits():.1f} effective "
        "bits, while whole chips of today take 0.84 (PACE) to 2.43 (Lightmatter) pJ/MAC; check what was set "
        "or left out"
    )


DEFAULT_CORE = "crossbar"
"""Core of photonic accelerators where nobody names one."""
PUBLISHED_CORES = 16
"""Cores of the published chip: LT-L has 8 tiles of 2 cores (Lightening-Transformer, HPCA 2024)."""


class Basis(StrEnum):
    """What makes a photonic accelerator comparable with the GPU that it replaces."""

    POWER = "power"
    AREA = "area"
    COUNT = "count"


@dataclass(frozen=True, kw_only=True)
class System:
    """Everything that a run needs to know about the hardware.

    The photonic parts are absent in an all-electronic system. Where they are present, `gpu` is the
    accelerator that they replace: it gives the budget of power or area and the memory.
    """

    name: str
    """Name of the system."""
    gpu: Gpu
    """The GPU, or the one that is replaced."""
    photonic: PhotonicUnit | None = None
    """Matrix unit in light, sharing the GPU's memory."""
    vector: VectorUnit | None = None
    """Electronics that a photonic accelerator carries for everything else."""
    fabric: Fabric
    """What connects the accelerators."""
    economics: Economics
    """Prices."""
    basis: Basis = Basis.POWER
    """How the photonic accelerator was sized."""
    circuits: CircuitPolicy | None = None
    """Circuit policy, or None to take the faster one."""
    host: Host | None = None
    """Server that carries the accelerators; part of the system where a plan moves something to it."""

    @property
    def accelerators(self) -> int:
        """Accelerators in the system."""
        return self.fabric.endpoints

    def node(self) -> Node:
        """Return one accelerator as the engine sees it."""
        if self.photonic is None or self.vector is None:
            return Node(
                name=self.gpu.name,
                units=(
                    dataclasses.replace(self.gpu, slowest_of=max(self.gpu.slowest_of, self.accelerators)),
                ),
                memory=self.gpu.memory,
                peak_flop_per_s=self.gpu.peak_flop_per_s,
                static_parts_w={"gpu idle": self.gpu.static_w},
                host=self.host,
            )
        return Node(
            name=self.photonic.name,
            units=(self.photonic, self.vector),
            memory=self.photonic.memory,
            peak_flop_per_s=self.photonic.peak_flop_per_s,
            static_parts_w=self.photonic.static_parts_w() | {"vector static": self.vector.static_w},
            host=self.host,
        )

    def hosted(self) -> System:
        """Return the system with the server that comes with its GPU, unless it has one.

        Raises
        ------
        ParameterError
            If no server is described for the GPU.
        """
        if self.host is not None:
            return self
        return dataclasses.replace(self, host=host_of(self.gpu.name, self.accelerators))

    def analog(self) -> dict[Phase, AnalogSpec] | None:
        """Return how products of each phase come out of the photonic core, or None for a GPU."""
        if self.photonic is None:
            return None
        phases = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
        return {phase: self.photonic.core.analog(phase) for phase in phases}

    def effective_bits(self) -> float:
        """Return effective bits: of a full-scale analog sample with its converters, or bf16's significand."""
        if self.photonic is None:
            return BF16_SIGNIFICAND_BITS
        return self.photonic.core.effective_bits

    def accelerator_peak_w(self) -> float:
        """Return the power of one accelerator with all its parts at full load."""
        if self.photonic is None or self.vector is None:
            return self.gpu.chip.tdp_w
        return self.photonic.peak_power_w + _electronics_w(self.vector)

    def accelerator_area_m2(self) -> float:
        """Return the die area of one accelerator, memory apart."""
        if self.photonic is None or self.vector is None:
            return self.gpu.area_m2
        return self.photonic.area_m2 + self.vector.area_m2

    def accelerator_usd(self) -> float:
        """Return the price of one accelerator."""
        if self.photonic is None or self.vector is None:
            return self.gpu.price_usd
        return self.photonic.price_usd + self.vector.price_usd

    def capital_usd(self) -> float:
        """Return the price of all accelerators and of the fabric."""
        return self.accelerators * self.accelerator_usd() + self.fabric.cost_usd

    def sized(self) -> System:
        """Return the system with as many photonic cores as its basis allows.

        Raises
        ------
        ParameterError
            If not even one cluster of cores fits.
        """
        if self.photonic is None or self.vector is None:
            return self
        cluster = self.photonic.core.cluster
        one = self.photonic.resized(cluster)
        match self.basis:
            case Basis.POWER:
                budget, rest, each = self.gpu.chip.tdp_w, _electronics_w(self.vector), one.peak_power_w
                unit = "W"
            case Basis.AREA:
                budget, rest, each = self.gpu.area_m2, self.vector.area_m2, one.area_m2
                unit = "m^2"
            case _:
                clusters = max(1, PUBLISHED_CORES // cluster)
                return dataclasses.replace(self, photonic=self.photonic.resized(clusters * cluster))
        clusters = math.floor((budget - rest) / each)
        if clusters < 1:
            msg = (
                f"basis {self.basis}: {self.gpu.name} gives {budget:g} {unit}, electronics and memory take "
                f"{rest:g}, and {cluster} photonic cores need {each:g} {unit}; try --basis count, or smaller "
                "cores"
            )
            raise ParameterError(msg)
        return dataclasses.replace(self, photonic=self.photonic.resized(clusters * cluster))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """What a name, a file and options ask for, before any number is changed."""

    label: str
    """Name of the system in tables."""
    base: str
    """Named system that it starts from."""
    gpu: str
    """The GPU, or the one that is replaced."""
    basis: Basis
    """How photonic accelerators are sized."""
    core: str
    """Their core."""
    fabric: str
    """Fabric where the name asks for packets."""


BF16_SIGNIFICAND_BITS = 8.0
"""Significand of bfloat16 with its hidden bit."""


def _electronics_w(vector: VectorUnit) -> float:
    """Return the peak power of vector lanes and memory."""
    lanes = vector.engine.static_w + vector.engine.rate_flop_per_s * vector.engine.energy_j_per_flop
    memory = vector.memory
    return lanes + memory.static_w + memory.bandwidth_bytes_per_s * memory.energy_j_per_byte


def _photonic_parts(gpu: Gpu, core: Core) -> dict[str, Any]:
    unit = PhotonicUnit(
        core=core,
        cores=core.cluster,
        memory=gpu.memory,
        sram_bytes=proportionate_buffer_bytes(core, core.cluster),
    )
    vector = dataclasses.replace(load_vector("simd-5nm"), memory=gpu.memory)
    return {"photonic": unit, "vector": vector}


def _build(chosen: _Choice, accelerators: int) -> System:
    gpu = load_gpu(chosen.gpu)
    core = load_core(chosen.core)  # a wrong name is an error where no light is used, too
    parts = _photonic_parts(gpu, core) if chosen.base.startswith("photonic") else {}
    return System(
        name=chosen.label,
        gpu=gpu,
        fabric=build_fabric(chosen.fabric, accelerators, chosen.gpu),
        economics=default_economics(),
        basis=chosen.basis,
        **parts,
    )


SYSTEMS = MappingProxyType(
    {
        "gpu_packet": "GPUs in NVLink domains, joined by a rail-optimised packet fabric",
        "gpu_ocs": "the same GPUs, joined by optical circuit switches that move in the step where it pays",
        "photonic_packet": "accelerators with products in light and the same memory, packet fabric",
        "photonic_ocs": "accelerators with products in light, optical circuit switches",
    }
)
"""Named systems and what they are."""


def build_system(
    name: str,
    *,
    accelerators: int = 1024,
    gpu: str = "h100",
    basis: Basis | str = Basis.POWER,
    core: str = DEFAULT_CORE,
    fabric: str = DEFAULT_FABRIC,
    assignments: Iterable[str] = (),
) -> System:
    """Return a named system, or one from a user's TOML file, with single parameters changed.

    Parameters
    ----------
    name : str
        One of `SYSTEMS`; the same with a core (``photonic_ocs:crossbar``) or a fabric of its own
        (``gpu_packet@torus``); or the path of a ``.toml`` file: ``base = "photonic_ocs"``, optionally
        ``name``, ``gpu``, ``basis``, ``core`` and ``fabric``, and tables of parameters (``[photonic.core]
        symbol_rate_hz = 1e10``). A part has its name (``adc = "adc_survey_8b"``), or a table that begins with
        ``part = "adc_survey_8b"`` and goes on with numbers. A table ``[fabric]`` names the fabric as its
        ``kind``.
    accelerators : int
        How many.
    gpu : str
        The GPU, or the one that photonic accelerators replace.
    basis : Basis
        How photonic accelerators are sized. Sizing comes after the changes, so a hungrier core means fewer
        cores; a change of ``photonic.cores`` itself switches it off.
    core : str
        Core of photonic accelerators whose name or file asks for no other (`optical.cores.CORES`).
    fabric : str
        Fabric of packet systems whose name or file asks for no other (`heliograph.fabrics.FABRICS`).
    assignments : iterable of str
        ``path=value``; a path may be shortened to any ending that fits one parameter only. A path that ends
        at a part takes the name of one (``core.adc=adc_isscc2025_24_7``,
        `optical.devices.named_parts.named_parts`). They are carried out in their order.

    Raises
    ------
    ParameterError
        For unknown names or paths, values out of range, or a basis that has no room for a core.
    """
    base, own_fabric = _split_fabric(name)
    chosen = _Choice(label=name, base=base, gpu=gpu, basis=_basis(basis), core=core, fabric=fabric)
    changes = [Change(key=key, value=value) for key, value in map(parse_assignment, assignments)]
    if base.endswith(".toml") or "/" in base:
        chosen, from_file = _from_file(Path(base), chosen)
        changes = from_file + changes
    base, colon, own_core = chosen.base.partition(":")
    if base not in SYSTEMS:
        msg = f"no system '{base}'; {nearest(base, SYSTEMS, noun='system')}"
        raise ParameterError(msg)
    if colon and not base.startswith("photonic"):
        msg = f"system '{chosen.base}': {base} has no photonic core; write {base}, or photonic_ocs:{own_core}"
        raise ParameterError(msg)
    chosen = dataclasses.replace(
        chosen,
        base=base,
        core=own_core if colon else chosen.core,
        fabric=fabric_of(base, own_fabric, chosen.fabric),
    )
    check_accelerators(accelerators)
    system = _build(chosen, accelerators)
    if any(one.key.startswith("host.") for one in changes):
        system = system.hosted()
    for one in changes:
        with one.named():
            doubt_of_unit(system, one.key, one.value)
            system = _changed(system, one.key, one.value)
    for one in changes:
        with one.named():
            check_effect(system.fabric, one.key)
    if any(one.key in ("fabric.policy", "policy") for one in changes):  # no longer the faster one
        system = dataclasses.replace(system, circuits=CircuitPolicy(get_at(system, "fabric.policy")))
    fixed = any(one.key in ("photonic.cores", "cores") for one in changes)
    return checked(system if fixed else system.sized())


def _split_fabric(name: str) -> tuple[str, str]:
    """Return a system's name without the fabric that it asks for after an @, and that fabric, or nothing."""
    system, _, fabric = name.partition("@")
    named = system.partition(":")[0] in SYSTEMS or system.endswith(".toml")
    return (system, fabric) if named and fabric else (name, "")


def has_parameter(system: System, path: str) -> bool:
    """Return whether a path, or its ending, names a parameter of a system, or a part that has a choice."""
    try:
        return _names_number(system, path) or place_for(system, path) is not None
    except ParameterError:
        return False


def _changed(system: System, path: str, value: float | str) -> System:
    """Return a system with one number, or one part, changed."""
    wanted = isinstance(value, str) and names_part(value) and not _names_number(system, path)
    if wanted and (place_for(system, path) is not None or str(value) in named_parts()):
        return with_part(system, path, str(value).strip())
    return replace_at(system, path, value)


def _names_number(system: System, path: str) -> bool:
    """Return whether a path names a number or a choice, which a value that looks like a name may set."""
    try:
        get_at(system, path)
    except ParameterError:
        return False
    return True


def _basis(text: Basis | str) -> Basis:
    if text not in set(Basis):
        msg = f"no basis '{text}'; {nearest(str(text), set(Basis), noun='basis')}"
        raise ParameterError(msg)
    return Basis(text)


def _from_file(path: Path, chosen: _Choice) -> tuple[_Choice, list[Change]]:
    content = read_toml(path)
    base = content.pop("base", None)
    if not isinstance(base, str):
        msg = f"{path}: key 'base' must name the system to start from: {', '.join(SYSTEMS)}"
        raise ParameterError(msg)
    plain = base.partition(":")[0]
    if plain not in SYSTEMS:
        with naming(path, "base"):
            msg = f"base: no system '{plain}'; {nearest(plain, SYSTEMS, noun='system')}"
            raise ParameterError(msg)
    fabric = fabric_in_file(content, path, chosen.fabric)
    basis, gpu, core = chosen.basis, chosen.gpu, chosen.core
    if "basis" in content:
        with naming(path, "basis"):
            basis = _basis(str(content.pop("basis")))
    if "gpu" in content:
        with naming(path, "gpu"):
            gpu = str(content.pop("gpu"))
            load_gpu(gpu)
    if "core" in content:
        with naming(path, "core"):
            core = str(content.pop("core"))
            load_core(core)
    from_file = _Choice(
        label=str(content.pop("name", path.stem)), base=base, gpu=gpu, basis=basis, core=core, fabric=fabric
    )
    return from_file, flattened(content, path)

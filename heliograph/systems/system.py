"""Systems: accelerators, hybrid ones too, a fabric and prices in one frozen description."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from electronic.devices import host_of
from electronic.gpu import Gpu, VectorUnit, load_gpu, load_vector
from heliograph.report import Summary, format_quantity, format_si
from heliograph.systems.fabrics import build_fabric, check_effect, stand_in_warning
from heliograph.systems.names import (
    DEFAULT_ACCELERATORS,
    DEFAULT_CORE,
    DEFAULT_OPERANDS,
    SYSTEMS,
    Basis,
    Choice,
    Options,
    choice_of,
    no_format,
)
from heliograph.systems.parts import is_comb, is_measured, names_part, place_for, with_part
from heliograph.systems.sanity_checks import warn_of_chip, warn_of_gpu, warn_of_system, warn_of_unit
from optical.accelerator import PhotonicUnit, proportionate_buffer_bytes
from optical.cores import load_core
from optical.cores.core import Core
from optical.cores.sizing import LASER
from optical.devices.named_parts import named_parts
from optical.execution import AnalogSpec
from simulator.errors import (
    BudgetError,
    HeliographError,
    ParameterError,
    SuspectWarning,
    check_choices,
    check_range,
    plain_number,
    told,
)
from simulator.fabric import CircuitPolicy, Fabric
from simulator.files import Change
from simulator.interfaces import ComputeUnit, Cost, Numerics
from simulator.node import NO_PENALTIES, Host, Node, Penalties
from simulator.operands.statistics import OperandKind
from simulator.operators import SCORES, VALUES, Elementwise, MatMul, Phase, Role
from simulator.parameter_tree import (
    get_at,
    parse_assignment,
    path_of,
    replace_all,
    replace_at,
    same_part,
    shown_paths,
)
from simulator.results import Economics, default_economics
from workloads.plan.parts import Precision
from workloads.plan.plan import Plan


class Kind(StrEnum):
    """Kind of a model's product, by where it stands in a block."""

    QKV = "qkv"
    """Queries, keys and values, or what they are made from."""
    ATTENTION = "attention"
    """Scores and values: a fused kernel hands the one to the other on chip, so both run on one unit."""
    OUTPUT = "output"
    """Projection behind attention."""
    UP = "up"
    """Gate and up, and whatever else has no name of its own."""
    DOWN = "down"
    """Second product of the MLP."""
    HEAD = "head"
    """Logits."""


_KINDS = MappingProxyType(
    {
        Role.ATTENTION_QKV: Kind.QKV,
        Role.ATTENTION_QUERIES: Kind.QKV,
        Role.ATTENTION_KEYS_VALUES: Kind.QKV,
        Role.ATTENTION_LATENTS: Kind.QKV,
        Role.RETRIEVAL_QKV: Kind.QKV,
        Role.RETRIEVAL_QUERIES: Kind.QKV,
        Role.RETRIEVAL_KEYS_VALUES: Kind.QKV,
        **dict.fromkeys(SCORES | VALUES, Kind.ATTENTION),
        Role.ATTENTION_OUTPUT: Kind.OUTPUT,
        Role.RETRIEVAL_OUTPUT: Kind.OUTPUT,
        Role.MLP_DOWN: Kind.DOWN,
        Role.RETRIEVAL_DOWN: Kind.DOWN,
        Role.HEAD_JOIN: Kind.HEAD,
        Role.HEAD_LOGITS: Kind.HEAD,
    }
)


def kind_of(role: Role) -> Kind:
    """Return the kind of a product by its role in a step."""
    return _KINDS.get(role, Kind.UP)


@dataclass(frozen=True, kw_only=True)
class InputShares:
    """Share of layers whose products of two activations run in light, 0 to 1."""

    forward: float = 1.0
    """In the forward pass."""
    grad_input: float = 1.0
    """In the backward pass."""

    def __post_init__(self) -> None:
        check_range(self, *(one.name for one in dataclasses.fields(self)), low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class PhaseShares(InputShares):
    """Share of layers whose products with a weight run in light, 0 to 1."""

    grad_weight: float = 1.0
    """Gradients of the weight."""


@dataclass(frozen=True, kw_only=True)
class LightShares:
    """Share of layers, by kind of product and phase, whose products run in light; the others' are electronic.

    Notes
    -----
    Layers of a step are alike, so that a share of them is all that time and energy depend on.
    """

    qkv: PhaseShares = field(default_factory=PhaseShares)
    """Queries, keys and values."""
    attention: InputShares = field(default_factory=InputShares)
    """Scores and values."""
    output: PhaseShares = field(default_factory=PhaseShares)
    """Projection behind attention."""
    up: PhaseShares = field(default_factory=PhaseShares)
    """Gate and up, and what is not told apart."""
    down: PhaseShares = field(default_factory=PhaseShares)
    """Second product of the MLP."""
    head: PhaseShares = field(default_factory=PhaseShares)
    """Logits; one layer, so that a share is one of its steps."""

    def of(self, role: Role, phase: Phase) -> float:
        """Return the share of a product of a step."""
        return float(getattr(getattr(self, kind_of(role)), str(phase)))

    @property
    def least(self) -> float:
        """The smallest share; 1 where nothing is electronic."""
        shares = (getattr(self, one.name) for one in dataclasses.fields(self))
        return min(getattr(share, one.name) for share in shares for one in dataclasses.fields(share))


@dataclass(frozen=True, kw_only=True)
class HybridUnit:
    """Matrix units of light and of electronics beside one memory, of which each product runs on one.

    Notes
    -----
    Either reads its operands from the memory that both share and writes its results there, so moving them
    between the two is in the price of each. Light is on while electronics work: its static power is that of
    the whole step, and what it draws is not left to the electronics under the power limit.
    """

    photonic: PhotonicUnit
    """Cores of light."""
    electronics: Gpu
    """GPU whose matrix units run the rest, its power limit less what light draws all the time."""
    light: LightShares
    """What runs in light."""

    @property
    def name(self) -> str:
        """Name shown in tables and traces."""
        return f"{self.photonic.name} + {self.electronics.name}"

    @property
    def static_w(self) -> float:
        """Power drawn all the time; idle power of the GPU stands on the photonic unit already."""
        return self.photonic.static_w

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is a product."""
        return self.photonic.accepts(operator)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one product, the mean over layers.

        Raises
        ------
        WorkloadError
            If the operator is no product.
        """
        if not isinstance(operator, MatMul):
            return self.photonic.cost(operator)
        share = self.light.of(operator.role, operator.phase)
        if share in (0.0, 1.0):
            return (self.photonic if share else self.electronics).cost(operator)
        parts = ((share, self.photonic.cost(operator)), (1.0 - share, self.electronics.cost(operator)))
        energy: Counter[str] = Counter()
        for weight, cost in parts:
            energy.update({part: weight * joules for part, joules in cost.energy_j.items()})  # type: ignore[arg-type]
        return Cost(
            time_s=sum(weight * cost.time_s for weight, cost in parts),
            energy_j=MappingProxyType(dict(energy)),
            bound=max(parts, key=lambda part: part[0] * part[1].time_s)[1].bound,
            host_s=sum(weight * cost.host_s for weight, cost in parts),
        )

    def numerics(self, phase: Phase) -> Numerics:
        """Return how products come out that run in light."""
        return self.photonic.numerics(phase)


__all__ = [
    "DEFAULT_CORE",
    "SYSTEMS",
    "Basis",
    "System",
    "build_system",
    "fitting",
    "has_parameter",
    "system",
]

PUBLISHED_CORES = 16
"""Cores of the published chip: LT-L has 8 tiles of 2 cores (Lightening-Transformer, HPCA 2024)."""
CORES_PATH, BUFFER_PATH = "photonic.cores", "photonic.sram_bytes"
"""Numbers that follow from the size of a photonic accelerator unless they are set themselves."""
NO_BUFFER_BYTES = 1.0
"""Buffer next to which every other weighs, for a bound on the cores beside one that is set."""


class TargetFormat(StrEnum):
    """A number format whose precision light is to deliver, of `electronic.formats.FORMATS`."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_HYBRID = "fp8_hybrid"
    FP8_BLOCK = "fp8_block"
    INT8 = "int8"
    INT8_TENSOR = "int8_tensor"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    NVFP4_SQUARE = "nvfp4_square"


@dataclass(frozen=True, kw_only=True)
class Lighting:
    """Precision for which the laser of photonic cores is sized when a step is run.

    The laser power of a core that is set itself is left as it is; a system then has no lighting.
    """

    target: TargetFormat | None = TargetFormat.FP8
    """Format whose executed signal-to-noise ratio the products of a step are to have; None for the laser as
    it stands."""
    target_db: float | None = None
    """Signal-to-noise ratio in place of a format's."""
    sized: bool = dataclasses.field(default=False, compare=False)
    """Whether the laser of the system has been sized, for the products of a step."""

    def __post_init__(self) -> None:
        check_choices(self)

    @property
    def wanted(self) -> str | float | None:
        """Target as `accuracy.precision.target_db` takes it; None where the laser stays as it stands."""
        if self.target_db is not None:
            return self.target_db
        return None if self.target is None else str(self.target)

    def __str__(self) -> str:
        return f"{self.target_db:g} dB" if self.target_db is not None else str(self.target or "")


@dataclass(frozen=True, kw_only=True, repr=False)
class System(Summary):
    """Hardware of a run: accelerators, what connects them, and prices.

    The photonic parts are absent in an all-electronic system. Where they are present, `gpu` is the
    accelerator that they replace: it gives the budget of power or area and the memory. `with_` changes a
    number.
    """

    name: str
    """Name of the system."""
    gpu: Gpu
    """The GPU, or the one that is replaced."""
    photonic: PhotonicUnit | None = None
    """Matrix unit in light, sharing the GPU's memory."""
    vector: VectorUnit | None = None
    """Electronics that a photonic accelerator carries for everything else."""
    light: LightShares | None = None
    """Share of layers whose products run in light, by kind and phase; None in a system without light."""
    fabric: Fabric
    """Network between the accelerators."""
    economics: Economics
    """Prices."""
    basis: Basis = Basis.POWER
    """Sizing of the photonic accelerator."""
    circuits: CircuitPolicy | None = None
    """Circuit policy, or None to take the faster one."""
    precision: Precision | None = None
    """Format of a GPU's products, whatever the plan's; None for that of the plan."""
    lighting: Lighting | None = None
    """Precision for which the laser is sized; None in a system without light, or whose laser power is set."""
    operands: OperandKind = DEFAULT_OPERANDS
    """Operands on which precision is told, and for which a laser is sized."""
    host: Host
    """Server that carries the accelerators."""
    penalties: Penalties = Penalties.BOTH
    """Accelerators that pay for host, company, the slowest of them and idle power (`simulator.node`)."""
    settings: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)
    """Paths of what was changed, each with its value as it was written."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.photonic is not None and self.precision is not None:
            raise ParameterError(no_format(self.name, self.precision))

    def with_(self, changes: Mapping[str, float | str] | None = None, /, **numbers: float | str) -> System:
        """Return the system with numbers and parts changed, and with as many photonic cores as then fit.

        Parameters
        ----------
        changes : mapping of str to float or str
            Values by path: that of a parameter (``"photonic.core.laser_power_w"``), of a part
            (``"core.adc"``), or any ending that fits one only. Numbers are SI; text may have a unit
            (``"20 mW"``); a part is told by its name (``heliograph list parts``).
        **numbers : float or str
            The same where an ending without dots is enough: ``laser_power_w="20 mW"``.

        Raises
        ------
        ParameterError
            For unknown paths, values out of range, or a basis that then has no room for a core.

        Notes
        -----
        The number of cores stays only where it is set itself (``cores``); the buffer goes with their peak
        rate, and so with their array and clock, unless it is set itself (``sram_bytes``).
        """
        plain = self
        if self.photonic is not None and not self._cores_are_set:
            one = self._with_cores(self.photonic, self.photonic.core.cluster)
            plain = dataclasses.replace(self, photonic=one)
        return _with_changes(plain, _changes(changes, numbers))

    @property
    def _cores_are_set(self) -> bool:
        return CORES_PATH in dict(self.settings)

    @property
    def _buffer_is_set(self) -> bool:
        return BUFFER_PATH in dict(self.settings)

    def _with_cores(self, unit: PhotonicUnit, cores: int) -> PhotonicUnit:
        """Return a unit with other cores; its buffer goes with them unless it is set itself."""
        if self._buffer_is_set:
            return dataclasses.replace(unit, cores=cores)
        return unit.resized(cores)

    @property
    def core_name(self) -> str:
        """Name of the photonic core, or nothing."""
        return self.photonic.core.name if self.photonic else ""

    @property
    def laser_power_w(self) -> float | None:
        """Power of a laser, or of a line of a comb, of the photonic cores; None without light."""
        return None if self.photonic is None else float(get_at(self.photonic.core, LASER))

    @property
    def target_text(self) -> str:
        """What the laser of photonic cores is sized for; empty without light."""
        if self.photonic is None:
            return ""
        if self.lighting is None:
            return "power as set"
        return str(self.lighting) or "power as it stands"

    def with_core(self, core: Core) -> System:
        """Return the system with another core in all its photonic units, and as many of them as then fit."""
        if self.photonic is None:
            return self
        cores = self.photonic.cores if self._cores_are_set else core.cluster
        unit = dataclasses.replace(self.photonic, core=core, cores=cores)
        if not self._buffer_is_set:
            unit = unit.with_its_buffer()
        sized = dataclasses.replace(self, photonic=unit).sized()
        _warn_of_chip(sized)
        return sized

    def settings_text(self) -> str:
        """Return what was changed, as a command line would say it; empty where nothing was."""
        return "; ".join(f"{path}={value}" for path, value in self.settings)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the system as it is shown."""
        unit = self.photonic
        each = self.gpu.name
        if unit is not None:
            each = f"{unit.cores} x {unit.core.name}, as much {self.basis} as {self.gpu.name}"
            each = each if not self._cores_are_set else f"{unit.cores} x {unit.core.name}"
        power, area = (
            format_si(self.accelerator_peak_w(), "W"),
            format_quantity(self.accelerator_area_m2(), "m^2"),
        )
        lines = [
            (f"System {self.name}", f"{self.accelerators:,} accelerators"),
            ("accelerator", each),
            ("each at most", f"{power}, {area}, {format_si(self.node().peak_flop_per_s, 'FLOP/s')}"),
            ("precision", self.precision_text()),
            ("fabric", self.fabric.name),
            ("price", f"{self.capital_usd():,.0f} USD (assumed)"),
        ]
        return [*lines, ("changed", self.settings_text())] if self.settings else lines

    @property
    def accelerators(self) -> int:
        """Accelerators in the system."""
        return self.fabric.endpoints

    def planned(self, plan: Plan) -> Plan:
        """Return a plan with the format that the system's products have, if it has one of its own."""
        if self.precision in (None, plan.precision.kind):
            return plan
        return dataclasses.replace(plan, precision=plan.precision.of_kind(self.precision))

    def with_plan(self, plan: Plan) -> System:
        """Return the system with the format of its products named, that of a plan where it has none."""
        if self.photonic is not None or self.precision is not None:
            return self
        return dataclasses.replace(self, precision=plan.precision.kind)

    def node(self) -> Node:
        """Return one accelerator as the engine sees it."""
        gpu = self._penalised_gpu()
        if self.photonic is None or self.vector is None:
            return Node(
                name=gpu.name,
                units=(gpu,),
                memory=gpu.memory,
                peak_flop_per_s=gpu.peak_flop_per_s_of((self.precision or Precision.BF16).linear_bytes),
                static_parts_w={"gpu idle": gpu.static_w},
                host=self.host,
                collective_share=gpu.penalties.collective_share,
                collective_issue_s=gpu.penalties.host_operator_s,
            )
        paid = gpu.penalties if self.penalties is Penalties.BOTH else NO_PENALTIES
        lit = dataclasses.replace(paid, idle_w=self._photonic_idle_w, launch_s=self.vector.engine.launch_s)
        limit_w = self.left_to_work_w
        photonic = dataclasses.replace(self.photonic, penalties=lit, limit_w=limit_w)
        vector = dataclasses.replace(self.vector, penalties=paid, limit_w=limit_w)
        products: ComputeUnit = photonic
        if self.light is not None and self.is_hybrid:
            products = self._hybrid(photonic, vector, gpu, self.light)
        return Node(
            name=products.name,
            units=(products, vector),
            memory=photonic.memory,
            peak_flop_per_s=photonic.peak_flop_per_s,
            static_parts_w=photonic.static_parts_w() | {"vector static": vector.static_w},
            host=self.host,
            collective_share=paid.collective_share,
            collective_issue_s=paid.host_operator_s,
        )

    @property
    def is_hybrid(self) -> bool:
        """Whether some products of a photonic accelerator run on the GPU's matrix units beside the light."""
        return self.photonic is not None and self.light is not None and self.light.least < 1.0

    def _hybrid(self, photonic: PhotonicUnit, vector: VectorUnit, gpu: Gpu, light: LightShares) -> HybridUnit:
        """Return the matrix units of a hybrid accelerator, the GPU's within what power light leaves."""
        taken_w = max(0.0, photonic.static_w + vector.static_w - gpu.chip.idle_w)
        left_w = gpu.chip.tdp_w - taken_w
        if not left_w > gpu.chip.idle_w + gpu.memory.static_w:
            msg = (
                f"light of '{self.name}' draws {taken_w:.0f} W all the time, which leaves nothing of the "
                f"{gpu.chip.tdp_w:g} W of {gpu.name} to its matrix units; run all products in light "
                "or take a dimmer laser"
            )
            raise BudgetError(msg)
        chip = dataclasses.replace(gpu.chip, tdp_w=left_w)
        return HybridUnit(photonic=photonic, electronics=dataclasses.replace(gpu, chip=chip), light=light)

    def _penalised_gpu(self) -> Gpu:
        """Return the GPU as one of all accelerators, with what it pays within a step."""
        return dataclasses.replace(
            self.gpu,
            slowest_of=max(self.gpu.slowest_of, self.accelerators),
            penalised=self.penalties is not Penalties.NONE,
        )

    @property
    def _photonic_idle_w(self) -> float:
        """Idle power of a photonic accelerator beside its parts: a GPU's, less what its vector lanes draw."""
        if self.vector is None or self.penalties is not Penalties.BOTH:
            return 0.0
        return max(0.0, self.gpu.chip.idle_w - self.vector.static_w)

    def analog(self) -> dict[Phase, AnalogSpec] | None:
        """Return how products of each phase come out of the photonic core, or None for a GPU."""
        if self.photonic is None:
            return None
        phases = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
        return {phase: self.photonic.core.analog(phase) for phase in phases}

    def effective_bits(self) -> float:
        """Return effective bits: of a full-scale analog sample with converters, or a format's significand."""
        if self.photonic is None:
            return float(SIGNIFICAND_BITS[self.multiplied_as])
        return self.photonic.core.effective_bits

    @property
    def multiplied_as(self) -> str:
        """Name of the number format in which a GPU multiplies: tf32 for fp32 where its units are of it."""
        precision = self.precision or Precision.BF16
        return TF32 if precision is Precision.FP32 and self.gpu.chip.has_tf32 else str(precision)

    def precision_text(self) -> str:
        """Return the precision of products in words."""
        if self.photonic is None:
            return str(self.precision) if self.precision else "of the plan"
        if self.lighting is None or self.lighting.wanted is None:
            return f"{self.effective_bits():.2f} effective bits"
        when = "was sized" if self.lighting.sized else "is sized when a step is run"
        return f"that of {self.lighting}, for which the laser {when}"

    @property
    def unlit(self) -> str | None:
        """Why products do not come out of the system as they will in a step; None where they do."""
        if self.lighting is None or self.lighting.wanted is None or self.lighting.sized:
            return None
        return (
            f"the laser of '{self.name}' is sized for {self.lighting} when a step is run; hand in the "
            "system of a result (simulate(...).system), or set its light: with_(laser_power_w=...), or "
            'with_({"lighting.target": "none"}) for the laser as it stands'
        )

    @property
    def _beside_light_w(self) -> float:
        """Power that a photonic accelerator draws all the time, its photonic unit apart."""
        if self.vector is None:
            return 0.0
        return self.vector.memory.static_w + self.vector.static_w + self._photonic_idle_w

    @property
    def _while_light_waits_w(self) -> float:
        """Power that lanes and memory add at their full rates, while light waits."""
        return 0.0 if self.vector is None else _lanes_at_work_w(self.vector) + _memory_at_work_w(self.vector)

    @property
    def left_to_work_w(self) -> float | None:
        """Power that the limit of the GPU leaves to cores, lanes and memory at work; None on other bases.

        Raises
        ------
        BudgetError
            If what is drawn all the time reaches the limit.
        """
        if self.photonic is None or self.basis is not Basis.POWER:
            return None
        drawn_w, limit_w = self.photonic.static_w + self._beside_light_w, self.gpu.chip.tdp_w
        if not limit_w > drawn_w:
            msg = (
                f"'{self.name}' draws {drawn_w:.0f} W all the time, {self.photonic.cores} cores with their "
                f"light, which leaves nothing of the {limit_w:g} W of {self.gpu.name} to work; set fewer "
                "cores, a dimmer laser, or --basis count"
            )
            raise BudgetError(msg)
        return limit_w - drawn_w

    def accelerator_peak_w(self) -> float:
        """Return the greatest power of one accelerator; cores in light and vector lanes work in turns."""
        if self.photonic is None or self.vector is None:
            return self.gpu.chip.tdp_w
        light, lanes_w = self.photonic, _lanes_at_work_w(self.vector) + self.vector.engine.active_w
        at_work_w = max(light.peak_power_w, light.static_w + lanes_w)
        full_w = self._beside_light_w + _memory_at_work_w(self.vector) + at_work_w
        if self.basis is Basis.POWER:
            full_w = min(full_w, self.gpu.chip.tdp_w)
        return max(full_w, self.gpu.chip.tdp_w) if self.is_hybrid else full_w

    def accelerator_area_m2(self) -> float:
        """Return the die area of one accelerator, memory apart."""
        if self.photonic is None or self.vector is None:
            return self.gpu.area_m2
        beside = self.gpu if self.is_hybrid else self.vector
        return self.photonic.area_m2 + beside.area_m2

    def accelerator_usd(self) -> float:
        """Return the price of one accelerator."""
        if self.photonic is None or self.vector is None:
            return self.gpu.price_usd
        beside = self.gpu if self.is_hybrid else self.vector
        return self.photonic.price_usd + beside.price_usd

    @property
    def servers(self) -> int:
        """Servers that carry the accelerators."""
        return math.ceil(self.accelerators / self.host.accelerators)

    def capital_usd(self) -> float:
        """Return the price of all accelerators, of their servers and of the fabric."""
        servers_usd = self.servers * self.host.chassis.price_usd
        return self.accelerators * self.accelerator_usd() + servers_usd + self.fabric.cost_usd

    def sized(self) -> System:
        """Return the system with as many photonic cores as its basis allows, unless their number is set.

        Under a power limit cores at full load must fit beside the memory at rest, with which they share what
        the limit leaves; and their light, while it waits, must leave memory and lanes their full rates.

        Raises
        ------
        BudgetError
            If not even one cluster of cores fits.
        """
        if self.photonic is None or self.vector is None or self._cores_are_set:
            return self
        cluster = self.photonic.core.cluster
        one, waiting = self._with_cores(self.photonic, cluster), math.inf
        least = dataclasses.replace(one, sram_bytes=NO_BUFFER_BYTES) if self._buffer_is_set else one
        match self.basis:
            case Basis.POWER:
                budget, unit = self.gpu.chip.tdp_w, "W"
                rest, each, needed = self._beside_light_w, least.peak_power_w, one.peak_power_w
                waiting_w = budget - rest - self._while_light_waits_w
                waiting = waiting_w / least.static_w if least.static_w > 0.0 else math.inf
            case Basis.AREA:
                budget, unit = self.gpu.area_m2, "m^2"
                rest, each, needed = self._beside_light_m2, least.area_m2, one.area_m2
            case _:
                clusters = max(1, PUBLISHED_CORES // cluster)
                return dataclasses.replace(self, photonic=self._with_cores(self.photonic, clusters * cluster))
        clusters = math.floor(min((budget - rest) / each, waiting))
        if clusters < 1 or (self._buffer_is_set and not self._fits(one)):
            msg = (
                f"basis {self.basis}: {self.gpu.name} gives {budget:g} {unit}, electronics and memory take "
                f"{rest:g}, and {cluster} photonic cores need {needed:g} {unit}; try --basis count, or "
                "smaller cores"
            )
            raise BudgetError(msg)
        if self._buffer_is_set or self.basis is Basis.AREA:  # a buffer, spares and links are no cluster's own
            sizes = (self._with_cores(self.photonic, number * cluster) for number in range(clusters, 1, -1))
            return dataclasses.replace(self, photonic=next(filter(self._fits, sizes), one))
        return dataclasses.replace(self, photonic=self.photonic.resized(clusters * cluster))

    @property
    def _beside_light_m2(self) -> float:
        """Die area of a photonic accelerator without its photonic unit."""
        beside = self.gpu if self.is_hybrid else self.vector
        return 0.0 if beside is None else beside.area_m2

    def _fits(self, unit: PhotonicUnit) -> bool:
        """Return whether a photonic unit has room beside what else its accelerator carries."""
        if self.basis is Basis.AREA:
            return unit.area_m2 <= self.gpu.area_m2 - self._beside_light_m2
        left_w = self.gpu.chip.tdp_w - self._beside_light_w
        return unit.peak_power_w <= left_w and unit.static_w <= left_w - self._while_light_waits_w


TF32 = "tf32"
"""Format of 32-bit operands in units that round them to 10 bits behind the point."""
SIGNIFICAND_BITS: Mapping[str, int] = MappingProxyType(
    {
        Precision.BF16: 8,
        Precision.FP16: 11,
        Precision.FP8: 4,
        Precision.MXFP8: 4,
        Precision.INT8: 8,
        Precision.NVFP4: 2,
        Precision.FP32: 24,
        TF32: 11,
    }
)
"""Significand of each format with its hidden bit; of fp8 that of E4M3, which weights and activations have."""


def _lanes_at_work_w(vector: VectorUnit) -> float:
    """Return the power of vector lanes at full rate, beyond that without work."""
    return vector.engine.rate_flop_per_s * vector.engine.energy_j_per_flop


def _memory_at_work_w(vector: VectorUnit) -> float:
    """Return the power of the memory of vector lanes at full rate, beyond that without work."""
    return vector.memory.energy_j(vector.memory.bandwidth_bytes_per_s)


def _photonic_parts(gpu: Gpu, core: Core) -> dict[str, Any]:
    unit = PhotonicUnit(
        core=core,
        cores=core.cluster,
        memory=gpu.memory,
        sram_bytes=proportionate_buffer_bytes(core, core.cluster),
    )
    vector = dataclasses.replace(load_vector("simd-5nm"), memory=gpu.memory)
    return {"photonic": unit, "vector": vector, "light": LightShares()}


def _plain(chosen: Choice, node: int | None = None) -> System:
    """Return the system of a choice with one cluster of cores, before any change but the size of a node."""
    gpu = load_gpu(chosen.gpu)
    parts = {}
    if chosen.base.light:
        core = load_core(chosen.core)
        for path, part in chosen.parts.items():
            core = with_part(core, path, part)
        parts = _photonic_parts(gpu, core)
    return System(
        name=chosen.label,
        gpu=gpu,
        fabric=build_fabric(chosen.fabric, chosen.accelerators, chosen.gpu, node),
        economics=default_economics(),
        host=host_of(gpu.name, chosen.accelerators),
        basis=chosen.basis,
        precision=chosen.precision,
        lighting=Lighting() if chosen.base.light else None,
        **parts,
    )


def system(
    name: str,
    changes: Mapping[str, float | str] | None = None,
    /,
    *,
    accelerators: int | None = None,
    gpu: str | None = None,
    basis: str | None = None,
    core: str | None = None,
    fabric: str | None = None,
    precision: str | None = None,
    **numbers: float | str,
) -> System:
    """Return a system by its name, or from a TOML file, with numbers and parts changed.

    Parameters
    ----------
    name : str
        ``gpu_packet``, ``gpu_ocs``, ``photonic_packet`` or ``photonic_ocs``; the same with a core
        (``photonic_ocs:ring_bank``), a GPU and its format (``gpu_packet:b200:fp8``) or a fabric
        (``gpu_packet@torus``); or the path of a ``.toml`` file.
    changes, **numbers : mapping and keywords
        As `System.with_` takes them.
    accelerators : int
        How many; 1,024 where neither this nor the file says it.
    gpu : str
        The GPU, or the one that photonic accelerators replace; ``h100`` where nobody names one.
    basis : str
        ``power`` (default), ``area`` or ``count``: what photonic accelerators share with that GPU.
    core : str
        Core of photonic accelerators, registered, or ``FILE.py:NAME``.
    fabric : str
        Fabric of packet systems, registered, or ``FILE.py:NAME``, or ``graph:FILE``.
    precision : str
        Format of a GPU's products, such as ``fp8``; that of the plan where nobody names one.

    Raises
    ------
    ParameterError
        For unknown names, choices that the system does not use, values out of range, or a basis that has no
        room for a core.
    """
    options = Options(
        accelerators=accelerators, gpu=gpu, basis=basis, core=core, fabric=fabric, precision=precision
    )
    return _built(name, options, _changes(changes, numbers))


def build_system(
    name: str,
    *,
    accelerators: int | None = None,
    gpu: str | None = None,
    basis: Basis | str | None = None,
    core: str | None = None,
    fabric: str | None = None,
    precision: str | None = None,
    assignments: Iterable[str] = (),
    usual_accelerators: int = DEFAULT_ACCELERATORS,
) -> System:
    """Return a system as a command line asks for it: `system`, with its changes as text.

    Parameters
    ----------
    name, accelerators, gpu, basis, core, fabric, precision
        As in `system`; None where nobody chose.
    assignments : iterable of str
        ``path=value``; a path may be shortened to any ending that fits one parameter only. A path that ends
        at a part takes the name of one (``core.adc=adc_isscc2025_24_7``,
        `optical.devices.named_parts.named_parts`). They are carried out in their order.
    usual_accelerators : int
        How many where neither `accelerators` nor the file says it.

    Raises
    ------
    ParameterError
        As `system`, and for a parameter that is set twice.
    """
    options = Options(
        accelerators=accelerators, gpu=gpu, basis=basis, core=core, fabric=fabric, precision=precision
    )
    changes = [Change(key=key, value=value) for key, value in map(parse_assignment, assignments)]
    return _built(name, options, changes, usual_accelerators)


def _built(
    name: str, options: Options, changes: Sequence[Change], usual: int = DEFAULT_ACCELERATORS
) -> System:
    """Return a system with its file's changes and others, sized."""
    chosen = choice_of(name, options, usual)
    for sentence in chosen.contradictions.values():
        raise ParameterError(sentence)
    changes = (*chosen.changes, *changes)
    sizes = [str(one.value) for one in changes if one.key.endswith("scale_up.size")]
    node = int(sizes[-1]) if sizes and sizes[-1].isdecimal() else None
    return _with_changes(_plain(chosen, node), changes)


def _changes(changes: Mapping[str, float | str] | None, numbers: Mapping[str, float | str]) -> list[Change]:
    """Return what a program asks to change, checked for its kind."""
    if changes is not None and not isinstance(changes, Mapping):
        msg = f'changes must be a mapping such as {{"core.adc": "adc_survey_8b"}}; got {changes!r}'
        raise ParameterError(msg)
    found = []
    for key, value in [*(changes or {}).items(), *numbers.items()]:
        if not isinstance(key, str):
            msg = f"what is changed is told by its path, such as 'core.adc'; got {key!r}"
            raise ParameterError(msg)
        number = plain_number(value)
        if isinstance(number, bool) or not isinstance(number, int | float | str):
            msg = f"{key} must be a number in SI, or text with a unit or a part's name; got {told(value)}"
            raise ParameterError(msg)
        found.append(Change(key=key, value=number))
    return found


def _with_changes(system: System, changes: Sequence[Change]) -> System:
    """Return a system with numbers and parts changed in their order, and sized.

    Numbers of one part that no change of a part stands between change at once.
    """
    paths: dict[str, Change] = {}
    changes = _measured_last(changes)
    waiting: list[Change] = []
    for one in changes:
        with one.named():
            _refuse_choice(one.key)
            _refuse_unlit(system, one.key)
            number = _names_number(system, one.key)
            if not number:
                system, waiting = _numbered(system, waiting), []
            warn_of_unit(system, one.key, one.value)
            path = _path(system, one)
            if number:
                waiting.append(one)
            else:
                system = _changed(system, one)
            _refuse_lost(paths, path, one)
            paths[path] = one
    system = _numbered(system, waiting)
    for one in changes:
        with one.named():
            check_effect(system.fabric, one.key)
    if "fabric.policy" in paths:  # no longer the faster one
        system = dataclasses.replace(system, circuits=CircuitPolicy(get_at(system, "fabric.policy")))
    settings = dict(system.settings) | {path: str(one.value) for path, one in paths.items()}
    if system.photonic is not None and BUFFER_PATH not in settings:
        system = dataclasses.replace(system, photonic=system.photonic.with_its_buffer())
    bright = next(
        (path for path, one in paths.items() if path.endswith(f".{LASER}") or is_comb(one.value)), None
    )
    if bright is not None:
        aimed = next((path for path in paths if path.startswith("lighting.")), None)
        sizes = system.lighting is not None and system.lighting.wanted is not None
        if aimed is not None and sizes and paths[aimed].file == paths[bright].file:
            msg = f"{aimed} sizes the laser, and {paths[bright].key} sets its power; leave one of them out"
            raise ParameterError(msg)
        system = dataclasses.replace(system, lighting=None)
    if system.lighting is not None:
        system = dataclasses.replace(system, lighting=dataclasses.replace(system.lighting, sized=False))
    return _warned(dataclasses.replace(system, settings=tuple(settings.items())).sized())


def _measured_last(changes: Sequence[Change]) -> list[Change]:
    """Return changes with files of parts, and what changes those parts, behind those that move the lines."""
    files = [one.key for one in changes if is_measured(one.value)]
    late = [any(one.key == key or one.key.startswith(f"{key}.") for key in files) for one in changes]
    pairs = list(zip(changes, late, strict=True))
    return [one for one, is_late in pairs if not is_late] + [one for one, is_late in pairs if is_late]


def _refuse_choice(key: str) -> None:
    """Refuse what is chosen when a system is made: as an ending it would fit some other number."""
    if key in ("accelerators", "gpu", "core", "fabric"):
        msg = (
            f"'{key}' is no parameter of a system but chosen when one is made: heliograph.system(NAME, "
            f"{key}=...), or --{key}; a parameter of that name is told by more of its path"
        )
        raise ParameterError(msg)


def _refuse_unlit(system: System, key: str) -> None:
    """Refuse a target of precision where no laser is sized."""
    if not key.startswith("lighting.") or system.lighting is not None:
        return
    why = "its laser power is set by itself" if system.photonic is not None else "it has no light"
    msg = f"{key}: no laser of system '{system.name}' is sized for a precision, because {why}; leave it out"
    raise ParameterError(msg)


def _warned(system: System) -> System:
    """Return a system after warning of what is wrong with it; of its chip once its laser is sized."""
    warn_of_system(system.name, system, system.photonic)
    if system.photonic is None:
        warn_of_gpu(system.gpu.name)
    if (sentence := stand_in_warning(system.gpu.name, system.fabric)) is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    if system.lighting is None or system.lighting.wanted is None:
        _warn_of_chip(system)
    return system


def _warn_of_chip(system: System) -> None:
    if system.photonic is not None:
        warn_of_chip(system.name, system.photonic)


def _path(system: System, change: Change) -> str:
    """Return the whole path of what a change is of; its key where it names nothing, which is said later."""
    try:
        return path_of(system, change.key)
    except ParameterError:
        place = place_for(system, change.key)
        return change.key if place is None else place.path


def _refuse_lost(before: Mapping[str, Change], path: str, change: Change) -> None:
    """Refuse a change by which an earlier one of the same origin is lost.

    A command or a program may change what a file says; each by itself says everything once.
    """
    for earlier, other in before.items():
        if other.file != change.file:
            continue
        if earlier == path:
            shown = next(iter(shown_paths([path]).values()))
            msg = (
                f"{change.key}={change.value}: {shown} is already set, to {other.value}; "
                "leave one of them out"
            )
            raise ParameterError(msg)
        if earlier.startswith(f"{path}."):
            msg = f"{change.key}={change.value} would undo {other.key}={other.value}; set the part first"
            raise ParameterError(msg)


def has_parameter(system: System, path: str) -> bool:
    """Return whether a path, or its ending, names a parameter of a system, or a part that has a choice."""
    if path == "precision" and system.photonic is not None:  # of a GPU's products only
        return False
    try:
        return _names_number(system, path) or place_for(system, path) is not None
    except ParameterError:
        return False


def fitting(system: System, assignments: Iterable[str]) -> list[str]:
    """Return the assignments that a system takes, with numbers of parts that others of them name."""
    found = []
    for text in assignments:
        key, value = parse_assignment(text)
        if not has_parameter(system, key):
            continue
        found.append(text)
        if not _names_number(system, key):
            with contextlib.suppress(HeliographError):  # told where the system is built
                system = _changed(system, Change(key=key, value=value))
    return found


def _numbered(system: System, changes: Sequence[Change]) -> System:
    """Return a system with numbers changed, those of one part at once, and nothing sized."""
    while changes:
        together = [one for one in changes if same_part(system, one.key, changes[0].key)]
        changes = [one for one in changes if one not in together]
        try:
            system = _at_once(system, together)
        except ParameterError:
            with _to_blame(system, together).named():
                system = _at_once(system, together)
    return system


def _at_once(system: System, changes: Sequence[Change]) -> System:
    return replace_all(system, {one.key: one.value for one in changes})


def _to_blame(system: System, changes: Sequence[Change]) -> Change:
    """Return the first change of several that do not go together without which the others do, or the last."""
    for change in changes:
        with contextlib.suppress(ParameterError):
            _at_once(system, [one for one in changes if one is not change])
            return change
    return changes[-1]


def _changed(system: System, change: Change) -> System:
    """Return a system with one part changed and nothing sized."""
    path, value = change.key, change.value
    wanted = isinstance(value, str) and names_part(value)
    known = str(value) in named_parts() or is_measured(value)
    if wanted and (known or place_for(system, path) is not None):
        folder = change.file.parent if change.file is not None else None
        return with_part(system, path, str(value).strip(), folder)
    return replace_at(system, path, value)


def _names_number(system: System, path: str) -> bool:
    """Return whether a path names a number or a choice, which a value that looks like a name may set."""
    try:
        get_at(system, path)
    except ParameterError:
        return False
    return True

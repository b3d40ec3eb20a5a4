"""Hardware of a run in one frozen description, `System`: accelerators, fabric, host and prices.

`system` and `build_system` build one by name and carry out changes of numbers and parts (`_with_changes`).
After any change a photonic accelerator is sized anew: it gets as many cores as fit the power or area of the
GPU that it replaces (`System.sized`).
"""

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
    """Kind of a model's product, by its position in a block."""

    QKV = "qkv"
    """Queries, keys and values, or the latents that they are made from."""
    ATTENTION = "attention"
    """Scores and values; a fused kernel passes scores on within the chip, so that both run on one unit."""
    OUTPUT = "output"
    """Output projection of attention."""
    UP = "up"
    """Gate and up projections of the MLP, and all products without a kind of their own."""
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
        Role.STATE_INPUT: Kind.QKV,
        Role.STATE_LATENTS: Kind.QKV,
        Role.STATE_SELECTED: Kind.QKV,
        **dict.fromkeys(SCORES | VALUES, Kind.ATTENTION),
        Role.ATTENTION_OUTPUT: Kind.OUTPUT,
        Role.RETRIEVAL_OUTPUT: Kind.OUTPUT,
        Role.STATE_OUTPUT: Kind.OUTPUT,
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
    """Share of layers whose products of two activations run in light, by pass; 0 to 1."""

    forward: float = 1.0
    """Share in the forward pass."""
    grad_input: float = 1.0
    """Share in the backward pass."""

    def __post_init__(self) -> None:
        check_range(self, *(one.name for one in dataclasses.fields(self)), low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class PhaseShares(InputShares):
    """Share of layers whose products with a weight run in light, by pass; 0 to 1."""

    grad_weight: float = 1.0
    """Share for the gradients of weights."""


@dataclass(frozen=True, kw_only=True)
class LightShares:
    """Share of layers whose products run in light, by kind of product and phase; the others are electronic.

    Notes
    -----
    All layers take the same time and energy, so that only the share counts, not which layers they are.
    """

    qkv: PhaseShares = field(default_factory=PhaseShares)
    """Queries, keys and values."""
    attention: InputShares = field(default_factory=InputShares)
    """Scores and values."""
    output: PhaseShares = field(default_factory=PhaseShares)
    """Output projection of attention."""
    up: PhaseShares = field(default_factory=PhaseShares)
    """Gate and up projections, and all products without a kind of their own."""
    down: PhaseShares = field(default_factory=PhaseShares)
    """Second product of the MLP."""
    head: PhaseShares = field(default_factory=PhaseShares)
    """Logits; as there is one head, its share is one of steps rather than layers."""

    def of(self, role: Role, phase: Phase) -> float:
        """Return the share for a product by its role and phase."""
        return float(getattr(getattr(self, kind_of(role)), str(phase)))

    @property
    def least(self) -> float:
        """Smallest share; 1 if all products run in light."""
        shares = (getattr(self, one.name) for one in dataclasses.fields(self))
        return min(getattr(share, one.name) for share in shares for one in dataclasses.fields(share))


@dataclass(frozen=True, kw_only=True)
class HybridUnit:
    """Photonic and electronic matrix units that share one memory; each product runs on one of them.

    Notes
    -----
    Both read operands from the shared memory and write results to it, so that moving data between them is
    part of the cost of each. The light stays on while electronics work: its static power is drawn over the
    whole step, and reduces the power that the limit leaves to the electronics.
    """

    photonic: PhotonicUnit
    """Photonic matrix unit."""
    electronics: Gpu
    """GPU whose matrix units run the other products, its power limit less the light's static power."""
    light: LightShares
    """Products that run in light."""

    @property
    def name(self) -> str:
        """Name shown in tables and traces."""
        return f"{self.photonic.name} + {self.electronics.name}"

    @property
    def static_w(self) -> float:
        """Static power; the idle power of the GPU is counted with the photonic unit already."""
        return self.photonic.static_w

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is a matrix product."""
        return self.photonic.accepts(operator)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one product, the mean over layers.

        Raises
        ------
        WorkloadError
            If the operator is no matrix product.
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
        """Return the numerics of the products that run in light."""
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
"""Cores with basis count, as on a published chip: LT-L has 8 tiles of 2 cores (Lightening-Transformer, HPCA
2024)."""
CORES_PATH, BUFFER_PATH = "photonic.cores", "photonic.sram_bytes"
"""Paths of the number of cores and the buffer, which sizing chooses unless they are set."""
NO_BUFFER_BYTES = 1.0
"""Buffer of negligible size, with which `System.sized` bounds the number of cores if the buffer is set."""


class TargetFormat(StrEnum):
    """Number format of `electronic.formats.FORMATS` whose precision the light is to deliver."""

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
    """Precision target for which the laser of photonic cores is sized when a step is run.

    A system whose laser power was set has no lighting; its laser stays as set.
    """

    target: TargetFormat | None = TargetFormat.FP8
    """Format whose executed signal-to-noise ratio the products of a step are to have; None to leave the
    laser as it is."""
    target_db: float | None = None
    """Signal-to-noise ratio in place of a format's."""
    sized: bool = dataclasses.field(default=False, compare=False)
    """Whether the laser has been sized for the products of a step."""

    def __post_init__(self) -> None:
        check_choices(self)

    @property
    def wanted(self) -> str | float | None:
        """Target as `accuracy.precision.target_db` takes it; None if the laser is not sized."""
        if self.target_db is not None:
            return self.target_db
        return None if self.target is None else str(self.target)

    def __str__(self) -> str:
        return f"{self.target_db:g} dB" if self.target_db is not None else str(self.target or "")


@dataclass(frozen=True, kw_only=True, repr=False)
class System(Summary):
    """Hardware of a run: accelerators, the fabric between them, their host, and prices.

    `photonic`, `vector`, `light` and `lighting` are absent in an electronic system. In a photonic one, `gpu`
    is the accelerator that is replaced: it gives the budget of power or area, and the memory. `with_` returns
    a system with numbers or parts changed.
    """

    name: str
    """Name of the system."""
    gpu: Gpu
    """The GPU, or the one that is replaced."""
    photonic: PhotonicUnit | None = None
    """Photonic matrix unit, with the GPU's memory."""
    vector: VectorUnit | None = None
    """Electronic vector lanes of a photonic accelerator, for everything but products."""
    light: LightShares | None = None
    """Products that run in light; None in an electronic system."""
    fabric: Fabric
    """Network between the accelerators."""
    economics: Economics
    """Prices."""
    basis: Basis = Basis.POWER
    """Budget that sizes the photonic accelerator."""
    circuits: CircuitPolicy | None = None
    """Circuit policy; None for the fastest."""
    precision: Precision | None = None
    """Format of a GPU's products, in place of the plan's; None for that of the plan."""
    lighting: Lighting | None = None
    """Precision target of the laser; None in an electronic system, and where the laser power is set."""
    operands: OperandKind = DEFAULT_OPERANDS
    """Operands for which precision is computed and the laser sized."""
    host: Host
    """Server that carries the accelerators."""
    penalties: Penalties = Penalties.BOTH
    """Kinds of accelerators that pay the penalties of a step (`simulator.node.StepPenalties`)."""
    settings: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)
    """Paths of changed numbers and parts, each with its value as it was written."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.photonic is not None and self.precision is not None:
            raise ParameterError(no_format(self.name, self.precision))

    def with_(self, changes: Mapping[str, float | str] | None = None, /, **numbers: float | str) -> System:
        """Return the system with numbers and parts changed, and its photonic cores sized anew.

        Parameters
        ----------
        changes : mapping of str to float or str
            New values by path: that of a parameter (``"photonic.core.laser_power_w"``), of a part
            (``"core.adc"``), or any ending that fits one only. Numbers are SI; text may have a unit
            (``"20 mW"``); a part is given by its name (``heliograph list parts``).
        **numbers : float or str
            The same, for endings without dots: ``laser_power_w="20 mW"``.

        Raises
        ------
        ParameterError
            For unknown paths, values out of range, or a basis that then has no room for a core.

        Notes
        -----
        The number of cores stays only if it was set (``cores``). The buffer follows their peak rate, and so
        their array and clock, unless it was set (``sram_bytes``).
        """
        unsized = self
        if self.photonic is not None and not self._cores_are_set:
            smallest = self._with_cores(self.photonic, self.photonic.core.cluster)
            unsized = dataclasses.replace(self, photonic=smallest)
        return _with_changes(unsized, _checked_changes(changes, numbers))

    @property
    def _cores_are_set(self) -> bool:
        return CORES_PATH in dict(self.settings)

    @property
    def _buffer_is_set(self) -> bool:
        return BUFFER_PATH in dict(self.settings)

    def _with_cores(self, unit: PhotonicUnit, cores: int) -> PhotonicUnit:
        """Return a unit with another number of cores; its buffer follows unless it was set."""
        if self._buffer_is_set:
            return dataclasses.replace(unit, cores=cores)
        return unit.resized(cores)

    @property
    def core_name(self) -> str:
        """Name of the photonic core; empty in an electronic system."""
        return self.photonic.core.name if self.photonic else ""

    @property
    def laser_power_w(self) -> float | None:
        """Power of a laser, or of a comb line, of the photonic cores; None in an electronic system."""
        return None if self.photonic is None else float(get_at(self.photonic.core, LASER))

    @property
    def target_text(self) -> str:
        """Text of the laser's precision target; empty in an electronic system."""
        if self.photonic is None:
            return ""
        if self.lighting is None:
            return "power as set"
        return str(self.lighting) or "power as it stands"

    def with_core(self, core: Core) -> System:
        """Return the system with another photonic core, and the number of cores sized anew."""
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
        """Return the changes as ``path=value; ...``; empty if there are none."""
        return "; ".join(f"{path}={value}" for path, value in self.settings)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the summary that is printed: a title, then the main numbers."""
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
        """Return a plan with the system's own format of products, if it has one."""
        if self.precision in (None, plan.precision.kind):
            return plan
        return dataclasses.replace(plan, precision=plan.precision.of_kind(self.precision))

    def with_plan(self, plan: Plan) -> System:
        """Return the system with a format of products, that of a plan if it has none of its own."""
        if self.photonic is not None or self.precision is not None:
            return self
        return dataclasses.replace(self, precision=plan.precision.kind)

    def node(self) -> Node:
        """Return the accelerator as the engine sees it."""
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
        penalties = gpu.penalties if self.penalties is Penalties.BOTH else NO_PENALTIES
        photonic_penalties = dataclasses.replace(
            penalties, idle_w=self._photonic_idle_w, launch_s=self.vector.engine.launch_s
        )
        limit_w = self.left_to_work_w
        photonic = dataclasses.replace(self.photonic, penalties=photonic_penalties, limit_w=limit_w)
        vector = dataclasses.replace(self.vector, penalties=penalties, limit_w=limit_w)
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
            collective_share=penalties.collective_share,
            collective_issue_s=penalties.host_operator_s,
        )

    @property
    def is_hybrid(self) -> bool:
        """Whether some products of a photonic accelerator run on electronic matrix units beside the light."""
        return self.photonic is not None and self.light is not None and self.light.least < 1.0

    def _hybrid(self, photonic: PhotonicUnit, vector: VectorUnit, gpu: Gpu, light: LightShares) -> HybridUnit:
        """Return the matrix units of a hybrid accelerator; the GPU's have the power that the light leaves."""
        light_w = max(0.0, photonic.static_w + vector.static_w - gpu.chip.idle_w)
        left_w = gpu.chip.tdp_w - light_w
        if not left_w > gpu.chip.idle_w + gpu.memory.static_w:
            msg = (
                f"light of '{self.name}' draws {light_w:.0f} W all the time, which leaves nothing of the "
                f"{gpu.chip.tdp_w:g} W of {gpu.name} to its matrix units; run all products in light "
                "or take a dimmer laser"
            )
            raise BudgetError(msg)
        chip = dataclasses.replace(gpu.chip, tdp_w=left_w)
        return HybridUnit(photonic=photonic, electronics=dataclasses.replace(gpu, chip=chip), light=light)

    def _penalised_gpu(self) -> Gpu:
        """Return the GPU as one of all accelerators, with its penalties within a step."""
        return dataclasses.replace(
            self.gpu,
            slowest_of=max(self.gpu.slowest_of, self.accelerators),
            penalised=self.penalties is not Penalties.NONE,
        )

    @property
    def _photonic_idle_w(self) -> float:
        """Idle power of a photonic accelerator beyond its parts': that of the GPU, less its vector lanes'."""
        if self.vector is None or self.penalties is not Penalties.BOTH:
            return 0.0
        return max(0.0, self.gpu.chip.idle_w - self.vector.static_w)

    def analog(self) -> dict[Phase, AnalogSpec] | None:
        """Return the analog numerics of the photonic core by phase; None in an electronic system."""
        if self.photonic is None:
            return None
        phases = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
        return {phase: self.photonic.core.analog(phase) for phase in phases}

    def effective_bits(self) -> float:
        """Return the effective bits of a full-scale analog sample; of a GPU, the bits of the significand."""
        if self.photonic is None:
            return float(SIGNIFICAND_BITS[self.multiplied_as])
        return self.photonic.core.effective_bits

    @property
    def multiplied_as(self) -> str:
        """Name of the number format in which a GPU multiplies; tf32 for fp32 if it has tf32 units."""
        precision = self.precision or Precision.BF16
        return TF32 if precision is Precision.FP32 and self.gpu.chip.has_tf32 else str(precision)

    def precision_text(self) -> str:
        """Return the precision of products as text."""
        if self.photonic is None:
            return str(self.precision) if self.precision else "of the plan"
        if self.lighting is None or self.lighting.wanted is None:
            return f"{self.effective_bits():.2f} effective bits"
        when = "was sized" if self.lighting.sized else "is sized when a step is run"
        return f"that of {self.lighting}, for which the laser {when}"

    @property
    def unlit(self) -> str | None:
        """Message that the laser is yet to be sized, so that precision is not that of a step; else None."""
        if self.lighting is None or self.lighting.wanted is None or self.lighting.sized:
            return None
        return (
            f"the laser of '{self.name}' is sized for {self.lighting} when a step is run; hand in the "
            "system of a result (simulate(...).system), or set its light: with_(laser_power_w=...), or "
            'with_({"lighting.target": "none"}) for the laser as it stands'
        )

    @property
    def _electronics_static_w(self) -> float:
        """Static power of a photonic accelerator without its photonic unit."""
        if self.vector is None:
            return 0.0
        return self.vector.memory.static_w + self.vector.static_w + self._photonic_idle_w

    @property
    def _electronics_dynamic_w(self) -> float:
        """Dynamic power of vector lanes and memory at full rate, when the light only waits."""
        return 0.0 if self.vector is None else _lanes_dynamic_w(self.vector) + _memory_dynamic_w(self.vector)

    @property
    def left_to_work_w(self) -> float | None:
        """Power that the GPU's limit leaves for dynamic power; None unless the basis is power.

        Raises
        ------
        BudgetError
            If static power reaches the limit.
        """
        if self.photonic is None or self.basis is not Basis.POWER:
            return None
        drawn_w, limit_w = self.photonic.static_w + self._electronics_static_w, self.gpu.chip.tdp_w
        if not limit_w > drawn_w:
            msg = (
                f"'{self.name}' draws {drawn_w:.0f} W all the time, {self.photonic.cores} cores with their "
                f"light, which leaves nothing of the {limit_w:g} W of {self.gpu.name} to work; set fewer "
                "cores, a dimmer laser, or --basis count"
            )
            raise BudgetError(msg)
        return limit_w - drawn_w

    def accelerator_peak_w(self) -> float:
        """Return the greatest power of one accelerator; photonic cores and vector lanes work alternately."""
        if self.photonic is None or self.vector is None:
            return self.gpu.chip.tdp_w
        light, lanes_w = self.photonic, _lanes_dynamic_w(self.vector) + self.vector.engine.active_w
        working_w = max(light.peak_power_w, light.static_w + lanes_w)
        peak_w = self._electronics_static_w + _memory_dynamic_w(self.vector) + working_w
        if self.basis is Basis.POWER:
            peak_w = min(peak_w, self.gpu.chip.tdp_w)
        return max(peak_w, self.gpu.chip.tdp_w) if self.is_hybrid else peak_w

    def accelerator_area_m2(self) -> float:
        """Return the die area of one accelerator without its memory."""
        if self.photonic is None or self.vector is None:
            return self.gpu.area_m2
        return self.photonic.area_m2 + self._electronics_m2

    def accelerator_usd(self) -> float:
        """Return the price of one accelerator."""
        if self.photonic is None or self.vector is None:
            return self.gpu.price_usd
        electronics = self.gpu if self.is_hybrid else self.vector
        return self.photonic.price_usd + electronics.price_usd

    @property
    def servers(self) -> int:
        """Servers that carry the accelerators."""
        return math.ceil(self.accelerators / self.host.accelerators)

    def capital_usd(self) -> float:
        """Return the price of all accelerators, their servers and the fabric."""
        servers_usd = self.servers * self.host.chassis.price_usd
        return self.accelerators * self.accelerator_usd() + servers_usd + self.fabric.cost_usd

    def sized(self) -> System:
        """Return the system with as many photonic cores as its basis allows, unless their number was set.

        Cores come in clusters that share light. On the basis of power two limits hold, each beside the static
        power of the electronics: the cores at full load, and the light's static power together with vector
        lanes and memory at full rate.

        Raises
        ------
        BudgetError
            If not even one cluster of cores fits.
        """
        if self.photonic is None or self.vector is None or self._cores_are_set:
            return self
        cluster = self.photonic.core.cluster
        one = self._with_cores(self.photonic, cluster)
        least = dataclasses.replace(one, sram_bytes=NO_BUFFER_BYTES) if self._buffer_is_set else one
        most = math.inf
        match self.basis:
            case Basis.POWER:
                budget, unit = self.gpu.chip.tdp_w, "W"
                rest, each, needed = self._electronics_static_w, least.peak_power_w, one.peak_power_w
                if least.static_w > 0.0:
                    most = (budget - rest - self._electronics_dynamic_w) / least.static_w
            case Basis.AREA:
                budget, unit = self.gpu.area_m2, "m^2"
                rest, each, needed = self._electronics_m2, least.area_m2, one.area_m2
            case _:
                clusters = max(1, PUBLISHED_CORES // cluster)
                return dataclasses.replace(self, photonic=self._with_cores(self.photonic, clusters * cluster))
        clusters = math.floor(min((budget - rest) / each, most))
        if clusters < 1 or (self._buffer_is_set and not self._fits(one)):
            msg = (
                f"basis {self.basis}: {self.gpu.name} gives {budget:g} {unit}, electronics and memory take "
                f"{rest:g}, and {cluster} photonic cores need {needed:g} {unit}; try --basis count, or "
                "smaller cores"
            )
            raise BudgetError(msg)
        if (
            self._buffer_is_set or self.basis is Basis.AREA
        ):  # the unit does not grow in proportion to clusters
            sizes = (self._with_cores(self.photonic, number * cluster) for number in range(clusters, 1, -1))
            return dataclasses.replace(self, photonic=next(filter(self._fits, sizes), one))
        return dataclasses.replace(self, photonic=self.photonic.resized(clusters * cluster))

    @property
    def _electronics_m2(self) -> float:
        """Die area of a photonic accelerator without its photonic unit."""
        electronics = self.gpu if self.is_hybrid else self.vector
        return 0.0 if electronics is None else electronics.area_m2

    def _fits(self, unit: PhotonicUnit) -> bool:
        """Return whether a photonic unit fits the budget beside the electronics."""
        if self.basis is Basis.AREA:
            return unit.area_m2 <= self.gpu.area_m2 - self._electronics_m2
        left_w = self.gpu.chip.tdp_w - self._electronics_static_w
        return unit.peak_power_w <= left_w and unit.static_w <= left_w - self._electronics_dynamic_w


TF32 = "tf32"
"""Format of units that round 32-bit operands to 10 fraction bits."""
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
"""Bits of each format's significand, the hidden bit included; of fp8 those of E4M3 (weights, activations)."""


def _lanes_dynamic_w(vector: VectorUnit) -> float:
    """Return the dynamic power of vector lanes at full rate."""
    return vector.engine.rate_flop_per_s * vector.engine.energy_j_per_flop


def _memory_dynamic_w(vector: VectorUnit) -> float:
    """Return the dynamic power of the vector lanes' memory at full rate."""
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


def _unchanged_system(chosen: Choice, node: int | None = None) -> System:
    """Return the system of a choice before its changes, with one cluster of cores.

    `node` is the number of accelerators in a node, by default that of the GPU.
    """
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
        Number of accelerators; by default that of the file, or 1,024.
    gpu : str
        The GPU, or the one that photonic accelerators replace; ``h100`` by default.
    basis : str
        Budget of photonic accelerators, that of the GPU: ``power`` (default), ``area`` or ``count``.
    core : str
        Core of photonic accelerators: a registered name, or ``FILE.py:NAME``.
    fabric : str
        Fabric of packet systems: a registered name, ``FILE.py:NAME``, or ``graph:FILE``.
    precision : str
        Format of a GPU's products, such as ``fp8``; that of the plan by default.

    Raises
    ------
    ParameterError
        For unknown names, choices that the system does not use, values out of range, or a basis that has no
        room for a core.
    """
    options = Options(
        accelerators=accelerators, gpu=gpu, basis=basis, core=core, fabric=fabric, precision=precision
    )
    return _build(name, options, _checked_changes(changes, numbers))


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
    """Return a system as `system` does, with changes given as the text of a command line.

    Parameters
    ----------
    name, accelerators, gpu, basis, core, fabric, precision
        As in `system`; None for the default.
    assignments : iterable of str
        Changes ``path=value``, carried out in their order; a path may be shortened to any ending that fits
        one parameter only. The value of a part is the name of one (``core.adc=adc_isscc2025_24_7``,
        `optical.devices.named_parts.named_parts`).
    usual_accelerators : int
        Number of accelerators if neither `accelerators` nor the file gives it.

    Raises
    ------
    ParameterError
        As `system`, and for a parameter that is set twice.
    """
    options = Options(
        accelerators=accelerators, gpu=gpu, basis=basis, core=core, fabric=fabric, precision=precision
    )
    changes = [Change(key=key, value=value) for key, value in map(parse_assignment, assignments)]
    return _build(name, options, changes, usual_accelerators)


def _build(
    name: str, options: Options, changes: Sequence[Change], usual: int = DEFAULT_ACCELERATORS
) -> System:
    """Build a system, carry out the changes of its file and then the given ones, and size it."""
    chosen = choice_of(name, options, usual)
    for sentence in chosen.contradictions.values():
        raise ParameterError(sentence)
    changes = (*chosen.changes, *changes)
    sizes = [str(one.value) for one in changes if one.key.endswith("scale_up.size")]
    node = int(sizes[-1]) if sizes and sizes[-1].isdecimal() else None
    return _with_changes(_unchanged_system(chosen, node), changes)


def _checked_changes(
    changes: Mapping[str, float | str] | None, numbers: Mapping[str, float | str]
) -> list[Change]:
    """Return the changes that a program gives, their types checked."""
    if changes is not None and not isinstance(changes, Mapping):
        msg = f'changes must be a mapping such as {{"core.adc": "adc_survey_8b"}}; got {changes!r}'
        raise ParameterError(msg)
    checked = []
    for key, value in [*(changes or {}).items(), *numbers.items()]:
        if not isinstance(key, str):
            msg = f"what is changed is told by its path, such as 'core.adc'; got {key!r}"
            raise ParameterError(msg)
        number = plain_number(value)
        if isinstance(number, bool) or not isinstance(number, int | float | str):
            msg = f"{key} must be a number in SI, or text with a unit or a part's name; got {told(value)}"
            raise ParameterError(msg)
        checked.append(Change(key=key, value=number))
    return checked


def _with_changes(system: System, changes: Sequence[Change]) -> System:
    """Return a system with changes carried out in their order, then sized.

    Changes of numbers wait until a change of a part or the end, so that numbers of one part change together:
    each alone might break a rule of the part.
    """
    done: dict[str, Change] = {}  # by full path
    changes = _measured_last(changes)
    waiting: list[Change] = []
    for change in changes:
        with change.named():
            _refuse_choice(change.key)
            _refuse_target_without_laser(system, change.key)
            is_number = _names_number(system, change.key)
        if not is_number:
            system, waiting = _change_numbers(system, waiting), []
        with change.named():
            warn_of_unit(system, change.key, change.value)
            path = _full_path(system, change)
            if is_number:
                waiting.append(change)
            else:
                system = _change_part(system, change)
            _refuse_lost(done, path, change)
            done[path] = change
    system = _change_numbers(system, waiting)
    for change in changes:
        with change.named():
            check_effect(system.fabric, change.key)
    if "fabric.policy" in done:  # the policy that is set is the only one to run
        system = dataclasses.replace(system, circuits=CircuitPolicy(get_at(system, "fabric.policy")))
    settings = dict(system.settings) | {path: str(change.value) for path, change in done.items()}
    if system.photonic is not None and BUFFER_PATH not in settings:
        system = dataclasses.replace(system, photonic=system.photonic.with_its_buffer())
    system = _with_laser_settled(system, done)
    changed = dataclasses.replace(system, settings=tuple(settings.items())).sized()
    _warn_of_system(changed)
    return changed


def _with_laser_settled(system: System, done: Mapping[str, Change]) -> System:
    """Return a system without lighting if changes set its laser power, else with its laser yet to be sized.

    Raises
    ------
    ParameterError
        If changes of one origin set both the laser power and a precision target.
    """
    power = next(
        (path for path, change in done.items() if path.endswith(f".{LASER}") or is_comb(change.value)), None
    )
    if power is None:
        if system.lighting is None:
            return system
        return dataclasses.replace(system, lighting=dataclasses.replace(system.lighting, sized=False))
    target = next((path for path in done if path.startswith("lighting.")), None)
    has_target = system.lighting is not None and system.lighting.wanted is not None
    if target is not None and has_target and done[target].file == done[power].file:
        msg = f"{target} sizes the laser, and {done[power].key} sets its power; leave one of them out"
        raise ParameterError(msg)
    return dataclasses.replace(system, lighting=None)


def _measured_last(changes: Sequence[Change]) -> list[Change]:
    """Return changes in an order in which those of parts that files describe come last.

    A file is read at the optical lines of the core, which other changes may move.
    """
    files = [change.key for change in changes if is_measured(change.value)]

    def is_late(change: Change) -> bool:
        return any(change.key == key or change.key.startswith(f"{key}.") for key in files)

    return sorted(changes, key=is_late)


def _refuse_choice(key: str) -> None:
    """Refuse a choice that is made when a system is built; as the end of a path it might fit a number."""
    if key in ("accelerators", "gpu", "core", "fabric"):
        msg = (
            f"'{key}' is no parameter of a system but chosen when one is made: heliograph.system(NAME, "
            f"{key}=...), or --{key}; a parameter of that name is told by more of its path"
        )
        raise ParameterError(msg)


def _refuse_target_without_laser(system: System, key: str) -> None:
    """Refuse a precision target of a system whose laser is not sized."""
    if not key.startswith("lighting.") or system.lighting is not None:
        return
    why = "its laser power is set by itself" if system.photonic is not None else "it has no light"
    msg = f"{key}: no laser of system '{system.name}' is sized for a precision, because {why}; leave it out"
    raise ParameterError(msg)


def _warn_of_system(system: System) -> None:
    """Warn of implausible numbers of a system; of its chip only if no laser is yet to be sized."""
    warn_of_system(system.name, system, system.photonic)
    if system.photonic is None:
        warn_of_gpu(system.gpu.name)
    if (sentence := stand_in_warning(system.gpu.name, system.fabric)) is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    if system.lighting is None or system.lighting.wanted is None:
        _warn_of_chip(system)


def _warn_of_chip(system: System) -> None:
    if system.photonic is not None:
        warn_of_chip(system.name, system.photonic)


def _full_path(system: System, change: Change) -> str:
    """Return the full path of a change; its key if that names nothing, which is an error later."""
    try:
        return path_of(system, change.key)
    except ParameterError:
        place = place_for(system, change.key)
        return change.key if place is None else place.path


def _refuse_lost(before: Mapping[str, Change], path: str, change: Change) -> None:
    """Refuse a change that would undo an earlier one of the same origin.

    A command or a program may change what a file sets, but each may set a number only once.
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
    """Return whether a path, or its ending, names a parameter or an exchangeable part of a system."""
    if path == "precision" and system.photonic is not None:  # of a GPU's products only
        return False
    try:
        return _names_number(system, path) or place_for(system, path) is not None
    except ParameterError:
        return False


def fitting(system: System, assignments: Iterable[str]) -> list[str]:
    """Return the assignments that name a parameter of a system, or of parts that others of them put in."""
    applicable = []
    for text in assignments:
        key, value = parse_assignment(text)
        if not has_parameter(system, key):
            continue
        applicable.append(text)
        if not _names_number(system, key):
            with contextlib.suppress(HeliographError):  # raised again when the system is built
                system = _change_part(system, Change(key=key, value=value))
    return applicable


def _change_numbers(system: System, changes: Sequence[Change]) -> System:
    """Return a system with numbers changed, those of one part together; nothing is sized."""
    while changes:
        together = [change for change in changes if same_part(system, change.key, changes[0].key)]
        changes = [change for change in changes if change not in together]
        try:
            system = _change_together(system, together)
        except ParameterError:
            with _to_blame(system, together).named():
                system = _change_together(system, together)
    return system


def _change_together(system: System, changes: Sequence[Change]) -> System:
    return replace_all(system, {change.key: change.value for change in changes})


def _to_blame(system: System, changes: Sequence[Change]) -> Change:
    """Return the first of several incompatible changes without which the others are valid, else the last."""
    for change in changes:
        with contextlib.suppress(ParameterError):
            _change_together(system, [other for other in changes if other is not change])
            return change
    return changes[-1]


def _change_part(system: System, change: Change) -> System:
    """Return a system with one part changed; nothing is sized."""
    path, value = change.key, change.value
    wanted = isinstance(value, str) and names_part(value)
    known = str(value) in named_parts() or is_measured(value)
    if wanted and (known or place_for(system, path) is not None):
        folder = change.file.parent if change.file is not None else None
        return with_part(system, path, str(value).strip(), folder)
    return replace_at(system, path, value)


def _names_number(system: System, path: str) -> bool:
    """Return whether a path names a number or an enumeration, rather than a part."""
    try:
        get_at(system, path)
    except ParameterError:
        return False
    return True

"""Split of a training step's products between a GPU and photonic cores: the cheapest under a budget of loss.

Products are divided into groups: each kind of forward product in each quarter of the depth, and each kind
of gradient. A group may run on the GPU in one of its number formats, or on the photonic cores beside it, with
the laser at one of several powers and with any of the core's rescues left out: a `UnitSetting`. Group and
setting together are a `Choice` with an energy, a time and a rise of the loss. The cheapest mixture of choices
whose rises stay within a budget is a linear programme (`cheapest`), whose dual is the price of a nat.

A rise is computed in three steps:

1. The reference GPT, the byte-level model that ships with its weights, gives operands. Each setting executes
   its products, and its error is the power of the difference from the exact result (`ReferenceProducts`).
2. A measured sensitivity, in nats for each unit of that error, turns it into a rise of the reference GPT's
   loss (`sensitivities`); gradients have a price of their own (`gradient_prices`).
3. Sums of the model that is split are longer than those of the reference GPT. The rise is multiplied by the
   ratio of noise over signal at both lengths, by the noise law of core or format.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import scipy.optimize

import workloads.training
from electronic.formats import FORMATS
from experiments.hardware import Hardware, Workload
from experiments.study import Block, Progress, Result, Row, Study, command_line, option, refuse_unused
from heliograph.accuracy.law import Band, Passes, gradient_price
from heliograph.accuracy.precision import Delivered, ModelProduct, executions_of, of_core, of_format, together
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks
from heliograph.report import ReportRow, ReportTable, format_si, table_of
from heliograph.simulation import lit, step_graph
from heliograph.systems import System
from heliograph.systems.names import DEFAULT_ACCELERATORS
from heliograph.systems.system import InputShares, Kind, PhaseShares, kind_of
from heliograph.workload import model_named, plan_on, ranks_of
from optical.cores.core import Core
from optical.cores.number_formats import BlockFloatCore
from optical.cores.rescues import JOINT, HybridCore, RotatedCore
from optical.cores.sizing import LASER
from optical.execution import AnalogSpec, Scale
from simulator.errors import HeliographError, LinkError, ParameterError
from simulator.interfaces import Cost
from simulator.node import Node
from simulator.operands.statistics import Precision as OperandPrecision
from simulator.operands.statistics import average
from simulator.operators import SCORES, MatMul, Phase, Role
from simulator.parameter_tree import get_at, replace_at
from simulator.units import ratio_from_db
from workloads.plan.parts import Precision
from workloads.plan.plan import Plan, plan_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.accuracy.prediction import Bench
    from optical.accelerator import PhotonicUnit
    from simulator.interfaces import Numerics
    from workloads.models.architecture import TransformerConfig

TABLE = Path(workloads.training.__file__).parent / "learnt_sensitivities.csv"
"""Sensitivity of the reference GPT's loss to errors of each product; its head describes the measurement."""
DIMMER = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Laser powers that are tried, over the one for which the system is sized; a choice."""
_ROWS = 512
"""Rows of each batch that are executed of a product with weights; a choice."""
SLACK = 1e-9
"""Share below which the linear programme's solution counts as zero."""
BUDGETS = tuple(10.0 ** (place / 4.0) for place in range(-16, 1))
"""Budgets at which the front is computed, nats a byte; a choice."""


class Site(StrEnum):
    """Product of the reference GPT: the head's stands once, the others in each of its blocks."""

    QKV = "qkv"
    SCORES = "scores"
    VALUES = "values"
    PROJECTION = "projection"
    UP = "up"
    DOWN = "down"
    HEAD = "head"

    @property
    def fused(self) -> bool:
        """Whether it belongs to attention: scores stay on the chip, so that one unit runs both products."""
        return self in (Site.SCORES, Site.VALUES)

    @property
    def group(self) -> str:
        """Kind of product in the split; both products of attention are one kind."""
        return str(Kind.ATTENTION) if self.fused else str(self)


_SITES = {
    Kind.QKV: Site.QKV,
    Kind.OUTPUT: Site.PROJECTION,
    Kind.UP: Site.UP,
    Kind.DOWN: Site.DOWN,
    Kind.HEAD: Site.HEAD,
}
"""Product of the reference GPT that stands for a kind of the split model's products; attention has two."""
_GROUPS = tuple(dict.fromkeys(site.group for site in Site))
"""Kinds of products in the split."""


BOTH = "split"
"""Name of the machine with GPU and light."""


class Objective(StrEnum):
    """Cost that a split minimises."""

    ENERGY = "energy"
    """Energy of a step, J."""
    TIME = "time"
    """Time of the products of a step, s; the two units take turns."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A group of products in one setting of one unit."""

    group: str
    """``kind.layer`` of a forward product, where the layer of the reference GPT stands for a quarter of the
    depth (``up.2``; the head has no layer), or ``kind:phase`` of a gradient (``up:grad_weight``)."""
    setting: str
    """Name of the `UnitSetting`: a number format of the GPU, or a laser power and the rescues left out."""
    light: bool
    """Whether it runs on the photonic cores."""
    energy_j: float
    """Energy of the group in a step of all accelerators, static power of the machine included."""
    time_s: float
    """Time of the group in a step on one accelerator."""
    rise_nats: float
    """Rise of the loss by its errors, nats a byte, with sums as long as those of the model that is split."""
    laser_w: float = 0.0
    """Power of the laser; 0 on the GPU."""
    length_factor: float = 1.0
    """Ratio of `rise_nats` to the rise with sums as long as those of the reference GPT."""

    @property
    def shipped_nats(self) -> float:
        """Rise of the reference GPT's loss, nats a byte."""
        return self.rise_nats / self.length_factor

    @property
    def kind(self) -> str:
        """Kind of product."""
        return self.group.partition(":")[0].partition(".")[0]

    @property
    def phase(self) -> Phase:
        """Phase of the product."""
        return Phase(self.group.partition(":")[2] or Phase.FORWARD)

    def cost(self, objective: Objective) -> float:
        """Return the energy in J, or the time in s."""
        return self.energy_j if objective is Objective.ENERGY else self.time_s


@dataclass(frozen=True, kw_only=True)
class Split:
    """Cheapest mixture of choices under a budget."""

    budget_nats: float
    """Largest rise of the loss that was allowed, nats a byte."""
    taken: tuple[tuple[Choice, float], ...]
    """Choices with their shares; those of a group add up to one."""
    price: float
    """Dual of the budget: cost in J or s that one nat more would save."""

    def total(self, objective: Objective) -> float:
        """Return the energy in J, or the time in s."""
        return math.fsum(one.cost(objective) * share for one, share in self.taken)

    @property
    def rise_nats(self) -> float:
        """Rise of the loss, nats a byte."""
        return math.fsum(one.rise_nats * share for one, share in self.taken)

    @property
    def shipped_nats(self) -> float:
        """Rise of the reference GPT's loss, nats a byte."""
        return math.fsum(one.shipped_nats * share for one, share in self.taken)

    @property
    def gradient_nats(self) -> float:
        """Part of `rise_nats` that noise in gradients makes."""
        return math.fsum(one.rise_nats * x for one, x in self.taken if one.phase is not Phase.FORWARD)

    @property
    def unmixed(self) -> tuple[Choice, ...]:
        """One choice for each group, the more precise one where two are mixed, so that the budget holds."""
        best: dict[str, Choice] = {}
        for choice, _ in self.taken:
            known = best.get(choice.group)
            if known is None or choice.rise_nats < known.rise_nats:
                best[choice.group] = choice
        return tuple(best.values())

    @property
    def light_share(self) -> float:
        """Share of the products' time that is spent on the photonic cores."""
        time_s = math.fsum(one.time_s * share for one, share in self.taken)
        return math.fsum(one.time_s * share for one, share in self.taken if one.light) / time_s


def cheapest(choices: Sequence[Choice], budget_nats: float, objective: Objective) -> Split:
    """Return the cheapest mixture of choices under a budget of loss.

    Notes
    -----
    Linear programme over the shares x of the choices: minimise sum(cost x) with sum(rise x) within the
    budget, and the shares of each group adding up to one. At most one group is mixed of two choices.

    Raises
    ------
    ParameterError
        If even the most precise choices exceed the budget.
    """
    choices = _undominated(choices, objective)
    groups = list(dict.fromkeys(one.group for one in choices))
    one_each = np.array([[float(one.group == group) for one in choices] for group in groups])
    cost, rise = np.array([(one.cost(objective), one.rise_nats) for one in choices]).T
    scale = float(cost.max())
    found = scipy.optimize.linprog(
        cost / scale, A_ub=rise[None], b_ub=[budget_nats], A_eq=one_each, b_eq=np.ones(len(groups))
    )
    if not found.success:
        least = math.fsum(min(one.rise_nats for one in choices if one.group == group) for group in groups)
        msg = (
            f"--budget {budget_nats:g} is below {least:.2g} nats a byte, what the most precise choices cost; "
            "allow more"
        )
        raise ParameterError(msg)
    taken = tuple((one, float(x)) for one, x in zip(choices, found.x, strict=True) if x > SLACK)
    return Split(budget_nats=budget_nats, taken=taken, price=-float(found.ineqlin.marginals[0]) * scale)


def _undominated(choices: Sequence[Choice], objective: Objective) -> list[Choice]:
    """Return the choices of each group for which no other is both as cheap and as precise."""
    found, least = [], dict.fromkeys((choice.group for choice in choices), math.inf)
    for choice in sorted(choices, key=lambda choice: (choice.cost(objective), choice.rise_nats)):
        if choice.rise_nats < least[choice.group]:
            least[choice.group] = choice.rise_nats
            found.append(choice)
    return found


class Sensitivity(NamedTuple):
    """Rise of the loss, nats a byte, for each unit of error of a product (error power over signal power)."""

    noise: float
    """For Gaussian noise."""
    clipping: float
    """For clipping by the ADC's range, which falls on the largest outputs, those that matter most."""
    clipping_rotated: float
    """For clipping where operands are rotated first, so that other outputs are clipped."""


@functools.cache
def sensitivities() -> Mapping[str, Sensitivity]:
    """Return the sensitivities of the reference GPT's loss by product, ``kind.layer``."""
    kinds = Sensitivity._fields
    with TABLE.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        return {
            row["site"]: Sensitivity(*(float(row[f"nats_per_{each}_to_signal"]) for each in kinds))
            for row in rows
        }


def _reference_site(role: Role) -> Site:
    """Return the product of the reference GPT that stands for one of the split model."""
    kind = kind_of(role)
    if kind is Kind.ATTENTION:
        return Site.SCORES if role in SCORES else Site.VALUES
    return _SITES[kind]


def training_products(system: System, config: TransformerConfig, plan: Plan) -> dict[MatMul, int]:
    """Return the products of a step with the number of times that all accelerators together run each."""
    graph = step_graph(config, system.planned(plan))
    counts: Counter[MatMul] = Counter()
    for product, count in executions_of(graph):
        counts[product] += count * graph.layout.ranks_per_class
    return counts


class Errors(NamedTuple):
    """Error of a product of the reference GPT by cause, error power over signal power."""

    noise: float
    """All causes but clipping."""
    clipped: float
    """Clipping by the ADC's range; zero where operands are rotated."""
    clipped_rotated: float
    """Clipping where operands are rotated; else zero."""

    def nats(self, sensitivity: Sensitivity) -> float:
        """Return the rise of the reference GPT's loss, nats a byte."""
        return math.fsum(price * power for price, power in zip(sensitivity, self, strict=True))


@dataclass(frozen=True, kw_only=True)
class UnitSetting:
    """GPU in one format, or photonic cores at one laser power, with cost and error of every product."""

    name: str
    """Name of the format, or laser power and rescues that are left out."""
    products: Mapping[MatMul, float]
    """Number of times that all accelerators together run each product of a step."""
    costs: Mapping[MatMul, Cost]
    """Energy and time of each product, once on one accelerator."""
    noise: Mapping[tuple[Site, Phase], float]
    """Noise over signal by the noise law, with sums as long as those of the model that is split."""
    reference_noise: Mapping[str, float]
    """The same law with sums as long as those of the reference GPT, by its product."""
    errors: Mapping[str, Errors]
    """Executed errors of the products of the reference GPT."""
    spec: AnalogSpec | None = None
    """Specification of forward products in light; None on the GPU."""
    laser_w: float = 0.0
    """Power of the laser; 0 on the GPU."""

    @property
    def light(self) -> bool:
        """Whether products run on the photonic cores."""
        return self.spec is not None

    def length_factor(self, name: str) -> float:
        """Return noise over signal at the split model's sum length over that at the reference GPT's."""
        own, reference = self.noise[_site_and_phase(name)], self.reference_noise[name]
        return own / reference if reference > 0.0 else 1.0

    def gradient_noise(self, site: Site, phase: Phase) -> float:
        """Return noise over signal of gradients, the mean over the layers of the reference GPT."""
        names = [name for name in self.errors if _site_and_phase(name) == (site, phase)]
        noise = math.fsum(math.fsum(self.errors[name]) * self.length_factor(name) for name in names)
        return noise / len(names)

    def errors_at(self, reference_noise: Mapping[str, float]) -> dict[str, Errors]:
        """Return the errors at another laser power: noise in proportion to the law, clipping unchanged."""
        return {
            name: error._replace(
                noise=error.noise * reference_noise[name] / (self.reference_noise[name] or 1.0)
            )
            for name, error in self.errors.items()
        }


def _site_and_phase(name: str) -> tuple[Site, Phase]:
    """Return site and phase of a product of the reference GPT named ``kind.layer`` or ``kind.layer:phase``.

    Both gradients of attention are gradients of its inputs, for it has no weights.
    """
    where, _, phase = name.partition(":")
    site = Site(where.partition(".")[0])
    if not phase:
        return site, Phase.FORWARD
    return site, Phase.GRAD_INPUT if site.fused else Phase(phase)


def _noise_by_site(delivered: Delivered) -> dict[tuple[Site, Phase], float]:
    """Return noise over signal by site and phase, averaged over products by multiply-accumulates."""
    parts: dict[tuple[Site, Phase], list[tuple[float, OperandPrecision]]] = defaultdict(list)
    for product, precision in delivered.parts:
        parts[_reference_site(product.role), product.phase].append((product.macs, precision))
    return {site: ratio_from_db(-average(some).snr_db) for site, some in parts.items()}


_RESCUES: Mapping[type, str] = MappingProxyType(
    {BlockFloatCore: "block", RotatedCore: "rotation", HybridCore: "hybrid"}
)
"""Rescues that single products may go without, since they act on the operands of each product anew."""


def without_rescues(core: Core) -> dict[str, Core]:
    """Return a core with all of its rescues, without each single one and without any, by those left out.

    Parameters
    ----------
    core : Core
        Any core, rescues outermost.
    """
    around: list[Any] = []
    inner: Any = core
    while type(inner) in _RESCUES:
        around.insert(0, inner)
        inner = inner.core
    found = {}
    for left_out in ((), *((one,) for one in around), tuple(around)):
        built = inner
        for rescue in around:
            built = built if rescue in left_out else replace(rescue, core=built)
        found[JOINT.join(_RESCUES[type(one)] for one in left_out)] = built
    return found


class ReferenceProducts:
    """Operands of the reference GPT's products, on which the errors of settings are executed.

    Notes
    -----
    Forward operands come from the windows of text on which a split is executed later: the loudest outputs of
    attention, which an ADC's range clips, stand in few windows. Operands of gradients come from one training
    batch; names of gradients have the phase after a colon.
    """

    def __init__(self) -> None:
        from experiments.accuracy.capture import capture_gpt  # noqa: PLC0415 - torch
        from experiments.accuracy.prediction import learnt_bench  # noqa: PLC0415 - torch

        self._operands = learnt_bench(windows=WINDOWS).operands(rows=_ROWS)
        for captured in capture_gpt(learnt=True):
            if captured.phase is not Phase.FORWARD:
                head = captured.product == Site.HEAD
                site = captured.product if head else f"{captured.product}.{captured.layer}"
                operands = (captured.a_BMK[:, :_ROWS], captured.b_BKN)
                self._operands[f"{site}:{captured.phase}"] = [operands]
        self.lengths = {name: batches[0][0].shape[2] for name, batches in self._operands.items()}
        """Length K of the sums of each product."""

    def errors(
        self,
        setting: str,
        analog: Callable[[Phase], AnalogSpec] | None,
        names: Iterable[str] | None = None,
    ) -> dict[str, Errors]:
        """Return the executed errors of products.

        Parameters
        ----------
        setting : str
            Number format of the GPU; of no effect in light.
        analog : callable, optional
            Specification of the core by phase; None for the GPU.
        names : iterable of str, optional
            Products of the reference GPT; all by default.
        """
        from experiments.accuracy.prediction import error_power  # noqa: PLC0415 - torch

        errors = {}
        for name in names or self._operands:
            spec = None if analog is None else analog(_site_and_phase(name)[1])
            total = error_power(_product_numerics(setting, spec, name), self._operands[name])
            clipped = 0.0 if spec is None else min(total, self._clipping(spec, name))
            rotated = spec is not None and spec.transforms is not None and spec.transforms.rotation_width > 1
            errors[name] = Errors(
                noise=total - clipped,
                clipped=0.0 if rotated else clipped,
                clipped_rotated=clipped if rotated else 0.0,
            )
        return errors

    def _clipping(self, spec: AnalogSpec, name: str) -> float:
        """Return the error that clipping alone makes; zero where all samples of a sum are one random draw."""
        from experiments.accuracy.prediction import error_power  # noqa: PLC0415 - torch
        from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch

        one_draw = spec.scale is not Scale.BLOCK and self.lengths[name] > spec.analog_length
        if one_draw or spec.residues is not None or math.isinf(spec.adc_bits):
            return 0.0
        return error_power(AnalogNumerics(spec.clipping_only), self._operands[name])


def noise_at_lengths(
    judge: Callable[[Sequence[ModelProduct]], Delivered],
    products: Sequence[ModelProduct],
    lengths: Mapping[str, int],
) -> dict[str, float]:
    """Return noise over signal of a model's products by the noise law, with sums of other lengths.

    Parameters
    ----------
    judge : callable
        Noise law of a core or of a number format.
    products : sequence of ModelProduct
        Products of the model.
    lengths : mapping of str to int
        Length of the sums, by product of the reference GPT.

    Returns
    -------
    dict of str to float
        Noise over signal by the same names; zero where the model has no such product.
    """
    noise: dict[tuple[Site, Phase, int], float] = {}
    for name, length in lengths.items():
        site, phase = _site_and_phase(name)
        if (site, phase, length) not in noise:
            alike = tuple(
                replace(one, length=length)
                for one in products
                if one.phase is phase and _reference_site(one.role) is site
            )
            noise[site, phase, length] = _noise_by_site(judge(alike))[site, phase] if alike else 0.0
    return {name: noise[*_site_and_phase(name), length] for name, length in lengths.items()}


def unit_settings(system: System, config: TransformerConfig, plan: Plan) -> list[UnitSetting]:
    """Return every setting of the GPU and of the photonic cores of a system.

    Parameters
    ----------
    system : System
        Photonic system; its GPU stands beside the cores.
    config, plan : TransformerConfig, Plan
        The model that is split, and the plan of its step.
    """
    reference = ReferenceProducts()
    return [
        *_gpu_settings(system, config, plan, reference),
        *_light_settings(system, training_products(system, config, plan), reference),
    ]


def _gpu_settings(
    system: System, config: TransformerConfig, plan: Plan, reference: ReferenceProducts
) -> Iterator[UnitSetting]:
    """Yield the GPU in bf16 and in fp8."""
    gpu = _gpu_alone(system).units[0]
    for precision in (Precision.BF16, Precision.FP8):
        own_plan = replace(plan, precision=replace(plan.precision, kind=precision))
        electronic = replace(system, photonic=None, lighting=None, precision=precision)
        products = training_products(electronic, config, own_plan)
        judge, alike = functools.partial(of_format, FORMATS[str(precision)]), together(products.items())
        yield UnitSetting(
            name=str(precision),
            products=products,
            costs={product: gpu.cost(product) for product in products},
            noise=_noise_by_site(judge(alike)),
            reference_noise=noise_at_lengths(judge, alike, reference.lengths),
            errors=reference.errors(str(precision), None),
        )


def _light_settings(
    system: System, products: Mapping[MatMul, int], reference: ReferenceProducts
) -> Iterator[UnitSetting]:
    """Yield the photonic cores at each laser power, with all rescues, without each one, and with none.

    The errors are executed at the greatest power that works; dimmer ones follow from the noise law.
    """
    unit = cast("PhotonicUnit", system.node().units[0])
    alike = together(products.items())
    power_w = float(get_at(unit.core, LASER))
    for left_out, plain in without_rescues(unit.core).items():
        brightest: UnitSetting | None = None
        for dimmer in DIMMER:
            core = replace_at(plain, LASER, power_w * dimmer)
            judge = functools.partial(of_core, core)
            name = f"{format_si(power_w * dimmer, 'W')} laser{f', no {left_out}' if left_out else ''}"
            try:
                spec = core.analog(Phase.FORWARD)
                noise = _noise_by_site(judge(alike))
                reference_noise = noise_at_lengths(judge, alike, reference.lengths)
            except LinkError:
                continue
            dimmed = replace(unit, core=core)
            setting = UnitSetting(
                name=name,
                products=products,
                costs={product: dimmed.cost(product) for product in products},
                noise=noise,
                reference_noise=reference_noise,
                errors=(
                    reference.errors(name, core.analog)
                    if brightest is None
                    else brightest.errors_at(reference_noise)
                ),
                spec=spec,
                laser_w=power_w * dimmer,
            )
            brightest = brightest or setting
            yield setting


@functools.cache
def gradient_prices() -> Mapping[Phase, Band]:
    """Return the rise in nats a byte for each unit of noise over signal in all gradients of a phase."""
    return {phase: gradient_price(Passes(phase)) for phase in (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)}


def _gpu_alone(system: System) -> Node:
    """Return the accelerator without light."""
    return replace(system, photonic=None, vector=None, lighting=None).node()


@dataclass(kw_only=True)
class _GroupTotals:
    """Sums over the products of one kind and phase, of all accelerators."""

    energy_j: float = 0.0
    time_s: float = 0.0
    gradient_noise_macs: float = 0.0
    """Multiply-accumulates, each times its noise over signal; of gradients only."""


def choices_of(
    settings: Iterable[UnitSetting], *, static_w: float, accelerators: int, at_mains: float = 1.0
) -> list[Choice]:
    """Return every group in every setting, with energy, time and loss.

    Parameters
    ----------
    settings : iterable of UnitSetting
        Settings of a machine's units.
    static_w : float
        Static power of one accelerator with all of its units.
    accelerators : int
        Number of accelerators.
    at_mains : float
        Energy drawn from the mains over that of the accelerators.

    Notes
    -----
    Noise in gradients costs the upper end of the band of `gradient_prices`, shared among the kinds of
    products by multiply-accumulates: it was measured for all kinds of a phase together only.
    """
    layers = 1 + max(int(name.partition(".")[2] or 0) for name in sensitivities())
    choices = []
    for setting in settings:
        groups: dict[tuple[str, Phase], _GroupTotals] = defaultdict(_GroupTotals)
        macs: dict[Phase, float] = defaultdict(float)
        for product, count in setting.products.items():
            site, phase = _reference_site(product.role), product.phase
            cost, totals = setting.costs[product], groups[site.group, phase]
            totals.time_s += count * cost.time_s
            each_j = math.fsum(cost.energy_j.values()) + cost.time_s * static_w
            totals.energy_j += count * each_j * at_mains
            if phase is not Phase.FORWARD:
                totals.gradient_noise_macs += count * product.macs * setting.gradient_noise(site, phase)
            macs[phase] += count * product.macs
        for (kind, phase), totals in groups.items():
            if phase is Phase.FORWARD:
                rises = _forward_rises(setting, kind, layers)
            else:
                noise = totals.gradient_noise_macs / macs[phase]
                rises = {f"{kind}:{phase}": _Rise(gradient_prices()[phase].high * noise, 1.0)}
            choices += [
                Choice(
                    group=group,
                    setting=setting.name,
                    light=setting.light,
                    laser_w=setting.laser_w,
                    energy_j=totals.energy_j / len(rises),
                    time_s=totals.time_s / len(rises) / accelerators,
                    rise_nats=rise.nats,
                    length_factor=rise.length_factor,
                )
                for group, rise in rises.items()
            ]
    return choices


class _Rise(NamedTuple):
    """Rise of the loss, and the part that longer sums have in it, as in `Choice`."""

    nats: float
    length_factor: float


def _forward_rises(setting: UnitSetting, kind: str, layers: int) -> dict[str, _Rise]:
    """Return the rise of the loss by the errors of one kind of forward product, by group."""
    sites = [site for site, phase in setting.noise if phase is Phase.FORWARD and site.group == kind]
    rises = {}
    for suffix in [""] if kind == Site.HEAD else [f".{layer}" for layer in range(layers)]:
        nats = {
            site: setting.errors[f"{site}{suffix}"].nats(sensitivities()[f"{site}{suffix}"]) for site in sites
        }
        reference = math.fsum(nats.values())
        rise = math.fsum(setting.length_factor(f"{site}{suffix}") * one for site, one in nats.items())
        rises[f"{kind}{suffix}"] = _Rise(rise, rise / reference if reference > 0.0 else 1.0)
    return rises


def choices_by_machine(system: System, settings: Sequence[UnitSetting]) -> dict[str, list[Choice]]:
    """Return the choices of a GPU with light beside it, of the GPU alone, and of light alone.

    Notes
    -----
    A machine pays the static power of all of its units, and of its server, while any of them works.
    """
    gpu = _gpu_alone(system)
    node = system.node()
    light, shared_w = node.units[0], node.memory.static_w + system.host.static_w
    units = {
        BOTH: (settings, gpu.units[0].static_w + light.static_w),
        f"{system.gpu.name} alone": ([one for one in settings if not one.light], gpu.units[0].static_w),
        "light alone": ([one for one in settings if one.light], light.static_w),
    }
    return {
        name: choices_of(
            own, static_w=static_w + shared_w, accelerators=system.accelerators, at_mains=node.at_mains
        )
        for name, (own, static_w) in units.items()
    }


@dataclass(frozen=True, kw_only=True)
class Splits(Result):
    """Cheapest split of a model's products between a GPU and light."""

    system: System
    """The photonic system; its GPU stands beside the cores."""
    model: str
    """Name of the model that is split."""
    plan: Plan
    """Plan of its step."""
    command: tuple[str, ...]
    """Options of the command line that give the same system and model."""
    tokens: float
    """Tokens of a step."""
    objective: Objective
    """Cost that is minimised."""
    choices: tuple[Choice, ...]
    """Every group in every setting."""
    best: Split
    """Cheapest split under the budget that was asked for."""
    front: tuple[Split, ...]
    """Cheapest splits under all of `BUDGETS` that can be met, smallest first."""
    alone: Mapping[str, tuple[Choice, ...]]
    """Choices of the machines with one unit: the GPU without light, and light without the GPU."""
    executed: tuple[Row, ...] = ()
    """Splits that were executed on the reference GPT, with their predicted rises."""

    def _cost_text(self, value: float) -> str:
        """Return a cost as text: seconds a step, or joules a token."""
        if self.objective is Objective.TIME:
            return format_si(value, "s")
        return format_si(value / self.tokens, "J")

    def report(self) -> list[Block]:
        """Return the split, its saving, and the price of precision."""
        settings = list(dict.fromkeys(one.setting for one in self.choices))
        shares: dict[tuple[str, Phase], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one, share in self.best.taken:
            shares[one.kind, one.phase][one.setting] += share
        used = [name for name in settings if any(own[name] > SLACK for own in shares.values())]
        rows = [
            ReportRow(
                kind if phase is Phase.FORWARD else f"  {phase}",
                tuple(f"{own[name] / math.fsum(own.values()):.0%}" for name in used),
            )
            for kind, phase in itertools.product(_GROUPS, Phase)
            if (own := shares.get((kind, phase)))
        ]
        cost = "joules a token" if self.objective is Objective.ENERGY else "seconds a step"
        budget = f"{self.best.budget_nats:g} nats a byte"
        table = ReportTable(f"Products of {self.model} on {self.system.name} with its GPU", used, rows)
        legend = f"Cheapest in {cost} under a budget of {budget}; shares of the depth."
        return [table, legend, *self._summary(), *self._executed_table()]

    def best_alone(self) -> dict[str, Split]:
        """Return the cheapest split of each machine with one unit, of those that can meet the budget."""
        splits = {}
        for name, choices in self.alone.items():
            try:
                splits[name] = cheapest(choices, self.best.budget_nats, self.objective)
            except HeliographError:
                continue
        return splits

    def _summary(self) -> list[str]:
        """Return sentences on the saving, the price of precision, the rises, and the split as a step."""
        gpu_w, light_w = self.system.gpu.chip.tdp_w, self.system.accelerator_peak_w()
        both = f"Its accelerators hold both, {gpu_w:.0f} W of GPU and {light_w:.0f} W of light, in turns."
        rise = (
            f"The split costs the GPT that ships {self.best.shipped_nats:.2g} nats a byte, and "
            f"{self.best.rise_nats:.2g} with sums as long as those of {self.model}."
        )
        sentences = [self._saving(), f"{self._price_of_precision()} {rise}", self._gradient_price(), both]
        if not self.settings():
            return sentences
        words = shlex.join(self.step_words())
        step = f"As a step, with all rescues in light and {self._gpu_format()} beside it: heliograph {words}"
        return [*sentences, step]

    def _saving(self) -> str:
        """Return in words the saving against the cheaper of the machines with one unit."""
        best, alone = self.best.total(self.objective), self.best_alone()
        costs = {name: self._cost_text(one.total(self.objective)) for name, one in alone.items()}
        others = ", ".join(f"{name} {costs.get(name, 'misses the budget')}" for name in self.alone)
        least = min((one.total(self.objective) for one in alone.values()), default=math.inf)
        if self.best.light_share == 0.0 or best >= least:
            name = next(name for name, one in alone.items() if one.total(self.objective) == least)
            answer = f"{name.capitalize()} is cheaper than any split."
        else:
            share, saved = self.best.light_share, 1.0 - best / least
            answer = f"Light takes {share:.0%} of the products' time. The split saves {saved:.0%}."
        return f"{answer} Split: {self._cost_text(best)}; {others}."

    def _price_of_precision(self) -> str:
        """Return in words the dual of the budget, and the worth of one bit: 3/4 less noise power."""
        price = self.best.price / (1.0 if self.objective is Objective.TIME else self.tokens)
        light_nats = math.fsum(one.rise_nats * share for one, share in self.best.taken if one.light)
        unit = "s" if self.objective is Objective.TIME else "J"
        if price <= 0.0:
            return "The budget does not bind: precision is free here."
        return (
            f"Price of precision: {format_si(price, unit)} a nat; one bit more in all light is worth "
            f"{format_si(0.75 * light_nats * price, unit)}."
        )

    def _gpu_format(self) -> Precision:
        """Return the format in which the GPU spends most of its time; that of the plan if it runs nothing."""
        spent_s: dict[str, float] = defaultdict(float)
        for choice, share in self.best.taken:
            if not choice.light:
                spent_s[choice.setting] += share * choice.time_s
        return (
            Precision(max(spent_s, key=lambda name: spent_s[name])) if spent_s else self.plan.precision.kind
        )

    def step_words(self) -> list[str]:
        """Return the words of the command that runs the split as one step; see `settings`."""
        plan = replace(self.plan, precision=replace(self.plan.precision, kind=self._gpu_format()))
        words = ["step", *self.command, "--plan", plan_text(plan)]
        return words + [word for one in self.settings() for word in ("--set", one)]

    def _gradient_price(self) -> str:
        """Return in words the prices of noise in gradients, and which of them are not resolved."""
        prices = [
            f"{band.middle:.2g} ({band.low:.2g} to {band.high:.2g}) in {phase}"
            for phase, band in gradient_prices().items()
        ]
        chance = [str(phase) for phase, band in gradient_prices().items() if band.low <= 0.0]
        unresolved = f" Not told from chance: {', '.join(chance)}." if chance else ""
        return (
            f"Of that {self.best.gradient_nats:.2g} by noise in gradients, charged the upper ends of what "
            f"trainings of small models tell, nats a unit of noise over signal: {', '.join(prices)}."
            f"{unresolved}"
        )

    def _executed_table(self) -> list[Block]:
        """Return the table of executed splits; empty without ``--execute``."""
        if not self.executed:
            return []
        columns: dict[str, Callable[[Row], str]] = {
            "counted": lambda row: f"{row['counted_nats']:.4f}",
            "predicted, each alone": lambda row: f"{row['predicted_nats']:.4f}",
            "by its own errors": lambda row: f"{row['by_own_errors_nats']:.4f}",
            "executed": lambda row: f"{row['executed_nats']:.4f} \u00b1 {row['standard_error_nats']:.4f}",
        }
        title = "Forward products executed on the model that ships, nats a byte"
        return [table_of(title, self.executed, lambda row: str(row["split"]), columns)]

    def policy(self) -> dict[str, Any]:
        """Return the split as `optical.conversion.Policy` takes it, one unit for each kind and layer.

        Notes
        -----
        A policy tells forward products apart only; gradients in light stand under ``laser`` beside them.
        """
        electronic = [one for one in _forward(self.best.unmixed) if not one.light]
        return {
            "electronic": sorted(site for one in electronic for site in _reference_names(one.group)),
            "laser": {one.group: one.setting for one in self.best.unmixed if one.light},
            "step": list(self.settings()),
            "command": self.step_words() if self.settings() else [],
        }

    def settings(self) -> tuple[str, ...]:
        """Return the split as ``heliograph step --set`` takes it; empty where no product is in light.

        Notes
        -----
        Shares of the depth are kept. A system has one laser: that of the brightest choice, so that no
        product is noisier than it was split for, and its core keeps all rescues.
        """
        lit = [choice for choice, _ in self.best.taken if choice.light]
        if not lit:
            return ()
        light: dict[tuple[str, Phase], float] = defaultdict(float)
        whole: dict[tuple[str, Phase], float] = defaultdict(float)
        for choice, share in self.best.taken:
            whole[choice.kind, choice.phase] += share
            light[choice.kind, choice.phase] += share if choice.light else 0.0
        settings = [f"{LASER}={max(choice.laser_w for choice in lit):.6g}"]
        for kind in Kind:
            name = str(kind) if kind is Kind.ATTENTION else _SITES[kind].group
            for phase in dataclasses.fields(PhaseShares if kind is not Kind.ATTENTION else InputShares):
                group = name, Phase(phase.name)
                share = light[group] / whole[group] if whole[group] else 0.0
                settings.append(f"light.{kind}.{phase.name}={share:.6g}")
        return tuple(settings)

    def record(self) -> dict[str, Any]:
        """Return everything as plain data, SI throughout."""
        return {
            "system": self.system.name,
            "model": self.model,
            "objective": str(self.objective),
            "tokens": self.tokens,
            "budget_nats": self.best.budget_nats,
            "rise_nats": self.best.rise_nats,
            "shipped_nats": self.best.shipped_nats,
            "gradient_nats": self.best.gradient_nats,
            "cost": self.best.total(self.objective),
            "price_per_nat": self.best.price,
            "light_share": self.best.light_share,
            "alone": {name: one.total(self.objective) for name, one in self.best_alone().items()},
            "policy": self.policy(),
            "front": [
                {
                    "budget_nats": one.budget_nats,
                    "cost": one.total(self.objective),
                    "light_share": one.light_share,
                }
                for one in self.front
            ],
            "executed": list(self.executed),
        }

    def rows(self) -> list[Row]:
        """Return a row for each choice with its share in the best split."""
        shares = {(one.group, one.setting): share for one, share in self.best.taken}
        return [
            {
                "group": one.group,
                "way": one.setting,
                "light": one.light,
                "energy_j": one.energy_j,
                "time_s": one.time_s,
                "rise_nats": one.rise_nats,
                "longer": one.length_factor,
                "share": shares.get((one.group, one.setting), 0.0),
            }
            for one in self.choices
        ]

    def figure(self) -> Figure:
        """Return cost over budget of each machine, and the share of the time in light over budget."""
        scale = self.tokens if self.objective is Objective.ENERGY else 1.0
        figure = new_figure(3.6)
        cost, share = figure.subplots(1, 2)
        lines = {BOTH: self.front} | {
            name: front_of(choices, self.objective) for name, choices in self.alone.items()
        }
        for (name, front), colour in zip(lines.items(), PALETTE, strict=False):
            budgets = [one.budget_nats for one in front]
            cost.plot(budgets, [one.total(self.objective) / scale for one in front], color=colour, label=name)
        cost.set_ylabel("energy (J/token)" if self.objective is Objective.ENERGY else "time (s)")
        cost.set_ylim(0.0, 1.08 * cost.get_ylim()[1])
        cost.legend()
        shares = [100.0 * one.light_share for one in self.front]
        share.plot([one.budget_nats for one in self.front], shares, color=PALETTE[0])
        share.set_ylabel("products' time in light (%)")
        share.set_ylim(-2.0, 102.0)
        for axes in (cost, share):
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
            axes.set_xlabel("loss allowed (nats a byte)")
            axes.axvline(self.best.budget_nats, color=REFERENCE, linewidth=0.8)
        return figure


def _forward(some: Iterable[Choice]) -> tuple[Choice, ...]:
    """Return the choices of forward products."""
    return tuple(one for one in some if one.phase is Phase.FORWARD)


def _reference_names(group: str) -> list[str]:
    """Return the names of a forward group's products in the reference GPT."""
    kind, _, layer = group.partition(".")
    if kind == Site.HEAD:
        return [kind]
    return [f"{site}.{layer}" for site in Site if site.group == kind]


@dataclass(frozen=True, kw_only=True)
class SplitProducts(Study):
    """Cheapest split of a model's products between light and the GPU beside it."""

    system: str = option("photonic_packet", "photonic system by name, or a TOML file")
    budget: float = option(
        0.01, "largest rise of the loss of the model that ships, nats a byte", metavar="NATS"
    )
    objective: Objective = option(Objective.ENERGY, "what is kept least")
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "accelerators; default: what the plan uses", metavar="N")
    execute: bool = option(False, "execute the split and its neighbours on the model that ships (minutes)")
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Splits:
        """Return the split."""
        if not self.budget > 0.0:
            msg = f"--budget must be above 0 nats a byte; got {self.budget:g}"
            raise ParameterError(msg)
        refuse_unused(self.hardware, ("fabric",), "products and their operands cross no fabric")
        config = model_named(self.workload.model)
        usual = ranks_of(self.workload.plan) or DEFAULT_ACCELERATORS
        system = self.hardware.system(self.system, accelerators=self.accelerators, usual_accelerators=usual)
        plan = plan_on(system, config, self.workload.plan)
        if system.photonic is None:
            msg = (
                f"--system {system.name} has no light to split with; name a photonic one, as photonic_packet"
            )
            raise ParameterError(msg)
        bright = lit(system, step_graph(config, system.planned(plan)))
        settings = unit_settings(bright, config, plan)
        machines = choices_by_machine(bright, settings)
        trial = Trial.of(settings, progress) if self.execute else None
        if trial is not None:
            machines = trial.settle(machines, self.budget, self.objective)
        choices = machines[BOTH]
        best = cheapest(choices, self.budget, self.objective)
        result = Splits(
            system=bright,
            model=config.name,
            plan=plan,
            command=(
                *("--system", self.system, "--model", self.workload.model),
                *command_line(replace(self.hardware, precision_target=None)),
            ),
            tokens=float(plan.batch.global_batch * plan.batch.sequence_length),
            objective=self.objective,
            choices=tuple(choices),
            best=best,
            front=tuple(front_of(choices, self.objective)),
            alone={name: tuple(own) for name, own in machines.items() if name != BOTH},
        )
        if trial is None:
            return result
        return replace(result, executed=trial.execute(best, choices, self.objective))


def front_of(choices: Sequence[Choice], objective: Objective) -> list[Split]:
    """Return the cheapest split for each of `BUDGETS` that can be met."""
    splits = []
    for budget in BUDGETS:
        try:
            splits.append(cheapest(choices, budget, objective))
        except HeliographError:
            continue
    return splits


NEIGHBOURS = 3
"""Number of the best split's cheapest neighbours that are executed; a choice."""
WINDOWS, DRAWS = 24, 3
"""Windows of text and draws of the noise on which a split is judged; choices."""


def neighbours(
    split: Iterable[Choice], choices: Iterable[Choice], objective: Objective
) -> list[tuple[Choice, ...]]:
    """Return the splits in which one group has another setting, the cheapest first."""
    by_group = {one.group: one for one in split}
    moved = [
        tuple((by_group | {one.group: one}).values())
        for one in choices
        if by_group[one.group].setting != one.setting
    ]
    return sorted(moved, key=lambda some: math.fsum(one.cost(objective) for one in some))


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Execution of forward products on the reference GPT, which corrects the predicted rises.

    Notes
    -----
    A predicted rise is the error of a product times a sensitivity. Here each product that the cheapest split
    takes is executed alone, through the core's own errors at its own laser power, and the programme is solved
    anew with the measured rises, until it takes no product that was not measured (`settle`). The sum of the
    measured rises predicts that of the split; executing all products at once checks it (`execute`).
    """

    bench: Bench
    """The reference GPT."""
    specs: Mapping[str, AnalogSpec]
    """Specification of forward products by setting in light."""
    progress: Progress
    """Called with each product that is executed."""
    measured_nats: dict[tuple[str, str], float] = field(default_factory=dict)
    """Executed rise of the loss by group and setting, with no other errors; filled by `measure`."""
    predicted_nats: dict[tuple[str, str], float] = field(default_factory=dict)
    """Predicted rise of the same; filled by `measure`."""

    @classmethod
    def of(cls, settings: Iterable[UnitSetting], progress: Progress) -> Trial:
        """Return a trial of settings in which nothing is measured yet."""
        from experiments.accuracy.prediction import learnt_bench  # noqa: PLC0415 - torch, only to execute

        specs = {one.name: one.spec for one in settings if one.spec is not None}
        return cls(bench=learnt_bench(windows=WINDOWS), specs=specs, progress=progress)

    def measure(self, choice: Choice) -> Choice:
        """Return a choice of a forward product with the rise that it has executed alone."""
        key = choice.group, choice.setting
        if key not in self.measured_nats:
            done = len(self.measured_nats)
            self.progress(f"executing {choice.group} on {choice.setting} alone", done, done + 1)
            rises = self.bench.rises(_numerics([choice], self.specs), DRAWS if choice.light else 1)
            self.predicted_nats[key] = choice.shipped_nats
            self.measured_nats[key] = max(0.0, float(np.mean(rises)))
        return self._with_measured_rise(choice)

    def settle(
        self, machines: Mapping[str, Sequence[Choice]], budget_nats: float, objective: Objective
    ) -> dict[str, list[Choice]]:
        """Return the choices of each machine after all that the cheapest split of both takes are measured."""
        settled = {name: list(choices) for name, choices in machines.items()}
        while True:
            best = cheapest(settled[BOTH], budget_nats, objective)
            taken = _forward(choice for choice, _ in best.taken)
            if all((choice.group, choice.setting) in self.measured_nats for choice in taken):
                return settled
            for choice in taken:
                self.measure(choice)
            settled = {name: list(map(self._with_measured_rise, own)) for name, own in settled.items()}

    def _with_measured_rise(self, choice: Choice) -> Choice:
        """Return a choice with its measured rise, or as it is if it was not measured."""
        nats = self.measured_nats.get((choice.group, choice.setting), choice.shipped_nats)
        return replace(choice, rise_nats=nats * choice.length_factor)

    def execute(self, best: Split, choices: Sequence[Choice], objective: Objective) -> tuple[Row, ...]:
        """Return the rises of the best split and of its cheapest neighbours, all forward products at once."""
        unmixed = _forward(best.unmixed)
        splits = {"best": unmixed}
        for neighbour in neighbours(unmixed, _forward(choices), objective)[:NEIGHBOURS]:
            moved = next(other for own, other in zip(unmixed, neighbour, strict=True) if own != other)
            splits[f"{moved.group} on {moved.setting}"] = tuple(map(self.measure, neighbour))
        return tuple(self._row(name, split) for name, split in splits.items())

    def _row(self, name: str, split: tuple[Choice, ...]) -> Row:
        """Return predicted and executed rises of a split as a row of the table."""
        done = len(self.measured_nats)
        self.progress(f"executing: {name}", done, done + 1)
        executed = self.bench.executed([_numerics(split, self.specs)] * DRAWS)
        rises = [
            (drawn + mirrored) / 2.0
            for drawn, mirrored in zip(executed["drawn"], executed["mirrored"], strict=True)
        ]
        return {
            "split": name,
            "counted_nats": math.fsum(self.predicted_nats[one.group, one.setting] for one in split),
            "predicted_nats": math.fsum(one.shipped_nats for one in split),
            "by_own_errors_nats": math.fsum(executed["modelled"]) / DRAWS,
            "executed_nats": math.fsum(rises) / DRAWS,
            "standard_error_nats": float(np.std(rises, ddof=1)) / math.sqrt(DRAWS),
            "executed_one_way_nats": math.fsum(executed["drawn"]) / DRAWS,
        }


def _numerics(split: Iterable[Choice], specs: Mapping[str, AnalogSpec]) -> dict[str, Numerics]:
    """Return the numerics of each forward product of the reference GPT under a split."""
    return {
        name: _product_numerics(one.setting, specs.get(one.setting), name)
        for one in split
        for name in _reference_names(one.group)
    }


def _product_numerics(setting: str, spec: AnalogSpec | None, name: str) -> Numerics:
    """Return the numerics of one product: of the core, or of the GPU, whose attention and head stay in bf16.

    Parameters
    ----------
    setting : str
        Number format of the GPU; of no effect in light.
    spec : AnalogSpec, optional
        Specification of the core; None for the GPU.
    name : str
        Product of the reference GPT.
    """
    from electronic.numerics import BfloatNumerics, float8_passes  # noqa: PLC0415 - torch, only to execute
    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch, only to execute

    if spec is not None:
        return AnalogNumerics(spec)
    site, phase = _site_and_phase(name)
    if setting != Precision.FP8 or site.fused or site is Site.HEAD:
        return BfloatNumerics()
    forward, grad_input, grad_weight = float8_passes()
    return {Phase.GRAD_INPUT: grad_input, Phase.GRAD_WEIGHT: grad_weight}.get(phase, forward)

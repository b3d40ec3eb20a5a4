"""Which products of a training step belong in light: the cheapest split under a budget of loss.

Every kind of forward product in every quarter of the depth, and every kind of gradient, may run on the GPU in
one of its formats, or on the photonic cores beside it with the laser at one of several powers and with any of
the core's rescues left out. Each choice has a time, an energy and a rise of the loss; the cheapest mixture
under a budget is a linear programme, whose dual is the price of a nat.

Errors of products are those of each way in the products of the model that ships, gradients included, times
what the law of noise says of the longer sums of the model that is split.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from heliograph.report import ReportRow, ReportTable, format_si
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

TABLE = Path(workloads.training.__file__).parent / "learnt_sensitivities.csv"
"""Rise of the loss of the model that ships by noise on one product; its head says how it was measured."""
DIMMER = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Laser powers, over the one for which the system is sized; a choice."""
_ROWS = 512
"""Rows of each batch of products with weights that are looked at; a choice."""
SLACK = 1e-9
"""Share of a mixture below which a choice is not taken."""
BUDGETS = tuple(10.0 ** (place / 4.0) for place in range(-16, 1))
"""Budgets of the front, nats a byte; a choice."""


class Site(StrEnum):
    """Product of the model that ships: the head's once, the others in each of its blocks."""

    QKV = "qkv"
    SCORES = "scores"
    VALUES = "values"
    PROJECTION = "projection"
    UP = "up"
    DOWN = "down"
    HEAD = "head"

    @property
    def fused(self) -> bool:
        """Whether it is of attention's kernel, whose scores never leave the chip: both run on one unit."""
        return self in (Site.SCORES, Site.VALUES)

    @property
    def group(self) -> str:
        """Kind of product that is split as one."""
        return str(Kind.ATTENTION) if self.fused else str(self)


_SITES = {
    Kind.QKV: Site.QKV,
    Kind.OUTPUT: Site.PROJECTION,
    Kind.UP: Site.UP,
    Kind.DOWN: Site.DOWN,
    Kind.HEAD: Site.HEAD,
}
"""Product of the measured model by kind; attention has two."""
_GROUPS = tuple(dict.fromkeys(site.group for site in Site))
"""Kinds of products that are split."""


BOTH = "split"
"""Name of the machine that has both."""


class Objective(StrEnum):
    """Cost that a split keeps least."""

    ENERGY = "energy"
    """Joules."""
    TIME = "time"
    """Seconds; the two units take turns."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way of running one kind of product in one part of the depth."""

    group: str
    """Kind of product; after a point the layer of the measured model that stands for the depth of a forward
    product, after a colon the phase of a gradient."""
    way: str
    """Number format of the GPU, or power of a laser."""
    light: bool
    """Whether it runs on the photonic cores."""
    energy_j: float
    """Energy of all of a step's, static power of both units while they run included."""
    time_s: float
    """Time on one accelerator."""
    rise_nats: float
    """Rise of the loss by its noise, nats a byte, with sums as long as those of the model that is split."""
    laser_w: float = 0.0
    """Power of the laser; 0 on the GPU."""
    longer: float = 1.0
    """That rise over the one with sums as long as those of the model that ships."""

    @property
    def shipped_nats(self) -> float:
        """Rise of the loss of the model that ships, nats a byte."""
        return self.rise_nats / self.longer

    @property
    def kind(self) -> str:
        """Kind of product."""
        return self.group.partition(":")[0].partition(".")[0]

    @property
    def phase(self) -> Phase:
        """Phase of it."""
        return Phase(self.group.partition(":")[2] or Phase.FORWARD)

    def cost(self, objective: Objective) -> float:
        """Return what is kept least."""
        return self.energy_j if objective is Objective.ENERGY else self.time_s


@dataclass(frozen=True, kw_only=True)
class Split:
    """Cheapest mixture of choices under a budget."""

    budget_nats: float
    """Largest rise of the loss."""
    taken: tuple[tuple[Choice, float], ...]
    """Choices with their shares, which add up to one for each group."""
    price: float
    """Dual of the budget: cost that one nat more would save."""

    def total(self, objective: Objective) -> float:
        """Return the cost."""
        return math.fsum(one.cost(objective) * share for one, share in self.taken)

    @property
    def rise_nats(self) -> float:
        """Rise of the loss."""
        return math.fsum(one.rise_nats * share for one, share in self.taken)

    @property
    def shipped_nats(self) -> float:
        """Rise of the loss with sums as long as those of the model that ships."""
        return math.fsum(one.shipped_nats * share for one, share in self.taken)

    @property
    def gradient_nats(self) -> float:
        """Part of it by noise in gradients."""
        return math.fsum(one.rise_nats * x for one, x in self.taken if one.phase is not Phase.FORWARD)

    @property
    def whole(self) -> tuple[Choice, ...]:
        """One choice for each group, the more precise one where two are mixed: within the budget."""
        best: dict[str, Choice] = {}
        for one, _ in self.taken:
            known = best.get(one.group)
            if known is None or one.rise_nats < known.rise_nats:
                best[one.group] = one
        return tuple(best.values())

    @property
    def light_share(self) -> float:
        """Share of the groups' time in light."""
        time_s = math.fsum(one.time_s * share for one, share in self.taken)
        return math.fsum(one.time_s * share for one, share in self.taken if one.light) / time_s


def cheapest(choices: Sequence[Choice], budget_nats: float, objective: Objective) -> Split:
    """Return the cheapest mixture under a budget, by a linear programme."""
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
    """Return the choices of each group to which no other is at once as cheap and as precise."""
    found, least = [], dict.fromkeys((one.group for one in choices), math.inf)
    for one in sorted(choices, key=lambda one: (one.cost(objective), one.rise_nats)):
        if one.rise_nats < least[one.group]:
            least[one.group] = one.rise_nats
            found.append(one)
    return found


class Sensitivity(NamedTuple):
    """Nats a byte for each unit of error on a product, power over that of its exact result."""

    noise: float
    """Of Gaussian noise."""
    clipping: float
    """Of what a range cuts off, which falls on the outputs that say most."""
    clipping_rotated: float
    """The same where operands are rotated, and other outputs are large beside their full scales."""


@functools.cache
def sensitivities() -> Mapping[str, Sensitivity]:
    """Return what errors cost on each product of the model that ships."""
    kinds = Sensitivity._fields
    with TABLE.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(line for line in stream if not line.startswith("#"))
        return {
            row["site"]: Sensitivity(*(float(row[f"nats_per_{each}_to_signal"]) for each in kinds))
            for row in rows
        }


def _site(role: Role) -> Site:
    """Return the measured product that stands for a model's."""
    kind = kind_of(role)
    if kind is Kind.ATTENTION:
        return Site.SCORES if role in SCORES else Site.VALUES
    return _SITES[kind]


def training_products(system: System, config: Any, plan: Any) -> dict[MatMul, int]:  # noqa: ANN401
    """Return the products of a step, and how often all accelerators run each."""
    graph = step_graph(config, system.planned(plan))
    found: Counter[MatMul] = Counter()
    for product, count in executions_of(graph):
        found[product] += count * graph.layout.ranks_per_class
    return found


class Errors(NamedTuple):
    """Errors of a product of the model that ships, power over that of its exact result."""

    noise: float
    """All but what a range cuts off."""
    clipped: float
    """What a range cuts off operands as they come."""
    clipped_rotated: float
    """What it cuts off rotated ones."""

    def nats(self, cost: Sensitivity) -> float:
        """Return the rise of the loss, nats a byte, of the model that ships."""
        return math.fsum(price * power for price, power in zip(cost, self, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Way:
    """A unit in one of its settings, with what its products cost and lose."""

    name: str
    light: bool
    products: Mapping[MatMul, float]
    priced: Mapping[MatMul, Cost]
    noise: Mapping[tuple[Site, Phase], float]
    """Noise over signal by kind of product and phase, of the model that is split."""
    by_law: Mapping[str, float]
    """The same with sums as long as those of the model that ships, by its products."""
    errors: Mapping[str, Errors]
    """Errors of the products of the model that ships."""
    laser_w: float = 0.0
    """Power of the laser; 0 on the GPU."""

    def longer(self, site: str) -> float:
        """Return noise over signal with sums as long as in the model that is split, over that with own."""
        theirs, own = self.noise[_site_and_phase(site)], self.by_law[site]
        return theirs / own if own > 0.0 else 1.0

    def gradient_noise(self, site: Site, phase: Phase) -> float:
        """Return noise over signal of gradients: the mean over the layers of the model that ships."""
        names = [name for name in self.errors if _site_and_phase(name) == (site, phase)]
        return math.fsum(math.fsum(self.errors[name]) * self.longer(name) for name in names) / len(names)

    def dimmed(self, by_law: Mapping[str, float]) -> dict[str, Errors]:
        """Return the errors with other light: noise as by the law, and what a range cuts off as it is."""
        return {
            site: one._replace(noise=one.noise * by_law[site] / (self.by_law[site] or 1.0))
            for site, one in self.errors.items()
        }


def _site_and_phase(name: str) -> tuple[Site, Phase]:
    """Return site and phase of a product of the model that ships; all gradients of attention are inputs'."""
    where, _, phase = name.partition(":")
    site = Site(where.partition(".")[0])
    if not phase:
        return site, Phase.FORWARD
    return site, Phase.GRAD_INPUT if site.fused else Phase(phase)


def _noise_by_site(delivered: Delivered) -> dict[tuple[Site, Phase], float]:
    parts: dict[tuple[Site, Phase], list[tuple[float, OperandPrecision]]] = defaultdict(list)
    for product, precision in delivered.parts:
        parts[_site(product.role), product.phase].append((product.macs, precision))
    return {site: ratio_from_db(-average(some).snr_db) for site, some in parts.items()}


_RESCUES: Mapping[type, str] = MappingProxyType(
    {BlockFloatCore: "block", RotatedCore: "rotation", HybridCore: "hybrid"}
)
"""Rescues that a product may go without: what they do to operands is done for each product anew."""


def without_rescues(core: Core) -> dict[str, Core]:
    """Return a core with all its rescues, without each one, and with none, by the names of those left out.

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


class Shipped:
    """Products of the model that ships, and what each way errs in them.

    Notes
    -----
    Forward ones are those of the windows on which a split is executed: few of them have the loudest outputs
    of attention, which a range cuts off. Gradients are those of one training batch; their sites have the
    phase after a colon.
    """

    def __init__(self) -> None:
        from experiments.accuracy.capture import capture_gpt  # noqa: PLC0415 - torch
        from experiments.accuracy.prediction import learnt_bench  # noqa: PLC0415 - torch

        self._operands = learnt_bench(windows=WINDOWS).operands(rows=_ROWS)
        for one in capture_gpt(learnt=True):
            if one.phase is not Phase.FORWARD:
                site = one.product if one.product == Site.HEAD else f"{one.product}.{one.layer}"
                self._operands[f"{site}:{one.phase}"] = [(one.a_BMK[:, :_ROWS], one.b_BKN)]
        self.lengths = {site: batches[0][0].shape[2] for site, batches in self._operands.items()}
        """Products of a sum, by site."""

    def errors(
        self, way: str, analog: Callable[[Phase], AnalogSpec] | None, sites: Iterable[str] | None = None
    ) -> dict[str, Errors]:
        """Return the errors of a way by site: of light by its specification, or of the GPU in a format."""
        from experiments.accuracy.prediction import error_power  # noqa: PLC0415 - torch

        found = {}
        for site in sites or self._operands:
            spec = None if analog is None else analog(_site_and_phase(site)[1])
            whole = error_power(_runs(way, spec, site), self._operands[site])
            clipped = 0.0 if spec is None else min(whole, self._clipping(spec, site))
            turned = spec is not None and spec.transforms is not None and spec.transforms.rotation_width > 1
            found[site] = Errors(
                noise=whole - clipped,
                clipped=0.0 if turned else clipped,
                clipped_rotated=clipped if turned else 0.0,
            )
        return found

    def _clipping(self, spec: AnalogSpec, site: str) -> float:
        """Return what the converter's range alone does; samples that collapse into a draw make it noise."""
        from experiments.accuracy.prediction import error_power  # noqa: PLC0415 - torch
        from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch

        collapsed = spec.scale is not Scale.BLOCK and self.lengths[site] > spec.analog_length
        if collapsed or spec.residues is not None or math.isinf(spec.adc_bits):
            return 0.0
        return error_power(AnalogNumerics(spec.clipping_only), self._operands[site])


def by_law(
    judge: Callable[[Sequence[ModelProduct]], Delivered],
    products: Sequence[ModelProduct],
    lengths: Mapping[str, int],
) -> dict[str, float]:
    """Return noise over signal of a model's products with sums of these lengths, by site."""
    noise: dict[tuple[Site, Phase, int], float] = {}
    for name, length in lengths.items():
        site, phase = _site_and_phase(name)
        if (site, phase, length) not in noise:
            ours = tuple(
                replace(one, length=length)
                for one in products
                if one.phase is phase and _site(one.role) is site
            )
            noise[site, phase, length] = _noise_by_site(judge(ours))[site, phase] if ours else 0.0
    return {name: noise[*_site_and_phase(name), length] for name, length in lengths.items()}


def ways_of(system: System, config: Any, plan: Any) -> tuple[list[_Way], dict[str, AnalogSpec]]:  # noqa: ANN401
    """Return the ways to run a product on a photonic system with its GPU beside it, and the light of each."""
    unit = cast("PhotonicUnit", system.node().units[0])
    gpu, shipped = _gpu_alone(system).units[0], Shipped()
    ways, specs = [], {}
    for precision in (Precision.BF16, Precision.FP8):
        own = replace(plan, precision=replace(plan.precision, kind=precision))
        products = training_products(
            replace(system, photonic=None, lighting=None, precision=precision), config, own
        )
        judge, kinds = functools.partial(of_format, FORMATS[str(precision)]), together(products.items())
        ways.append(
            _Way(
                name=str(precision),
                light=False,
                products=products,
                priced={product: gpu.cost(product) for product in products},
                noise=_noise_by_site(judge(kinds)),
                by_law=by_law(judge, kinds, shipped.lengths),
                errors=shipped.errors(str(precision), None),
            )
        )
    products = training_products(system, config, plan)
    kinds = together(products.items())
    power_w = float(get_at(unit.core, LASER))
    for left_out, plain in without_rescues(unit.core).items():
        brightest: _Way | None = None
        for dimmer in DIMMER:
            core = replace_at(plain, LASER, power_w * dimmer)
            judge = functools.partial(of_core, core)
            name = f"{format_si(power_w * dimmer, 'W')} laser{f', no {left_out}' if left_out else ''}"
            try:
                specs[name] = core.analog(Phase.FORWARD)
                noise, law = _noise_by_site(judge(kinds)), by_law(judge, kinds, shipped.lengths)
            except LinkError:
                continue
            dimmed = replace(unit, core=core)
            way = _Way(
                name=name,
                light=True,
                products=products,
                priced={product: dimmed.cost(product) for product in products},
                noise=noise,
                by_law=law,
                errors=shipped.errors(name, core.analog) if brightest is None else brightest.dimmed(law),
                laser_w=power_w * dimmer,
            )
            brightest = brightest or way
            ways.append(way)
    return ways, specs


@functools.cache
def gradient_prices() -> Mapping[Phase, Band]:
    """Return nats a byte for each unit of noise over signal in all gradients of a phase, with its band."""
    return {phase: gradient_price(Passes(phase)) for phase in (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)}


def _gpu_alone(system: System) -> Node:
    """Return the accelerator without light."""
    return replace(system, photonic=None, vector=None, lighting=None).node()


def choices_of(
    ways: Iterable[_Way], *, static_w: float, accelerators: int, at_mains: float = 1.0
) -> list[Choice]:
    """Return every way of every group, with energy, time and loss.

    Parameters
    ----------
    ways : iterable of _Way
        As `ways_of` returns them.
    static_w : float
        Power that one accelerator draws whoever works.
    accelerators : int
        How many there are.
    at_mains : float
        Energy that a server takes over that of what it carries.

    Notes
    -----
    Noise in gradients is charged the upper end of the band of `gradient_prices`, shared over the kinds by
    their multiply-accumulates: only all kinds of a phase together were measured.
    """
    layers = 1 + max(int(site.partition(".")[2] or 0) for site in sensitivities())
    found = []
    for way in ways:
        energy: dict[tuple[str, Phase], float] = defaultdict(float)
        time: dict[tuple[str, Phase], float] = defaultdict(float)
        noise: dict[tuple[str, Phase], float] = defaultdict(float)
        macs: dict[Phase, float] = defaultdict(float)
        for product, count in way.products.items():
            site, phase = _site(product.role), product.phase
            group = site.group, phase
            cost = way.priced[product]
            time[group] += count * cost.time_s
            each_j = math.fsum(cost.energy_j.values()) + cost.time_s * static_w
            energy[group] += count * each_j * at_mains
            if phase is not Phase.FORWARD:
                noise[group] += count * product.macs * way.gradient_noise(site, phase)
            macs[phase] += count * product.macs
        for (name, phase), energy_j in energy.items():
            if phase is Phase.FORWARD:
                rises = _forward_rises(way, name, layers)
            else:
                share = noise[name, phase] / macs[phase]
                rises = {f"{name}:{phase}": (gradient_prices()[phase].high * share, 1.0)}
            found += [
                Choice(
                    group=group,
                    way=way.name,
                    light=way.light,
                    laser_w=way.laser_w,
                    energy_j=energy_j / len(rises),
                    time_s=time[name, phase] / len(rises) / accelerators,
                    rise_nats=rise_nats,
                    longer=longer,
                )
                for group, (rise_nats, longer) in rises.items()
            ]
    return found


def _forward_rises(way: _Way, name: str, layers: int) -> dict[str, tuple[float, float]]:
    """Return the rise of the loss by a kind of forward product, by group, and what longer sums make of it."""
    sites = [site for site, phase in way.noise if phase is Phase.FORWARD and site.group == name]
    found = {}
    for place in [""] if name == Site.HEAD else [f".{layer}" for layer in range(layers)]:
        nats = {
            f"{site}{place}": way.errors[f"{site}{place}"].nats(sensitivities()[f"{site}{place}"])
            for site in sites
        }
        shipped = math.fsum(nats.values())
        rise = math.fsum(way.longer(site) * one for site, one in nats.items())
        found[f"{name}{place}"] = rise, rise / shipped if shipped > 0.0 else 1.0
    return found


def machines(system: System, ways: Sequence[_Way]) -> dict[str, list[Choice]]:
    """Return the choices of a GPU with light beside it, of the GPU alone, and of light alone.

    Notes
    -----
    Every machine pays the static power of all that it has, and of its server, while any of it works.
    """
    gpu = _gpu_alone(system)
    node = system.node()
    light, shared_w = node.units[0], node.memory.static_w + system.host.static_w
    kept = {
        BOTH: (ways, gpu.units[0].static_w + light.static_w),
        f"{system.gpu.name} alone": ([one for one in ways if not one.light], gpu.units[0].static_w),
        "light alone": ([one for one in ways if one.light], light.static_w),
    }
    return {
        name: choices_of(
            some, static_w=static_w + shared_w, accelerators=system.accelerators, at_mains=node.at_mains
        )
        for name, (some, static_w) in kept.items()
    }


@dataclass(frozen=True, kw_only=True)
class Splits(Result):
    """Cheapest split of a model's products between a GPU and light."""

    system: System
    """The photonic system; its GPU stands beside the cores."""
    model: str
    """Whose products."""
    plan: Plan
    """How its step is divided."""
    asked: tuple[str, ...]
    """Words that ask for the same system and model on the command line."""
    tokens: float
    """Tokens of a step."""
    objective: Objective
    """What is kept least."""
    choices: tuple[Choice, ...]
    """Every way of every group."""
    best: Split
    """Under the budget that was asked for."""
    front: tuple[Split, ...]
    """Under all budgets that can be met, smallest first."""
    rivals: Mapping[str, tuple[Choice, ...]]
    """Choices of the GPU without light, and of light without the GPU."""
    executed: tuple[Row, ...] = ()
    """Splits executed on the model that ships, with what was predicted."""

    def _unit(self, value: float) -> str:
        if self.objective is Objective.TIME:
            return format_si(value, "s")
        return format_si(value / self.tokens, "J")

    def report(self) -> list[Block]:
        """Return the split, what it saves, and the price of precision."""
        ways = list(dict.fromkeys(one.way for one in self.choices))
        shares: dict[tuple[str, Phase], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one, share in self.best.taken:
            shares[one.kind, one.phase][one.way] += share
        used = [way for way in ways if any(counted[way] > SLACK for counted in shares.values())]
        rows = [
            ReportRow(
                kind if phase is Phase.FORWARD else f"  {phase}",
                tuple(f"{counted[way] / math.fsum(counted.values()):.0%}" for way in used),
            )
            for kind, phase in itertools.product(_GROUPS, Phase)
            if (counted := shares.get((kind, phase)))
        ]
        of = "joules a token" if self.objective is Objective.ENERGY else "seconds a step"
        table = ReportTable(f"Products of {self.model} on {self.system.name} with its GPU", used, rows)
        asked = (
            f"Cheapest in {of} under a budget of {self.best.budget_nats:g} nats a byte; shares of the depth."
        )
        return [table, asked, *self._told(), *self._checked()]

    def within(self) -> dict[str, Split]:
        """Return the cheapest splits of one unit alone under the budget, of those that can meet it."""
        found = {}
        for name, choices in self.rivals.items():
            try:
                found[name] = cheapest(choices, self.best.budget_nats, self.objective)
            except HeliographError:
                continue
        return found

    def _told(self) -> list[str]:
        best, alone = self.best.total(self.objective), self.within()
        costs = {name: self._unit(one.total(self.objective)) for name, one in alone.items()}
        others = ", ".join(f"{name} {costs.get(name, 'misses the budget')}" for name in self.rivals)
        least = min((one.total(self.objective) for one in alone.values()), default=math.inf)
        if self.best.light_share == 0.0 or best >= least:
            name = next(name for name, one in alone.items() if one.total(self.objective) == least)
            answer = f"{name.capitalize()} is cheaper than any split."
        else:
            share, saved = self.best.light_share, 1.0 - best / least
            answer = f"Light takes {share:.0%} of the products' time. The split saves {saved:.0%}."
        price = self.best.price / (1.0 if self.objective is Objective.TIME else self.tokens)
        bit = 0.75 * math.fsum(one.rise_nats * share for one, share in self.best.taken if one.light) * price
        unit = "s" if self.objective is Objective.TIME else "J"
        binds = (
            f"Price of precision: {format_si(price, unit)} a nat; one bit more in all light is worth "
            f"{format_si(bit, unit)}."
            if price > 0.0
            else "The budget does not bind: precision is free here."
        )
        rise = (
            f"The split costs the GPT that ships {self.best.shipped_nats:.2g} nats a byte, and "
            f"{self.best.rise_nats:.2g} with sums as long as those of {self.model}."
        )
        gradients = self._gradients_told()
        gpu_w, light_w = self.system.gpu.chip.tdp_w, self.system.accelerator_peak_w()
        both = f"Its accelerators hold both, {gpu_w:.0f} W of GPU and {light_w:.0f} W of light, in turns."
        told = [f"{answer} Split: {self._unit(best)}; {others}.", f"{binds} {rise}", gradients, both]
        if not self.settings():
            return told
        beside = self._beside()
        words = shlex.join(self.step())
        return [*told, f"As a step, with all rescues in light and {beside} beside it: heliograph {words}"]

    def _beside(self) -> Precision:
        """Return the format that most of the time of products beside light is spent in."""
        spent: dict[str, float] = defaultdict(float)
        for one, share in self.best.taken:
            if not one.light:
                spent[one.way] += share * one.time_s
        return Precision(max(spent, key=lambda way: spent[way])) if spent else self.plan.precision.kind

    def step(self) -> list[str]:
        """Return the words that run the split as one step; see `settings`."""
        plan = replace(self.plan, precision=replace(self.plan.precision, kind=self._beside()))
        words = ["step", *self.asked, "--plan", plan_text(plan)]
        return words + [word for one in self.settings() for word in ("--set", one)]

    def _gradients_told(self) -> str:
        """Return how noise in gradients is charged, and whether its price is told from chance."""
        prices = [
            f"{band.middle:.2g} ({band.low:.2g} to {band.high:.2g}) in {phase}"
            for phase, band in gradient_prices().items()
        ]
        chance = [str(phase) for phase, band in gradient_prices().items() if band.low <= 0.0]
        told = f" Not told from chance: {', '.join(chance)}." if chance else ""
        return (
            f"Of that {self.best.gradient_nats:.2g} by noise in gradients, charged the upper ends of what "
            f"trainings of small models tell, nats a unit of noise over signal: {', '.join(prices)}.{told}"
        )

    def _checked(self) -> list[Block]:
        if not self.executed:
            return []
        rows = [
            ReportRow(
                str(one["split"]),
                (
                    f"{one['counted_nats']:.4f}",
                    f"{one['predicted_nats']:.4f}",
                    f"{one['by_own_errors_nats']:.4f}",
                    f"{one['executed_nats']:.4f} \u00b1 {one['standard_error_nats']:.4f}",
                ),
            )
            for one in self.executed
        ]
        return [
            ReportTable(
                "Forward products executed on the model that ships, nats a byte",
                ("counted", "predicted, each alone", "by its own errors", "executed"),
                rows,
            )
        ]

    def policy(self) -> dict[str, Any]:
        """Return the split as `optical.conversion.Policy` takes it, one way for each kind and layer.

        Notes
        -----
        A policy tells forward products apart; gradients in light stand under ``laser`` beside them.
        """
        electronic = [one for one in _forward(self.best.whole) if not one.light]
        return {
            "electronic": sorted(pattern for one in electronic for pattern in _patterns(one.group)),
            "laser": {one.group: one.way for one in self.best.whole if one.light},
            "step": list(self.settings()),
            "command": self.step() if self.settings() else [],
        }

    def settings(self) -> tuple[str, ...]:
        """Return the split as ``heliograph step --set`` takes it; nothing where no product is in light.

        Notes
        -----
        Shares of the depth are kept. A system has one laser: that of the brightest choice, so that no
        product is noisier than it was split for, and its core keeps all rescues.
        """
        lit = [one for one, _ in self.best.taken if one.light]
        if not lit:
            return ()
        shares: dict[tuple[str, Phase], dict[bool, float]] = defaultdict(lambda: defaultdict(float))
        for one, share in self.best.taken:
            shares[one.kind, one.phase][one.light] += share
        found = [f"{LASER}={max(one.laser_w for one in lit):.6g}"]
        for kind in Kind:
            for phase in dataclasses.fields(PhaseShares if kind is not Kind.ATTENTION else InputShares):
                group = str(kind) if kind is Kind.ATTENTION else _SITES[kind].group
                counted = shares[group, Phase(phase.name)]
                whole = counted[True] + counted[False]
                found.append(f"light.{kind}.{phase.name}={counted[True] / whole if whole else 0.0:.6g}")
        return tuple(found)

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
            "alone": {name: one.total(self.objective) for name, one in self.within().items()},
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
        """Return a row for each choice with its share."""
        shares = {(one.group, one.way): share for one, share in self.best.taken}
        return [
            {
                "group": one.group,
                "way": one.way,
                "light": one.light,
                "energy_j": one.energy_j,
                "time_s": one.time_s,
                "rise_nats": one.rise_nats,
                "longer": one.longer,
                "share": shares.get((one.group, one.way), 0.0),
            }
            for one in self.choices
        ]

    def figure(self) -> Figure:
        """Return cost over budget, and how much of the time is in light."""
        scale = self.tokens if self.objective is Objective.ENERGY else 1.0
        figure = new_figure(3.6)
        cost, share = figure.subplots(1, 2)
        lines = {BOTH: self.front} | {
            name: front_of(choices, self.objective) for name, choices in self.rivals.items()
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


def _patterns(group: str) -> list[str]:
    """Return the names of a group's products in the GPT that ships."""
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
        ways, specs = ways_of(bright, config, plan)
        kept = machines(bright, ways)
        trial = Trial.of(specs, progress) if self.execute else None
        if trial is not None:
            kept = trial.settled(kept, self.budget, self.objective)
        choices = kept[BOTH]
        best = cheapest(choices, self.budget, self.objective)
        result = Splits(
            system=bright,
            model=config.name,
            plan=plan,
            asked=(
                *("--system", self.system, "--model", self.workload.model),
                *command_line(replace(self.hardware, precision_target=None)),
            ),
            tokens=float(plan.batch.global_batch * plan.batch.sequence_length),
            objective=self.objective,
            choices=tuple(choices),
            best=best,
            front=tuple(front_of(choices, self.objective)),
            rivals={name: tuple(some) for name, some in kept.items() if name != BOTH},
        )
        if trial is None:
            return result
        return replace(result, executed=trial.executed(best, choices, self.objective))


def front_of(choices: Sequence[Choice], objective: Objective) -> list[Split]:
    """Return the cheapest split for each budget that can be met."""
    found = []
    for budget in BUDGETS:
        try:
            found.append(cheapest(choices, budget, objective))
        except HeliographError:
            continue
    return found


NEIGHBOURS = 3
"""Neighbours of the best split that are executed, those that save most; a choice."""
WINDOWS, DRAWS = 24, 3
"""Windows of text and draws of the noise on which a split is judged; choices."""


def neighbours(
    split: Iterable[Choice], choices: Iterable[Choice], objective: Objective
) -> list[tuple[Choice, ...]]:
    """Return splits with one group run another way, the cheapest first."""
    whole = {one.group: one for one in split}
    found = [tuple((whole | {one.group: one}).values()) for one in choices if whole[one.group].way != one.way]
    return sorted(found, key=lambda some: math.fsum(one.cost(objective) for one in some))


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """Forward products executed on the model that ships.

    Notes
    -----
    A split counts the errors of single products times what such errors cost. Executed, each product that a
    split takes is run alone, through the core's own errors and at its own power, and the programme is solved
    anew with what it costs, until it takes no other: the sum of these is its prediction, and all products at
    once are its check.
    """

    bench: Bench
    """The model."""
    specs: Mapping[str, AnalogSpec]
    """What executes each way in light."""
    progress: Progress
    """Told what is executed."""
    alone: dict[tuple[str, str], float] = field(default_factory=dict)
    """Rise of the loss by group and way, nobody else erring. Grows."""
    counted: dict[tuple[str, str], float] = field(default_factory=dict)
    """What it was counted as. Grows."""

    @classmethod
    def of(cls, specs: Mapping[str, AnalogSpec], progress: Progress) -> Trial:
        """Return the model that ships, of which nothing is measured yet."""
        from experiments.accuracy.prediction import learnt_bench  # noqa: PLC0415 - torch, only to execute

        return cls(bench=learnt_bench(windows=WINDOWS), specs=specs, progress=progress)

    def measured(self, one: Choice) -> Choice:
        """Return a choice of a forward product with what it costs executed alone."""
        key = one.group, one.way
        if key not in self.alone:
            self.progress(f"executing {one.group} on {one.way} alone", len(self.alone), len(self.alone) + 1)
            rises = self.bench.rises(_numerics([one], self.specs), DRAWS if one.light else 1)
            self.counted[key] = one.shipped_nats
            self.alone[key] = max(0.0, float(np.mean(rises)))
        return self._known(one)

    def settled(
        self, kept: Mapping[str, Sequence[Choice]], budget_nats: float, objective: Objective
    ) -> dict[str, list[Choice]]:
        """Return the choices of each machine, all that the cheapest split of both takes measured."""
        found = {name: list(some) for name, some in kept.items()}
        while True:
            best = cheapest(found[BOTH], budget_nats, objective)
            taken = _forward(one for one, _ in best.taken)
            if all((one.group, one.way) in self.alone for one in taken):
                return found
            for one in taken:
                self.measured(one)
            found = {name: [self._known(one) for one in some] for name, some in found.items()}

    def _known(self, one: Choice) -> Choice:
        alone = self.alone.get((one.group, one.way), one.shipped_nats)
        return replace(one, rise_nats=alone * one.longer)

    def executed(self, best: Split, choices: Sequence[Choice], objective: Objective) -> tuple[Row, ...]:
        """Return what the best split and its cheapest neighbours cost, all their forward products at once."""
        whole = _forward(best.whole)
        tried = {"best": whole}
        for some in neighbours(whole, _forward(choices), objective)[:NEIGHBOURS]:
            moved = next(b for a, b in zip(whole, some, strict=True) if a != b)
            tried[f"{moved.group} on {moved.way}"] = tuple(self.measured(one) for one in some)
        return tuple(self._row(name, split) for name, split in tried.items())

    def _row(self, name: str, split: tuple[Choice, ...]) -> Row:
        self.progress(f"executing: {name}", len(self.alone), len(self.alone) + 1)
        found = self.bench.executed([_numerics(split, self.specs)] * DRAWS)
        rises = [(one + other) / 2.0 for one, other in zip(found["drawn"], found["mirrored"], strict=True)]
        return {
            "split": name,
            "counted_nats": math.fsum(self.counted[one.group, one.way] for one in split),
            "predicted_nats": math.fsum(one.shipped_nats for one in split),
            "by_own_errors_nats": math.fsum(found["modelled"]) / DRAWS,
            "executed_nats": math.fsum(rises) / DRAWS,
            "standard_error_nats": float(np.std(rises, ddof=1)) / math.sqrt(DRAWS),
            "executed_one_way_nats": math.fsum(found["drawn"]) / DRAWS,
        }


def _numerics(split: Iterable[Choice], specs: Mapping[str, AnalogSpec]) -> dict[str, Numerics]:
    """Return what executes each product of the model that ships."""
    return {site: _runs(one.way, specs.get(one.way), site) for one in split for site in _patterns(one.group)}


def _runs(way: str, spec: AnalogSpec | None, site: str) -> Numerics:
    """Return what executes a product: light by its specification, or the GPU, attention and head in bf16."""
    from electronic.numerics import BfloatNumerics, float8_passes  # noqa: PLC0415 - torch, only to execute
    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch, only to execute

    if spec is not None:
        return AnalogNumerics(spec)
    where, phase = _site_and_phase(site)
    if way != Precision.FP8 or where.fused or where is Site.HEAD:
        return BfloatNumerics()
    forward, grad_input, grad_weight = float8_passes()
    return {Phase.GRAD_INPUT: grad_input, Phase.GRAD_WEIGHT: grad_weight}.get(phase, forward)

"""Catalogue: known names of systems and parts, and their parameters with unit, range and source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from electronic.devices import host_names, load_host
from electronic.gpu import gpu_names, load_gpu, load_vector, vector_names
from heliograph.parameters import CHOICE, Parameter, parameter_of, parameters_of, tables
from heliograph.report import Tabular
from heliograph.simulation import StepResult
from heliograph.systems.fabrics import FABRIC_GROUP, FABRICS, build_fabric, check_fabric
from heliograph.systems.names import SYSTEMS, is_system
from heliograph.systems.parts import parts_listing
from heliograph.systems.system import System, build_system
from heliograph.workload import MODEL_GROUP, model_named
from optical.cores import CORE_GROUP, CORES, load_core
from optical.cores.registry import unanswered
from simulator.errors import ParameterError, is_number, nearest, told
from simulator.fabric import Fabric, missing_members
from simulator.parameter_tree import shown_paths
from simulator.plugins import bring_in, from_outside, is_reference, offered
from workloads.models.architecture import TransformerConfig
from workloads.models.config import known_models
from workloads.plan.keys import described_keys

ACCELERATORS = 1024
"""Endpoints of a fabric whose parameters are shown by its name."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Description(Tabular):
    """Parameters of a system or part."""

    name: str
    """Name of the system or part."""
    parameters: tuple[Parameter, ...]
    """Its parameters, in the order of its fields."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each parameter: path, value in SI, unit, status, source, ends of its range."""
        return [dataclasses.asdict(one) for one in self.parameters]

    def __repr__(self) -> str:
        """Return a line for each parameter."""
        return "\n".join(parameter_lines(self.parameters))

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the parameters, each with value, range, status and source."""
        written = shown_paths(one.path for one in self.parameters)
        lines = [(written[one.path], parameter_text(one)) for one in self.parameters]
        return [(self.name, f"{len(lines)} parameters"), *lines]


def show(thing: object) -> Description:
    """Return every parameter of a system or part with unit, range, status and source.

    Parameters
    ----------
    thing : str or dataclass
        A system, core, fabric, accelerator, host, device or model, or its name. For a `StepResult`, the
        parameters are those of the system that was run.

    Raises
    ------
    ParameterError
        If the name is unknown, or the object has no parameters.
    """
    if isinstance(thing, str):
        return Description(name=thing, parameters=tuple(description(thing)))
    if isinstance(thing, TransformerConfig):
        return Description(name=thing.name, parameters=tuple(_model_parameters(thing)))
    described = thing.system if isinstance(thing, StepResult) else thing
    if not dataclasses.is_dataclass(described) or isinstance(described, type):
        msg = f"show takes a name, or a system, core, fabric, device or model; got {told(thing)}"
        raise ParameterError(msg)
    name = str(getattr(described, "name", type(described).__name__))
    if isinstance(described, System):
        found = _system_parameters(described)
    elif not missing_members(described):
        found = _fabric_parameters(cast("Fabric", described))
    else:
        found = parameters_of(described)
    return Description(name=name, parameters=tuple(found))


def parameter_lines(parameters: Sequence[Parameter]) -> list[str]:
    """Return one line per parameter: path, value with unit, range, status, source."""
    written = shown_paths(one.path for one in parameters)
    width = max(map(len, written.values()), default=0)
    return [f"{written[one.path]:<{width}}  {parameter_text(one)}" for one in parameters]


def parameter_text(one: Parameter) -> str:
    """Return a parameter's value with unit, range, status and source."""
    value = one.value if isinstance(one.value, str) else f"{one.value:.6g}"
    unit = "" if one.unit == "1" else f" {one.unit}"
    ends = "" if one.low is None and one.high is None else f" [{_end(one.low)}, {_end(one.high)}]"
    return f"{value}{unit}{ends}  ({one.status}: {one.source})"


def _end(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _reduction(fabric: Fabric, path: str) -> list[Parameter]:
    """Return the effective bits of gradients that a fabric adds optically; none for other fabrics."""
    bits = fabric.traits.reduction_bits
    if bits is None:
        return []
    nodes = fabric.endpoints // fabric.node_size
    source = f"mean over {nodes} nodes: laser, losses and noise of the unit"
    return [Parameter(path=path, value=bits, unit="1", status="derived", source=source)]


def _open_choices(fabric: Fabric, prefix: str) -> list[Parameter]:
    """Return the choices of a fabric that were left open, and so follow from its parts or a step's plan."""
    if not dataclasses.is_dataclass(fabric):
        return []
    source = "not chosen: follows from the fabric's parts or the plan"
    return [
        Parameter(path=f"{prefix}{item.name}", value="open", unit="1", status=CHOICE, source=source)
        for item in dataclasses.fields(fabric)
        if getattr(fabric, item.name) is None
    ]


def _fabric_parameters(fabric: Fabric) -> list[Parameter]:
    return parameters_of(fabric) + _open_choices(fabric, "") + _reduction(fabric, "effective_bits")


def _system_parameters(system: System) -> list[Parameter]:
    more = _open_choices(system.fabric, "fabric.") + _reduction(system.fabric, "fabric.effective_bits")
    return parameters_of(system) + more


def listing(what: str) -> dict[str, str]:
    """Return the known names of a kind (a key of `LISTINGS`), each with a line of description.

    Raises
    ------
    ParameterError
        If there is no such kind.
    """
    if what not in LISTINGS:
        msg = f"nothing called '{what}' to list; {nearest(what, LISTINGS, noun='kind')}"
        raise ParameterError(msg)
    return LISTINGS[what]()


def _systems() -> dict[str, str]:
    return {name: kind.summary for name, kind in SYSTEMS.items()}


def _models() -> dict[str, str]:
    failed = bring_in(MODEL_GROUP, model_named)
    models = {name: model_named(name) for name in known_models()}
    return failed | {
        name: f"{model.parameters:,} parameters, {model.layers} layers of width {model.hidden}"
        for name, model in models.items()
    }


def _cores() -> dict[str, str]:
    failed = bring_in(CORE_GROUP, load_core)
    return {name: kind.summary for name, kind in CORES.items()} | failed


def _fabrics() -> dict[str, str]:
    failed = bring_in(FABRIC_GROUP, check_fabric)
    return {name: kind.summary for name, kind in FABRICS.items()} | failed


def _devices() -> dict[str, str]:
    return {
        name: f"{table.path.parent.parent.name}/{table.path.name}, {len(table.of(name))} parameters"
        for table in tables()
        for name in table.names
    }


def _plan() -> dict[str, str]:
    return {one.name: f"{one.takes}; default {one.usual}. {one.meaning}" for one in described_keys()}


LISTINGS: Mapping[str, Callable[[], dict[str, str]]] = MappingProxyType(
    {
        "systems": _systems,
        "models": _models,
        "cores": _cores,
        "fabrics": _fabrics,
        "devices": _devices,
        "parts": parts_listing,
        "plan": _plan,
    }
)
"""Functions that list the known names, by kind."""


def description(name: str) -> list[Parameter]:
    """Return every parameter of the system, core, fabric, accelerator, host, device or model of a name.

    Raises
    ------
    ParameterError
        If the name is unknown.
    """
    makers: dict[str, Callable[[], list[Parameter]]] = {
        **dict.fromkeys(offered(CORE_GROUP), lambda: parameters_of(load_core(name))),
        **dict.fromkeys(offered(FABRIC_GROUP), lambda: _shown_fabric(name)),
        **dict.fromkeys(offered(MODEL_GROUP), lambda: _model_parameters(model_named(name))),
        **dict.fromkeys(SYSTEMS, lambda: _system_parameters(build_system(name))),
        **dict.fromkeys(CORES, lambda: parameters_of(load_core(name))),
        **dict.fromkeys(FABRICS, lambda: _shown_fabric(name)),
        **dict.fromkeys(gpu_names(), lambda: parameters_of(load_gpu(name))),
        **dict.fromkeys(vector_names(), lambda: parameters_of(load_vector(name))),
        **dict.fromkeys(host_names(), lambda: parameters_of(load_host(name))),
        **dict.fromkeys(known_models(), lambda: _model_parameters(model_named(name))),
    }
    if name in makers:
        return makers[name]()
    if is_system(name):
        return _system_parameters(build_system(name))
    if is_reference(name):
        lacking = unanswered(from_outside(CORE_GROUP, name))
        if 2 * len(lacking) < len(unanswered(None)):
            return parameters_of(load_core(name))
        return _shown_fabric(name)
    if name.endswith(".json"):
        return _model_parameters(model_named(name))
    for table in tables():
        if name in table.names:
            return [
                parameter_of(f"{row.name}.{row.parameter}", row.parameter, row.value, row)
                for row in table.of(name)
            ]
    known = {*makers, *(one for table in tables() for one in table.names)}
    msg = f"nothing is called '{name}'; {nearest(name, known)}"
    raise ParameterError(msg)


def _shown_fabric(name: str) -> list[Parameter]:
    return _fabric_parameters(build_fabric(name, ACCELERATORS, "h100"))


def _model_parameters(model: TransformerConfig) -> list[Parameter]:
    source = "config.json of the model"
    found = [
        Parameter(
            path=item.name,
            value=_shown(getattr(model, item.name)),
            unit="1",
            status="published",
            source=source,
        )
        for item in dataclasses.fields(model)
    ]
    total = Parameter(path="parameters", value=model.parameters, unit="1", status="derived", source="counted")
    return [*found, total]


def _shown(value: object) -> float | str:
    return value if is_number(value) else str(value)

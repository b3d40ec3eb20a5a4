"""Names to choose from, and every parameter of what has a name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from electronic.gpu import gpu_names, load_gpu
from electronic.hosts import host_names, load_host
from electronic.vector import load_vector, vector_names
from heliograph.fabrics import FABRICS, build_fabric
from heliograph.parameters import Parameter, parameters_of, tables
from heliograph.parts import parts_listing
from heliograph.systems import SYSTEMS, build_system
from optical.cores import CORES, load_core
from simulator.errors import ParameterError, nearest
from simulator.fabric import Fabric
from simulator.tables import Row
from simulator.units import dimension_of
from workloads.models.config import load_model, shipped_models

ACCELERATORS = 1024
"""Size at which a fabric is shown."""


def _reduction(fabric: Fabric, path: str) -> list[Parameter]:
    """Return the effective bits of gradients where a fabric adds them in light, or nothing."""
    bits = fabric.traits.reduction_bits
    if bits is None:
        return []
    nodes = fabric.endpoints // fabric.node_size
    source = f"mean over {nodes} nodes: laser, losses and noise of the unit"
    return [Parameter(path=path, value=bits, unit="1", status="derived", source=source)]


def _fabric_parameters(name: str) -> list[Parameter]:
    fabric = build_fabric(name, ACCELERATORS, "h100")
    return parameters_of(fabric) + _reduction(fabric, "effective_bits")


def _system_parameters(name: str) -> list[Parameter]:
    system = build_system(name)
    return parameters_of(system) + _reduction(system.fabric, "fabric.effective_bits")


def listing(what: str) -> dict[str, str]:
    """Return the names of a kind with one line on each.

    Raises
    ------
    ParameterError
        If there is no such kind.
    """
    match what:
        case "systems":
            return dict(SYSTEMS)
        case "models":
            models = {name: load_model(name) for name in shipped_models()}
            return {
                name: f"{model.parameters:,} parameters, {model.layers} layers of width {model.hidden}"
                for name, model in models.items()
            }
        case "cores":
            return {name: kind.summary for name, kind in CORES.items()}
        case "fabrics":
            return {name: kind.summary for name, kind in FABRICS.items()}
        case "devices":
            return {
                name: f"{table.path.parent.parent.name}/{table.path.name}, {len(table.of(name))} parameters"
                for table in tables()
                for name in table.names
            }
        case "parts":
            return parts_listing()
        case _:
            kinds = ("systems", "models", "cores", "fabrics", "devices", "parts")
            msg = f"nothing called '{what}' to list; {nearest(what, kinds, noun='kind')}"
            raise ParameterError(msg)


def description(name: str) -> list[Parameter]:
    """Return every parameter of a system, core, fabric, accelerator, host, device or model.

    Raises
    ------
    ParameterError
        If nothing has that name.
    """
    makers: dict[str, Callable[[], list[Parameter]]] = {
        **{one: lambda: _system_parameters(name) for one in SYSTEMS},
        **{one: lambda: parameters_of(load_core(name)) for one in CORES},
        **{one: lambda: _fabric_parameters(name) for one in FABRICS},
        **{one: lambda: parameters_of(load_gpu(name)) for one in gpu_names()},
        **{one: lambda: parameters_of(load_vector(name)) for one in vector_names()},
        **{one: lambda: parameters_of(load_host(name)) for one in host_names()},
        **{one: lambda: _model_parameters(name) for one in shipped_models()},
    }
    if name in makers:
        return makers[name]()
    if name.endswith(".toml") or re.split("[:@]", name)[0] in SYSTEMS:
        return _system_parameters(name)
    if name.endswith(".json"):
        return _model_parameters(name)
    for table in tables():
        if name in table.names:
            return [_of_row(row) for row in table.of(name)]
    known = {*makers, *(one for table in tables() for one in table.names)}
    msg = f"nothing is called '{name}'; {nearest(name, known)}"
    raise ParameterError(msg)


def _of_row(row: Row) -> Parameter:
    dimension = dimension_of(row.parameter)
    return Parameter(
        path=f"{row.name}.{row.parameter}",
        value=row.value,
        unit=dimension[1] if dimension else "1",
        status=str(row.status),
        source=row.source,
        low=row.low,
        high=row.high,
    )


def _model_parameters(name: str) -> list[Parameter]:
    model = load_model(name)
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
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

"""Heliograph: training of transformers in light and on optical networks, simulated beside GPUs and packets.

>>> import heliograph as hg
>>> system = hg.system("photonic_packet", accelerators=64)
>>> result = hg.simulate(system.with_(laser_power_w="20 mW"), "llama-3-8b", "tp=8,dp=8,global_batch=64")

`systems` are hardware by name (`parameters` every number of it, `catalogue` shows them), `workload` models
and plans; `simulation` runs one step, `comparison` several systems and the search for their plans, `sweeps`
many points, `accuracy` says what noise costs, `core_laws` what every core keeps. `report`, `tables`,
`figures` and `report_page` show results, `records` keep them, `processes` run jobs side by side.

Names are loaded when they are first used (PEP 562), so that the import is quick and brings neither torch
nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from heliograph._version import __version__

if TYPE_CHECKING:
    from heliograph.catalogue import Description, show
    from heliograph.comparison.comparison import Comparison, compare
    from heliograph.comparison.search import Search, search
    from heliograph.simulation import StepResult, simulate
    from heliograph.sweeps.points import sweep
    from heliograph.sweeps.running import Grid
    from heliograph.systems.fabrics import register_fabric
    from heliograph.systems.system import System, system
    from heliograph.workload import model, plan
    from optical.conversion.convert import convert
    from optical.cores.registry import register_core
    from simulator.errors import HeliographError
    from workloads.models.config import register_model
    from workloads.pipeline.schedule import register_schedule

_HOMES = {
    "Comparison": "heliograph.comparison.comparison",
    "Description": "heliograph.catalogue",
    "Grid": "heliograph.sweeps.running",
    "HeliographError": "simulator.errors",
    "Search": "heliograph.comparison.search",
    "StepResult": "heliograph.simulation",
    "System": "heliograph.systems.system",
    "compare": "heliograph.comparison.comparison",
    "convert": "optical.conversion.convert",
    "model": "heliograph.workload",
    "plan": "heliograph.workload",
    "register_core": "optical.cores.registry",
    "register_fabric": "heliograph.systems.fabrics",
    "register_model": "workloads.models.config",
    "register_schedule": "workloads.pipeline.schedule",
    "search": "heliograph.comparison.search",
    "show": "heliograph.catalogue",
    "simulate": "heliograph.simulation",
    "sweep": "heliograph.sweeps.points",
    "system": "heliograph.systems.system",
}
"""Module of each name; none of them has the name of a module of this package."""

__all__ = [
    "Comparison",
    "Description",
    "Grid",
    "HeliographError",
    "Search",
    "StepResult",
    "System",
    "__version__",
    "compare",
    "convert",
    "model",
    "plan",
    "register_core",
    "register_fabric",
    "register_model",
    "register_schedule",
    "search",
    "show",
    "simulate",
    "sweep",
    "system",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        msg = f"module 'heliograph' has no attribute '{name}'"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__

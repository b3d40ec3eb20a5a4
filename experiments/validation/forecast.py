"""The predicted time of one step; long runs of microbatches are simulated in part and continued."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from heliograph.systems import System
from simulator.engine.simulation import Simulation
from simulator.results.metrics import summarise
from simulator.results.trace import PRODUCTS
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan
from workloads.step.step import build_step

MOST_PASSES = 300
"""Passes of microbatches through stages beyond which a step is simulated in part; a choice of speed."""
LEAST_MICROBATCHES = 4
"""Fewest microbatches of a part."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A predicted step."""

    step_time_s: float
    """Time of the step."""
    parts_s: dict[str, float]
    """The same by what it went to, mean over ranks."""

    @property
    def hint(self) -> str:
        """Where the time goes beside products, in words."""
        others = {name: seconds for name, seconds in self.parts_s.items() if name != PRODUCTS}
        if not others:
            return ""
        worst = max(others, key=lambda name: others[name])
        products = self.parts_s.get(PRODUCTS, 0.0) / self.step_time_s
        return f"{PRODUCTS} {products:.0%}, {worst} {others[worst] / self.step_time_s:.0%}"


def forecast(system: System, config: TransformerConfig, plan: Plan) -> Forecast:
    """Return the predicted step, whether or not the memory would hold it.

    Parameters
    ----------
    system : System
        The hardware.
    config : TransformerConfig
        The model.
    plan : Plan
        How it is spread.

    Notes
    -----
    Once its pipeline is full, a step is periodic: every further microbatch (or round of them, where stages
    are interleaved) takes as long as the one before. Steps of more than `MOST_PASSES` passes are therefore
    run with so few microbatches that the pipeline just fills, and with twice as many, and continued in a
    straight line. The error is below half a percent (a test holds it); ``heliograph step`` always
    runs the whole.
    """
    filled = plan.axes.pp * -(-LEAST_MICROBATCHES // plan.axes.pp)
    if plan.microbatches <= 2 * filled or plan.microbatches * plan.axes.pp * plan.schedule.vpp <= MOST_PASSES:
        return _run(system, config, plan)
    short, long = (
        _run(system, config, plan.with_(global_batch=count * plan.axes.dp * plan.batch.micro_batch))
        for count in (filled, 2 * filled)
    )
    rounds = plan.microbatches / filled - 1.0
    names = short.parts_s | long.parts_s
    return Forecast(
        step_time_s=_continued(short.step_time_s, long.step_time_s, rounds),
        parts_s={
            name: _continued(short.parts_s.get(name, 0.0), long.parts_s.get(name, 0.0), rounds)
            for name in names
        },
    )


def _continued(short: float, long: float, rounds: float) -> float:
    return short + (long - short) * rounds


@lru_cache(maxsize=512)
def _run(system: System, config: TransformerConfig, plan: Plan) -> Forecast:
    node = system.node()
    graph = build_step(config, plan)
    trace = Simulation(graph, node, system.fabric).run()
    metrics = summarise(trace, graph, node, system.fabric)
    return Forecast(step_time_s=metrics.step_time_s, parts_s=metrics.time_by_category_s)

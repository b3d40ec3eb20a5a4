"""Step time against the time that circuits take to move: where switching within the step stops to pay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.step import plan_text, run_step
from experiments.systems import System
from heliograph.errors import ParameterError, RouteError
from optical.circuits import CircuitPolicy
from optical.fabrics import OcsRails
from optical.switches import OpticalSwitch, load_switch, switch_names
from workloads.architecture import TransformerConfig
from workloads.plan import Parallelism

SHORTEST_S = 1e-9
"""Shortest reconfiguration that is run."""
LONGEST_S = 0.1
"""Longest reconfiguration that is run."""
POINTS = 17
"""Reconfiguration times of a line where nobody says how many: two a decade."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """Step times of one plan."""

    name: str
    """Model and plan."""
    moving_s: np.ndarray
    """Step time where circuits move within the step, shape [points]."""
    static_s: float
    """Step time where they never move; infinite where the lanes do not serve all peers at once."""
    packet_s: float
    """Step time on the packet fabric."""

    def breakeven_s(self, delay_s: np.ndarray, baseline_s: float) -> float:
        """Return the reconfiguration time at which moving circuits cost as much as a baseline.

        Parameters
        ----------
        delay_s : numpy.ndarray
            Reconfiguration times, rising, shape [points].
        baseline_s : float
            Step time of the baseline.

        Returns
        -------
        float
            Straight between points in step time and in time; infinite if circuits still win at the longest,
            not a number if they lose at the shortest.
        """
        late = np.flatnonzero(self.moving_s > baseline_s)
        if not late.size:
            return float("inf")
        after = int(late[0])
        if after == 0:
            return float("nan")
        low, high = self.moving_s[after - 1], self.moving_s[after]
        share = (baseline_s - low) / (high - low)
        return float(delay_s[after - 1] + share * (delay_s[after] - delay_s[after - 1]))

    def record(self, delay_s: np.ndarray) -> dict[str, Any]:
        """Return the line as plain data."""
        return {
            "plan": self.name,
            "moving_s": self.moving_s.tolist(),
            "static_s": self.static_s,
            "packet_s": self.packet_s,
            "breakeven_packet_s": self.breakeven_s(delay_s, self.packet_s),
            "breakeven_static_s": self.breakeven_s(delay_s, self.static_s),
        }


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Lines over the same reconfiguration times."""

    delay_s: np.ndarray
    """Reconfiguration times, rising, shape [points]."""
    lines: tuple[Line, ...]
    """One a plan."""
    switches: dict[str, float]
    """Reconfiguration time of every switch technology of the table, in s."""

    def record(self) -> dict[str, Any]:
        """Return the sweep as plain data."""
        return {
            "delay_s": self.delay_s.tolist(),
            "lines": [one.record(self.delay_s) for one in self.lines],
            "switches_s": self.switches,
        }


def technologies() -> dict[str, float]:
    """Return the reconfiguration time of every switch technology of the table."""
    return {name: load_switch(name).reconfiguration_s for name in switch_names()}


def turning_in(switch: OpticalSwitch, delay_s: float) -> OpticalSwitch:
    """Return a switch that takes a given time from command to light, its other numbers kept."""
    return dataclasses.replace(switch, switch_s=delay_s, positions=1, relock_s=0.0, control_s=0.0)


def sweep(
    optical: System,
    packet: System,
    work: Sequence[tuple[TransformerConfig, Parallelism]],
    *,
    points: int = POINTS,
    progress: Progress = lambda *_: None,
) -> Sweep:
    """Run every plan with circuits that move in each of some times, and on packets.

    Parameters
    ----------
    optical, packet : System
        The same accelerators on optical circuits, and on packet switches.
    work : sequence of (TransformerConfig, Parallelism)
        What is run.
    points : int
        Reconfiguration times from 1 ns to 100 ms, evenly on a logarithmic scale.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    ParameterError
        If the system has no circuits, or there are fewer than two points.
    """
    rails = optical.fabric
    if not isinstance(rails, OcsRails):
        msg = f"system '{optical.name}' has no optical circuits ({rails.name}); try photonic_ocs or gpu_ocs"
        raise ParameterError(msg)
    if points < 2:
        msg = f"points ({points}) must be at least 2, for a line"
        raise ParameterError(msg)
    delay_s = np.geomspace(SHORTEST_S, LONGEST_S, points)
    lines = []
    for number, (config, plan) in enumerate(work):
        moving = []
        for place, delay in enumerate(delay_s):
            fabric = dataclasses.replace(rails, switch=turning_in(rails.switch, float(delay)))
            moving.append(_step_s(optical, fabric, CircuitPolicy.PER_AXIS, config, plan))
            progress("reconfiguration times", number * points + place + 1, len(work) * points)
        static_s = _step_s(optical, rails, CircuitPolicy.STATIC, config, plan)
        lines.append(
            Line(
                name=f"{config.name} {plan_text(plan)}",
                moving_s=np.array(moving),
                static_s=static_s,
                packet_s=run_step(packet, config, plan).metrics.step_time_s,
            )
        )
    return Sweep(delay_s=delay_s, lines=tuple(lines), switches=technologies())


def _step_s(
    system: System, fabric: OcsRails, policy: CircuitPolicy, config: TransformerConfig, plan: Parallelism
) -> float:
    """Return the step time, infinite where the lanes cannot serve what must be lit at once."""
    try:
        moved = dataclasses.replace(system, fabric=fabric, circuits=policy)
        return run_step(moved, config, plan).metrics.step_time_s
    except RouteError:
        return float("inf")

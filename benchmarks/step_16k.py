"""Time of simulating a step on 16,384 accelerators, packet fabric and reconfiguring circuits alike.

Run ``python benchmarks/step_16k.py [--accelerators N]``. The ratio compares with the same step on a 64th of
the accelerators (data parallelism shrunk): classes of identical ranks keep it far below 64.
"""

from __future__ import annotations

import argparse
import time

from heliograph.simulation import StepResult, run_step
from heliograph.systems import build_system
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan

MODEL, PLAN = "gpt3-175b", "tp=8,pp=16,dp=128,global_batch=4096,sequence_length=2048"
SMALLER = 64
LIMIT_S = 10.0


def timed(system: str, accelerators: int) -> tuple[float, StepResult]:
    """Return CPU time and result of a step whose data parallelism uses so many accelerators."""
    config, plan = load_model(MODEL), parse_plan(PLAN)
    dp = max(1, accelerators // (plan.axes.ranks // plan.axes.dp))
    plan = plan.with_(dp=dp, global_batch=plan.batch.global_batch * dp // plan.axes.dp)
    built = build_system(system, accelerators=plan.axes.ranks)
    start = time.process_time()
    result = run_step(built, config, plan)
    return time.process_time() - start, result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time to simulate a large step.")
    parser.add_argument("--accelerators", type=int, default=16384, help="default %(default)s")
    accelerators = parser.parse_args().accelerators
    print(f"{MODEL}, {PLAN}, {accelerators} accelerators")
    print("system             step s circuit changes    CPU s to a 64th  of 10 s")
    timed("gpu_packet", accelerators // SMALLER)  # imports and caches are no part of the comparison
    for system in ("gpu_packet", "gpu_ocs", "photonic_ocs"):
        small, _ = timed(system, accelerators // SMALLER)
        cpu, result = timed(system, accelerators)
        print(
            f"{system:16s} {result.metrics.step_time_s:8.3f} {result.trace.reconfigurations:15d} {cpu:8.2f} "
            f"{cpu / small:8.2f}x {cpu / LIMIT_S:7.0%}"
        )


if __name__ == "__main__":
    main()

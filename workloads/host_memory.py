"""Bytes that a plan needs on the hosts of its ranks and on their disks, before anything is launched."""

from __future__ import annotations

import math

from heliograph.errors import WorkloadError
from heliograph.host import Host
from workloads.architecture import TransformerConfig
from workloads.choices import Place
from workloads.memory import GIBIBYTE
from workloads.plan import Parallelism
from workloads.sharding import part_parameters, shared_share, stage_parts, whole_stage
from workloads.updates import optimizer_bytes

STAGED_PARTS = 2
"""Parts of what stays on disk that stand in the host's memory: one in use, one on its way."""


def host_bytes(config: TransformerConfig, plan: Parallelism, stage: int) -> dict[Place, dict[str, float]]:
    """Return what one rank of a stage keeps off its accelerator.

    Parameters
    ----------
    config, plan : TransformerConfig, Parallelism
        A pair that `workloads.rules.check` accepts.
    stage : int
        Pipeline stage, from 0.

    Returns
    -------
    dict
        Bytes by kind, for the host's memory and for its disks.

    Notes
    -----
    Gradients wait on the host for the update; a delayed update reads the last step's while this step's
    arrive. Of what stays on disk the two largest parts stand in memory.
    """
    memory: dict[str, float] = {}
    disk: dict[str, float] = {}
    if not plan.updates_on_host:
        return {Place.HOST: memory, Place.NVME: disk}
    kept = shared_share(plan, part_parameters(config, plan, whole_stage(config, plan, stage)))
    parts = [
        shared_share(plan, part_parameters(config, plan, part)) for part in stage_parts(config, plan, stage)
    ]
    staged = math.fsum(sorted(parts)[-STAGED_PARTS:])
    memory["gradients"] = kept * plan.grad_bytes * (2 if plan.delayed_update else 1)
    for kind, place, each in (
        ("optimizer", plan.optimizer_place, optimizer_bytes(config, plan)),
        ("weights", plan.parameter_place, plan.precision.element_bytes),
    ):
        if place is Place.NVME:
            disk[kind] = kept * each
            memory[f"{kind} in use"] = staged * each
        elif place is Place.HOST:
            memory[kind] = kept * each
    return {Place.HOST: memory, Place.NVME: disk}


def check_host_fits(config: TransformerConfig, plan: Parallelism, host: Host | None) -> None:
    """Check that what a plan moves off its accelerators fits their host, all of whose accelerators do alike.

    Raises
    ------
    WorkloadError
        If there is no host, or naming what is full, by how much, and what to try.
    """
    if host is None:
        msg = f"optimizer_place={plan.optimizer_place} needs a host, and none is described"
        raise WorkloadError(msg)
    rooms = {
        Place.HOST: ("memory", host.ddr.capacity_bytes, "a larger dp, or optimizer_place=nvme"),
        Place.NVME: ("disks", host.storage.capacity_bytes, "a larger dp, or fewer accelerators a host"),
    }
    stages = [host_bytes(config, plan, stage) for stage in range(plan.pp)]
    for place, (name, room, way_out) in rooms.items():
        needed = host.accelerators * max(math.fsum(kinds[place].values()) for kinds in stages)
        if needed > room:
            msg = (
                f"{config.name} does not fit the host's {name}: {host.accelerators} ranks need "
                f"{needed / GIBIBYTE:.1f} GiB of the {room / GIBIBYTE:.1f} GiB of '{host.name}'; "
                f"try {way_out}"
            )
            raise WorkloadError(msg)

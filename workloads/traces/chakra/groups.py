"""Process groups beside a trace: the file that ASTRA-sim takes, or the node in which PyTorch records them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulator.errors import WorkloadError
from simulator.files import read_json
from workloads.traces.chakra.exporting import GROUPS_SUFFIX
from workloads.traces.chakra.nodes import Node


def process_groups(prefix: Path, path: Path | None, *, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group from its file; none if it is not named and not there.

    Parameters
    ----------
    prefix : pathlib.Path
        Beginning of the traces' names, or their directory.
    path : pathlib.Path, optional
        The file.
    ranks : int
        Ranks that there are.

    Raises
    ------
    ParameterError
        If the named file cannot be read.
    WorkloadError
        If a group is no list of different ranks.
    """
    if path is None:
        beside = sorted(prefix.glob("*" + GROUPS_SUFFIX)) if prefix.is_dir() else []
        path = beside[0] if len(beside) == 1 else prefix.with_name(prefix.name + GROUPS_SUFFIX)
        if not path.is_file():
            return {}
    return {name: _members(path.name, name, value, ranks) for name, value in read_json(path).items()}


def recorded_groups(node: Node, *, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups that a metadata node records, as PyTorch writes them: ``['[{"pg_name": ...}]']``."""
    try:
        content = json.loads(node.inputs[0][2:-2])
    except ValueError:
        return {}
    found = {}
    for one in content if isinstance(content, list) else ():
        if isinstance(one, dict) and "pg_name" in one and isinstance(one.get("ranks"), list):
            members = one["ranks"] or list(range(ranks))
            found[str(one["pg_name"])] = _members(
                f"node {node.id} '{node.name}'", one["pg_name"], members, ranks
            )
    return found


def _members(where: str, name: str, value: Any, ranks: int) -> tuple[int, ...]:  # noqa: ANN401 - from JSON
    whole = isinstance(value, list) and all(
        isinstance(one, int) and not isinstance(one, bool) for one in value
    )
    if not whole or not value or len(set(value)) < len(value) or min(value) < 0:
        msg = f"{where}: group '{name}' must be a list of different ranks; got {str(value)[:60]}"
        raise WorkloadError(msg)
    return tuple(value)

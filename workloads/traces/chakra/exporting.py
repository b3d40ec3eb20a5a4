"""A training step as Chakra traces, one file a rank, as ASTRA-sim reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from simulator.engine.replay import Costs
from simulator.errors import ParameterError
from simulator.operators import StepGraph
from workloads.traces.chakra.files import VERSION, write_messages
from workloads.traces.chakra.nodes import Attribute, Form, Node, encode_metadata, encode_node
from workloads.traces.chakra.numbering import Group, Numbering, numbered
from workloads.traces.chakra.program import Call, Entry, Program, SendEnd

GROUPS_SUFFIX = ".comm_groups.json"
"""What the file of process groups is called after the traces' prefix."""


def export_step(
    graph: StepGraph, node: Costs, prefix: Path, *, name: str = "", kernels: bool = False
) -> list[Path]:
    """Write a training step as ``PREFIX.<rank>.et`` and its process groups as ``PREFIX.comm_groups.json``.

    Parameters
    ----------
    graph : StepGraph
        The step.
    node : Costs
        The accelerator whose times are written.
    prefix : pathlib.Path
        Directory and beginning of the names.
    name : str
        What the files say of their origin.
    kernels : bool
        Whether every operator of a run, and every repetition, has a node of its own.

    Returns
    -------
    list of pathlib.Path
        Files written; that of the groups last. ASTRA-sim takes it as ``--comm-group-configuration``. Where
        there are more groups than numbers it is empty, and every trace begins with those of its rank.

    Raises
    ------
    WorkloadError
        If the step has what a Chakra trace cannot say: transfers to and work on the host, parameter servers,
        all-to-alls that send a token once to a node; or a rank is in more groups than can be numbered.
    ParameterError
        If a file cannot be written.
    """
    classes = Program(graph, node, kernels=kernels).classes()
    groups = numbered(_groups(graph, classes))
    head = encode_metadata(VERSION, {"schema": Attribute(Form.STRING, name)} if name else {})
    written = []
    for rank_class, entries in enumerate(classes):
        shared = [None if detail else encode_node(one) for one, detail in entries]
        for place, rank in enumerate(graph.layout.members(rank_class)):
            path = prefix.with_name(f"{prefix.name}.{int(rank)}.et")
            own = _Rank(graph, rank_class, place, groups)
            messages = (
                known if known is not None else encode_node(own.node(one, detail))
                for known, (one, detail) in zip(shared, entries, strict=True)
            )
            told = [] if groups.distinct else [encode_node(groups.node(int(rank)))]
            write_messages(path, head, chain(told, messages))
            written.append(path)
    path = prefix.with_name(prefix.name + GROUPS_SUFFIX)
    try:
        path.write_text(json.dumps(groups.file()) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror or error}); name another place"
        raise ParameterError(msg) from None
    return [*written, path]


def _groups(graph: StepGraph, classes: list[list[Entry]]) -> Iterator[Group]:
    """Go through the groups of all collectives, those of a class by axis."""
    for rank_class, entries in enumerate(classes):
        axes = (detail.collective.axis for _, detail in entries if isinstance(detail, Call))
        for axis in dict.fromkeys(axes):
            yield from (tuple(map(int, row)) for row in graph.layout.groups(axis, rank_class))


@dataclass(frozen=True)
class _Rank:
    """What nodes of a class are on one of its ranks."""

    graph: StepGraph
    rank_class: int
    place: int
    groups: Numbering

    def node(self, node: Node, detail: Call | SendEnd | None) -> Node:
        """Return a node with its group, or with the rank at the other end."""
        layout = self.graph.layout
        if isinstance(detail, Call):
            rank = int(layout.members(self.rank_class)[self.place])
            rows = layout.groups(detail.collective.axis, self.rank_class)
            row = next(row for row in rows if rank in row)
            number = self.groups.numbers[tuple(int(one) for one in row)]
            return replace(
                node, attributes={**node.attributes, "pg_name": Attribute(Form.STRING, str(number))}
            )
        if isinstance(detail, SendEnd):
            sender = self.rank_class - (detail.send.shift if detail.receives else 0)
            ends = {
                "comm_src": layout.members(sender)[self.place],
                "comm_dst": layout.members(sender + detail.send.shift)[self.place],
                "comm_tag": detail.tag,
            }
            numbers = {key: Attribute(Form.INT32, int(value)) for key, value in ends.items()}
            return replace(node, attributes={**node.attributes, **numbers})
        return node

"""Traces of other tools: Chakra execution traces (extra ``chakra``), and the task graphs of TopoOpt.

`nodes` has a Chakra trace's nodes and files, and the operators of a run as text; `exporting` makes them of a
step, `importing` a graph of ranks of them; `task_graph` reads TopoOpt's task graphs.
"""

from workloads.traces.exporting import export_step
from workloads.traces.importing import Compute, import_trace
from workloads.traces.nodes import (
    Attribute,
    CommType,
    Form,
    Node,
    NodeType,
    is_readable,
    read_trace,
    write_trace,
)

__all__ = [
    "Attribute",
    "CommType",
    "Compute",
    "Form",
    "Node",
    "NodeType",
    "export_step",
    "import_trace",
    "is_readable",
    "read_trace",
    "write_trace",
]

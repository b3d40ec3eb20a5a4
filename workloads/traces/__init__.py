"""Traces of other tools: Chakra execution traces (extra ``chakra``), and the task graphs of TopoOpt.

`nodes` has the nodes and files of a Chakra trace, and the operators of a run as text. `exporting` writes a
training step as such files, `importing` reads them as a graph of ranks. `task_graph` reads TopoOpt's task
graphs.
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

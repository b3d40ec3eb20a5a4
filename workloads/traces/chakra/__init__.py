"""Chakra execution traces (MLCommons), read and written as Protocol Buffers (extra ``chakra``).

`nodes` has a trace's nodes and files, `exporting` makes them of a step, `importing` a graph of ranks of
them.
"""

from workloads.traces.chakra.exporting import export_step
from workloads.traces.chakra.importing import Compute, import_trace
from workloads.traces.chakra.nodes import (
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

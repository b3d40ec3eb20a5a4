"""Chakra execution traces (MLCommons), read and written as Protocol Buffers (extra `chakra`)."""

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

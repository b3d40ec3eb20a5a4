"""Chakra execution traces (MLCommons), read and written without a protobuf library."""

from workloads.traces.chakra.exporting import export_step
from workloads.traces.chakra.files import read_trace, write_trace
from workloads.traces.chakra.importing import Compute, import_trace
from workloads.traces.chakra.nodes import Attribute, CommType, Form, Node, NodeType

__all__ = [
    "Attribute",
    "CommType",
    "Compute",
    "Form",
    "Node",
    "NodeType",
    "export_step",
    "import_trace",
    "read_trace",
    "write_trace",
]

"""Chakra execution traces (MLCommons), read and written without a protobuf library."""

from workloads.chakra.exporting import export_step
from workloads.chakra.files import read_trace, write_trace
from workloads.chakra.importing import Compute, import_trace
from workloads.chakra.nodes import Attribute, CommType, Form, Node, NodeType

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

"""Traces of other tools: `chakra` execution traces, and TopoOpt's task graphs (`task_graph`)."""

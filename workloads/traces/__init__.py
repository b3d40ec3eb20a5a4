"""Traces of other tools: Chakra execution traces and TopoOpt's task graphs."""

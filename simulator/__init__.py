"""The ground: units, tables, operators, seams, and one clock for compute, network and circuits."""

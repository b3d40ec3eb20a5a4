"""The ground that every floor stands on: units, tables, operators, seams, and one clock for compute, network and circuits."""

"""Simulators, chips and transports of others, repeated by their own rules; no number of ours comes from here.

`astra_sim` and `astra_sim_traces` its networks and runs, `topoopt` its transport, `lightening_transformer`
that chip with its baselines, `chips` others from their parts, with the constants that all were given.
"""

"""Simulators, chips and transports of others, repeated by their own rules.

Heliograph is held against them; none of its own numbers comes from here.
"""

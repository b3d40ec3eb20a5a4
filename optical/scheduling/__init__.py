"""Circuits in time: decompositions, schedules with delay, topologies, phases, overlap, and their bounds."""

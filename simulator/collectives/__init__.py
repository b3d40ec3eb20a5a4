"""Collectives as rounds of flows: algorithms, the library's choice among them, and the traffic they make."""

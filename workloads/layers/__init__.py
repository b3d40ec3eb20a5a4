"""Operators of a transformer's layers, sharded over a plan's axes."""

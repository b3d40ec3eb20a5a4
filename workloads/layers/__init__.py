"""Operators of a transformer's layers, sharded over a plan's axes.

`transformer` has a layer of each kind, `parts` what it is made of, `recurrence` what carries a state along
the sequence, `retrieval` RETRO's, `tensor_grid` tensor parallelism in two dimensions and overlapped.
"""

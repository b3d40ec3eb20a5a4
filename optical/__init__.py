"""Photonic compute and optical networks, from device tables to costs and numerics.

`devices` are parts, `noise` what they leave of a signal, `cores` made of them, `accelerator` cores on a
chip as a compute unit; `execution` products in torch, `conversion` of whole models; `fabrics` of circuits and
their `scheduling`; `transfer` of light through meshes and measured parts.
"""

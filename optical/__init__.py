"""Photonic compute and optical networks, from device tables to costs and numerics."""

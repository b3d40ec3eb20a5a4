"""Photonic matrix-multiply cores, one file each."""

"""Optical circuit-switched fabrics and the switches in them."""

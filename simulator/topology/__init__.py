"""Graphs that fabrics share: Clos networks, tori, scale-up domains, graphs from files."""

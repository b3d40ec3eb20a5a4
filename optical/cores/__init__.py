"""Photonic matrix-multiply cores, one file each."""

from __future__ import annotations

from optical.cores.crossbar import Crossbar, CrossbarEvents, default_crossbar

__all__ = ["Crossbar", "CrossbarEvents", "default_crossbar"]

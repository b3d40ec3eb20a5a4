"""Colours of a figure's parts on a page: those that the same parts have in every picture of the project."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.style import HATCHES, PALETTE, looks_of

_SHADES = (
    "",
    "60%, var(--paper)",
    "68%, var(--ink)",
    "32%, var(--paper)",
    "42%, var(--ink)",
    "82%, var(--paper)",
)
"""Shade of a colour that stands for each hatching of `heliograph.style.HATCHES`."""


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return the colour of every part, as the page's style writes it."""
    return {
        name: _shaded(f"var(--c{PALETTE.index(colour)})", _SHADES[HATCHES.index(hatch)])
        for name, (colour, hatch) in zip(names, looks_of(names), strict=True)
    }


def _shaded(colour: str, shade: str) -> str:
    return f"color-mix(in srgb, {colour} {shade})" if shade else colour

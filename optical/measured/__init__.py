"""Parts that somebody measured or modelled, put into a core's link budget.

`scattering` S-matrices from Touchstone files and models in the manner of SAX, checked; `parts` what they say
of a part at a core's lines; `comb_lines` a comb's lines as the source.
"""

from __future__ import annotations

from optical.measured.comb_lines import CombLines, read_comb, with_comb
from optical.measured.parts import OF, Lit, scattering_of, with_scattering
from optical.measured.scattering import MeasuredScattering, is_touchstone, read_touchstone, sampled

__all__ = [
    "OF",
    "CombLines",
    "Lit",
    "MeasuredScattering",
    "is_touchstone",
    "read_comb",
    "read_touchstone",
    "sampled",
    "scattering_of",
    "with_comb",
    "with_scattering",
]

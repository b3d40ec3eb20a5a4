"""Parts that somebody measured or modelled, put into a core's link budget.

`scattering` S-matrices from Touchstone files and models in the manner of SAX, checked; `parts` what they say
of a part at a core's lines; `comb_lines` a comb's lines as the source.
"""

"""Systems: accelerators, a fabric and prices under a name, every number of which can be changed.

`names` has the systems that can be asked for, and `system` builds and changes them, light beside a GPU's
matrix units too; `fabrics`, `parts` and `registry` find fabrics, parts and cores by name, and
`sanity_checks` warns of what can hardly be meant.
"""

from heliograph.systems.system import SYSTEMS, Basis, Lighting, System, TargetFormat, build_system

__all__ = [
    "SYSTEMS",
    "Basis",
    "Lighting",
    "System",
    "TargetFormat",
    "build_system",
]

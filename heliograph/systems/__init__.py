"""Systems: accelerators, a fabric and prices under a name, every number of which can be changed.

`names` has the systems and cores that can be asked for, and `system` builds and changes them, light beside a
GPU's matrix units too; `fabrics` and `parts` find fabrics and parts by name, and `sanity_checks` warns of
what can hardly be meant.
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

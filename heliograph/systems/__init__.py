"""Systems: accelerators, a fabric and prices under a name, every number of which can be changed.

`names` reads the name of a system, `system` builds and changes systems (electronic, photonic and hybrid),
`fabrics` and `parts` find fabrics and parts by name, and `sanity_checks` warns of implausible ones.
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

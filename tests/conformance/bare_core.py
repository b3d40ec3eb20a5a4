"""Core that answers `optical.cores.Core` by itself, on no base class of ours: a homodyne core from within."""

from dataclasses import dataclass

from optical.cores import Homodyne, load_core
from optical.cores.core import Core


@dataclass(frozen=True, kw_only=True)
class Bare:
    """Core with nothing but the members of the seam."""

    name: str = "bare"
    inside: Homodyne

    @classmethod
    def default(cls):
        return cls(inside=load_core("homodyne"))


def _passed_on(member):
    return property(lambda core: getattr(core.inside, member))


for _member in vars(Core):
    if not _member.startswith("_") and _member != "name":
        setattr(Bare, _member, _passed_on(_member))

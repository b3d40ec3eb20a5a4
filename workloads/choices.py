"""The choices of a plan that are words: schedules, precisions, optimizers and the like."""

from __future__ import annotations

from enum import Enum, StrEnum


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Whether attention's score matrix is written to memory (full) or stays on chip (flash)."""

    FULL = "full"
    FLASH = "flash"


class Precision(StrEnum):
    """Stored form of weights and activations."""

    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 2 if self is Precision.BF16 else 4


class Schedule(StrEnum):
    """Order of microbatches on a pipeline stage."""

    ONE_FORWARD_ONE_BACKWARD = "1f1b"
    GPIPE = "gpipe"


def phrase(kind: type) -> str:
    """Return the values of a kind of field as a phrase for a message."""
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return "true or false"

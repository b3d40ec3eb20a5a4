"""The choices of a plan that are words: precisions, optimizers, grids and the like."""

from __future__ import annotations

from enum import Enum, StrEnum

WEIGHT_BLOCK = 128
"""Rows and columns of a block of weights that is kept or left out whole: a kernel's tile."""
NVFP4_BLOCK = 16
"""Elements that share a scale of one byte (Transformer Engine's NVFP4 recipe)."""
ATTENTION_BLOCK = 64
"""Queries, and keys, of a block of scores that is worked out or left out (BigBird, arXiv:2007.14062)."""


class Recompute(StrEnum):
    """Activations that are computed again in the backward pass instead of being kept."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Attention(StrEnum):
    """Attention kernel: its score matrix is written to memory (full) or stays on chip (flash)."""

    FULL = "full"
    FLASH = "flash"


class Precision(StrEnum):
    """Stored form of weights and activations; of fp8, int8 and nvfp4 that of linear products' operands."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    NVFP4 = "nvfp4"
    FP32 = "fp32"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Precision.FP32 else 2

    @property
    def linear_bytes(self) -> float:
        """Bytes of one operand's element in a block's products with weights, with its share of a scale."""
        match self:
            case Precision.FP8 | Precision.INT8:
                return 1
            case Precision.NVFP4:
                return 0.5 + 1 / NVFP4_BLOCK
        return self.element_bytes

    @property
    def is_cast(self) -> bool:
        """Whether operands of products with weights are cast to fewer bits than they are stored in."""
        return self.linear_bytes < self.element_bytes


class Kept(StrEnum):
    """Form of activations between the passes: as stored, operands cast to fp8, or on the host."""

    STORED = "stored"
    FP8 = "fp8"
    HOST = "host"


class ContextExchange(StrEnum):
    """Exchange by which context-parallel ranks let every query meet every key.

    The ring hands keys and values on while the block before is worked on (Ring Attention, arXiv:2310.01889);
    all_gather collects them first (Llama 3, arXiv:2407.21783, section 3.3.2); all_to_all gives every rank
    some heads of all tokens (DeepSpeed Ulysses, arXiv:2309.14509).
    """

    RING = "ring"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"


class WeightSparsity(StrEnum):
    """Pruned elements of a block's weights: none, or two of every four (arXiv:2104.08378)."""

    NONE = "none"
    TWO_OF_FOUR = "2:4"


class ExpertExchange(StrEnum):
    """Exchange of tokens with the ranks of their experts on other nodes.

    direct sends a message to every rank; hierarchical collects within a node what goes to each place of the
    other nodes, and sends that as one message (HetuMoE, arXiv:2203.14685; Tutel, arXiv:2206.03382);
    once_per_node sends a token to each node once and copies it there (DeepSeek-V3, arXiv:2412.19437).
    """

    DIRECT = "direct"
    HIERARCHICAL = "hierarchical"
    ONCE_PER_NODE = "once_per_node"


class TensorGrid(StrEnum):
    """Arrangement of tensor-parallel ranks.

    On a line (Megatron-LM, arXiv:1909.08053), on a square (Optimus, arXiv:2104.05343), or on several squares
    that share the batch (Tesseract, arXiv:2105.14500).
    """

    LINE = "1d"
    SQUARE = "2d"
    SQUARES = "2.5d"


class Optimizer(StrEnum):
    """Optimizer of the parameters, which fixes the states kept of each."""

    ADAM = "adam"
    ADAM_8BIT = "adam_8bit"
    ADAFACTOR = "adafactor"
    MOMENTUM = "momentum"
    SGD = "sgd"


class Place(StrEnum):
    """Place of parameters or optimizer states: the accelerator's memory, its host's, or host storage."""

    DEVICE = "device"
    HOST = "host"
    NVME = "nvme"


class Exchange(StrEnum):
    """Gradient exchange of data-parallel ranks: among themselves, or through servers."""

    COLLECTIVE = "collective"
    PARAMETER_SERVER = "parameter_server"


def phrase(kind: type) -> str:
    """Return the values of a kind of field as a phrase for a message."""
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return "a number" if kind is float else "true or false"

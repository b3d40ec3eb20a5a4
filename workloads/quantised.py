"""What a value takes that travels in fewer bits, with a scale per block (ZeRO++, arXiv:2306.10209)."""

BLOCK_VALUES = 4096
"""Values that share one scale, as in DeepSpeed's kernels (4,000 to 8,000 to a group); a choice."""
SCALE_BYTES = 4
"""One fp32 scale."""
INT8_BYTES = 1 + SCALE_BYTES / BLOCK_VALUES
"""A value in int8 with its share of the scale."""
INT4_BYTES = 0.5 + SCALE_BYTES / BLOCK_VALUES
"""A value in int4 with its share of the scale."""
QUANTISE_FLOPS = 3
"""Operations per value: magnitude and largest, scale, round."""
DEQUANTISE_FLOPS = 1
"""Operations per value: the product with the scale."""

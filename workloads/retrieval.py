"""The shape of what a model retrieves and reads: RETRO's encoder of neighbours and cross-attention."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.errors import WorkloadError


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Neighbours of each chunk of a sequence, the encoder that reads them, the blocks that attend to them.

    Raises
    ------
    WorkloadError
        If a size is not a positive whole number.

    Notes
    -----
    Neighbours are found before training, as in the reference, and come with the batch as token numbers: 16
    bytes for each token trained on, with two neighbours of 128 tokens for a chunk of 64. A query takes some
    ten milliseconds in a database of two trillion tokens (section 2.2). Neither is charged, as nothing of a
    batch's way to the accelerator is; both run ahead of the step.

    References
    ----------
    Borgeaud et al., "Improving language models by retrieving from trillions of tokens", arXiv:2112.04426,
    sections 2.2 to 2.4, table 1 and appendix B.
    """

    first: int = 6
    """First block, counted from 1, that attends to neighbours; its input is what the encoder attends to."""
    every: int = 3
    """Blocks from one that attends to neighbours to the next."""
    chunk: int = 64
    """Tokens of a chunk, which has its own neighbours."""
    neighbours: int = 2
    """Neighbours of a chunk."""
    length: int = 128
    """Tokens of a neighbour: a chunk of the database and the one after it."""
    layers: int = 2
    """Blocks of the encoder."""
    crossings: int = 1
    """How many of them, the first ones, attend to the chunk whose neighbour they encode."""
    hidden: int = 896
    """Width of the encoder's stream."""
    heads: int = 16
    """Its heads."""
    head_dim: int = 64
    """Width of one of them."""
    ffn_hidden: int = 3584
    """Inner width of its feed-forward parts."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"retrieval: {name} must be a whole number of at least 1; got {value!r}"
                raise WorkloadError(msg)
        if self.crossings > self.layers:
            msg = f"retrieval: crossings ({self.crossings}) must be at most layers ({self.layers})"
            raise WorkloadError(msg)

    @property
    def width(self) -> int:
        """Width of the encoder's heads together."""
        return self.heads * self.head_dim

    @property
    def tokens_per_token(self) -> float:
        """Tokens of neighbours for each token of the sequence."""
        return self.neighbours * self.length / self.chunk

    @property
    def distances(self) -> int:
        """Distances between a token of a chunk and one of a neighbour."""
        return self.chunk + self.length - 1

    def among(self, start: int, count: int) -> int:
        """Return how many of `count` blocks from `start` (counted from 0) on attend to neighbours."""

        def until(end: int) -> int:
            return max(0, (end - self.first) // self.every + 1) if end >= self.first else 0

        return until(start + count) - until(start)

    def begins_in(self, start: int, count: int) -> bool:
        """Return whether the first block that attends to neighbours is among these."""
        return start < self.first <= start + count

    def cross_matrices(self, hidden: int, width: int) -> int:
        """Return the elements of one chunked cross-attention: queries, keys and values, output, positions."""
        return 3 * hidden * width + 2 * self.hidden * width

    def encoder_matrices(self, hidden: int) -> int:
        """Return the elements of the encoder's products, its embedding left out."""
        own = 5 * self.hidden * self.width + 2 * self.hidden * self.ffn_hidden
        crossing = 3 * self.hidden * self.width + 2 * hidden * self.width
        return self.layers * own + self.crossings * crossing

    @property
    def encoder_norms(self) -> int:
        """Parameters of the encoder's norms."""
        return (2 * self.layers + self.crossings + 1) * self.hidden

"""Shape of a transformer, from which every operator and byte of a training step follows.

Also the activation functions of its feed-forward parts with their operations per element, the shape of
retrieval (`Retrieval`: RETRO's encoder of neighbours and its cross-attention), and that of a part of a block
which carries a state along the sequence in the place of attention (`Recurrence`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from simulator.errors import WorkloadError, check_choices


class Activation(StrEnum):
    """Activation function of a feed-forward part; a gated part multiplies it with its second branch."""

    GELU = "gelu"
    SILU = "silu"
    RELU = "relu"
    SQUARED_RELU = "squared relu"


FLOPS: Mapping[Activation, int] = {
    Activation.GELU: 8,
    Activation.SILU: 5,
    Activation.RELU: 1,
    Activation.SQUARED_RELU: 2,
}
"""Operations per element: each sum, product, comparison, exponential and quotient counts one (a GELU in its
tanh form)."""

PUBLISHED: Mapping[str, Activation] = {
    "gelu": Activation.GELU,
    "gelu_10": Activation.GELU,
    "gelu_accurate": Activation.GELU,
    "gelu_fast": Activation.GELU,
    "gelu_new": Activation.GELU,
    "gelu_python": Activation.GELU,
    "gelu_pytorch_tanh": Activation.GELU,
    "quick_gelu": Activation.GELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "xielu": Activation.GELU,
    "relu": Activation.RELU,
    "relu2": Activation.SQUARED_RELU,
}
"""Names in published ``config.json`` files; every form of a GELU counts as its tanh form, and so
does xIELU (arXiv:2411.13010), an exponential and a square an element."""


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
    """First block, counted from 1, that attends to neighbours; the encoder attends to its input."""
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
    """Blocks of the encoder, the first ones, that attend to the chunk whose neighbour they encode."""
    hidden: int = 896
    """Width of the encoder's stream."""
    heads: int = 16
    """Heads of the encoder's attention."""
    head_dim: int = 64
    """Width of one of them."""
    ffn_hidden: int = 3584
    """Inner width of the encoder's feed-forward parts."""

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
        """Return the blocks that attend to neighbours among `count` from `start` (counted from 0) on."""

        def before(end: int) -> int:
            return max(0, (end - self.first) // self.every + 1) if end >= self.first else 0

        return before(start + count) - before(start)

    def begins_in(self, start: int, count: int) -> bool:
        """Return whether the first block that attends to neighbours is among `count` from `start` on."""
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


class State(StrEnum):
    """Kind of a part of a block that carries a state along the sequence."""

    SSD = "ssd"
    """Mamba-2: a matrix a head, with one decay a head (arXiv:2405.21060)."""
    DELTA = "delta"
    """Gated delta net: what a key recalls is taken off before its value is stored (arXiv:2412.06464)."""
    CHANNEL_DELTA = "channel delta"
    """Kimi delta attention: likewise, with a decay for each channel of a key (arXiv:2510.26692)."""
    LIGHTNING = "lightning"
    """Lightning attention: as Mamba-2 with fixed decays, a key a head, no convolution (arXiv:2501.08313)."""
    SELECTIVE = "selective"
    """Mamba-1: a vector a channel, whose scan is no product (arXiv:2312.00752)."""
    CONVOLUTION = "convolution"
    """A gated short convolution alone, whose state is its last tokens (LFM2)."""

    @property
    def corrects(self) -> bool:
        """Whether what a key recalls is taken off before its value is stored (the delta rule)."""
        return self in {State.DELTA, State.CHANNEL_DELTA}

    @property
    def multiplies(self) -> bool:
        """Whether chunks of a sequence are worked on in matrix products."""
        return self not in {State.SELECTIVE, State.CONVOLUTION}


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Part of a block that carries a state along the sequence, alone or beside attention.

    Raises
    ------
    WorkloadError
        If a size is not a whole number, or key heads do not divide heads.

    Notes
    -----
    Its size does not grow with the sequence: `state` elements. Chunks are those of the published kernels.
    """

    kind: State
    """Kind of state."""
    heads: int
    """Heads, each with a state; channels of a Mamba-1 and of a short convolution count as heads of 1."""
    head_dim: int = 1
    """Width of a head's values."""
    key_heads: int = 1
    """Heads of keys and queries (B and C of a state space), shared by groups of heads."""
    key_dim: int = 1
    """Width of a key: rows of a head's state."""
    convolution: int = 0
    """Tokens that the short convolution before the state sees; 0 without one."""
    chunk: int = 1
    """Tokens of a chunk, within which all pairs are multiplied."""
    rank: int = 0
    """Width of the latent of the step size (Mamba-1) or of the gates (Kimi); 0 without one."""
    biases: bool = False
    """Whether the products with the stream add a bias."""
    convolution_bias: bool = False
    """Whether the convolution adds a bias."""
    norm: bool = True
    """Whether the result is normalised; of a Mamba-1, whether step sizes, keys and queries are (Jamba)."""

    def __post_init__(self) -> None:
        check_choices(self)
        sizes = dict.fromkeys(("heads", "head_dim", "key_heads", "key_dim", "chunk"), 1)
        for name, least in (sizes | {"convolution": 0, "rank": 0}).items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                msg = f"recurrence: {name} must be a whole number of at least {least}; got {value!r}"
                raise WorkloadError(msg)
        if self.heads % self.key_heads:
            msg = (
                f"recurrence: key_heads ({self.key_heads}) must divide heads ({self.heads}); "
                f"try {divisors_phrase(self.heads)}"
            )
            raise WorkloadError(msg)

    @property
    def width(self) -> int:
        """Width of all heads' values together."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all keys together, and of all queries."""
        return self.key_heads * self.key_dim

    @property
    def state(self) -> int:
        """Elements of the state of one sequence, at any length."""
        if self.kind is State.CONVOLUTION:
            return self.width * (self.convolution - 1)
        return self.width * self.key_dim

    def parts(self, heads: int, key_heads: int) -> dict[str, int]:
        """Return the columns of the product with the stream for some heads, by part.

        The parts are ``values``, ``keys`` (and queries), ``gates`` and ``scalars`` (of each head, or the
        latents of gates); `heads` and `key_heads` are those of a rank.
        """
        values, keys = heads * self.head_dim, 2 * key_heads * self.key_dim
        gates, scalars = {
            State.SSD: (values, heads),
            State.DELTA: (values, 2 * heads),
            State.CHANNEL_DELTA: (0, heads + 2 * self.rank) if self.rank else (values + keys // 2, heads),
            State.LIGHTNING: (values, 0),
            State.SELECTIVE: (values, 0),
            State.CONVOLUTION: (2 * values, 0),
        }[self.kind]
        keyed = self.kind.multiplies
        return {"values": values, "keys": keys if keyed else 0, "gates": gates, "scalars": scalars}

    def convolved(self, heads: int, key_heads: int) -> int:
        """Return the columns that the short convolution sees, for some heads."""
        parts = self.parts(heads, key_heads)
        return parts["values"] + parts["keys"] if self.convolution else 0

    @property
    def selected(self) -> int:
        """Columns of a Mamba-1's product that makes step sizes, keys and queries of its values."""
        return self.rank + 2 * self.key_dim if self.kind is State.SELECTIVE else 0

    def latent_columns(self, heads: int, key_heads: int) -> int:
        """Return the columns of products from latents, for some heads: step sizes, or decays and gates."""
        if not self.rank:
            return 0
        values = heads * self.head_dim
        return values if self.kind is State.SELECTIVE else values + key_heads * self.key_dim

    def matrices(self, hidden: int, heads: int, key_heads: int) -> int:
        """Return the elements of the products' weights for some heads."""
        stream = sum(self.parts(heads, key_heads).values()) + heads * self.head_dim
        latent = self.rank * self.latent_columns(heads, key_heads)
        return hidden * stream + heads * self.head_dim * self.selected + latent

    def vectors(self, hidden: int, heads: int, key_heads: int) -> int:
        """Return the parameters that no product multiplies, for some heads: decays, taps, norms, biases."""
        values = heads * self.head_dim
        taps = (self.convolution + self.convolution_bias) * self.convolved(heads, key_heads)
        biases = self.biases * (sum(self.parts(heads, key_heads).values()) + hidden)
        own = {
            State.SSD: 3 * heads + self.norm * values,
            State.DELTA: 2 * heads + self.norm * self.head_dim,
            State.CHANNEL_DELTA: heads + key_heads * self.key_dim + self.norm * self.head_dim,
            State.LIGHTNING: self.norm * values,
            State.SELECTIVE: values * (self.key_dim + 2) + self.norm * self.selected,
            State.CONVOLUTION: 0,
        }
        return taps + biases + own[self.kind]

    def parameters(self, hidden: int) -> int:
        """Return all its parameters, without the norm before it."""
        sizes = (hidden, self.heads, self.key_heads)
        return self.matrices(*sizes) + self.vectors(*sizes)


MOST_LAYERS = 10_000
"""Most blocks of a model, ten times the deepest published one (DeepNet, arXiv:2203.00555, 1,000 layers)."""
LARGEST_SIZE = 10**12
"""Sizes above this are refused as typing errors; a choice."""


class Norm(StrEnum):
    """Normalisation of a layer's input: a layer norm, one without a shift, or by the root mean square."""

    LAYER = "layer"
    RMS = "rms"
    SCALE = "scale"


class Positions(StrEnum):
    """Position encoding of tokens; relative with a matrix in each block (Transformer-XL)."""

    LEARNED = "learned"
    ROTARY = "rotary"
    ALIBI = "alibi"
    RELATIVE = "relative"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Shape of a decoder-only transformer: blocks between an embedding and a head.

    Raises
    ------
    WorkloadError
        If a size is not a positive whole number or the sizes do not fit each other.

    Notes
    -----
    Sizes are counts and dimensionless.
    """

    name: str
    """Name shown in tables and messages."""
    layers: int
    """Blocks."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads; equal to `heads` without grouped queries."""
    head_dim: int
    """Width of a head."""
    ffn_hidden: int
    """Inner width of the feed-forward part (of one expert, if there are experts)."""
    vocabulary: int
    """Tokens in the vocabulary, not padded."""
    max_sequence: int
    """Longest sequence the model is made for."""
    gated: bool = False
    """Whether the feed-forward part multiplies two branches (SwiGLU)."""
    activation: Activation | None = None
    """Activation function of the feed-forward part; None means SiLU if it is gated, GELU if not."""
    tied_embeddings: bool = False
    """Whether head and embedding are one matrix."""
    experts: int = 1
    """Experts per block; 1 is a dense model without a router."""
    experts_per_token: int = 1
    """Experts that each token visits."""
    shared_experts: int = 0
    """Experts that every token visits besides those chosen for it."""
    expert_latent: int = 0
    """Width of a latent in which routed experts work, between two products of all tokens (Nemotron 3 Super);
    0 where they work on the stream."""
    routing_bias: bool = False
    """Whether each expert has a bias that balances the load (DeepSeek-V3)."""
    dense_layers: int = 0
    """First blocks, without experts, of a model with experts."""
    dense_ffn_hidden: int = 0
    """Inner width of the feed-forward part of those blocks."""
    kv_rank: int = 0
    """Width of the latent from which keys and values are made (multi-head latent attention); 0 without."""
    query_rank: int = 0
    """Width of the latent from which queries are made; 0 where they are made from the stream."""
    rope_dim: int = 0
    """With a latent, the part of a head's width that carries positions; all heads share its key."""
    value_dim: int = 0
    """With a latent, the width of a value head."""
    parallel: bool = False
    """Whether attention and feed-forward part stand side by side (PaLM, GPT-J)."""
    two_norms: bool = False
    """Whether attention and feed-forward part side by side have a norm each (GPT-NeoX), not one for both."""
    norm: Norm = Norm.LAYER
    """Kind of norm."""
    positions: Positions = Positions.ROTARY
    """Kind of position information."""
    position_rows: int = 0
    """Rows of a learned position table; 0 if positions are not learned."""
    embedding_norm: bool = False
    """Whether a norm follows the embedding (BLOOM)."""
    qkv_bias: bool = False
    """Whether query, key and value products add a bias."""
    output_bias: bool = False
    """Whether attention's output product adds a bias."""
    mlp_bias: bool = False
    """Whether the feed-forward products add a bias."""
    dropout: bool = False
    """Whether training drops activations, hence keeps masks."""
    qk_norm: bool = False
    """Whether every head's queries and keys are normalised (Qwen3)."""
    post_norms: bool = False
    """Whether a norm follows each half of a block too (Grok-1)."""
    clamped: bool = False
    """Whether both branches of a gated feed-forward part are clamped before the activation (GPT-OSS)."""
    sinks: bool = False
    """Whether every head has a learned logit that draws attention off all keys (GPT-OSS)."""
    window: int = 0
    """Keys that a query of a windowed block sees at most; 0 without windows."""
    window_every: int = 0
    """Period of the windows: in each run of so many blocks the last one sees all keys, the others are
    windowed; 1 means that every block is windowed, 0 none."""
    window_after: int = 0
    """First blocks that see all keys in any case (Qwen2)."""
    routing_groups: int = 1
    """Groups of experts among which the router chooses first (DeepSeek-V3)."""
    chosen_groups: int = 1
    """Groups that a token may visit."""
    predicted_tokens: int = 0
    """Modules behind the last block that each predict one token more (multi-token prediction, DeepSeek-V3):
    a product that joins two streams, a block, and embedding and head once again."""
    retrieval: Retrieval | None = None
    """Retrieved neighbours and their encoder (RETRO); None without retrieval."""
    output_gates: int = 0
    """Gates of each head's result, made from the stream: head_dim (Qwen3-Next), 1 (Laguna) or none."""
    tied_values: bool = False
    """Whether values are the keys before their norm, without a product of their own (Gemma 4)."""
    recurrence: Recurrence | None = None
    """Part of a block that carries a state along the sequence; None without one."""
    attends: bool = True
    """Whether a block has attention; beside a recurrence both read one norm (Falcon-H1)."""
    feeds: bool = True
    """Whether a block has a feed-forward part; one without either is that part alone (Nemotron-H)."""
    shapes: tuple[TransformerConfig, ...] = ()
    """Models of each kind of block, where blocks differ in more than windows and dense first ones."""
    order: tuple[int, ...] = ()
    """With `shapes`, the one of each block."""

    def __repr__(self) -> str:
        """Return the shape, without values that are the default."""
        named = [
            f"{item.name}={getattr(self, item.name)!s}"
            for item in fields(self)
            if getattr(self, item.name) != item.default
        ]
        return f"{type(self).__name__}({', '.join(named)})"

    def __post_init__(self) -> None:
        check_choices(self)
        self._check_sizes()
        self._check_halves()
        self._check_attention()
        self._check_experts()
        self._check_shapes()
        if not 0 <= self.predicted_tokens <= self.layers or (self.predicted_tokens and self.retrieval):
            msg = (
                f"{self.name}: predicted_tokens ({self.predicted_tokens}) must be from 0 to layers "
                f"({self.layers}), and 0 with retrieval"
            )
            raise WorkloadError(msg)
        if self.retrieval and self.retrieval.first > self.layers:
            msg = (
                f"{self.name}: retrieval begins in block {self.retrieval.first} of {self.layers}; lower first"
            )
            raise WorkloadError(msg)

    def _check_sizes(self) -> None:
        """Raise an error for sizes that are no positive whole numbers or do not fit each other."""
        for size in _SIZES:
            value = getattr(self, size)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_SIZE:
                msg = f"{self.name}: {size} must be a whole number from 1 to {LARGEST_SIZE}; got {value!r}"
                raise WorkloadError(msg)
        if self.layers > MOST_LAYERS:
            msg = f"{self.name}: layers must be at most {MOST_LAYERS:,}; got {self.layers:,}"
            raise WorkloadError(msg)
        if self.heads % self.kv_heads:
            msg = (
                f"{self.name}: kv_heads ({self.kv_heads}) must divide heads ({self.heads}); "
                f"try {divisors_phrase(self.heads)}"
            )
            raise WorkloadError(msg)
        if self.experts_per_token > self.experts:
            msg = (
                f"{self.name}: experts_per_token ({self.experts_per_token}) must be at most experts "
                f"({self.experts}); try {self.experts}"
            )
            raise WorkloadError(msg)

    def _check_attention(self) -> None:
        """Raise an error for latents or windows of which some sizes lack."""
        latent = (self.kv_rank, self.rope_dim, self.value_dim)
        if any((self.kv_rank, self.rope_dim, self.query_rank)) and not all(latent):
            msg = f"{self.name}: kv_rank, rope_dim and value_dim {latent} go together; give all three or none"
            raise WorkloadError(msg)
        if self.output_gates not in {0, 1, self.head_dim}:
            msg = (
                f"{self.name}: output_gates ({self.output_gates}) must be 0, 1 or head_dim ({self.head_dim})"
            )
            raise WorkloadError(msg)
        if self.kv_rank and (self.output_gates or self.tied_values):
            msg = f"{self.name}: latent attention has no output_gates and no tied_values; leave them out"
            raise WorkloadError(msg)
        if bool(self.window) != bool(self.window_every) or (self.window and self.kv_rank):
            msg = (
                f"{self.name}: window ({self.window}) and window_every ({self.window_every}) go together, "
                "without latent attention; give both or none"
            )
            raise WorkloadError(msg)

    def _check_shapes(self) -> None:
        """Raise an error for blocks of nothing, and for kinds of blocks that do not name every block."""
        if not (self.attends or self.recurrence or self.feeds):
            msg = f"{self.name}: a block needs attention, a recurrence or a feed-forward part"
            raise WorkloadError(msg)
        blocks = self.layers if self.shapes else 0
        if len(self.order) != blocks or not {*self.order} <= {*range(len(self.shapes))}:
            msg = (
                f"{self.name}: order must give one of the {len(self.shapes)} shapes for each of the "
                f"{self.layers} blocks, and be empty without shapes"
            )
            raise WorkloadError(msg)
        if any(shape.hidden != self.hidden for shape in self.shapes):
            msg = f"{self.name}: shapes must all have its hidden ({self.hidden}), for they share one stream"
            raise WorkloadError(msg)
        if self.shapes and len(self.kinds_among(0, self.blocks)) < self.blocks:
            msg = f"{self.name}: predicted_tokens needs a shape with attention and a feed-forward part"
            raise WorkloadError(msg)

    def _check_experts(self) -> None:
        """Raise an error for groups of experts or dense blocks that the model cannot have."""
        if self.experts % self.routing_groups or not 1 <= self.chosen_groups <= self.routing_groups:
            msg = (
                f"{self.name}: routing_groups ({self.routing_groups}) must divide experts ({self.experts}) "
                f"and be at least chosen_groups ({self.chosen_groups}); leave both out"
            )
            raise WorkloadError(msg)
        if self.expert_latent < 0 or (self.expert_latent and self.experts == 1):
            msg = (
                f"{self.name}: expert_latent ({self.expert_latent}) must be 0 or more, and 0 without experts"
            )
            raise WorkloadError(msg)
        if self.dense_layers and (self.experts == 1 or self.dense_layers > self.layers):
            msg = (
                f"{self.name}: dense_layers ({self.dense_layers}) needs experts ({self.experts}) and must be "
                f"at most layers ({self.layers}); leave it out"
            )
            raise WorkloadError(msg)
        if 0 < self._windows_before(self.dense_layers) < self.dense_layers:
            msg = (
                f"{self.name}: all {self.dense_layers} dense_layers must have windows, or none of them; "
                f"window_every is {self.window_every}, window_after {self.window_after}"
            )
            raise WorkloadError(msg)

    def _check_halves(self) -> None:
        """Raise an error for halves of a block that cannot stand side by side."""
        if self.parallel and (self.kv_rank or self.recurrence):
            msg = f"{self.name}: parallel blocks with latent attention or a recurrence are not modelled"
            raise WorkloadError(msg)
        if self.two_norms and not self.parallel:
            msg = f"{self.name}: two_norms is of parallel blocks, for others have two; leave it out"
            raise WorkloadError(msg)

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and for layer norm a shift."""
        return self.hidden * (2 if self.norm is Norm.LAYER else 1)

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together (and of all value heads)."""
        return self.kv_heads * self.head_dim

    @property
    def ffn_branches(self) -> int:
        """Matrices from the hidden to the inner width: two if gated."""
        return 2 if self.gated else 1

    @property
    def attention_matrices(self) -> int:
        """Elements of one block's attention weights, without biases."""
        if not self.attends:
            return 0
        if not self.kv_rank:
            columns = self.query_width + self.made_width + self.gate_width + self.context_width
            return self.hidden * columns + self.position_matrix
        return self.hidden * (self.latent_width + self.context_width) + self.latent_matrices

    @property
    def made_width(self) -> int:
        """Width of keys and values that products make."""
        return self.key_width + (0 if self.tied_values else self.value_width)

    @property
    def gate_width(self) -> int:
        """Gates of attention's result."""
        return self.heads * self.output_gates

    @property
    def position_matrix(self) -> int:
        """Elements of a block's matrix for relative positions."""
        return self.hidden * self.query_width if self.positions is Positions.RELATIVE else 0

    @property
    def latent_width(self) -> int:
        """Width of latent attention's products with the stream: two latents and the shared positions."""
        return self.query_rank + self.kv_rank + self.rope_dim

    @property
    def latent_matrices(self) -> int:
        """Elements of the products from latents to heads."""
        keys_values = self.key_width - self.heads * self.rope_dim + self.value_width
        return (self.query_rank or self.hidden) * self.query_width + self.kv_rank * keys_values

    @property
    def key_width(self) -> int:
        """Width of all keys as attention reads them."""
        return self.query_width if self.kv_rank else self.kv_width

    @property
    def value_width(self) -> int:
        """Width of all values as attention reads them."""
        if self.kv_rank:
            return self.heads * self.value_dim
        return self.kv_heads * (self.value_dim or self.head_dim)

    @property
    def context_width(self) -> int:
        """Width of attention's result, the input of its output product."""
        return self.heads * (self.value_dim or self.head_dim)

    @property
    def dense(self) -> TransformerConfig:
        """The model with its blocks without experts only."""
        blocks = self.windowed if self._windows_before(self.dense_layers) else self.unbounded
        return blocks.without_experts(self.dense_ffn_hidden or self.ffn_hidden)

    def without_experts(self, ffn_hidden: int) -> TransformerConfig:
        """Return the model with a dense feed-forward part of an inner width."""
        return replace(
            self,
            experts=1,
            experts_per_token=1,
            shared_experts=0,
            expert_latent=0,
            routing_bias=False,
            dense_layers=0,
            dense_ffn_hidden=0,
            routing_groups=1,
            chosen_groups=1,
            ffn_hidden=ffn_hidden,
        )

    def kinds_among(self, start: int, count: int) -> tuple[int, ...]:
        """Return the place in `shapes` of each of `count` blocks from `start` on; none if they do not differ.

        Modules that predict further tokens stand behind the last block, and have attention and a feed-forward
        part.
        """
        if not self.shapes:
            return ()
        whole = [kind for kind, shape in enumerate(self.shapes) if shape.attends and shape.feeds]
        return (*self.order, *whole[-1:] * self.predicted_tokens)[start : start + count]

    @property
    def expert_layers(self) -> int:
        """Blocks with experts."""
        if self.shapes:
            return sum(self.shapes[kind].experts > 1 for kind in self.order)
        return self.layers - self.dense_layers if self.experts > 1 else 0

    @property
    def windowed(self) -> TransformerConfig:
        """The model with its windowed blocks only."""
        return replace(self, window_every=1, window_after=0)

    @property
    def all_windowed(self) -> bool:
        """Whether every block sees a window of keys only."""
        return self.window_every == 1 and not self.window_after

    @property
    def unbounded(self) -> TransformerConfig:
        """The model with its blocks that see all keys only."""
        return replace(self, window=0, window_every=0, window_after=0)

    def windowed_among(self, first: int, count: int) -> int:
        """Return the windowed blocks with experts among `count` blocks from `first` (counted from 0) on."""
        start, end = (max(block, self.dense_layers) for block in (first, first + count))
        return self._windows_before(end) - self._windows_before(start)

    def _windows_before(self, end: int) -> int:
        """Return the windowed blocks, with experts or without, among the first `end` blocks."""
        end = max(end, self.window_after)
        if self.window_every < 2:
            return (end - self.window_after) * self.window_every
        unbounded = end // self.window_every - self.window_after // self.window_every
        return end - self.window_after - unbounded

    @property
    def shares_norm(self) -> bool:
        """Whether one norm serves attention and feed-forward part."""
        return self.parallel and not self.two_norms

    @property
    def block_norms(self) -> int:
        """Parameters of one block's norms, and its attention sinks."""
        qk = 2 * self.head_dim if self.qk_norm and self.attends else 0
        narrow = self.query_rank + self.kv_rank + qk if self.attends else 0
        halves = (self.attends or self.recurrence is not None) + self.feeds
        wide = (1 if self.shares_norm else halves) * (2 if self.post_norms else 1)
        sinks = self.heads if self.sinks and self.attends else 0
        return wide * self.norm_parameters + narrow * (self.norm_parameters // self.hidden) + sinks

    @property
    def in_latent(self) -> TransformerConfig:
        """The model as its routed experts see it, whose stream is the latent if they have one."""
        if not self.expert_latent:
            return self
        return replace(self, hidden=self.expert_latent, expert_latent=0, shapes=(), order=())

    @property
    def expert_matrices(self) -> int:
        """Elements of one expert's (or the dense feed-forward part's) weights, without biases."""
        return (self.ffn_branches + 1) * (self.expert_latent or self.hidden) * self.ffn_hidden

    @property
    def shared_matrices(self) -> int:
        """Elements of one shared expert's weights, without biases."""
        return (self.ffn_branches + 1) * self.hidden * self.ffn_hidden

    @property
    def expert_biases(self) -> int:
        """Elements of one expert's (or the dense feed-forward part's) biases."""
        return (self.ffn_branches * self.ffn_hidden + self.hidden) * self.mlp_bias

    @property
    def router_parameters(self) -> int:
        """Elements of one block's router; none in a dense model."""
        return (self.hidden + self.routing_bias) * self.experts if self.experts > 1 else 0

    @property
    def layer_parameters(self) -> int:
        """Parameters of one block, all experts counted."""
        biases = (self.experts + self.shared_experts) * self.expert_biases
        feed_forward = self.experts * self.expert_matrices + self.shared_experts * self.shared_matrices
        feed_forward += biases + self.router_parameters + 2 * self.hidden * self.expert_latent
        mixed = self.attention_matrices + self.attention_bias(self.query_width, self.made_width)
        if self.recurrence:
            mixed += self.recurrence.parameters(self.hidden)
        return mixed + feed_forward * self.feeds + self.block_norms

    def attention_bias(self, queries: int, keys_values: int) -> int:
        """Return the elements of attention's biases, for widths of queries and of keys and values."""
        return ((queries + keys_values) * self.qkv_bias + self.hidden * self.output_bias) * self.attends

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first block."""
        rows = self.vocabulary + self.position_rows
        return rows * self.hidden + (self.norm_parameters if self.embedding_norm else 0)

    @property
    def head_parameters(self) -> int:
        """Parameters after the last block that the embedding does not already count."""
        return self.norm_parameters + (0 if self.tied_embeddings else self.vocabulary * self.hidden)

    @property
    def blocks(self) -> int:
        """Blocks, and those of the modules that predict further tokens."""
        return self.layers + self.predicted_tokens

    @property
    def joining_parameters(self) -> int:
        """Parameters of a module that predicts a token more beside its block: a product, three norms."""
        return 2 * self.hidden**2 + 3 * self.norm_parameters

    @property
    def prediction_parameters(self) -> int:
        """Parameters of the modules that predict further tokens; embedding and head are the model's."""
        return self.predicted_tokens * (self.layer_parameters + self.joining_parameters)

    @property
    def parameters(self) -> int:
        """All parameters, exactly as published models count them: `prediction_parameters` are not in them."""
        blocks = (self.layers - self.dense_layers) * self.layer_parameters
        if self.shapes:
            blocks = sum(self.shapes[kind].layer_parameters for kind in self.order)
        elif self.dense_layers:
            blocks += self.dense_layers * self.dense.layer_parameters
        return self.embedding_parameters + blocks + self.head_parameters + self.retrieval_parameters

    @property
    def retrieval_parameters(self) -> int:
        """Parameters of cross-attentions to neighbours and of the encoder, with its embedding."""
        if self.retrieval is None:
            return 0
        return self.cross_parameters * self.retrieval.among(0, self.layers) + self.encoder_parameters

    @property
    def cross_parameters(self) -> int:
        """Parameters of one cross-attention to neighbours, with its norm."""
        if self.retrieval is None:
            return 0
        return self.retrieval.cross_matrices(self.hidden, self.query_width) + self.norm_parameters

    @property
    def encoder_parameters(self) -> int:
        """Parameters of the encoder of neighbours, with its embedding."""
        if self.retrieval is None:
            return 0
        matrices = self.retrieval.encoder_matrices(self.hidden)
        return matrices + self.retrieval.encoder_norms + self.vocabulary * self.retrieval.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters that one token visits: idle experts left out."""
        idle = self.experts - self.experts_per_token
        each = self.expert_matrices + self.expert_biases
        return self.parameters - self.expert_layers * idle * each


_SIZES = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn_hidden",
    "vocabulary",
    "max_sequence",
    "experts",
    "experts_per_token",
)


MOST_NAMED = 64
"""Largest divisor that a message lists; dimensionless."""


def divisors(whole: int) -> list[int]:
    """Return all divisors of a whole number, in order."""
    small = [one for one in range(1, int(whole**0.5) + 1) if whole % one == 0]
    return sorted({*small, *(whole // one for one in small)})


def divisors_phrase(whole: int, fits: Callable[[int], bool] = lambda part: True) -> str:
    """Return the divisors of a number for which `fits` holds as a phrase for a message: ``1, 2 or 4``."""
    found = [str(part) for part in divisors(whole) if part <= MOST_NAMED and fits(part)]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"

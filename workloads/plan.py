"""The plan of a training run: how accelerators share a model and a batch, and what they keep."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass

from heliograph.errors import WorkloadError
from heliograph.layout import RankLayout
from workloads.architecture import TransformerConfig
from workloads.choices import (
    Attention,
    ContextExchange,
    Exchange,
    Optimizer,
    Precision,
    Recompute,
    Schedule,
    phrase,
)

FROM_ZERO = frozenset({"zero", "servers", "delay"})
"""Counts that may be zero."""


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """A plan: how ranks share a model and a batch, and what they keep.

    Raises
    ------
    WorkloadError
        If a count is not a positive whole number, or a choice is not one of those known. Whether the plan
        fits a model is asked of `check`.
    """

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Data-parallel ranks."""
    vpp: int = 1
    """Chunks of blocks that each stage holds (interleaved 1F1B, arXiv:2104.04473)."""
    cp: int = 1
    """Context-parallel ranks, each with a share of every sequence."""
    context_exchange: ContextExchange = ContextExchange.RING
    """How context-parallel ranks share keys and values."""
    ep: int = 1
    """Expert-parallel ranks, taken from the data-parallel ones."""
    micro_batch: int = 1
    """Sequences in a microbatch."""
    global_batch: int = 1
    """Sequences in a step, over all data-parallel ranks."""
    sequence_length: int = 2048
    """Tokens in a sequence; see `default_sequence_length`."""
    sequence_parallel: bool = True
    """Whether norms and residuals are cut over the tensor-parallel ranks (arXiv:2205.05198)."""
    recompute: Recompute = Recompute.NONE
    """What is computed twice."""
    zero: int = 1
    """0: every rank keeps the whole optimizer, gradients are all-reduced. 1: each data-parallel rank keeps
    its share; gradients are reduce-scattered, parameters all-gathered. 2: gradients are kept in shares too,
    hence summed for every microbatch. 3: so are parameters (FSDP), gathered for every microbatch."""
    reshard: bool = True
    """With zero=3, whether parameters are given up after the forward pass and gathered again for the backward
    pass. If not, they stay until the microbatch is done, with pipeline stages until the step is."""
    grad_buckets: int = 4
    """Most pieces into which a stage's gradients and parameters are cut to be sent while others compute."""
    grad_bytes: int = 4
    """Bytes of an accumulated gradient: 4 (fp32, the usual choice) or 2."""
    precision: Precision = Precision.BF16
    """Stored form of weights and activations; fp8 stores bf16 and multiplies with weights in fp8."""
    optimizer: Optimizer = Optimizer.ADAM
    """What turns gradients into steps."""
    attention: Attention = Attention.FLASH
    """Whether the score matrix is written to memory."""
    causal_half: bool = False
    """Whether a kernel skips the masked half of attention's products."""
    schedule: Schedule = Schedule.ONE_FORWARD_ONE_BACKWARD
    """Order of microbatches."""
    embedding_as_layers: bool = False
    """Whether embedding and head count as a block each when blocks are shared over stages (BLOOM)."""
    vocabulary_multiple: int = 128
    """The vocabulary is padded to a multiple of this times `tp` (Megatron-LM's convention)."""
    steps: int = 1
    """Steps that one run holds. With more than one, times are those of a step in the steady state, where no
    stage waits for another's update. Plans whose steps overlap hold as many as that state needs."""
    exchange: Exchange = Exchange.COLLECTIVE
    """How data-parallel ranks bring gradients together: among themselves, or through parameter servers, to
    which every rank pushes its gradients and from which it pulls the parameters (Li et al., OSDI 2014)."""
    servers: int = 0
    """With exchange=parameter_server, how many of the data-parallel ranks hold a share of the parameters'
    masters; 0: all of them."""
    delay: int = 0
    """With exchange=parameter_server, how many steps a rank may begin before the pull of an earlier one has
    arrived (bounded delay); 0: every step waits for the one before (bulk-synchronous)."""
    asynchronous: bool = False
    """With exchange=parameter_server, whether ranks never wait for a pull, only for room to send from."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            kind = KINDS[item.name]
            least = 0 if item.name in FROM_ZERO else 1
            if kind is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                msg = f"plan: {item.name} must be a whole number of at least {least}; got {value!r}"
                raise WorkloadError(msg)
            if kind is not int and not isinstance(value, kind):
                msg = f"plan: {item.name} must be {phrase(kind)}; got {value!r}"
                raise WorkloadError(msg)
        if self.zero > 3:
            msg = f"plan: zero ({self.zero}) must be 0, 1, 2 or 3"
            raise WorkloadError(msg)
        if self.grad_bytes not in {2, 4}:
            msg = f"plan: grad_bytes ({self.grad_bytes}) must be 2 or 4"
            raise WorkloadError(msg)

    @property
    def ranks(self) -> int:
        """Accelerators that the plan takes."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def microbatches(self) -> int:
        """Microbatches of a step on each data-parallel rank."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch on one context-parallel rank."""
        return self.micro_batch * self.sequence_length // self.cp

    @property
    def shards_gradients(self) -> bool:
        """Whether a rank keeps its share of the gradients only; every microbatch's are then summed."""
        return self.zero in {2, 3}

    @property
    def shards_parameters(self) -> bool:
        """Whether a rank keeps its share of the parameters only."""
        return self.zero == 3

    @property
    def gathers_every_microbatch(self) -> bool:
        """Whether parameters are gathered for every microbatch, for no rank keeps them all."""
        return self.shards_parameters and (self.reshard or self.pp == 1)

    @property
    def two_copies(self) -> bool:
        """Whether every parameter stands on two stages, which share its optimizer."""
        return self.schedule is Schedule.DUALPIPE

    @property
    def uses_servers(self) -> bool:
        """Whether gradients and parameters travel through parameter servers."""
        return self.exchange is Exchange.PARAMETER_SERVER

    @property
    def server_count(self) -> int:
        """Parameter servers of each group of data-parallel ranks."""
        return self.servers or self.gradient_ranks

    @property
    def waits_for_pulls(self) -> bool:
        """Whether a step begins only when the pull of the step before it has arrived."""
        return self.delay == 0 and not self.asynchronous

    @property
    def steps_in_run(self) -> int:
        """Steps that a run holds: those asked for, or as many as overlapping steps need to become steady."""
        if self.schedule.flows:
            return max(self.steps, 4 + -(-4 * self.pp // self.microbatches))
        ahead = 2 if self.asynchronous else self.delay
        return max(self.steps, 6 + 4 * ahead) if ahead else self.steps

    @property
    def layout(self) -> RankLayout:
        """Which ranks form which groups."""
        return RankLayout(tp=self.tp, cp=self.cp, dp=self.dp, pp=self.pp, ep=self.ep)

    @property
    def gradient_axis(self) -> str:
        """Axis over which gradients of dense parameters are summed."""
        return "dp" if self.cp == 1 else "dpcp"

    @property
    def gradient_ranks(self) -> int:
        """Ranks over which gradients of dense parameters are summed."""
        return self.dp * self.cp

    def kv_heads(self, config: TransformerConfig) -> int:
        """Return the key and value heads of a rank; ranks that outnumber the heads share one."""
        return -(-config.kv_heads // self.tp)

    def key_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's keys as attention reads them."""
        if config.kv_rank:
            return config.key_width // self.tp
        return self.kv_heads(config) * config.head_dim

    def value_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's values as attention reads them."""
        if config.kv_rank:
            return config.value_width // self.tp
        return self.kv_heads(config) * config.head_dim

    def padded_vocabulary(self, config: TransformerConfig) -> int:
        """Return the rows of the embedding after padding, so that ranks share them evenly."""
        step = self.vocabulary_multiple * self.tp
        return -(-config.vocabulary // step) * step


KINDS: dict[str, type] = typing.get_type_hints(Parallelism)
"""Kind of value of each field."""

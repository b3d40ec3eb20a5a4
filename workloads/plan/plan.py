"""The plan of a training run: how accelerators share a model and a batch, and what they keep."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass

from simulator.errors import WorkloadError
from simulator.layout import RankLayout
from workloads.models.architecture import TransformerConfig
from workloads.plan.choices import (
    Attention,
    ContextExchange,
    Exchange,
    ExpertExchange,
    Optimizer,
    Place,
    Precision,
    Recompute,
    Schedule,
    TensorGrid,
    WeightSparsity,
    phrase,
)


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
    hence summed for every microbatch. 3: so are parameters (FSDP), gathered for every microbatch. DeepSpeed
    takes 0 and 1 only with pipeline stages; 2 and 3 run here, as FSDP does beside stages for Llama 3
    (arXiv:2407.21783, section 3.3.2), and pay with a sum for every microbatch."""
    reshard: bool = True
    """With zero=3, whether parameters are given up after the forward pass and gathered again for the backward
    pass. If not, they stay until the microbatch is done, with pipeline stages until the step is."""
    fused: bool = True
    """Whether element-wise operations in a row share a kernel, or each has its own (`layers.parts`)."""
    prefetch: bool = True
    """With zero=3, whether parameters are gathered, and gradients summed, while another part is worked on, or
    the work waits for either (DeepSpeed of 2021)."""
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
    overlap_sends: bool = True
    """Whether a stage goes on while its output is being sent; Megatron-LM and DeepSpeed wait for their sends
    unless stages are interleaved by later versions."""
    embedding_as_layers: bool = False
    """Whether embedding and head count as a block each when blocks are shared over stages (BLOOM)."""
    vocabulary_multiple: int = 128
    """The vocabulary is padded to a multiple of this times `tp` (Megatron-LM's convention)."""
    shard_group: int = 0
    """Ranks of a group within which `zero` shares what it shares; groups are copies of each other, and sum
    their gradients once a step (MiCS, arXiv:2205.00119; hybrid FSDP). 0: all data-parallel ranks."""
    local_group: int = 0
    """With ZeRO++, data-parallel ranks that stand in one node. 0: their nodes do not matter."""
    quantised_weights: bool = False
    """Whether parameters are gathered as int8 with a scale per block (qwZ of ZeRO++, arXiv:2306.10209)."""
    secondary_copy: bool = False
    """Whether the ranks of a `local_group` keep one more copy of the parameters between them, from which the
    backward pass gathers (hpZ of ZeRO++)."""
    quantised_gradients: bool = False
    """Whether gradients are summed by all-to-alls of int4 with a scale per block, first within a
    `local_group` if there is one, then across (qgZ of ZeRO++)."""
    optimizer_place: Place = Place.DEVICE
    """Where the optimizer's state stays. Off the device, the host's processors run the optimizer: gradients
    go down and parameters come up (ZeRO-Offload, arXiv:2101.06840; nvme: ZeRO-Infinity, arXiv:2104.07857)."""
    parameter_place: Place = Place.DEVICE
    """Where a rank's share of the parameters stays between passes, with zero=3 (ZeRO-Infinity)."""
    delayed_update: bool = False
    """Whether the host runs the optimizer beside the next step's passes, which then use parameters of one
    update less (delayed parameter update of ZeRO-Offload)."""

    capacity_factor: float = 0.0
    """Places that an expert has for a rank's tokens over what an even router sends it; visits beyond them are
    dropped, empty ones padded (GShard, Switch). 0: as many places as visits (FastMoE, MegaBlocks)."""
    expert_imbalance: float = 1.0
    """Load of the busiest expert over the mean; 1 is an even router. See `workloads.layers.routing`."""
    expert_affinity: float = 1.0
    """What a rank sends the expert rank it prefers over the mean of all others; 1 if it prefers none, at most
    half of them. Every rank prefers another, so that none is busier for it. See `simulator.operators`."""
    exchange_counts: bool = False
    """Whether ranks tell each other how many tokens each expert gets before they send them (FastMoE)."""
    expert_exchange: ExpertExchange = ExpertExchange.DIRECT
    """How tokens reach the ranks of their experts on other nodes."""
    whole_experts: bool = False
    """Whether experts are not cut over tensor ranks, which take part in expert parallelism instead, each with
    its share of the tokens (Megatron-LM's expert tensor parallelism of 1)."""
    overlap_experts: bool = False
    """Whether a microbatch's expert exchanges run beside another's work, a forward and a backward pass at a
    time (DualPipe's F&B, Megatron-LM's 1F1B overlap). See `workloads.step.step`."""
    overlap_tensor: bool = False
    """Whether all-gathers and reduce-scatters of tensor parallelism travel in shards beside the products they
    feed (`workloads.layers.tensor_grid`); needs `sequence_parallel`."""
    tensor_grid: TensorGrid = TensorGrid.LINE
    """How tensor-parallel ranks stand: on a grid (tp = q x q) products run as SUMMA (`tensor_grid`)."""
    tensor_depth: int = 1
    """With tensor_grid=2.5d, squares that share the batch and hold the same weights (tp = q x q x depth)."""
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
    weight_sparsity: WeightSparsity = WeightSparsity.NONE
    """Whether the weights of blocks are pruned so that sparse units multiply them faster, forward and for the
    input's gradient; the weight's gradient, its master copy and the optimizer stay dense."""
    weight_density: float = 1.0
    """Share of the 128 x 128 blocks of a block's weights that exist at all (block-sparse weights)."""
    attention_keys: int = 0
    """Keys that a query sees under block-sparse attention, in whole blocks of 64 (Sparse Transformer,
    arXiv:1904.10509; BigBird, arXiv:2007.14062). 0: all of them."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            kind = KINDS[item.name]
            least = 0 if item.name in MAY_BE_ZERO else 1
            if kind is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                msg = f"plan: {item.name} must be a whole number of at least {least}; got {value!r}"
                raise WorkloadError(msg)
            number = kind is float and isinstance(value, int | float) and not isinstance(value, bool)
            if kind is not int and not isinstance(value, kind) and not number:
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
        return RankLayout(
            tp=self.tp,
            cp=self.cp,
            dp=self.dp,
            pp=self.pp,
            ep=self.ep,
            ep_over_tp=self.whole_experts,
            inner=self.inner_ranks,
            side=self.side,
        )

    @property
    def side(self) -> int:
        """Side of the squares on which tensor-parallel ranks stand; 1 on a line."""
        return 1 if self.tensor_grid is TensorGrid.LINE else self.columns

    @property
    def columns(self) -> int:
        """Tensor-parallel ranks that share heads and inner widths: all of a line, a side of a square."""
        line = self.tensor_grid is TensorGrid.LINE
        return self.tp if line else max(1, math.isqrt(self.tp // self.tensor_depth))

    @property
    def rows(self) -> int:
        """Tensor-parallel ranks over which the sequences of a microbatch are cut, and weights are not."""
        return self.tp // self.columns

    @property
    def gradient_axis(self) -> str:
        """Axis over which gradients of dense parameters are summed."""
        return "dp" if self.cp == 1 else "dpcp"

    @property
    def gradient_ranks(self) -> int:
        """Ranks over which gradients of dense parameters are summed."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same experts, over which their gradients are summed."""
        return self.gradient_ranks * (self.tp if self.whole_experts else 1) // self.ep

    @property
    def routed_tokens(self) -> int:
        """Tokens of one microbatch that one rank sends to experts."""
        return self.tokens // (self.tp if self.whole_experts else 1)

    @property
    def inner_ranks(self) -> int:
        """Neighbours that form an inner group of the ranks over which gradients are summed; 1 without."""
        return self.shard_group or self.local_group or 1

    @property
    def shard_ranks(self) -> int:
        """Ranks over which `zero` shares optimizer, gradients and parameters."""
        return self.shard_group or self.gradient_ranks

    @property
    def shard_axis(self) -> str:
        """Axis along which those ranks stand."""
        return "inner" if self.shard_group else self.gradient_axis

    @property
    def updates_on_host(self) -> bool:
        """Whether the host's processors run the optimizer."""
        return self.optimizer_place is not Place.DEVICE

    @property
    def fetches_parameters(self) -> bool:
        """Whether parameters come from the host for every pass."""
        return self.parameter_place is not Place.DEVICE

    def kv_heads(self, config: TransformerConfig) -> int:
        """Return the key and value heads of a rank; ranks that outnumber the heads share one."""
        return -(-config.kv_heads // self.columns)

    def key_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's keys as attention reads them."""
        if config.kv_rank:
            return config.key_width // self.columns
        return self.kv_heads(config) * config.head_dim

    def value_width(self, config: TransformerConfig) -> int:
        """Return the width of a rank's values as attention reads them."""
        if config.kv_rank:
            return config.value_width // self.columns
        return self.kv_heads(config) * config.head_dim

    def padded_vocabulary(self, config: TransformerConfig) -> int:
        """Return the rows of the embedding after padding, so that ranks share them evenly."""
        step = self.vocabulary_multiple * self.tp
        return -(-config.vocabulary // step) * step


MAY_BE_ZERO = frozenset({"zero", "shard_group", "local_group", "servers", "delay", "attention_keys"})
"""Counts of which none is a choice too."""
KINDS: dict[str, type] = typing.get_type_hints(Parallelism)
"""Kind of value of each field."""

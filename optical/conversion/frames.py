"""Frames of a converted model: the running layer, its call and its key (seed, step, place in the batch)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import math
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch

from optical.conversion.policy import Policy, ProductKind
from optical.execution import Mode, ProductSpecs
from optical.execution.matmul import noisy_matmul
from optical.execution.spec import EXACT
from simulator.errors import ParameterError, WorkloadError
from simulator.keys import mix_key


@dataclass(frozen=True, kw_only=True)
class NoiseKey:
    """Source of all draws of one pass through a model, forward and backward."""

    seed: int
    """Of the whole run."""
    step: int = 0
    """Of training, or the number of a batch or token: each new step draws anew."""
    part: int = 0
    """Which of the equal parts of the global batch this pass works on: a data-parallel process takes
    its place among the processes; with n microbatches, n times that plus the number of the microbatch."""
    alike: bool = True
    """Whether a product has equally many rows in all parts. If not, as where each part is padded to its own
    longest sequence, parts still share no draw, but none draws what one process would."""
    numbers: np.ndarray = field(init=False, repr=False, compare=False)
    """Value and part, shape [2]: an input of compiled graphs, which so follow the step without another
    compilation, and no buffer, which replicas would overwrite."""

    def __post_init__(self) -> None:
        for name in ("seed", "step", "part"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                msg = f"NoiseKey: {name} must be a whole number of at least 0; got {value!r}"
                raise ParameterError(msg)
        signed = self.value - 2**64 if self.value >= 2**63 else self.value
        object.__setattr__(self, "numbers", np.array((signed, self.part), dtype=np.int64))

    @property
    def value(self) -> int:
        """The key of all parts, in [0, 2**64)."""
        return mix_key(self.seed, self.step)


@dataclass(frozen=True, eq=False)
class TensorKey:
    """A key that is an input of a model, of whose value a compiler knows nothing."""

    numbers: torch.Tensor
    """Value and part, int64, shape [2], on the CPU."""
    alike: bool = True
    """As in `NoiseKey`."""

    @property
    def value(self) -> int:
        """The key of all parts, in [0, 2**64)."""
        return self._read()[0] % 2**64

    def _read(self) -> list[int]:
        """Return the numbers, unseen by conversions, to which reading a tensor says that rows hang on it."""
        with torch._C.DisableTorchFunction():
            return self.numbers.tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorKey) and self._read() == other._read()

    def __hash__(self) -> int:
        return hash(self.value)


KeyT = TypeVar("KeyT", NoiseKey, TensorKey)


@dataclass(kw_only=True)
class _Open(threading.local):
    """The open key of this thread; compilers see through it, as they do not through a context variable."""

    key: NoiseKey | TensorKey | None = None
    """The innermost key."""


_OPEN = _Open()


def noise_key(
    seed: int, step: int = 0, *, part: int = 0, alike: bool = True
) -> contextlib.AbstractContextManager[NoiseKey]:
    """Give the products of converted models their draws; it goes before the key of a model.

    Parameters
    ----------
    seed, step, part, alike : int or bool
        As in `NoiseKey`. Row blocks are counted from the part on, so that parts in different processes draw
        what one process draws, if each product's part is a whole number of row blocks. Where rows are picked
        by the values of tensors, as experts do, each part has numbers of its own.

    Raises
    ------
    ParameterError
        If a number is not whole, or below 0.
    """
    return opened(NoiseKey(seed=seed, step=step, part=part, alike=alike))


@contextlib.contextmanager
def opened(key: KeyT) -> Iterator[KeyT]:
    """Give the products of converted models their draws from a key."""
    before, _OPEN.key = _OPEN.key, key
    try:
        yield key
    finally:
        _OPEN.key = before


def open_key() -> NoiseKey | TensorKey | None:
    """Return the innermost open key of this thread, or None."""
    return _OPEN.key


_INT64_MASK = 2**63 - 1
_REMEMBERED_INPUTS = 4096
"""Calls of a layer, within one step, whose recomputation can be traced back by what it is given."""
_OWN_BLOCKS = 2**40
"""Numbers of row blocks set aside for each part where parts may differ in rows; more than any product has."""
_Call = tuple[int, NoiseKey | TensorKey | None, bool]
"""What tells repeated calls of a layer apart, the key of the call, and whether it begins `ragged`."""
_Fingerprint = tuple[tuple[int, torch.Size], ...]
"""Where the tensors that a call was given lie in memory, and their shapes."""


@dataclass(kw_only=True)
class Conversion:
    """State that all layers of a converted model share."""

    specs: ProductSpecs
    """Specifications of products on the core."""
    policy: Policy
    """Division of the model between core and electronics."""
    key: NoiseKey | None
    """Key where none is open."""
    attention: str | None = None
    """Attention that a Hugging Face model had, if the conversion took another."""


@dataclass(kw_only=True)
class Site:
    """One layer of a converted model."""

    conversion: Conversion
    """State that it shares with the others."""
    name: str
    """Its name in the model; empty for the model itself."""
    number: int
    """Its place in the order of the model's modules."""
    included: bool
    """Whether its products go to the core at all."""
    acting: dict[tuple[ProductKind, bool], ProductSpecs | None] = field(init=False)
    """What acts on a kind of product, in training and not; compiled graphs hang on it."""
    calls: set[_Call] = field(default_factory=set)
    """Each call of this step, for calls that are recomputed in the backward pass."""
    inputs: dict[_Fingerprint, tuple[_Call, list[weakref.ref[torch.Tensor]]]] = field(default_factory=dict)
    """The last call that was given tensors of some places and shapes, and those tensors."""

    def __post_init__(self) -> None:
        policy = self.conversion.policy
        self.acting = {}
        for kind in ProductKind:
            specs = policy.specs(self.name, kind, self.conversion.specs) if self.included else None
            for training in (True, False):
                self.acting[kind, training] = specs and _within(specs, policy.mode, training)

    def __deepcopy__(self, memo: dict[int, object]) -> Site:
        """Return a copy that has not been called."""
        conversion = copy.deepcopy(self.conversion, memo)
        return Site(conversion=conversion, name=self.name, number=self.number, included=self.included)

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: all but the calls."""
        return {**self.__dict__, "calls": set(), "inputs": {}}

    def specs(self, kind: ProductKind, *, training: bool) -> ProductSpecs | None:
        """Return what acts on a product, or None if it is electronic."""
        return self.acting[kind, training]


@functools.lru_cache(maxsize=1024)
def _within(specs: ProductSpecs, mode: Mode, training: bool) -> ProductSpecs:
    """Return what acts in a mode, one object for all layers."""
    return specs.within(mode, training=training)


@dataclass(kw_only=True)
class Frame:
    """One call of a layer."""

    site: Site
    """The layer."""
    training: bool
    """Whether it trains."""
    path: int
    """0, or for repeated calls of it, or of a layer around it, what tells them apart."""
    key: NoiseKey | TensorKey | None
    """Source of draws."""
    ragged: bool = False
    """Whether the number of rows may hang on values of tensors, so that parts of a batch differ in it."""
    picks: bool = False
    """Whether this call itself, not one around it, made it so."""
    operation: int = -1
    """Number of the operation of torch that runs."""
    product: int = 0
    """Number of the next product in that operation."""
    repeats: dict[int, int] = field(default_factory=dict)
    """Calls of each layer from here."""
    attention: list[ProductKind] = field(default_factory=list)
    """What the next products of two activations are, where that is known."""
    samples: int = 1
    """Samples that lie one behind the other in the rows of an activation, place by place: the batch's second
    dimension, as within torch's attention."""

    def copy(self) -> Frame:
        """Return the call as it stands, with counts of its own."""
        return dataclasses.replace(self, repeats=dict(self.repeats), attention=list(self.attention))

    def begin(self) -> None:
        """Count one more operation."""
        self.operation, self.product = self.operation + 1, 0

    def is_electronic(self, *kinds: ProductKind) -> bool:
        """Return whether none of these kinds of product goes to the core."""
        return all(self.site.specs(kind, training=self.training) is None for kind in kinds)

    def multiply(
        self, kind: ProductKind, a: torch.Tensor, b: torch.Tensor, *, weight: bool = False
    ) -> torch.Tensor:
        """Return a product, from the core unless it is electronic, empty, without a sum, or of integers.

        Parameters
        ----------
        kind : ProductKind
            What it does.
        a, b : torch.Tensor
            Operands as `noisy_matmul` takes them.
        weight : bool
            Whether B is a weight.
        """
        specs = self.site.specs(kind, training=self.training)
        place = (self.site.number, self.path & _INT64_MASK, self.operation, self.product)
        self.product += 1
        name = f"{self.site.name}:{kind}"
        if specs is None:
            with running(name, electronic=True):
                return torch.matmul(a, b)
        if not a.layout == b.layout == torch.strided or a.is_nested or b.is_nested:
            kinds = " and ".join("nested" if one.is_nested else str(one.layout) for one in (a, b))
            msg = (
                f"'{self.site.name}' multiplies tensors of layouts {kinds}; a core takes "
                "dense ones: exclude the layer or name it in Policy.electronic"
            )
            raise WorkloadError(msg)
        if not a.is_floating_point() or a.shape[-1] < 2 or _is_empty(a, b):
            with running(name, electronic=True):
                return torch.matmul(a, b)
        with running(name):
            key, blocks = self._draws(specs, a, b, ragged=self.ragged or kind is ProductKind.EXPERTS)
            return noisy_matmul(a, b, specs, key, weight=weight, place=place, part_blocks=blocks)

    def _draws(
        self, specs: ProductSpecs, a: torch.Tensor, b: torch.Tensor, *, ragged: bool
    ) -> tuple[int | torch.Tensor, int]:
        """Return the key of a product, and how many row blocks each part of the global batch has.

        Parts alike, of whole row blocks, are counted on, and so draw what one process draws. Others could
        then share a block, three blocks of part 1 being 3 to 5, two of part 2 being 4 and 5; each gets far
        more numbers than it needs, the same in all processes, whatever its rows. Part 0 begins at 0 anyway.
        """
        if self.key is None:
            if specs.forward == specs.grad_input == specs.grad_weight == EXACT:
                return 0, 0
            name = self.site.name or "the model"
            msg = f"{name} draws noise from no key; run it within noise_key(seed, step) or give a model_key"
            raise WorkloadError(msg)
        batch = 1 if b.dim() == 2 else math.prod(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
        rows = a.numel() // a.shape[-1] if b.dim() == 2 else a.shape[-2]
        count, size = (rows, specs.row_block) if batch == 1 else (batch, max(1, specs.row_block // rows))
        blocks = -(-count // size)
        if ragged or not self.key.alike:
            blocks = _OWN_BLOCKS
        else:  # one more for a block that is not whole; no branch, as compilers may not know the rows yet
            blocks += _OWN_BLOCKS * (blocks - count // size)
        numbers = self.key.numbers
        return numbers if isinstance(numbers, torch.Tensor) else torch.from_numpy(numbers), blocks


def _is_empty(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether an operand has no elements; the core itself answers where sizes are not known yet."""
    return not torch.compiler.is_compiling() and 0 in (*a.shape, *b.shape)


@dataclass(kw_only=True)
class _Running(threading.local):
    """The layers that run in this thread."""

    frames: list[Frame] = field(default_factory=list)
    """Calls of layers, the innermost last."""
    product: str | None = None
    """Name of the product that runs."""
    electronic: bool = False
    """Whether it is electronic."""


_RUNNING = _Running()


def current_frame() -> Frame | None:
    """Return the innermost call of a converted layer in this thread."""
    return _RUNNING.frames[-1] if _RUNNING.frames else None


def current_product() -> tuple[str | None, bool]:
    """Return the name of the product that runs in this thread, if any, and whether it is electronic."""
    return _RUNNING.product, _RUNNING.electronic


@contextlib.contextmanager
def running(name: str, *, electronic: bool = False) -> Iterator[None]:
    """Name the product that runs."""
    before = _RUNNING.product, _RUNNING.electronic
    _RUNNING.product, _RUNNING.electronic = name, electronic
    try:
        yield
    finally:
        _RUNNING.product, _RUNNING.electronic = before


@contextlib.contextmanager
def entered(site: Site, *, training: bool, tensors: list[torch.Tensor]) -> Iterator[Frame]:
    """Run a call of a layer."""
    frames = _RUNNING.frames
    traced = torch.compiler.is_compiling()
    if traced:
        _check_compiler()
    if not traced and not frames and torch._C._current_graph_task_id() != -1:
        path, key, ragged = _recomputed(site, tensors)
    else:
        around = frames[-1] if frames else None
        key = (around and around.key) or open_key() or site.conversion.key
        path, ragged = (around.path, around.ragged) if around else (0, False)
        if around:
            repeat = around.repeats.get(site.number, 0)
            around.repeats[site.number] = repeat + 1
            path = mix_key(path, site.number, repeat) if repeat else path
        if not traced:
            _remember(site, tensors, (path, key, ragged))
    frame = Frame(site=site, training=training, path=path, key=key, ragged=ragged)
    frames.append(frame)
    try:
        yield frame
    finally:
        frames.pop()
        if frame.picks and frames:  # what it returns may be as ragged, as a router's indices are
            frames[-1].ragged = True


@contextlib.contextmanager
def resumed(kept: Frame) -> Iterator[None]:
    """Run in a call as it stood when it was copied."""
    _RUNNING.frames.append(kept.copy())
    try:
        yield
    finally:
        _RUNNING.frames.pop()


@torch.compiler.assume_constant_result
def _check_compiler() -> bool:
    """Refuse an option of compilers under which recomputed calls would draw anew, without a word."""
    if torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint:
        msg = (
            "skip_fwd_side_effects_in_bwd_under_checkpoint drops the numbers of calls, so that checkpointed "
            "layers draw other noise when recomputed; unset it in torch._dynamo.config, and compile "
            "without fullgraph"
        )
        raise WorkloadError(msg)
    return True


def _fingerprint(tensors: list[torch.Tensor]) -> _Fingerprint | None:
    try:
        return tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)
    except RuntimeError:  # tensors without memory, as in tracing
        return None


def _remember(site: Site, tensors: list[torch.Tensor], call: _Call) -> None:
    """Keep what a recomputation of this call needs; a checkpoint keeps its inputs alive, where they are."""
    key = next(iter(site.calls), call)[1]
    if (key and key.value) != (call[1] and call[1].value):
        site.calls.clear()
        site.inputs.clear()
    if len(site.inputs) >= _REMEMBERED_INPUTS:
        site.inputs.clear()
    site.calls.add(call)
    mark = _fingerprint(tensors)
    if mark:
        site.inputs[mark] = (call, [weakref.ref(tensor) for tensor in tensors])


def _recomputed(site: Site, tensors: list[torch.Tensor]) -> _Call:
    """Return the call that the backward pass runs again."""
    call, kept = site.inputs.get(_fingerprint(tensors) or (), (None, []))
    if call is not None and all(tensor() is not None for tensor in kept):
        return call
    meant = site.calls or {(0, open_key() or site.conversion.key, False)}
    if len(meant) > 1:
        msg = (
            f"'{site.name}' is recomputed in the backward pass from tensors that no checkpoint kept; it "
            f"could be any of its {len(meant)} calls of this step; checkpoint the module itself"
        )
        raise WorkloadError(msg)
    return next(iter(meant))

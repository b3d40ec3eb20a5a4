"""Calls of the layers of a converted model, and the keys from which their products draw.

`NoiseKey` is the key of a pass: seed, step and part of the batch. `Site` is a layer of a converted model,
`Frame` one call of it; frames form a stack for each thread (`entered`, `current_frame`). `Frame.multiply`
runs a product on the core or electronically. Calls are remembered for a step, so that a layer that a
checkpoint recomputes in the backward pass gets the draws of its first run.
"""

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
from typing import NamedTuple, TypeVar

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
    """Key of all draws of one pass through a model, forward and backward."""

    seed: int
    """Seed of the whole run."""
    step: int = 0
    """Step of training, or number of a batch or token; each step draws anew."""
    part: int = 0
    """Number of the equal part of the global batch that this pass works on: the rank of a data-parallel
    process; with n microbatches, n times the rank plus the number of the microbatch."""
    alike: bool = True
    """Whether a product has equally many rows in all parts. If not, as where each part is padded to its own
    longest sequence, parts share no draw, but draw otherwise than one process would."""
    numbers: np.ndarray = field(init=False, repr=False, compare=False)
    """Value and part, int64 [2]: an input of compiled graphs, so that a new step needs no compilation; not a
    buffer, which replicas would overwrite."""

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
        """Key that all parts share, in [0, 2**64)."""
        return mix_key(self.seed, self.step)


@dataclass(frozen=True, eq=False)
class TensorKey:
    """Key that is an input of a model, so that a compiler does not know its value."""

    numbers: torch.Tensor
    """Value and part, int64, shape [2], on the CPU."""
    alike: bool = True
    """As in `NoiseKey`."""

    @property
    def value(self) -> int:
        """Key that all parts share, in [0, 2**64)."""
        return self._read()[0] % 2**64

    def _read(self) -> list[int]:
        """Return the numbers without interception, which takes such a read for a selection of rows."""
        with torch._C.DisableTorchFunction():
            return self.numbers.tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorKey) and self._read() == other._read()

    def __hash__(self) -> int:
        return hash(self.value)


KeyT = TypeVar("KeyT", NoiseKey, TensorKey)


def noise_key(
    seed: int, step: int = 0, *, part: int = 0, alike: bool = True
) -> contextlib.AbstractContextManager[NoiseKey]:
    """Open a key from which the products of converted models draw; it takes precedence over a model's key.

    Parameters
    ----------
    seed, step, part, alike : int or bool
        Fields of `NoiseKey`. Row blocks are numbered from the part's first on, so that parts in different
        processes draw the same as one process, if each part of a product is a whole number of row blocks.
        Where rows are selected by values of tensors, as experts select tokens, each part has block numbers of
        its own.

    Raises
    ------
    ParameterError
        If a number is not whole, or below 0.
    """
    return opened(NoiseKey(seed=seed, step=step, part=part, alike=alike))


@contextlib.contextmanager
def opened(key: KeyT) -> Iterator[KeyT]:
    """Open a key from which the products of converted models draw."""
    before, _RUNNING.key = _RUNNING.key, key
    try:
        yield key
    finally:
        _RUNNING.key = before


def open_key() -> NoiseKey | TensorKey | None:
    """Return the innermost open key of this thread, or None."""
    return _RUNNING.key


_INT64_MASK = 2**63 - 1
_REMEMBERED_INPUTS = 4096
"""Calls of a layer, within one step, that a recomputation can be matched to by its inputs; a choice."""
_OWN_BLOCKS = 2**40
"""Block numbers reserved for each part where parts may differ in rows; more than any product has."""


class _Call(NamedTuple):
    """Identity of a call of a layer, with which a recomputation repeats its draws."""

    path: int
    """`Frame.path`."""
    key: NoiseKey | TensorKey | None
    """Key of the call."""
    ragged: bool
    """Whether the call begins ragged (`Frame.ragged`)."""


_Fingerprint = tuple[tuple[int, torch.Size], ...]
"""Addresses and shapes of the tensors that a call was given."""


@dataclass(kw_only=True)
class Conversion:
    """State that all layers of a converted model share."""

    specs: ProductSpecs
    """Specifications of products on the core."""
    policy: Policy
    """Division of the model between core and electronics."""
    key: NoiseKey | None
    """Key of draws where none is open."""
    attention: str | None = None
    """Name of the attention that the conversion replaced in a Hugging Face model."""


@dataclass(kw_only=True)
class Site:
    """Layer of a converted model."""

    conversion: Conversion
    """State that the layers share."""
    name: str
    """Name in the model; empty for the model itself."""
    number: int
    """Place in the order of the model's modules, part of all keys."""
    included: bool
    """Whether its products go to the core at all."""
    acting: dict[tuple[ProductKind, bool], ProductSpecs | None] = field(init=False)
    """Specifications that act on each kind of product, in training and not; None for electronic ones.
    Compiled graphs are guarded by them."""
    calls: set[_Call] = field(default_factory=set)
    """Calls of this step, to which a recomputation in the backward pass belongs."""
    inputs: dict[_Fingerprint, tuple[_Call, list[weakref.ref[torch.Tensor]]]] = field(default_factory=dict)
    """Last call with inputs of each fingerprint, and these inputs: if they still live, they are the same."""

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
        """Return the state to pickle: all but the calls."""
        return {**self.__dict__, "calls": set(), "inputs": {}}

    def specs(self, kind: ProductKind, *, training: bool) -> ProductSpecs | None:
        """Return the specifications that act on a kind of product, or None if it is electronic."""
        return self.acting[kind, training]


@functools.lru_cache(maxsize=1024)
def _within(specs: ProductSpecs, mode: Mode, training: bool) -> ProductSpecs:
    """Return the specifications that act in a mode, the same object for all layers."""
    return specs.within(mode, training=training)


@dataclass(kw_only=True)
class Frame:
    """One call of a layer, with the counters that key its products."""

    site: Site
    """Layer that is called."""
    training: bool
    """Whether it trains."""
    path: int
    """Number that tells repeated calls of the layer, or of a layer around it, apart; 0 for first calls."""
    key: NoiseKey | TensorKey | None
    """Key of draws."""
    ragged: bool = False
    """Whether numbers of rows may depend on values of tensors, so that parts of a batch may differ in
    them."""
    picks: bool = False
    """Whether this call, not one around it, selected rows by values."""
    operation: int = -1
    """Number of the present torch function with products."""
    product: int = 0
    """Number of the next product in that function."""
    repeats: dict[int, int] = field(default_factory=dict)
    """Calls of each layer that this call has made, by the layer's number."""
    attention: list[ProductKind] = field(default_factory=list)
    """Kinds of the next products of two activations, inside torch's own attention."""
    samples: int = 1
    """Samples in the second dimension of activations, as inside torch's own attention, whose rows are to be
    ordered sample by sample; 1 otherwise."""

    def copy(self) -> Frame:
        """Return the call in its present state, with counters of its own."""
        return dataclasses.replace(self, repeats=dict(self.repeats), attention=list(self.attention))

    def begin_operation(self) -> None:
        """Count a torch function with products."""
        self.operation, self.product = self.operation + 1, 0

    def is_electronic(self, *kinds: ProductKind) -> bool:
        """Return whether none of these kinds of product goes to the core."""
        return all(self.site.specs(kind, training=self.training) is None for kind in kinds)

    def multiply(
        self, kind: ProductKind, a: torch.Tensor, b: torch.Tensor, *, weight: bool = False
    ) -> torch.Tensor:
        """Return a product of the core, or of electronics.

        Electronic are products that the policy says, empty ones, those of integers, and those with K = 1.

        Parameters
        ----------
        kind : ProductKind
            Role of the product.
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
            layouts = " and ".join("nested" if x.is_nested else str(x.layout) for x in (a, b))
            msg = (
                f"'{self.site.name}' multiplies tensors of layouts {layouts}; a core takes "
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
        """Return the key of a product, and the block numbers that each part of the global batch has.

        If all parts have the same whole number of row blocks, their blocks are numbered consecutively, and
        draw the same as in one process. Otherwise parts could share numbers (part 1 of three blocks has 3 to
        5, part 2 of two has 4 and 5); each is given `_OWN_BLOCKS` numbers instead. Part 0 begins at 0 in any
        case.
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
    """Return whether an operand has no elements; False while compiling, as sizes may not be known yet."""
    return not torch.compiler.is_compiling() and 0 in (*a.shape, *b.shape)


@dataclass(kw_only=True)
class _Running(threading.local):
    """Open key, and running layers and product, of this thread.

    Compilers can trace a thread-local, but not a context variable.
    """

    key: NoiseKey | TensorKey | None = None
    """Innermost open key."""
    frames: list[Frame] = field(default_factory=list)
    """Calls of layers, the innermost last."""
    product: str | None = None
    """Name of the running product, ``layer:kind``."""
    electronic: bool = False
    """Whether that product is electronic."""


_RUNNING = _Running()


def current_frame() -> Frame | None:
    """Return the innermost call of a converted layer in this thread."""
    return _RUNNING.frames[-1] if _RUNNING.frames else None


def current_product() -> tuple[str | None, bool]:
    """Return the name of the running product of this thread, if any, and whether it is electronic."""
    return _RUNNING.product, _RUNNING.electronic


@contextlib.contextmanager
def running(name: str, *, electronic: bool = False) -> Iterator[None]:
    """Set the running product of this thread."""
    before = _RUNNING.product, _RUNNING.electronic
    _RUNNING.product, _RUNNING.electronic = name, electronic
    try:
        yield
    finally:
        _RUNNING.product, _RUNNING.electronic = before


@contextlib.contextmanager
def entered(site: Site, *, training: bool, tensors: list[torch.Tensor]) -> Iterator[Frame]:
    """Open a call of a layer, whose inputs are `tensors`.

    In the backward pass a call without one around it is the recomputation of a checkpoint, and takes the
    identity of its first run.
    """
    frames = _RUNNING.frames
    traced = torch.compiler.is_compiling()
    if traced:
        _check_compiler()
    if not traced and not frames and torch._C._current_graph_task_id() != -1:
        call = _recomputed_call(site, tensors)
    else:
        caller = frames[-1] if frames else None
        key = (caller and caller.key) or open_key() or site.conversion.key
        path, ragged = (caller.path, caller.ragged) if caller else (0, False)
        if caller:
            repeat = caller.repeats.get(site.number, 0)
            caller.repeats[site.number] = repeat + 1
            path = mix_key(path, site.number, repeat) if repeat else path
        call = _Call(path, key, ragged)
        if not traced:
            _remember(site, tensors, call)
    frame = Frame(site=site, training=training, path=call.path, key=call.key, ragged=call.ragged)
    frames.append(frame)
    try:
        yield frame
    finally:
        frames.pop()
        if frame.picks and frames:  # its caller may select rows by what it returns, as by a router's indices
            frames[-1].ragged = True


@contextlib.contextmanager
def resumed(saved: Frame) -> Iterator[None]:
    """Continue a call from a saved state of it."""
    _RUNNING.frames.append(saved.copy())
    try:
        yield
    finally:
        _RUNNING.frames.pop()


@torch.compiler.assume_constant_result
def _check_compiler() -> bool:
    """Refuse a compiler option under which recomputed calls would silently draw other noise."""
    if torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint:
        msg = (
            "skip_fwd_side_effects_in_bwd_under_checkpoint drops the numbers of calls, so that checkpointed "
            "layers draw other noise when recomputed; unset it in torch._dynamo.config, and compile "
            "without fullgraph"
        )
        raise WorkloadError(msg)
    return True


def _fingerprint(tensors: list[torch.Tensor]) -> _Fingerprint | None:
    """Return the fingerprint of a call's inputs, or None if they have no memory."""
    try:
        return tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)
    except RuntimeError:  # tensors without memory, as in tracing
        return None


def _remember(site: Site, tensors: list[torch.Tensor], call: _Call) -> None:
    """Keep a call and its inputs for a recomputation; a new key, that is a new step, forgets older ones.

    A checkpoint keeps its inputs alive and in place, so that their addresses identify the call.
    """
    key = next(iter(site.calls), call).key
    if (key and key.value) != (call.key and call.key.value):
        site.calls.clear()
        site.inputs.clear()
    if len(site.inputs) >= _REMEMBERED_INPUTS:
        site.inputs.clear()
    site.calls.add(call)
    fingerprint = _fingerprint(tensors)
    if fingerprint:
        site.inputs[fingerprint] = (call, [weakref.ref(tensor) for tensor in tensors])


def _recomputed_call(site: Site, tensors: list[torch.Tensor]) -> _Call:
    """Return the call that the backward pass repeats: that of the same inputs, or the step's only one."""
    call, inputs = site.inputs.get(_fingerprint(tensors) or (), (None, []))
    if call is not None and all(tensor() is not None for tensor in inputs):
        return call
    candidates = site.calls or {_Call(0, open_key() or site.conversion.key, False)}
    if len(candidates) > 1:
        msg = (
            f"'{site.name}' is recomputed in the backward pass from tensors that no checkpoint kept; it "
            f"could be any of its {len(candidates)} calls of this step; checkpoint the module itself"
        )
        raise WorkloadError(msg)
    return next(iter(candidates))

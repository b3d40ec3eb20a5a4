"""An accelerator that is none: tensors that say they are elsewhere than on the CPU, and keep its rules.

Their values lie on the CPU. Operands of one operation must all be there, single numbers aside; what comes of
them stays there; numpy cannot read them. So a road that mixes devices fails on machines without one, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("lazy", 0)
"""Where the tensors say that they are: of torch's kinds one that needs no driver and has no kernels."""
_CROSSING = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Away(torch.Tensor):
    """A tensor on the accelerator, whose values a CPU holds."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Away:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


class _Accelerator(TorchDispatchMode):
    """Makes tensors there where an operation asks for it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on CPU memory by the rules of a device."""
    tensors = [x for x in tree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    away = any(isinstance(x, Away) for x in tensors)
    strays = [x for x in tensors if not isinstance(x, Away) and x.dim() > 0]
    if away and strays and function not in _CROSSING:
        msg = f"{function}: a tensor of shape {tuple(strays[0].shape)} is on the CPU, another on {DEVICE}"
        raise RuntimeError(msg)
    asked = kwargs.get("device")
    if asked is not None:
        away = torch.device(asked).type == DEVICE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held_args, held_kwargs = tree.tree_map_only(Away, lambda x: x.held, (args, kwargs))
    found = function(*held_args, **held_kwargs)
    known = {id(x.held): x for x in tensors if isinstance(x, Away)}

    def placed(x: torch.Tensor) -> torch.Tensor:
        return known[id(x)] if id(x) in known else Away(x) if away else x

    return tree.tree_map_only(torch.Tensor, placed, found)


class _Generator(torch.Generator):
    """A source of random numbers that says it is on the accelerator."""

    def __new__(cls, device: object = None) -> _Generator:
        del device
        return super().__new__(cls)


@contextlib.contextmanager
def accelerator() -> Iterator[torch.device]:
    """Lend the accelerator."""
    with pytest.MonkeyPatch.context() as patch, _Accelerator():
        patch.setattr(torch, "Generator", _Generator)
        yield DEVICE

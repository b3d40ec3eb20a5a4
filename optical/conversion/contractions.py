"""Einstein sums and contractions of tensors, two operands at a time, as products of matrices."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import torch

from heliograph.errors import WorkloadError
from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind
from optical.conversion.products import is_weight

_LETTERS = string.ascii_letters


def einsum(
    frame: Frame, *operands: str | torch.Tensor | Sequence[int] | Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return an Einstein sum, by the rules of `torch.einsum`; more than two operands from left to right."""
    equation, tensors = _equation(operands)
    inputs, output = _spelled_out(equation, [tensor.dim() for tensor in tensors])
    names, result = inputs[0], tensors[0]
    for number in range(1, len(tensors)):
        later = set(output).union(*inputs[number + 1 :])
        last = number == len(tensors) - 1
        kept = output if last else "".join(dict.fromkeys(c for c in names + inputs[number] if c in later))
        result = _pair(frame, (names, result), (inputs[number], tensors[number]), kept)
        names = kept
    return result if len(tensors) > 1 else torch.einsum(f"{names}->{output}", result)


def tensordot(
    frame: Frame,
    a: torch.Tensor,
    b: torch.Tensor,
    dims: int | Sequence[Sequence[int]] | Sequence[int] = 2,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the contraction of two tensors over dimensions, by the rules of `torch.tensordot`."""
    if out is not None or isinstance(dims, torch.Tensor):
        msg = f"'{frame.site.name}': tensordot takes dims as integers, and no `out`"
        raise WorkloadError(msg)
    if isinstance(dims, int):
        dims_a, dims_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        dims_a, dims_b = ([one] if isinstance(one, int) else list(one) for one in dims)
    names_a, names_b = list(_LETTERS[: a.dim()]), list(_LETTERS[a.dim() : a.dim() + b.dim()])
    for dim_a, dim_b in zip(dims_a, dims_b, strict=True):
        names_b[dim_b] = names_a[dim_a]
    shared = set(names_a) & set(names_b)
    kept = "".join(c for c in names_a + names_b if c not in shared)
    return _pair(frame, ("".join(names_a), a), ("".join(names_b), b), kept)


def inner(frame: Frame, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the product over the last dimension of both."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    return tensordot(frame, input, other, dims=[[input.dim() - 1], [other.dim() - 1]])


def _equation(operands: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """Return the equation and the operands, whichever way they were given."""
    if isinstance(operands[0], str):
        rest = (
            operands[1] if len(operands) == 2 and not isinstance(operands[1], torch.Tensor) else operands[1:]
        )
        return operands[0], list(rest)  # type: ignore[call-overload]
    tensors = list(operands[0 : len(operands) // 2 * 2 : 2])
    lists = [*operands[1::2], *(operands[-1:] if len(operands) % 2 else [])]
    texts = ["".join("..." if one is Ellipsis else _LETTERS[one] for one in each) for each in lists]  # type: ignore[attr-defined]
    inputs = ",".join(texts[: len(tensors)])
    return (f"{inputs}->{texts[-1]}" if len(operands) % 2 else inputs), tensors  # type: ignore[return-value]


def _spelled_out(equation: str, dims: list[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, with ellipses replaced by letters."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    free = [c for c in _LETTERS if c not in equation]
    lengths = [
        dim - len(text.replace("...", "")) if "..." in text else 0
        for text, dim in zip(inputs, dims, strict=True)
    ]
    widest = free[: max(lengths)]
    spelled = [
        text.replace("...", "".join(widest[len(widest) - length :]))
        for text, length in zip(inputs, lengths, strict=True)
    ]
    if not arrow:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        output = "..." + "".join(once)
    return spelled, output.replace("...", "".join(widest))


def _pair(
    frame: Frame, a: tuple[str, torch.Tensor], b: tuple[str, torch.Tensor], output: str
) -> torch.Tensor:
    """Return the Einstein sum of two operands, as one product of matrices."""
    if is_weight(a[1]) and not is_weight(b[1]):
        a, b = b, a
    weight = is_weight(b[1])
    names_a, x = _alone(*a, keep=set(output) | set(b[0]))
    names_b, y = _alone(*b, keep=set(output) | set(names_a))
    sizes = dict(zip(names_b, y.shape, strict=True))
    sizes |= {c: n for c, n in zip(names_a, x.shape, strict=True) if n > 1 or c not in sizes}
    both = [c for c in names_a if c in names_b]
    batch = [c for c in both if c in output]
    summed = [c for c in both if c not in output]
    rows, columns = ([c for c in names if c not in both] for names in (names_a, names_b))
    x = _ordered(x, names_a, [*batch, *rows, *summed], sizes)
    y = _ordered(y, names_b, [*batch, *summed, *columns], sizes)
    count = [math.prod([sizes[c] for c in group]) for group in (batch, rows, summed, columns)]
    x = x.reshape(*count[:1] * bool(batch), count[1], count[2])
    y = y.reshape(*count[:1] * bool(batch), count[2], count[3])
    z = frame.multiply(ProductKind.LINEAR if weight else ProductKind.MATMUL, x, y, weight=weight)
    names_z = [*batch, *rows, *columns]
    z = z.reshape([sizes[c] for c in names_z])
    return z.permute([names_z.index(c) for c in output])


def _alone(names: str, tensor: torch.Tensor, *, keep: set[str]) -> tuple[str, torch.Tensor]:
    """Return an operand with its diagonals taken, and summed over what nothing else has."""
    wanted = "".join(dict.fromkeys(c for c in names if c in keep))
    return wanted, tensor if wanted == names else torch.einsum(f"{names}->{wanted}", tensor)


def _ordered(tensor: torch.Tensor, names: str, wanted: list[str], sizes: dict[str, int]) -> torch.Tensor:
    """Return a tensor with its dimensions in the wanted order, those of size one spread."""
    return tensor.permute([names.index(c) for c in wanted]).expand([sizes[c] for c in wanted])

"""Recurrent layers and cells as products, time step by time step.

Shape suffixes: B samples, T time steps, C width of the input, G gates times width, H width of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.nn import functional

from optical.conversion.frames import Frame
from optical.conversion.policy import ProductKind

_State = tuple[torch.Tensor, ...]
"""Hidden state, and for an LSTM its cell."""


class Cell(Enum):
    """Kind of recurrent cell."""

    LSTM = "lstm"
    GRU = "gru"
    TANH = "tanh"
    RELU = "relu"


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Parameters of one direction of one layer."""

    input_GC: torch.Tensor
    hidden_GH: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection_PH: torch.Tensor | None = None

    def project(self, frame: Frame, x: torch.Tensor) -> torch.Tensor:
        """Return what the input gives to the gates."""
        y = frame.multiply(ProductKind.LINEAR, x, self.input_GC.mT, weight=True)
        return y if self.input_bias is None else y + self.input_bias.to(y.dtype)

    def step(self, frame: Frame, cell: Cell, x_BG: torch.Tensor, state: _State) -> _State:
        """Return the next state."""
        h_BG = frame.multiply(ProductKind.RECURRENCE, state[0], self.hidden_GH.mT, weight=True)
        if self.hidden_bias is not None:
            h_BG = h_BG + self.hidden_bias.to(h_BG.dtype)
        if cell is Cell.GRU:
            (x_r, x_z, x_n), (h_r, h_z, h_n) = x_BG.chunk(3, 1), h_BG.chunk(3, 1)
            new, keep = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n), torch.sigmoid(x_z + h_z)
            return (new + keep * (state[0] - new),)
        if cell is not Cell.LSTM:
            return ((torch.tanh if cell is Cell.TANH else torch.relu)(x_BG + h_BG),)
        entry, forget, content, exit_ = (x_BG + h_BG).chunk(4, 1)
        memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(entry) * torch.tanh(content)
        hidden = torch.sigmoid(exit_) * torch.tanh(memory)
        if self.projection_PH is not None:
            hidden = frame.multiply(ProductKind.RECURRENCE, hidden, self.projection_PH.mT, weight=True)
        return hidden, memory


def cell_function(cell: Cell) -> Callable[..., torch.Tensor | _State]:
    """Return what runs one time step, called as torch's own function (`torch.lstm_cell` and its like)."""

    def run(  # noqa: PLR0917 - as torch calls it
        frame: Frame,
        input: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None = None,
        b_hh: torch.Tensor | None = None,
    ) -> torch.Tensor | _State:
        weights = _Weights(input_GC=w_ih, hidden_GH=w_hh, input_bias=b_ih, hidden_bias=b_hh)
        state = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        after = weights.step(frame, cell, weights.project(frame, input), state)
        return after if cell is Cell.LSTM else after[0]

    return run


def layer_function(cell: Cell) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return what runs whole layers, called as torch's own function (`torch.lstm` and its like)."""

    def run(frame: Frame, *arguments: Any) -> tuple[torch.Tensor, ...]:  # noqa: ANN401
        if isinstance(arguments[3], list | tuple):
            data, sizes, hx, flat, has_biases, layers, dropout, train, bidirectional = arguments
            counts, batch_first = sizes.tolist(), False
        else:
            data, hx, flat, has_biases, layers, dropout, train, bidirectional, batch_first = arguments
            counts = None
        stack = _Stack(
            frame=frame,
            cell=cell,
            weights=_unflatten(flat, has_biases, layers * (1 + bidirectional), hx, cell),
            directions=1 + bool(bidirectional),
            dropout=float(dropout) if train else 0.0,
        )
        state = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
        if counts is None:
            y, after = stack.run_padded(data if batch_first else data.transpose(0, 1), state)
            y = y if batch_first else y.transpose(0, 1)
        else:
            y, after = stack.run_packed(data, counts, state)
        return (y, *after)

    return run


def _unflatten(
    flat: Sequence[torch.Tensor], has_biases: bool, count: int, hx: object, cell: Cell
) -> list[_Weights]:
    """Return the parameters by layer and direction."""
    each = len(flat) // count
    found = []
    for start in range(0, len(flat), each):
        part = list(flat[start : start + each])
        biases = part[2:4] if has_biases else [None, None]
        projection = part[-1] if each > (4 if has_biases else 2) else None
        found.append(
            _Weights(
                input_GC=part[0],
                hidden_GH=part[1],
                input_bias=biases[0],
                hidden_bias=biases[1],
                projection_PH=projection,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class _Stack:
    """Layers of a recurrent network."""

    frame: Frame
    cell: Cell
    weights: list[_Weights]
    directions: int
    dropout: float

    def run_padded(self, x_BTC: torch.Tensor, state: _State) -> tuple[torch.Tensor, _State]:
        """Return the outputs, [B, T, H], and the last states, of sequences of equal length."""
        finals: list[_State] = []
        for first in range(0, len(self.weights), self.directions):
            outputs = []
            for index in range(first, first + self.directions):
                gates = self.weights[index].project(self.frame, x_BTC)
                steps, final = self._unroll(index, list(gates.unbind(1)), tuple(one[index] for one in state))
                outputs.append(torch.stack(steps, 1))
                finals.append(final)
            x_BTC = self._between(torch.cat(outputs, -1), first)
        return x_BTC, tuple(torch.stack(one) for one in zip(*finals, strict=True))

    def run_packed(self, x: torch.Tensor, counts: list[int], state: _State) -> tuple[torch.Tensor, _State]:
        """Return the same for packed sequences, longest first, all samples of a time step together."""
        finals: list[_State] = []
        for first in range(0, len(self.weights), self.directions):
            outputs = []
            for index in range(first, first + self.directions):
                gates = self.weights[index].project(self.frame, x)
                steps, final = self._unroll(
                    index, list(gates.split(counts)), tuple(one[index] for one in state)
                )
                outputs.append(torch.cat(steps))
                finals.append(final)
            x = self._between(torch.cat(outputs, -1), first)
        return x, tuple(torch.stack(one) for one in zip(*finals, strict=True))

    def _unroll(
        self, index: int, gates: list[torch.Tensor], state: _State
    ) -> tuple[list[torch.Tensor], _State]:
        """Run the steps of one direction; samples that have no further step keep their state."""
        backward = self.directions == 2 and index % 2 == 1
        steps: list[torch.Tensor] = []
        for x_BG in reversed(gates) if backward else gates:
            live = x_BG.shape[0]
            after = self.weights[index].step(self.frame, self.cell, x_BG, tuple(one[:live] for one in state))
            steps.append(after[0])
            if live < state[0].shape[0]:
                after = tuple(torch.cat([new, old[live:]]) for new, old in zip(after, state, strict=True))
            state = after
        return (steps[::-1] if backward else steps), state

    def _between(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Return what the next layer reads."""
        last = first + self.directions >= len(self.weights)
        return functional.dropout(x, self.dropout) if self.dropout > 0.0 and not last else x

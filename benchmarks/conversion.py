"""Cost of conversion beyond products: ratios to the plain model, interleaved in one process.

Run ``python benchmarks/conversion.py [WIDTH]``. *All electronic* pays for seeing every function of torch and
nothing else; *ideal core* for writing attention out and for operators of our own; the last row for the core.
Forward and backward of a small transformer encoder, processor time of one thread, least of some runs.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

from optical.conversion import NoiseKey, Policy, ProductSpecs, convert
from optical.cores import load_core

_LAYERS, _HEADS, _BATCH, _LENGTH, _ROUNDS = 2, 4, 8, 64, 7


def seconds(model: nn.Module, x_BTC: torch.Tensor) -> float:
    """Return the time of one forward and backward pass."""
    model.zero_grad()
    start = time.thread_time()
    model(x_BTC).square().mean().backward()
    return time.thread_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("width", type=int, nargs="?", default=256, help="of the residual stream")
    width = parser.parse_args().width
    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(width, _HEADS, 4 * width, dropout=0.0, batch_first=True)
    plain = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
    key, core = NoiseKey(seed=0), ProductSpecs.of(load_core("crossbar").analog)
    models = {
        "plain": plain,
        "all electronic": convert(plain, core, policy=Policy(electronic=("*",)), model_key=key),
        "ideal core": convert(plain, ProductSpecs.ideal(), model_key=key),
        "crossbar": convert(plain, core, model_key=key),
    }
    x_BTC = torch.randn(_BATCH, _LENGTH, width)
    least = dict.fromkeys(models, float("inf"))
    for _ in range(_ROUNDS):
        for name, model in models.items():
            least[name] = min(least[name], seconds(model, x_BTC))
    for name, found in least.items():
        print(f"{name:<16}{found / least['plain']:8.2f}")


if __name__ == "__main__":
    main()

"""Time of a core's products over those of plain ``nn.Linear`` in float32, interleaved in one process.

Run: ``python benchmarks/execution.py [--threads 1] [--rounds 9]``. On one thread the processor's time counts,
which others on the machine disturb least; on several, that of the clock.

The specification is that of published emulators: operand and output converters and additive noise at the
output, one analog sample for the whole sum. "rows" are those a core is given at a time (`row_block`).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from optical.cores import load_core
from optical.execution import AnalogSpec, ProductSpecs
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from simulator.operators import Phase
from workloads.training.gpt import Gpt, GptConfig, ProductName, Products, TrainingConfig
from workloads.training.probes import EXACT_PRODUCTS

SHAPES = ((256, 1024, 1024), (2048, 4096, 4096))
"""Rows, inputs and outputs."""
BARS = {(8, False): (0.5, 0.35), (8, True): (1.0, 0.6), (12, False): (1.3, 1.3), (12, True): (1.3, 1.3)}
"""Largest ratios aimed at, by bits and by whether the backward pass is timed too, one for each shape."""
ROW_BLOCK = 256
TINY = (4, 16, 16)

Run = Callable[[], object]


def spec(bits: int, length: int) -> AnalogSpec:
    """Return converters of so many bits and output noise of 2 % of the rms of random products."""
    return dataclasses.replace(
        AnalogSpec.ideal(),
        dac_bits=bits,
        adc_bits=bits,
        adc_enob_bits=bits,
        adc_range_sigma=4.0,
        analog_length=length,
        thermal_variance=4e-4 * length / 100.0,
    )


def interleaved(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Return the least seconds of each run, all of them in every round: others may use the machine too."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            taken[name].append(clock() - start)
    return {name: min(times) for name, times in taken.items()}


def step(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], backward: bool, shape: tuple[int, ...]
) -> Run:
    """Return a run of a product of rows with a layer's weight, with its gradients or without."""
    generator = torch.Generator().manual_seed(1)
    rows, inputs, outputs = shape
    x = torch.randn(rows, inputs, generator=generator).requires_grad_(backward)
    weight = torch.nn.Parameter(torch.randn(outputs, inputs, generator=generator), requires_grad=backward)
    gradient = torch.randn(rows, outputs, generator=generator)

    def run() -> None:
        out = product(x, weight)
        if backward:
            torch.autograd.grad(out, (x, weight), gradient)

    return run


def noisy(specs: ProductSpecs) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a linear layer through a core, with another key at every call."""
    calls = iter(range(2**62))
    return lambda x, weight: noisy_matmul(x, weight.mT, specs, next(calls))


def products(rounds: int) -> None:
    """Write the table of products."""
    for place, shape in enumerate(SHAPES):
        few = rounds if place == 0 else max(3, rounds // 3)
        for bits in (8, 12):
            for backward in (False, True):
                runs = {"plain": step(torch.nn.functional.linear, backward, shape)}
                for block in (shape[0], ROW_BLOCK):
                    specs = ProductSpecs.same(spec(bits, max(shape)), row_block=block)
                    runs[f"{block} rows"] = step(noisy(specs), backward, shape)
                found = interleaved(runs, few)
                _write(shape, bits, backward, found, BARS[bits, backward][place])


def _write(shape: tuple[int, ...], bits: int, backward: bool, found: dict[str, float], bar: float) -> None:
    name = f"{'x'.join(map(str, shape))}, {bits} bits, {'all three' if backward else 'forward'}"
    plain = found.pop("plain")
    ratios = "".join(f"{f'{rows}: {taken / plain:.2f}x':>18}" for rows, taken in found.items())
    sys.stdout.write(f"{name:38}{1e3 * plain:9.2f} ms{ratios}{f'<= {bar}x':>10}\n")
    sys.stdout.flush()


def dispatch(rounds: int) -> None:
    """Write what a call costs beside its arithmetic."""
    runs = {
        "plain": step(torch.nn.functional.linear, False, TINY),
        "ideal": step(noisy(ProductSpecs.ideal()), False, TINY),
        "8 bits": step(noisy(ProductSpecs.same(spec(8, TINY[1]))), False, TINY),
    }
    many = {name: _repeated(run, 100) for name, run in runs.items()}
    found = interleaved(many, rounds)
    each = "".join(f"{name:>12} {1e4 * taken:6.0f} us" for name, taken in found.items())
    sys.stdout.write(f"{'one call, ' + 'x'.join(map(str, TINY)):38}{each}\n")


def _repeated(run: Run, times: int) -> Run:
    return lambda: [run() for _ in range(times)]


@dataclass(frozen=True, kw_only=True)
class _Blocks(Products):
    """Products of the small GPT through the operator."""

    specs: ProductSpecs
    """Analog specification of the core for each pass."""

    def run(
        self, product: ProductName, a_BMK: torch.Tensor, b_BKN: torch.Tensor, *, key: int, weight: bool
    ) -> torch.Tensor:
        """Return a product, shape [B, M, N]."""
        return noisy_matmul(a_BMK, b_BKN, self.specs, key, weight=weight, place=(int(product),))


def _training_step(products: Products) -> Run:
    """Return a step of the default small GPT on its default batch, with its optimizer."""
    config, batch = GptConfig(), TrainingConfig().batch
    model = Gpt(config, products, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(config.vocabulary, (batch, config.context + 1), generator=generator)
    keys = iter(range(2**62))

    def run() -> None:
        loss = model(tokens[:, :-1], tokens[:, 1:], key=next(keys))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return run


def training(rounds: int) -> None:
    """Write what a step of the small GPT through the default crossbar costs."""
    exact = EXACT_PRODUCTS
    analog = load_core("crossbar").analog
    forward, grad_input, grad_weight = (
        AnalogNumerics(analog(phase)) for phase in (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
    )
    whole = Products(forward=forward, grad_input=grad_input, grad_weight=grad_weight)
    runs = {"plain": _training_step(exact), "whole batch": _training_step(whole)}
    for block in (768, ROW_BLOCK):
        specs = ProductSpecs.of(analog, row_block=block)
        blocks = _Blocks(forward=forward, grad_input=grad_input, grad_weight=grad_weight, specs=specs)
        runs[f"{block} rows"] = _training_step(blocks)
    found = interleaved(runs, rounds)
    plain = found.pop("plain")
    ratios = "".join(f"{f'{rows}: {taken / plain:.2f}x':>20}" for rows, taken in found.items())
    sys.stdout.write(f"{'small GPT, crossbar, a step':38}{1e3 * plain:9.2f} ms{ratios}{'<= 1.4x':>10}\n")


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sys.stdout.write(
        f"threads: {options.threads}; the quickest of {options.rounds} rounds, over plain float32\n"
    )
    products(options.rounds)
    dispatch(options.rounds)
    training(options.rounds)


if __name__ == "__main__":
    main()

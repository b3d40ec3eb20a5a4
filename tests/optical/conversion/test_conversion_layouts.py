"""A pass that is cut into pieces, or parts of which run again, draws the same as one plain pass."""

import dataclasses
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from optical.conversion import (
    NoiseKey,
    ProductSpecs,
    StepwiseConverter,
    convert,
    noise_key,
    watch_products,
)
from optical.cores import load_core
from simulator.errors import WorkloadError
from tests.optical.conversion import ranks
from tests.optical.conversion.architectures import LENGTH, TOKENS, WIDTH, Mixture, build

ROOT = Path(__file__).parents[3]
CORE = ProductSpecs.of(load_core("crossbar").analog, row_block=16)


class Stack(nn.Module):
    """Blocks of which one is called three times, recomputed or not."""

    def __init__(self, reentrant=None):
        super().__init__()
        self.first, self.shared = (
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.reentrant = reentrant

    def forward(self, x):
        for layer in (self.first, self.shared, self.shared, self.shared):
            if self.reentrant is None:
                x = x + layer(x)
            else:
                x = x + checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


def gradients(model):
    return [p.grad.clone() for p in model.parameters()]


def equal(left, right):
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_layers_draw_the_same_even_outside_the_key_and_called_again(reentrant):
    torch.manual_seed(0)
    plain = Stack()
    found = {}
    for kind in (None, reentrant):
        model = convert(plain, CORE)
        model.reentrant = kind
        losses = []
        for part in (0, 1):  # two microbatches in flight
            x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(part), requires_grad=True)
            with noise_key(1, 2, part=part):
                losses.append(model(x).square().sum())
        for loss in losses:
            loss.backward()
        found[kind] = [loss.detach() for loss in losses], gradients(model)
    assert equal(found[None][0], found[reentrant][0])
    if reentrant:  # adds the gradients of a weight in another order
        torch.testing.assert_close(found[None][1], found[reentrant][1], rtol=1e-5, atol=1e-5)
    else:
        assert equal(found[None][1], found[reentrant][1])


class Method(nn.Module):
    """A layer that calls a method three times, with products of its own; the last is nested in another."""

    def __init__(self, reentrant=None):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weight, self.reentrant = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5), reentrant

    def run(self, function, x):
        return (
            function(x) if self.reentrant is None else checkpoint(function, x, use_reentrant=self.reentrant)
        )

    def mix(self, x):
        y = self.second(nn.functional.gelu(self.first(x))) @ self.weight
        return x + nn.functional.scaled_dot_product_attention(y, y, y)

    def forward(self, x):
        x = self.run(self.mix, x) @ self.weight
        x = self.run(lambda x: self.mix(x) @ self.weight, x)
        return self.run(lambda x: self.run(self.mix, x @ self.weight), x)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_methods_multiply_on_the_core_and_draw_the_same(reentrant):
    """Their own products were recomputed exactly, and gradients were up to 19 % off without a word."""
    torch.manual_seed(0)
    plain, found = Method(), []
    for kind in (None, reentrant):
        model = convert(plain, CORE)
        model.reentrant = kind
        losses = []
        with watch_products() as counts:
            for part in (0, 1):  # two microbatches in flight
                x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(part), requires_grad=True)
                with noise_key(1, 2, part=part):
                    losses.append(model(x).square().sum())
            for loss in losses:
                loss.backward()
        assert not counts.escaped | counts.digital_backward
        found.append((counts.analog_backward, [loss.detach() for loss in losses], gradients(model)))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[1][1:], found[0][1:], rtol=1e-5, atol=1e-4)


def test_a_call_that_cannot_be_traced_back_is_refused():
    """Two calls from one function that is recomputed, the second from a tensor that is made anew."""
    model = convert(Stack(), CORE)
    x = torch.randn(8, WIDTH, requires_grad=True)
    with noise_key(1):
        model(x)
        y = checkpoint(lambda x: model.shared[0](x + 1.0), x, use_reentrant=False)
    with pytest.raises(WorkloadError, match=r"'shared\.0' is recomputed in the backward pass"):
        y.sum().backward()


def test_parts_of_a_batch_draw_what_the_whole_draws():
    model, tokens = ranks.model_and_tokens()
    with noise_key(1):
        whole = model(tokens)
    half = tokens.shape[0] // 2
    pieces = []
    for part in (0, 1):
        with noise_key(1, part=part):
            pieces.append(model(tokens[part * half : (part + 1) * half]))
    assert torch.equal(whole, torch.cat(pieces))
    with noise_key(1):
        assert not torch.equal(pieces[1], model(tokens[half:]))


def features(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


IN_PARTS = {
    "gpt": torch.arange(8 * LENGTH).view(8, LENGTH) % TOKENS,
    "llama": torch.arange(8 * LENGTH).view(8, LENGTH) % TOKENS,
    "t5": torch.arange(8 * LENGTH).view(8, LENGTH) % TOKENS,
    "vision_transformer": features(8, 3, 12, 8),
    "shared_depth": features(8, LENGTH, WIDTH),
    "encoder": features(8, LENGTH, WIDTH),
    "lstm": features(8, LENGTH, WIDTH),
    "convolution": features(8, 3, 8, 8),
}
OTHERS = {
    "encoder": lambda: nn.TransformerEncoderLayer(WIDTH, 4, 48, dropout=0.0, batch_first=True),
    "lstm": lambda: nn.LSTM(WIDTH, 12, 2, bidirectional=True, batch_first=True),
    "convolution": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2)),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_of_a_batch_draw_what_the_whole_draws_in_every_architecture(name):
    """Also where a layer holds the batch in another dimension inside, as torch's attention does."""
    torch.manual_seed(0)
    model = convert(
        OTHERS[name]() if name in OTHERS else build(name)[0], dataclasses.replace(CORE, row_block=4)
    )
    first = lambda out: out[0] if isinstance(out, tuple) else out  # noqa: E731
    with noise_key(1):
        whole = first(model(IN_PARTS[name]))
    pieces = []
    for part in (0, 1):
        with noise_key(1, part=part):
            pieces.append(first(model(IN_PARTS[name][4 * part : 4 * part + 4])))
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-5, atol=1e-5)
    with noise_key(1):
        assert not torch.allclose(first(model(IN_PARTS[name][4:])), pieces[1], rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """Replicated and sharded: gradients are those of one process, but for the order of sums over parts.

    Experts that gather unequal numbers of tokens share no draw between the processes.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.optical.conversion.ranks"]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path)], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(ranks.RANKS)
    ]
    model, tokens = ranks.model_and_tokens()
    alone = ranks.gradients(model, tokens, part=0)
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors[-3000:]
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    for first, second in found["mixture"].values():
        places = {place for place, _ in first & second}
        assert not places
        counts = [Counter(place for place, _ in blocks) for blocks in (first, second)]
        assert any(counts[0][place] > counts[1][place] > 0 for place in counts[0])
    for kind in ("replicated", "sharded"):
        assert found[kind].keys() == alone.keys()
        for name, grad in alone.items():
            torch.testing.assert_close(found[kind][name], grad, rtol=1e-4, atol=1e-6)
    assert found["keys"] == list(model.state_dict())
    # the same parts with the draws of part 0 are something else
    other = ranks.gradients(*ranks.model_and_tokens(), part=1)
    assert not torch.allclose(other["head.weight"], alone["head.weight"], rtol=1e-2)


class Recomputed(nn.Module):
    """A layer that is recomputed in the backward pass, or not."""

    def __init__(self, layer, recomputes):
        super().__init__()
        self.layer, self.recomputes = layer, recomputes

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False) if self.recomputes else self.layer(x)


def test_experts_of_three_parts_share_no_draw_whatever_they_gather():
    model, x = ranks.mixture(), features(3, 4, LENGTH, WIDTH)
    blocks = [ranks.drawn_blocks(model, x[part], part=part) for part in range(3)]
    for first, second in itertools.combinations(blocks, 2):
        assert not first & second
    rows = [Counter(place for place, _ in each) for each in blocks]
    assert len({tuple(sorted(each.items())) for each in rows}) == 3
    router = [number for place, number in sorted(blocks[1]) if place[1] == 1 and place[0] == 0]
    assert router == list(range(2 * LENGTH, 4 * LENGTH))  # which all parts run, from part 0 on


def test_recomputed_experts_draw_the_same():
    """A checkpoint runs an expert alone, without the call that picked its rows."""
    found = []
    for recomputes in (False, True):
        torch.manual_seed(0)
        plain = Mixture()
        plain.experts = nn.ModuleList(Recomputed(expert, recomputes) for expert in plain.experts)
        model = convert(plain, dataclasses.replace(CORE, row_block=2))
        with noise_key(1, part=1):
            out = model(features(2, LENGTH, WIDTH))
        out.square().sum().backward()
        found.append([out.detach(), *gradients(model)])
    assert equal(*found)


@pytest.mark.parametrize("alike", [True, False])
def test_parts_padded_to_unequal_lengths_share_no_draw_if_the_key_says_so(alike):
    model, _ = ranks.model_and_tokens()
    blocks = [
        ranks.drawn_blocks(model, torch.ones(8, length, dtype=torch.int64), part=part, alike=alike)
        for part, length in enumerate((12, 8))
    ]
    assert bool(blocks[0] & blocks[1]) is alike


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize(
    ("pick", "ragged"),
    [
        (lambda x, y: x[(y > 0).nonzero()[:, 0]], True),
        (lambda x, y: x[torch.where(y > 0)[0]], True),
        (lambda x, y: x[y > 0], True),
        (lambda x, y: x[(y > 0).to(torch.uint8)], True),
        (lambda x, y: x.masked_select(y[:, None] > 0).view(-1, WIDTH), True),
        (lambda x, y: x.split((y > 0).long().bincount().tolist())[-1], True),
        (lambda x, y: x[: (y > 0).sum()], True),
        (lambda x, y: x[:4] * (y > 0).sum().item(), True),
        (lambda x, y: x[y.argsort()], False),
        (lambda x, y: torch.where(y[:, None] > 0, x, 0.0), False),
        (lambda x, y: x[:, None][..., :WIDTH].squeeze(1), False),
    ],
)
def test_rows_picked_by_value_have_numbers_of_their_own(pick, ragged):
    class Picked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.layer(pick(x, x.detach()[:, 0]))

    x = features(8, WIDTH)
    model = convert(Picked(), dataclasses.replace(CORE, row_block=1))
    blocks = ranks.drawn_blocks(model, x, part=1)
    assert (min(number for _, number in blocks) >= 2**40) is ragged


@pytest.mark.parametrize("name", ["gpt", "llama", "recurrent", "convolutions", "t5"])
def test_autocast_gives_the_types_of_a_digital_model_and_the_same_draws(name):
    model, inputs = build(name)
    noisy, ideal = convert(model, CORE), convert(model, ProductSpecs.ideal())
    first = lambda out: out[0] if isinstance(out, tuple) else out  # noqa: E731
    with noise_key(1):
        full = first(noisy(*inputs))
        with torch.autocast("cpu", torch.bfloat16):
            half, again = first(noisy(*inputs)), first(noisy(*inputs))
            digital, exact = first(model(*inputs)), first(ideal(*inputs))
    assert torch.equal(half, again)
    assert half.dtype == exact.dtype == digital.dtype
    noise = (full - first(model(*inputs))).std()
    assert (half.float() - full).std() < 0.5 * noise + 0.02 * full.std()


def test_a_training_framework_draws_anew_after_each_step():
    model, inputs = build("gpt")
    converter = StepwiseConverter(CORE, seed=3, step=7, part=0, exclude=["head"])
    converter.convert(model)
    before = model(*inputs)
    with noise_key(3, 7):
        assert torch.equal(before, model(*inputs))
    converter.post_optimizer_hook([model])
    with noise_key(3, 8):
        after = model(*inputs)
    assert torch.equal(after, model(*inputs))
    assert not torch.equal(before, after)
    assert converter.key == dataclasses.replace(NoiseKey(seed=3), step=8)
    assert converter.key_filter() is converter.state_dict_transform() is converter.format_adapter() is None

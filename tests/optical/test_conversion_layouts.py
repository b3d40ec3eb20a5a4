"""Whatever cuts a pass into pieces, or runs parts of it again, draws what one plain pass draws."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from heliograph.errors import WorkloadError
from optical.conversion import NoiseKey, ProductSpecs, StepwiseConverter, convert, noise_key
from optical.cores import load_core
from tests.optical import ranks
from tests.optical.architectures import LENGTH, TOKENS, WIDTH, build

ROOT = Path(__file__).parents[2]
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
    """Replicated and sharded: gradients are those of one process, but for the order of sums over parts."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.optical.ranks"]
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
    for kind in ("replicated", "sharded"):
        assert found[kind].keys() == alone.keys()
        for name, grad in alone.items():
            torch.testing.assert_close(found[kind][name], grad, rtol=1e-4, atol=1e-6)
    assert found["keys"] == list(model.state_dict())
    # the same parts with the draws of part 0 are something else
    other = ranks.gradients(*ranks.model_and_tokens(), part=1)
    assert not torch.allclose(other["head.weight"], alone["head.weight"], rtol=1e-2)


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

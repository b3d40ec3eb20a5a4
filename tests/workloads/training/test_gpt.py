import dataclasses
import math

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from electronic.numerics import BfloatNumerics
from optical.execution import AnalogSpec
from optical.execution.numerics import AnalogNumerics
from simulator.errors import ParameterError, WorkloadError
from workloads.training.gpt import Gpt, GptConfig, ProductName, Products
from workloads.training.probes import EXACT_PRODUCTS, ExactProducts

CONFIG = GptConfig(vocabulary=50, layers=2, width=24, heads=3, context=10)
NOISY = AnalogSpec(
    dac_bits=8,
    adc_bits=8,
    adc_enob_bits=7,
    adc_range_sigma=4.0,
    analog_length=16,
    thermal_variance=1e-3,
    shot_variance=0.0,
    rin_variance=0.0,
    encoding_variance=0.0,
)


pytestmark = pytest.mark.usefixtures("one_thread")


class Spy:
    """Exact products that note what they were asked for."""

    def __init__(self):
        self.calls = []

    def matmul(self, a_BMK, b_BKN, key):
        self.calls.append((tuple(a_BMK.shape), b_BKN.shape[-1], key))
        return torch.bmm(a_BMK, b_BKN)


def batch(seed=0, windows=4, length=10):
    tokens = torch.randint(0, 50, (windows, length + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


def exact_model(seed=0):
    return Gpt(CONFIG, EXACT_PRODUCTS, seed)


def reference_loss(model, tokens, targets):
    """The same model in plain torch, with its own attention and autograd."""
    weights = dict(model.named_parameters())
    x = functional.embedding(tokens, weights["tokens"]) + weights["positions"][: tokens.shape[1]]

    def norm(x, name):
        return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    for layer in range(CONFIG.layers):
        prefix = f"blocks.{layer}"
        q, k, v = (norm(x, f"{prefix}.attention_norm") @ weights[f"{prefix}.qkv"]).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (CONFIG.heads, -1)).transpose(1, 2) for part in (q, k, v))
        read = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + read.transpose(1, 2).flatten(2) @ weights[f"{prefix}.projection"]
        hidden = functional.gelu(norm(x, f"{prefix}.mlp_norm") @ weights[f"{prefix}.up"])
        x = x + hidden @ weights[f"{prefix}.down"]
    logits = norm(x, "norm") @ weights["head"]
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.mark.parametrize("numerics", [ExactProducts(), AnalogNumerics(AnalogSpec.ideal())])
def test_loss_and_gradients_are_those_of_plain_torch(numerics):
    model = Gpt(CONFIG, Products.same(numerics), 3).double()
    tokens, targets = batch()
    loss, expected = model(tokens, targets), reference_loss(model, tokens, targets)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    parameters = list(model.parameters())
    for gradient, reference in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        assert torch.allclose(gradient, reference, rtol=1e-9, atol=1e-12)


def test_each_phase_goes_through_its_own_numerics():
    spies = Spy(), Spy(), Spy()
    model = Gpt(CONFIG, Products(forward=spies[0], grad_input=spies[1], grad_weight=spies[2]), 0)
    loss = model(*batch())
    weight_products, attention_products = 4 * CONFIG.layers + 1, 2 * CONFIG.layers
    assert [len(spy.calls) for spy in spies] == [weight_products + attention_products, 0, 0]
    loss.backward()
    assert len(spies[1].calls) == weight_products + 2 * attention_products
    assert len(spies[2].calls) == weight_products
    assert all(shape[1] in (24, 96) and shape[2] == 40 for shape, _, _ in spies[2].calls)


def test_every_product_has_its_own_key():
    spy = Spy()
    model = Gpt(CONFIG, Products.same(spy), 0)
    for key in (1, 2):
        model(*batch(), key=key).backward()
    keys = [key for _, _, key in spy.calls]
    assert len(set(keys)) == len(keys)


def test_flops_are_counted_on_the_meta_device():
    model = exact_model().to("meta")
    tokens = torch.zeros(4, 10, dtype=torch.long, device="meta")
    width, layers, count = CONFIG.width, CONFIG.layers, 4 * 10
    forward = 2 * count * (layers * (12 * width**2 + 2 * 10 * width) + width * CONFIG.vocabulary)
    with FlopCounterMode(display=False) as counter:
        loss = model(tokens, tokens)
    assert counter.get_total_flops() == forward
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() == 2 * forward


def test_a_model_can_be_made_on_the_meta_device():
    with torch.device("meta"):
        model = Gpt(dataclasses.replace(CONFIG, width=3 * 4096, layers=4), EXACT_PRODUCTS, 0)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_seed_fixes_the_initial_weights():
    states = [exact_model(seed).state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["head"], states[2]["head"])
    noisy = Gpt(CONFIG, Products.same(AnalogNumerics(NOISY)), 1).state_dict()
    assert all(torch.equal(states[0][name], noisy[name]) for name in noisy)


def test_untrained_model_is_undecided():
    assert exact_model()(*batch()).item() == pytest.approx(math.log(50), abs=0.1)


def test_no_position_sees_a_later_one():
    model, (tokens, _) = exact_model(), batch()
    changed = tokens.clone()
    changed[:, 6:] = 0
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_noise_follows_the_key_alone():
    model = Gpt(CONFIG, Products.same(AnalogNumerics(NOISY)), 0)
    tokens, _ = batch()
    assert torch.equal(model(tokens, key=5), model(tokens, key=5))
    assert not torch.equal(model(tokens, key=5), model(tokens, key=6))


def test_checkpointing_draws_the_same_noise_again():
    model = Gpt(CONFIG, Products.same(AnalogNumerics(NOISY)), 0)
    parameters = list(model.parameters())
    plain = torch.autograd.grad(model(*batch(), key=3), parameters)
    again = torch.autograd.grad(checkpoint(model, *batch(), key=3, use_reentrant=False), parameters)
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))


def test_a_noisy_gradient_scatters_around_the_exact_one():
    exact, noisy = (Gpt(CONFIG, Products.same(n), 0) for n in (ExactProducts(), AnalogNumerics(NOISY)))
    reference = torch.autograd.grad(exact(*batch()), exact.head)[0]
    draws = [torch.autograd.grad(noisy(*batch(), key=key), noisy.head)[0] for key in range(30)]
    one, mean = (draws[0] - reference).norm(), (torch.stack(draws).mean(0) - reference).norm()
    assert 0.01 * reference.norm() < one < 0.5 * reference.norm()
    assert mean < 0.5 * one


def test_excepted_product_leaves_the_rest_as_it_is():
    common, head = Spy(), Spy()
    products = dataclasses.replace(Products.same(common), exceptions={"head": Products.same(head)})
    Gpt(CONFIG, products, 0)(*batch()).backward()
    assert len(head.calls) == 3
    assert {shape for shape, _, _ in head.calls} == {(1, 40, 24), (1, 40, 50), (1, 24, 40)}
    assert all(columns != 50 for _, columns, _ in common.calls)


def test_bfloat_products_stay_close():
    loss = exact_model()(*batch()).item()
    assert Gpt(CONFIG, Products.same(BfloatNumerics()), 0)(*batch()).item() == pytest.approx(loss, rel=5e-3)


def test_wrong_shapes_and_names_are_refused():
    with pytest.raises(WorkloadError, match=r"heads \(5\) must divide width \(24\)"):
        dataclasses.replace(CONFIG, heads=5)
    with pytest.raises(ParameterError, match="layers"):
        dataclasses.replace(CONFIG, layers=0)
    with pytest.raises(WorkloadError, match="at most the context"):
        exact_model()(*batch(length=11))
    exact = EXACT_PRODUCTS
    with pytest.raises(WorkloadError, match="did you mean 'head'"):
        dataclasses.replace(exact, exceptions={"heads": exact})
    assert len(ProductName) == 7

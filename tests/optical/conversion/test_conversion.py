import copy
import dataclasses
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from optical.conversion import (
    Mode,
    NoiseKey,
    Policy,
    ProductException,
    ProductKind,
    ProductSpecs,
    convert,
    noise_key,
    planned_specs,
    set_model_key,
    to_digital,
    watch_products,
)
from optical.cores import CORES, load_core
from optical.execution import AnalogSpec
from simulator.errors import ParameterError, WorkloadError
from tests.optical.conversion.architectures import ARCHITECTURES, build

IDEAL = ProductSpecs.ideal()
CORE = ProductSpecs.of(load_core("crossbar").analog, row_block=16)
THERMAL = dataclasses.replace(AnalogSpec.ideal(), analog_length=64, thermal_variance=1e-2)
OWN_WARNINGS = pytest.mark.filterwarnings(
    "ignore:(torch.chain_matmul is deprecated|enable_nested_tensor is True)"
)


def flat(output):
    return list(output) if isinstance(output, tuple) else [output]


def run(model, inputs):
    """Return outputs and gradients of parameters."""
    model.zero_grad()
    outputs = flat(model(*inputs))
    sum(out.square().sum() for out in outputs).backward()
    return [out.detach() for out in outputs], [p.grad for p in model.parameters()]


def same(left, right):
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


@OWN_WARNINGS
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_ideal_core_keeps_outputs_and_gradients(name):
    model, inputs = build(name)
    (outputs, gradients), (mine, my_gradients) = run(model, inputs), run(convert(model, IDEAL), inputs)
    torch.testing.assert_close(mine, outputs)
    torch.testing.assert_close(my_gradients, gradients, rtol=1e-4, atol=1e-4)


@OWN_WARNINGS
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_product_escapes_the_core(name):
    model, inputs = build(name)
    with watch_products() as digital:
        run(model, inputs)
    with watch_products() as counts:
        run(convert(model, IDEAL), inputs)
    assert digital.escaped.total() > 0
    assert not digital.analog
    assert not counts.escaped
    assert counts.analog.total() > 0
    assert counts.analog_backward >= counts.analog.total()
    left = {"llama": {":matmul": 1}, "mixture": {"experts.3.0:linear": 1, "experts.3.2:linear": 1}}
    left["nested"] = {f"inner.mixture.{layer}": n for layer, n in left["mixture"].items()}
    left["fused_mixture"] = {":experts": 1}
    assert counts.electronic == left.get(name, {})  # outer products and experts that nobody visits
    assert not counts.digital_backward or name in left


@OWN_WARNINGS
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_noisy_core_moves_every_architecture_and_its_way_back_is_exact(name):
    model, inputs = build(name)
    noisy = convert(model, CORE)
    with noise_key(1, 2):
        outputs, gradients = run(noisy, inputs)
        again, gradients_again = run(noisy, inputs)
    assert same(outputs, again)
    assert same(gradients, gradients_again)
    with noise_key(1, 3):
        assert not same(outputs, run(noisy, inputs)[0])
    exact, exact_gradients = run(model, inputs)
    assert not same(outputs, exact)
    digital = to_digital(noisy)
    assert [type(module) for module in digital.modules()] == [type(module) for module in model.modules()]
    back, back_gradients = run(digital, inputs)
    assert same(back, exact)
    assert same(back_gradients, exact_gradients)


@OWN_WARNINGS
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_states_are_the_models_own_both_ways(name):
    model, _ = build(name)
    noisy = convert(model, CORE)
    assert list(noisy.state_dict()) == list(model.state_dict())
    assert [n for n, _ in noisy.named_parameters()] == [n for n, _ in model.named_parameters()]
    file = io.BytesIO()
    torch.save(noisy.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file, weights_only=True), strict=True)
    noisy.load_state_dict(model.state_dict(), strict=True)


def test_the_model_stays_as_it_was_unless_converted_in_place():
    model, inputs = build("gpt")
    kept = type(model)
    assert convert(model, IDEAL) is not model
    assert type(model) is kept
    noisy = convert(model, CORE, inplace=True, model_key=NoiseKey(seed=1))
    assert noisy is model
    assert isinstance(model, kept)
    assert model.head.weight is model.embedding.weight
    assert to_digital(model, inplace=True) is model
    assert type(model) is kept
    assert not any("heliograph" in name for module in model.modules() for name in module.__dict__)
    model(*inputs)


@pytest.mark.parametrize("name", ["gpt", "recurrent"])
def test_copies_of_a_converted_model_draw_the_same(name):
    """A recurrent layer could not be pickled: it has a state of its own, which was passed over."""
    model, inputs = build(name)
    noisy = convert(model, CORE, model_key=NoiseKey(seed=1))
    for again in (copy.deepcopy(noisy), pickle.loads(pickle.dumps(noisy))):
        assert same(flat(again(*inputs)), flat(noisy(*inputs)))


def test_noise_without_a_key_is_refused():
    model, inputs = build("gpt")
    noisy = convert(model, CORE)
    with pytest.raises(WorkloadError, match=r"blocks\.0\.qkv draws noise from no key"):
        noisy(*inputs)
    set_model_key(noisy, NoiseKey(seed=3, step=4))
    with noise_key(3, 4):
        opened = noisy(*inputs)
    assert torch.equal(noisy(*inputs), opened)
    with noise_key(3, 5):
        assert not torch.equal(noisy(*inputs), opened)


def test_layers_calls_and_products_draw_apart():
    layer = nn.Linear(64, 8)
    model = nn.Sequential(layer, nn.Identity())
    twice = convert(nn.ModuleList([layer, copy.deepcopy(layer)]), ProductSpecs.same(THERMAL))
    x = torch.randn(4, 64)

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer, copy.deepcopy(layer)

        def forward(self, x):
            return self.one(x), self.one(x), self.two(x), x @ self.one.weight.T, x @ self.one.weight.T

    with noise_key(1):
        errors = [out - layer(x) for out in convert(Calls(), ProductSpecs.same(THERMAL))(x)]
        errors[3:] = [error + layer.bias for error in errors[3:]]
        assert torch.equal(twice[0](x), twice[0](x))
    assert model[0] is layer
    spread = torch.stack(errors).flatten(1)
    correlation = torch.corrcoef(spread).fill_diagonal_(0.0)  # 32 draws each: s.e. 0.18
    assert (spread.std(1) > 0.0).all()
    assert correlation.abs().max() < 0.7


def test_what_is_left_electronic_moves_no_other_draw():
    """With the head electronic, its input is the same; with layer 0 electronic, layer 1 errs as before."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    x, seen = torch.randn(4, 64), []
    for policy in (Policy(), Policy(electronic=("1",)), Policy(electronic=("0",))):
        noisy = convert(model, ProductSpecs.same(THERMAL), policy=policy)
        noisy[0].register_forward_hook(lambda module, args, out: seen.append(out))
        with noise_key(1):
            noisy(x)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], model[0](x))


@pytest.mark.parametrize(
    ("choice", "analog"),
    [
        (
            {"include": ["blocks.0"]},
            {"blocks.0", "blocks.0.qkv", "blocks.0.out", "blocks.0.mlp.0", "blocks.0.mlp.2"},
        ),
        (
            {"include": ["blocks.*"], "exclude": ["blocks.0", "*.mlp"]},
            {"blocks.1", "blocks.1.qkv", "blocks.1.out"},
        ),
        ({"filter": lambda module, name: isinstance(module, nn.Linear) and "mlp" in name}, None),
        ({"policy": Policy(electronic=("blocks.*:linear",))}, {"blocks.0", "blocks.1", "head"}),
        ({"policy": Policy(electronic=("head", "*:matmul", "*.mlp.*"))}, None),
    ],
)
def test_choices_say_what_is_analog(choice, analog):
    model, inputs = build("gpt")
    with watch_products() as counts:
        convert(model, IDEAL, **choice)(*inputs)
    layers = {name.partition(":")[0] for name in counts.analog}
    if analog is None and "filter" in choice:
        analog = {f"blocks.{block}.mlp.{layer}" for block in (0, 1) for layer in (0, 2)}
    elif analog is None:
        analog = {f"blocks.{block}.{layer}" for block in (0, 1) for layer in ("qkv", "out")}
    assert layers == analog
    assert not counts.escaped
    assert counts.analog.total() + counts.electronic.total() == 13


def test_scores_and_values_are_told_apart():
    model, inputs = build("llama")
    with watch_products() as counts:
        convert(model, IDEAL, policy=Policy(electronic=("*:scores",)))(*inputs)
    assert {name for name in counts.electronic if "scores" in name} == {"blocks.0:scores", "blocks.1:scores"}
    assert counts.analog["blocks.0:values"] == 1
    model, inputs = build("vision_transformer")
    with watch_products() as counts:
        convert(model, IDEAL)(*inputs)
    assert counts.analog == {
        "patches:convolution": 1,
        "attention:linear": 2,
        "attention:scores": 1,
        "attention:values": 1,
        "labels:linear": 1,
    }


def test_an_electronic_layer_is_bit_for_bit_digital():
    for name in ("bert", "recurrent", "convolutions"):
        model, inputs = build(name)
        assert same(
            run(convert(model, CORE, policy=Policy(electronic=("*",))), inputs)[1], run(model, inputs)[1]
        )


def test_a_policy_gives_products_their_own_specifications_and_survives_json():
    head = ProductSpecs.same(THERMAL, row_block=8)
    policy = Policy(
        mode=Mode.AWARE, electronic=("*:scores",), exceptions=(ProductException(pattern="head", specs=head),)
    )
    assert Policy.from_json(policy.to_json()) == policy
    model, inputs = build("gpt")
    noisy = convert(model, IDEAL, policy=policy)
    planned = planned_specs(noisy)
    assert planned["head"][ProductKind.LINEAR] == head
    assert planned["blocks.0.qkv"][ProductKind.LINEAR] == IDEAL
    assert planned["blocks.0"][ProductKind.SCORES] is None
    with noise_key(1):
        error = noisy(*inputs) - model(*inputs)
    assert error.std() > 0.1
    with pytest.raises(ParameterError, match="no product is of the kind 'qk'"):
        Policy(electronic=("blocks.0:qk",))


@pytest.mark.parametrize(
    ("mode", "training", "outputs", "gradients"),
    [
        (Mode.INFERENCE, True, False, False),
        (Mode.INFERENCE, False, True, None),
        (Mode.AWARE, True, True, None),
        (Mode.HARDWARE, True, True, True),
    ],
)
def test_modes_say_where_errors_enter(mode, training, outputs, gradients):
    """One layer and a linear loss: a digital backward pass is exact, whatever the forward pass does."""
    model, x = nn.Linear(64, 8).train(training), torch.randn(16, 64, requires_grad=True)
    noisy = convert(model, ProductSpecs.same(THERMAL), policy=Policy(mode=mode))
    with noise_key(1):
        y = noisy(x)
        y.sum().backward()
    assert torch.allclose(y, model(x), atol=1e-5) != outputs
    exact = torch.ones(16, 8).T @ x.detach()
    assert torch.allclose(noisy.weight.grad, exact, atol=1e-4) != bool(gradients)


def test_what_cannot_be_converted_is_refused():
    model, _ = build("gpt")
    with pytest.raises(WorkloadError, match="no module fits 'lm_head'; the model has embedding, blocks"):
        convert(model, IDEAL, exclude=["lm_head"])
    with pytest.raises(WorkloadError, match="converted already"):
        convert(convert(model, IDEAL), IDEAL)
    with pytest.raises(WorkloadError, match="is not converted"):
        to_digital(model)
    pairs = convert(nn.Bilinear(2, 2, 3), IDEAL)
    with pytest.raises(WorkloadError, match=r"'' calls bilinear.*exclude the layer"):
        pairs(torch.randn(1, 2), torch.randn(1, 2))
    model.head.forward = model.head.forward
    with pytest.raises(WorkloadError, match="'head' runs a forward that is not its class's"):
        convert(model, IDEAL)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(electronic=("nosuch*",)),
        Policy(electronic=("nosuch*:linear",)),
        Policy(exceptions=(ProductException(pattern="nosuch*", specs=IDEAL),)),
    ],
)
def test_a_policy_that_fits_no_layer_is_refused(policy):
    """A typo would leave the head analog without a word."""
    model, _ = build("gpt")
    with pytest.raises(WorkloadError, match=r"no module fits 'nosuch\*.*'; the model has embedding, blocks"):
        convert(model, IDEAL, policy=policy)
    assert convert(model, IDEAL, policy=Policy(electronic=("head", "*:scores"))) is not None


def test_arguments_of_another_type_are_refused_by_name():
    model, _ = build("gpt")
    with pytest.raises(WorkloadError, match="convert: model must be a Module; got 'x'"):
        convert("x", IDEAL)
    with pytest.raises(WorkloadError, match="convert: policy must be a Policy; got 'hardware'"):
        convert(model, IDEAL, policy="hardware")
    with pytest.raises(ParameterError, match="no core '3'"):
        load_core(3)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"seed": True}, {"seed": 1, "step": -1}])
def test_a_key_is_of_whole_numbers_at_once(wrong):
    """Refused where it is made, not where it is entered."""
    with pytest.raises(ParameterError, match="must be a whole number of at least 0"):
        noise_key(**wrong)


@pytest.mark.parametrize("name", CORES)
def test_every_core_is_taken_as_it_is_alone_or_in_an_accelerator(name):
    """A core of another number format has a core in it, which is not what the model is run on."""

    class Accelerator:
        core = load_core(name)

    class System:
        photonic = Accelerator()

    specs = ProductSpecs.of(Accelerator.core.analog)
    for system in (Accelerator.core, Accelerator(), System()):
        assert planned_specs(convert(nn.Linear(2, 2), system))[""][ProductKind.LINEAR] == specs


def test_electronics_are_refused():
    model, _ = build("gpt")

    class Electronic:
        name, photonic = "gpu_packet", None

    with pytest.raises(ParameterError, match="'gpu_packet' has no photonic core"):
        convert(model, Electronic())


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("...i,...i", ((2, 3, 4), (3, 4))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("i,j->ij", ((3,), (4,))),
        ("iij,jk->ki", ((3, 3, 4), (4, 2))),
        ("abc,cd->b", ((2, 3, 4), (4, 5))),
        ("b...d,b...sd->b...s", ((2, 3, 4), (2, 1, 5, 4))),
        ("bij,bjk->bik", ((1, 3, 4), (5, 4, 2))),
        ("bij,bjk->bik", ((5, 3, 4), (1, 4, 2))),
        ("ij->ji", ((2, 3),)),
    ],
)
def test_einstein_sums_are_torchs(equation, shapes):
    class Sum(nn.Module):
        def forward(self, *operands):
            return torch.einsum(equation, *operands)

    operands = [torch.randn(shape) for shape in shapes]
    with watch_products() as counts:
        found = convert(Sum(), IDEAL)(*operands)
    torch.testing.assert_close(found, Sum()(*operands))
    assert not counts.escaped
    assert (counts.analog.total() > 0) == (equation not in ("i,j->ij", "ij->ji"))


def test_what_cannot_be_copied_is_converted_in_place():
    model = prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.5)
    with pytest.raises(WorkloadError, match=r"Linear cannot be copied .*; take inplace=True"):
        convert(model, IDEAL)
    x = torch.ones(2, 8)
    torch.testing.assert_close(convert(model, IDEAL, inplace=True)(x), model(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    """Torch's own message of an internal error came out."""
    x = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(2, 8)])
    with (
        torch.no_grad(),
        pytest.raises(WorkloadError, match="layouts nested and torch"),
    ):
        convert(nn.Linear(8, 8), IDEAL)(x)

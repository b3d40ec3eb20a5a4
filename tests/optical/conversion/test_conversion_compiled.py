"""A converted model compiles to one graph with the draws of the model, and follows the key."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from optical.conversion import KeyedModel, NoiseKey, ProductSpecs, StepwiseConverter, convert, noise_key
from optical.cores import load_core
from optical.execution import Rounding
from optical.execution.matmul import noisy_matmul
from simulator.errors import WorkloadError
from tests.optical.conversion.architectures import ARCHITECTURES, WIDTH, build

CORE = ProductSpecs.of(load_core("crossbar").analog, row_block=16)
NOT_WHOLE_IN_TORCH = {"recurrent"}
"""Architectures of which torch itself makes no whole graph."""
HELD_BY_OTHERS = {"mixture"}
"""Architectures that are a part of another one."""
QUICK = ["shared_depth"]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def compiler():
    """Start with nothing compiled, and give back the graphs that it counts."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield lambda: torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


def results(run, model, inputs):
    """Return outputs and gradients of parameters."""
    model.zero_grad()
    outputs = run(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    sum(out.square().sum() for out in outputs).backward()
    return [out.detach() for out in outputs] + [p.grad for p in model.parameters()]


def equal(left, right):
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in ARCHITECTURES
        if name not in NOT_WHOLE_IN_TORCH | HELD_BY_OTHERS
    ],
)
def test_one_graph_draws_what_the_model_draws_in_every_step(name, compiler):
    """Outputs and gradients bit for bit, for keys and parts of which no compilation knew."""
    model, inputs = build(name)
    noisy = convert(model, CORE)
    compiled = torch.compile(noisy, backend="aot_eager", fullgraph=True)
    before = None
    for step, part in ((0, 0), (1, 0), (1, 3)):
        with noise_key(5, step, part=part):
            found = results(compiled, noisy, inputs)
            assert equal(found, results(noisy, noisy, inputs))
        assert before is None or not torch.equal(before, found[0])
        before = found[0]
    assert compiler() == 1


@pytest.mark.slow
def test_no_product_stays_in_a_compiled_graph():
    """Private functions of torch, as of grouped products, are handed over too."""
    model, inputs = build("fused_mixture")
    left = []

    def backend(graph, examples):
        left.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    torch.compile(convert(model, ProductSpecs.ideal()), backend=backend, fullgraph=True)(*inputs)
    assert any("autograd_function_apply" in one for one in left)
    assert not [one for one in left if "mm" in one]


@pytest.mark.slow
def test_a_compiled_training_run_follows_its_steps(compiler):
    model, inputs = build("mlp_mixer")
    converter = StepwiseConverter(CORE, seed=1)
    converter.convert(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        out = compiled(*inputs)
        assert torch.equal(out, model(*inputs))
        out.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        converter.post_optimizer_hook(model)
    assert compiler() == 1


def test_an_exported_model_keeps_its_products_and_its_key():
    """Of inference: what is exported has the key of a model as a constant."""
    model, inputs = build("mlp_mixer")
    noisy = convert(model, CORE, model_key=NoiseKey(seed=1)).eval()
    with torch.no_grad():
        program = torch.export.export(noisy, inputs)
        assert torch.equal(program.module()(*inputs), noisy(*inputs))
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("heliograph.analog_matmul.default") == 2
    assert not {"aten.linear.default", "aten.mm.default", "aten.addmm.default"} & set(targets)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["mlp_mixer", pytest.param("llama", marks=pytest.mark.slow)])
def test_an_exported_program_takes_the_key_as_an_input(name, strict):
    """Bit for bit what the model draws, for keys and parts of which the export knew nothing."""
    model, inputs = build(name)
    noisy = convert(model, CORE).eval()
    keys = [NoiseKey(seed=5, step=step, part=step) for step in range(3)]
    numbers = [torch.from_numpy(key.numbers) for key in keys]
    program = torch.export.export(KeyedModel(noisy), (numbers[0], *inputs), strict=strict).module()
    outs = [program(number, *inputs) for number in numbers]
    for key, number, out in zip(keys, numbers, outs, strict=True):
        with noise_key(key.seed, key.step, part=key.part):
            assert torch.equal(out, noisy(*inputs))
        assert torch.equal(out, KeyedModel(noisy)(number, *inputs))
    assert not torch.equal(outs[0], outs[1])
    with pytest.raises(WorkloadError, match="is not converted"):
        KeyedModel(model)


def layouts(x):
    """Yield a tensor in several layouts in memory."""
    yield x.mT.contiguous().mT
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    yield wide[..., ::2]
    yield torch.cat([x, x], -2)[..., : x.shape[-2], :]


@pytest.mark.parametrize("draws", ["rounding", "loading"])
@pytest.mark.parametrize("shapes", [((40, 24), (24, 8)), ((3, 8, 24), (3, 24, 8))])
def test_no_layout_in_memory_changes_a_draw(draws, shapes):
    """Each operand and the gradient in turn; rounding and loading errors draw once per element."""
    changed = {"rounding": Rounding.STOCHASTIC} if draws == "rounding" else {"load_variance": 1e-4}
    specs = ProductSpecs.same(
        replace(ProductSpecs.of(load_core("crossbar").analog).forward, **changed), row_block=16
    )
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(shape, generator=generator) for shape in shapes)
    grad = torch.randn(*a.shape[:-1], b.shape[-1], generator=generator)

    def product(a, b, grad):
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        out = noisy_matmul(a, b, specs, 3)
        out.backward(grad)
        return [out.detach(), a.grad, b.grad]

    # Sums of operands that err are of no whole numbers: their order, and a converter's step, may move some.
    alike = equal if draws == "rounding" else nearly_all_alike
    plain = product(a, b, grad)
    for turned_a, turned_b, turned_grad in zip(layouts(a), layouts(b), layouts(grad), strict=True):
        assert alike(plain, product(turned_a, b, grad))
        assert alike(plain, product(a, turned_b, grad))
        assert alike(plain, product(a, b, turned_grad))


def nearly_all_alike(ones, others):
    """Return whether 95 % of all numbers are the same but for rounding; other draws would move nearly all."""
    pairs = zip(ones, others, strict=True)
    return all(torch.isclose(x, y, rtol=1e-5, atol=1e-5).float().mean() > 0.95 for x, y in pairs)


def test_an_optimising_compiler_draws_the_same_where_it_leaves_electronics_alone(compiler):
    """Products alone: what else inductor rewrites may differ in its last bits."""
    torch.manual_seed(0)
    noisy = convert(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)), CORE)
    compiled, x = (
        torch.compile(noisy, backend="aot_eager_decomp_partition", fullgraph=True),
        torch.randn(40, WIDTH),
    )
    for step in range(2):
        with noise_key(1, step):
            assert torch.equal(compiled(x), noisy(x))
    assert compiler() == 1


class Checkpointed(nn.Module):
    """A layer that is called twice, recomputed in the backward pass or not."""

    def __init__(self, recomputes):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.recomputes = recomputes

    def forward(self, x):
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=False) if self.recomputes else self.block(x)
        return x


def test_compiled_checkpoints_draw_the_same_or_are_refused():
    torch.manual_seed(0)
    x, models = torch.randn(4, WIDTH), [Checkpointed(False), Checkpointed(True)]
    models[1].load_state_dict(models[0].state_dict())
    plain, noisy = (convert(model, CORE, model_key=NoiseKey(seed=1)) for model in models)
    compiled = torch.compile(noisy, backend="aot_eager")
    assert equal(results(compiled, noisy, (x,)), results(plain, plain, (x,)))
    torch._dynamo.reset()
    patched = torch._dynamo.config.patch("skip_fwd_side_effects_in_bwd_under_checkpoint", True)
    refusal = "WorkloadError: skip_fwd_side_effects_in_bwd_under_checkpoint drops"
    with patched, pytest.raises(Exception, match=refusal):
        torch.compile(noisy, backend="aot_eager")(x)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_takes_batches_of_any_size(strict):
    """Exported with 24 rows; with others it draws what the model draws."""
    layers = torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 32)
    noisy = convert(torch.nn.Sequential(*layers), CORE).eval()
    key, batch = torch.from_numpy(NoiseKey(seed=5).numbers), torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(
        KeyedModel(noisy), (key, torch.randn(24, 64)), dynamic_shapes=(None, ({0: batch},)), strict=strict
    ).module()
    for rows in (24, 2, 300, 513):
        x = torch.randn(rows, 64)
        with noise_key(5):
            assert torch.equal(program(key, x), noisy(x))

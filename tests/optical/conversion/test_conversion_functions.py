"""Functions of torch, called in each way that torch allows, give torch's results on an ideal core."""

import math

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from optical.conversion import Mode, Policy, ProductSpecs, convert, noise_key, watch_products
from optical.cores import load_core
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from simulator.errors import ParameterError, WorkloadError

IDEAL = ProductSpecs.ideal()
CORE = ProductSpecs.of(load_core("crossbar").analog)


def draw(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class Layer(nn.Module):
    """A layer that calls one function of torch."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def forward(self, *args):
        return self.run(*args)


def assert_alike(run, *args):
    """Compare outputs and gradients on an ideal core with those of torch, and see that the core ran."""
    results = []
    for layer in (Layer(run), convert(Layer(run), IDEAL)):
        inputs = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in args]
        with watch_products() as counts:
            y = layer(*inputs)
        y.float().square().sum().backward()
        results.append([y, *(x.grad for x in inputs)])
    digital, mine = results
    tolerance = 2e-2 if args[0].dtype == torch.float16 else 1e-4
    torch.testing.assert_close(mine, digital, rtol=tolerance, atol=tolerance)
    assert not counts.escaped
    return counts


@pytest.mark.parametrize(
    ("run", "shapes"),
    [
        (lambda x, y: torch.mm(input=x, mat2=y), [(2, 3), (3, 4)]),
        (lambda x, y: torch.bmm(x, mat2=y), [(2, 2, 3), (2, 3, 4)]),
        (lambda x, y: torch.mv(x, vec=y), [(2, 3), (3,)]),
        (lambda x, y: torch.dot(x, tensor=y), [(3,), (3,)]),
        (lambda i, x, y: torch.addmm(i, mat1=x, mat2=y, beta=2), [(4,), (2, 3), (3, 4)]),
        (lambda i, x, y: i.addmm(mat1=x, mat2=y, alpha=0.5), [(4,), (2, 3), (3, 4)]),
        (lambda i, x, y: torch.addmv(i, mat=x, vec=y), [(2,), (2, 3), (3,)]),
        (lambda i, x, y: i.baddbmm(batch1=x, batch2=y, beta=0.3), [(2, 2, 4), (2, 2, 3), (2, 3, 4)]),
        (lambda i, x, y: torch.addbmm(i, batch1=x, batch2=y, alpha=3), [(2, 4), (2, 2, 3), (2, 3, 4)]),
        (lambda i, x, y: i.clone().baddbmm_(batch1=x, batch2=y), [(2, 2, 4), (2, 2, 3), (2, 3, 4)]),
    ],
)
def test_arguments_have_the_names_that_torch_gives_them(run, shapes):
    """Bloom's attention is written ``alibi.baddbmm(batch1=..., batch2=...)`` (Hugging Face)."""
    assert assert_alike(run, *(draw(*shape) for shape in shapes)).analog.total() == 1


def test_a_weight_of_one_output_needs_no_second_dimension():
    counts = assert_alike(functional.linear, draw(4, 2, 5), draw(5))
    assert counts.analog.total() == 1


@pytest.mark.parametrize("shape", [(0, 4, 9), (0, 4, 0)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_of_no_samples_is_empty(shape, groups):
    if shape[2]:
        y = convert(nn.Conv1d(4, 6, 3, groups=groups), IDEAL)(torch.zeros(shape))
        assert y.shape == (0, 6, 7)
    turned = nn.ConvTranspose1d(4, 6, 3, groups=groups)
    x = torch.zeros(0, 4, 9)
    assert convert(turned, IDEAL)(x).shape == turned(x).shape


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("kernel", "dilation"), [(4, 1), (2, 3), (3, 2), (5, 1)])
def test_padding_to_the_same_size_puts_the_odd_zero_where_torch_does(kernel, dilation):
    same = nn.Conv1d(3, 2, kernel, padding="same", dilation=dilation)
    torch.testing.assert_close(convert(same, IDEAL)(draw(2, 3, 9)), same(draw(2, 3, 9)))


def test_a_query_hidden_from_all_keys_gives_zeros_by_either_mask():
    q, k, v, mask = draw(2, 2, 5, 8), draw(2, 2, 6, 8), draw(2, 2, 6, 3), torch.zeros(5, 6)
    mask[2] = -math.inf
    attend = functional.scaled_dot_product_attention
    assert_alike(lambda *qkv: attend(*qkv, attn_mask=mask), q, k, v)
    assert_alike(lambda *qkv: attend(*qkv, attn_mask=mask == 0.0), q, k, v)
    hidden = convert(Layer(lambda *qkv: attend(*qkv, attn_mask=mask)), IDEAL)(q, k, v)[..., 2, :]
    assert torch.equal(hidden, torch.zeros_like(hidden))


def test_attention_weights_are_dropped_as_by_torchs_own_generator():
    q, k, v = draw(2, 5, 8), draw(2, 6, 8), draw(2, 6, 3)
    attend = convert(Layer(lambda *qkv: functional.scaled_dot_product_attention(*qkv, dropout_p=0.4)), IDEAL)
    torch.manual_seed(0)
    found = attend(q, k, v)
    torch.manual_seed(0)
    weights = functional.dropout((q @ k.mT / math.sqrt(8.0)).softmax(-1), 0.4)
    torch.testing.assert_close(found, weights @ v)


def test_keys_and_values_may_have_unlike_numbers_of_heads():
    attend = functional.scaled_dot_product_attention
    q, k, v = draw(2, 4, 5, 8), draw(2, 2, 6, 8), draw(2, 1, 6, 3)
    assert_alike(lambda *qkv: attend(*qkv, enable_gqa=True), q, k, v)


@pytest.mark.parametrize("autocast", [False, True])
def test_scores_beyond_half_precision_are_scaled_before_they_are_delivered(autocast):
    """The product of unscaled operands is 80 000, half precision ends at 65 504, and the score is 28 284."""
    kind = torch.float32 if autocast else torch.float16
    q, v = torch.full((1, 2, 8), 100.0, dtype=kind), draw(1, 2, 3, dtype=kind)
    for specs in (IDEAL, CORE):
        layer = convert(Layer(functional.scaled_dot_product_attention), specs)
        with noise_key(0), torch.autocast("cpu", torch.float16, enabled=autocast):
            assert layer(q, q, v).isfinite().all()


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.matrix_power(x, 3),
        lambda x: x.matrix_power(3),
        lambda x: torch.linalg.matrix_power(x, 3),
        torch.cov,
        torch.corrcoef,
        lambda x: torch.sparse.mm(x.to_sparse(), x),
        lambda x: x.to_sparse() @ x,
        lambda x: torch.convolution(x[None], x[:, :, None], None, [1], [0], [1], False, [0], 1),
        lambda x: torch._addmm_activation(x[0], x, x),
        lambda x: functional.linear_cross_entropy(x, x, torch.arange(4)),
    ],
)
def test_products_that_no_core_runs_are_refused_unless_they_are_electronic(run):
    x = draw(4, 4)
    with pytest.raises(WorkloadError, match=r"exclude the layer or name it in Policy\.electronic"):
        convert(Layer(run), CORE)(x)
    electronic = convert(Layer(run), CORE, policy=Policy(electronic=("*",)))
    torch.testing.assert_close(electronic(x), run(x))


ON_CORE = {
    "addbmm": lambda x: torch.addbmm(x, x.expand(2, -1, -1), x.expand(2, -1, -1)),
    "baddbmm": lambda x: torch.baddbmm(x, x[None], x[None]),
    "addmm_": lambda x: x.clone().addmm_(x, x),
    "chain_matmul": lambda x: torch.chain_matmul(x, x, x),
    "multi_dot": lambda x: torch.linalg.multi_dot([x, x, x]),
    "tensordot": lambda x: torch.tensordot(x, x, 1),
    "inner": lambda x: torch.inner(x, x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cdist": lambda x: torch.cdist(x, x),
    "aten.mm": lambda x: torch.ops.aten.mm(x, x),
    "aten.linear.default": lambda x: torch.ops.aten.linear.default(x, x),
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "vecdot": lambda x: torch.linalg.vecdot(x[0], x[1]),
    "cdist of few": lambda x: torch.cdist(x[:8], x[:8], compute_mode="use_mm_for_euclid_dist"),
}
REFUSED = {
    "matrix_power": lambda x: torch.matrix_power(x, 3),
    "matrix_exp": torch.matrix_exp,
    "linalg.matrix_exp": torch.linalg.matrix_exp,
    "cov": torch.cov,
    "corrcoef": torch.corrcoef,
    "bilinear": lambda x: functional.bilinear(x, x, x.expand(4, -1, -1)),
    "sparse.mm": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "sparse.sampled_addmm": lambda x: torch.sparse.sampled_addmm(x.to_sparse_csr(), x, x),
    "smm": lambda x: torch.smm(x.to_sparse(), x),
    "_scaled_mm": lambda x: torch._scaled_mm(
        x.to(torch.float8_e4m3fn), x.to(torch.float8_e4m3fn).T, torch.ones(()), torch.ones(())
    ),
    "_int_mm": lambda x: torch._int_mm(x.to(torch.int8), x.to(torch.int8)),
    "_weight_int8pack_mm": lambda x: torch._weight_int8pack_mm(
        x.bfloat16(), x.to(torch.int8), torch.ones(32, dtype=torch.bfloat16)
    ),
}


@pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated", "ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("name", [*ON_CORE, *REFUSED])
def test_no_function_multiplies_matrices_unseen(name):
    """Operators that are called by their own names, as in exported programs, were exact without a word."""
    run, x = (ON_CORE | REFUSED)[name], draw(32, 32) / 4
    with watch_products() as counts:
        run(x)
    assert counts.escaped
    layer = convert(Layer(run), CORE)
    with noise_key(0), watch_products() as counts:
        if name in REFUSED:
            with pytest.raises(WorkloadError, match="whose products cannot be run on a core"):
                layer(x)
        else:
            layer(x)
    assert bool(counts.analog) is (name in ON_CORE)
    assert not counts.escaped


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")
def test_an_exported_program_runs_on_the_core():
    """Its operators are called by their own names, and it has a module of checks beside its layers."""
    layers = nn.Sequential(nn.Conv1d(4, 4, 3, bias=False), nn.ReLU(), nn.Linear(6, 3))
    x = draw(2, 4, 8)
    program = torch.export.export(layers, (x,)).module()
    torch.testing.assert_close(convert(program, IDEAL)(x), layers(x))
    with noise_key(0), watch_products() as counts:
        convert(program, CORE)(x)
    assert dict(counts.analog) == {":convolution": 1, ":linear": 1}
    assert not counts.escaped


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.cond(x.sum() > 0.0, lambda x: x @ x, lambda x: x + 1.0, (x,)),
        lambda x: flex_attention(*[x[None, None]] * 3),
    ],
)
def test_what_nobody_sees_into_is_refused(run):
    """It was exact without a word; torch compiles it, and wraps the sentence in its own."""
    with noise_key(0), pytest.raises(RuntimeError, match=r"calls (cond|flex_attention), whose products"):
        convert(Layer(run), CORE)(draw(16, 16))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_quantised_layers_are_refused_unless_they_are_electronic():
    """Their products were exact, and no watch counted them."""
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    quantised = quantization.quantize_dynamic(layers, {"0": quantization.default_dynamic_qconfig})
    with noise_key(0), pytest.raises(WorkloadError, match="'0' calls linear_dynamic, whose products"):
        convert(quantised, CORE)(draw(3, 8))
    with noise_key(0), watch_products() as counts:
        convert(quantised, CORE, exclude=["0"])(draw(3, 8))
    assert counts.electronic.total() == counts.analog.total() == 1


def test_the_first_of_two_complex_vectors_is_conjugated():
    x, y = (torch.complex(draw(5), draw(5)) for _ in range(2))
    for run in (torch.vdot, torch.linalg.vecdot):
        torch.testing.assert_close(convert(Layer(run), CORE)(x, y), run(x, y))


@pytest.mark.parametrize("rows", [8, 30])
def test_distances_are_those_of_torch_with_gradients_also_of_equal_vectors(rows):
    x, y = draw(2, rows, 6), draw(rows + 1, 6)
    counts = assert_alike(torch.cdist, x, y)
    assert counts.analog.total() == (rows > 25)
    grids = [torch.arange(rows * 2.0).view(rows, 2).requires_grad_() for _ in range(2)]
    for layer, grid in zip((Layer(torch.cdist), convert(Layer(torch.cdist), IDEAL)), grids, strict=True):
        layer(grid, grid).square().sum().backward()
    torch.testing.assert_close(grids[1].grad, grids[0].grad)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.cdist(x, x, p=1.0),
        lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"),
    ],
)
def test_distances_from_differences_are_no_products(run):
    counts = assert_alike(run, draw(30, 6))
    assert not counts.analog + counts.electronic


def test_a_number_is_no_operand_of_a_product():
    with pytest.raises(WorkloadError, match=r"must have a dimension; got shapes \[\] and \[4\]"):
        convert(Layer(torch.matmul), CORE)(torch.ones(()), draw(4))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Policy(electronic="lm_head"), r"electronic takes several.*write \('lm_head',\)"),
        (
            lambda: Policy.from_json('{"electronic": "lm_head"}'),
            "electronic cannot be 'lm_head'; it takes a list",
        ),
        (lambda: Policy.from_json('{"electronic": 5}'), "electronic cannot be 5; it takes a list"),
        (lambda: Policy.from_json('{"electronic": [3]}'), "electronic cannot be 3; it takes a str"),
        (lambda: Policy(mode="train"), "no mode 'train'; modes are inference, aware, hardware"),
    ],
)
def test_a_wrong_policy_is_refused(make, says):
    """A text would be taken letter by letter, and fit nothing: the head would be noisy without a word."""
    with pytest.raises(ParameterError, match=says):
        make()


def test_a_mode_may_be_given_by_its_name_and_patterns_as_a_list():
    """The mode is looked up by identity: 'hardware' as a text was run as `AWARE`."""
    assert Policy(mode="hardware", electronic=["head"]) == Policy(electronic=("head",))
    assert Policy(mode="hardware").mode is Mode.HARDWARE


@pytest.mark.parametrize("name", ["include", "exclude"])
def test_patterns_of_layers_are_not_a_text(name):
    with pytest.raises(WorkloadError, match=rf"{name} takes several patterns; got '01': write \['01'\]"):
        convert(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), CORE, **{name: "01"})


@pytest.mark.parametrize(
    ("first", "second"),
    [("int64", "int64"), ("float32", "float64"), ("float16", "float32"), ("complex64", "complex64")],
)
@pytest.mark.parametrize("specs", [IDEAL, CORE])
def test_operands_have_one_floating_point_type(first, second, specs):
    """Whole numbers came out as noise cut to whole numbers, and complex ones lost their imaginary part."""
    a, b = torch.ones(2, 3, dtype=getattr(torch, first)), torch.ones(3, 2, dtype=getattr(torch, second))
    for run in (
        lambda: noisy_matmul(a, b, specs, 1),
        lambda: AnalogNumerics(specs.forward).matmul(a[None], b[None], 1),
    ):
        with pytest.raises(WorkloadError, match=rf"one floating-point type; got torch\.{first} and"):
            run()


def test_a_sum_of_nothing_is_zero():
    assert torch.equal(noisy_matmul(torch.ones(2, 0), torch.ones(0, 3), CORE, 1), torch.zeros(2, 3))
    none = noisy_matmul(torch.ones(4, 2, 0), torch.ones(4, 0, 3), CORE, 1, weight=False)
    assert torch.equal(none, torch.zeros(4, 2, 3))


def test_recurrent_layers_drop_what_the_next_reads_not_what_the_last_gives():
    layers = convert(nn.LSTM(4, 5, 2, dropout=0.5), IDEAL)
    one, other = (layers(draw(3, 2, 4))[0] for _ in range(2))
    assert one.all()
    assert not torch.equal(one, other)


def test_what_is_multiplied_by_zero_may_be_no_number():
    """By torch's rule for beta: the input is ignored, and NaN and infinity in it are not passed on."""
    nothing = torch.full((2, 4), math.nan)
    layer = convert(Layer(lambda x, y: torch.addmm(nothing, x, y, beta=0)), IDEAL)
    torch.testing.assert_close(layer(draw(2, 3), draw(3, 4)), draw(2, 3) @ draw(3, 4))


def test_a_view_of_a_parameter_is_a_weight():
    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(draw(8, 5))

        def forward(self, x):
            return x @ self.weight[:4].T

    with watch_products() as counts:
        convert(Halved(), IDEAL)(draw(2, 5))
    assert counts.analog == {":linear": 1}

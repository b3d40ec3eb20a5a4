"""Many products priced at once must come out as if priced one by one."""

import dataclasses

import numpy as np
import pytest

from optical.accelerator import PhotonicUnit
from optical.cores import CORES, load_core
from simulator.amounts import Matrices
from simulator.errors import WorkloadError
from simulator.operators import Elementwise, Held, MatMuls, Phase
from tests.builders import HBM

each_unit = pytest.mark.parametrize("unit", CORES, indirect=True)
SHAPES = 300


@pytest.fixture
def unit(request):
    return PhotonicUnit(core=load_core(request.param), cores=64, memory=HBM, sram_bytes=2**21)


def drawn(count=SHAPES, **changes):
    """Shapes from 1 to 65,536, spread evenly over decades; batches up to 64."""
    draw = np.random.default_rng(7)
    m, k, n = np.floor(2.0 ** draw.uniform(0.0, 16.0, (3, count)))
    return MatMuls(m=m, k=k, n=n, batch=np.floor(2.0 ** draw.uniform(0.0, 6.0, count)), **changes)


def compare(unit, products):
    together, alone = unit.costs(products), [unit.cost(products.one(i)) for i in range(len(products))]
    np.testing.assert_allclose(together.time_s, [cost.time_s for cost in alone], rtol=1e-12)
    assert {frozenset(cost.energy_j) for cost in alone} == {frozenset(together.energy_j)}
    for part, energy_j in together.energy_j.items():
        np.testing.assert_allclose(energy_j, [cost.energy_j[part] for cost in alone], rtol=1e-12)
        assert energy_j.shape == (len(products),), part
    assert together.bound.tolist() == [cost.bound for cost in alone]
    return together


@each_unit
@pytest.mark.parametrize("held", list(Held))
def test_products_priced_together_cost_what_each_costs_alone(unit, held):
    together = compare(unit, drawn(held=held))
    assert len(set(together.time_s)) > 0.9 * SHAPES
    assert len(set(together.bound.tolist())) > 1


@each_unit
@pytest.mark.parametrize(
    "changes",
    [
        {"sparse": True},
        {"on_chip": Matrices.A | Matrices.C, "element_bytes": 1},
        {"phase": Phase.GRAD_WEIGHT},
    ],
    ids=["sparse", "on_chip", "grad_weight"],
)
def test_storage_counts_as_it_does_alone(unit, changes):
    together = compare(unit, drawn(40, **changes))
    plain = unit.costs(drawn(40))
    moved = not np.array_equal(together.energy_j["hbm"], plain.energy_j["hbm"])
    assert moved == ("phase" not in changes)


@each_unit
def test_a_buffer_too_small_for_a_row_counts_as_it_does_alone(unit):
    compare(dataclasses.replace(unit, sram_bytes=2.0), drawn(20))
    compare(dataclasses.replace(unit, sram_bytes=2.0**12), drawn(40))


@each_unit
def test_sizes_beyond_every_integer_still_cost(unit):
    huge = unit.costs(MatMuls(m=2.0**31, k=2.0**31, n=[2.0**31, 2.0**32], batch=64))
    assert huge.time_s[1] == pytest.approx(2.0 * huge.time_s[0], rel=1e-3)


def test_one_size_serves_all_products():
    products = MatMuls(m=[8, 16], k=4, n=4)
    assert len(products) == 2
    assert products.one(1).m == 16
    assert products.one(1).k == 4
    assert not products.m.flags.writeable


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"m": [8, 0]}, "m must be whole and at least 1; got 0"),
        ({"k": 2.5}, "k must be whole"),
        ({"n": np.nan}, "n must be whole"),
        ({"batch": np.inf}, "batch must be whole"),
        ({"m": [1, 2], "k": [1, 2, 3]}, "m must be one number, or 3 in a row"),
        ({"m": [[1, 2]]}, "in a row"),
        ({"m": []}, "in a row"),
        ({"on_chip": "a"}, "on_chip"),
    ],
)
def test_sizes_that_are_none_are_refused(sizes, message):
    with pytest.raises(WorkloadError, match=message):
        MatMuls(**({"m": 8, "k": 8, "n": 8} | sizes))


def test_only_products_are_priced():
    other = Elementwise(name="softmax", phase=Phase.FORWARD, flops=1.0, read_bytes=1.0, written_bytes=1.0)
    with pytest.raises(WorkloadError, match="products only"):
        PhotonicUnit(core=load_core("crossbar"), cores=8, memory=HBM, sram_bytes=2**21).cost(other)

import dataclasses
from dataclasses import replace

import pytest

from electronic.devices import VectorEngine
from electronic.gpu import load_vector, vector_names
from simulator.errors import ParameterError
from simulator.interfaces import Bound, ComputeUnit
from simulator.node import Memory
from simulator.operators import Elementwise, MatMul, Phase

UNIT = load_vector("simd-7nm")


def work(flops, moved):
    return Elementwise(name="e", phase=Phase.FORWARD, flops=flops, read_bytes=moved, written_bytes=0.0)


def test_it_runs_elementwise_work_only():
    product = MatMul(name="p", phase=Phase.FORWARD, batch=1, m=1, k=1, n=1)
    assert isinstance(UNIT, ComputeUnit)
    assert UNIT.accepts(work(1.0, 1.0))
    assert not UNIT.accepts(product)
    with pytest.raises(ParameterError, match="runs no products"):
        UNIT.cost(product)
    with pytest.raises(ParameterError, match="runs no products"):
        UNIT.numerics(Phase.FORWARD)


@pytest.mark.parametrize("name", vector_names())
def test_time_is_launch_and_the_longer_wall(name):
    unit = load_vector(name)
    arithmetic, memory = unit.cost(work(1e12, 1.0)), unit.cost(work(1.0, 1e10))
    assert arithmetic.bound is Bound.COMPUTE
    assert memory.bound is Bound.MEMORY
    assert unit.cost(work(1.0, 1.0)).bound is Bound.LAUNCH
    assert arithmetic.time_s == pytest.approx(unit.engine.launch_s + 1e12 / unit.engine.rate_flop_per_s)
    assert memory.time_s == pytest.approx(unit.engine.launch_s + unit.memory.mixed_time_s(1e10))


def test_energy_is_operations_and_bytes():
    cost = UNIT.cost(work(1e9, 1e8))
    assert cost.energy_j["vector"] == pytest.approx(1e9 * UNIT.engine.energy_j_per_flop)
    assert cost.energy_j["hbm"] == pytest.approx(1e8 * UNIT.memory.energy_j_per_byte)
    assert cost.energy_j["vector active"] == pytest.approx(UNIT.engine.active_w * cost.time_s)


def test_running_lanes_draw_no_more_than_the_limit_leaves():
    limited = replace(UNIT, limit_w=UNIT.engine.active_w)
    cost = limited.cost(work(1e9, 1e8))
    assert sum(cost.energy_j.values()) == pytest.approx(limited.limit_w * cost.time_s)


def outputs(unit):
    costs = [unit.cost(work(1e12, 1.0)), unit.cost(work(1.0, 1e10))]
    values = [value for cost in costs for value in (cost.time_s, *cost.energy_j.values())]
    return [
        *values,
        unit.static_w,
        unit.area_m2,
        unit.price_usd,
        unit.memory.static_w,
        unit.memory.capacity_bytes,
    ]


@pytest.mark.parametrize(
    ("part", "parameter"),
    [("engine", item.name) for item in dataclasses.fields(VectorEngine) if item.name != "name"]
    + [("memory", item.name) for item in dataclasses.fields(Memory) if item.name != "name"],
)
def test_no_knob_is_dead(part, parameter):
    device = getattr(UNIT, part)
    changed = replace(UNIT, **{part: replace(device, **{parameter: getattr(device, parameter) * 0.9})})
    assert outputs(changed) != outputs(UNIT)


def test_unknown_unit_is_refused():
    with pytest.raises(ParameterError, match="simd-7nm"):
        load_vector("simd-7")

"""The electronics a photonic accelerator carries for what light does not do: softmax, norms, optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from electronic.devices import VectorEngine, accelerator_names, check_accelerator, load_memory, table
from simulator.errors import ParameterError
from simulator.interfaces import Bound, Cost, Numerics
from simulator.node import NO_PENALTIES, Memory, StepPenalties
from simulator.operators import Elementwise, MatMul, Phase


@dataclass(frozen=True, kw_only=True)
class VectorUnit:
    """Vector lanes beside a memory; they run element-wise work and no products.

    Notes
    -----
    Time is a launch and then the longer of arithmetic and memory traffic (roofline); energy is that of the
    operations and of the bytes moved.
    """

    name: str = "vector"
    """Name shown in tables and traces."""
    engine: VectorEngine
    """The lanes."""
    memory: Memory
    """The memory they stream from."""
    penalties: StepPenalties | None = None
    """Penalties that they pay within a step; None for lanes by themselves."""

    @property
    def static_w(self) -> float:
        """Power drawn all the time, without the memory's."""
        return self.engine.static_w

    @property
    def area_m2(self) -> float:
        """Die area."""
        return self.engine.area_m2

    @property
    def price_usd(self) -> float:
        """Price with memory."""
        return self.engine.price_usd

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is element-wise."""
        return isinstance(operator, Elementwise)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run.

        Raises
        ------
        ParameterError
            If handed a product.
        """
        if not isinstance(operator, Elementwise):
            msg = (
                f"vector unit '{self.name}' runs no products, got '{operator.name}'; place products on a GPU "
                "or a photonic core"
            )
            raise ParameterError(msg)
        return _cost(self, operator)

    def numerics(self, phase: Phase) -> Numerics:
        """Refuse: there are no products to execute.

        Raises
        ------
        ParameterError
            Always.
        """
        msg = f"vector unit '{self.name}' runs no products, so none in {phase}; ask the unit that does"
        raise ParameterError(msg)


@lru_cache(maxsize=65536)
def _cost(unit: VectorUnit, operator: Elementwise) -> Cost:
    moved = operator.read_bytes + operator.written_bytes
    paid = unit.penalties or NO_PENALTIES
    compute_s = operator.flops / unit.engine.rate_flop_per_s * paid.lag
    memory_s = unit.memory.mixed_time_s(moved)
    work_s = max(compute_s, memory_s)
    bound = Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE
    parts = {"vector": operator.flops * unit.engine.energy_j_per_flop, "hbm": unit.memory.energy_j(moved)}
    return Cost(
        time_s=unit.engine.launch_s + work_s,
        energy_j=MappingProxyType(parts),
        bound=Bound.LAUNCH if unit.engine.launch_s > work_s else bound,
        host_s=paid.work_issue_s(operator) if moved else 0.0,
    )


def load_vector(name: str) -> VectorUnit:
    """Return a vector unit from the table.

    Parameters
    ----------
    name : str
        One of `vector_names`.

    Raises
    ------
    ParameterError
        If there is no such unit.
    """
    check_accelerator(name, "vector")
    return VectorUnit(
        name=name, engine=table("vector").build(VectorEngine, name), memory=load_memory(name, "vector")
    )


def vector_names() -> tuple[str, ...]:
    """Return the vector units of the table."""
    return accelerator_names("vector")

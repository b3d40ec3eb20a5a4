"""What a core says twice: its noise in the link budget and in the record, its prices in every phase."""

import dataclasses
import math

import pytest

from heliograph.operators import Phase
from tests.conformance.test_cores import THICK, THIN, each_gaussian_unit, each_unit


def noise_alone_and_together(spec):
    """Signal over noise of a full-scale sample if intensity noise of its products adds up as powers, and as
    fields; thermal and shot noise as powers."""
    length = spec.analog_length
    still = spec.thermal_variance + 2 * length * spec.shot_variance
    return tuple(length**2 / (still + count * spec.rin_variance) for count in (length, length**2))


@each_gaussian_unit
@pytest.mark.parametrize("phase", list(Phase))
def test_noise_of_a_sample_is_that_of_the_link_budget(unit, phase):
    """One light, one answer: what is executed errs as the budget that sets laser and loss says, exactly."""
    found = noise_alone_and_together(unit.core.analog(phase))
    stated = unit.core.budget.snr
    assert any(math.isclose(one, stated, rel_tol=1e-9) for one in found), (
        f"{unit.core.name}, {phase.value}: a full-scale sample of analog() is {found[0]:.6g} times its noise "
        f"({found[1]:.6g} if its light fluctuates together), budget.snr is {stated:.6g}; take thermal, shot "
        "and rin variances from the budget, in units of one full-scale product squared"
    )


@each_unit
@pytest.mark.parametrize("operator", [THICK, THIN], ids=["thick", "thin"])
def test_equal_products_take_the_same_in_every_phase(unit, operator):
    """No core keeps a whole model: gradients load and convert operands as the forward pass does."""
    first = unit.core.work(operator, unit.cores)
    for phase in Phase:
        other = unit.core.work(dataclasses.replace(operator, phase=phase), unit.cores)
        for what in ("light_s", "programming_s", "operand_bytes", "writes"):
            assert getattr(other, what) == getattr(first, what), (
                f"{unit.core.name}: {what} of the same product is {getattr(other, what):.6g} in "
                f"{phase.value} and {getattr(first, what):.6g} forward; operands change every time"
            )
        assert dict(other.energy_j) == dict(first.energy_j), (
            f"{unit.core.name}: {phase.value} has other energies than forward for the same product"
        )


@each_unit
def test_no_core_is_for_free(unit):
    photonic, electronic = unit.core.photonic_area_m2(), unit.core.electronic_area_m2()
    for kind, parts in (("photonic", photonic), ("electronic", electronic)):
        assert math.fsum(parts.values()) > 0.0, (
            f"{unit.core.name}: {kind}_area_m2 adds up to 0 ({parts}); price follows from area, so that "
            "these parts would cost nothing"
        )
        assert all(area_m2 >= 0.0 for area_m2 in parts.values()), f"{unit.core.name}: {parts}"
    drawn = unit.core.full_load_parts_w()
    for part in ("dac", "adc"):
        assert electronic.get(part, 0.0) > 0.0 or part not in drawn, (
            f"{unit.core.name}: the {part} draws {drawn.get(part)} W and takes no electronic area"
        )

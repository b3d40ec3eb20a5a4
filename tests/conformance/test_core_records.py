"""What a core says twice: its noise in the link budget and in the record, its prices in every phase."""

import dataclasses
import math

import pytest

from simulator.operators import MatMul, Phase
from simulator.parameter_tree import numeric_leaves, replace_at
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


FULL = MatMul(name="product", layer="block", phase=Phase.FORWARD, batch=1, m=65536, k=8192, n=8192)
"""A product of so many tiles that hardly any of them is filled in part."""


@each_unit
def test_a_full_core_draws_what_full_load_says(unit):
    """Energy of a product that fills the arrays, over the time of its light, part by part to 2 %.

    Accelerators are sized by `full_load_parts_w`: a part left out there is power for nothing. Loads of
    weights and what prepares them are no part of it, for inputs do not stream meanwhile.
    """
    work, stated = unit.core.work(FULL, unit.cores), unit.core.full_load_parts_w()
    loading = {"reload", "programming", "decomposition"} if unit.core.holds_weights else set()
    assert set(work.energy_j) - loading == set(stated), (
        f"{unit.core.name}: work() has the parts {sorted(work.energy_j)}, full_load_parts_w() has "
        f"{sorted(stated)}; both need every part that draws while inputs stream"
    )
    for part, stated_w in stated.items():
        drawn_w = work.energy_j[part] / (work.light_s * unit.cores)
        assert math.isclose(drawn_w, stated_w, rel_tol=0.02), (
            f"{unit.core.name}: the {part} of a core takes {drawn_w:.4g} W in a product that fills it, and "
            f"{stated_w:.4g} W in full_load_parts_w(); which of the two counts too many or too few?"
        )


MOST_W_PER_M2 = 790e4
"""Heat that microchannels took off a silicon chip: 790 W/cm2 (Tuckerman and Pease, IEEE Electron Device
Letters 2 (1981) 126, abstract)."""


@each_unit
def test_a_chip_can_be_cooled(unit):
    """No more power on a die than microchannels take away: a static part in mW instead of W shows here."""
    density_w_per_m2 = unit.peak_power_w / unit.area_m2
    assert density_w_per_m2 < MOST_W_PER_M2, (
        f"{unit.core.name}: {density_w_per_m2 * 1e-4:.4g} W/cm2 on its dies, and the best cooling takes "
        f"{MOST_W_PER_M2 * 1e-4:g}; static parts, in W: {unit.core.static_parts_w()}; dynamic: "
        f"{unit.core.full_load_parts_w()}; is one in mW, or an area in um2?"
    )


SPOILS = (
    "laser_power_w",
    "laser.rin_db_per_hz",
    "laser.coupling_loss_db",
    "modulator.insertion_loss_db",
    "waveguide.loss_db_per_m",
    "detector.responsivity_a_per_w",
    "detector.dark_current_a",
    "tia.noise_a_per_sqrt_hz",
    "dac.enob_bits",
    "adc.enob_bits",
)
"""Numbers that every textbook has in the error of a sample."""


@each_unit
def test_what_spoils_a_sample_reaches_the_record(unit):
    """One road to accuracy too: that a number moves time or energy does not excuse it from the noise."""
    leaves = numeric_leaves(unit)
    for path in (path for path in leaves if path.endswith(tuple(f".{end}" for end in SPOILS))):
        changed = replace_at(unit, path, 0.8 * leaves[path])
        assert changed.core.analog(Phase.FORWARD) != unit.core.analog(Phase.FORWARD), (
            f"{unit.core.name}: {path}: {leaves[path]:.4g} -> {0.8 * leaves[path]:.4g} leaves analog() as it "
            "is; take it from the budget and the converters, not from a number of its own"
        )

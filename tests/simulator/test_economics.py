import dataclasses

import pytest

from simulator.errors import ParameterError
from simulator.results import default_economics


def test_a_step_pays_its_share_of_the_hardware_and_its_energy():
    prices = dataclasses.replace(
        default_economics(), electricity_usd_per_j=2.0, power_usage_effectiveness=1.5, lifetime_s=100.0
    )
    cost = prices.step_usd(capital_usd=1000.0, step_time_s=10.0, energy_j=3.0)
    assert cost == {"hardware": pytest.approx(100.0), "electricity": pytest.approx(9.0)}


def test_a_kilowatt_hour_costs_what_the_table_says():
    assert default_economics().electricity_usd_per_j * 3.6e6 == pytest.approx(0.08)


@pytest.mark.parametrize(("field", "value"), [("lifetime_s", 0.0), ("power_usage_effectiveness", 0.9)])
def test_impossible_prices_are_refused(field, value):
    with pytest.raises(ParameterError, match=field):
        dataclasses.replace(default_economics(), **{field: value})

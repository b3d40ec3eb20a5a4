"""Published cost, power and failures of networks, recomputed from bills of materials."""

import pytest

from electronic.fabrics.collectives import collective_plan
from experiments.validation.collectives import bus_record
from experiments.validation.network import claims_record
from experiments.validation.network import outcomes as outcomes_of
from experiments.validation.network_costs import (
    jupiter_savings,
    network_usd,
    network_w,
    opus_ratio,
    paper_prices,
    rail_only_savings,
    topoopt_ratio,
)
from experiments.validation.network_failures import published_shares
from experiments.validation.rows import Record


def outcomes(**cells):
    return tuple(outcomes_of(Record("file.csv:2", cells)))


def test_rail_only_saves_the_levels_that_it_leaves_out():
    """arXiv:2307.12169: with 5 ports and 6 modules a GPU, two levels leave 3 and 4, one level 1 and 2."""
    savings = rail_only_savings()
    by_paper = [saving.paper_cost for saving in savings]
    power = [saving.power for saving in savings]
    prices = paper_prices("rail-only")
    port, module = prices.port_usd, prices.transceiver_usd
    two = 1 - (3 * port + 4 * module) / (5 * port + 6 * module)
    one = 1 - (port + 2 * module) / (5 * port + 6 * module)
    assert (min(by_paper), max(by_paper)) == (pytest.approx(two), pytest.approx(one))
    assert min(by_paper) == pytest.approx(0.38, abs=0.005)
    assert max(by_paper) == pytest.approx(0.77, abs=0.005)
    assert min(power) == pytest.approx(0.37, abs=0.005)
    assert max(power) == pytest.approx(0.75, abs=0.011)


def test_photonic_rails_save_more_the_less_is_counted():
    """Opus, arXiv:2602.12521: 23 and 4; the modules at the cards stand on both sides of a fraction."""
    power, cost = opus_ratio(network_w), opus_ratio(network_usd)
    assert 1 < power.with_cards < 23 < power.without_cards
    assert 1 < cost.with_cards < 4 < cost.without_cards


def test_levels_make_an_ideal_switch_dearer():
    """TopoOpt, NSDI 2023: the larger the cluster, the more levels its stand-in has."""
    ratios = [topoopt_ratio(servers) for servers in (16, 128, 1024)]
    assert ratios == sorted(ratios)
    assert ratios[0] < ratios[-1]


def test_jupiter_saves_power_and_money():
    """Poutievski et al., SIGCOMM 2022: 41 % and 30 %."""
    power, price = jupiter_savings()
    assert power == pytest.approx(0.41, abs=0.05)
    assert price == pytest.approx(0.30, abs=0.02)


def test_a_range_gives_a_row_for_each_end():
    found = outcomes(system="Rail-only", metric="network cost reduction", value="38-77", unit="%")
    assert [one.measured for one in found] == [pytest.approx(0.38), pytest.approx(0.77)]
    assert found[0].predicted < found[1].predicted
    down = outcomes(
        system="Sirius", metric="power vs ideal electrical non-blocking", value="-74 to -77", unit="%"
    )
    assert [one.measured for one in down] == [pytest.approx(0.74), pytest.approx(0.77)]


def test_forwarding_across_rails_is_free_where_bytes_cross_domain_and_card_at_once():
    """arXiv:2307.12169: 8.2 to 11.2 %; it adds the time over a domain nine times as wide as a card."""
    for one in outcomes(system="Rail-only", metric="all-to-all overhead", value="8.2-11.2", unit="%"):
        assert one.predicted == pytest.approx(0.0, abs=1e-9)
        assert "11.1% longer" in one.hint


def test_bounds_and_reductions_are_read_by_their_number():
    bound = outcomes(system="TPU v4", metric="OCS+optics share of system cost", value="<5", unit="%")
    assert bound[0].measured == pytest.approx(0.05)
    less = outcomes(system="Jupiter Evolving", metric="capex", value="-30", unit="%")
    assert less[0].measured == pytest.approx(0.30)
    words = outcomes(system="Jupiter Evolving", metric="capex", value="a third", unit="%")
    assert "no number" in words[0].skipped


def test_every_claim_says_what_it_rests_on():
    for one in claims_record():
        assert one["assumed"], one["id"]
        assert one["predicted"] > 0


def test_figures_mark_what_is_published():
    marks = {(one.system, one.accelerators): one for one in published_shares()}
    assert marks["TPU v4", 2048].share == pytest.approx(0.5)
    assert marks["Llama 3 405B", 16384].bound
    assert not marks["ByteRobust", 9600].bound


def test_switches_that_add_beat_the_ring():
    """Bekman, ML Engineering: 482 GB/s of NVLS over 368 of the ring, at most 2 (n - 1) / (n + 1)."""
    size = 2.0**34
    gain = (
        collective_plan("h200", 8, size, in_network=False).alone_s / collective_plan("h200", 8, size).alone_s
    )
    assert gain == pytest.approx(482.26 / 367.61, rel=0.03)
    assert gain < 2 * 7 / 9
    assert (
        collective_plan("a100", 8, size, in_network=False).alone_s == collective_plan("a100", 8, size).alone_s
    )
    longest = {one["series"]: one for one in bus_record()}
    assert longest["8 H100, NVLS"]["predicted_gb_per_s"] == pytest.approx(478.87, rel=0.02)

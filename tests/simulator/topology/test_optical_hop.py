import pytest

from simulator.errors import LinkError
from simulator.topology.scale_up import load_hop


def test_losses_add_up_and_leave_what_is_spare():
    hop = load_hop("dr4")
    found = hop.budget(500.0)
    expected_db = hop.connectors * hop.connector_loss_db + 500 * hop.fibre_loss_db_per_m + hop.margin_db
    assert found.loss_db == pytest.approx(expected_db)
    assert found.spare_db == pytest.approx(hop.allowed_loss_db - expected_db)


@pytest.mark.parametrize(("name", "reach_m"), [("dr4", 500.0), ("fr4", 2000.0), ("lr4", 10000.0)])
def test_every_class_closes_over_the_reach_of_its_standard(name, reach_m):
    """IEEE 802.3 and 400G-FR4: 500 m, 2 km and 10 km."""
    assert load_hop(name).closed("two modules", reach_m).spare_db >= 0.0


def test_classes_of_longer_reach_may_lose_more():
    losses = [load_hop(name).allowed_loss_db for name in load_hop.table.names]
    assert losses == sorted(losses)


def test_an_open_link_names_the_element_that_loses_most():
    with pytest.raises(LinkError, match=r"leaf and spine.*fibre \(7\.00 dB"):
        load_hop("dr4").closed("leaf and spine", 20000.0)

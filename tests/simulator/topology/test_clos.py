import numpy as np
import pytest

from simulator.errors import ParameterError
from simulator.topology.clos import Clos, Spreading


def test_levels_follow_size():
    assert [Clos(ports=ports, radix=8).levels for ports in (8, 9, 32, 33, 128, 129)] == [1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(("ports", "radix"), [(32, 8), (128, 8), (512, 8), (1024, 16), (2048, 64)])
def test_a_full_tree_has_the_switches_of_the_textbook(ports, radix):
    """Al-Fares et al. 2008: k^3 / 4 hosts under 5 k^2 / 4; L levels: 2 (k/2)^L, (2L-1) (k/2)^(L-1)."""
    tree = Clos(ports=ports, radix=radix)
    levels = {2: (radix**2 // 2, 3 * radix // 2), 3: (radix**3 // 4, 5 * radix**2 // 4), 4: (512, 448)}
    most, switches = levels[tree.levels]
    assert tree.ports == most
    assert tree.switches == switches


def test_too_many_ports_for_four_levels_are_refused():
    with pytest.raises(ParameterError, match="larger radix"):
        Clos(ports=513, radix=8)


def test_a_fourth_level_adds_a_hop_each_way_and_no_bottleneck():
    few, many = (
        Clos(ports=ports, radix=8).wiring(first_vertex=0, rate_bytes_per_s=1.0, latency_s=1.0)
        for ports in (128, 512)
    )
    assert (few.latency_s.max(), many.latency_s.max()) == (1.0, 2.0)
    assert few.capacity_bytes_per_s.max() == many.capacity_bytes_per_s.max() == 16.0


def test_a_radix_of_one_and_no_oversubscription_below_one():
    with pytest.raises(ParameterError, match="radix"):
        Clos(ports=4, radix=1)
    with pytest.raises(ParameterError, match="oversubscription"):
        Clos(ports=4, radix=8, oversubscription=0.5)


@pytest.mark.parametrize("shift", [1, 4, 5, 16, 31, 63, 77])
def test_destination_modulo_routing_has_no_collision_in_shifts(shift):
    """Zahavi 2012, theorem 1: contention-free shifts of a full tree."""
    tree = Clos(ports=128, radix=8, spreading=Spreading.STATIC)
    ports = np.arange(128)
    for links in tree.paths(ports, (ports + shift) % 128):
        used = links[links >= 0]
        assert np.unique(used).size == used.size


def test_static_routing_collides_where_a_permutation_is_no_shift():
    tree = Clos(ports=128, radix=8, spreading=Spreading.STATIC)
    ports = np.random.default_rng(1).permutation(128)
    first = tree.paths(np.arange(128), ports)[0]
    assert np.bincount(first[first >= 0]).max() > 1


def test_spraying_and_static_lanes_have_the_same_capacity_in_all():
    for ports in (32, 128):
        sums = [
            Clos(ports=ports, radix=8, oversubscription=1.5, spreading=spreading)
            .wiring(first_vertex=0, rate_bytes_per_s=1.0, latency_s=0.0)
            .capacity_bytes_per_s.sum()
            for spreading in Spreading
        ]
        assert sums[0] == pytest.approx(sums[1])

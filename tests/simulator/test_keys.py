import itertools

import numpy as np
import pytest

from simulator.keys import mix_key, mix_keys


def test_one_part_is_the_published_splitmix64_sequence():
    state, values = 0, []
    for _ in range(3):
        values.append(mix_key(state))
        state += 0x9E3779B97F4A7C15
    assert values == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_keys_of_a_run_never_repeat():
    keys = {mix_key(*parts) for parts in itertools.product(range(3), range(20), range(5), range(7), range(3))}
    assert len(keys) == 3 * 20 * 5 * 7 * 3


def test_order_and_number_of_parts_matter():
    assert len({mix_key(1, 2), mix_key(2, 1), mix_key(1, 2, 0), mix_key(0, 1, 2), mix_key(1)}) == 5


def test_every_input_bit_flips_half_of_the_output():
    base = mix_key(7, 11)
    flips = [(base ^ mix_key(7, 11 ^ (1 << bit))).bit_count() for bit in range(64)]
    assert abs(np.mean(flips) - 32) < 5 * 4 / np.sqrt(64)
    assert min(flips) > 12


def test_keys_fit_a_generator_and_accept_numpy_and_negative_integers():
    assert 0 <= mix_key(-1, np.int64(3)) < 2**64
    assert mix_key(-1) == mix_key(2**64 - 1)


def test_a_part_that_is_no_integer_is_refused():
    with pytest.raises(TypeError):
        mix_key(1.5)


def test_keys_of_arrays_are_those_of_their_members():
    parts = np.arange(5, dtype=np.uint64)
    found = mix_keys(mix_keys(np.zeros(5, dtype=np.uint64), parts), parts[::-1])
    assert found.tolist() == [mix_key(one, 4 - one) for one in range(5)]

"""All-reduces of eight GPUs against published bus bandwidths (Azure, Bekman)."""

import math
from functools import cache

import pytest

from experiments.validation.driver import validate

LEAST_BYTES = 2**20
WANTED = 0.097
"""Geometric-mean error of the best peer on HGX H100."""


@cache
def errors(gpu):
    rows = [one for one in validate("collectives").outcomes if one.id.startswith(f"nccl-{gpu}x8-")]
    return [abs(one.relative_error) for one in rows if int(one.id.rsplit("-", 1)[1]) >= LEAST_BYTES]


def geometric_mean(values):
    """Return exp of the mean log of 1 + error, less one: small errors do not pull it to zero."""
    return math.expm1(math.fsum(math.log1p(value) for value in values) / len(values))


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200"])
def test_all_reduces_from_a_mebibyte_up_meet_the_bar(gpu):
    assert len(errors(gpu)) >= 14
    assert geometric_mean(errors(gpu)) <= WANTED


def test_nodes_of_trees_pass_all_twice_and_share_cards_where_two_do():
    # 4 x 8 H100 (issue 309): 366 GB/s, where the mean of trees gives 498. Issue 119: four cards a host.
    found = {one.id: one.relative_error for one in validate("collectives").outcomes}
    assert abs(found["issue309-h100x32-8589934592"]) < 0.05
    # 13 % too slow; the 8 % of before rested on levels in turn, a way that no library has and that missed
    # three and four nodes of EFA by 43 and 42 %, which are 32 and 36 % too fast as two are 34 %.
    assert abs(found["issue119-a100x24-133169160"]) < 0.13
    efa = [found[f"issue527-a100x{ranks}-1073741824"] for ranks in (16, 24, 32)]
    assert max(efa) - min(efa) < 0.05


def test_predictions_beat_half_the_line_rate():
    found = validate("collectives").overall()
    assert found.mean_abs_error < found.constant_mean_abs_error

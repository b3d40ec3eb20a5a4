"""Runs that are kept: what a cache has is not run, and jobs of one key are run once."""

from heliograph.accuracy.small_gpt import run_cached
from heliograph.records import TrainingCache


def squared(job):
    return {"square": [job**2]}


def test_runs_of_one_key_are_run_once_and_those_that_are_kept_not_again(tmp_path):
    cache, told = TrainingCache(tmp_path), []

    def run(jobs):
        told.clear()
        return run_cached(
            jobs,
            squared,
            key=lambda job: str(abs(job)),
            label=str,
            cache=cache,
            progress=lambda *one: told.append(one),
        )

    assert run([2, -2, 3]) == [{"square": [4]}, {"square": [4]}, {"square": [9]}]
    assert sorted(told, key=lambda one: one[1])[-1][1:] == (3, 3)
    assert len(told) == 2
    assert run([3, 4]) == [{"square": [9]}, {"square": [16]}]
    assert told == [("4", 2, 2)]


def test_a_result_that_is_kept_has_its_keys_in_the_order_of_the_run(tmp_path):
    """Tables of `heliograph accuracy predict` list products in that order."""
    cache = TrainingCache(tmp_path)
    cache.store("key", {"qkv": {"output": 1.0, "first operand": 2.0}, "head": {}, "down": {}})
    found = cache.load("key")
    assert list(found) == ["qkv", "head", "down"]
    assert list(found["qkv"]) == ["output", "first operand"]

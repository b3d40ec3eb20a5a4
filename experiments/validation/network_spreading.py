"""Published losses of flows that a hash lays on the same links, recomputed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np

from electronic.devices import load_packet_switch
from experiments.validation.rows import Record, SkipError
from simulator.engine.fairshare import max_min_rates
from simulator.keys import mix_key
from simulator.topology.clos import Clos, Spreading
from simulator.topology.graphs import NO_LINK

Rule = Callable[[Record, "re.Match[str]"], tuple[float, str]]
SIZES = MappingProxyType({"two": (512, 32), "three": (4096, 32)})
"""Levels of switches by a row's word -> cards, and ports of a switch, which the share hardly knows; of three
levels eight pods, so that most traffic crosses all."""
HASHES = 3
"""Hashes over which the mean is taken; one standard deviation of a hash is 1 to 2 %."""


@cache
def hashed_share(ports: int, radix: int, queue_pairs: int, seed: int) -> float:
    """Return the mean rate over the line rate of cards that each send to one card under another leaf.

    Parameters
    ----------
    ports, radix : int
        Cards under a full Clos network, and ports of its switches.
    queue_pairs : int
        Queue pairs of each flow, each on the path that a hash gives it.
    seed : int
        Of the hash, and of who sends to whom.

    Notes
    -----
    Every card receives from one. Queue pairs share links max-min fairly, as congestion control has them do,
    and a flow has the sum of its own.
    """
    tree = Clos(ports=ports, radix=radix, spreading=Spreading.HASHED)
    draw = np.random.default_rng(seed)
    sources = np.arange(ports)
    shift = 1 + draw.integers(tree.leaves - 1, size=tree.down)  # of each place under a leaf, by leaves
    leaf, place = np.divmod(sources, tree.down)
    destinations = (leaf + shift[place]) % tree.leaves * tree.down + place
    trunks = tree.wiring(first_vertex=0, rate_bytes_per_s=1.0, latency_s=0.0).links
    flows, links = [], []
    for pair in range(queue_pairs):
        paths = replace(tree, hash_seed=mix_key(seed, pair)).paths(sources, destinations)
        for crossed in (*paths, trunks + sources, trunks + ports + destinations):
            some = crossed != NO_LINK
            flows.append((sources + pair * ports)[some])
            links.append(crossed[some])
    rates = max_min_rates(
        np.concatenate(flows), np.concatenate(links), np.ones(trunks + 2 * ports), flows=queue_pairs * ports
    )
    return float(rates.sum() / ports)


def _hashed(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the share of the line rate that hashed flows keep."""
    levels = re.search(rf"\b({'|'.join(SIZES)}) levels", record.text("config"))
    if levels is None:
        msg = f"config must say how many levels of switches: {' or '.join(SIZES)} levels"
        raise SkipError(msg)
    named = re.search(r"(\d+) queue pairs?", record.text("config"))
    pairs = int(named[1]) if named else load_packet_switch("ethernet-400g").shipped_queue_pairs
    if not named:
        record.assume(f"{pairs} queue pairs a flow, as Ethernet switches of our table come")
    ports, radix = SIZES[levels[1]]
    record.assume(f"{ports} cards, each sends to one under another leaf; mean of {HASHES} hashes")
    return float(np.mean([hashed_share(ports, radix, pairs, seed) for seed in range(HASHES)])), ""


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {(r"Baidu AIPod$|NVIDIA Spectrum-X$", "hashed flows' share of the line rate$"): _hashed}
)
"""How system and metric of a row read, and what predicts it."""

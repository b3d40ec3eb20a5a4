"""Max-min fair rates of flows that share capacitated links.

A rate vector is max-min fair if and only if every flow has a saturated link on which no other flow is faster;
it is unique. Progressive filling reaches it link by link; here every link that is a bottleneck for all of its
own flows is frozen in the same pass, so the passes number the depth of the bottleneck order, not the links.

References
----------
Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2.

Shares of connections that a window rules: a young one takes more of a link than an old one.

A message that opens a connection of its own begins with a full window and no memory of congestion. One that
has lasted knows that every packet was marked and halves its window each round trip. Until the young one has
learnt the same, some ten round trips through a full queue, the old one starves; a ring all-reduce that opens
new connections in every round is always young.

References
----------
Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, equations (1) and (2); Alizadeh, Javanmard and
Prabhakar, "Analysis of DCTCP", SIGMETRICS 2011, equations (1) to (3): the fluid of windows and one queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from simulator.checks import check_positive, check_range
from simulator.errors import RouteError
from simulator.tables import Table, read_table

TRANSPORTS = Path(__file__).parents[1] / "parameters" / "transports.csv"
"""Transports by name."""
LEAST_PACKETS = 1.0
"""Window that no congestion closes; dimensionless."""
PHASES = 8
"""Points of a rival's life, equally far apart, at which a message begins."""


@dataclass(frozen=True, kw_only=True)
class Transport:
    """A transport whose window follows the share of marked packets."""

    name: str = "dctcp"
    """Transport."""
    packet_bytes: float
    """A packet."""
    initial_packets: float
    """Window of a new connection, in packets; dimensionless."""
    mark_packets: float
    """Queue, in packets, beyond which a switch marks what passes; dimensionless."""
    gain: float
    """Weight of the newest round trip in the memory of marks, 0 to 1; dimensionless."""

    def __post_init__(self) -> None:
        check_positive(self, "packet_bytes", "initial_packets")
        check_range(self, "mark_packets")
        check_range(self, "gain", low=0.0, high=1.0)

    @property
    def initial_bytes(self) -> float:
        """Bytes that a new connection sends before it hears of any mark."""
        return self.initial_packets * self.packet_bytes


@cache
def transport_table() -> Table:
    """Return the table of transports that ships."""
    return read_table(TRANSPORTS)


def load_transport(name: str) -> Transport:
    """Return a transport from the table, e.g. ``"dctcp-flexnet"``."""
    return transport_table().build(Transport, name)


@dataclass(kw_only=True)
class _Window:
    """A connection: its window, what it remembers of marks, and what is left to send."""

    left_bytes: float
    packets: float
    marked_share: float = 0.0
    sent_bytes: float = field(default=0.0, init=False)

    def part(self, packet_bytes: float) -> float:
        """Return which part of a window is left to send, at most all of it; dimensionless."""
        return min(1.0, self.left_bytes / (self.packets * packet_bytes))

    def send(self, packet_bytes: float, part: float) -> None:
        """Send part of a window, or what is left."""
        size_bytes = min(part * self.packets * packet_bytes, self.left_bytes)
        self.sent_bytes += size_bytes
        self.left_bytes -= size_bytes

    def hear(self, marked: float, gain: float) -> None:
        """Open or close the window after a round trip, by the share of packets that came back marked."""
        self.marked_share += gain * (marked - self.marked_share)
        cut = self.marked_share / 2.0 if marked else 0.0
        self.packets = max(self.packets * (1.0 - cut), LEAST_PACKETS) + 1.0


def share(
    transport: Transport,
    message_bytes: float,
    rival_bytes: float,
    *,
    rate_bytes_per_s: float,
    round_trip_s: float,
) -> float:
    """Return the rate of one message over that of rivals, each of which opens a connection when one ends.

    Parameters
    ----------
    transport : Transport
        Rule of the windows.
    message_bytes : float
        Bytes of the message that is followed, from its first to its last.
    rival_bytes : float
        Bytes of each rival.
    rate_bytes_per_s : float
        Rate of the link that both fill.
    round_trip_s : float
        Round trip without a queue.

    Notes
    -----
    A round trip lasts as long as the link needs for all windows, at least `round_trip_s`; what the windows
    hold beyond the link stands in its queue, and all packets of a round trip are marked if that is longer
    than `mark_packets`, else none (SIGMETRICS 2011, equation (3)). The window then is cut by half of the
    remembered share of marks, and grows by a packet (SIGCOMM 2010, equation (2)). The message begins at each
    of `PHASES` points of a rival's life.
    """
    in_flight = rate_bytes_per_s * round_trip_s / transport.packet_bytes
    sent = [
        _shared(transport, message_bytes, rival_bytes, in_flight, (turn + 1) / PHASES * rival_bytes)
        for turn in range(PHASES)
    ]
    return math.fsum(own for own, _ in sent) / math.fsum(rivals for _, rivals in sent)


def _shared(
    transport: Transport, message_bytes: float, rival_bytes: float, in_flight: float, left_bytes: float
) -> tuple[float, float]:
    """Return what a message and its rivals have sent when it ends; the first has a window left at least."""
    left_bytes = max(left_bytes, transport.initial_bytes)
    own = _Window(left_bytes=message_bytes, packets=transport.initial_packets)
    rival = _Window(left_bytes=left_bytes, packets=transport.initial_packets)
    ended_bytes = 0.0
    while own.left_bytes > 0.0:
        queue = own.packets + rival.packets - in_flight
        marked = float(queue > transport.mark_packets)
        part = own.part(transport.packet_bytes)  # it may end within a round trip
        for one in (own, rival):
            one.send(transport.packet_bytes, part)
            one.hear(marked, transport.gain)
        if rival.left_bytes <= 0.0:
            ended_bytes += rival.sent_bytes
            rival = _Window(left_bytes=rival_bytes, packets=transport.initial_packets)
    return own.sent_bytes, ended_bytes + rival.sent_bytes


@dataclass(frozen=True, kw_only=True)
class Connections:
    """Weights of messages that share a link, by how long their connections last."""

    transport: Transport
    """Rule of the windows."""
    rate_bytes_per_s: float
    """Rate of the links."""
    round_trip_s: float
    """Round trip without a queue."""

    def __post_init__(self) -> None:
        check_positive(self, "rate_bytes_per_s")
        check_range(self, "round_trip_s")

    def weight(self, message_bytes: float) -> float:
        """Return the weight of a message, less the longer it is; 1 if it fits the first window.

        Notes
        -----
        It is the `share` beside messages of one window, which are for ever young. Two weights over each other
        tell how two messages share a link: within a quarter of `share` between the two where the younger
        fills four windows, within a factor of two beyond.
        """
        return _weight(self, message_bytes)


@cache
def _weight(connections: Connections, message_bytes: float) -> float:
    newest_bytes = connections.transport.initial_bytes
    if message_bytes <= newest_bytes:
        return 1.0
    return share(
        connections.transport,
        message_bytes,
        newest_bytes,
        rate_bytes_per_s=connections.rate_bytes_per_s,
        round_trip_s=connections.round_trip_s,
    )


_TOLERANCE = 1e-12
"""Relative slack within which two shares are the same number, dimensionless."""


def max_min_rates(
    flow: np.ndarray, link: np.ndarray, capacity: np.ndarray, *, flows: int, usage: np.ndarray | None = None
) -> np.ndarray:
    """Return the max-min fair rate of each flow.

    Parameters
    ----------
    flow, link : numpy.ndarray
        Incidence as pairs: flow[i] crosses link[i]; shape [I] each.
    capacity : numpy.ndarray
        Capacity of each link, shape [L], any one unit of rate.
    flows : int
        Number of flows; those without a pair get an infinite rate.
    usage : numpy.ndarray, optional
        How often flow[i] loads link[i], shape [I] (a bundle of identical flows); one by default.

    Returns
    -------
    numpy.ndarray
        Rates, shape [flows].

    Raises
    ------
    RouteError
        If a flow crosses a link without capacity.
    """
    weight = np.ones(flow.size) if usage is None else np.asarray(usage, dtype=float)
    if np.any(capacity[link] <= 0.0):
        bad = int(np.flatnonzero(capacity[link] <= 0.0)[0])
        msg = f"flow {int(flow[bad])} crosses link {int(link[bad])}, which has no capacity"
        raise RouteError(msg)
    rates = np.full(flows, np.inf)
    remaining = capacity.astype(float).copy()
    active_flow, active_link, active_weight = flow, link, weight
    while active_flow.size:
        load = np.bincount(active_link, weights=active_weight, minlength=capacity.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0.0, np.maximum(remaining, 0.0) / load, np.inf)
        fair = np.full(flows, np.inf)
        np.minimum.at(fair, active_flow, share[active_link])
        # A link freezes when none of its flows is held back further elsewhere.
        slowest = np.full(capacity.size, np.inf)
        np.minimum.at(slowest, active_link, fair[active_flow])
        frozen_link = (load > 0.0) & (share <= slowest * (1.0 + _TOLERANCE))
        stops = np.zeros(flows, dtype=bool)
        stops[active_flow[frozen_link[active_link]]] = True
        rates[stops] = fair[stops]
        done = stops[active_flow]
        used = active_weight[done] * rates[active_flow[done]]
        remaining -= np.bincount(active_link[done], weights=used, minlength=capacity.size)
        active_flow, active_link = active_flow[~done], active_link[~done]
        active_weight = active_weight[~done]
    return rates


def fill(
    routes: np.ndarray, usage: np.ndarray | None, capacity: np.ndarray, start: float | np.ndarray = 0.0
) -> np.ndarray:
    """Return max-min fair rates of flows whose routes stand in a padded array.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [H, F]; a short route repeats one of its own links with a usage of 0.
    usage : numpy.ndarray or None
        Load that a unit of rate of the flow puts on each, shape [H, F]; None: 1 on each of [H, F] links.
    capacity : numpy.ndarray
        Capacity of each link, shape [L]; positive where a flow passes.
    start : float or numpy.ndarray
        Rate that other flows have taken of each link, shape [L] or 0.

    Returns
    -------
    numpy.ndarray
        Rates, shape [F].

    Notes
    -----
    The same rule as `max_min_rates`, in fewer passes over memory: this is the inner loop of a simulation that
    shares anew at every event. Dividing by the load of an idle link gives infinity or nothing; no flow reads
    it, so callers silence that warning once, around their own loop.
    """
    links, (hops, flows) = capacity.size, routes.shape
    rates = np.empty(flows)
    left = capacity - start
    table = np.vstack((routes, np.arange(flows)))  # the last row numbers the flows
    tight = np.empty(links, dtype=bool)
    load = np.bincount(routes.ravel(), None if usage is None else usage.ravel(), links)
    while True:
        routes = table[:hops]
        share = (left / load).take(routes)
        fair = np.minimum.reduce(share)
        tight.fill(True)
        tight[routes[share > fair * (1.0 + _TOLERANCE)]] = False
        stops = np.logical_or.reduce(tight.take(routes))
        going = (~stops).nonzero()[0]
        if not going.size:
            rates[table[hops]] = fair
            return rates
        stopped = stops.nonzero()[0]
        frozen = fair.take(stopped)
        gone = table.take(stopped, 1)
        rates[gone[hops]] = frozen
        used = np.empty((hops, stopped.size))
        np.copyto(used, frozen) if usage is None else np.multiply(usage.take(stopped, 1), frozen, used)
        left -= np.bincount(gone[:hops].ravel(), used.ravel(), links)
        table = table.take(going, 1)
        usage = None if usage is None else usage.take(going, 1)
        load = np.bincount(table[:hops].ravel(), None if usage is None else usage.ravel(), links)

"""Energies, bytes and algorithms of a step, added up from its charges in the order in which they fell due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.engine.compiled.programs import Charge

COMPUTE, NETWORK, BYTES, HOST, CHOSEN = range(5)
"""Kinds of accounts: energy of compute and of transfers, bytes on the wire and of hosts, algorithms."""
Account = tuple[int, str]
"""Kind and name of an account."""


class Ledger:
    """Entries of charges in accounts.

    Parameters
    ----------
    entries : sequence
        Of each charge, accounts with what is added to them.
    """

    def __init__(self, entries: Sequence[Sequence[tuple[Account, float]]]) -> None:
        self.accounts: list[Account] = list(dict.fromkeys(name for one in entries for name, _ in one))
        numbers = {name: number for number, name in enumerate(self.accounts)}
        self._size = np.array([len(one) for one in entries], dtype=np.int64)
        self._first = np.cumsum(self._size) - self._size
        self._account = np.array([numbers[name] for one in entries for name, _ in one], dtype=np.int64)
        self._value = np.array([value for one in entries for _, value in one], dtype=float)

    def _posted(self, log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return accounts and values of all entries of a log of charges, in order."""
        size = self._size[log]
        begin = np.cumsum(size) - size
        entry = np.arange(int(size.sum())) + np.repeat(self._first[log] - begin, size)
        return self._account[entry], self._value[entry]

    def sums(self, log: np.ndarray) -> dict[Account, float]:
        """Return each account's sum, added up one by one in the order of a log, shape [charges due].

        Accounts stand in the order in which they were first charged.
        """
        account, value = self._posted(log)
        used, first = np.unique(account, return_index=True)
        return {
            self.accounts[number]: float(np.cumsum(value[account == number])[-1])
            for number in used[np.argsort(first)].tolist()
        }

    def last(self, log: np.ndarray) -> dict[Account, float]:
        """Return what was last posted in each account."""
        account, value = self._posted(log)
        used, place = np.unique(account[::-1], return_index=True)
        return {
            self.accounts[number]: float(value[::-1][one])
            for number, one in zip(used.tolist(), place.tolist(), strict=True)
        }


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Everything that a step's charges add up to."""

    compute_energy_j: dict[str, float]
    """Dynamic energy of compute by component, all ranks."""
    network_energy_j: float
    """Dynamic energy of transfers, all ranks."""
    network_bytes: dict[str, float]
    """Bytes on the wire by axis, all ranks."""
    host_bytes: dict[str, float]
    """Bytes by lane, all ranks."""
    algorithms: dict[str, str]
    """Algorithm by collective and axis."""


class Charges:
    """Charges of a step's programs.

    Parameters
    ----------
    charges : iterable of Charge
        In the order of their numbers.
    """

    def __init__(self, charges: Iterable[Charge]) -> None:
        self._charges = tuple(charges)

    @cached_property
    def _amounts(self) -> Ledger:
        return Ledger([_amounts(one) for one in self._charges])

    def tally(self, log: np.ndarray) -> Tally:
        """Return what a log of charges, shape [charges due], adds up to."""
        sums = self._amounts.sums(log)
        every = list(dict.fromkeys(plan.algorithm for one in self._charges for _, plan, _ in one.carried))
        chosen = Ledger(
            [
                [
                    ((CHOSEN, f"{operator.axis} {operator.kind}"), every.index(plan.algorithm))
                    for operator, plan, _ in one.carried
                    if plan.parts
                ]
                for one in self._charges
            ]
        ).last(log)
        of: list[dict[str, float]] = [{}, {}, {}, {}]
        for (kind, name), value in sums.items():
            of[kind][name] = value
        return Tally(
            compute_energy_j=of[COMPUTE],
            network_energy_j=of[NETWORK].get("", 0.0),
            network_bytes=of[BYTES],
            host_bytes=of[HOST],
            algorithms={name: every[int(value)] for (_, name), value in sorted(chosen.items())},
        )


def _amounts(charge: Charge) -> list[tuple[Account, float]]:
    """Return the accounts of a charge with what is added to them."""
    found: list[tuple[Account, float]] = []
    found += [((COMPUTE, part), energy) for part, energy in charge.compute_j.items()]
    found += [((HOST, lane), moved) for lane, moved in charge.host_bytes.items()]
    for operator, plan, times in charge.carried:
        found.append(((BYTES, operator.axis), plan.wire_bytes * times))
        found.append(((NETWORK, ""), plan.energy_j * times))
    return found

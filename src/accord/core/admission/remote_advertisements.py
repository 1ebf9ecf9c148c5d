"""Advertisements of other nodes; those of a secondary node count once, by one of its parents.

Both parents of a secondary node tell what is advertised there, so that nothing is missed when one
of them fails. What counts is what the active one tells: of several who say they are, that of the
child's latest turn.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from accord.core.admission.admission import Admission
from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index.filters import Filter

# Which life and turn of a child a parent knows of, and whether it is the active one then.
ParentRank = tuple[int, int, bool]
_UNKNOWN: Final = (0, 0, False)
_APART: Final = "\0"  # no client and no node has that in its name


def publisher_of(child: str, client: str) -> str:
    """A client of a secondary node, as its parents tell of it."""
    return f"{child}{_APART}{client}"


class RemoteAdvertisements:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        # By child and parent: publisher and name of each.
        self._told: dict[str, dict[str, dict[tuple[str, str], tuple[Filter, float]]]] = {}
        self._ranks: dict[str, dict[str, ParentRank]] = {}
        self._counting: dict[str, str] = {}  # by whom they count

    def tell(self, node: str, publisher: str, name: str, filter_: Filter, rate_hz: float) -> None:
        """AdmissionError where that can't be."""
        child, is_apart, _ = publisher.rpartition(_APART)
        if not is_apart:
            self._admission.advertised_elsewhere(node, publisher, name, filter_, rate_hz)
            return
        told = self._told.setdefault(child, {}).setdefault(node, {})
        told[publisher, name] = (filter_, rate_hz)
        if self._counting.get(child) == node:
            self._admission.advertised_elsewhere(node, publisher, name, filter_, rate_hz)
        else:
            self._choose(child)

    def untell(self, node: str, publisher: str, name: str) -> None:
        child, is_apart, _ = publisher.rpartition(_APART)
        told = self._told.get(child, {}).get(node, {})
        told.pop((publisher, name), None)
        self._admission.unadvertised_elsewhere(node, publisher, name)
        if is_apart and not told:
            self._forget(child, node)

    def rank(self, node: str, child: str, rank: ParentRank | None) -> None:
        """As which of its parents `node` speaks for a child; None: not any more."""
        ranks = self._ranks.setdefault(child, {})
        if rank is None:
            ranks.pop(node, None)
        else:
            ranks[node] = rank
        if not ranks:
            del self._ranks[child]
        self._choose(child)

    def gone(self, node: str) -> None:
        """What it told does not hold any more."""
        self._admission.node_gone(node)
        for child in [child for child, told in self._told.items() if node in told]:
            self._forget(child, node)

    def check_invariants(self) -> None:
        assert self._told.keys() == self._counting.keys()
        for child, by_node in self._told.items():
            assert self._counting[child] == self._best(child)
            assert all(by_node.values())

    def _forget(self, child: str, node: str) -> None:
        by_node = self._told.get(child, {})
        by_node.pop(node, None)
        if self._counting.get(child) == node:
            del self._counting[child]
        if by_node:
            self._choose(child)
        else:
            self._told.pop(child, None)

    def _choose(self, child: str) -> None:
        best, before = self._best(child), self._counting.get(child)
        if best is None or best == before:
            return
        by_node = self._told[child]
        for publisher, name in by_node.get(before or "", ()):
            self._admission.unadvertised_elsewhere(before or "", publisher, name)
        self._counting[child] = best
        for (publisher, name), (filter_, rate_hz) in by_node[best].items():
            with suppress(AdmissionError):  # there is no room for all
                self._admission.advertised_elsewhere(best, publisher, name, filter_, rate_hz)

    def _best(self, child: str) -> str | None:
        ranks = self._ranks.get(child, {})
        told = self._told.get(child, {})
        return max(told, key=lambda node: (ranks.get(node, _UNKNOWN), node), default=None)

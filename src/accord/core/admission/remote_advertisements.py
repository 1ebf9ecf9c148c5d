"""Advertisements of remote nodes; those of a secondary node count once, through one parent.

Both parents of a secondary node announce its advertisements, so that nothing is missing when one
fails. Only those of the active parent count; if several claim to be active, those of the parent
with the child's latest parent epoch.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from accord.core.admission.admission import Admission
from accord.core.admission.filter_index.filters import Filter
from accord.core.model.errors import AdmissionError

# Incarnation and parent epoch of the child as the parent knows them; whether it is active in it.
ParentRank = tuple[int, int, bool]
_UNKNOWN: Final = (0, 0, False)
_SEPARATOR: Final = "\0"  # occurs in no name of a client or node


def publisher_of(child: str, client: str) -> str:
    """Return the name under which parents announce a client of a secondary node."""
    return f"{child}{_SEPARATOR}{client}"


class RemoteAdvertisements:
    """Chooses, per child, the parent whose announcements are passed on to `Admission`."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        # By child and parent, then by publisher and advertisement name.
        self._announced: dict[str, dict[str, dict[tuple[str, str], tuple[Filter, float]]]] = {}
        self._ranks: dict[str, dict[str, ParentRank]] = {}
        self._chosen: dict[str, str] = {}  # the chosen parent, by child

    def add(self, node: str, publisher: str, name: str, filter_: Filter, rate_hz: float) -> None:
        """Add an advertisement; raises AdmissionError if it is not acceptable."""
        child, is_apart, _ = publisher.rpartition(_SEPARATOR)
        if not is_apart:
            self._admission.advertise_remote(node, publisher, name, filter_, rate_hz)
            return
        announced = self._announced.setdefault(child, {}).setdefault(node, {})
        announced[publisher, name] = (filter_, rate_hz)
        if self._chosen.get(child) == node:
            self._admission.advertise_remote(node, publisher, name, filter_, rate_hz)
        else:
            self._choose(child)

    def remove(self, node: str, publisher: str, name: str) -> None:
        child, is_apart, _ = publisher.rpartition(_SEPARATOR)
        announced = self._announced.get(child, {}).get(node, {})
        announced.pop((publisher, name), None)
        self._admission.unadvertise_remote(node, publisher, name)
        if is_apart and not announced:
            self._remove_parent(child, node)

    def set_rank(self, node: str, child: str, rank: ParentRank | None) -> None:
        """Set the rank of `node` as parent of a child; None: it no longer is one."""
        ranks = self._ranks.setdefault(child, {})
        if rank is None:
            ranks.pop(node, None)
        else:
            ranks[node] = rank
        if not ranks:
            del self._ranks[child]
        self._choose(child)

    def on_node_gone(self, node: str) -> None:
        """Remove all announcements of `node`."""
        self._admission.on_node_gone(node)
        for child in [child for child, announced in self._announced.items() if node in announced]:
            self._remove_parent(child, node)

    def check_invariants(self) -> None:
        assert self._announced.keys() == self._chosen.keys()
        for child, by_node in self._announced.items():
            assert self._chosen[child] == self._best(child)
            assert all(by_node.values())

    def _remove_parent(self, child: str, node: str) -> None:
        by_node = self._announced.get(child, {})
        by_node.pop(node, None)
        if self._chosen.get(child) == node:
            del self._chosen[child]
        if by_node:
            self._choose(child)
        else:
            self._announced.pop(child, None)

    def _choose(self, child: str) -> None:
        best, before = self._best(child), self._chosen.get(child)
        if best is None or best == before:
            return
        by_node = self._announced[child]
        for publisher, name in by_node.get(before or "", ()):
            self._admission.unadvertise_remote(before or "", publisher, name)
        self._chosen[child] = best
        for (publisher, name), (filter_, rate_hz) in by_node[best].items():
            with suppress(AdmissionError):  # the poset is full
                self._admission.advertise_remote(best, publisher, name, filter_, rate_hz)

    def _best(self, child: str) -> str | None:
        ranks = self._ranks.get(child, {})
        announced = self._announced.get(child, {})
        return max(announced, key=lambda node: (ranks.get(node, _UNKNOWN), node), default=None)

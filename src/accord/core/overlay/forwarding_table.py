"""Forwarding table: entries of the routes that pass or end at this node (soft state, as in RSVP).

An entry opens for events when the reply `Established` passes on its way back to the source, so that
the rest of the path is in place. It stays unchanged until its source tears it down, the link to the
next hop goes down, or refreshes stop. Each route is one simple path, and events are accepted only
from the previous hop on it: whichever signals are lost or late, no event can loop. Early events,
whose flow has no established route, may follow the `Establish` signal: they get as far as it does.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.budgets import Budgets, equal_shares
from accord.core.overlay.signalling import (
    Acknowledge,
    Establish,
    Established,
    NotEstablished,
    TearDown,
)

MAX_HOPS: Final = 64
MAX_ENTRIES: Final = 100_000
MAX_ENTRIES_PER_SOURCE: Final = 20_000

Key = tuple[str, int]  # a source and its route number
Signal = Establish | Established | NotEstablished | TearDown | Acknowledge
Sent = tuple[str, Signal]  # neighbour and signal


class ForwardingEntry:
    """State of a route at one node of its path.

    `previous_hop` is the previous hop and `next_hop` the next, empty at the destination. Until
    `is_open`, the entry accepts refreshes and early events only.
    """

    __slots__ = ("expires_us", "is_open", "next_hop", "previous_hop", "signal")

    def __init__(
        self, previous_hop: str, next_hop: str, signal: Establish, expires_us: int
    ) -> None:
        self.previous_hop = previous_hop
        self.next_hop = next_hop
        self.signal = signal
        self.expires_us = expires_us
        self.is_open = False


class ForwardingTable:
    """All forwarding entries of a node; `sends` collects signals for neighbours."""

    def __init__(self, name: str, budgets: Budgets, *, refresh_timeout_us: int) -> None:
        self.name = name
        self.budgets = budgets  # of all routes at this node, including those that start here
        self.refresh_timeout_us = refresh_timeout_us  # lifetime of an entry without refresh
        self.entries: dict[Key, ForwardingEntry] = {}
        self.sends: list[Sent] = []
        self.refused = 0
        self._counts: dict[str, int] = {}  # by source
        self._neighbours: dict[str, bool] = {}
        self._sweep_us = 0

    def link_up(self, neighbour: str) -> None:
        self._neighbours[neighbour] = True

    def link_down(self, neighbour: str) -> None:
        """Remove the routes over this link and notify their sources at once."""
        self._neighbours.pop(neighbour, None)
        for key, passage in list(self.entries.items()):
            if passage.next_hop == neighbour:
                self._fail_entry(key, passage, f"the link to {neighbour} is down")

    def on_establish(self, neighbour: str, signal: Establish, now_us: int) -> None:
        """Handle the set-up or refresh of a route, received from `neighbour`."""
        key = (signal.source, signal.route)
        if problem := self._path_problem(neighbour, signal):
            self.refused += 1
            self._refuse(neighbour, signal, problem)
            return
        after = self._next_hop(signal)
        if after and after not in self._neighbours:
            self._refuse(neighbour, signal, f"no link to {after}")
            return
        passage = self.entries.get(key)
        if passage is None:
            if problem := self._capacity_problem(signal.source):
                self.refused += 1
                self._refuse(neighbour, signal, problem)
                return
            passage = ForwardingEntry(neighbour, after, signal, now_us + self.refresh_timeout_us)
            self.entries[key] = passage
            self._counts[signal.source] = self._counts.get(signal.source, 0) + 1
        elif (passage.previous_hop, passage.next_hop) != (neighbour, after):
            self._refuse(neighbour, signal, "route number already in use")
            return
        passage.expires_us = now_us + self.refresh_timeout_us
        passage.signal = signal
        if share_us := share_of(signal, self.name):
            self.budgets.set(key, share_us)
        if after:
            self.sends.append((after, signal))
        else:
            passage.is_open = True
            self.sends.append((neighbour, Established(signal.source, signal.route)))

    def on_established(self, neighbour: str, signal: Established) -> None:
        key = (signal.source, signal.route)
        passage = self.entries.get(key)
        if passage is not None and passage.next_hop == neighbour:
            passage.is_open = True
            self.sends.append((passage.previous_hop, signal))

    def on_not_established(self, neighbour: str, signal: NotEstablished) -> None:
        key = (signal.source, signal.route)
        passage = self.entries.get(key)
        if passage is not None and passage.next_hop == neighbour:
            self._remove(key)
            self.sends.append((passage.previous_hop, signal))

    def on_tear_down(self, neighbour: str, signal: TearDown) -> None:
        key = (signal.source, signal.route)
        passage = self.entries.get(key)
        if passage is not None and passage.previous_hop == neighbour:
            self._remove(key)
            if passage.next_hop in self._neighbours:
                self.sends.append((passage.next_hop, signal))

    def on_acknowledge(self, neighbour: str, signal: Acknowledge) -> None:
        """Pass an acknowledgement back towards the source."""
        passage = self.entries.get((signal.source, signal.route))
        if passage is not None and passage.next_hop == neighbour:
            self.sends.append((passage.previous_hop, signal))

    def find_entry(
        self, neighbour: str, source: str, route: int, *, is_early: bool = False
    ) -> ForwardingEntry | None:
        """The entry for an event from `neighbour`; None if it is not open or not from there.

        Early events do not need an open entry.
        """
        found = self.entries.get((source, route))
        if found is None or not (found.is_open or is_early) or found.previous_hop != neighbour:
            return None
        return found

    def report_unknown_route(self, neighbour: str, source: str, route: int) -> None:
        """Notify the source that an event arrived for an unknown route."""
        signal = NotEstablished(source, route, self.name, "unknown route")
        self.sends.append((neighbour, signal))

    def advance(self, now_us: int) -> None:
        """Expire entries that are no longer refreshed."""
        if now_us < self._sweep_us:
            return
        self._sweep_us = now_us + self.refresh_timeout_us // 4
        for key, passage in list(self.entries.items()):
            if passage.expires_us <= now_us:
                self._remove(key)

    def next_due_us(self) -> int | None:
        return self._sweep_us if self.entries else None

    def check_invariants(self) -> None:
        assert sum(self._counts.values()) == len(self.entries) <= MAX_ENTRIES
        for (source, route), passage in self.entries.items():
            path = passage.signal.path
            place = path.index(self.name)
            assert (path[0], passage.signal.route) == (source, route)
            assert passage.previous_hop == path[place - 1]
            assert passage.next_hop == (path[place + 1] if place + 1 < len(path) else "")
            assert place > 0

    def _path_problem(self, neighbour: str, signal: Establish) -> str:
        path = signal.path
        if not 2 <= len(path) <= MAX_HOPS or len(set(path)) != len(path):
            return f"expected a path of 2 to {MAX_HOPS} different nodes"
        if path[0] != signal.source or len(signal.delays_us) not in (0, len(path) - 1):
            return "expected a path that begins at its source, and a delay of each link"
        if self.name not in path[1:] or path[path.index(self.name) - 1] != neighbour:
            return f"{neighbour} and {self.name} do not follow each other on the path"
        return ""

    def _capacity_problem(self, source: str) -> str:
        if (
            len(self.entries) >= MAX_ENTRIES
            or self._counts.get(source, 0) >= MAX_ENTRIES_PER_SOURCE
        ):
            return "too many routes"
        return ""

    def _next_hop(self, signal: Establish) -> str:
        place = signal.path.index(self.name) + 1
        return signal.path[place] if place < len(signal.path) else ""

    def _refuse(self, neighbour: str, signal: Establish, reason: str) -> None:
        refusal = NotEstablished(signal.source, signal.route, self.name, reason)
        self.sends.append((neighbour, refusal))

    def _fail_entry(self, key: Key, passage: ForwardingEntry, reason: str) -> None:
        self._remove(key)
        self.sends.append((passage.previous_hop, NotEstablished(*key, self.name, reason)))

    def _remove(self, key: Key) -> None:
        del self.entries[key]
        self.budgets.drop(key)
        self._counts[key[0]] -= 1
        if not self._counts[key[0]]:
            del self._counts[key[0]]


def share_of(signal: Establish, node: str) -> int:
    """`node`'s share of a route's delay margin; 0 at the destination or without maximum delay."""
    place, hops = signal.path.index(node), len(signal.path) - 1
    if not signal.max_delay_us or place == hops:
        return 0
    margin_us = signal.max_delay_us - sum(signal.delays_us)
    return equal_shares(margin_us, hops)[place]

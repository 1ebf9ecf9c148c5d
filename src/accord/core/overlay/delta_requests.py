"""Pull side of state replication: requests for origins that neighbours offer in newer versions.

Each origin is requested from one neighbour, a few at a time. So a node that joins or returns gets
everything once, and no faster than it can process, however many neighbours have it. A request that
times out is retried, perhaps at another neighbour.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.state_messages import OriginVersion, StateOptions

_TRIES: Final = 4


class _Offer:
    __slots__ = ("stamp", "tries")

    def __init__(self, stamp: OriginVersion) -> None:
        self.stamp = stamp
        self.tries = 0


class _Asked:
    __slots__ = ("again_us", "neighbour")

    def __init__(self, neighbour: str, again_us: int) -> None:
        self.neighbour = neighbour
        self.again_us = again_us


class DeltaRequests:
    """Offers of neighbours, and outstanding requests."""

    def __init__(self, options: StateOptions) -> None:
        self._is_due = False  # there may be something to request
        self._options = options
        self._offers: dict[str, dict[str, _Offer]] = {}  # by neighbour and origin
        self._asked: dict[str, _Asked] = {}  # by origin

    def link_up(self, neighbour: str) -> None:
        self.link_down(neighbour)
        self._offers[neighbour] = {}

    def link_down(self, neighbour: str) -> None:
        """Drop the neighbour's offers; outstanding requests move to others."""
        self._offers.pop(neighbour, None)
        for origin, asked in list(self._asked.items()):
            if asked.neighbour == neighbour:
                del self._asked[origin]
                self._is_due = True

    def offer(self, neighbour: str, origin: str, stamp: OriginVersion) -> None:
        """A neighbour has `origin` up to `stamp`, which is newer than here."""
        offers = self._offers[neighbour]
        known = offers.get(origin)
        if known is None:
            if len(offers) >= self._options.origins_limit:
                return
        elif known.stamp >= stamp:
            return
        offers[origin] = _Offer(stamp)
        self._is_due = True

    def came(self, origin: str, stamp: OriginVersion) -> None:
        """`origin` has advanced to `stamp` here."""
        for offers in self._offers.values():
            offer = offers.get(origin)
            if offer is None:
                continue
            if offer.stamp <= stamp:
                del offers[origin]
            else:
                offer.tries = 0  # requests make progress
        if self._asked.pop(origin, None) is not None:
            self._is_due = True

    def forget(self, origin: str) -> None:
        """Drop all offers and requests for `origin`."""
        for offers in self._offers.values():
            offers.pop(origin, None)
        self._asked.pop(origin, None)

    def take(self, now_us: int) -> list[tuple[str, str]]:
        """Requests to send now, as (neighbour, origin)."""
        if self._asked:
            self._give_up(now_us)
        if not self._is_due:
            return []
        self._is_due = False
        open_: dict[str, int] = {}
        for asked in self._asked.values():
            open_[asked.neighbour] = open_.get(asked.neighbour, 0) + 1
        taken: list[tuple[str, str]] = []
        for neighbour, offers in self._offers.items():
            free = self._options.asked_limit - open_.get(neighbour, 0)
            for origin, offer in offers.items():
                if free <= 0:
                    break
                if origin not in self._asked:
                    again_us = now_us + (self._options.ask_us << offer.tries)
                    offer.tries += 1
                    self._asked[origin] = _Asked(neighbour, again_us)
                    taken.append((neighbour, origin))
                    free -= 1
        return taken

    def next_due_us(self, now_us: int) -> int | None:
        """Now, or when the next request times out."""
        if self._is_due:
            return now_us
        if not self._asked:
            return None
        return min(asked.again_us for asked in self._asked.values())

    def check_invariants(self) -> None:
        for neighbour, offers in self._offers.items():
            assert len(offers) <= self._options.origins_limit
            assert all(
                0 <= offer.tries < _TRIES or origin in self._asked
                for origin, offer in offers.items()
            )
            count = sum(asked.neighbour == neighbour for asked in self._asked.values())
            assert count <= self._options.asked_limit
        assert all(asked.neighbour in self._offers for asked in self._asked.values())

    def _give_up(self, now_us: int) -> None:
        for origin, asked in list(self._asked.items()):
            if asked.again_us > now_us:
                continue
            del self._asked[origin]
            self._is_due = True
            offers = self._offers[asked.neighbour]
            offer = offers.pop(origin, None)
            # Moved to the end, up to a number of tries: the neighbour may no longer have it.
            if offer is not None and offer.tries < _TRIES:
                offers[origin] = offer

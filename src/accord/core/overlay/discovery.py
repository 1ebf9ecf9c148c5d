"""Peer selection: which nodes to link with, where that is left to the node itself.

Nodes publish their listening addresses as state records; nodes on the same LAN are also seen by
their beacons. From these a node chooses peers to dial until it has `max_links`: first nodes on its
LAN, then the nearest by the map. Each node breaks ties differently; otherwise all would choose the
same peer.

An unreachable node is dialled first, one at a time and even beyond `max_links`, so that partitions
heal. For the same reason a link is closed only if its other end is reachable without it, and only
if it was opened by this node: when there are too many, or to make room for a much nearer node, and
rarely. A node that does not reply, or has another name than expected, is dialled again after a
backoff.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from zlib import crc32

import msgspec

from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.shortest_path_tree import delay_us_of

ADDRESS: Final = "address"  # kind of the state records with listening addresses
MAX_ADDRESSES: Final = 8
ADDRESS_CHARACTERS: Final = 300
_MAX_KNOWN: Final = 10_000
_AT_ONCE: Final = 2  # new peers per `advance`
_MAX_DOUBLINGS: Final = 7  # doublings of the backoff
_NEARER_FACTOR: Final = 2  # a peer must be this many times nearer to replace a link

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class DiscoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timers; other nodes may open links beyond `max_links`."""

    max_links: int = 4
    backoff_us: int = 15_000_000  # initial backoff after a failed dial
    close_interval_us: int = 60_000_000  # minimum time between closing two links
    beacon_us: int = 10_000_000  # lifetime of a beacon


class StartDialling(msgspec.Struct, frozen=True):
    """Order to keep a link with `node`, which listens at `address`."""

    node: str
    address: str


class StopDialling(msgspec.Struct, frozen=True):
    """Order to stop dialling `node`, and to close a link opened for that."""

    node: str
    address: str


class _Known:
    __slots__ = ("addresses", "beacon", "beacon_us", "failures", "retry_us")

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.beacon: tuple[str, ...] = ()
        self.beacon_us = -1
        self.failures = 0
        self.retry_us = 0


class Discovery:
    """Peer selection of one node; returns orders to its driver."""

    def __init__(self, name: str, overlay_map: LinkStateMap, options: DiscoveryOptions) -> None:
        self.name = name
        self.options = options
        self.dialled: dict[str, str] = {}  # ordered addresses, by node
        self._map = overlay_map
        self._known: dict[str, _Known] = {}
        self._closed_us = 0

    def on_change(self, origin: str, _key: str, value: bytes | None) -> None:
        """Watcher for address records; to be passed to the state store's `watch`."""
        if origin == self.name:
            return
        known = self._find(origin)
        if known is not None:
            known.addresses = () if value is None else _decode_addresses(value)

    def on_beacon(self, node: str, addresses: tuple[str, ...], now_us: int) -> None:
        """A beacon of `node` arrived: it is on the same LAN."""
        known = None if node == self.name else self._find(node)
        if known is not None and _are_addresses(addresses):
            known.beacon = addresses
            known.beacon_us = now_us

    def on_dial_failed(self, node: str, now_us: int) -> list[StopDialling]:
        """Dialling `node` failed, or another node replied: back off."""
        address = self.dialled.pop(node, None)
        if address is None:
            return []
        known = self._known.get(node)
        if known is not None:
            rest_us = self.options.backoff_us << min(known.failures, _MAX_DOUBLINGS)
            known.failures += 1
            known.retry_us = now_us + rest_us
        return [StopDialling(node, address)]

    def advance(self, now_us: int, linked: Collection[str]) -> list[StartDialling | StopDialling]:
        """Orders to start or stop dialling; `linked` are all neighbours, dialled by either end."""
        for node in linked:
            if node in self.dialled and node in self._known:
                self._known[node].failures = 0
        self._expire(now_us)
        orders: list[StartDialling | StopDialling] = []
        if now_us >= self._closed_us + self.options.close_interval_us:
            orders += self._close_link(now_us, linked)
        return orders + self._choose(now_us, linked)

    def check_invariants(self) -> None:
        assert len(self._known) <= _MAX_KNOWN
        assert self.name not in self._known
        assert self.name not in self.dialled
        assert all(self.dialled.values())

    def _choose(self, now_us: int, linked: Collection[str]) -> list[StartDialling | StopDialling]:
        reachable = self._map.distances(self.name).costs
        pending = [node for node in self.dialled if node not in linked]
        found = [
            (
                node in reachable,
                not known.beacon,
                reachable.get(node, 0),
                self._tie_break(node),
                node,
            )
            for node, known in self._known.items()
            if node not in linked
            and node not in self.dialled
            and now_us >= known.retry_us
            and (known.addresses or known.beacon)
        ]
        free = min(self.options.max_links - len(linked) - len(pending), _AT_ONCE)
        if not any(node not in reachable for node in pending):
            free = max(free, int(any(not is_reachable for is_reachable, *_ in found)))
        return [self._dial(node) for *_, node in sorted(found)[: max(free, 0)]]

    def _dial(self, node: str) -> StartDialling:
        known = self._known[node]
        places = known.beacon or known.addresses
        address = self.dialled[node] = places[known.failures % len(places)]
        return StartDialling(node, address)

    def _close_link(
        self, now_us: int, linked: Collection[str]
    ) -> list[StartDialling | StopDialling]:
        """Close one link if there are too many, or if another node is much nearer."""
        own = [
            (self._map.latency_us(self.name, node) or 0, node)
            for node in self.dialled
            if node in linked and self._is_redundant(node)
        ]
        if not own:
            return []
        farthest_us, node = max(own)
        if len(linked) == self.options.max_links:
            nearest_us = self._nearest_us(now_us, linked)
            if nearest_us is None or nearest_us * _NEARER_FACTOR >= farthest_us:
                return []
        elif len(linked) < self.options.max_links:
            return []
        self._closed_us = now_us
        address = self.dialled.pop(node)
        self._known[node].retry_us = now_us + 10 * self.options.close_interval_us
        return [StopDialling(node, address)]

    def _nearest_us(self, now_us: int, linked: Collection[str]) -> int | None:
        """Distance of the nearest candidate: an upper bound for a direct link to it."""
        costs = self._map.distances(self.name).costs
        return min(
            (
                delay_us_of(costs[node])
                for node, known in self._known.items()
                if node in costs
                and node not in linked
                and node not in self.dialled
                and known.retry_us <= now_us
                and (known.addresses or known.beacon)
            ),
            default=None,
        )

    def _is_redundant(self, node: str) -> bool:
        """Whether `node` is reachable without the link to it."""
        if node not in self._known:
            return False
        waiting = [each for each in self._map.neighbours(self.name) if each != node]
        found = dict.fromkeys([self.name, *waiting])
        while waiting:
            for each in self._map.neighbours(waiting.pop()):
                if each == node:
                    return True
                if each not in found:
                    found[each] = None
                    waiting.append(each)
        return False

    def _tie_break(self, node: str) -> int:
        """Pseudo-random tie-break that differs at each node."""
        return crc32(f"{self.name}\0{node}".encode())

    def _find(self, node: str) -> _Known | None:
        known = self._known.get(node)
        if known is None and len(self._known) < _MAX_KNOWN:
            known = self._known[node] = _Known()
        return known

    def _expire(self, now_us: int) -> None:
        for node, known in list(self._known.items()):
            if known.beacon and now_us > known.beacon_us + self.options.beacon_us:
                known.beacon = ()
            is_empty = not (known.addresses or known.beacon)
            if is_empty and now_us >= known.retry_us:
                del self._known[node]


def encode_addresses(addresses: tuple[str, ...]) -> bytes:
    return _encode(addresses[:MAX_ADDRESSES])


def _decode_addresses(value: bytes) -> tuple[str, ...]:
    """Empty if malformed."""
    try:
        found = _decode(value)
    except (ValueError, RecursionError, OverflowError):
        return ()
    return found if _are_addresses(found) else ()


def _are_addresses(addresses: tuple[str, ...]) -> bool:
    return len(addresses) <= MAX_ADDRESSES and all(
        0 < len(each) <= ADDRESS_CHARACTERS for each in addresses
    )

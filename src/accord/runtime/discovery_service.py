"""Neighbour discovery: announces this node's addresses and dials the neighbours selected.

The selection is made in `core/overlay/discovery`. The link's handshake verifies the node at an
address; one with another name or another shared key is abandoned.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from accord.core.overlay.discovery import (
    ADDRESS,
    Discovery,
    DiscoveryOptions,
    StartDialling,
    StopDialling,
)
from accord.core.overlay.discovery import encode_addresses as encode
from accord.core.overlay.overlay import Overlay
from accord.runtime.addresses import SocketAddress, parse_link_address
from accord.runtime.connection_writer import clock_us
from accord.runtime.link_manager import LinkManager
from accord.runtime.logs import get_log

log = get_log(__name__)

_REFRESH_S: Final = 1.0
_MAX_FAILED_CHECKS: Final = (
    5  # consecutive checks with a problem and no link, until a node is abandoned
)


class DiscoveryService:
    """`listen` are this node's addresses; `announce` replaces them if others reach it elsewhere."""

    def __init__(
        self,
        overlay: Overlay,
        neighbours: LinkManager,
        options: DiscoveryOptions,
        *,
        listen: Sequence[SocketAddress],
        announce: Sequence[SocketAddress] = (),
    ) -> None:
        self.discovery = Discovery(overlay.name, overlay.map, options)
        self._overlay = overlay
        self._neighbours = neighbours
        self._listen = tuple(announce or listen)
        self._is_loopback = all(each.is_loopback for each in self._listen)
        self._own: dict[str, SocketAddress] = {}  # addresses dialled for discovery, by their text
        self._problems: dict[str, int] = {}  # consecutive failed checks, by node
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        for origin, key, value in self._overlay.store.all(ADDRESS):
            self.discovery.on_change(origin, key, value)
        self._overlay.store.watch(ADDRESS, self.discovery.on_change)
        group = self._neighbours.group
        if group is not None:
            group.addresses = lambda: tuple(map(str, self._listen))
            group.on_beacon = self._on_beacon
        self._refresh()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _refresh(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_REFRESH_S, self._refresh)
        self._announce()
        now_us = clock_us()
        for node, address in list(self.discovery.dialled.items()):
            if self._has_failed(node, address):
                self._execute(self.discovery.on_dial_failed(node, now_us), now_us)
        self._execute(self.discovery.advance(now_us, list(self._neighbours.links)), now_us)

    def _announce(self) -> None:
        """Announce this node's addresses to all nodes."""
        addresses = tuple(str(each) for each in map(self._reachable, self._listen) if each)
        if addresses:
            self._overlay.store.put(ADDRESS, "", encode(addresses))
            self._neighbours.due()

    def _reachable(self, address: SocketAddress) -> SocketAddress | None:
        """The reachable address of a wildcard listener: the local address of a link."""
        if not _is_any(address.host):
            return address
        for link in self._neighbours.links.values():
            if link.local_host:
                return replace(address, host=link.local_host)
        return None

    def _on_beacon(self, node: str, addresses: tuple[str, ...], host: str) -> None:
        """On a beacon: a wildcard address means the host the beacon came from."""
        known = [each for each in map(parse_link_address, addresses) if each is not None]
        found = [replace(each, host=host) if _is_any(each.host) else each for each in known]
        self.discovery.on_beacon(node, tuple(map(str, found)), clock_us())

    def _has_failed(self, node: str, text: str) -> bool:
        address = self._own.get(text)
        status = None if address is None else self._neighbours.dial_status(address)
        before = self._problems.pop(node, 0)
        if node in self._neighbours.links:
            return False
        if status is None:
            return True
        if status.problem and before + 1 < _MAX_FAILED_CHECKS:
            self._problems[node] = before + 1
        return bool(status.problem) and before + 1 >= _MAX_FAILED_CHECKS

    def _execute(self, orders: Sequence[StartDialling | StopDialling], now_us: int) -> None:
        for order in orders:
            if isinstance(order, StopDialling):
                address = self._own.pop(order.address, None)
                if address is not None:
                    self._neighbours.undial(address)
                continue
            address = parse_link_address(order.address)
            if address is None or not self._may_dial(address):
                self._execute(self.discovery.on_dial_failed(order.node, now_us), now_us)
                continue
            log.info("neighbour: discovered", node=order.node, address=order.address)
            self._own[order.address] = address
            self._neighbours.dial(address, order.node)

    def _may_dial(self, address: SocketAddress) -> bool:
        """False if already dialled, or if a loopback address comes from another machine."""
        is_meant = self._is_loopback or not address.is_loopback
        return is_meant and self._neighbours.dial_status(address) is None


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False

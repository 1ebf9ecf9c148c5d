"""Manages the links of a node: accepts and dials neighbours, and connects links to the overlay.

All links are served once per turn of the event loop, after all readable sockets have been read, so
the overlay's resulting messages leave together. A single timer wakes the node for the next deadline
of the overlay or of any link.

Recently refused neighbours are logged once, and listed while they keep trying.
"""

from __future__ import annotations

import asyncio
import errno
import random as system_random
import secrets
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from accord.core.links.codec import LinkCodec
from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import LinkPeer, LocalIdentity, RemoteEndpoint
from accord.core.links.messages import DATAGRAM_PORT, GROUP, NONCE_BYTES, SECONDARY
from accord.core.links.multicast_group import GroupDatagram
from accord.core.links.options import LinkOptions, OverlayPort, no_traffic
from accord.core.links.session import LinkSession, reason_to_refuse
from accord.core.overlay.status import RefusedLinkStatus
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.child_links import NeighboursStatus, link_status
from accord.runtime.connection_writer import Alarm, clock_us
from accord.runtime.dialler import Dialler, DialStatus
from accord.runtime.logs import get_log
from accord.runtime.multicast_links import MulticastLinks
from accord.runtime.neighbour_link import NeighbourLink
from accord.runtime.transports.interface import LinkTransport, Listener
from accord.runtime.transports.udp import UdpEndpoint

_MAX_REFUSALS: Final = 64
_REFUSAL_TTL_US: Final = 90_000_000  # a neighbour retries within half a minute


class _Refusal:
    def __init__(self, error: LinkError, now_us: int) -> None:
        self.error = error
        self.first_us = self.last_us = now_us
        self.attempts = 0


class RefusedLinks:
    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], _Refusal] = {}  # latest last

    def record(self, node: str, address: str, error: LinkError, now_us: int) -> bool:
        """Record a refusal; returns whether it is new or has a new cause."""
        self._expire(now_us)
        known = self._by_name.pop((node, address), None)
        is_new = known is None or str(known.error) != str(error)
        if known is None or is_new:
            known = _Refusal(error, now_us)
        known.last_us = now_us
        known.attempts += 1
        self._by_name[node, address] = known
        if len(self._by_name) > _MAX_REFUSALS:
            del self._by_name[next(iter(self._by_name))]
        return is_new

    def clear(self, node: str, address: str) -> None:
        self._by_name.pop((node, address), None)

    def status(self, now_us: int) -> tuple[RefusedLinkStatus, ...]:
        self._expire(now_us)
        return tuple(
            RefusedLinkStatus(
                node=node,
                address=address,
                problem=str(each.error),
                remedy=each.error.remedy,
                attempts=each.attempts,
                since_s=(now_us - each.first_us) // 1_000_000,
            )
            for (node, address), each in self._by_name.items()
        )

    def _expire(self, now_us: int) -> None:
        for at, each in list(self._by_name.items()):
            if each.last_us + _REFUSAL_TTL_US > now_us:
                return
            del self._by_name[at]


log = get_log(__name__)

_STOP_S: Final = 2.0
# Extra connections allowed beyond the maximum number of links, for handshakes.
_MAX_HANDSHAKES: Final = 128
# Minimum timer delay: a defect in a deadline must not starve the rest of the node.
_MIN_WAIT_US: Final = 500
_MAX_WAIT_US: Final = 60_000_000
# After this silence another connection may take over a neighbour's name.
_QUIET_US: Final = 3_000_000


class LinkManager:
    """Call `due` when the overlay has something to send, or an earlier deadline.

    `objection` returns why a node can't be a neighbour, judged by all known nodes; empty if it can.
    `on_link` is called with a neighbour and whether its link is up now.
    """

    def __init__(  # noqa: PLR0913 - once per node
        self,
        overlay: OverlayPort,
        local: LocalIdentity,
        codec: LinkCodec,
        transport_of: Callable[[SocketAddress], LinkTransport],
        *,
        options: LinkOptions | None = None,
        endpoint: UdpEndpoint | None = None,
        group: MulticastLinks | None = None,
        max_links: int = 1_024,
        quiet_us: int = _QUIET_US,
        objection: Callable[[LinkPeer], str] = lambda _: "",
        on_link: Callable[[str, bool], None] = lambda _node, _is_up: None,
        random: Callable[[], float] = system_random.random,
    ) -> None:
        if endpoint is not None:
            local = replace(local, features={**local.features, DATAGRAM_PORT: endpoint.port})
        if group is not None:
            local = replace(local, features={**local.features, GROUP: group.group.feature})
        self.endpoint = endpoint
        self.group = group
        self.links: dict[str, NeighbourLink] = {}  # by the neighbour's name
        self.refused = 0
        self.unsent = 0
        self.turn_us = 0
        self._overlay = overlay
        self._local = local
        self._codec = codec
        self._transport_of = transport_of
        self._options = options or LinkOptions()
        self._max_links = max_links
        self._quiet_us = quiet_us
        self._objection = objection
        self._on_link = on_link
        self._refusals = RefusedLinks()
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._connections: dict[NeighbourLink, None] = {}
        self._listeners: list[Listener] = []
        self._dials: dict[SocketAddress, tuple[Dialler, asyncio.Task[None]]] = {}
        self._closed_traffic = no_traffic()  # traffic of closed links
        self._is_due = False
        self._is_stopping = False
        self._alarm = Alarm(self.due)
        if group is not None:
            group.start(local.node, self.links, self._receive_shared)

    async def listen(self, address: SocketAddress) -> SocketAddress:
        """Accept neighbours; returns the address, including a port chosen by the system."""
        try:
            listener = await self._transport_of(address).listen(
                address.host, address.port, lambda: NeighbourLink(self, is_dialer=False)
            )
        except (OSError, ValueError) as error:
            raise ListenError(address, _problem(error)) from None
        self._listeners.append(listener)
        return replace(address, host=listener.host, port=listener.port)

    def dial(self, address: SocketAddress, expected: str = "") -> None:
        """Maintain a link with the node at `address`, or only if that is `expected`."""
        if address not in self._dials and not self._is_stopping:
            dial = Dialler(self, self._transport_of(address), address, self._random, expected)
            self._dials[address] = dial, self._loop.create_task(dial.run())

    def undial(self, address: SocketAddress) -> None:
        """Stop dialling an address; a link opened for it ends."""
        found = self._dials.pop(address, None)
        if found is None:
            return
        dial, task = found
        task.cancel()
        link = dial.link
        if link is not None and link.session is not None:
            link.session.end(
                CloseReason.STOPPED, f"node {self._local.node} does not want this link"
            )
            self.due()

    def dial_status(self, address: SocketAddress) -> DialStatus | None:
        """None if the address is not dialled."""
        found = self._dials.get(address)
        return None if found is None else found[0].status()

    def dialled_at(self, node: str) -> SocketAddress | None:
        """The dialled address of the link with `node`; None if the other side opened it."""
        link = self.links.get(node)
        found = (each for each, (dial, _) in self._dials.items() if dial.link is link)
        return next(found, None)

    def is_secondary(self, node: str) -> bool:
        """Whether a neighbour is a secondary node."""
        link = self.links.get(node)
        session = None if link is None else link.session
        neighbour = None if session is None else session.neighbour
        return neighbour is not None and SECONDARY in neighbour.features

    def due(self) -> None:
        """Schedule a turn."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def status(self) -> NeighboursStatus:
        traffic = no_traffic()
        traffic.add(self._closed_traffic)
        for link in self._connections:
            if link.session is not None:
                traffic.add(link.session.traffic)
        return NeighboursStatus(
            links=tuple(link_status(link) for link in self.links.values()),
            dials=tuple(dial.status() for dial, _ in self._dials.values()),
            traffic=traffic,
            refused=self.refused,
            refusals=self._refusals.status(clock_us()),
            unsent=self.unsent,
            group=None if self.group is None else self.group.status(),
        )

    async def close(self) -> None:
        """End all links, notifying the neighbours."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        tasks = [task for _, task in self._dials.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self._connections):
            if link.session is not None:
                link.session.end(CloseReason.STOPPED, f"node {self._local.node} stops")
        self._turn()
        if self._connections:
            await asyncio.wait([link.done for link in self._connections], timeout=_STOP_S)
        for link in list(self._connections):
            link.abort()
        self._alarm.cancel()
        if self.group is not None:
            self.group.stop()

    # Called by links and diallers.

    def open_session(self, link: NeighbourLink, remote: RemoteEndpoint) -> LinkSession | None:
        """A session for a new connection, or None if there are too many."""
        if self._is_stopping or len(self._connections) >= self._max_links + _MAX_HANDSHAKES:
            self.refused += 1
            return None
        self._connections[link] = None
        return LinkSession(
            self._codec,
            self._local,
            replace(remote, expected=link.expected),
            is_dialer=link.is_dialer,
            nonce=secrets.token_bytes(NONCE_BYTES),
            admit=self._admit,
            now_us=clock_us(),
            options=self._options,
            group=None if self.group is None else self.group.group,
        )

    def new_link(self, expected: str) -> NeighbourLink:
        return NeighbourLink(self, is_dialer=True, expected=expected)

    async def wait_until_down(self, node: str) -> None:
        while (link := self.links.get(node)) is not None:
            await asyncio.wait([link.done])

    def on_up(self, link: NeighbourLink, now_us: int) -> None:
        standing = self.links.get(link.node)
        if standing is not None:
            if standing.session is not None:
                standing.session.end(CloseReason.REPLACED, "another connection takes its place")
            self.on_down(standing, now_us)
        self.links[link.node] = link
        self._refusals.clear(link.node, _address(link))
        log.info("link: established", node=link.node, address=_address(link))
        self._on_link(link.node, True)
        self._guarded(self._overlay.link_up, link.node, now_us)

    def on_down(self, link: NeighbourLink, now_us: int) -> None:
        if self.links.get(link.node) is link:
            del self.links[link.node]
            self._on_link(link.node, False)
            self._guarded(self._overlay.link_down, link.node, now_us)

    def on_closed(self, link: NeighbourLink) -> None:
        """Handle a closed connection; a dialled one is logged by its `Dialler`."""
        self._connections.pop(link, None)
        session = link.session
        if session is not None:
            self._closed_traffic.add(session.traffic)
        ended = link.done.result()
        if link.up_us < 0:
            self.refused += 1
        if not link.is_dialer and not self._is_stopping:
            is_expected = ended.is_routine or (link.up_us < 0 and session is None)
            node = link.node or ("" if session is None else session.claimed_name)
            if link.up_us < 0 and not is_expected:
                is_expected = not self._refusals.record(node, _address(link), ended, clock_us())
            (log.debug if is_expected else log.warning)(
                "link: closed" if link.up_us >= 0 else "neighbour: refused",
                node=node,
                address=_address(link),
                problem=str(ended),
                remedy=ended.remedy,
            )
        self.due()

    def receive(self, link: NeighbourLink, message: Any, now_us: int) -> None:
        if self.links.get(link.node) is link:
            self._guarded(self._overlay.receive, link.node, message, now_us)

    def _receive_shared(self, node: str, datagram: GroupDatagram) -> None:
        assert self.group is not None
        now_us = clock_us()
        for message in self.group.group.messages(datagram):
            self._guarded(self.group.port.receive_multicast, node, message, now_us)
        self.due()

    def take(self, node: str, bytes_wanted: int) -> list[bytes]:
        return self._overlay.take(node, bytes_wanted)

    def take_datagrams(self, node: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:
        return self._overlay.take_datagrams(node, bytes_wanted, message_bytes)

    def links_down(self) -> list[tuple[str, str]]:
        """Neighbours to which no link could be made, by name or address, and why."""
        found = (dial.status() for dial, _ in self._dials.values())
        return [(each.node or each.address, each.problem) for each in found if each.problem]

    def _admit(self, neighbour: LinkPeer) -> LinkError | None:
        standing = self.links.get(neighbour.node)
        if problem := self._objection(neighbour):
            return LinkError(CloseReason.SAME_NAME, problem)
        if standing is None or standing.session is None:
            if len(self.links) < self._max_links:
                return None
            return LinkError(
                CloseReason.BUSY, f"node {self._local.node} has {self._max_links} links"
            )
        session = standing.session
        # Secondary nodes are not pinged, but send at least one message per keepalive.
        quiet_us = _MAX_WAIT_US if self.is_secondary(neighbour.node) else self._quiet_us
        is_alive = session.is_alive(quiet_us, clock_us())
        refused = reason_to_refuse(
            self._local.node, session.neighbour, neighbour, is_alive=is_alive
        )
        if refused is not None:
            # The other side may already know that the existing connection is broken: probe it.
            session.queue_keepalive()
            self.due()
        return refused

    def _turn(self) -> None:
        self._is_due = False
        is_behind = [link for link in list(self._connections) if link.work()]
        now_us = clock_us()
        due_us = self._overlay.next_due_us()
        if due_us is not None and due_us <= now_us:
            self._guarded(self._overlay.advance, now_us)
        for link in self._connections:
            if link.session is not None:
                link.session.advance(now_us)
        self._dispatch()
        if self.group is not None:
            self._guarded(self.group.flush, now_us)
        for link in list(self._connections):
            self._guarded(link.flush, now_us)
        if is_behind or self._overlay.sends:
            self.due()  # there is more to process or to send
        self._set_timer(now_us)
        self.turn_us = clock_us() - now_us

    def _dispatch(self) -> None:
        """Pass each control message to the link of its destination."""
        sends = self._overlay.sends
        self._overlay.sends = []
        for node, message in sends:
            link = self.links.get(node)
            if link is None or link.session is None:
                self.unsent += 1
            else:
                self._guarded(link.session.send, message)

    def _set_timer(self, now_us: int) -> None:
        due_us = now_us + _MAX_WAIT_US
        if self.group is not None:
            due_us = min(due_us, self.group.due_us)
        for each in (self._overlay, *(link.session for link in self._connections)):
            found = None if each is None else each.next_due_us()
            if found is not None and found < due_us:
                due_us = found
        if not self._is_stopping:
            self._alarm.set(max(due_us - now_us, _MIN_WAIT_US))

    def _guarded(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call with fault isolation: one failing message must not break other links."""
        try:
            call(*arguments)
        except Exception as error:
            log.failure("link: processing failed", error)


def _address(link: NeighbourLink) -> str:
    return "" if link.session is None else link.session.remote.address


def _problem(error: Exception) -> str:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return "another program listens there; stop it or choose another port"
    return (getattr(error, "strerror", None) or str(error)).lower()

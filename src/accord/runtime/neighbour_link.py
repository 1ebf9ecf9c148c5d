"""One connection to a neighbour node: moves bytes between its session and the network.

The node can't reorder bytes once they are written. Data is therefore written only as far as keeps
the link busy (`core/scheduling/link_estimator`), and at most `AHEAD_BYTES` ahead of the network.
Control is written immediately and waits behind no more than that.

Received messages are processed for a few milliseconds at a time. A neighbour that sends more is
not read from until the rest is processed, so other neighbours get their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol, cast

from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import RemoteEndpoint
from accord.core.links.messages import DATAGRAM_PORT
from accord.core.links.session import LinkSession
from accord.core.scheduling.link_estimator import LinkEstimator
from accord.runtime.connection_writer import clock_us
from accord.runtime.socket_gauge import SocketGauge
from accord.runtime.transports.interface import remote_of
from accord.runtime.transports.udp import UdpEndpoint

AHEAD_BYTES: Final = 64 << 10
# Control is written until this much waits in the transport; then the session queues it.
_CONTROL_BYTES: Final = 2 * AHEAD_BYTES
_CLOSE_S: Final = 2.0
_DISCARDED_BYTES: Final = 1_000_000
# Minimum time between two samples of the socket; an earlier one shows nothing new.
_RESAMPLE_US: Final = 200
# Bounds on the time slice for one neighbour's messages in one turn. The slice is as long as the
# rest of the turn, so that a busy node does not fall behind its input.
_WORK_US: Final = 5_000
_MAX_WORK_US: Final = 100_000


class LinkOwner(Protocol):
    """Owner of all links of a node."""

    endpoint: UdpEndpoint | None
    turn_us: int  # duration of a turn without processing received messages

    def open_session(self, link: NeighbourLink, remote: RemoteEndpoint) -> LinkSession | None: ...
    def on_up(self, link: NeighbourLink, now_us: int) -> None: ...
    def receive(self, link: NeighbourLink, message: Any, now_us: int) -> None: ...
    def on_down(self, link: NeighbourLink, now_us: int) -> None: ...
    def on_closed(self, link: NeighbourLink) -> None: ...
    def due(self) -> None: ...
    def take(self, node: str, bytes_wanted: int) -> list[bytes]: ...
    def take_datagrams(self, node: str, bytes_wanted: int, message_bytes: int) -> list[bytes]: ...


class NeighbourLink(asyncio.Protocol):
    """`up` is set when the neighbour is known; `done`, to the reason, when the connection ends."""

    def __init__(self, owner: LinkOwner, *, is_dialer: bool, expected: str = "") -> None:
        self.is_dialer = is_dialer
        self.expected = expected  # the only node accepted at the other end; empty: any
        self.node = ""  # name of the neighbour, once up
        self.local_host = ""  # local address of the connection
        self.up_us = -1
        self.link = LinkEstimator()
        self.session: LinkSession | None = None
        loop = asyncio.get_running_loop()
        self.up: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[LinkError] = loop.create_future()
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._gauge: SocketGauge | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_finished = False
        self._discarded = 0
        self._received: deque[Any] = deque()  # received, not processed yet
        self._is_reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.session = self._owner.open_session(self, remote_of(transport))
        if self.session is None:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=AHEAD_BYTES // 2)
        own = self._transport.get_extra_info("sockname")
        self.local_host = str(own[0]) if isinstance(own, tuple) and own else ""
        self._gauge = SocketGauge(self._transport)
        self._gauge.route(self.link)
        self._owner.due()

    def data_received(self, data: bytes) -> None:
        session = self.session
        if session is None or self._is_finished:
            self._discarded += len(data)
            if self._discarded > _DISCARDED_BYTES:
                self.abort()
            return
        now_us = clock_us()
        messages = session.receive(data, now_us)
        if self.up_us < 0 and session.neighbour is not None:
            self.node = session.neighbour.node
            self.up_us = now_us
            self._owner.on_up(self, now_us)
            self.up.set_result(None)
            self._register_datagrams()
        self._received.extend(messages)
        self.work()
        self._owner.due()

    def datagram_received(self, datagram: bytes) -> None:
        session = self.session
        if session is not None and self.up_us >= 0:
            messages = session.receive_datagram(datagram)
            now_us = clock_us()
            for message in messages:
                self._owner.receive(self, message, now_us)
            if messages:
                self._owner.due()

    def work(self) -> bool:
        """Process received messages for one time slice; returns whether any are left."""
        came = self._received
        if not came and self._is_reading:
            return False
        now_us = clock_us()
        until_us = now_us + min(max(_WORK_US, self._owner.turn_us), _MAX_WORK_US)
        while came:
            self._owner.receive(self, came.popleft(), now_us)
            now_us = clock_us()
            if now_us >= until_us:
                break
        is_reading, transport = not came, self._transport
        if is_reading != self._is_reading and transport is not None:
            self._is_reading = is_reading
            if is_reading:
                transport.resume_reading()
            else:
                transport.pause_reading()
        return bool(came)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        session = self.session
        ended = None if session is None else session.ended
        if ended is None:
            ended = _close_error(error, is_up=self.up_us >= 0)
        self._cancel_timer()
        self._received.clear()  # as if lost in transit
        self._transport = None
        self._gauge = None
        if self._owner.endpoint is not None and session is not None and session.datagrams:
            self._owner.endpoint.remove(session.datagrams.opener.id)
        if not self.done.done():
            self.done.set_result(ended)
        self._owner.on_down(self, clock_us())
        self._owner.on_closed(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._owner.due()

    def flush(self, now_us: int) -> None:
        """Write pending control and data as far as the network accepts them."""
        session, transport = self.session, self._transport
        if session is None or transport is None or self._is_finished:
            return
        if session.ended is not None or transport.get_write_buffer_size() < _CONTROL_BYTES:
            self._write(session.take_control(now_us))
        if session.ended is not None:
            self._owner.on_down(self, now_us)
            self._finish()
        elif self.up_us >= 0:
            self._flush_datagrams(session, now_us)
            self._flush_data(session, transport, now_us)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush_data(self, session: LinkSession, transport: asyncio.Transport, now_us: int) -> None:
        link = self.link
        if link.capacity_bps():
            link.expire_sample(now_us)
        while not self._is_paused and self._timer is None:
            room = min(self._room(), AHEAD_BYTES - transport.get_write_buffer_size())
            if room <= 0:
                return
            frames = session.take_data(room, self._pull, now_us)
            if not frames:
                return
            self._write(frames)

    def _pull(self, bytes_wanted: int) -> list[bytes]:
        return self._owner.take(self.node, bytes_wanted)

    def _room(self) -> int:
        """How many bytes may be sent now; if none, sets a timer."""
        link, gauge = self.link, self._gauge
        if link.room > 0 or gauge is None:
            return link.room
        now_us = clock_us()
        if now_us - link.sampled_us < _RESAMPLE_US:
            link.hold(now_us)
        elif gauge.sample(link, now_us) > 0:
            return link.room
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(link.wait_us / 1e6, self._on_timer)
        return 0

    def _on_timer(self) -> None:
        self._timer = None
        self.flush(clock_us())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self, frames: list[bytes]) -> None:
        if frames and self._transport is not None:
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            self._transport.write(data)
            self.link.sent(len(data))

    def _register_datagrams(self) -> None:
        session, endpoint = self.session, self._owner.endpoint
        if session is not None and session.datagrams is not None and endpoint is not None:
            endpoint.add(session.datagrams.opener.id, self.datagram_received)

    def _flush_datagrams(self, session: LinkSession, now_us: int) -> None:
        endpoint, datagrams = self._owner.endpoint, session.datagrams
        if endpoint is None or datagrams is None or endpoint.is_full:
            return
        assert session.neighbour is not None
        port = session.neighbour.features[DATAGRAM_PORT]
        message_bytes = datagrams.sealer.message_bytes
        for datagram in session.take_datagrams(
            lambda wanted: self._owner.take_datagrams(self.node, wanted, message_bytes), now_us
        ):
            endpoint.send(datagram, session.remote.address, port)

    def _finish(self) -> None:
        """Close after the last message, once the other side has received it.

        Closing immediately would answer further input with a TCP reset, which can discard data the
        other side has not read yet.
        """
        transport = self._transport
        if transport is None or self._is_finished:
            return
        self._is_finished = True
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(_CLOSE_S, self.abort)
        ended = None if self.session is None else self.session.ended
        if transport.can_write_eof() and ended is not None and not ended.is_from_peer:
            transport.write_eof()
        else:
            transport.close()


def _close_error(error: Exception | None, *, is_up: bool) -> LinkError:
    text = "" if error is None else f" ({getattr(error, 'strerror', None) or error})".lower()
    if is_up:
        return LinkError(CloseReason.LOST, f"the connection was lost{text}")
    return LinkError(CloseReason.CLOSED, f"the connection was closed during the handshake{text}")

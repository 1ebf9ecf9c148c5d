"""One end of a link over one connection: received bytes in, messages and bytes to send out.

A session never raises on bad input: when it has ended, `ended` holds the reason, and all that is
left to send is a `LinkClose`. The driver closes the connection after sending it.

There is one connection per pair of nodes. If both ends dial, the connection dialled by the node
with the smaller name stays: both ends decide alike, whichever they see first. A node that dials a
second connection itself has lost the first. A different incarnation means either a restarted node
or a name conflict. In the first case the old link is silent; so while the existing link is alive,
another incarnation is refused.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from accord.core.links.codec import (
    CONTROL,
    DATA,
    HEADER_BYTES,
    LAST,
    LINK,
    PART,
    LinkCodec,
    LinkFramer,
)
from accord.core.links.datagrams import Datagrams, Opener, Sealer
from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import (
    Admit,
    LinkHandshake,
    LinkPeer,
    LocalIdentity,
    RemoteEndpoint,
)
from accord.core.links.messages import (
    DATAGRAM_PORT,
    GROUP,
    KEEPALIVE_US,
    MESSAGE_BYTES,
    DatagramReport,
    Hello,
    LinkClose,
    MulticastReport,
    decode_link_message,
    encode_link_message,
)
from accord.core.links.multicast_group import MulticastGroup, MulticastPeer
from accord.core.links.options import LinkOptions, no_traffic
from accord.core.links.send_queue import LinkSendQueue, Pull

_DEFAULTS: Final = LinkOptions()
_MIN_MESSAGE_BYTES: Final = 4_096
# Bytes of a frame with several messages: nodes combine at most `piece_bytes`. Otherwise one frame
# could hold millions of messages, and decoding them would block everything else.
_MAX_TOGETHER: Final = 1 << 20
_ONE: Final = 0x91  # first byte of a frame with one message
_TLS: Final = b"\x16\x03"


class LinkSession:
    """Session of a link; messages can be sent once the handshake has set `neighbour`."""

    def __init__(  # noqa: PLR0913 - once per connection
        self,
        codec: LinkCodec,
        local: LocalIdentity,
        remote: RemoteEndpoint,
        *,
        is_dialer: bool,
        nonce: bytes,
        admit: Admit,
        now_us: int,
        options: LinkOptions = _DEFAULTS,
        group: MulticastGroup | None = None,
    ) -> None:
        self.remote = remote
        self.neighbour: LinkPeer | None = None
        self.claimed_name = ""  # name in the peer's Hello, authenticated or not
        self.ended: LinkError | None = None
        self.traffic = no_traffic()
        self.datagrams: Datagrams | None = None
        self.group_peer: MulticastPeer | None = None  # if both are in the same multicast group
        self._group = group
        self._codec = codec
        self._options = options
        self._features = _features(local, remote, options)
        self._framer = LinkFramer(options.handshake_bytes)
        self._send_queue = LinkSendQueue(options, self.traffic)
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._probe: bytes | None = None
        self._started_us = self._received_us = self._sent_us = now_us
        self._idle_us = options.max_missed * options.keepalive_us
        self._handshake: LinkHandshake | None = LinkHandshake(
            replace(local, features=self._features),
            remote,
            is_dialer=is_dialer,
            nonce=nonce,
            admit=admit,
        )
        try:
            self._handshake.start()
        except LinkError as error:
            self._finish(error)
        self._queue_handshake()

    @property
    def buffered_bytes(self) -> int:
        return self._framer.buffered_bytes + self._parts_bytes + self._send_queue.buffered_bytes

    @property
    def has_waiting(self) -> bool:
        """Whether anything is queued, control or data already pulled."""
        return self._send_queue.has_control or self._send_queue.has_data

    def is_alive(self, quiet_us: int, now_us: int) -> bool:
        """Whether the peer sent something within `quiet_us`, or 1.5 keepalives if that is less.

        A peer sends something at least once per keepalive.
        """
        keepalive_us = self._idle_us // self._options.max_missed
        return now_us - self._received_us < min(quiet_us, keepalive_us * 3 // 2)

    def receive(self, data: bytes, now_us: int) -> list[Any]:
        """Process received bytes; returns the messages that they complete."""
        messages: list[Any] = []
        if self.ended is not None or not data:
            return messages
        self._received_us = now_us
        try:
            self._framer.feed(data)
            while (found := self._framer.take()) is not None:  # none once it has ended
                self._receive_frame(found[0], found[1], messages, now_us)
        except LinkError as error:
            self._finish(self._explain_error(error, data))
        return messages

    def receive_datagram(self, datagram: bytes) -> list[Any]:
        if self.ended is not None or self.datagrams is None:
            return []
        return self.datagrams.opener.open(datagram)

    def send(self, message: Any) -> None:
        """Queue a control message; one too large for the peer is dropped, counted in `traffic`."""
        if self.neighbour is None or self.ended is not None:
            return
        try:
            self._send_queue.put_control(self._codec.encode(message))
        except LinkError as error:
            self._finish(error)

    def take_control(self, now_us: int) -> list[bytes]:
        """Frames to send that are not data."""
        frames = self._send_queue.take_control()
        if frames:
            self._sent_us = now_us
        return frames

    def take_data(self, room: int, pull: Pull, now_us: int) -> list[bytes]:
        """Data frames for `room` bytes, or a little more, pulled with `pull`."""
        if self.neighbour is None or self.ended is not None:
            return []
        frames = self._send_queue.take_data(room, pull)
        if frames:
            self._sent_us = now_us
        return frames

    def take_datagrams(self, pull: Pull, now_us: int) -> list[bytes]:
        """Datagrams to send; messages too large for one are sent over the connection."""
        datagrams = self.datagrams
        if datagrams is None or self.ended is not None:
            return []
        taken = [] if self._probe is None else [self._probe]
        self._probe = None
        if datagrams.is_open(now_us) and not self._send_queue.has_data:
            packed, too_large = datagrams.sealer.pack(pull(self._options.piece_bytes))
            taken += packed
            self._send_queue.put_data(too_large)
        return taken

    def end(self, reason: CloseReason, problem: str) -> None:
        """End the session from this side."""
        if self.ended is None:
            self._finish(LinkError(reason, problem))

    def next_due_us(self) -> int | None:
        """When to call `advance` next; None: never."""
        if self.ended is not None:
            return None
        if self.neighbour is None:
            return self._started_us + self._options.handshake_us
        due_us = min(self._received_us + self._idle_us, self._sent_us + self._options.keepalive_us)
        if self.group_peer is not None:
            due_us = min(due_us, self.group_peer.due_us)
        return due_us if self.datagrams is None else min(due_us, self.datagrams.due_us)

    def advance(self, now_us: int) -> None:
        """Check timeouts, and send a keepalive, probe or report if due."""
        if self.ended is not None:
            return
        if self.neighbour is None:
            limit_us = self._options.handshake_us
            if now_us - self._started_us >= limit_us:
                problem = f"the handshake took more than {limit_us / 1e6:g} s"
                self._finish(LinkError(CloseReason.SLOW, problem))
            return
        if now_us - self._received_us >= self._idle_us:
            problem = f"nothing received for {self._idle_us / 1e6:g} s"
            self._finish(LinkError(CloseReason.IDLE, problem))
            return
        if self.datagrams is not None:
            probe, report = self.datagrams.advance(now_us)
            self._probe = probe or self._probe
            if report is not None:
                self._send_queue.put_link(encode_link_message(report))
        if self.group_peer is not None:
            about_group = self.group_peer.advance(now_us)
            if about_group is not None:
                self._send_queue.put_link(encode_link_message(about_group))
        if now_us - self._sent_us >= self._options.keepalive_us:
            self.queue_keepalive()

    def queue_keepalive(self) -> None:
        """Queue a keepalive if nothing is queued, so that a broken connection is detected."""
        if self.neighbour is not None and self.ended is None and not self._send_queue.has_control:
            self._send_queue.put_link(b"")

    def check_invariants(self) -> None:
        options = self._options
        limit = options.handshake_bytes if self.neighbour is None else options.message_bytes
        assert self._framer.buffered_bytes <= limit + HEADER_BYTES
        assert self._parts_bytes == sum(map(len, self._parts)) <= options.message_bytes
        assert self.neighbour is not None or not self._send_queue.buffered_bytes
        assert self.ended is None or self.buffered_bytes == 0

    def _receive_frame(self, kind: int, body: memoryview, messages: list[Any], now_us: int) -> None:
        received = self.traffic.received
        size = len(body) + HEADER_BYTES
        if kind == LINK:
            received.link.add(1, 1, size)
            self._on_link_message(body, now_us)
        elif self.neighbour is None:
            raise LinkError(CloseReason.GARBAGE, "a message before the handshake has ended")
        elif kind in (PART, LAST):
            received.data.add(1, int(kind == LAST), size)
            self._receive_piece(body, kind == LAST, messages)
        else:
            if kind == DATA and self._parts:
                raise LinkError(CloseReason.GARBAGE, "a message between the fragments of another")
            if size > _MAX_TOGETHER and body[0] != _ONE:
                problem = f"a frame of {size} bytes with several messages"
                raise LinkError(
                    CloseReason.TOO_LARGE, f"{problem}, at most {_MAX_TOGETHER} accepted"
                )
            found = self._codec.decode(body)
            count = received.control if kind == CONTROL else received.data
            count.add(1, len(found), size)
            messages += found

    def _receive_piece(self, body: memoryview, is_last: bool, messages: list[Any]) -> None:
        self._parts_bytes += len(body)
        if self._parts_bytes > self._options.message_bytes:
            problem = f"a message of more than {self._options.message_bytes} bytes"
            raise LinkError(CloseReason.TOO_LARGE, problem)
        if body:
            self._parts.append(bytes(body))
        if is_last:
            message = b"".join(self._parts)
            self._clear_parts()
            messages.append(self._codec.decode_one(message))

    def _clear_parts(self) -> None:
        self._parts = []
        self._parts_bytes = 0

    def _on_link_message(self, body: memoryview, now_us: int) -> None:
        handshake = self._handshake
        if handshake is None and not body:
            return  # keepalive
        message = decode_link_message(body)
        if isinstance(message, Hello):
            self.claimed_name = message.node
        if isinstance(message, LinkClose):
            self._finish(LinkError(message.reason, message.problem, is_from_peer=True))
        elif handshake is not None:
            self._framer.limit -= len(body) + HEADER_BYTES
            neighbour = handshake.receive(message, bytes(body))
            self._queue_handshake()
            if neighbour is not None:
                self._complete_handshake(neighbour, now_us)
        elif isinstance(message, DatagramReport):
            if self.datagrams is not None:
                self.datagrams.on_report(message, now_us)
        elif isinstance(message, MulticastReport):
            if self.group_peer is not None:
                self.group_peer.on_report(message, now_us)
        else:
            raise LinkError(CloseReason.GARBAGE, "a second handshake")

    def _queue_handshake(self) -> None:
        handshake = self._handshake
        if handshake is not None:
            for encoded in handshake.outgoing:
                self._send_queue.put_link(encoded)
            handshake.outgoing.clear()

    def _complete_handshake(self, neighbour: LinkPeer, now_us: int) -> None:
        """Complete the handshake: apply the peer's features and open datagrams."""
        options = self._options
        features = neighbour.features
        self._handshake = None
        self.neighbour = neighbour
        self._framer.limit = options.message_bytes
        accepted = features.get(MESSAGE_BYTES, options.message_bytes)
        self._send_queue.message_bytes = max(accepted, _MIN_MESSAGE_BYTES)
        keepalive_us = min(features.get(KEEPALIVE_US, 0), options.max_keepalive_us)
        self._idle_us = options.max_missed * max(keepalive_us, options.keepalive_us)
        if DATAGRAM_PORT in features and DATAGRAM_PORT in self._features:
            sent, received = self.traffic.sent, self.traffic.received
            self.datagrams = Datagrams(
                Sealer(neighbour.sending, options.datagram_bytes, sent.datagrams),
                Opener(neighbour.receiving, self._codec, received.datagrams),
                report_us=options.report_us,
                now_us=now_us,
            )
        if self._group is not None and features.get(GROUP) == self._features.get(GROUP, 0):
            self.group_peer = MulticastPeer(self._group, report_us=options.report_us, now_us=now_us)

    def _explain_error(self, error: LinkError, data: bytes) -> LinkError:
        """Replace an error on the very first bytes: the peer is not a node."""
        is_first = self.neighbour is None and self.traffic.received.link.frames == 0
        if not is_first or error.reason not in (CloseReason.GARBAGE, CloseReason.TOO_LARGE):
            return error
        got = "TLS" if data.startswith(_TLS) else repr(data[:16])
        return LinkError(CloseReason.GARBAGE, f"expected the greeting of a node, got {got}")

    def _finish(self, error: LinkError) -> None:
        self.ended = error
        self._handshake = None
        self._framer.clear()
        self._clear_parts()
        self._send_queue.clear()
        if not error.is_from_peer:
            last_words = LinkClose(error.reason, error.problem)
            self._send_queue.put_link(encode_link_message(last_words))


def _features(local: LocalIdentity, remote: RemoteEndpoint, options: LinkOptions) -> dict[str, int]:
    features = dict(local.features)
    if remote.is_encrypted:
        # Datagrams are not encrypted: data that TLS protects must not be sent in them.
        features.pop(DATAGRAM_PORT, None)
        features.pop(GROUP, None)
    features[MESSAGE_BYTES] = options.message_bytes
    features[KEEPALIVE_US] = options.keepalive_us
    return features


def reason_to_refuse(
    own: str, existing: LinkPeer | None, new: LinkPeer, *, is_alive: bool
) -> LinkError | None:
    """Why `new` is refused; None if it replaces `existing`.

    `is_alive`: a message arrived over `existing` recently.
    """
    if existing is None:
        return None
    if new.incarnation != existing.incarnation:
        if not is_alive:
            return None
        return LinkError(
            CloseReason.SAME_NAME, f"another node {new.node} is linked with {own}, and alive"
        )
    if new.is_dialed in (existing.is_dialed, own < new.node):
        return None
    return LinkError(CloseReason.DUPLICATE, f"nodes {own} and {new.node} are linked already")

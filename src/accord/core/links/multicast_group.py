"""Datagrams to a multicast group: one datagram for all neighbours on a LAN.

A datagram consists of the ID of the group's key (8 bytes), its sender's sequence number (8), a
truncated HMAC over all that precedes and follows it (16), and a body: the length of the header, the
header, which names the sender, then messages as in a frame. The key is common to all nodes, derived
from their shared key: its holder is a node, but the sender's name is only as trustworthy as the
nodes are.

Datagrams of a node that is not linked, or has restarted since (its incarnation is in the header),
are not accepted. Over the link both ends report the sequence number from which datagrams belong to
it. So a recorded datagram cannot be replayed, neither to a node that received it nor to one that
joined later.

A network may block multicast, or pass it to some nodes only. So a neighbour counts as reached only
while it confirms over the link that it receives this node's datagrams; beacons ensure that there
are some. Beacons may also carry a node's listening addresses, for discovery.
"""

from __future__ import annotations

import hmac
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.links.codec import LinkCodec, body_of
from accord.core.links.datagrams import (
    NUMBER_BYTES,
    OVERHEAD_BYTES,
    SIGNED_BYTES,
    DatagramReachability,
    ReplayWindow,
    mac_of,
)
from accord.core.links.errors import LinkError
from accord.core.links.handshake import ID_BYTES, DatagramKey
from accord.core.links.messages import MulticastReport
from accord.core.links.options import FrameCounts, name_problem

MAX_ADDRESSES: Final = 8
ADDRESS_CHARACTERS: Final = 300
_LENGTH_BYTES: Final = 2
_ARRAY_BYTES: Final = 3
_FEATURE_BYTES: Final = 6


class MulticastHeader(Struct, frozen=True, array_like=True):
    """Sender of a datagram; in a beacon, with its listening addresses."""

    sender: str
    incarnation: int
    addresses: tuple[str, ...] = ()


class GroupDatagram(Struct, frozen=True):
    """An authenticated datagram; `body` holds its encoded messages."""

    header: MulticastHeader
    number: int
    body: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_header_decoder: Final = msgspec.msgpack.Decoder(MulticastHeader)


class MulticastGroup:
    """This node's membership: seals outgoing datagrams and opens received ones."""

    def __init__(
        self,
        key: DatagramKey,
        codec: LinkCodec,
        *,
        node: str,
        incarnation: int,
        datagram_bytes: int,
    ) -> None:
        self.number = 0  # of the next datagram
        self.sent = FrameCounts()
        self.received = FrameCounts()
        self.refused = 0  # forged or malformed
        self._key = key
        self._codec = codec
        self._header = MulticastHeader(node, incarnation)
        self._encoded_header = _encode(self._header)
        overhead = OVERHEAD_BYTES + _LENGTH_BYTES + len(self._encoded_header) + _ARRAY_BYTES
        self.message_bytes = datagram_bytes - overhead

    @property
    def feature(self) -> int:
        """Identifies the group and its key in a Hello."""
        return int.from_bytes(self._key.id[:_FEATURE_BYTES])

    def beacon(self, addresses: tuple[str, ...]) -> bytes:
        head = MulticastHeader(
            self._header.sender, self._header.incarnation, addresses[:MAX_ADDRESSES]
        )
        return self._seal(_encode(head), [])

    def pack(self, messages: list[bytes]) -> list[bytes]:
        """Pack messages into datagrams; each must fit into one."""
        datagrams: list[bytes] = []
        together: list[bytes] = []
        size = 0
        for message in messages:
            if together and size + len(message) > self.message_bytes:
                datagrams.append(self._seal(self._encoded_header, together))
                together, size = [], 0
            together.append(message)
            size += len(message)
        if together:
            datagrams.append(self._seal(self._encoded_header, together))
        return datagrams

    def open(self, datagram: bytes) -> GroupDatagram | None:
        """Verify a datagram; None if it is forged or malformed."""
        found = self._verify(datagram)
        if found is None:
            self.refused += 1
        return found

    def messages(self, datagram: GroupDatagram) -> list[Any]:
        """Messages of an accepted datagram; none if they are malformed."""
        try:
            found = self._codec.decode(datagram.body)
        except LinkError:
            self.refused += 1
            return []
        self.received.add(1, len(found), len(datagram.body))
        return found

    def _verify(self, datagram: bytes) -> GroupDatagram | None:
        signed, body = datagram[:SIGNED_BYTES], datagram[OVERHEAD_BYTES:]
        mac = datagram[SIGNED_BYTES:OVERHEAD_BYTES]
        if signed[:ID_BYTES] != self._key.id:
            return None
        if not hmac.compare_digest(mac, mac_of(self._key, signed, body)):
            return None
        end = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
        try:
            head = _header_decoder.decode(body[_LENGTH_BYTES:end])
        except (ValueError, RecursionError, OverflowError):
            return None
        if name_problem(head.sender) or not _are_addresses(head.addresses):
            return None
        return GroupDatagram(head, int.from_bytes(signed[ID_BYTES:]), body[end:])

    def _seal(self, head: bytes, messages: list[bytes]) -> bytes:
        signed = self._key.id + self.number.to_bytes(NUMBER_BYTES)
        self.number += 1
        body = b"".join((len(head).to_bytes(_LENGTH_BYTES), head, body_of(messages)))
        datagram = signed + mac_of(self._key, signed, body) + body
        self.sent.add(1, len(messages), len(datagram))
        return datagram


class MulticastPeer:
    """A neighbour in the same group: whether it receives this node, and its replay window."""

    def __init__(self, group: MulticastGroup, *, report_us: int, now_us: int) -> None:
        self.due_us = now_us
        self.replayed = 0
        self._group = group
        self._first = group.number
        self._reachability = DatagramReachability(report_us, self._first)
        self._window: ReplayWindow | None = None  # until the peer reports its first number
        self._report_us = report_us
        self._reported: MulticastReport | None = None

    @property
    def loss(self) -> float:
        """Loss of this node's datagrams on their way to the neighbour."""
        return self._reachability.loss

    def is_open(self, now_us: int) -> bool:
        """Whether it recently confirmed datagrams of this node."""
        return self._reachability.is_open(now_us)

    def on_report(self, report: MulticastReport, now_us: int) -> None:
        if self._window is None:
            self._window = ReplayWindow(max(report.first, 0))
            self.due_us = now_us
        self._reachability.on_report(report.received, report.highest, self._group.number, now_us)

    def admit(self, number: int) -> bool:
        """Whether to accept a datagram of the neighbour: once, and only if sent for this link."""
        if self._window is None or not self._window.admit(number):
            self.replayed += 1
            return False
        return True

    def advance(self, now_us: int) -> MulticastReport | None:
        """When due, the report for the neighbour if it has changed."""
        if now_us < self.due_us:
            return None
        self.due_us = now_us + self._report_us
        window = self._window
        received, highest = (0, -1) if window is None else (window.received, window.highest)
        report = MulticastReport(self._first, received, highest)
        if report == self._reported:
            return None
        self._reported = report
        return report


def _are_addresses(addresses: tuple[str, ...]) -> bool:
    return len(addresses) <= MAX_ADDRESSES and all(
        len(each) <= ADDRESS_CHARACTERS for each in addresses
    )

"""Datagrams beside a link's connection, for messages that tolerate loss.

A datagram consists of the ID of its direction (8 bytes), its sequence number (8), a truncated HMAC
over both and the body (16), and a body as in a frame. There is no retransmission and no
fragmentation: messages that do not fit are sent over the connection.

A network may block datagrams. So an end uses them only while the other confirms over the connection
that some arrive; empty probes are sent while there is nothing else to send. The reports also give
the sender its loss, which the receiver derives from the sequence numbers, from the first on.
"""

from __future__ import annotations

import hmac
from typing import Any, Final

from accord.core.links.codec import LinkCodec, body_of
from accord.core.links.errors import LinkError
from accord.core.links.handshake import ID_BYTES, DatagramKey
from accord.core.links.messages import DatagramReport
from accord.core.links.options import FrameCounts

NUMBER_BYTES: Final = 8
_MAC_BYTES: Final = 16
SIGNED_BYTES: Final = ID_BYTES + NUMBER_BYTES
OVERHEAD_BYTES: Final = SIGNED_BYTES + _MAC_BYTES
_ARRAY_BYTES: Final = 3
_WINDOW: Final = 1_024
_WINDOW_MASK: Final = (1 << _WINDOW) - 1
_SILENCES: Final = 3


class Sealer:
    """Sender of one direction: numbers and authenticates datagrams."""

    def __init__(self, key: DatagramKey, datagram_bytes: int, count: FrameCounts) -> None:
        self.message_bytes = datagram_bytes - OVERHEAD_BYTES - _ARRAY_BYTES
        self.number = 0  # of the next datagram
        self._key = key
        self._count = count

    def seal(self, messages: list[bytes]) -> bytes:
        signed = self._key.id + self.number.to_bytes(NUMBER_BYTES)
        self.number += 1
        body = body_of(messages)
        datagram = signed + mac_of(self._key, signed, body) + body
        self._count.add(1, len(messages), len(datagram))
        return datagram

    def pack(self, messages: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Pack messages into datagrams; also returns those too large for one."""
        datagrams: list[bytes] = []
        too_large: list[bytes] = []
        together: list[bytes] = []
        size = 0
        for message in messages:
            if len(message) > self.message_bytes:
                too_large.append(message)
                continue
            if size + len(message) > self.message_bytes:
                datagrams.append(self.seal(together))
                together, size = [], 0
            together.append(message)
            size += len(message)
        if together:
            datagrams.append(self.seal(together))
        return datagrams, too_large


class ReplayWindow:
    """Anti-replay window: accepts each number once, from `first` on, if it is not too old."""

    def __init__(self, first: int = 0) -> None:
        self.highest = first - 1
        self.received = 0
        self._first = first
        self._seen = 0  # bit 0 is the highest number, bit 1 the one before

    @property
    def lost(self) -> int:
        """Datagrams missing so far; late ones count as lost until they arrive."""
        return self.highest + 1 - self._first - self.received

    def admit(self, number: int) -> bool:
        ahead = number - self.highest
        if number < self._first:
            return False
        if ahead > 0:
            self._seen = ((self._seen << min(ahead, _WINDOW)) | 1) & _WINDOW_MASK
            self.highest = number
        else:
            bit = 1 << -ahead if -ahead < _WINDOW else 0
            if bit == 0 or self._seen & bit:
                return False
            self._seen |= bit
        self.received += 1
        return True


class DatagramReachability:
    """Whether this end's datagrams arrive, and their loss, from the peer's reports."""

    def __init__(self, report_us: int, first: int = 0) -> None:
        self.loss = 0.0
        self._report_us = report_us
        self._last_report = DatagramReport(0, first - 1)
        self._reported_us = -1

    def is_open(self, now_us: int) -> bool:
        """Whether the peer recently confirmed new datagrams."""
        return self._reported_us >= 0 and now_us - self._reported_us <= _SILENCES * self._report_us

    def on_report(self, received: int, highest: int, next_number: int, now_us: int) -> None:
        """Process a report; an inconsistent or outdated one is ignored."""
        sent = highest - self._last_report.highest
        came = received - self._last_report.received
        if not (sent > 0 and came >= 0 and highest < next_number):
            return
        self._last_report = DatagramReport(received, highest)
        self._reported_us = now_us
        self.loss += (max(1 - came / sent, 0.0) - self.loss) / 8


class Opener(ReplayWindow):
    """Receiver of one direction: verifies datagrams and rejects replays."""

    def __init__(self, key: DatagramKey, codec: LinkCodec, count: FrameCounts) -> None:
        super().__init__()
        self.refused = 0  # forged or malformed
        self.replayed = 0  # replayed, or too old for the window
        self._key = key
        self._codec = codec
        self._count = count

    @property
    def id(self) -> bytes:
        return self._key.id

    def open(self, datagram: bytes) -> list[Any]:
        """Messages of a datagram; none if it is forged, replayed or malformed."""
        body = datagram[OVERHEAD_BYTES:]
        signed = datagram[:SIGNED_BYTES]
        mac = datagram[SIGNED_BYTES:OVERHEAD_BYTES]
        if not hmac.compare_digest(mac, mac_of(self._key, signed, body)):
            self.refused += 1
            return []
        if not self.admit(int.from_bytes(signed[ID_BYTES:])):
            self.replayed += 1
            return []
        try:
            messages = self._codec.decode(body)
        except LinkError:
            self.refused += 1
            return []
        self._count.add(1, len(messages), len(datagram))
        return messages


class Datagrams:
    """Datagrams of a link in both directions, with probes and reports."""

    def __init__(self, sealer: Sealer, opener: Opener, *, report_us: int, now_us: int) -> None:
        self.sealer = sealer
        self.opener = opener
        self.due_us = now_us
        self._report_us = report_us
        self._reachability = DatagramReachability(report_us)
        self._reported = -1
        self._probed = 0  # `sealer.number` at the last `advance`

    @property
    def loss(self) -> float:
        """Loss of sent datagrams, from the peer's reports."""
        return self._reachability.loss

    def is_open(self, now_us: int) -> bool:
        """Whether the peer recently confirmed datagrams."""
        return self._reachability.is_open(now_us)

    def on_report(self, report: DatagramReport, now_us: int) -> None:
        """Process the peer's report."""
        self._reachability.on_report(report.received, report.highest, self.sealer.number, now_us)

    def advance(self, now_us: int) -> tuple[bytes | None, DatagramReport | None]:
        """When due, a probe and a report to send, each if needed."""
        if now_us < self.due_us:
            return None, None
        self.due_us = now_us + self._report_us
        probe = self.sealer.seal([]) if self.sealer.number == self._probed else None
        self._probed = self.sealer.number
        if self.opener.highest == self._reported:
            return probe, None
        self._reported = self.opener.highest
        return probe, DatagramReport(self.opener.received, self.opener.highest)


def mac_of(key: DatagramKey, signed: bytes, body: bytes) -> bytes:
    return hmac.digest(key.secret, signed + body, "sha256")[:_MAC_BYTES]

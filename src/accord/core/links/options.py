"""The bounds of a link."""

from __future__ import annotations

from msgspec import Struct


class LinkOptions(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in microseconds. The defaults suit everything but tests."""

    message_bytes: int = 16 << 20  # a frame, or a message put together from pieces
    piece_bytes: int = 64 << 10  # of data handed over at a time: what control may have to wait for
    control_bytes: int = 8 << 20  # of control that waits for a neighbour that takes none
    handshake_bytes: int = 4_096
    handshake_us: int = 5_000_000
    keepalive_us: int = 5_000_000  # something is sent at least so often
    longest_keepalive_us: int = 60_000_000  # of the other side's, that is believed
    silences: int = 3  # of so many keepalives end a link
    datagram_bytes: int = 1_200
    report_us: int = 1_000_000  # datagrams are confirmed so often

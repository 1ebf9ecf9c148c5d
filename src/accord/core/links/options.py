"""Timers and limits of a link."""

from __future__ import annotations

from msgspec import Struct


class LinkOptions(Struct, frozen=True, kw_only=True):
    """Sizes in bytes, times in microseconds. The defaults suit everything but tests."""

    message_bytes: int = 16 << 20  # a frame, or a message reassembled from pieces
    piece_bytes: int = 64 << 10  # of data sent at a time: control waits for at most that much
    control_bytes: int = 8 << 20  # queue of control messages for a neighbour that does not read
    handshake_bytes: int = 4_096
    handshake_us: int = 5_000_000
    keepalive_us: int = 5_000_000  # maximum interval between two sends
    longest_keepalive_us: int = 60_000_000  # upper limit for the peer's keepalive interval
    silences: int = 3  # keepalive intervals without data until a link times out
    datagram_bytes: int = 1_200
    report_us: int = 1_000_000  # interval of datagram reports

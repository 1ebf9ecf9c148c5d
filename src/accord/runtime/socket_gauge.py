"""Samples the kernel's send queue and round-trip time of a connection.

Only Linux reports the bytes queued in the kernel and the round-trip time. Elsewhere, and for
transports other than TCP, only the transport's own buffer counts as outstanding; the kernel then
decides the order of as much as its buffer holds.

TCP_NOTSENT_LOWAT is not used: the send window covers bytes queued in the kernel as well as those in
flight, and an event once started can't be interrupted. Keeping the rest of it out of the kernel
would not change the order, and would cost fast links a wake-up per piece.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any, Final

from msgspec import Struct

from accord.core.scheduling.link_estimator import LinkEstimator

if sys.platform == "linux":
    from fcntl import ioctl
    from socket import TCP_INFO

    _SIOCOUTQ: Final = 0x5411

_IS_LINUX: Final = sys.platform == "linux"
# Offsets in struct tcp_info: segment size, selectively acknowledged segments, minimum RTT.
_SEGMENT_BYTES: Final = 16
_SACKED: Final = 28
_MIN_RTT_US: Final = 148
_INFO_BYTES: Final = 152
_NO_RTT: Final = (1 << 32) - 1
_INTEGER: Final = struct.Struct("=I")
_NO_INTEGER: Final = bytes(4)


class BandwidthLimits(Struct, frozen=True, kw_only=True):
    """Configured bandwidth of the node and of its clients in bit/s; 0: no limit."""

    node_bps: int = 0
    client_bps: int = 0
    clients: dict[str, int] = {}

    def of(self, client: str) -> int:
        """The limit of `client`: its own, or else that of all clients."""
        return self.clients.get(client, self.client_bps)


class SocketGauge:
    """Samples one transport."""

    __slots__ = ("_fd", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        link = transport.get_extra_info("socket")
        self._fd = -1 if link is None or not _IS_LINUX else int(link.fileno())

    def route(self, link: LinkEstimator) -> None:
        """Report segment size and RTT to `link`."""
        info = self._info()
        if info is not None:
            _report_route(link, info)

    def sample(self, link: LinkEstimator, now_us: int) -> int:
        """Report the outstanding bytes to `link`; returns its room."""
        outstanding = self._transport.get_write_buffer_size()
        if self._fd >= 0:
            try:
                outstanding += _integer(ioctl(self._fd, _SIOCOUTQ, _NO_INTEGER), 0)
            except OSError:  # closed in the meantime, or without such a queue
                self._fd = -1
            if link.is_held and outstanding:
                outstanding -= self._arrived(link)
        return link.sample(now_us, max(outstanding, 0))

    def _arrived(self, link: LinkEstimator) -> int:
        """Unacknowledged bytes that have arrived after a gap (SACK)."""
        info = self._info()
        if info is None:
            return 0
        return _integer(info, _SACKED) * _report_route(link, info)

    def _info(self) -> bytes | None:
        link: Any = self._transport.get_extra_info("socket") if self._fd >= 0 else None
        if link is None:
            return None
        try:
            info: bytes = link.getsockopt(socket.IPPROTO_TCP, TCP_INFO, _INFO_BYTES)
        except OSError:
            return None
        return info if len(info) == _INFO_BYTES else None


def _report_route(link: LinkEstimator, info: bytes) -> int:
    """Returns the segment size."""
    segment = _integer(info, _SEGMENT_BYTES)
    min_rtt_us = _integer(info, _MIN_RTT_US)
    link.set_path(segment, 0 if min_rtt_us == _NO_RTT else min_rtt_us)
    return segment


def _integer(info: bytes, offset: int) -> int:
    return int(_INTEGER.unpack_from(info, offset)[0])

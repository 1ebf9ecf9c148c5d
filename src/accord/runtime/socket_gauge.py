"""What the system knows of a connection, and when it may be written to.

Only Linux says how much waits in the kernel and how far away the other side is. Elsewhere, and for
what is no TCP, the transport's own buffer is all that counts as outstanding: order is then decided
by the kernel for as much as its buffer holds.

TCP_NOTSENT_LOWAT is left alone: the allowance covers what waits in the kernel as well as what is
under way, and an event begun can't be interrupted; keeping the rest of it out of the kernel would
change no order, and cost fast links a wake-up for each piece.
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
# Within struct tcp_info: segment size, segments acknowledged behind a gap, least round trip.
_SEGMENT_BYTES: Final = 16
_SACKED: Final = 28
_MIN_RTT_US: Final = 148
_INFO_BYTES: Final = 152
_NO_RTT: Final = (1 << 32) - 1
_INTEGER: Final = struct.Struct("=I")
_NO_INTEGER: Final = bytes(4)


class BandwidthLimits(Struct, frozen=True, kw_only=True):
    """Configured bandwidth in bit/s, 0 where there is no limit: of the node, and of its clients."""

    node_bps: int = 0
    client_bps: int = 0
    clients: dict[str, int] = {}

    def of(self, client: str) -> int:
        """What may be sent to `client`; its own limit counts rather than that of all."""
        return self.clients.get(client, self.client_bps)


class SocketGauge:
    """Reads a transport."""

    __slots__ = ("_fd", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        link = transport.get_extra_info("socket")
        self._fd = -1 if link is None or not _IS_LINUX else int(link.fileno())

    def route(self, link: LinkEstimator) -> None:
        """Tell `link` what is known of the way."""
        info = self._info()
        if info is not None:
            _tell_route(link, info)

    def look(self, link: LinkEstimator, now_us: int) -> int:
        """Tell `link` what is outstanding; gives its room."""
        outstanding = self._transport.get_write_buffer_size()
        if self._fd >= 0:
            try:
                outstanding += _integer(ioctl(self._fd, _SIOCOUTQ, _NO_INTEGER), 0)
            except OSError:  # closed in the meantime, or nothing that has such a queue
                self._fd = -1
            if link.is_held and outstanding:
                outstanding -= self._arrived(link)
        return link.look(now_us, max(outstanding, 0))

    def _arrived(self, link: LinkEstimator) -> int:
        """Of what is not acknowledged, the part that has arrived behind a gap."""
        info = self._info()
        if info is None:
            return 0
        return _integer(info, _SACKED) * _tell_route(link, info)

    def _info(self) -> bytes | None:
        link: Any = self._transport.get_extra_info("socket") if self._fd >= 0 else None
        if link is None:
            return None
        try:
            info: bytes = link.getsockopt(socket.IPPROTO_TCP, TCP_INFO, _INFO_BYTES)
        except OSError:
            return None
        return info if len(info) == _INFO_BYTES else None


def _tell_route(link: LinkEstimator, info: bytes) -> int:
    """Gives the size of a segment."""
    segment = _integer(info, _SEGMENT_BYTES)
    min_rtt_us = _integer(info, _MIN_RTT_US)
    link.route(segment, 0 if min_rtt_us == _NO_RTT else min_rtt_us)
    return segment


def _integer(info: bytes, offset: int) -> int:
    return int(_INTEGER.unpack_from(info, offset)[0])

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any, cast

import pytest

from accord.core.scheduling.link_estimator import LinkEstimator
from accord.runtime.socket_gauge import BandwidthLimits, SocketGauge

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


class Transport:
    """Over a socket that is written to directly."""

    def __init__(self, wire: socket.socket | None, waiting: int = 0) -> None:
        self.wire = wire
        self.waiting = waiting

    def get_extra_info(self, name: str) -> Any:
        return self.wire if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return self.waiting


def gauge(transport: Transport) -> SocketGauge:
    return SocketGauge(cast("asyncio.Transport", transport))


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


@linux_only
def test_what_the_kernel_holds_is_outstanding() -> None:
    one, other = connected()
    with one, other:
        one.setblocking(False)
        link = LinkEstimator()
        reads = gauge(Transport(one))
        reads.route(link)
        assert link.send_window > 100_000, "segments are large on loopback"
        assert link.rtt_ms >= 1
        size = 0
        while True:
            try:
                size += one.send(bytes(100_000))
            except BlockingIOError:
                break
        link.sent(size)
        reads.sample(link, 1)
        assert 0 < link.outstanding_bytes < size, "some of it is in the receiver's buffer"
        left = size
        while left:
            left -= len(other.recv(left))
        now_us = 2
        while link.outstanding_bytes:
            now_us += 1
            reads.sample(link, now_us)
        assert link.room == link.send_window


@linux_only
def test_what_the_transport_holds_counts_too() -> None:
    one, other = connected()
    with one, other:
        link = LinkEstimator()
        link.sent(5_000)
        gauge(Transport(one, waiting=5_000)).sample(link, 1)
        assert link.outstanding_bytes == 5_000


def test_without_a_socket_the_transport_s_buffer_is_all_there_is() -> None:
    link = LinkEstimator()
    reads = gauge(Transport(None, waiting=3_000))
    reads.route(link)
    link.sent(10_000)
    assert reads.sample(link, 1) == link.send_window - 3_000
    assert link.outstanding_bytes == 3_000


def test_a_socket_that_is_no_tcp_or_closed_is_no_problem() -> None:
    one, other = socket.socketpair()
    other.close()
    reads = gauge(Transport(one, waiting=10))
    link = LinkEstimator()
    reads.route(link)
    link.sent(100)
    reads.sample(link, 1)
    one.close()
    reads.sample(link, 2)
    assert link.outstanding_bytes == 10


def test_limits_of_single_clients_come_before_that_of_all() -> None:
    limits = BandwidthLimits(client_bps=100, clients={"a": 50, "b": 0})
    assert [limits.of(name) for name in ("a", "b", "c")] == [50, 0, 100]

from __future__ import annotations

import socket

import pytest

from accord.runtime.addresses import (
    ListenError,
    SocketAddress,
    bound_address,
    listen_on,
    parse_address,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", SocketAddress("127.0.0.1", 1883)),
        (" localhost:0 ", SocketAddress("localhost", 0)),
        ("[::1]:8883", SocketAddress("::1", 8883)),
        ("my-host.example:65535", SocketAddress("my-host.example", 65_535)),
    ],
)
def test_addresses(text: str, address: SocketAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        *("", "1883", ":1883", "host", "host:", "host:x", "host:65536", "host:-1", "host:000001"),
        *("host:¹", "::1:8883", "[::1]", "[host]:1", "a b:1", "http://host:1"),
    ],
)
def test_texts_that_are_no_addresses(text: str) -> None:
    assert parse_address(text) is None


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.5.5.5", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.example", False),
    ],
)
def test_which_addresses_stay_on_this_machine(host: str, is_loopback: bool) -> None:
    assert SocketAddress(host, 1).is_loopback is is_loopback


def test_a_listener_takes_connections() -> None:
    with listen_on(SocketAddress("localhost", 0)) as listener:
        address = bound_address(listener)
        assert address.port > 0
        socket.create_connection((address.host, address.port)).close()


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("192.0.2.1", "this machine does not have that address"),
        ("no-such-host.invalid", "unknown host"),
    ],
)
def test_addresses_that_can_not_be_listened_on(host: str, problem: str) -> None:
    with pytest.raises(ListenError, match=problem):
        listen_on(SocketAddress(host, 0))


def test_a_port_in_use_is_named() -> None:
    with listen_on(SocketAddress("127.0.0.1", 0)) as listener:
        taken = bound_address(listener)
        with pytest.raises(ListenError) as refused:
            listen_on(taken)
    assert str(refused.value) == (
        f"can't listen on {taken}: another program listens there; stop it or choose another port"
    )

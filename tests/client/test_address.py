from __future__ import annotations

import pytest

from accord.client.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://localhost", Address("mqtt", "localhost", 1883)),
        ("mqtt://user:p%40w@host:1884/", Address("mqtt", "host", 1884, "/", "user", "p@w")),
        ("mqtts://host", Address("mqtts", "host", 8883)),
        ("mqtt://[::1]:1883", Address("mqtt", "::1", 1883)),
        ("ws://host:8083/mqtt", Address("ws", "host", 8083, "/mqtt")),
        ("wss://host/mqtt?a=b", Address("wss", "host", 443, "/mqtt?a=b")),
        ("ws://host", Address("ws", "host", 80)),
    ],
)
def test_what_a_url_says(url: str, address: Address) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:1883", "expected mqtt://, mqtts://, ws:// or wss:// and a host"),
        ("http://host", "got 'http://host'"),
        ("mqtt://", "and a host"),
        ("mqtt://:1883", "expected a host"),
        ("mqtt://host:port", "expected a URL such as"),
        ("mqtt://host:99999", "expected a URL such as"),
        ("mqtt://host/path", "expected no path"),
        ("mqtt://[::1", "expected a URL such as"),
    ],
)
def test_what_is_no_url_of_a_server(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse_address(url)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(ValueError, match="got 'host'") as caught:
        parse_address("http://user:secret@host")
    assert "secret" not in str(caught.value)
    assert "secret" not in parse_address("mqtt://user:secret@host").url


def test_the_place_can_be_parsed_again() -> None:
    for url in ("mqtt://[::1]:1883", "ws://host:80/mqtt?a=b", "mqtts://host:8883"):
        assert parse_address(url).url == url

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from accord.runtime.transports.interface import certified_names, is_loopback, remote_of


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "::ffff:192.0.2.1", "fe80::1%eth0", "10.0.0.1", "::", "", "localhost"]
)
def test_other_machines(address: str) -> None:
    assert not is_loopback(address)


def test_names_of_a_certificate() -> None:
    certificate = {
        "subject": ((("organizationName", "Accord"),), (("commonName", "berlin"),)),
        "subjectAltName": (("DNS", "berlin"), ("IP Address", "192.0.2.1"), ("DNS", "b.example")),
    }
    assert certified_names(certificate) == ("berlin", "b.example")
    assert certified_names({}) == certified_names(None) == ()


@pytest.mark.parametrize(
    ("peer", "address"), [(("::1", 7, 0, 0), "::1"), ("/run/socket", "/run/socket"), (None, "")]
)
def test_addresses(peer: Any, address: str) -> None:
    remote = remote_of(asyncio.Transport({"peername": peer}))
    assert remote.address == address
    assert remote.is_loopback == (address == "::1")

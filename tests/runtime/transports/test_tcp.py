from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.certificates import make_certificate
from tests.runtime.transports.recording import Recorder, until

from accord.runtime.transports.interface import remote_of
from accord.runtime.transports.tcp import TcpTransport


async def exchange(accepting: TcpTransport, dialing: TcpTransport) -> tuple[Recorder, Recorder]:
    one, other = Recorder(), Recorder()
    listener = await accepting.listen("127.0.0.1", 0, lambda: other)
    assert listener.host == "127.0.0.1"
    try:
        await dialing.dial("127.0.0.1", listener.port, lambda: one)
        one.write(b"there")
        await until(lambda: other.data == b"there")
        other.write(b"back")
        await until(lambda: one.data == b"back")
    finally:
        listener.close()
    assert one.transport is not None
    assert other.transport is not None
    return one, other


async def hang_up(one: Recorder, other: Recorder) -> None:
    assert one.transport is not None
    one.transport.close()
    await until(lambda: one.is_lost and other.is_lost)


def test_tcp() -> None:
    async def main() -> None:
        one, other = await exchange(TcpTransport(), TcpTransport())
        assert one.transport is not None
        remote = remote_of(one.transport)
        assert (remote.address, remote.is_loopback) == ("127.0.0.1", True)
        assert not remote.is_encrypted
        assert remote.certified == ()
        await hang_up(one, other)

    asyncio.run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        listener = await TcpTransport().listen("127.0.0.1", 0, Recorder)
        with pytest.raises(OSError, match="in use"):
            await TcpTransport().listen("127.0.0.1", listener.port, Recorder)
        listener.close()
        await asyncio.sleep(0)
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await TcpTransport().dial("127.0.0.1", listener.port, Recorder)

    asyncio.run(main())


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Both sides show the same certificate, for the node `name`."""
    certificate, key = make_certificate(folder, name)
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.verify_mode = ssl.CERT_REQUIRED
    dialing = ssl.create_default_context()
    for context in (accepting, dialing):
        context.load_verify_locations(certificate)
        context.load_cert_chain(certificate, key)
    return accepting, dialing


def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    async def main() -> None:
        accepting, dialing = contexts(tmp_path, "berlin")
        one, other = await exchange(
            TcpTransport(accepting=accepting), TcpTransport(dialing=dialing)
        )
        for side in (one, other):
            assert side.transport is not None
            remote = remote_of(side.transport)
            assert remote.is_encrypted
            assert remote.certified == ("berlin", "localhost")
        await hang_up(one, other)

    asyncio.run(main())


def test_who_has_no_certificate_gets_no_connection(tmp_path: Path) -> None:
    async def main() -> None:
        accepting, dialing = contexts(tmp_path, "berlin")
        bare = ssl.create_default_context(cafile=str(tmp_path / "berlin.pem"))
        strangers: list[Recorder] = []

        def accept() -> Recorder:
            strangers.append(Recorder())
            return strangers[-1]

        listener = await TcpTransport(accepting=accepting).listen("127.0.0.1", 0, accept)
        untrusting = ssl.create_default_context()
        with pytest.raises(ssl.SSLError):
            await TcpTransport(dialing=untrusting).dial("127.0.0.1", listener.port, Recorder)
        one = Recorder()
        # With TLS 1.3 who dials learns only afterwards that it was not accepted.
        bare.maximum_version = ssl.TLSVersion.TLSv1_3
        await TcpTransport(dialing=bare).dial("127.0.0.1", listener.port, lambda: one)
        await until(lambda: one.is_lost)
        assert all(each.transport is None for each in strangers)
        listener.close()
        assert dialing.check_hostname

    asyncio.run(main())

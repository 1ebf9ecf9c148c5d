from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.certificates import make_certificate

from accord.runtime.tls import TlsError, TlsFiles, server_context


def files(folder: Path, **changes: str) -> TlsFiles:
    certificate, key = make_certificate(folder)
    return TlsFiles(**{"certificate": str(certificate), "key": str(key)} | changes)


async def greet(server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    """What a client hears from a server that greets; nothing where either refuses the other."""

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        try:
            return await reader.read()
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            writer.close()


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


def test_a_client_that_trusts_the_certificate_connects(tmp_path: Path) -> None:
    made = files(tmp_path)
    context = server_context(made)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert asyncio.run(greet(context, trusting(made.certificate))) == b"hello"


def test_certificate_and_key_may_share_a_file(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    context = server_context(TlsFiles(certificate=str(both)))
    assert asyncio.run(greet(context, trusting(str(both)))) == b"hello"


def test_clients_show_certificates_where_an_authority_is_set(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "client")
    made = files(tmp_path, client_ca=str(certificate))
    client = trusting(made.certificate)
    assert asyncio.run(greet(server_context(made), client)) == b""
    client.load_cert_chain(certificate, key)
    assert asyncio.run(greet(server_context(made), client)) == b"hello"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    for made in (
        files(tmp_path, certificate=missing),
        files(tmp_path, key=missing),
        files(tmp_path, client_ca=missing),
    ):
        with pytest.raises(TlsError) as error:
            server_context(made)
        assert str(error.value) == f"{missing}: no such file or directory; check the path"


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\xff\0 nothing")
    for made, expected in (
        (files(tmp_path, certificate=str(garbage)), "expected a certificate in PEM format"),
        (files(tmp_path, key=str(garbage)), "expected a private key in PEM format"),
        (files(tmp_path, client_ca=str(garbage)), "expected certificates in PEM format"),
    ):
        with pytest.raises(TlsError) as error:
            server_context(made)
        assert (error.value.file, error.value.problem) == (str(garbage), expected)


def test_a_damaged_certificate_is_named(tmp_path: Path) -> None:
    made = files(tmp_path)
    damaged = Path(made.certificate)
    damaged.write_text(damaged.read_text().replace("M", "N"))
    with pytest.raises(TlsError, match="can't be read, expected both in PEM format"):
        server_context(made)


def test_a_key_of_another_certificate(tmp_path: Path) -> None:
    _, other = make_certificate(tmp_path, "other")
    made = files(tmp_path, key=str(other))
    with pytest.raises(TlsError, match=r"other\.key: is not the private key of .*localhost\.pem"):
        server_context(made)


def test_a_key_with_a_passphrase_is_not_asked_for(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, passphrase=b"secret")
    with pytest.raises(TlsError, match="expected a private key without a passphrase"):
        server_context(TlsFiles(certificate=str(certificate), key=str(key)))


def test_an_expired_certificate(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, days=-1)
    with pytest.raises(TlsError, match="certificate has expired"):
        server_context(TlsFiles(certificate=str(certificate), key=str(key)))

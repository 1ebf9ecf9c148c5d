"""TLS for the node's listeners and links, from files.

A certificate that is expired, or not meant for servers, loads without error and then fails for
each client. The files are therefore tried in an in-memory handshake with this process: whatever a
client would reject is an error at start.

On links, one certificate identifies a node, whichever side opened the connection. It is for the
node's name, not for a host. If the nodes' authority is configured, the transport only checks that
the certificate was issued by it, and the link's handshake compares the names. Without an authority,
the system's trust store and host names apply, and a shared key is needed as well.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from accord.core.model.errors import AccordError, file_problem


class TlsFiles(Struct, frozen=True, kw_only=True):
    """Certificates for the encrypted listeners, as PEM files."""

    certificate: Annotated[
        str,
        Meta(
            description="The node's certificate, then those that lead to its authority.",
            extra={"kind": "path"},
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(description="Its private key; if left out, in the same file.", extra={"kind": "path"}),
    ] = ""
    client_ca: Annotated[
        str,
        Meta(
            description="Authorities whose certificates clients must show; none if left out.",
            extra={"kind": "path"},
        ),
    ] = ""


class TlsError(AccordError):
    """A TLS file can't be used."""

    def __init__(self, file: str, problem: str) -> None:
        self.file = file
        self.problem = problem
        super().__init__(f"{file}: {problem}")


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Context for listeners: TLS 1.2 or later; client certificates if an authority is set."""
    _try_out(_with_certificate(files), files)
    context = _with_certificate(files)
    if files.client_ca:
        _read(files.client_ca)
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError:
            raise TlsError(files.client_ca, "expected certificates in PEM format") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _with_certificate(files: TlsFiles) -> ssl.SSLContext:
    key = files.key or files.certificate
    if "CERTIFICATE" not in _read(files.certificate):
        raise TlsError(files.certificate, "expected a certificate in PEM format")
    if "PRIVATE KEY" not in _read(key):
        raise TlsError(key, "expected a private key in PEM format")
    if "ENCRYPTED" in _read(key):
        raise TlsError(key, "expected a private key without a passphrase")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise TlsError(key, f"is not the private key of {files.certificate}") from None
        problem = "certificate and key can't be read, expected both in PEM format"
        raise TlsError(files.certificate, f"{problem} ({error.reason or error})") from None
    return context


def _read(file: str) -> str:
    try:
        return Path(file).read_text("ascii", errors="replace")
    except OSError as error:
        raise TlsError(file, file_problem(error)) from None


def _try_out(context: ssl.SSLContext, files: TlsFiles) -> None:
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    # The certificate is its own trust anchor: whether clients know its authority is not checked.
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client_context.load_verify_locations(files.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    try:
        for _ in range(10):
            if _has_shaken_hands(client) & _has_shaken_hands(server):
                return
    except ssl.SSLCertVerificationError as error:
        raise TlsError(files.certificate, error.verify_message) from None
    except ssl.SSLError as error:
        raise TlsError(files.certificate, f"is not usable ({error.reason or error})") from None
    raise TlsError(files.certificate, "is not usable: a TLS handshake with it does not complete")


def _has_shaken_hands(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def link_contexts(files: TlsFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts for accepted and for dialled connections."""
    accepting = server_context(files)
    if not files.client_ca:
        return accepting, ssl.create_default_context()
    dialing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialing.minimum_version = ssl.TLSVersion.TLSv1_2
    dialing.check_hostname = False
    try:
        dialing.load_verify_locations(files.client_ca)
        dialing.load_cert_chain(files.certificate, files.key or None)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(files.certificate, f"can't be used for links ({error})") from None
    return accepting, dialing

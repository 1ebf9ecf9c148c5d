"""TLS for links: one certificate identifies a node, whichever side opened the connection.

A node's certificate is for its name, not for a host. If the nodes' authority is configured, the
transport only checks that the certificate was issued by it, and the link's handshake compares the
names. Without an authority, the system's trust store and host names apply, and a shared key is
needed as well.
"""

from __future__ import annotations

import ssl

from accord.runtime.tls import TlsError, TlsFiles, server_context


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

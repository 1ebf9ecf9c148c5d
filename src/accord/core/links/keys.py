"""Keys that authenticate the ends of a link and protect its datagrams.

A proof is an HMAC over both Hello messages, exactly as sent, and the role of its sender. Each Hello
contains a fresh nonce, so a proof cannot be replayed in another session; as the roles differ, it
cannot be reflected to its sender. Each Hello names the supported versions, so an attacker in the
middle cannot force a downgrade.

The proof authenticates the opening of the connection, not later traffic: where an attacker could
modify that, links need TLS. (Datagrams are authenticated one by one.)
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

DIALER: Final = b"dialer"
LISTENER: Final = b"listener"
ID_BYTES: Final = 8


class SharedKey:
    """Secret of any length, common to all nodes of a network; empty means no key."""

    __slots__ = ("_secret", "is_set")

    def __init__(self, key: bytes = b"") -> None:
        self.is_set = bool(key)
        # Hashed, because HMAC does not distinguish a short key from the same padded with zeros.
        self._secret = hashlib.sha256(b"accord link key" + key).digest()

    def __repr__(self) -> str:
        return f"SharedKey({'…' if self.is_set else ''})"

    def proof(self, role: bytes, transcript: bytes) -> bytes:
        return hmac.digest(self._secret, _labelled(b"proof", role, transcript), "sha256")

    def is_proof(self, mac: bytes, role: bytes, transcript: bytes) -> bool:
        return hmac.compare_digest(mac, self.proof(role, transcript))

    def datagram_key(self, sender: bytes, transcript: bytes) -> DatagramKey:
        """Key for datagrams sent by the end with the role `sender` in this session."""
        known = hmac.digest(self._secret, _labelled(b"extract", transcript), "sha256")
        return DatagramKey(
            hmac.digest(known, _labelled(b"datagram id", sender), "sha256")[:ID_BYTES],
            hmac.digest(known, _labelled(b"datagram key", sender), "sha256"),
        )

    def group_key(self, group: str) -> DatagramKey:
        """Key for datagrams of all nodes with this shared key to a multicast group."""
        return DatagramKey(
            hmac.digest(self._secret, _labelled(b"group id", group.encode()), "sha256")[:ID_BYTES],
            hmac.digest(self._secret, _labelled(b"group key", group.encode()), "sha256"),
        )


class DatagramKey:
    """Key of one direction or group, with the ID that marks its datagrams in clear text."""

    __slots__ = ("id", "secret")

    def __init__(self, id_: bytes, secret: bytes) -> None:
        self.id = id_
        self.secret = secret

    def __repr__(self) -> str:
        return f"DatagramKey({self.id.hex()})"


def transcript_of(dialer_hello: bytes, listener_hello: bytes) -> bytes:
    return _labelled(dialer_hello, listener_hello)


def _labelled(*parts: bytes) -> bytes:
    """Unambiguous concatenation: each part is prefixed with its length."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)

"""What proves who is at the other end of a link, and what protects its datagrams.

A proof is an HMAC over both greetings, byte by byte as they were sent, and the role of who gives
it. Both greetings contain a fresh random number, so no proof fits a second conversation; as the
roles differ, nobody's own proof can be sent back to him. The greetings name the versions, so
nobody on the way can talk two nodes down to an older one.

The proof tells who opened the connection, not who writes to it later: where others could change
what is on its way, links need TLS. (Datagrams are protected one by one.)
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

DIALER: Final = b"dialer"
LISTENER: Final = b"listener"
ID_BYTES: Final = 8


class SharedKey:
    """Secret bytes of any length that all nodes of a network have; none at all: no key."""

    __slots__ = ("_secret", "is_set")

    def __init__(self, key: bytes = b"") -> None:
        self.is_set = bool(key)
        # Hashed, because to HMAC a short key and the same with zeros behind it are one.
        self._secret = hashlib.sha256(b"accord link key" + key).digest()

    def __repr__(self) -> str:
        return f"SharedKey({'…' if self.is_set else ''})"

    def proof(self, role: bytes, transcript: bytes) -> bytes:
        return hmac.digest(self._secret, _labelled(b"proof", role, transcript), "sha256")

    def is_proof(self, mac: bytes, role: bytes, transcript: bytes) -> bool:
        return hmac.compare_digest(mac, self.proof(role, transcript))

    def datagram_key(self, sender: bytes, transcript: bytes) -> DatagramKey:
        """For what the one with the role `sender` sends in this conversation."""
        known = hmac.digest(self._secret, _labelled(b"extract", transcript), "sha256")
        return DatagramKey(
            hmac.digest(known, _labelled(b"datagram id", sender), "sha256")[:ID_BYTES],
            hmac.digest(known, _labelled(b"datagram key", sender), "sha256"),
        )

    def group_key(self, group: str) -> DatagramKey:
        """For what all nodes with this key send to a multicast group."""
        return DatagramKey(
            hmac.digest(self._secret, _labelled(b"group id", group.encode()), "sha256")[:ID_BYTES],
            hmac.digest(self._secret, _labelled(b"group key", group.encode()), "sha256"),
        )


class DatagramKey:
    """The key of one direction or of a group, and what tells, in clear, whose a datagram is."""

    __slots__ = ("id", "secret")

    def __init__(self, id_: bytes, secret: bytes) -> None:
        self.id = id_
        self.secret = secret

    def __repr__(self) -> str:
        return f"DatagramKey({self.id.hex()})"


def transcript_of(dialer_hello: bytes, listener_hello: bytes) -> bytes:
    return _labelled(dialer_hello, listener_hello)


def _labelled(*parts: bytes) -> bytes:
    """Put together so that no other parts give the same."""
    return b"".join(len(part).to_bytes(4) + part for part in parts)

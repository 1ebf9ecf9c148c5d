"""Handshake of a link: mutual challenge-response authentication with a shared key.

    dialer     Hello →        → Proof
    listener           ← Hello         ← Proof

The dialler sends its Hello and its proof first: an unauthenticated client that connects learns
nothing that depends on the key. The listener's proof also means acceptance; with it the link is up
for both. Either end may close at any step, with a reason.

Without a shared key, trust follows from the connection alone: nodes whose certificate, verified by
the transport, is for the name they give; without certificates, all programs on the same machine.

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
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.messages import (
    MAGIC,
    MAX_VERSION,
    MIN_VERSION,
    NONCE_BYTES,
    SECONDARY,
    Hello,
    LinkMessage,
    Proof,
    encode_link_message,
)
from accord.core.links.options import name_problem

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


_NO_FEATURES: Final[dict[str, int]] = {}


class LocalIdentity(Struct, frozen=True, kw_only=True):
    """This node, as it presents itself to others."""

    node: str
    incarnation: int
    key: SharedKey = SharedKey()
    min_version: int = MIN_VERSION
    max_version: int = MAX_VERSION
    features: dict[str, int] = _NO_FEATURES


class RemoteEndpoint(Struct, frozen=True, kw_only=True):
    """The peer, as the transport knows it; `certified` are the names in its certificate.

    `expected` is the only acceptable node, empty for any.
    """

    address: str
    is_loopback: bool = False
    is_encrypted: bool = False
    certified: tuple[str, ...] = ()
    expected: str = ""


class LinkPeer(Struct, frozen=True, kw_only=True):
    """The authenticated node at the other end; `is_dialed`: this node opened the link."""

    node: str
    incarnation: int
    version: int
    is_dialed: bool
    features: dict[str, int]
    sending: DatagramKey
    receiving: DatagramKey


# Why an authenticated node cannot be a neighbour now; None: it can.
Admit = Callable[[LinkPeer], LinkError | None]


class LinkHandshake:
    """One end of the handshake; `outgoing` holds encoded messages, failures raise `LinkError`."""

    def __init__(
        self,
        local: LocalIdentity,
        remote: RemoteEndpoint,
        *,
        is_dialer: bool,
        nonce: bytes,
        admit: Admit,
    ) -> None:
        self.outgoing: list[bytes] = []
        self._local = local
        self._remote = remote
        self._is_dialer = is_dialer
        self._admit = admit
        self._hello = Hello(
            MAGIC,
            local.min_version,
            local.max_version,
            local.node,
            local.incarnation,
            nonce,
            local.key.is_set,
            local.features,
        )
        self._encoded_hello = encode_link_message(self._hello)
        self._peer_hello: Hello | None = None
        self._transcript = b""

    def start(self) -> None:
        """The connection is open: check that authentication is possible; the dialler greets."""
        local, remote = self._local, self._remote
        if not (local.key.is_set or remote.is_loopback or remote.certified):
            problem = "without a shared key or certificates only nodes of the same machine link"
            raise LinkError(CloseReason.NO_KEY, problem)
        if self._is_dialer:
            self.outgoing.append(self._encoded_hello)

    def receive(self, message: LinkMessage, encoded: bytes) -> LinkPeer | None:
        """Process the peer's next message; returns the peer when the handshake is complete."""
        other = self._peer_hello
        if other is None:
            if not isinstance(message, Hello):
                raise LinkError(CloseReason.GARBAGE, "expected a greeting first")
            self._on_hello(message, encoded)
            return None
        if not isinstance(message, Proof):
            raise LinkError(CloseReason.GARBAGE, "expected a proof after the greeting")
        return self._on_proof(message, other)

    def _on_hello(self, hello: Hello, encoded: bytes) -> None:
        self._check(hello)
        self._peer_hello = hello
        key = self._local.key
        if self._is_dialer:
            self._transcript = transcript_of(self._encoded_hello, encoded)
            proof = Proof(key.proof(DIALER, self._transcript))
            self.outgoing.append(encode_link_message(proof))
        else:
            self._transcript = transcript_of(encoded, self._encoded_hello)
            self.outgoing.append(self._encoded_hello)

    def _on_proof(self, proof: Proof, other: Hello) -> LinkPeer:
        key = self._local.key
        role, other_role = (DIALER, LISTENER) if self._is_dialer else (LISTENER, DIALER)
        if not key.is_proof(proof.mac, other_role, self._transcript):
            raise LinkError(CloseReason.KEY, f"shared key mismatch with node {other.node}")
        neighbour = LinkPeer(
            node=other.node,
            incarnation=other.incarnation,
            version=min(self._local.max_version, other.max_version),
            is_dialed=self._is_dialer,
            features=other.features,
            sending=key.datagram_key(role, self._transcript),
            receiving=key.datagram_key(other_role, self._transcript),
        )
        refused = self._admit(neighbour)
        if refused is not None:
            raise refused
        if not self._is_dialer:
            answer = Proof(key.proof(role, self._transcript))
            self.outgoing.append(encode_link_message(answer))
        return neighbour

    def _check(self, hello: Hello) -> None:
        local = self._local
        if hello.magic != MAGIC:
            raise LinkError(CloseReason.GARBAGE, "expected the greeting of a node")
        if (
            hello.min_version > local.max_version
            or hello.max_version < local.min_version
            or hello.min_version > hello.max_version
        ):
            problem = (
                f"node {local.node} speaks versions {local.min_version} to {local.max_version} "
                f"of the link protocol, the other {hello.min_version} to {hello.max_version}"
            )
            raise LinkError(CloseReason.VERSION, problem)
        problem = name_problem(hello.node)
        if problem:
            raise LinkError(CloseReason.NAME, problem)
        if len(hello.nonce) != NONCE_BYTES or hello.nonce == self._hello.nonce:
            raise LinkError(CloseReason.GARBAGE, "expected a fresh nonce in the greeting")
        if hello.node == local.node:
            if hello.incarnation == local.incarnation:
                raise LinkError(CloseReason.ITSELF, f"node {local.node} connected to itself")
            raise LinkError(CloseReason.SAME_NAME, f"both nodes have the name {local.node}")
        if self._remote.expected not in ("", hello.node):
            problem = f"expected node {self._remote.expected} there, found {hello.node}"
            raise LinkError(CloseReason.OTHER, problem)
        if SECONDARY in hello.features and SECONDARY in local.features:
            problem = f"nodes {local.node} and {hello.node} are both secondary"
            raise LinkError(CloseReason.TIER, problem)
        self._check_trust(hello)

    def _check_trust(self, hello: Hello) -> None:
        local, remote = self._local, self._remote
        if hello.has_key != local.key.is_set:
            with_key, without = (
                (local.node, hello.node) if local.key.is_set else (hello.node, local.node)
            )
            problem = f"node {with_key} asks for a shared key, and node {without} has none"
            raise LinkError(CloseReason.KEY, problem)
        is_trusted = hello.node in remote.certified if remote.certified else remote.is_loopback
        if local.key.is_set or is_trusted:
            return
        names = ", ".join(remote.certified)
        problem = f"node {hello.node} has a certificate for {names} only"
        raise LinkError(CloseReason.CERTIFICATE, problem)

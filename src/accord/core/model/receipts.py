"""Receipts: capability tokens that authorise feedback to the source of an event.

A receipt states which client of which node published which event on which channel, and the
correlation data that the client wants with each feedback. The node signs it (HMAC-SHA256) with a
secret that never leaves it, so nobody else can make or change a receipt. The holder may send
feedback any number of times; the receipt is valid as long as the node keeps its secret.

It also has the client's user as a keyed digest, which reveals nothing to others: if another user
takes over a client's name, feedback to the former user is not delivered to them.

A receipt is text that can be a topic level. Its encoding is canonical, so that any change is
detected.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from accord.core.model.errors import AccordError, EventError

VERSION: Final = 1
MAX_CORRELATION: Final = 1_024
MAX_CHARACTERS: Final = 8_192
SECRET_BYTES: Final = 32
_MAC_BYTES: Final = 32
_OWNER_BYTES: Final = 8


class Receipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content of a receipt; `event` is its number at `node`, `correlation` None if not given."""

    node: str
    client: str
    event: int
    channel: str
    correlation: bytes | None
    owner: bytes


class ReceiptError(AccordError):
    """An invalid receipt; `is_forged` if it is well-formed but was not signed by this node."""

    def __init__(self, problem: str, *, is_forged: bool = False) -> None:
        self.problem = problem
        self.is_forged = is_forged
        super().__init__(problem)


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Receipt)


class ReceiptSigner:
    """Makes and verifies the receipts of one node; `secret` has at least `SECRET_BYTES`."""

    def __init__(self, node: str, secret: bytes) -> None:
        if len(secret) < SECRET_BYTES:
            raise ValueError(f"secret: expected {SECRET_BYTES} bytes at least, got {len(secret)}")
        self.node = node
        self._secret = secret

    def __repr__(self) -> str:
        return f"Receipts({self.node!r})"

    def make(
        self, client: str, owner: str, event: int, channel: str, correlation: bytes | None
    ) -> str:
        """Return the receipt of an event of this node; EventError if it would be too long."""
        if correlation is not None and len(correlation) > MAX_CORRELATION:
            problem = f"{len(correlation)} bytes, at most {MAX_CORRELATION} with feedback"
            raise EventError("correlation data", problem)
        receipt = Receipt(self.node, client, event, channel, correlation, self._digest(owner))
        body = bytes((VERSION,)) + _encode(receipt)
        text = urlsafe_b64encode(body + self._mac(body)).decode().rstrip("=")
        if len(text) > MAX_CHARACTERS:
            size = f"{len(channel)} characters, with a client's of {len(client)}"
            raise EventError("channel", f"{size}: too long for feedback")
        return text

    def verify(self, text: str) -> Receipt:
        """Return the content; ReceiptError if it was not signed by this node."""
        receipt, body, mac = _split(text)
        if not hmac.compare_digest(mac, self._mac(body)) or receipt.node != self.node:
            raise ReceiptError("the receipt was not made by this node", is_forged=True)
        return receipt

    def belongs_to(self, receipt: Receipt, owner: str) -> bool:
        """Check whether the client belonged to user `owner`."""
        return hmac.compare_digest(receipt.owner, self._digest(owner))

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, b"accord receipt\0" + body, "sha256")

    def _digest(self, owner: str) -> bytes:
        return hmac.digest(self._secret, b"accord owner\0" + owner.encode(), "sha256")[
            :_OWNER_BYTES
        ]


def parse_receipt(text: str) -> Receipt:
    """Return the content without verifying it; ReceiptError if it is malformed."""
    return _split(text)[0]


def _split(text: str) -> tuple[Receipt, bytes, bytes]:
    """Return the receipt, its signed bytes, and the signature."""
    if not text:
        raise ReceiptError("expected a receipt, got none")
    if len(text) > MAX_CHARACTERS:
        raise ReceiptError(f"a receipt of {len(text)} characters, at most {MAX_CHARACTERS}")
    raw = _decoded(text)
    body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    if not body:
        raise ReceiptError("the receipt is cut off")
    if body[0] != VERSION:
        raise ReceiptError(f"a receipt of version {body[0]}, expected {VERSION}")
    try:
        return _decoder.decode(body[1:]), body, mac
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ReceiptError("the receipt can't be read") from None


def _decoded(text: str) -> bytes:
    try:
        raw = b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ReceiptError("the receipt is cut off, or not a receipt at all") from None
    if urlsafe_b64encode(raw).decode().rstrip("=") != text:
        raise ReceiptError("the receipt is not written as it was given")
    return raw

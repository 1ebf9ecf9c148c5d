"""Page token: a query with the cursor of its last page, sufficient to continue, as one text.

It comes from outside and grants no rights: the client that sends it must be allowed to query.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec
from msgspec import Struct

from accord.core.queries.messages import EventQuery

MAX_TOKEN: Final = 200_000


class _Token(Struct, frozen=True, array_like=True):
    ask: EventQuery
    cursor: str


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_Token)


def encode_token(ask: EventQuery, cursor: str) -> str:
    """Returns "" if there are no more pages."""
    if not cursor:
        return ""
    return urlsafe_b64encode(_encode(_Token(ask, cursor))).rstrip(b"=").decode()


def decode_token(text: str) -> tuple[EventQuery, str]:
    """The query, and the cursor of its last page; ValueError if the token is invalid."""
    try:
        if len(text) > MAX_TOKEN:
            raise ValueError
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        token = _decoder.decode(data)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise ValueError("expected the cursor of a page, just as it was given") from None
    return token.ask, token.cursor

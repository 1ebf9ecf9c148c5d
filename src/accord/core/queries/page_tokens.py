"""A page's cursor together with what was asked: all that is needed to go on, in one text.

It comes back from outside, so it gives no rights: whoever shows it must still be allowed to ask.
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
    """ "" where there are no more pages."""
    if not cursor:
        return ""
    return urlsafe_b64encode(_encode(_Token(ask, cursor))).rstrip(b"=").decode()


def decode_token(text: str) -> tuple[EventQuery, str]:
    """What was asked, and the cursor of the last page; ValueError for what is none."""
    try:
        if len(text) > MAX_TOKEN:
            raise ValueError
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        token = _decoder.decode(data)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise ValueError("expected the cursor of a page, just as it was given") from None
    return token.ask, token.cursor

"""What others said and could not have."""

from __future__ import annotations

import msgspec
import pytest

from accord.core.model.errors import decode_or_none

DECODER = msgspec.msgpack.Decoder(tuple[str, int])


def test_what_is_understood() -> None:
    assert decode_or_none(DECODER, msgspec.msgpack.encode(("a", 1))) == ("a", 1)


# Nothing, too little, another type, and text that is not UTF-8.
@pytest.mark.parametrize("said", [b"", b"\x92\xa1a", b"\x92\1\1", b"\x92\xa1\xff\1"])
def test_what_is_not(said: bytes) -> None:
    assert decode_or_none(DECODER, said) is None


def test_what_is_too_deep() -> None:
    assert decode_or_none(msgspec.msgpack.Decoder(), b"\x91" * 100_000) is None

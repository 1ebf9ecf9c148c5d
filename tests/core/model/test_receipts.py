from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.errors import EventError
from accord.core.model.receipts import (
    MAX_CHARACTERS,
    MAX_CORRELATION,
    Receipt,
    ReceiptError,
    ReceiptSigner,
    parse_receipt,
)

SECRET = bytes(range(32))
DENVER = ReceiptSigner("denver", SECRET)
TEXT = DENVER.make("camera", "ada", 7, "uav/imagery", b"mine")
names = st.text(st.characters(codec="utf-8"), max_size=40)


def test_a_receipt_says_whose_event_it_is() -> None:
    receipt = DENVER.verify(TEXT)
    assert receipt == parse_receipt(TEXT)
    assert (receipt.node, receipt.client, receipt.event) == ("denver", "camera", 7)
    assert (receipt.channel, receipt.correlation) == ("uav/imagery", b"mine")
    assert DENVER.belongs_to(receipt, "ada")
    assert not DENVER.belongs_to(receipt, "bob")
    assert b"ada" not in urlsafe_b64decode(TEXT + "==")
    assert repr(DENVER) == "Receipts('denver')"


@given(names, names, st.integers(0, 2**64 - 1), names, st.none() | st.binary(max_size=99))
def test_what_is_made_is_verified_and_fits_into_a_topic(
    client: str, owner: str, event: int, channel: str, correlation: bytes | None
) -> None:
    text = DENVER.make(client, owner, event, channel, correlation)
    receipt = DENVER.verify(text)
    assert receipt.correlation == correlation
    assert (receipt.client, receipt.event, receipt.channel) == (client, event, channel)
    assert DENVER.belongs_to(receipt, owner)
    assert text.isascii()
    assert not any(mark in text for mark in "/+#$= ")


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="utf-8"))
def test_whatever_is_changed_is_noticed(place: int, other: str) -> None:
    changed = TEXT[:place] + other + TEXT[place + 1 :]
    if changed == TEXT:
        return
    with pytest.raises(ReceiptError):
        DENVER.verify(changed)


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_whatever_is_cut_off_is_noticed(length: int) -> None:
    with pytest.raises(ReceiptError):
        DENVER.verify(TEXT[:length])
    with pytest.raises(ReceiptError):
        DENVER.verify(TEXT + TEXT[:length] + "A")


@given(
    st.text(max_size=300) | st.binary(max_size=300).map(lambda raw: urlsafe_b64encode(raw).decode())
)
def test_anything_else_is_no_receipt(text: str) -> None:
    with pytest.raises(ReceiptError):
        DENVER.verify(text)


def test_only_the_node_itself_signs_its_receipts() -> None:
    for other in (ReceiptSigner("denver", SECRET[::-1]), ReceiptSigner("boston", SECRET)):
        text = other.make("camera", "ada", 7, "uav/imagery", b"mine")
        assert parse_receipt(text).client == "camera"
        with pytest.raises(ReceiptError, match="not made by this node") as caught:
            DENVER.verify(text)
        assert caught.value.is_forged
    body = b"\1" + msgspec.msgpack.encode(Receipt("denver", "camera", 7, "uav", None, b""))
    for key in (b"", b"denver"):
        mac = hmac.digest(key, body, "sha256")
        with pytest.raises(ReceiptError):
            DENVER.verify(urlsafe_b64encode(body + mac).decode().rstrip("="))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a receipt, got none"),
        ("A" * (MAX_CHARACTERS + 1), f"{MAX_CHARACTERS + 1} characters, at most {MAX_CHARACTERS}"),
        ("$", "not a receipt at all"),
        ("ü", "not a receipt at all"),
        ("\ud800", "not a receipt at all"),
        (TEXT[:8], "cut off"),
        (TEXT[:-1] + "h", "not written as it was given"),
        ("Ag" + "A" * 60, "version 2, expected 1"),
        ("AQ" + "A" * 60, "can't be read"),
    ],
)
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(ReceiptError, match=problem) as caught:
        DENVER.verify(text)
    assert not caught.value.is_forged


def test_sizes_are_bounded() -> None:
    longest = DENVER.make("camera", "", 7, "uav", bytes(MAX_CORRELATION))
    assert len(longest) <= MAX_CHARACTERS
    with pytest.raises(EventError, match="correlation data: 1025 bytes, at most 1024"):
        DENVER.make("camera", "", 7, "uav", bytes(MAX_CORRELATION + 1))
    with pytest.raises(EventError, match="channel: 9000 characters"):
        DENVER.make("camera", "", 7, "x" * 9_000, None)
    with pytest.raises(ValueError, match="expected 32 bytes at least, got 31"):
        ReceiptSigner("denver", bytes(31))

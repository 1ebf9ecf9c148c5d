from __future__ import annotations

import pytest
from tests.core.links.conversing import CODEC, Load, Note, encode, load

from accord.core.links.codec import LinkCodec, body_of
from accord.core.links.errors import CloseReason, LinkError


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_any_number_of_messages_in_a_body(count: int) -> None:
    messages = [Note(at % 100) for at in range(count)]
    assert CODEC.decode(body_of([encode(each) for each in messages])) == messages


def test_encoded_data_is_put_in_as_it_is() -> None:
    body = body_of([load(1), encode(Note(2, "ü"))])
    assert load(1) in body
    assert CODEC.decode(body) == [Load(1, b"\1" * 100), Note(2, "ü")]


def test_a_single_type_will_do() -> None:
    assert LinkCodec(Note).decode(body_of([encode(Note(1))])) == [Note(1)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        body_of([encode(Note(1))]) + b"\0",
        body_of([encode(["x", 1])]),  # no such tag
        body_of([encode(["n", "one"])]),
        body_of([b"\x93\xa1n\x01\xa2\xff\xff"]),  # text that is none
        b"\x91\x94\xa1n\x01\xa1x" + b"\x91" * 100_000,  # deeper than anybody can look
        b"\xdd\xff\xff\xff\xff",  # more than there is
    ],
)
def test_what_can_t_be_read(body: bytes) -> None:
    with pytest.raises(LinkError, match="a message that can't be read") as error:
        CODEC.decode(body)
    assert error.value.reason == CloseReason.GARBAGE
    with pytest.raises(LinkError):
        CODEC.decode_one(body)


def test_fields_that_newer_nodes_add_are_left_out() -> None:
    assert CODEC.decode(body_of([encode(["n", 1, "text", {"new": [1, 2]}])])) == [Note(1, "text")]

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.mqtt.codes import ProtocolError
from accord.core.mqtt.wire import (
    MAX_VARINT,
    binary_bytes,
    read_binary,
    read_string,
    read_varint,
    string_bytes,
    varint_bytes,
)


# Table 1-1 of the standard.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (MAX_VARINT, "ffffff7f"),
    ],
)
def test_variable_byte_integers(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert varint_bytes(value) == data
    assert read_varint(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_integers_that_do_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="expected 0 to 268435455"):
        varint_bytes(value)


@given(st.integers(0, MAX_VARINT))
def test_variable_byte_integers_come_back(value: int) -> None:
    data = b"x" + varint_bytes(value) + b"x"
    assert read_varint(data, 1, len(data)) == (value, len(data) - 1)


def test_a_string_may_begin_with_a_byte_order_mark() -> None:
    data = bytes.fromhex("0003 efbbbf")
    assert read_string(data, 0, 5) == ("\ufeff", 5)
    assert string_bytes("\ufeff") == data


@given(st.binary(max_size=20))
def test_binary_data_comes_back(block: bytes) -> None:
    data = binary_bytes(block)
    assert read_binary(data, 0, len(data)) == (block, len(data))


def test_the_end_is_where_the_caller_says() -> None:
    data = string_bytes("abc")
    with pytest.raises(ProtocolError, match="3 bytes, but 2 are left"):
        read_string(data, 0, 4)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.queries.messages import (
    MAX_FRAME,
    Cancel,
    EventQuery,
    FrameError,
    Page,
    PageFrames,
    PageQuery,
    QueryHit,
    decode_from_node,
    decode_from_pipeline,
    encode_frame,
)

QUERY = PageQuery(id=7, ask=EventQuery(channel="uav/#", where="altitude_m > 300", limit=5), rows=10)
PAGE = Page(id=7, events=(QueryHit(4, 9, 1, "uav/a", "me", 1, b"\x26", b"x"),), cursor="c")


def test_messages_come_back_as_they_were() -> None:
    bodies = PageFrames().feed(encode_frame(QUERY) + encode_frame(Cancel(7)))
    assert [decode_from_node(body) for body in bodies] == [QUERY, Cancel(7)]
    assert [decode_from_pipeline(body) for body in PageFrames().feed(encode_frame(PAGE))] == [PAGE]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_may_come_in_any_pieces(sizes: list[int]) -> None:
    data = encode_frame(QUERY) + encode_frame(PAGE)
    frames = PageFrames()
    bodies: list[bytes] = []
    for index in range(len(data)):
        size = sizes[index % len(sizes)]
        bodies += frames.feed(data[:size])
        data = data[size:]
    assert [decode_from_node(bodies[0]), decode_from_pipeline(bodies[1])] == [QUERY, PAGE]


def test_what_is_no_frame_is_said_to_be_none() -> None:
    with pytest.raises(FrameError, match="at most"):
        PageFrames().feed((MAX_FRAME + 1).to_bytes(4, "big"))
    for decode in (decode_from_node, decode_from_pipeline):
        with pytest.raises(FrameError):
            decode(b"\xc1")

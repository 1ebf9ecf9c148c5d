from __future__ import annotations

from random import Random

import pytest

from accord.core.links.codec import CONTROL, DATA, LINK, LinkFramer, frame
from accord.core.links.errors import CloseReason, LinkError


def take_all(framer: LinkFramer, data: bytes) -> list[tuple[int, bytes]]:
    framer.feed(data)
    taken = []
    while (found := framer.take()) is not None:
        taken.append((found[0], bytes(found[1])))
    return taken


def test_frames_come_out_as_they_were_put_in() -> None:
    framer = LinkFramer(100)
    sent = [(CONTROL, b"one"), (DATA, b""), (LINK, b"x" * 95)]
    assert take_all(framer, b"".join(frame(*each) for each in sent)) == sent
    assert framer.buffered_bytes == 0


def test_it_does_not_matter_how_the_stream_was_cut() -> None:
    random = Random(1)  # noqa: S311
    for _ in range(200):
        sent = [
            (random.randrange(5), random.randbytes(random.choice((0, 1, 3, 200))))
            for _ in range(random.randrange(1, 8))
        ]
        data = b"".join(frame(*each) for each in sent)
        framer = LinkFramer(1_000)
        taken = []
        while data:
            size = random.choice((1, 2, 5, 100, 1_000))
            taken += take_all(framer, data[:size])
            data = data[size:]
        assert taken == sent
        assert framer.buffered_bytes == 0


def test_a_frame_may_be_as_large_as_the_limit_and_no_larger() -> None:
    assert take_all(LinkFramer(100), frame(DATA, bytes(95))) == [(DATA, bytes(95))]
    framer = LinkFramer(100)
    framer.feed(frame(DATA, bytes(96))[:5])  # the header will do
    with pytest.raises(LinkError, match="a frame of 101 bytes, at most 100 accepted") as error:
        framer.take()
    assert error.value.reason == CloseReason.TOO_LARGE


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"\0\0\0\0\1", "without a class"), (b"\0\0\0\1\5", "the unknown class 5")],
)
def test_what_is_no_frame(data: bytes, problem: str) -> None:
    framer = LinkFramer(100)
    framer.feed(data)
    with pytest.raises(LinkError, match=problem):
        framer.take()


def test_the_limit_may_change_between_frames() -> None:
    framer = LinkFramer(10)
    framer.feed(frame(LINK, b"12345") + frame(DATA, bytes(50)))
    assert framer.take() is not None
    framer.limit = 100
    found = framer.take()
    assert found is not None
    assert (found[0], bytes(found[1])) == (DATA, bytes(50))


def test_an_unfinished_frame_is_all_that_is_kept() -> None:
    framer = LinkFramer(1_000)
    whole = frame(DATA, bytes(900))
    assert take_all(framer, whole + whole[:-1]) == [(DATA, bytes(900))]
    assert framer.buffered_bytes == len(whole) - 1
    framer.clear()
    assert framer.buffered_bytes == 0

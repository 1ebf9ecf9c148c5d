"""Whatever comes: a session raises nothing, keeps within its bounds, and ends with a reason."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.links.conversing import Ends, Note, Source, encode, linked, load
from tests.scenarios.fuzzing.mutations import mutate

from accord.core.links.codec import CONTROL, DATA, LAST, LINK, PART, frame, frame_of
from accord.core.links.messages import (
    DatagramReport,
    Hello,
    LinkClose,
    LinkMessage,
    Proof,
    encode_link_message,
)
from accord.core.links.options import LinkOptions
from accord.core.links.session import LinkSession

ROUNDS = 150
OPTIONS = LinkOptions(message_bytes=20_000, piece_bytes=3_000, control_bytes=20_000)


def feed(random: Random, session: LinkSession, data: bytes) -> None:
    """In pieces, as a network cuts it."""
    while data:
        size = random.choice((1, 3, 17, 200, 5_000, len(data)))
        session.receive(data[:size], 0)
        session.check_invariants()
        data = data[size:]
    if session.ended is not None:
        assert session.ended.problem
        assert session.receive(b"more", 0) == []
        assert session.buffered_bytes == 0
        last_words = b"".join(session.take_control(0))
        assert session.ended.is_from_peer or last_words
        assert len(last_words) < 5_000


def about_link() -> list[LinkMessage]:
    return [
        Hello("accord link", 1, 1, "athens", 1, b"n" * 32, True, {"udp": 1, "bytes": 1}),
        Proof(b"p" * 32),
        LinkClose("stopped", "node athens stops"),
        DatagramReport(5, 6),
    ]


def corpus() -> list[bytes]:
    """All kinds of frames."""
    return [
        *(frame(LINK, encode_link_message(message)) for message in about_link()),
        frame(LINK, b""),
        frame_of(CONTROL, [encode(Note(1, "text")), encode(Note(2))]),
        frame_of(DATA, [load(at, 30) for at in range(5)]),
        frame_of(DATA, []),
        frame(PART, load(1, 5_000)[:2_000]),
        frame(LAST, load(1, 5_000)[2_000:]),
    ]


@pytest.mark.parametrize("is_linked", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_random_bytes(seed: int, is_linked: bool) -> None:
    random = Random(seed)  # noqa: S311
    for _ in range(ROUNDS):
        ends = linked(OPTIONS, udp=1) if is_linked else Ends(options=OPTIONS)
        side = random.choice((ends.dialer, ends.listener))
        feed(random, side, random.randbytes(random.choice((1, 5, 50, 5_000))))
        side.receive_datagram(random.randbytes(random.randrange(100)))


@pytest.mark.parametrize("seed", range(4))
def test_random_bodies_in_proper_frames(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for _ in range(ROUNDS):
        ends = linked(OPTIONS, udp=1) if random.random() < 0.8 else Ends(options=OPTIONS)
        frames = [
            frame(random.randrange(5), random.randbytes(random.choice((0, 1, 10, 3_000))))
            for _ in range(5)
        ]
        feed(random, random.choice((ends.dialer, ends.listener)), b"".join(frames))


@pytest.mark.parametrize("seed", range(4))
def test_conversations_in_which_something_is_wrong(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    known = corpus()
    for _ in range(ROUNDS):
        ends = linked(OPTIONS, udp=1) if random.random() < 0.8 else Ends(options=OPTIONS)
        side = random.choice((ends.dialer, ends.listener))
        frames = random.choices(known, k=random.choice((1, 5, 20)))
        wrong = random.choice((0.0, 0.1, 1.0))
        feed(
            random,
            side,
            b"".join(
                mutate(random, each, known) if random.random() < wrong else each for each in frames
            ),
        )


@pytest.mark.parametrize("seed", range(4))
def test_handshakes_that_are_changed_on_the_way(seed: int) -> None:
    """Nobody gets a link by changing, leaving out or repeating what two nodes say."""
    random = Random(seed)  # noqa: S311
    known = corpus()
    for _ in range(ROUNDS):
        ends = Ends(options=OPTIONS)
        was_changed = is_behind = False
        for _turn in range(4):
            for one, other in ((ends.dialer, ends.listener), (ends.listener, ends.dialer)):
                data = b"".join(one.take_control(0))
                if data and not was_changed and random.random() < 0.5:
                    changed = random.choice((mutate(random, data, known), b"", data + data))
                    was_changed = changed != data
                    is_behind = changed.startswith(data)
                    data = changed
                other.receive(data, 0)
                other.check_invariants()
        both = (ends.dialer.neighbour, ends.listener.neighbour)
        assert was_changed or None not in both
        # What nobody can tell from a next message may come behind the last proof.
        assert None in both or not was_changed or is_behind


@pytest.mark.parametrize("seed", range(4))
def test_polite_conversations_arrive_whole(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for _ in range(20):
        ends = linked(OPTIONS)
        sizes = [random.choice((1, 100, 2_990, 3_000, 19_900)) for _ in range(30)]
        source = Source(*(load(at, size) for at, size in enumerate(sizes)))
        notes, data = 0, b""
        while source.messages or ends.dialer.has_waiting:
            for _ in range(random.choice((0, 1, 5))):
                ends.dialer.send(Note(notes))
                notes += 1
            data += b"".join(ends.dialer.take_control(0))
            frames = ends.dialer.take_data(random.choice((0, 1, 2_000, 9_000)), source.pull, 0)
            data += b"".join(frames)
            ends.dialer.check_invariants()
        received = []
        while data:
            size = random.choice((1, 50, 4_000))
            received += ends.listener.receive(data[:size], 0)
            ends.listener.check_invariants()
            data = data[size:]
        assert ends.listener.ended is None
        assert [each.number for each in received if isinstance(each, Note)] == list(range(notes))
        loads = [each for each in received if not isinstance(each, Note)]
        assert [(each.number, len(each.payload)) for each in loads] == list(enumerate(sizes))

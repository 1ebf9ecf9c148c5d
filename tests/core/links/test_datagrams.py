from __future__ import annotations

from random import Random

import pytest
from tests.core.links.conversing import CODEC, Ends, Load, Note, S, Source, encode, linked, load

from accord.core.links.datagrams import Datagrams, Opener, Sealer
from accord.core.links.handshake import DatagramKey, RemoteEndpoint
from accord.core.links.messages import DatagramReport
from accord.core.links.options import FrameCounts

KEY = DatagramKey(b"12345678", b"secret")


def sealer(datagram_bytes: int = 1_200) -> Sealer:
    return Sealer(KEY, datagram_bytes, FrameCounts())


def opener() -> Opener:
    return Opener(KEY, CODEC, FrameCounts())


def test_messages_are_packed_together() -> None:
    messages = [load(at, 100) for at in range(40)]
    datagrams, too_large = sealer().pack(messages)
    assert not too_large
    assert len(datagrams) == 4
    assert max(map(len, datagrams)) <= 1_200
    reader = opener()
    found = [message for datagram in datagrams for message in reader.open(datagram)]
    assert [message.number for message in found] == list(range(40))
    assert (reader.received, reader.lost, reader.highest) == (4, 0, 3)


@pytest.mark.parametrize("datagram_bytes", [100, 1_200, 9_000])
def test_the_largest_message_that_fits(datagram_bytes: int) -> None:
    writer = sealer(datagram_bytes)
    fits = bytes(writer.message_bytes)
    datagrams, too_large = writer.pack([fits, fits + b"\0", b"\0" * 16])
    assert too_large == [fits + b"\0"]
    assert len(datagrams) == 2
    assert datagram_bytes - 3 < len(datagrams[0]) <= datagram_bytes


def test_a_changed_datagram_is_refused() -> None:
    whole = sealer().seal([encode(Note(1))])
    reader = opener()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        assert reader.open(bytes(changed)) == []
    for size in range(len(whole)):
        assert reader.open(whole[:size]) == []
    assert reader.open(whole + b"\0") == []
    assert (reader.received, reader.highest) == (0, -1), "the number is not believed either"
    assert reader.refused == 2 * len(whole) + 1
    assert reader.open(whole) == [Note(1)]


def test_another_link_s_datagrams_are_refused() -> None:
    foreign = Sealer(DatagramKey(KEY.id, b"other"), 1_200, FrameCounts()).seal([encode(Note(1))])
    assert opener().open(foreign) == []


def test_what_can_t_be_read_is_counted() -> None:
    reader = opener()
    assert reader.open(sealer().seal([b"\xc1"])) == []
    assert reader.refused == 1


def test_each_datagram_counts_once_in_any_order() -> None:
    random = Random(3)  # noqa: S311
    writer = sealer()
    sent = [writer.seal([encode(Note(number))]) for number in range(3_000)]
    came = [each for each in sent if random.random() < 0.8]
    expected = len(came)
    arrivals = came + random.choices(came, k=500)
    # Out of order, but by less than the window.
    arrivals.sort(key=lambda each: int.from_bytes(each[8:16]) + random.randrange(900))
    reader = opener()
    numbers = [message.number for each in arrivals for message in reader.open(each)]
    assert len(numbers) == len(set(numbers)) == expected
    assert reader.replayed == 500
    assert reader.lost == reader.highest + 1 - expected


def test_what_is_older_than_the_window_is_not_believed() -> None:
    writer = sealer()
    sent = [writer.seal([]) for _ in range(2_000)]
    reader = opener()
    reader.open(sent[1_023])
    reader.open(sent[0])
    assert (reader.received, reader.replayed) == (2, 0)
    reader.open(sent[1_999])
    reader.open(sent[975])
    assert (reader.received, reader.replayed) == (3, 1)
    reader.open(sent[976])
    assert (reader.received, reader.lost) == (4, 1_996)


def both() -> Datagrams:
    return Datagrams(sealer(), opener(), report_us=S, now_us=0)


def test_datagrams_are_used_while_the_other_side_hears_them() -> None:
    one, other = both(), both()
    assert not one.is_open(0)
    probe, report = one.advance(0)
    assert probe is not None
    assert report is None, "nothing was heard"
    assert one.advance(S - 1) == (None, None)
    assert other.opener.open(probe) == []
    _, report = other.advance(S)
    assert report == DatagramReport(1, 0)
    one.on_report(report, S)
    assert one.is_open(4 * S)
    assert not one.is_open(4 * S + 1)


def test_whoever_sends_needs_no_probes() -> None:
    one = both()
    one.sealer.seal([])
    assert one.advance(0) == (None, None)
    probe, _ = one.advance(S)
    assert probe is not None


@pytest.mark.parametrize(
    "report",
    [DatagramReport(1, 5), DatagramReport(-1, 0), DatagramReport(1, -1), DatagramReport(0, -5)],
)
def test_reports_that_can_t_be_true_are_ignored(report: DatagramReport) -> None:
    one = both()
    one.sealer.seal([])
    one.on_report(report, 0)
    assert not one.is_open(0)


def test_the_sender_learns_its_loss() -> None:
    one = both()
    received = 0
    for number in range(200):
        one.sealer.seal([])
        received += number % 4 != 0
        if number % 20 == 19:
            one.on_report(DatagramReport(received, number), number)
    assert 0.15 < one.loss < 0.25


def test_a_session_uses_them_for_what_tolerates_loss() -> None:
    ends = linked(udp=1)
    source = Source(load(1, 500), load(2, 5_000), load(3, 500))
    for side in (ends.dialer, ends.listener):
        side.advance(0)
    assert len(datagrams := ends.dialer.take_datagrams(source.pull, 0)) == 1, "only a probe"
    assert source.asked == []
    assert ends.listener.receive_datagram(datagrams[0]) == []
    ends.now_us = S
    ends.listener.advance(S)
    ends.talk()
    datagrams = ends.dialer.take_datagrams(source.pull, S)
    assert len(datagrams) == 1
    found = ends.listener.receive_datagram(datagrams[0])
    assert found == [Load(1, b"\1" * 500), Load(3, b"\3" * 500)]
    ends.send_data(source)
    assert ends.to_listener == [Load(2, b"\2" * 5_000)], "it is too large for a datagram"
    assert ends.dialer.traffic.sent.datagrams == ends.listener.traffic.received.datagrams
    assert ends.listener.next_due_us() == 2 * S


def test_only_where_both_sides_want_them_and_nothing_is_hidden() -> None:
    assert linked().dialer.datagrams is None
    assert linked().listener.receive_datagram(bytes(100)) == []
    assert linked().listener.take_datagrams(Source(load(1)).pull, 0) == []
    encrypted = Ends(remote=RemoteEndpoint(address="192.0.2.1", is_encrypted=True))
    encrypted.talk()
    assert encrypted.dialer.neighbour is not None
    assert "udp" not in encrypted.dialer.neighbour.features

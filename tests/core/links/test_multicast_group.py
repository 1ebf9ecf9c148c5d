from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.links.conversing import CODEC, Load, encode

from accord.core.links.errors import LinkError
from accord.core.links.handshake import LocalIdentity, RemoteEndpoint, SharedKey
from accord.core.links.messages import GROUP, NONCE_BYTES, MulticastReport
from accord.core.links.multicast_group import MAX_ADDRESSES, MulticastGroup, MulticastPeer
from accord.core.links.options import LinkOptions
from accord.core.links.session import LinkSession

S = 1_000_000


def group(
    node: str = "athens", *, key: bytes = b"secret", place: str = "239.1.1.1:7"
) -> MulticastGroup:
    made = SharedKey(key).group_key(place)
    return MulticastGroup(made, CODEC, node=node, incarnation=5, datagram_bytes=1_200)


def test_what_one_seals_the_others_open() -> None:
    athens, berlin = group(), group("berlin")
    messages = [encode(Load(number, bytes(300))) for number in range(10)]
    datagrams = athens.pack(messages)
    assert len(datagrams) == 4
    assert all(len(each) <= 1_200 for each in datagrams)
    found = []
    for number, datagram in enumerate(datagrams):
        opened = berlin.open(datagram)
        assert opened is not None
        assert (opened.header.sender, opened.header.incarnation) == ("athens", 5)
        assert opened.number == number
        found += [each.number for each in berlin.messages(opened)]
    assert found == list(range(10))
    assert (athens.sent.frames, athens.sent.messages) == (4, 10)
    assert (berlin.received.frames, berlin.received.messages) == (4, 10)
    assert athens.pack([]) == []


def test_beacons_say_where_a_node_listens() -> None:
    opened = group("berlin").open(group().beacon(("10.0.0.1:7400",) * 20))
    assert opened is not None
    assert opened.header.addresses == ("10.0.0.1:7400",) * MAX_ADDRESSES
    assert group().messages(opened) == []


def test_other_keys_and_other_groups_are_not_believed() -> None:
    datagram = group().beacon(())
    for other in (group(key=b"other"), group(place="239.1.1.2:7"), group(key=b"")):
        assert other.open(datagram) is None
        assert other.refused == 1
        assert other.feature != group().feature
    assert group("berlin").feature == group().feature


@given(st.binary(max_size=200), st.integers(0, 200))
def test_nothing_that_was_changed_is_believed(noise: bytes, at: int) -> None:
    datagram = bytearray(group().pack([encode(Load(1, b"x"))])[0])
    datagram[at % len(datagram)] ^= 1
    reader = group("berlin")
    assert reader.open(bytes(datagram)) is None
    assert reader.open(noise) is None
    assert reader.refused == 2


def test_bodies_that_can_t_be_read_are_refused() -> None:
    athens, berlin = group(), group("berlin")
    (datagram,) = athens.pack([b"\xc1"])
    opened = berlin.open(datagram)
    assert opened is not None
    assert berlin.messages(opened) == []
    assert berlin.refused == 1
    strange = MulticastGroup(
        SharedKey(b"secret").group_key("239.1.1.1:7"),
        CODEC,
        node="no name",
        incarnation=1,
        datagram_bytes=1_200,
    )
    assert berlin.open(strange.beacon(())) is None
    assert berlin.open(athens.beacon(("x" * 1_000,))) is None


def ends(
    one: MulticastGroup, other: MulticastGroup, now_us: int = 0
) -> tuple[MulticastPeer, MulticastPeer]:
    return (
        MulticastPeer(one, report_us=S, now_us=now_us),
        MulticastPeer(other, report_us=S, now_us=now_us),
    )


def test_a_neighbour_counts_as_reached_while_it_confirms() -> None:
    athens, berlin = group(), group("berlin")
    athens.pack([encode(Load(1, b""))] * 1)  # before they were linked
    at_athens, at_berlin = ends(athens, berlin)
    assert not at_athens.is_open(0)
    said = at_athens.advance(0)
    assert said == MulticastReport(1, 0, -1)
    assert not at_berlin.admit(1), "where it begins is not known yet"
    at_berlin.on_report(said, 0)
    assert at_athens.advance(S // 2) is None
    athens.beacon(())
    assert at_berlin.admit(1)
    answer = at_berlin.advance(S)
    assert answer == MulticastReport(0, 1, 1)
    at_athens.on_report(answer, S)
    assert at_athens.is_open(S)
    assert at_athens.is_open(4 * S)
    assert not at_athens.is_open(4 * S + 1), "silence"
    assert at_athens.loss == 0


def test_reports_that_can_t_be_true_open_nothing() -> None:
    athens = group()
    end, _ = ends(athens, group("berlin"))
    for report in (
        MulticastReport(0, 1, 0),
        MulticastReport(0, 0, -1),
        MulticastReport(-5, 10, 1 << 60),
    ):
        end.on_report(report, 0)
        assert not end.is_open(0), "nothing was sent yet"


def test_no_number_counts_twice_nor_what_was_sent_before_the_link() -> None:
    athens, berlin = group(), group("berlin")
    for _ in range(5):
        athens.beacon(())
    at_athens, at_berlin = ends(athens, berlin)
    said = at_athens.advance(0)
    assert said is not None
    at_berlin.on_report(said, 0)
    assert [at_berlin.admit(number) for number in (4, 5, 6, 5, 6, 3)] == [
        False, True, True, False, False, False,
    ]  # fmt: skip
    assert at_berlin.replayed == 4


def session_pair(
    one: MulticastGroup | None, other: MulticastGroup | None, *, is_encrypted: bool = False
) -> tuple[LinkSession, LinkSession]:
    made = []
    for name, at, is_dialer in (("athens", one, True), ("berlin", other, False)):
        features = {} if at is None else {GROUP: at.feature}
        local = LocalIdentity(node=name, incarnation=5, key=SharedKey(b"secret"), features=features)
        remote = RemoteEndpoint(address="10.0.0.1", is_encrypted=is_encrypted)
        made.append(
            LinkSession(
                CODEC,
                local,
                remote,
                is_dialer=is_dialer,
                nonce=bytes([is_dialer]) * NONCE_BYTES,
                admit=_admit,
                now_us=0,
                options=LinkOptions(),
                group=at,
            )
        )
    talk(made[0], made[1], 0)
    return made[0], made[1]


def _admit(_: object) -> LinkError | None:
    return None


def talk(one: LinkSession, other: LinkSession, now_us: int) -> None:
    for _ in range(4):
        for source, target in ((one, other), (other, one)):
            source.advance(now_us)
            for frame in source.take_control(now_us):
                target.receive(frame, now_us)


def test_sessions_tell_each_other_what_they_hear() -> None:
    athens, berlin = group(), group("berlin")
    one, other = session_pair(athens, berlin)
    assert one.group_peer is not None
    assert other.group_peer is not None
    opened = berlin.open(athens.beacon(()))
    assert opened is not None
    assert other.group_peer.admit(opened.number)
    assert not one.group_peer.is_open(0)
    talk(one, other, S)
    assert one.group_peer.is_open(S)
    assert not other.group_peer.is_open(S), "berlin has sent nothing"
    assert one.next_due_us() == 2 * S
    assert one.ended is None


def test_only_those_of_the_same_group_and_without_tls_are_in_it() -> None:
    for one, other, is_encrypted in (
        (group(), None, False),
        (None, group("berlin"), False),
        (group(), group("berlin", place="239.1.1.2:7"), False),
        (group(), group("berlin"), True),
    ):
        for end in session_pair(one, other, is_encrypted=is_encrypted):
            assert end.neighbour is not None
            assert end.group_peer is None

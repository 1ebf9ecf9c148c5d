from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from tests.core.links.conversing import AFAR, CODEC, HERE, KEY, Ends, admit_all, why

from accord.core.links.codec import LINK, frame
from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import LinkPeer, LocalIdentity, RemoteEndpoint, SharedKey
from accord.core.links.messages import (
    MAGIC,
    Hello,
    LinkClose,
    LinkMessage,
    Proof,
    encode_link_message,
)
from accord.core.links.session import LinkSession

ATHENS = LocalIdentity(node="athens", incarnation=1, key=KEY)
BERLIN = LocalIdentity(node="berlin", incarnation=2, key=KEY)


def heard(data: bytes) -> list[LinkMessage]:
    """The messages in what one side sent."""
    found = []
    while data:
        size = int.from_bytes(data[:4])
        found.append(msgspec.msgpack.decode(data[5 : 4 + size], type=LinkMessage))
        data = data[4 + size :]
    return found


def refused(ends: Ends) -> tuple[LinkError, LinkError]:
    """Why, as seen by who refused, and by who was."""
    ends.talk()
    one, other = ends.dialer.ended, ends.listener.ended
    assert one is not None
    assert other is not None
    assert one.is_from_peer != other.is_from_peer
    assert (one.reason, one.problem) == (other.reason, other.problem)
    return (other, one) if one.is_from_peer else (one, other)


def test_both_sides_know_each_other_after_two_messages_each() -> None:
    ends = Ends(athens=replace(ATHENS, max_version=7), berlin=replace(BERLIN, max_version=4))
    ends.talk()
    there, back = ends.dialer.neighbour, ends.listener.neighbour
    assert there is not None
    assert back is not None
    assert (there.node, there.incarnation, there.version, there.is_dialed) == ("berlin", 2, 4, True)
    assert (back.node, back.incarnation, back.version, back.is_dialed) == ("athens", 1, 4, False)
    kinds = [[type(message) for message in heard(data)] for data in ends.wire]
    assert kinds == [[Hello], [Hello], [Proof], [Proof]]
    assert there.sending.secret == back.receiving.secret != there.receiving.secret
    assert ends.dialer.claimed_name == "berlin"


def test_a_stranger_who_connects_learns_nothing_that_depends_on_the_key() -> None:
    """The greeting of the listener is the same whatever its key is, and it does not prove first."""
    greetings = []
    for key in (b"one", b"two"):
        ends = Ends(berlin=replace(BERLIN, key=SharedKey(key)))
        there = b"".join(ends.dialer.take_control(0))
        ends.listener.receive(there, 0)
        greetings.append(ends.listener.take_control(0))
    assert greetings[0] == greetings[1]


@pytest.mark.parametrize("least", [1, 3])
def test_no_common_version(least: int) -> None:
    ends = Ends(
        athens=replace(ATHENS, min_version=least, max_version=least + 1),
        berlin=replace(BERLIN, min_version=4 - least, max_version=5 - least),
    )
    ours, theirs = refused(ends)
    assert ours.reason == CloseReason.VERSION
    assert f"versions {4 - least} to {5 - least}" in ours.problem
    assert f"the other {least} to {least + 1}" in ours.problem
    assert theirs.remedy == "update the older of the two nodes"


def test_another_key() -> None:
    ours, _ = refused(Ends(berlin=replace(BERLIN, key=SharedKey(b"another"))))
    assert (ours.reason, ours.problem) == (
        CloseReason.KEY,
        "shared key mismatch with node athens",
    )
    assert ours.remedy == "give both nodes the same shared key"


@pytest.mark.parametrize("has_athens_key", [True, False])
def test_a_key_on_one_side_only(has_athens_key: bool) -> None:
    """Even on one machine: who has a key trusts nobody without."""
    no_key = SharedKey()
    ends = Ends(
        athens=ATHENS if has_athens_key else replace(ATHENS, key=no_key),
        berlin=replace(BERLIN, key=no_key) if has_athens_key else BERLIN,
        remote=HERE,
    )
    ours, _ = refused(ends)
    assert ours.reason == CloseReason.KEY
    with_key, without = ("athens", "berlin") if has_athens_key else ("berlin", "athens")
    assert ours.problem == f"node {with_key} asks for a shared key, and node {without} has none"


def without_key(remote: RemoteEndpoint) -> Ends:
    no_key = SharedKey()
    return Ends(
        athens=replace(ATHENS, key=no_key), berlin=replace(BERLIN, key=no_key), remote=remote
    )


def test_without_a_key_nodes_of_one_machine_link() -> None:
    ends = without_key(HERE)
    ends.talk()
    assert ends.listener.neighbour is not None
    assert ends.dialer.neighbour is not None


def test_without_a_key_nodes_of_other_machines_are_refused_before_a_word() -> None:
    ends = without_key(AFAR)
    for side in (ends.dialer, ends.listener):
        assert side.ended is not None
        assert why(side) == CloseReason.NO_KEY
        assert "shared key" in side.ended.remedy
        (words,) = heard(b"".join(side.take_control(0)))
        assert isinstance(words, LinkClose)


def test_a_certificate_for_the_node_s_name_is_as_good_as_a_key() -> None:
    both = RemoteEndpoint(address="192.0.2.1", certified=("berlin", "athens"))
    ends = without_key(both)
    ends.talk()
    assert ends.listener.neighbour is not None
    ours, _ = refused(
        without_key(RemoteEndpoint(address="192.0.2.1", certified=("berlin", "oslo")))
    )
    assert ours.reason == CloseReason.CERTIFICATE
    assert ours.problem == "node athens has a certificate for berlin, oslo only"


def test_a_certificate_for_another_name_is_refused_on_the_same_machine() -> None:
    """It may be that of a client, whose authority is the same."""
    remote = RemoteEndpoint(address="127.0.0.1", is_loopback=True, certified=("berlin", "ann"))
    ours, _ = refused(without_key(remote))
    assert ours.reason == CloseReason.CERTIFICATE


def test_a_node_of_the_same_name() -> None:
    ours, theirs = refused(Ends(berlin=replace(BERLIN, node="athens")))
    assert (ours.reason, ours.problem) == (CloseReason.SAME_NAME, "both nodes have the name athens")
    assert not theirs.is_routine


def test_a_node_that_reaches_itself() -> None:
    ours, theirs = refused(Ends(berlin=ATHENS))
    assert ours.reason == CloseReason.ITSELF
    assert theirs.is_routine


@pytest.mark.parametrize("name", ["", "two words", "x" * 65])
def test_names_are_checked(name: str) -> None:
    ours, _ = refused(Ends(athens=replace(ATHENS, node=name)))
    assert ours.reason == CloseReason.NAME


def test_who_is_not_admitted_is_told_why() -> None:
    def nobody(neighbour: LinkPeer) -> LinkError | None:
        return LinkError(CloseReason.BUSY, f"no room for {neighbour.node}")

    ours, _ = refused(Ends(other_admit=nobody))
    assert (ours.reason, ours.problem) == (CloseReason.BUSY, "no room for athens")
    ends = Ends(admit=nobody)
    ours, _ = refused(ends)
    assert ours.problem == "no room for berlin"
    assert ends.dialer.neighbour is None


def test_nobody_is_admitted_before_its_proof() -> None:
    def fail(_: LinkPeer) -> LinkError | None:
        raise AssertionError

    refused(Ends(berlin=replace(BERLIN, key=SharedKey(b"x")), other_admit=fail, admit=fail))


def listener() -> LinkSession:
    return LinkSession(
        CODEC, BERLIN, AFAR, is_dialer=False, nonce=b"c" * 32, admit=admit_all, now_us=0
    )


def test_a_recorded_conversation_is_of_no_use_again() -> None:
    ends = Ends()
    ends.talk()
    replayed = listener()
    replayed.receive(ends.wire[0], 0)
    replayed.receive(ends.wire[2], 0)
    assert replayed.neighbour is None
    assert why(replayed) == CloseReason.KEY


def test_nobody_s_own_proof_is_accepted_back() -> None:
    """Who has no key answers a dialer with what the dialer itself says."""
    dialer = LinkSession(
        CODEC, ATHENS, AFAR, is_dialer=True, nonce=b"c" * 32, admit=admit_all, now_us=0
    )
    hello = heard(b"".join(dialer.take_control(0)))[0]
    assert isinstance(hello, Hello)
    mirrored = replace(hello, node="berlin", nonce=b"d" * 32)
    dialer.receive(frame(LINK, encode_link_message(mirrored)), 0)
    dialer.receive(b"".join(dialer.take_control(0)), 0)
    assert why(dialer) == CloseReason.KEY


def hello(**changes: object) -> bytes:
    made = Hello(MAGIC, 1, 1, "athens", 1, b"n" * 32, True, {})
    return frame(LINK, encode_link_message(replace(made, **changes)))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (hello(magic="mqtt"), "expected the greeting of a node"),
        (hello(nonce=b"short"), "expected a fresh nonce"),
        (hello(nonce=b"c" * 32), "expected a fresh nonce"),  # the listener's own
        (hello(min_version=2, max_version=1), "speaks versions 1 to 1"),
        (frame(LINK, encode_link_message(Proof(bytes(32)))), "expected a greeting first"),
        (hello() + hello(), "expected a proof after the greeting"),
        (hello() + frame(1, b"\x90"), "a message before the handshake has ended"),
        (frame(LINK, b"\xc0"), "expected a message about the link"),
        (b"GET / HTTP/1.1\r\n\r\n", "expected the greeting of a node, got b'GET / HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "expected the greeting of a node, got TLS"),
        (frame(LINK, bytes(4_096)), "expected the greeting of a node"),
    ],
)
def test_what_is_no_handshake(data: bytes, problem: str) -> None:
    session = listener()
    assert session.receive(data, 0) == []
    assert session.ended is not None
    assert problem in session.ended.problem
    last_words = heard(b"".join(session.take_control(0)))[-1]
    assert last_words == LinkClose(session.ended.reason, session.ended.problem)
    session.check_invariants()


def test_all_of_a_handshake_together_is_limited() -> None:
    session = listener()
    session.receive(hello(features={"x" * 3_900: 1}), 0)
    assert why(session) == ""
    session.receive(frame(LINK, encode_link_message(Proof(bytes(200)))), 0)
    assert why(session) == CloseReason.TOO_LARGE


def test_another_node_than_the_expected_one_learns_no_proof() -> None:
    ends = Ends()
    afar = replace(AFAR, expected="chania")
    ends.dialer = ends._session(ATHENS, afar, admit_all, True, b"a" * 32)
    ours, _ = refused(ends)
    assert (ours.reason, ours.problem) == (
        CloseReason.OTHER,
        "expected node chania there, found berlin",
    )
    assert ours.is_routine
    assert Proof not in [type(message) for data in ends.wire for message in heard(data)]

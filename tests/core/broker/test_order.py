"""On channels whose order counts nothing overtakes anything on its way to a client."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.broker.dialogue import Peer, Table
from tests.core.broker.test_managed import decide, listener, outcomes, payloads

from accord.core.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from accord.core.mqtt.properties import Properties
from accord.core.overlay.channel_directory import ChannelTraits

IN_ORDER: Final = ChannelTraits(keeps_order=True)
MANAGED: Final = """
strategy = "strict"
[[policies]]
name = "urgent"
where = "urgent = 1"
importance = 7
[[policies]]
name = "boss"
client = "boss"
importance = 6
"""
URGENT: Final = Properties(user=(("urgent", "1"),))


def ordered(*, is_durable: bool = False, bound: ChannelTraits = IN_ORDER) -> Table:
    table = Table(is_durable=is_durable)
    table.broker.router.traits = lambda channel: bound if channel == "chat" else ChannelTraits()
    decide(table, MANAGED)
    return table


def hear(peer: Peer, heard: list[bytes]) -> None:
    """What came, with the answers that it asks for."""
    for packet in peer.hear():
        match packet:
            case Publish(payload=payload, qos=qos, packet_id=packet_id):
                heard.append(payload)
                if qos:
                    peer.send(Puback(packet_id) if qos == 1 else Pubrec(packet_id))
            case Pubrel(packet_id=packet_id):
                peer.send(Pubcomp(packet_id))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from((1, 40_000)))),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from((0, 60)),
)
def test_whatever_qos_importance_and_size_events_have(
    events: list[tuple[int, bool, int]], window: int, is_durable: bool, expiry_s: int
) -> None:
    table = ordered(is_durable=is_durable)
    properties = Properties(receive_maximum=window, session_expiry_s=expiry_s)
    ada = table.join("ada", properties=properties).subscribe("chat", qos=2)
    bob = table.join("bob")
    sent: list[bytes] = []
    heard: list[bytes] = []
    for place, (qos, is_urgent, size) in enumerate(events):
        payload = f"{place:06}".encode() * size
        properties = URGENT if is_urgent else Properties()
        packet_id = bob.publish("chat", payload, qos, properties=properties)
        if qos == 2:
            bob.send(Pubrel(packet_id))
        sent.append(payload[:6])
        if place % 3 == 0:
            table.commit()
    for _ in range(4 * len(events) + 1):
        table.commit()
        hear(ada, heard)
    assert [each[:6] for each in heard] == sent
    table.commit()
    assert table.session("ada").outbox.is_empty()


def test_what_is_not_acknowledged_waits_for_what_is() -> None:
    table = ordered()
    ada = table.join("ada", properties=Properties(receive_maximum=1)).subscribe("chat", qos=1)
    bob = table.join("bob")
    for payload, qos in ((b"1", 1), (b"2", 1), (b"3", 0), (b"4", 0)):
        bob.publish("chat", payload, qos)
    heard: list[bytes] = []
    first = ada.hear()
    assert [each.payload for each in first if isinstance(each, Publish)] == [b"1"]
    assert isinstance(first[0], Publish)
    ada.send(Puback(first[0].packet_id))
    hear(ada, heard)
    hear(ada, heard)
    assert heard == [b"2", b"3", b"4"]


@pytest.mark.parametrize(("is_same_order", "heard"), [(False, b"boss"), (True, b"bob")])
def test_who_publishes_counts_unless_all_share_one_order(is_same_order: bool, heard: bytes) -> None:
    table = ordered(bound=IN_ORDER._replace(is_ordered=is_same_order))
    ada = listener(table, "chat")
    for name in ("bob", "boss"):
        table.join(name).publish("chat", name.encode())
    assert payloads(ada)[0] == heard


def test_other_channels_go_on_by_importance() -> None:
    table = ordered()
    ada = listener(table, "#")
    bob = table.join("bob")
    bob.publish("chat", b"first")
    bob.publish("chat", b"second", properties=URGENT)
    bob.publish("alarm", b"alarm", properties=URGENT)
    assert payloads(ada) == [b"alarm", b"first", b"second"]


def test_no_event_takes_the_place_of_another() -> None:
    table = ordered()
    ada = listener(table, "chat")
    bob = table.join("bob")
    for payload, key in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
        bob.publish("chat", payload, properties=Properties(user=(("key", key),)))
    assert payloads(ada) == [b"1", b"2", b"3"]


def test_what_waits_unacknowledged_goes_with_the_connection() -> None:
    table = ordered()
    ada = table.join("ada", expiry_s=60, clean=False).subscribe("chat", qos=1)
    ada.is_slow = True
    bob = table.join("bob")
    bob.publish("chat", b"1", 1)
    bob.publish("chat", b"2", 0)
    outcomes(table)
    ada.drop()
    assert [each for each in outcomes(table) if each[0] == "ada"] == [("ada", "shed", "offline")]
    again = table.join("ada", expiry_s=60, clean=False, is_present=True)
    assert [each.payload for each in again.hear() if isinstance(each, Publish)] == [b"1"]
    table.check_invariants()

"""What waits for a client: how old, and of which channels."""

from __future__ import annotations

from tests.core.broker.dialogue import Table

from accord.core.broker.connection import client_reading
from accord.core.broker.delivery_accounting import backlog_by_channel, waiting_ms
from accord.core.mqtt.properties import Properties

KEYED = Properties(user=(("key", "1"),))


def test_the_oldest_counts_and_what_waits_is_known_by_channel() -> None:
    table = Table()
    ada = table.join("ada").subscribe("#")
    session = table.session("ada")
    assert waiting_ms(session.outbox, table.now_ms) == 0
    assert backlog_by_channel(session.outbox, table.now_ms) == {}
    ada.is_slow = True
    bob = table.join("bob")
    bob.publish("imagery", bytes(100))
    table.now_ms += 30_000
    bob.publish("imagery", bytes(100))
    bob.publish("report", b"x")
    table.now_ms += 20_000
    found = backlog_by_channel(session.outbox, table.now_ms)
    assert {name: (each.events, each.oldest_ms) for name, each in found.items()} == {
        "imagery": (2, 50_000),
        "report": (1, 20_000),
    }
    assert found["imagery"].bytes >= 200
    assert sum(found["imagery"].ages.values()) == 2
    assert client_reading(session, table.now_ms).waiting_ms == 50_000
    assert waiting_ms(session.outbox, table.now_ms) == 50_000


def test_a_newer_value_is_as_old_as_itself() -> None:
    table = Table()
    ada = table.join("ada").subscribe("#")
    ada.is_slow = True
    bob = table.join("bob")
    bob.publish("position", b"a", properties=KEYED)
    table.now_ms += 9_000
    bob.publish("position", b"b", properties=KEYED)
    reading = client_reading(table.session("ada"), table.now_ms)
    assert (reading.queued_messages, reading.replaced, reading.shed) == (1, 1, 0)
    assert reading.waiting_ms == 0

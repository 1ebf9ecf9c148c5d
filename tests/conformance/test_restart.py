"""What a node promised it still knows after a restart, also after one without warning (4.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Pubcomp, Publish, Pubrec, Pubrel
from accord.core.mqtt.properties import Properties
from tests.brokers import accord_only, start_accord
from tests.conformance.conversation import Conversation

pytestmark = accord_only

SAID = Properties(content_type="text/plain", user=(("b", "1"), ("a", "2")))


@pytest.mark.parametrize("is_killed", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_sessions_and_messages_survive(tmp_path: Path, version: int, is_killed: bool) -> None:
    with (
        start_accord(data=tmp_path, is_killed=is_killed) as broker,
        Conversation(broker, version) as talk,
    ):
        name = talk.name
        sub = talk.stay("sub", expect_session=False)
        sub.subscribed(f"{name}/one", qos=1).subscribed(f"{name}/two", qos=2)
        pub = talk.join("pub")
        pub.publish(f"{name}/one", b"unacknowledged", qos=1)
        waiting = sub.expect(Publish, payload=b"unacknowledged").packet_id
        pub.publish(f"{name}/two", b"released", qos=2)
        released = sub.expect(Publish, payload=b"released").packet_id
        sub.send(Pubrec(released))
        sub.expect(Pubrel, packet_id=released)
        sub.drop()
        pub.publish(f"{name}/one", b"queued", qos=1)
        pub.publish(f"{name}/kept", b"retained", retain=True)
        pub.publish(f"{name}/gone", b"x", retain=True)
        pub.publish(f"{name}/gone", b"", retain=True)
    with start_accord(data=tmp_path) as broker, Conversation(broker, version) as talk:
        talk.name = name
        sub = talk.stay("sub", expect_session=True)
        arrived = [sub.receive() for _ in range(3)]
        assert Pubrel(released) in arrived
        messages = [each for each in arrived if isinstance(each, Publish)]
        assert [each.payload for each in messages] == [b"unacknowledged", b"queued"]
        assert (messages[0].packet_id, messages[0].dup) == (waiting, True)
        sub.send(Pubcomp(released))
        for message in messages:
            sub.settle(message)
        sub.expect_silence()
        late = talk.join("late").subscribed(f"{name}/+")
        late.take(f"{name}/kept", b"retained", retain=True)
        late.expect_silence()


@pytest.mark.parametrize("version", [V5], ids=["5.0"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_options_and_properties_survive(tmp_path: Path, version: int, is_killed: bool) -> None:
    with (
        start_accord(data=tmp_path, is_killed=is_killed) as broker,
        Conversation(broker, version) as talk,
    ):
        name = talk.name
        sub = talk.stay("sub", expect_session=False)
        identifier = Properties(
            subscription_identifiers=(7,), user=(("where", "size > 5 OR size IS NULL"),)
        )
        sub.subscribed(f"{name}/+", qos=1, properties=identifier)
        sub.drop()
        talk.join("pub").publish(f"{name}/a", b"1", retain=True, properties=SAID)
    with start_accord(data=tmp_path) as broker, Conversation(broker, version) as talk:
        talk.name = name
        sub = talk.stay("sub", expect_session=True)
        message = sub.take(f"{name}/a", b"1", qos=1)
        assert message.properties.user == SAID.user
        assert message.properties.content_type == SAID.content_type
        assert message.properties.subscription_identifiers == (7,)
        pub = talk.join("pub")
        for size in ("1", "9"):
            pub.publish(f"{name}/b", size.encode(), properties=Properties(user=(("size", size),)))
        sub.take(f"{name}/b", b"9", qos=1)
        sub.expect_silence()


def test_a_received_qos_2_message_is_not_taken_twice(tmp_path: Path, version: int) -> None:
    """[MQTT-4.3.3-10]: what was answered by PUBREC is known after a crash."""
    with (
        start_accord(data=tmp_path, is_killed=True) as broker,
        Conversation(broker, version) as talk,
    ):
        name = talk.name
        talk.stay("sub", expect_session=False).subscribed(f"{name}/two", qos=2).leave()
        pub = talk.stay("pub", expect_session=False)
        pub.send(Publish(f"{name}/two", b"x", qos=2, packet_id=5))
        pub.expect(Pubrec, packet_id=5)
    with start_accord(data=tmp_path) as broker, Conversation(broker, version) as talk:
        talk.name = name
        pub = talk.stay("pub", expect_session=True)
        pub.send(Publish(f"{name}/two", b"x", qos=2, dup=True, packet_id=5))
        pub.expect(Pubrec, packet_id=5)
        pub.send(Pubrel(5))
        pub.expect(Pubcomp, packet_id=5)
        sub = talk.stay("sub", expect_session=True)
        sub.take(f"{name}/two", b"x", qos=2)
        sub.expect_silence()

"""The client most Python programs use, unchanged: Eclipse Paho."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.brokers import Broker, accord_only
from tests.scenarios.properties import properties_of

V311: Final = MQTTProtocolVersion.MQTTv311
V5: Final = MQTTProtocolVersion.MQTTv5
WAIT_S: Final = 15.0


class Paho:
    """A paho client whose callbacks can be waited for."""

    def __init__(
        self,
        broker: Broker,
        protocol: MQTTProtocolVersion,
        client_id: str = "",
        *,
        stays: bool = False,
        will: tuple[str, bytes] | None = None,
        is_websocket: bool = False,
    ) -> None:
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.answers: queue.Queue[tuple[list[ReasonCode], Any]] = queue.Queue()
        self.protocol = protocol
        self._connected: queue.Queue[tuple[bool, ReasonCode]] = queue.Queue()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if protocol == V5 else not stays,
            protocol=protocol,
            transport="websockets" if is_websocket else "tcp",
            reconnect_on_failure=False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        if will is not None:
            self._client.will_set(*will, qos=1)
        port = broker.port
        if is_websocket:
            port = int(broker.websocket_url.split(":")[2].split("/")[0])
            self._client.ws_set_options(path="/mqtt")
        if protocol == V5:
            expiry_s = 3600 if stays else 0
            properties = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s)
            self._client.connect(broker.host, port, clean_start=not stays, properties=properties)
        else:
            self._client.connect(broker.host, port)
        self._client.loop_start()
        self.has_session, reason = self._connected.get(timeout=WAIT_S)
        assert not reason.is_failure, reason

    def subscribe(
        self, pattern: str, qos: int = 0, properties: Any = None
    ) -> tuple[list[ReasonCode], Any]:
        if self.protocol == V5:
            options = SubscribeOptions(qos=qos)
            self._client.subscribe(pattern, options=options, properties=properties)
        else:
            self._client.subscribe(pattern, qos)
        return self.answers.get(timeout=WAIT_S)

    def subscribed(self, pattern: str, qos: int = 0, properties: Any = None) -> Self:
        reasons, _ = self.subscribe(pattern, qos, properties)
        assert [reason.value for reason in reasons] == [qos]
        return self

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        retain: bool = False,
        properties: Any = None,
    ) -> None:
        sent: MQTTMessageInfo = self._client.publish(topic, payload, qos, retain, properties)
        assert sent.rc == MQTTErrorCode.MQTT_ERR_SUCCESS
        sent.wait_for_publish(timeout=WAIT_S)
        assert sent.is_published()

    def take(self, topic: str, payload: bytes, qos: int = 0) -> MQTTMessage:
        message = self.messages.get(timeout=WAIT_S)
        assert (message.topic, message.payload, message.qos) == (topic, payload, qos)
        return message

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def vanish(self) -> None:
        """Close the socket without DISCONNECT."""
        sock = self._client.socket()
        assert sock is not None
        self._client.loop_stop()
        sock.close()

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: ReasonCode, *___: Any) -> None:
        self._connected.put((flags.session_present, reason))

    def _on_message(self, _: Any, __: Any, message: MQTTMessage) -> None:
        self.messages.put(message)

    def _on_subscribe(self, *said: Any) -> None:
        reasons, properties = said[-2:]
        self.answers.put((reasons, properties))


Join = Callable[..., Paho]


@pytest.fixture(params=[V311, V5], ids=["3.1.1", "5.0"])
def protocol(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


only_5: Final = pytest.mark.parametrize("protocol", [V5], ids=["5.0"])


@pytest.fixture
def join(broker: Broker, protocol: MQTTProtocolVersion) -> Iterator[Join]:
    clients: list[Paho] = []

    def connect(*args: Any, **options: Any) -> Paho:
        client = Paho(broker, protocol, *args, **options)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.leave()


def _user(*pairs: tuple[str, str], packet: int = PacketTypes.PUBLISH) -> Any:
    return properties_of(packet, UserProperty=list(pairs))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_subscribe(join: Join, topic: str, qos: int) -> None:
    sub = join().subscribed(topic, qos)
    pub = join()
    for number in range(20):
        pub.publish(topic, b"%d" % number, qos)
    for number in range(20):
        sub.take(topic, b"%d" % number, qos)


@pytest.mark.parametrize("qos", [0, 1])
def test_over_websocket(join: Join, topic: str, qos: int) -> None:
    sub = join(is_websocket=True).subscribed(topic, qos)
    join(is_websocket=True).publish(topic, b"x" * 100_000, qos)
    sub.take(topic, b"x" * 100_000, qos)


def test_wildcards(join: Join, topic: str) -> None:
    sub = join().subscribed(f"{topic}/+/end").subscribed(f"{topic}/deep/#")
    pub = join()
    for each in ("a/end", "a/other", "deep", "deep/er/still"):
        pub.publish(f"{topic}/{each}", b"x")
    for each in ("a/end", "deep", "deep/er/still"):
        sub.take(f"{topic}/{each}", b"x")
    assert sub.messages.empty()


def test_retained(join: Join, topic: str) -> None:
    join().publish(topic, b"x", retain=True)
    assert join().subscribed(topic).take(topic, b"x").retain


def test_a_will(join: Join, topic: str) -> None:
    witness = join().subscribed(topic, 1)
    join(will=(topic, b"gone")).vanish()
    witness.take(topic, b"gone", 1)


def test_a_session_is_resumed(join: Join, topic: str) -> None:
    client_id = topic.replace("/", "-")
    sub = join(client_id, stays=True)
    assert not sub.has_session
    sub.subscribed(topic, 2)
    sub.leave()
    pub = join()
    for number in range(10):
        pub.publish(topic, b"%d" % number, 1 + number % 2)
    sub = join(client_id, stays=True)
    assert sub.has_session
    # Paho hands over a QoS 2 message when its flow is complete, so the levels may mix.
    arrived = [sub.messages.get(timeout=WAIT_S) for _ in range(10)]
    for qos in (1, 2):
        numbers = [int(message.payload) for message in arrived if message.qos == qos]
        assert numbers == [number for number in range(10) if 1 + number % 2 == qos]


def test_a_large_payload(join: Join, topic: str) -> None:
    payload = bytes(range(256)) * 4096
    sub = join().subscribed(topic, 1)
    join().publish(topic, payload)
    sub.take(topic, payload, 1)


@only_5
def test_a_shared_subscription(join: Join, topic: str) -> None:
    members = [join().subscribed(f"$share/g/{topic}", 1) for _ in range(2)]
    whole = join().subscribed(topic, 1)
    pub = join()
    for number in range(20):
        pub.publish(topic, b"%d" % number)
    for number in range(20):
        whole.take(topic, b"%d" % number, 1)
    shares = [sorted(_arrived(member, topic)) for member in members]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == list(range(20))


def _arrived(member: Paho, topic: str) -> list[int]:
    """The numbers a member got, up to a last word that it hears for sure."""
    member.subscribed(f"{topic}/end")
    member.publish(f"{topic}/end", b"", 0)
    found = []
    while (message := member.messages.get(timeout=WAIT_S)).topic == topic:
        found.append(int(message.payload))
    return found


@only_5
def test_properties_arrive_unchanged(join: Join, topic: str) -> None:
    properties = _user(("b", "1"), ("a", "2"), ("b", "ä💧"))
    properties.ContentType = "text/plain"
    properties.PayloadFormatIndicator = 1
    properties.ResponseTopic = f"{topic}/answer"
    properties.CorrelationData = b"\x00\xff"
    sub = join().subscribed(topic, 1)
    join().publish(topic, "grüß".encode(), properties=properties)
    arrived: Any = sub.take(topic, "grüß".encode(), 1).properties
    assert arrived.json() == properties.json()


@only_5
def test_request_and_response(join: Join, topic: str) -> None:
    asker = join().subscribed(f"{topic}/answers", 1)
    answerer = join().subscribed(topic, 1)
    question = properties_of(
        PacketTypes.PUBLISH, ResponseTopic=f"{topic}/answers", CorrelationData=b"7"
    )
    asker.publish(topic, b"?", properties=question)
    asked: Any = answerer.take(topic, b"?", 1).properties
    answer = properties_of(PacketTypes.PUBLISH, CorrelationData=asked.CorrelationData)
    answerer.publish(asked.ResponseTopic, b"!", properties=answer)
    arrived: Any = asker.take(f"{topic}/answers", b"!", 1).properties
    assert arrived.CorrelationData == b"7"


@only_5
@accord_only
def test_a_predicate_selects(join: Join, topic: str) -> None:
    where = _user(("where", "altitude_m > 300 AND platform = 'UAV'"), packet=PacketTypes.SUBSCRIBE)
    sub = join().subscribed(topic, 1, where)
    pub = join()
    for altitude_m in (100, 400, 300, 301):
        attributes = _user(("altitude_m", str(altitude_m)), ("platform", "UAV"))
        pub.publish(topic, b"%d" % altitude_m, properties=attributes)
    pub.publish(topic, b"car", properties=_user(("altitude_m", "999"), ("platform", "car")))
    for altitude_m in (400, 301):
        sub.take(topic, b"%d" % altitude_m, 1)
    assert sub.messages.empty()


@only_5
@accord_only
def test_a_bad_predicate_is_explained(join: Join, topic: str) -> None:
    where = _user(("where", "altitude_m >"), packet=PacketTypes.SUBSCRIBE)
    reasons, said = join().subscribe(topic, 1, where)
    assert reasons[0].is_failure
    assert "altitude_m >" in said.ReasonString

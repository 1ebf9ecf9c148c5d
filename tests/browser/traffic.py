"""Real traffic for the console to show: clients of paho, and a node that they use."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

import httpx
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from tests.brokers import HOST, Broker, start_with_http
from tests.scenarios.properties import properties_of

WAIT_S: Final = 20.0


class Site(NamedTuple):
    """A running node: its console, and where its clients connect."""

    url: str
    broker: Broker
    http: httpx.Client

    def get(self, path: str, **query: str) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def start_site(config: str | None = None, *, user: tuple[str, str] | None = None) -> Iterator[Site]:
    """A node with a console; `user` is who asks its HTTP interface."""
    with (
        start_with_http(config) as (broker, url),
        httpx.Client(base_url=url, auth=user, timeout=WAIT_S) as http,
    ):
        yield Site(url, broker, http)


class Peer:
    """An MQTT client that counts and keeps what it receives."""

    def __init__(
        self, site: Site, name: str, *filters: str, user: tuple[str, str] | None = None
    ) -> None:
        self.name = name
        self.received: Counter[str] = Counter()
        self.payloads: dict[str, bytes] = {}
        """The last payload of each channel."""
        self._client = Client(
            CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5
        )
        if user:
            self._client.username_pw_set(*user)
        self._client.on_message = self._on_message
        connected, subscribed = threading.Event(), threading.Event()
        self._client.on_connect = lambda *_: connected.set()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect(HOST, site.broker.port)
        self._client.loop_start()
        assert connected.wait(WAIT_S), f"{name} could not connect"
        if filters:
            code, _ = self._client.subscribe([(each, 0) for each in filters])
            assert code is MQTTErrorCode.MQTT_ERR_SUCCESS
            assert subscribed.wait(WAIT_S), f"{name} could not subscribe"

    def publish(
        self,
        channel: str,
        payload: bytes | str = b"1",
        attributes: Mapping[str, str] | None = None,
        *,
        qos: int = 1,
    ) -> None:
        """Publish, and wait until the node has it."""
        properties = None
        if attributes:
            properties = properties_of(PacketTypes.PUBLISH, UserProperty=[*attributes.items()])
        self._client.publish(channel, payload, qos, properties=properties).wait_for_publish(WAIT_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.received[message.topic] += 1
        self.payloads[message.topic] = bytes(message.payload)


class Stream:
    """Publishes to a channel at a steady rate, until the block ends."""

    def __init__(self, peer: Peer, channels: Mapping[str, bytes], rate_hz: float) -> None:
        self._peer = peer
        self._channels = dict(channels)
        self._wait_s = 1 / rate_hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._wait_s):
            for channel, payload in self._channels.items():
                self._peer.publish(channel, payload, qos=0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def address(page: str, name: str, **query: str) -> str:
    """Of the page of a channel or client."""
    return f"/{page}/{quote(name, safe='')}" + str(httpx.URL("", params=query) if query else "")

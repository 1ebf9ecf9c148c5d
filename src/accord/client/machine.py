"""The client side of MQTT 5 as a pure state machine: bytes and requests in, bytes and results out.

One machine is one session and lasts over many connections: `Opened` starts one, `Lost` ends it, and
the next one continues whatever was not settled by then.

Backpressure: the driver reads only while `wants_data`. A full inbox stops reading, and TCP then
stops the server. The exception is a session that itself waits for a reply: a consumer that
publishes inside its loop would otherwise wait for an acknowledgement queued behind the events it
does not take. Reading then continues, and QoS 0 events that do not fit are shed and counted.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from accord.client.errors import (
    ClientError,
    ConnectionFailedError,
    RefusedError,
    SessionClosedError,
)
from accord.client.inbound import InboundMessages
from accord.client.inbox import Inbox, ReceivedMessage
from accord.client.machine_io import (
    Arrived,
    Close,
    CloseRequested,
    Connected,
    Consumed,
    Input,
    Lost,
    Opened,
    Output,
    PublishRequested,
    Received,
    Send,
    SessionOptions,
    SubscribeRequested,
    UnsubscribeRequested,
    Withdrawn,
)
from accord.client.outbound import OutboundMessages, PacketIds
from accord.client.subscribe_protocol import SubscribeProtocol
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, ProtocolError, Reason
from accord.core.mqtt.event_mapping import EVENT_IDS, EVENT_NAMES
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
)
from accord.core.mqtt.properties import ENDED, NO_PROPERTIES, Properties
from accord.core.mqtt.wire import Framer

# Reason codes after which reconnecting makes sense.
TRANSIENT: Final = frozenset(
    {
        Reason.SUCCESS,
        Reason.UNSPECIFIED_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.SERVER_SHUTTING_DOWN,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.MESSAGE_RATE_TOO_HIGH,
        Reason.QUOTA_EXCEEDED,
        Reason.CONNECTION_RATE_EXCEEDED,
        Reason.MAXIMUM_CONNECT_TIME,
    }
)


CHECK: Final = "check that this port speaks MQTT, and use mqtts:// if it has TLS"


class Phase(Enum):
    IDLE = "no connection"
    CONNECTING = "CONNECT sent"
    CONNECTED = "CONNACK received"
    CLOSED = "for good"


class ClientMachine:
    """The state machine of one session; see the module docstring."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self.client_id = options.client_id
        self.phase = Phase.IDLE
        self._is_first = True
        self._ids = PacketIds()
        self._outbound = OutboundMessages(self._ids, options.inflight_limit)
        self._inbound = InboundMessages(options.receive_maximum)
        self._subscribing = SubscribeProtocol(self._ids, self._inbound)
        self._framer = Framer(options.maximum_packet_size)
        self._frames: deque[tuple[int, bytes]] = deque()
        self._keep_alive_ms = 0
        self._started_ms = 0
        self._sent_ms = 0
        self._received_ms = 0
        self._pinged_ms: int | None = None

    # --------------------------------------------------------------------------- the three verbs

    def handle(self, happened: Input, *, now_ms: int) -> list[Output]:
        outputs = self._dispatch(happened, now_ms)
        if any(isinstance(each, Send) for each in outputs):
            self._sent_ms = now_ms
        return outputs

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._outbound.next_deadline_ms(), self._next_timer_ms()]
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, *, now_ms: int) -> list[Output]:
        outputs = self._outbound.expire(now_ms)
        sign_ms = self._next_timer_ms()
        if sign_ms is None or now_ms < sign_ms:
            return outputs
        if self.phase is Phase.CONNECTING:
            return [*outputs, *self._drop_connection(f"the server did not answer in time; {CHECK}")]
        if self._pinged_ms is not None and self.wants_data:
            return [*outputs, *self._drop_connection("the server did not answer a ping in time")]
        self._pinged_ms = self._sent_ms = now_ms
        return [*outputs, Send(encode(Pingreq(), V5))]

    # ------------------------------------------------------------------------------------ queries

    @property
    def wants_data(self) -> bool:
        """Whether the driver should read more now."""
        return not self._frames

    @property
    def unmatched(self) -> int:
        return self._inbound.unmatched

    def take(self, identifier: int) -> ReceivedMessage | None:
        """The subscription's next event, to be `Consumed` afterwards."""
        return self._inbound.take(identifier)

    def inbox(self, identifier: int) -> Inbox:
        return self._inbound.subscriptions[identifier].inbox

    # ------------------------------------------------------------------------------------- inputs

    def _dispatch(self, happened: Input, now_ms: int) -> list[Output]:
        match happened:
            case Received(data):
                return self._receive(data, now_ms)
            case PublishRequested():
                return [*self._outbound.request(happened, now_ms), *self._resume(now_ms)]
            case Consumed(delivery):
                return [*_sends(self._inbound.consume(delivery)), *self._resume(now_ms)]
            case Withdrawn(token):
                self._outbound.withdraw(token)
                return []
            case SubscribeRequested():
                return [*self._subscribing.subscribe(happened, now_ms), *self._resume(now_ms)]
            case UnsubscribeRequested(identifier, is_kept):
                left = self._subscribing.unsubscribe(identifier, is_kept=is_kept)
                return [*left, *self._resume(now_ms)]
            case Opened():
                return self._open(now_ms)
            case Lost():
                self._stop(Phase.IDLE)
                return []
            case CloseRequested(is_forgotten):
                return self._close(is_forgotten)

    def _open(self, now_ms: int) -> list[Output]:
        assert self.phase is Phase.IDLE
        options = self._options
        self.phase = Phase.CONNECTING
        self._started_ms = now_ms
        self._keep_alive_ms = options.keep_alive_s * 1000
        self._framer = Framer(options.maximum_packet_size)
        connect = Connect(
            self.client_id,
            V5,
            options.clean_start and self._is_first,
            options.keep_alive_s,
            options.username,
            options.password,
            options.will,
            Properties(
                session_expiry_s=options.session_expiry_s,
                receive_maximum=options.receive_maximum,
                request_response_information=True,
                maximum_packet_size=options.maximum_packet_size,
                user=(EVENT_IDS, EVENT_NAMES) if options.wants_event_ids else (EVENT_IDS,),
            ),
        )
        return [Send(encode(connect, V5))]

    def _close(self, is_discarded: bool) -> list[Output]:
        properties = Properties(session_expiry_s=0) if is_discarded else NO_PROPERTIES
        has_session = is_discarded and self._options.session_expiry_s
        goodbye = Disconnect(0, properties if has_session else NO_PROPERTIES)
        outputs: list[Output] = []
        if self.phase is Phase.CONNECTED:
            outputs.append(Send(encode(goodbye, V5)))
        self._stop(Phase.CLOSED)
        return [*outputs, Close(SessionClosedError("the session was closed"), is_final=True)]

    def _stop(self, phase: Phase) -> None:
        if self.phase is not Phase.CLOSED:
            self.phase = phase
        self._frames.clear()
        self._pinged_ms = None
        self._inbound.is_connected = False
        self._outbound.stop()
        self._subscribing.stop()

    def _drop_connection(self, problem: str, reason: Reason | None = None) -> list[Output]:
        """End this connection, so that the driver reconnects."""
        outputs: list[Output] = []
        if reason is not None and self.phase is Phase.CONNECTED:
            outputs.append(Send(encode(Disconnect(reason), V5)))
        self._stop(Phase.IDLE)
        return [*outputs, Close(ConnectionFailedError(problem), is_final=False)]

    def _on_server_close(self, error: ClientError, reason: int) -> list[Output]:
        is_final = reason not in TRANSIENT
        self._stop(Phase.CLOSED if is_final else Phase.IDLE)
        return [Close(error, is_final)]

    def _next_timer_ms(self) -> int | None:
        """When a keep-alive or connect timer is due."""
        if self.phase is Phase.CONNECTING:
            return self._started_ms + self._options.connect_timeout_ms
        if self.phase is not Phase.CONNECTED or not self._keep_alive_ms:
            return None
        if self._pinged_ms is not None:
            return self._pinged_ms + max(self._keep_alive_ms // 2, 1)
        return min(self._sent_ms, self._received_ms) + self._keep_alive_ms

    # ------------------------------------------------------------------------------------ packets

    def _receive(self, data: bytes, now_ms: int) -> list[Output]:
        if self.phase not in (Phase.CONNECTING, Phase.CONNECTED):
            return []
        self._received_ms = now_ms
        self._pinged_ms = None
        if self.phase is Phase.CONNECTING and data.startswith(b"HTTP/"):
            return self._drop_connection(
                "the server speaks HTTP, not MQTT; use the node's MQTT port"
            )
        try:
            self._frames += self._framer.feed(data)
        except ProtocolError as error:
            problem = f"the server sent an invalid packet: {error}"
            return self._drop_connection(problem, error.reason)
        return self._process(now_ms)

    def _resume(self, now_ms: int) -> list[Output]:
        """Continue processing, as an inbox may have space again or a reply may be awaited now."""
        if self._frames and self._pinged_ms is not None:
            self._pinged_ms = now_ms  # the PINGRESP may be in frames not processed so far
        return self._process(now_ms)

    def _process(self, now_ms: int) -> list[Output]:
        """Process received frames while inboxes have space, or while a reply is awaited."""
        outputs: list[Output] = []
        while self._frames and (self._is_waiting or not self._inbound.is_blocked):
            first, body = self._frames.popleft()
            try:
                outputs += self._on_packet(decode(first, body, V5), now_ms)
            except ProtocolError as error:
                problem = f"the server violated the protocol: {error}"
                outputs += self._drop_connection(problem, error.reason)
        return outputs

    @property
    def _is_waiting(self) -> bool:
        """Whether a reply is awaited, which may be queued behind unprocessed frames."""
        return (
            self.phase is Phase.CONNECTING
            or self._outbound.is_waiting
            or self._subscribing.is_waiting
        )

    def _on_packet(self, packet: Packet, now_ms: int) -> list[Output]:
        if (self.phase is Phase.CONNECTING) != isinstance(packet, Connack):
            raise _unexpected(packet)
        match packet:
            case Publish():
                answers, arrived = self._inbound.accept(packet, now_ms)
                return [*_sends(answers), *map(Arrived, arrived)]
            case Puback() | Pubcomp():
                return self._outbound.on_ack(packet, now_ms)
            case Pubrec():
                return self._outbound.on_pubrec(packet, now_ms)
            case Pubrel():
                return _sends(self._inbound.on_pubrel(packet))
            case Suback():
                return self._subscribing.on_suback(packet)
            case Unsuback():
                return self._subscribing.on_unsuback(packet)
            case Pingresp():
                return []
            case Connack():
                return self._on_connack(packet, now_ms)
            case Disconnect():
                return self._on_disconnect(packet)
            case _:
                raise _unexpected(packet)

    def _on_connack(self, packet: Connack, now_ms: int) -> list[Output]:
        properties = packet.properties
        if packet.reason:
            error = _refused_error(packet.reason, properties, "the server refused the connection")
            return self._on_server_close(error, packet.reason)
        if self._options.wants_event_ids and EVENT_NAMES not in properties.user:
            self._stop(Phase.CLOSED)
            problem = "expected an Accord node: duplicate detection needs event IDs"
            return [Close(ConnectionFailedError(problem), is_final=True)]
        self.phase = Phase.CONNECTED
        self.client_id = properties.assigned_client_id or self.client_id
        if properties.server_keep_alive_s is not None:
            self._keep_alive_ms = properties.server_keep_alive_s * 1000
        is_resumed = packet.session_present
        self._inbound.start(is_resumed=is_resumed, is_first=self._is_first)
        self._is_first = False
        outputs: list[Output] = [Connected(is_resumed, properties)]
        outputs += self._outbound.start(properties, is_resumed=is_resumed)
        outputs += self._subscribing.start(properties, is_resumed=is_resumed, now_ms=now_ms)
        return [*outputs, *self._outbound.pump(now_ms)]

    def _on_disconnect(self, packet: Disconnect) -> list[Output]:
        properties = packet.properties
        outputs: list[Output] = []
        for name, pattern in properties.user:
            if name == ENDED:
                what = f"the server ended the subscription to {pattern!r}"
                error = _refused_error(packet.reason, properties, what)
                outputs += self._subscribing.end(pattern, error, properties)
        error = _refused_error(packet.reason, properties, "the server ended the connection")
        return [*outputs, *self._on_server_close(error, packet.reason)]


def _sends(packets: list[Packet]) -> list[Output]:
    return [Send(encode(packet, V5)) for packet in packets]


def _refused_error(reason: int, properties: Properties, what: str) -> RefusedError:
    explanation = properties.reason_string or ""
    if properties.server_reference:
        explanation = f"{explanation} (use {properties.server_reference})".strip()
    return RefusedError(Reason(reason), explanation, what=what, facts=properties.user)


def _unexpected(packet: Packet) -> ProtocolError:
    name = type(packet).__name__.upper()
    return ProtocolError(Reason.PROTOCOL_ERROR, f"{name} was not expected here")

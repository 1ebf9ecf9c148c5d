"""Handshake of a connection: CONNECT, authentication, CONNACK.

The driver checks user name and password (`LoginGate.logins`, concluded by `Connection.admit`),
because that is slow by design. Enhanced authentication is an `AuthExchange` of AUTH packets, with a
subclass for each method, such as SCRAM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from accord.core.broker.broker import FOREVER
from accord.core.broker.broker_context import CommitWaiter
from accord.core.broker.connection_state import (
    AUTHENTICATING,
    AWAITING_CONNECT,
    AWAITING_LOGIN,
    OPEN,
)
from accord.core.broker.publish_handler import has_too_many_levels, may_publish
from accord.core.broker.session import MqttSession
from accord.core.model.channels import RESPONSES
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import REASONS, V5, PacketType, ProtocolError, Reason, violation
from accord.core.mqtt.event_mapping import EVENT_IDS, EVENT_NAMES
from accord.core.mqtt.packets import Auth, Connack, Connect
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.router.rights import NODE_TOPICS, Rights

if TYPE_CHECKING:
    from accord.core.broker.connection import Connection


class AuthExchange:
    """One authentication in progress; each method is a subclass."""

    def step(self, data: bytes) -> AuthStep:
        """Process the client's data; raises ProtocolError if it is wrong."""
        raise NotImplementedError


class AuthStep:
    """The next step of an exchange; with `rights` the client is authenticated."""

    def __init__(self, data: bytes, rights: Rights | None = None, user: str = "") -> None:
        self.data = data
        self.rights = rights
        self.user = user


class LoginGate:
    """Authentication of clients; without a gate, every client has all rights."""

    def __init__(self, methods: dict[str, Callable[[], AuthExchange]] | None = None) -> None:
        self.methods = methods or {}
        self.logins: list[Connection] = []  # for the driver to check, see `Connection.admit`


class MqttHandshake:
    """The way of a connection from CONNECT to CONNACK, and its later authentications."""

    __slots__ = ("_exchange", "_gate", "_method", "connection")

    def __init__(self, connection: Connection, gate: LoginGate | None) -> None:
        self.connection = connection
        self._gate = gate
        self._exchange: AuthExchange | None = None
        self._method = ""

    def on_connect(self, connect: Connect) -> None:
        connection = self.connection
        limits = connection.broker.limits
        connection.connect = connect
        connection.version = connect.version
        connection.replies.sends_reasons = (
            connect.properties.request_problem_information is not False
        )
        connection.replies.packet_limit = connect.properties.maximum_packet_size or 0
        connection.client_id = connect.client_id
        connection.claimed_user = connect.username or ""
        if len(connect.client_id.encode()) > limits.client_id_bytes:
            most = limits.client_id_bytes
            self.refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, f"expected at most {most} bytes")
            return
        if not connect.client_id:
            if connect.version != V5 and not connect.clean_start:
                self.refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, "expected a client identifier")
                return
            connection.client_id = connection.broker.new_client_id()
        if connect.will is not None and len(connect.will.payload) > limits.will_bytes:
            self.refuse(Reason.PACKET_TOO_LARGE, f"a will of more than {limits.will_bytes} bytes")
            return
        if connect.will is not None and has_too_many_levels(connect.will.topic, limits):
            self.refuse(Reason.TOPIC_NAME_INVALID, "a will for a channel of too many levels")
            return
        method = connect.properties.authentication_method
        if method is not None:
            make = None if self._gate is None else self._gate.methods.get(method)
            if make is None:
                self.refuse(Reason.BAD_AUTHENTICATION_METHOD, f"{method!r} is not known here")
                return
            self._method = method
            self._exchange = make()
            self._step(connect.properties.authentication_data or b"")
        elif self._gate is not None:
            connection.change_state(AWAITING_LOGIN)
            self._gate.logins.append(connection)
        else:
            self._open(connect)

    def on_auth(self, packet: Auth) -> None:
        if packet.properties.authentication_method != self._method or not self._method:
            raise violation("AUTH with another method than CONNECT")
        if self.connection.state == OPEN:
            if packet.reason == Reason.REAUTHENTICATE:
                assert self._gate is not None
                self._exchange = self._gate.methods[self._method]()
            elif self._exchange is None:
                raise violation("AUTH without an authentication exchange")
        elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise violation("expected AUTH to continue")
        self._step(packet.properties.authentication_data or b"")

    def _step(self, data: bytes) -> None:
        """One step of an enhanced authentication, at login or for a re-authentication."""
        connection = self.connection
        exchange = self._exchange
        assert exchange is not None
        try:
            step = exchange.step(data)
        except ProtocolError as error:
            connection.end(error.reason, error.problem)
            return
        properties = Properties(
            authentication_method=self._method, authentication_data=step.data or None
        )
        if step.rights is None:
            if connection.state == AWAITING_CONNECT:
                connection.change_state(AUTHENTICATING)
            connection.replies.reply(encode(Auth(Reason.CONTINUE_AUTHENTICATION, properties), V5))
            return
        self._exchange = None
        rights = self._authorize(step.rights, step.user)
        if connection.state == OPEN:
            if connection.publisher is not None and connection.session is not None:
                connection.publisher.clear_fan_outs()
                connection.session.deny(rights.denied.subscribe)
            connection.replies.reply(encode(Auth(Reason.SUCCESS, properties), V5))
        else:
            assert connection.connect is not None
            self._open(connection.connect, properties)

    def _authorize(self, rights: Rights, user: str) -> Rights:
        connection = self.connection
        connection.user = user
        connection.rights = rights.for_client(user=user, client=connection.client_id)
        return connection.rights

    def on_login(self, rights: Rights | None, user: str, *, is_busy: bool) -> None:
        """Conclude a login with the client's rights, or refuse it with None."""
        connect = self.connection.connect
        assert connect is not None
        if rights is not None:
            self._authorize(rights, user)
            self._open(connect)
        elif is_busy:
            self.refuse(Reason.SERVER_BUSY, "too many logins at once")
        else:
            self.refuse(Reason.BAD_USER_NAME_OR_PASSWORD, "")

    def _open(self, connect: Connect, authenticated: Properties = NO_PROPERTIES) -> None:
        """Open or resume the session of an authenticated client."""
        connection = self.connection
        broker = connection.broker
        context = connection.context
        version = connection.version
        limits = broker.limits
        asked = connect.properties
        will = connect.will
        # A will is published for its client: on a topic of the node it would pass for the node's.
        if will is not None and (
            will.topic.startswith(NODE_TOPICS) or not may_publish(connection.rights, will.topic)
        ):
            self.refuse(Reason.NOT_AUTHORIZED, f"a will for {will.topic}")
            return
        if context.counters.connections >= limits.connections:
            self.refuse(Reason.SERVER_BUSY, "too many connections")
            return
        known = broker.sessions.get(connection.client_id)
        if known is not None and known.owner != connection.user:
            self.refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, "client ID belongs to another user")
            return
        is_durable = (asked.session_expiry_s or 0) > 0 or not (version == V5 or connect.clean_start)
        if is_durable and context.overload_cause:
            self.refuse(Reason.SERVER_BUSY, context.overload_cause)
            return
        appended = context.appended
        opened = broker.open_session(connection.client_id, is_clean=connect.clean_start)
        if opened is None:
            self.refuse(Reason.QUOTA_EXCEEDED, "too many sessions")
            return
        session, is_present = opened
        broker.set_owner(session, connection.user)
        self._drop_unauthorized(session)
        connection.open(session, acks_event_ids=version == V5 and EVENT_IDS in asked.user)
        if version == V5:
            expiry_s = asked.session_expiry_s or 0
        else:
            expiry_s = 0 if connect.clean_start else FOREVER
        session.version = version
        session.connection = connection
        broker.apply_connect(session, expiry_s, will)
        keep_alive_s = connect.keep_alive_s
        if limits.keep_alive_s and (keep_alive_s == 0 or keep_alive_s > limits.keep_alive_s):
            keep_alive_s = limits.keep_alive_s
        connection.keep_alive_ms = keep_alive_s * 1000
        connection.set_keep_alive_timer()
        properties = NO_PROPERTIES
        if version == V5:
            name = connection.client_id
            properties = Properties(
                session_expiry_s=session.expiry_s if session.expiry_s != expiry_s else None,
                receive_maximum=limits.receive_maximum,
                maximum_packet_size=limits.packet_bytes,
                topic_alias_maximum=limits.topic_alias_maximum or None,
                assigned_client_id=None if connect.client_id else name,
                server_keep_alive_s=(
                    keep_alive_s if keep_alive_s != connect.keep_alive_s else None
                ),
                response_information=(
                    f"{RESPONSES}{name}"
                    if asked.request_response_information and not set(name) & set("+#/")
                    else None
                ),
                authentication_method=authenticated.authentication_method,
                authentication_data=authenticated.authentication_data,
                user=(EVENT_NAMES,) if EVENT_NAMES in asked.user else (),
            )
        frame = encode(Connack(is_present, Reason.SUCCESS, properties), version)
        if 0 < connection.replies.packet_limit < len(frame):
            # The CONNACK carries facts the client needs, so it can't be shortened.
            problem = "the client takes no CONNACK"
            connection.close("packet too large", problem, is_will_wanted=False)
            return
        # Nothing may overtake the CONNACK, so the session is attached only after it.
        if context.appended != appended or session.predecessor_position > context.committed:
            context.hold(HeldConnack(self, frame))
        else:
            self.send_connack(frame)

    def _drop_unauthorized(self, session: MqttSession) -> None:
        """Drop subscriptions and messages to which the client no longer has the right."""
        rights = self.connection.rights
        if rights is not None:
            session.deny(rights.denied.subscribe)
            session.drop_denied()
            for pattern in list(session.subscriptions):
                if not rights.may_subscribe(pattern):
                    self.connection.broker.unsubscribe(session, pattern)

    def send_connack(self, frame: bytes) -> None:
        """Send the CONNACK, then attach the session."""
        connection = self.connection
        session = connection.session
        connect = connection.connect
        if session is None or connect is None:
            return  # closed meanwhile
        connection.replies.reply_first(frame)
        asked = connect.properties
        session.attach(
            connection,
            connection.version,
            asked.receive_maximum or 65_535,
            connection.replies.packet_limit,
            asked.topic_alias_maximum or 0,
            connection.version == V5 and EVENT_NAMES in asked.user,
        )
        connection.connect = None
        if not self._method:
            connection.handshake = None  # nothing is left to do
        quality = connection.broker.quality
        if quality is not None:
            quality.on_online(session)

    def refuse(self, reason: Reason, problem: str) -> None:
        """Refuse a CONNECT."""
        connection = self.connection
        replies = connection.replies
        version = connection.version
        properties = replies.reason_properties(problem) if version == V5 else NO_PROPERTIES
        sent = reason if reason in REASONS[PacketType.CONNACK] else Reason.UNSPECIFIED_ERROR
        short = Connack(False, sent)
        frame = replies.encode_fitting(Connack(False, sent, properties), short, version)
        if not 0 < replies.packet_limit < len(frame):
            replies.reply(frame)
        why = reason.name.lower().replace("_", " ")
        connection.context.counters.count_refused(why)
        connection.close(why, problem, is_will_wanted=False)


class HeldConnack(CommitWaiter):
    """The CONNACK of a durable session."""

    def __init__(self, handshake: MqttHandshake, frame: bytes) -> None:
        super().__init__()
        self.handshake = handshake
        self.frame = frame

    def release(self) -> None:
        self.handshake.send_connack(self.frame)

"""Opening and closing a connection: CONNECT, authentication, CONNACK, and the end.

The driver checks user name and password (`LoginGate.logins`, concluded by `admit`), because that is
slow by design. Enhanced authentication is an `AuthExchange` of AUTH packets, with a subclass for
each method, such as SCRAM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.broker.broker import FOREVER, Broker
from accord.core.broker.broker_context import HeldReply
from accord.core.broker.connection_state import (
    AUTHENTICATING,
    AWAITING_CONNECT,
    AWAITING_LOGIN,
    CLOSED,
    OPEN,
)
from accord.core.broker.publish_handler import PublishHandler
from accord.core.broker.session import MqttSession
from accord.core.model.channels import RESPONSES
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import REASONS, V5, PacketType, ProtocolError, Reason, violation
from accord.core.mqtt.event_mapping import EVENT_IDS, EVENT_NAMES
from accord.core.mqtt.packets import Auth, Connack, Connect, Disconnect
from accord.core.mqtt.properties import ENDED, NO_PROPERTIES, Properties
from accord.core.router.rights import Rights
from accord.core.scheduling.timers import Timer


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


LOST: Final = "connection lost"


class LoginGate:
    """Authentication of clients; without a gate, every client has all rights."""

    def __init__(self, methods: dict[str, Callable[[], AuthExchange]] | None = None) -> None:
        self.methods = methods or {}
        self.logins: list[MqttHandshake] = []  # for the driver to check, see `MqttHandshake.admit`


class MqttHandshake(PublishHandler):
    """Opens and closes a connection."""

    __slots__ = (
        "_exchange",
        "_method",
        "_timer",
        "claimed_user",
        "connected_ms",
        "gate",
        "is_closing",
        "keep_alive_ms",
        "reason",
        "received_ms",
        "user",
    )

    def __init__(self, broker: Broker, gate: LoginGate | None, address: str) -> None:
        super().__init__(broker, address)
        self.gate = gate
        self.user = ""  # the verified user, if any
        self.claimed_user = ""
        self.is_closing = False
        self.reason = ""  # why it was closed, for logs and counters
        self.received_ms = self.context.now_ms
        self.connected_ms = 0
        self.keep_alive_ms = 0
        self._exchange: AuthExchange | None = None
        self._method = ""
        self._timer = ClientTimer(self)
        broker.timers.set(self._timer, self.context.now_ms + broker.limits.connect_timeout_s * 1000)

    def _on_connect(self, connect: Connect) -> None:
        self.connect = connect
        self.version = connect.version
        self._sends_reasons = connect.properties.request_problem_information is not False
        self.packet_limit = connect.properties.maximum_packet_size or 0
        self.client_id = connect.client_id
        self.claimed_user = connect.username or ""
        if len(connect.client_id.encode()) > self.broker.limits.client_id_bytes:
            most = self.broker.limits.client_id_bytes
            self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, f"expected at most {most} bytes")
            return
        if not connect.client_id:
            if connect.version != V5 and not connect.clean_start:
                self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, "expected a client identifier")
                return
            self.client_id = self.broker.new_client_id()
        if connect.will is not None and len(connect.will.payload) > self.broker.limits.will_bytes:
            most = self.broker.limits.will_bytes
            self._refuse(Reason.PACKET_TOO_LARGE, f"a will of more than {most} bytes")
            return
        if connect.will is not None and self._is_too_deep(connect.will.topic):
            self._refuse(Reason.TOPIC_NAME_INVALID, "a will for a channel of too many levels")
            return
        method = connect.properties.authentication_method
        if method is not None:
            make = None if self.gate is None else self.gate.methods.get(method)
            if make is None:
                self._refuse(Reason.BAD_AUTHENTICATION_METHOD, f"{method!r} is not known here")
                return
            self._method = method
            self._exchange = make()
            self._step(connect.properties.authentication_data or b"")
        elif self.gate is not None:
            self.change_state(AWAITING_LOGIN)
            self.gate.logins.append(self)
        else:
            self._open(connect)

    def _on_auth(self, packet: Auth) -> None:
        if packet.properties.authentication_method != self._method or not self._method:
            raise violation("AUTH with another method than CONNECT")
        if self.state == OPEN:
            if packet.reason == Reason.REAUTHENTICATE:
                assert self.gate is not None
                self._exchange = self.gate.methods[self._method]()
            elif self._exchange is None:
                raise violation("AUTH without an exchange under way")
        elif packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise violation("expected AUTH to go on")
        self._step(packet.properties.authentication_data or b"")

    def _step(self, data: bytes) -> None:
        """One step of an enhanced authentication, at login or for a re-authentication."""
        exchange = self._exchange
        assert exchange is not None
        try:
            step = exchange.step(data)
        except ProtocolError as error:
            self.end(error.reason, error.problem)
            return
        properties = Properties(
            authentication_method=self._method, authentication_data=step.data or None
        )
        if step.rights is None:
            if self.state == AWAITING_CONNECT:
                self.change_state(AUTHENTICATING)
            self.reply(encode(Auth(Reason.CONTINUE_AUTHENTICATION, properties), V5))
            return
        self._exchange = None
        self.user = step.user
        self._rights = step.rights.for_client(user=self.user, client=self.client_id)
        self._clear_fan_outs()
        if self.state == OPEN:
            if self.session is not None:
                self.session.deny(self._rights.denied.subscribe)
            self.reply(encode(Auth(Reason.SUCCESS, properties), V5))
        else:
            assert self.connect is not None
            self._open(self.connect, properties)

    def admit(
        self, rights: Rights | None, *, now_ms: int, user: str = "", is_busy: bool = False
    ) -> None:
        """Conclude a login with the client's rights, or refuse it with None.

        `user` is empty for a client that was not verified.
        """
        if self.state != AWAITING_LOGIN:
            return
        self.context.now_ms = now_ms
        connect = self.connect
        assert connect is not None
        if rights is None:
            reason = Reason.SERVER_BUSY if is_busy else Reason.BAD_USER_NAME_OR_PASSWORD
            self._refuse(reason, "too many logins at once" if is_busy else "")
            return
        self.user = user
        self._rights = rights.for_client(user=user, client=self.client_id)
        self._open(connect)
        self._resume_reading(now_ms)

    def _resume_reading(self, now_ms: int) -> None:
        """Handle packets that arrived before the login was concluded."""
        raise NotImplementedError

    def _open(self, connect: Connect, authenticated: Properties = NO_PROPERTIES) -> None:
        """Open or resume the session of an authenticated client."""
        limits = self.broker.limits
        asked = connect.properties
        will = connect.will
        if will is not None and not self._may_publish(will.topic):
            self._refuse(Reason.NOT_AUTHORIZED, f"a will for {will.topic}")
            return
        if self.context.counters.connections >= limits.connections:
            self._refuse(Reason.SERVER_BUSY, "too many connections")
            return
        known = self.broker.sessions.get(self.client_id)
        if known is not None and known.owner != self.user:
            self._refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID, "another user's client is called so")
            return
        is_durable = (asked.session_expiry_s or 0) > 0 or not (
            self.version == V5 or connect.clean_start
        )
        if is_durable and self.context.overload_cause:
            self._refuse(Reason.SERVER_BUSY, self.context.overload_cause)
            return
        appended = self.context.appended
        opened = self.broker.open_session(self.client_id, is_clean=connect.clean_start)
        if opened is None:
            self._refuse(Reason.QUOTA_EXCEEDED, "too many sessions")
            return
        session, is_present = opened
        self.broker.set_owner(session, self.user)
        self._drop_unauthorized(session)
        self._acks_event_ids = self.version == V5 and EVENT_IDS in asked.user
        self.session = session
        self.change_state(OPEN)
        self.connected_ms = self.context.now_ms
        self.context.counters.count_connect()
        if self.version == V5:
            expiry_s = asked.session_expiry_s or 0
        else:
            expiry_s = 0 if connect.clean_start else FOREVER
        session.version = self.version
        session.connection = self
        self.broker.apply_connect(session, expiry_s, will)
        keep_alive_s = connect.keep_alive_s
        if limits.keep_alive_s and (keep_alive_s == 0 or keep_alive_s > limits.keep_alive_s):
            keep_alive_s = limits.keep_alive_s
        self.keep_alive_ms = keep_alive_s * 1000
        self.set_keep_alive_timer()
        properties = NO_PROPERTIES
        if self.version == V5:
            properties = Properties(
                session_expiry_s=session.expiry_s if session.expiry_s != expiry_s else None,
                receive_maximum=limits.receive_maximum,
                maximum_packet_size=limits.packet_bytes,
                topic_alias_maximum=limits.topic_alias_maximum or None,
                assigned_client_id=None if connect.client_id else self.client_id,
                server_keep_alive_s=(
                    keep_alive_s if keep_alive_s != connect.keep_alive_s else None
                ),
                response_information=(
                    f"{RESPONSES}{self.client_id}"
                    if asked.request_response_information and not set(self.client_id) & set("+#/")
                    else None
                ),
                authentication_method=authenticated.authentication_method,
                authentication_data=authenticated.authentication_data,
                user=(EVENT_NAMES,) if EVENT_NAMES in asked.user else (),
            )
        frame = encode(Connack(is_present, Reason.SUCCESS, properties), self.version)
        if 0 < self.packet_limit < len(frame):
            # The CONNACK carries facts the client needs, so it can't be shortened.
            self._close("packet too large: the client takes no CONNACK", is_will_wanted=False)
            return
        # Nothing may overtake the CONNACK, so the session is attached only after it.
        if (
            self.context.appended != appended
            or session.predecessor_position > self.context.committed
        ):
            self.context.hold(HeldConnack(self, frame))
        else:
            self.send_connack(frame)

    def _drop_unauthorized(self, session: MqttSession) -> None:
        """Drop subscriptions and messages to which the client no longer has the right."""
        if self._rights is not None:
            session.deny(self._rights.denied.subscribe)
            session.drop_denied()
            for pattern in list(session.subscriptions):
                if not self._rights.may_subscribe(pattern):
                    self.broker.unsubscribe(session, pattern)

    def send_connack(self, frame: bytes) -> None:
        """Send the CONNACK, then attach the session."""
        session = self.session
        connect = self.connect
        if session is None or connect is None or self.state != OPEN:
            return
        self._control = [frame, *self._control]
        self._reply_count += 1
        self.context.wake(self)
        asked = connect.properties
        session.attach(
            self,
            self.version,
            asked.receive_maximum or 65_535,
            self.packet_limit,
            asked.topic_alias_maximum or 0,
            self.version == V5 and EVENT_NAMES in asked.user,
        )
        self.connect = None
        if self.broker.quality is not None:
            self.broker.quality.on_online(session)

    def _refuse(self, reason: Reason, problem: str) -> None:
        """Refuse a CONNECT."""
        properties = self._reason_properties(problem) if self.version == V5 else NO_PROPERTIES
        said = reason if reason in REASONS[PacketType.CONNACK] else Reason.UNSPECIFIED_ERROR
        frame = self._fit_limit(
            encode(Connack(False, said, properties), self.version),
            encode(Connack(False, said), self.version),
        )
        if not 0 < self.packet_limit < len(frame):
            self.reply(frame)
        why = reason.name.lower().replace("_", " ")
        self.context.counters.count_refused(why)
        self._close(f"{why}: {problem}" if problem else why, is_will_wanted=False)

    def end(self, reason: Reason, problem: str = "", ended: str = "") -> None:
        """Close the connection from this side with a reason.

        `ended` is the filter of a subscription that ends with it: MQTT has no other way to report
        that.
        """
        if self.state == CLOSED:
            return
        if self.state < OPEN:
            is_version_known = self.connect is not None or self.version == V5
            if is_version_known or reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
                self._refuse(reason, problem)
                return
        elif self.version == V5:
            said = reason if reason in REASONS[PacketType.DISCONNECT] else Reason.UNSPECIFIED_ERROR
            facts = ((ENDED, ended),) if ended else ()
            frame = encode(Disconnect(said, self._reason_properties(problem, facts)), V5)
            self.reply(self._fit_limit(frame, encode(Disconnect(said), V5)))
        why = reason.name.lower().replace("_", " ")
        self._close(f"{why}: {problem}" if problem else why, is_will_wanted=True)

    def on_closed(self, *, now_ms: int, why: str = LOST) -> None:
        """The network connection was closed."""
        self.context.now_ms = now_ms
        self._close(why, is_will_wanted=True)

    def _close(self, why: str, *, is_will_wanted: bool) -> None:
        if self.state == CLOSED:
            return
        was_open = self.state == OPEN
        self.change_state(CLOSED)
        self.reason = why
        self.is_closing = True
        self._clear_fan_outs()
        self._aliases = {}
        self.broker.timers.cancel(self._timer)
        session = self.session
        self.session = None
        if was_open:
            self.context.counters.count_disconnect(why.partition(":")[0])
            if self.connect is not None:
                # Nothing may be sent before a CONNACK.
                self._control, self._reply_count = [], 0
        if session is not None and session.connection is self:
            self.broker.detach_session(
                session, is_will_wanted=is_will_wanted, expiry_s=session.expiry_s
            )
        self.context.wake(self)

    def set_keep_alive_timer(self) -> None:
        """Set the keep-alive timer, with half of the interval as grace."""
        if self.keep_alive_ms:
            self.broker.timers.set(self._timer, self._timeout_ms())
        else:
            self.broker.timers.cancel(self._timer)

    def is_timed_out(self, now_ms: int) -> bool:
        if self.keep_alive_ms == 0 or now_ms < self._timeout_ms():
            return False
        if not self.wants_data():
            self.received_ms = now_ms  # reading was paused: the interval starts when it resumes
            return False
        return True

    def _timeout_ms(self) -> int:
        return self.received_ms + self.keep_alive_ms + self.keep_alive_ms // 2


class HeldConnack(HeldReply):
    """The CONNACK of a durable session."""

    def __init__(self, handshake: MqttHandshake, frame: bytes) -> None:
        super().__init__(handshake, frame)
        self.handshake = handshake

    def release(self) -> None:
        self.handshake.send_connack(self.frames)


class ClientTimer(Timer):
    """Closes a silent connection: before its CONNECT, or beyond its keep-alive."""

    __slots__ = ("handshake",)

    def __init__(self, handshake: MqttHandshake) -> None:
        super().__init__()
        self.handshake = handshake

    def fire(self, now: int) -> None:
        handshake = self.handshake
        if handshake.state < OPEN:
            handshake.end(Reason.MAXIMUM_CONNECT_TIME, "no complete CONNECT in time")
        elif handshake.is_timed_out(now):
            handshake.end(Reason.KEEP_ALIVE_TIMEOUT)
        else:
            handshake.set_keep_alive_timer()

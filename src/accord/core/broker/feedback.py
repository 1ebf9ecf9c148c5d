"""Feedback: receivers reply to the source of an event, and the source replies in turn.

This is MQTT request/response. A publisher that wants feedback sets the response topic
`$accord/feedback`. Its node appends a signed receipt before forwarding, so receivers see
`$accord/feedback/RECEIPT` and reply there. The receipt routes the feedback to the node that issued
it and, if it is genuine, to the client that published the event. The feedback carries a receipt for
its sender, issued by the sender's node, so that the source can reply in the same way, any number of
times.

Each side gets its own correlation data back, whatever the other one sends, because the receipt
contains it. Between nodes feedback travels as a message whose response topic leads back to the
sender and whose correlation data is the receipt it replies to. The receipt names the destination
node, by which parents find their child and other nodes find the parents of a secondary node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from accord.core.broker.delivery_accounting import record_unrouted
from accord.core.broker.message import MqttMessage, properties_of_transit_event
from accord.core.broker.session import MqttSession
from accord.core.model.errors import EventError
from accord.core.model.receipts import Receipt, ReceiptError, ReceiptSigner, parse_receipt
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.monitoring.ledger import REFUSED, event_id
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.properties import (
    CHANNEL,
    EVENT,
    MAX_USER,
    NODE,
    OWN_PREFIX,
    PUBLISHER,
    Properties,
    forwarded_block,
)
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Entity, Grant
from accord.core.router.rights import FEEDBACK, FEEDBACK_PREFIX, Rights

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

# Forwards feedback to the node of its receipt; False if that node is unknown.
ForwardFeedback = Callable[[TransitEvent, Receipt], bool]

TOPIC: Final = string_bytes(FEEDBACK)

# Causes of undelivered feedback.
NO_RECEIPT: Final = "answer without a receipt"
FORGED: Final = "forged receipt"
SOURCE_GONE: Final = "source of the event gone"
NOT_LISTENING: Final = "source of the event does not listen"
TOO_LARGE: Final = "answer too large"
UNKNOWN_NODE: Final = "node of the event's source unknown"
DAMAGED: Final = "answer damaged on the way"


class FeedbackRefused(msgspec.Struct, frozen=True):
    """Why feedback was refused; `problem` is shown to the sender."""

    cause: str
    reason: Reason
    problem: str


class FeedbackHandler:
    """Feedback of one node; its receipts are signed with `secret`."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        self._receipts = ReceiptSigner(broker.context.node, secret)

    def attach_receipt(self, message: MqttMessage, owner: str, number: int) -> None:
        """Put a receipt into an event that requests feedback and will have this number.

        Raises EventError if that is not possible, or if the publisher supplied a receipt itself:
        feedback would reach a client that never requested it.
        """
        topic = message.properties.response_topic
        if topic == FEEDBACK:
            correlation = message.properties.correlation_data
            receipt = self._receipts.make(
                message.publisher, owner, number, message.channel, correlation
            )
            self._set(message, msgspec.structs.replace(message.properties, **_reply_topic(receipt)))
        elif topic is not None and topic.startswith(FEEDBACK_PREFIX):
            raise EventError(
                "response topic", f"expected {FEEDBACK} alone: receipts are the node's"
            )

    def on_feedback(
        self, message: MqttMessage, session: MqttSession, rights: Rights | None
    ) -> FeedbackRefused | None:
        """Accept feedback from a client of this node; returns the reason if it is refused."""
        text = message.topic[len(TOPIC) + 1 :].decode()
        try:
            answered = parse_receipt(text)
            correlation = message.properties.correlation_data
            receipt = self._receipts.make(
                session.name, session.owner, message.number, answered.channel, correlation
            )
        except ReceiptError as error:
            refused = FeedbackRefused(NO_RECEIPT, Reason.TOPIC_NAME_INVALID, error.problem)
            return self._refuse(message, refused)
        except EventError as error:
            return self._refuse(
                message, FeedbackRefused(TOO_LARGE, Reason.QUOTA_EXCEEDED, str(error))
            )
        going = self._transit_form(message, text, receipt)
        if answered.node == self._receipts.node:
            return self._deliver(going, session.entity)
        return self._send_remote(going, answered, session.entity, rights)

    def on_remote_feedback(
        self,
        event: TransitEvent,
        now_ms: int,
        forward: ForwardFeedback,
        *,
        is_duplicate: bool = False,
    ) -> None:
        """Accept feedback from another node; `forward` forwards what is for a further node.

        With `is_duplicate` it is a duplicate, no longer delivered to clients of this node.
        """
        message = _message(event, now_ms)
        if message is None:
            self._broker.context.counters.count_shed(DAMAGED, event.source)
            return
        message.counts = self._broker.router.fan_out(FEEDBACK).counts
        answered = _receipt_of(message)
        if answered is not None and answered.node != self._receipts.node:
            if not forward(event, answered):
                self._refuse(message, _unknown_node(answered.node))
        elif not is_duplicate:
            self._deliver(message, Entity(event.publisher, node=event.child or event.source))

    def _transit_form(self, message: MqttMessage, answered: str, receipt: str) -> MqttMessage:
        """The feedback in the form that travels between nodes."""
        going = MqttMessage(
            FEEDBACK,
            TOPIC,
            message.payload,
            message.qos,
            False,
            message.publisher,
            message.received_ms,
            message.properties,
            b"",
            message.expires_ms,
        )
        going.number = message.number
        going.counts = message.counts
        back = _reply_topic(receipt)
        properties = msgspec.structs.replace(
            message.properties, correlation_data=answered.encode(), **back
        )
        self._set(going, properties)
        return going

    def _send_remote(
        self, going: MqttMessage, answered: Receipt, entity: Entity, rights: Rights | None
    ) -> FeedbackRefused | None:
        bridge, channel = self._broker.bridge, answered.channel
        importance = DEFAULT_IMPORTANCE
        # Only the issuing node can verify the receipt, so it grants no importance that the client
        # could not have otherwise.
        if rights is None or rights.may_subscribe(channel) or rights.may_publish(channel):
            view = self._broker.router.policies.view(channel)
            importance = view.publish_grant(view.publisher(entity)).importance
        cause = UNKNOWN_NODE
        if bridge is not None:
            cause = bridge.send_local_feedback(going, answered, importance)
        if cause == UNKNOWN_NODE:
            return self._refuse(going, _unknown_node(answered.node))
        if cause:
            return self._refuse(going, FeedbackRefused(cause, Reason.QUOTA_EXCEEDED, cause))
        return None

    def _deliver(self, going: MqttMessage, sender: Entity) -> FeedbackRefused | None:
        """Deliver feedback to a client of this node."""
        try:
            receipt = self._receipts.verify(_receipt_text(going))
        except ReceiptError as error:
            cause = FORGED if error.is_forged else NO_RECEIPT
            return self._refuse(going, FeedbackRefused(cause, Reason.NOT_AUTHORIZED, error.problem))
        session = self._broker.sessions.get(receipt.client)
        reason = Reason.IMPLEMENTATION_SPECIFIC_ERROR
        if session is None or not self._receipts.belongs_to(receipt, session.owner):
            return self._refuse(going, FeedbackRefused(SOURCE_GONE, reason, SOURCE_GONE))
        subscription = session.subscription_to(FEEDBACK)
        if subscription is None:
            return self._refuse(going, FeedbackRefused(NOT_LISTENING, reason, NOT_LISTENING))
        properties = _source_properties(going.properties, receipt, sender)
        self._set(going, properties)
        limit = session.packet_limit
        if len(properties.user) > MAX_USER or 0 < limit < going.size():
            problem = "larger than the source of the event accepts"
            return self._refuse(going, FeedbackRefused(TOO_LARGE, Reason.QUOTA_EXCEEDED, problem))
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        grant = self._grant(going, receipt.channel, sender, session)
        session.deliver(going, min(going.qos, subscription.qos), False, identifiers, grant)
        return None

    def _grant(
        self, message: MqttMessage, channel: str, sender: Entity, session: MqttSession
    ) -> Grant:
        """The importance that policies give the event's channel, and nothing else of them."""
        router = self._broker.router
        view = router.policies.view(channel)
        sides = view.publisher(sender), view.receiver(session.entity)
        matching = router.matching_policies(message, view) if view.has_conditions else 0
        granted = view.grant(*sides, matching)
        return Grant(granted.importance, 0, "", 0, 0, False, granted.policy)

    def _refuse(self, message: MqttMessage, refused: FeedbackRefused) -> FeedbackRefused:
        """Count refused feedback, and record the cause."""
        context = self._broker.context
        context.counters.count_shed(refused.cause, message.publisher)
        if message.counts is not None:
            message.counts.shed += 1
        size = len(message.payload)
        received_ms, publisher = message.received_ms, message.publisher
        record_unrouted(
            context, message.number, FEEDBACK, publisher, REFUSED, received_ms, size, refused.cause
        )
        return refused

    @staticmethod
    def _set(message: MqttMessage, properties: Properties) -> None:
        message.properties = properties
        message.block = forwarded_block(properties)


def _reply_topic(receipt: str) -> dict[str, str]:
    """The property that holds the reply address."""
    return {"response_topic": FEEDBACK_PREFIX + receipt}


def _receipt_text(going: MqttMessage) -> str:
    """The receipt being replied to."""
    return (going.properties.correlation_data or b"").decode(errors="replace")


def _receipt_of(going: MqttMessage) -> Receipt | None:
    """That receipt, parsed but not verified; None if it is invalid."""
    try:
        return parse_receipt(_receipt_text(going))
    except ReceiptError:
        return None


def _unknown_node(node: str) -> FeedbackRefused:
    problem = f"no node {node[:80]!r} is known here"
    return FeedbackRefused(UNKNOWN_NODE, Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)


def _source_properties(properties: Properties, receipt: Receipt, sender: Entity) -> Properties:
    """Properties for the source: sender, event ID, and the source's own correlation data."""
    own = (
        (EVENT, event_id(receipt.event)),
        (CHANNEL, receipt.channel),
        (PUBLISHER, sender.client),
        (NODE, sender.node),
    )
    others = tuple(each for each in properties.user if not each[0].startswith(OWN_PREFIX))
    return msgspec.structs.replace(
        properties, correlation_data=receipt.correlation, user=(*others, *own)
    )


def _message(event: TransitEvent, now_ms: int) -> MqttMessage | None:
    """None if malformed: messages of other nodes are validated."""
    properties = properties_of_transit_event(event)
    if properties is None or not (properties.response_topic or "").startswith(FEEDBACK_PREFIX):
        return None
    received_ms = now_ms - event.age_us // 1_000
    message = MqttMessage(
        FEEDBACK,
        TOPIC,
        event.payload,
        event.qos,
        False,
        event.publisher,
        received_ms,
        properties,
        event.block,
        received_ms + event.deadline_us // 1_000 if event.deadline_us else 0,
    )
    message.number = event.event
    return message

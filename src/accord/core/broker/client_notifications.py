"""Messages from the node itself to one client, on channels shared with other clients.

A client subscribed to the channel gets only what concerns itself. A client that is not subscribed,
or offline, gets nothing and can query instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.units import IMPORTANCES
from accord.core.mqtt.properties import Properties, forwarded_block
from accord.core.mqtt.wire import string_bytes
from accord.core.policy.policies import Grant

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

_JSON: Final = "application/json"
_FORM: Final = Properties(content_type=_JSON)
_BLOCK: Final = forwarded_block(_FORM)
# Highest priority: such messages are small, and may be about what is queued.
_TOP_GRANT: Final = Grant(IMPORTANCES - 1, 0, "", 0, 0, True, "")


def notify_client(broker: Broker, client: str, topic: str, form: dict[str, Any]) -> bool:
    """Notify a client; False if it is offline or not subscribed to `topic`."""
    session = broker.sessions.get(client)
    return session is not None and notify_session(broker, session, topic, form)


def notify_session(
    broker: Broker,
    session: MqttSession,
    topic: str,
    form: dict[str, Any] | bytes,
    properties: Properties = _FORM,
    block: bytes = _BLOCK,
) -> bool:
    subscription = session.subscription_to(topic)
    if subscription is None or session.connection is None:
        return False
    context = broker.context
    message = MqttMessage(
        topic,
        string_bytes(topic),
        form if isinstance(form, bytes) else msgspec.json.encode(form),
        1,
        False,
        "",
        context.now_ms,
        properties,
        block,
        0,
    )
    context.assign_number(message, broker.router.fan_out(topic).counts)
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    session.deliver(message, min(1, subscription.qos), False, identifiers, _TOP_GRANT)
    return True


def reply_to_request(broker: Broker, request: NodeRequest, form: dict[str, Any] | bytes) -> None:
    """Reply to a request, on its response topic or on the channel of the request.

    Only the requesting client receives the reply: a request must not make the node send to others.
    """
    session = broker.sessions.get(request.client)
    asked = request.message.properties
    topic = asked.response_topic
    if session is None:
        return
    if topic is None:
        notify_session(broker, session, request.message.channel, form)
        return
    properties = Properties(content_type=_JSON, correlation_data=asked.correlation_data)
    notify_session(broker, session, topic, form, properties, forwarded_block(properties))

"""Messages of the node itself to one client, on channels that others have too.

Who has subscribed to the channel gets what concerns it and nothing else; who has not, or is away,
gets nothing: it can ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.importance import IMPORTANCES
from accord.core.mqtt.properties import Properties, passed_on_block
from accord.core.mqtt.wire import string_bytes
from accord.core.policy.policies import Grant

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

_JSON: Final = "application/json"
_FORM: Final = Properties(content_type=_JSON)
_BLOCK: Final = passed_on_block(_FORM)
# Before everything else: it is little, and what waits may be what it is about.
_FIRST: Final = Grant(IMPORTANCES - 1, 0, "", 0, 0, True, "")


def notify_client(broker: Broker, client: str, topic: str, form: dict[str, Any]) -> bool:
    """False where the client is not there, or does not want to hear of it."""
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
    if subscription is None or session.line is None:
        return False
    hub = broker.hub
    message = MqttMessage(
        topic,
        string_bytes(topic),
        form if isinstance(form, bytes) else msgspec.json.encode(form),
        1,
        False,
        "",
        hub.now_ms,
        properties,
        block,
        0,
    )
    hub.enter(message, broker.router.route(topic).counts)
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    session.deliver(message, min(1, subscription.qos), False, identifiers, _FIRST)
    return True


def reply_to_request(broker: Broker, request: NodeRequest, form: dict[str, Any] | bytes) -> None:
    """Answer a request, on its response topic or on the channel that it came by.

    Nobody but its client hears it: anybody may ask, but not let the node speak to others.
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
    notify_session(broker, session, topic, form, properties, passed_on_block(properties))

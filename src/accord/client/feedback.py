"""Feedback to this client's events, as a subscription."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from accord.client.inbox import ReceivedMessage
from accord.client.messages import ReceivedEvent
from accord.client.subscription import ServerSubscription, Subscription
from accord.core.mqtt.properties import NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(ReceivedEvent):
    """Feedback to an event of this client, or to feedback that it gave.

    `event` is the node's ID of the event it refers to (as in `Outcome.event`), `channel` is where
    that was published. `source` is the client that sent the feedback and `node` its node;
    `feedback` replies to it.
    """

    event: str = ""
    node: str = ""

    @property
    def correlation_data(self) -> bytes | None:
        """The correlation data that this client gave when it published."""
        return self.properties.correlation_data


class Answers(Subscription):
    """Feedback to this client: enter it with `async with`, iterate with `async for`.

    Made by `Session.feedback`.
    """

    async def __anext__(self) -> Answer:
        answer = await super().__anext__()
        assert isinstance(answer, Answer)
        return answer

    def _event(self, feed: ServerSubscription, delivery: ReceivedMessage) -> Answer:
        received = super()._event(feed, delivery)
        named = {each.name: getattr(received, each.name) for each in dataclasses.fields(received)}
        named["id"] = ""
        node = dict(delivery.message.properties.user).get(NODE, "")
        return Answer(**named, event=received.id, node=node)

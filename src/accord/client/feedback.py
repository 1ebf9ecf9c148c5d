"""Answers to events of this client, as its program hears them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from accord.client.inbox import ReceivedMessage
from accord.client.messages import ReceivedEvent
from accord.client.server_subscription import ServerSubscription
from accord.client.subscription import Subscription
from accord.core.mqtt.reserved_properties import NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(ReceivedEvent):
    """An answer to an event of this client, or to an answer that it gave.

    `event` is what the node calls the one that is answered (as `Outcome.event` said), `channel`
    where it was published. `source` is the client that answers, `node` where that is; it is
    answered with `feedback` in turn.
    """

    event: str = ""
    node: str = ""

    @property
    def correlation_data(self) -> bytes | None:
        """As this client gave it when it published."""
        return self.properties.correlation_data


class Answers(Subscription):
    """Made by `Session.feedback`: entered with `async with`, gone through with `async for`."""

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

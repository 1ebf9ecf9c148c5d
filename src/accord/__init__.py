"""Accord: quality-of-service publish, subscribe and query.

What `__all__` lists is the public surface of the client; `accord.predicates`, `accord.sim`,
`accord.testing`, `accord.templates` and `accord.pipeline` are imported by name.

The package itself imports nothing: Spark workers, command-line completion and clients all pay
for what stands here. Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from accord.client.advertisements import Advertisement
    from accord.client.errors import (
        AdmissionRefusedError,
        AdvertisementError,
        AlreadySubscribedError,
        ChannelRefusedError,
        ClientError,
        ConnectionFailedError,
        ExpiredError,
        NotTakenError,
        QualityRefusedError,
        QueryError,
        RefusedError,
        SessionClosedError,
    )
    from accord.client.feedback import Answer, Answers
    from accord.client.messages import Outcome, ReceivedEvent
    from accord.client.quality import (
        Advice,
        Capability,
        Coupling,
        Expectation,
        ExpectationState,
        Line,
        Usage,
    )
    from accord.client.quality_session import Expected, Publisher
    from accord.client.query import Query, QueryStats
    from accord.client.session import Session, connect
    from accord.client.subscription import Subscription
    from accord.client.sync import (
        SyncAdvertisement,
        SyncAnswers,
        SyncExpected,
        SyncPublisher,
        SyncQuery,
        SyncSession,
        SyncSubscription,
        connect_sync,
    )
    from accord.core.model.errors import AccordError, EventError
    from accord.core.model.event import Event
    from accord.core.mqtt.codes import Reason
    from accord.core.mqtt.packets import Will
    from accord.core.mqtt.properties import Properties
    from accord.core.overlay.channel_directory import Channel

__all__ = [
    "AccordError",
    "AdmissionRefusedError",
    "Advertisement",
    "AdvertisementError",
    "Advice",
    "AlreadySubscribedError",
    "Answer",
    "Answers",
    "Capability",
    "Channel",
    "ChannelRefusedError",
    "ClientError",
    "ConnectionFailedError",
    "Coupling",
    "Event",
    "EventError",
    "Expectation",
    "ExpectationState",
    "Expected",
    "ExpiredError",
    "Line",
    "NotTakenError",
    "Outcome",
    "Properties",
    "Publisher",
    "QualityRefusedError",
    "Query",
    "QueryError",
    "QueryStats",
    "Reason",
    "ReceivedEvent",
    "RefusedError",
    "Session",
    "SessionClosedError",
    "Subscription",
    "SyncAdvertisement",
    "SyncAnswers",
    "SyncExpected",
    "SyncPublisher",
    "SyncQuery",
    "SyncSession",
    "SyncSubscription",
    "Usage",
    "Will",
    "connect",
    "connect_sync",
]

_MODULES: Final = {
    "accord.client.advertisements": ("Advertisement",),
    "accord.client.errors": (
        "AdmissionRefusedError",
        "AdvertisementError",
        "AlreadySubscribedError",
        "ChannelRefusedError",
        "ClientError",
        "ConnectionFailedError",
        "ExpiredError",
        "NotTakenError",
        "QualityRefusedError",
        "QueryError",
        "RefusedError",
        "SessionClosedError",
    ),
    "accord.client.feedback": (
        "Answer",
        "Answers",
    ),
    "accord.client.messages": (
        "Outcome",
        "ReceivedEvent",
    ),
    "accord.client.quality_session": (
        "Expected",
        "Publisher",
    ),
    "accord.client.quality": (
        "Advice",
        "Capability",
        "Coupling",
        "Expectation",
        "ExpectationState",
        "Line",
        "Usage",
    ),
    "accord.client.query": ("Query", "QueryStats"),
    "accord.client.session": (
        "Session",
        "connect",
    ),
    "accord.client.subscription": ("Subscription",),
    "accord.client.sync": (
        "SyncAdvertisement",
        "SyncAnswers",
        "SyncExpected",
        "SyncPublisher",
        "SyncQuery",
        "SyncSession",
        "SyncSubscription",
        "connect_sync",
    ),
    "accord.core.model.errors": (
        "AccordError",
        "EventError",
    ),
    "accord.core.model.event": ("Event",),
    "accord.core.overlay.channel_directory": ("Channel",),
    "accord.core.mqtt.codes": ("Reason",),
    "accord.core.mqtt.packets": ("Will",),
    "accord.core.mqtt.properties": ("Properties",),
}


if not TYPE_CHECKING:  # a type checker knows all names, and must miss the others

    def __getattr__(name: str) -> object:
        for module, names in _MODULES.items():
            if name in names:
                from importlib import import_module  # noqa: PLC0415

                found: object = getattr(import_module(module), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

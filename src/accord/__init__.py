"""Accord: quality-of-service publish, subscribe and query.

The package itself imports nothing: Spark workers, command-line completion and clients all pay
for what stands here. Import from the module that has what you need, such as `accord.predicates`.
`connect`, `connect_sync`, `Event` and what the client raises can be had from here too; they are
loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.client.errors import (
        AdmissionRefused,
        ChannelRefusedError,
        ClientError,
        ConnectionFailedError,
        ExpiredError,
        QualityRefusedError,
        QueryError,
        RefusedError,
        SessionClosedError,
    )
    from accord.client.quality import Advice, Capability, Coupling, Expectation, Line
    from accord.client.session import connect
    from accord.client.sync import connect_sync
    from accord.core.model.event import Event

__all__ = [
    "AdmissionRefused",
    "Advice",
    "Capability",
    "ChannelRefusedError",
    "ClientError",
    "ConnectionFailedError",
    "Coupling",
    "Event",
    "Expectation",
    "ExpiredError",
    "Line",
    "QualityRefusedError",
    "QueryError",
    "RefusedError",
    "SessionClosedError",
    "connect",
    "connect_sync",
]

_PLACES = {
    "AdmissionRefused": "accord.client.errors",
    "Advice": "accord.client.quality",
    "Capability": "accord.client.quality",
    "Coupling": "accord.client.quality",
    "Expectation": "accord.client.quality",
    "Line": "accord.client.quality",
    "QualityRefusedError": "accord.client.errors",
    "ChannelRefusedError": "accord.client.errors",
    "ClientError": "accord.client.errors",
    "ConnectionFailedError": "accord.client.errors",
    "ExpiredError": "accord.client.errors",
    "QueryError": "accord.client.errors",
    "RefusedError": "accord.client.errors",
    "SessionClosedError": "accord.client.errors",
    "connect": "accord.client.session",
    "connect_sync": "accord.client.sync",
    "Event": "accord.core.model.event",
}


if not TYPE_CHECKING:  # a type checker knows all names, and must miss the others

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415

        found: object = getattr(import_module(_PLACES[name]), name)
        globals()[name] = found
        return found

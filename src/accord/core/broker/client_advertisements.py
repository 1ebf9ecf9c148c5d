"""Advertisements of clients, and their enforcement.

A client's advertisements belong to its session and end with it. Only messages of clients that
advertise are checked one by one; all others are forwarded as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from accord.core.admission.admission import Admission
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import Mode
from accord.core.admission.rate_enforcement import Compliance
from accord.core.admission.status import MAX_NAME_LENGTH, PublisherStatus
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.errors import AdmissionError
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

OVER_RATE: Final = "beyond advertised rate"
_EVERYTHING: Final = "TRUE"


class AdvertisementPort(Protocol):
    """Where advertisements are registered: at this node, or at all nodes."""

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int, /
    ) -> None: ...

    def unadvertise(self, publisher: str, name: str, /) -> bool: ...

    def on_publisher_gone(self, publisher: str, /) -> None: ...


class ClientAdvertisements:
    def __init__(self, broker: Broker, admission: Admission, clock_us: Callable[[], int]) -> None:
        self.port: AdvertisementPort = admission
        self.limited = 0  # events so far in excess of an advertisement
        self._broker = broker
        self._admission = admission
        self._clock_us = clock_us
        self._is_binding = admission.options.mode is Mode.ENFORCE
        self._filters: dict[str, dict[str, Filter]] = {}  # by client and name
        self._needs_attributes: dict[
            str, bool
        ] = {}  # by client: whether its filters need attributes

    def advertise(
        self, session: MqttSession, name: str, channel: str, where: str, rate_hz: float
    ) -> None:
        """Register an advertisement, replacing one of the same name.

        Raises AdmissionError or PredicateError if it is invalid.
        """
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise AdmissionError("name", f"expected 1 to {MAX_NAME_LENGTH} printable characters")
        if channel.startswith("$"):
            raise AdmissionError("channel", f"expected one of yours, got {channel[:80]}")
        filter_ = Filter(channel, parse(where or _EVERYTHING))
        self.port.advertise(session.name, name, filter_, rate_hz, self._clock_us())
        self._filters.setdefault(session.name, {})[name] = filter_
        self._update_enforcement(session)

    def unadvertise(self, session: MqttSession, name: str) -> bool:
        known = self._filters.get(session.name, {})
        if known.pop(name, None) is None:
            return False
        if not known:
            del self._filters[session.name]
        self.port.unadvertise(session.name, name)
        self._update_enforcement(session)
        return True

    def on_session_ended(self, session: MqttSession) -> None:
        if self._filters.pop(session.name, None) is not None:
            self.port.on_publisher_gone(session.name)
            self._update_enforcement(session)

    def advertisements_of(self, client: str) -> list[PublisherStatus]:
        filters = self._filters.get(client, {})
        return [
            PublisherStatus(
                client=client,
                name=each.advertisement,
                channel=filters[each.advertisement].channel,
                where=where_of(filters[each.advertisement]),
                rate_hz=each.rate_hz,
                passed=each.passed,
                limited=each.limited,
            )
            for each in self._admission.enforcement.usage(client)
        ]

    def clients(self) -> list[str]:
        """Clients with advertisements."""
        return list(self._filters)

    def exceeds_rate(self, message: MqttMessage) -> bool:
        """Whether a message exceeds its advertisements; raises EventError for bad attributes."""
        values: dict[str, Value] = {}
        document = None
        if self._needs_attributes.get(message.publisher):
            values, document = dict(message.values()), message.document()
        standing = self._admission.police(
            message.publisher, message.channel, values, document, self._clock_us()
        )
        if standing is not Compliance.OVER:
            return False
        self.limited += 1
        return self._is_binding

    def _update_enforcement(self, session: MqttSession) -> None:
        filters = self._filters.get(session.name)
        session.is_rate_limited = filters is not None
        self._needs_attributes.pop(session.name, None)
        if filters is not None:
            self._needs_attributes[session.name] = any(where_of(each) for each in filters.values())
        connection = session.connection
        if connection is not None and connection.publisher is not None:
            connection.publisher.enforce_rate(session.is_rate_limited)


def where_of(filter_: Filter) -> str:
    """The predicate text; empty for a filter that matches everything."""
    text = str(filter_.predicate)
    return "" if text == _EVERYTHING else text

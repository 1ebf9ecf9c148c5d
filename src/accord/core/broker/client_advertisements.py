"""Advertisements of clients, and their enforcement.

A client's advertisements belong to its session and end with it. Only messages of clients that
advertise are checked one by one; all others are forwarded as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from accord.core.admission.admission import Admission
from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import Mode
from accord.core.admission.rate_enforcement import Compliance
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

BEYOND: Final = "beyond advertised rate"
MAX_NAME: Final = 256
_EVERYTHING: Final = "TRUE"


class AdvertisementPort(Protocol):
    """Where advertisements are registered: at this node, or at all nodes."""

    def advertise(
        self, publisher: str, name: str, filter_: Filter, rate_hz: float, now_us: int, /
    ) -> None: ...

    def unadvertise(self, publisher: str, name: str, /) -> bool: ...

    def publisher_gone(self, publisher: str, /) -> None: ...


class Advertisement(Struct, frozen=True, kw_only=True):
    """A publisher's advertisement and its usage."""

    client: str
    name: str
    channel: str
    where: str
    rate_hz: float
    passed: int = 0
    limited: int = 0


class ClientAdvertisements:
    def __init__(self, broker: Broker, admission: Admission, clock_us: Callable[[], int]) -> None:
        self.board: AdvertisementPort = admission
        self.limited = 0  # events so far in excess of an advertisement
        self._broker = broker
        self._admission = admission
        self._clock_us = clock_us
        self._is_binding = admission.options.mode is Mode.ENFORCE
        self._of: dict[str, dict[str, Filter]] = {}  # by client and name
        self._looks: dict[str, bool] = {}  # by client: whether its filters need attributes

    def advertise(
        self, session: MqttSession, name: str, channel: str, where: str, rate_hz: float
    ) -> None:
        """Register an advertisement, replacing one of the same name.

        Raises AdmissionError or PredicateError if it is invalid.
        """
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise AdmissionError("name", f"expected 1 to {MAX_NAME} printable characters")
        if channel.startswith("$"):
            raise AdmissionError("channel", f"expected one of yours, got {channel[:80]}")
        filter_ = Filter(channel, parse(where or _EVERYTHING))
        self.board.advertise(session.name, name, filter_, rate_hz, self._clock_us())
        self._of.setdefault(session.name, {})[name] = filter_
        self._changed(session)

    def unadvertise(self, session: MqttSession, name: str) -> bool:
        known = self._of.get(session.name, {})
        if known.pop(name, None) is None:
            return False
        if not known:
            del self._of[session.name]
        self.board.unadvertise(session.name, name)
        self._changed(session)
        return True

    def session_ended(self, session: MqttSession) -> None:
        if self._of.pop(session.name, None) is not None:
            self.board.publisher_gone(session.name)
            self._changed(session)

    def of(self, client: str) -> list[Advertisement]:
        filters = self._of.get(client, {})
        return [
            Advertisement(
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
        return list(self._of)

    def is_beyond(self, message: MqttMessage) -> bool:
        """Whether a message exceeds its advertisements; raises EventError for bad attributes."""
        values: dict[str, Value] = {}
        document = None
        if self._looks.get(message.publisher):
            values, document = dict(message.values()), message.document()
        standing = self._admission.published(
            message.publisher, message.channel, values, document, self._clock_us()
        )
        if standing is not Compliance.OVER:
            return False
        self.limited += 1
        return self._is_binding

    def _changed(self, session: MqttSession) -> None:
        filters = self._of.get(session.name)
        session.is_held = filters is not None
        self._looks.pop(session.name, None)
        if filters is not None:
            self._looks[session.name] = any(where_of(each) for each in filters.values())
        if session.line is not None:
            session.line.hold_to_rate(session.is_held)


def where_of(filter_: Filter) -> str:
    """The predicate text; empty for a filter that matches everything."""
    text = str(filter_.predicate)
    return "" if text == _EVERYTHING else text

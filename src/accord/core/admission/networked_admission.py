"""Admission at a node with neighbours: common base of overlay and secondary admission."""

from __future__ import annotations

from collections.abc import Hashable

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Measured
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import Guarantee
from accord.core.admission.subscription_requests import AdmissionOutcome
from accord.core.admission.transit_reservations import Sent


class NetworkedAdmission:
    """Delegates to `Admission` and sends the resulting messages immediately after each call."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    def subscribe(  # noqa: PLR0913
        self,
        client: str,
        key: Hashable,
        filter_: Filter,
        *,
        now_us: int,
        guarantee: Guarantee | None = None,
        event_bytes: int | None = None,
        measured: Measured | None = None,
    ) -> AdmissionOutcome | None:
        """Request admission; returns the outcome, or None if `admission.decisions` has it later."""
        outcome = self.admission.subscribe(
            client,
            key,
            filter_,
            now_us=now_us,
            guarantee=guarantee,
            event_bytes=event_bytes,
            measured=measured,
        )
        self._send()
        return outcome

    def unsubscribe(self, client: str, key: Hashable) -> bool:
        was_there = self.admission.unsubscribe(client, key)
        self._send()
        return was_there

    def on_client_gone(self, client: str) -> None:
        self.admission.on_client_gone(client)
        self._send()

    def unadvertise(self, publisher: str, name: str) -> bool:
        return self.admission.unadvertise(publisher, name)

    def on_publisher_gone(self, publisher: str) -> None:
        for name in self.admission.enforcement.names(publisher):
            self.unadvertise(publisher, name)

    def _send(self) -> None:
        """Send the pending messages to neighbours."""
        raise NotImplementedError


def drain(sends: list[Sent]) -> list[Sent]:
    """Remove and return all messages: one that can't be sent must not block the others for good."""
    taken = list(sends)
    sends.clear()
    return taken

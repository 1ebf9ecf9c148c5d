"""Reservation protocol of one node: soft-state reservations along event paths, as in RSVP.

Messages travel hop by hop from the subscriber's node towards the publishers, along the paths that
events take in the opposite direction. The two halves share the node's reservation table: `requests`
is the origin side, `transit` the transit side.
"""

from __future__ import annotations

from accord.core.admission.messages import (
    AdmissionMessage,
    Refresh,
    RefreshAck,
    Release,
    Reserve,
    ReserveReply,
)
from accord.core.admission.origin_reservations import OriginReservations
from accord.core.admission.reservation import ReservationDecision, ReservationTimers
from accord.core.admission.resources import ReservationTable
from accord.core.admission.transit_reservations import Assess, Sent, TransitReservations


class ReservationProtocol:
    """Dispatches messages to both sides; the driver drains `sends` and `decisions`."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        table: ReservationTable,
        assess: Assess,
        timing: ReservationTimers | None = None,
    ) -> None:
        timing = ReservationTimers() if timing is None else timing
        self.name = name
        self.requests = OriginReservations(name, incarnation, table, timing)
        self.transit = TransitReservations(
            name, table, assess, hold_us=timing.hold_us, lease_us=timing.lease_us
        )

    @property
    def sends(self) -> list[Sent]:
        """Messages for neighbours."""
        sends = self.requests.sends
        sends += self.transit.sends
        self.transit.sends.clear()
        return sends

    @property
    def decisions(self) -> list[ReservationDecision]:
        return self.requests.decisions

    @property
    def dropped(self) -> int:
        """Count of invalid messages."""
        return self.requests.dropped + self.transit.dropped

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        is_here = message.request.origin == self.name
        match message:
            case Reserve():
                self.transit.on_reserve(neighbour, message, now_us)
            case Refresh():
                self.transit.on_refresh(neighbour, message, now_us)
            case Release():
                self.transit.on_release(neighbour, message)
            case ReserveReply() if is_here:
                self.requests.on_reply(neighbour, message, now_us)
            case ReserveReply():
                self.transit.on_reply(neighbour, message)
            case RefreshAck() if is_here:
                self.requests.on_refresh_ack(neighbour, message, now_us)
            case RefreshAck():
                self.transit.on_refresh_ack(neighbour, message)

    def advance(self, now_us: int) -> None:
        self.transit.advance(now_us)
        self.requests.advance(now_us)

    def next_due_us(self) -> int | None:
        dues = [self.requests.next_due_us(), self.transit.next_due_us()]
        return min((due for due in dues if due is not None), default=None)

    def check_invariants(self) -> None:
        self.requests.check_invariants()
        self.transit.check_invariants()

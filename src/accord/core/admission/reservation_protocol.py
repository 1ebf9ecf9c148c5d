"""Reservation protocol of one node: soft-state reservations along event paths, as in RSVP.

Messages travel hop by hop from the subscriber's node towards the publishers, along the paths that
events take in the opposite direction. The two halves share the node's reservation table: `requests`
is the origin side, `hops` the transit side.
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
        books: ReservationTable,
        assess: Assess,
        timing: ReservationTimers | None = None,
    ) -> None:
        timing = ReservationTimers() if timing is None else timing
        self.name = name
        self.requests = OriginReservations(name, incarnation, books, timing)
        self.hops = TransitReservations(
            name, books, assess, hold_us=timing.hold_us, lease_us=timing.lease_us
        )

    @property
    def sends(self) -> list[Sent]:
        """Messages for neighbours."""
        sends = self.requests.sends
        sends += self.hops.sends
        self.hops.sends.clear()
        return sends

    @property
    def decisions(self) -> list[ReservationDecision]:
        return self.requests.decisions

    @property
    def dropped(self) -> int:
        """Count of invalid messages."""
        return self.requests.dropped + self.hops.dropped

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        is_here = message.request.origin == self.name
        match message:
            case Reserve():
                self.hops.ask(neighbour, message, now_us)
            case Refresh():
                self.hops.keep(neighbour, message, now_us)
            case Release():
                self.hops.release(neighbour, message)
            case ReserveReply() if is_here:
                self.requests.answer(neighbour, message, now_us)
            case ReserveReply():
                self.hops.answer(neighbour, message)
            case RefreshAck() if is_here:
                self.requests.kept(neighbour, message, now_us)
            case RefreshAck():
                self.hops.pass_back(neighbour, message)

    def advance(self, now_us: int) -> None:
        self.hops.advance(now_us)
        self.requests.advance(now_us)

    def next_due_us(self) -> int | None:
        dues = [self.requests.next_due_us(), self.hops.next_due_us()]
        return min((due for due in dues if due is not None), default=None)

    def check_invariants(self) -> None:
        self.requests.check_invariants()
        self.hops.check_invariants()

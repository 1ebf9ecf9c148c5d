"""Reservations of secondary nodes, which their active parent requests on their behalf.

A child sends its active parent the same messages that nodes exchange, over a path of two nodes. The
parent subscribes for it: the bandwidth of the link to the child is the parent's own part, and the
rest is requested as for its clients. The reply carries the verdicts of all those nodes and the
total expected rate, because the child does not know the advertisements. As between other nodes, a
reservation that the child does not refresh expires, and a new incarnation of the child ends all
reservations of earlier ones.

Children share their part of the table by fair quotas, and the rest stays for clients of this node.
"""

from __future__ import annotations

from typing import Final

from accord.core.admission.admission import Admission
from accord.core.admission.messages import (
    AdmissionMessage,
    NodeVerdict,
    Refresh,
    RefreshAck,
    Release,
    Reserve,
    ReserveReply,
)
from accord.core.admission.origin_reservations import MAX_REQUESTS
from accord.core.admission.reservation import ReservationDecision, ReservationState
from accord.core.admission.resources import MEMORY
from accord.core.admission.transit_reservations import Leg, ReleasedLegs, Sent, is_replacing
from accord.core.model.bounded import FairQuota
from accord.core.model.errors import AccordError

MAX_CHILD_RESERVATIONS: Final = MAX_REQUESTS // 2  # the rest is for clients of this node
MAX_BYTES: Final = 64 << 20  # of flow specs
_OVERHEAD: Final = 1_000


class _ChildReservation:
    """One leg of a child; `verdicts` is None until decided.

    `is_reserved` is true while `Admission` carries the subscription.
    """

    __slots__ = ("expires_us", "flow_spec", "is_reserved", "path", "round", "size", "verdicts")

    def __init__(self, ask: Reserve) -> None:
        self.path = ask.path
        self.flow_spec = ask.flow_spec
        self.size = _size(ask)
        self.round = 0
        self.expires_us = 0
        self.is_reserved = False
        self.verdicts: tuple[NodeVerdict, ...] | None = None

    @property
    def child(self) -> str:
        return self.path[0]


class ChildReservations:
    """All reservations of children; the driver drains `sends`."""

    def __init__(self, admission: Admission) -> None:
        self.sends: list[Sent] = []
        self.dropped = 0  # invalid messages
        self._name = admission.name
        self._admission = admission
        self._timing = admission.options.timing
        self._reservations: dict[Leg, _ChildReservation] = {}
        self._quota = FairQuota(MAX_CHILD_RESERVATIONS, MAX_BYTES)
        self._released = ReleasedLegs()
        self._incarnations: dict[str, int] = {}
        self._now_us = 0
        self._sweep_us = 0  # nothing expires earlier

    def __len__(self) -> int:
        return len(self._reservations)

    def receive(self, child: str, message: AdmissionMessage, now_us: int) -> None:
        self._now_us = now_us
        request = message.request
        is_ours = message.path == (child, self._name) and request.origin == child
        if isinstance(message, Reserve) and not is_replacing(message):
            is_ours = False
        if not is_ours or not self._is_current(child, request.incarnation):
            self.dropped += 1
            return
        leg = (request, message.leg)
        match message:
            case Reserve():
                self._on_reserve(leg, message)
            case Refresh():
                self._on_refresh(leg, message)
            case Release():
                self._release(leg)

    def on_left(self, child: str) -> None:
        """Drop everything of a node that is no longer a child."""
        for leg in [
            leg for leg, reservation in self._reservations.items() if reservation.child == child
        ]:
            self._drop(leg)
        self._incarnations.pop(child, None)

    def advance(self, now_us: int) -> None:
        """Expire reservations that were not refreshed."""
        self._now_us = now_us
        if now_us < self._sweep_us:
            return
        for leg in [
            leg
            for leg, reservation in self._reservations.items()
            if reservation.expires_us <= now_us
        ]:
            self._drop(leg)
        dies_us = (reservation.expires_us for reservation in self._reservations.values())
        self._sweep_us = min(dies_us, default=now_us + self._timing.hold_us)

    def next_due_us(self) -> int | None:
        return self._sweep_us if self._reservations else None

    def check_invariants(self) -> None:
        assert len(self._reservations) == self._quota.count
        assert (
            sum(reservation.size for reservation in self._reservations.values())
            == self._quota.bytes
        )
        self._quota.check_invariants()
        assert not any(leg in self._released for leg in self._reservations)
        for leg, reservation in self._reservations.items():
            assert reservation.is_reserved == self._admission.is_child_subscribed(
                reservation.child, leg
            )
            assert reservation.is_reserved or reservation.verdicts is not None
            assert self._sweep_us <= reservation.expires_us

    def _on_reserve(self, leg: Leg, reserve: Reserve) -> None:
        for other in reserve.replaces:
            self._release((reserve.request, other))
        if leg in self._released:
            return
        reservation = self._reservations.get(leg)
        if reservation is None:
            if not self._quota.has_room(reserve.path[0], _size(reserve)):
                self._refuse_over_quota(reserve)
                return
            reservation = self._reservations[leg] = _ChildReservation(reserve)
            self._quota.take(reservation.child, reservation.size)
        elif reservation.round > reserve.round:
            return
        is_again = reservation.round == reserve.round
        reservation.round = reserve.round
        reservation.expires_us = max(reservation.expires_us, self._now_us + self._timing.hold_us)
        self._sweep_us = min(self._sweep_us, reservation.expires_us)
        if reservation.is_reserved or is_again:
            self._send_reply(leg, reservation)
        else:
            self._subscribe(leg, reservation)

    def _subscribe(self, leg: Leg, reservation: _ChildReservation) -> None:
        reservation.is_reserved, reservation.verdicts = True, None
        try:
            self._admission.subscribe_child(
                reservation.child,
                leg,
                reservation.flow_spec,
                lambda decision: self._on_decision(leg, decision),
                now_us=self._now_us,
            )
        except AccordError:  # the flow spec is invalid here
            self.dropped += 1
            self._remove(leg)

    def _on_decision(self, leg: Leg, decision: ReservationDecision) -> None:
        reservation = self._reservations.get(leg)
        if reservation is None:
            return
        if decision.state is ReservationState.ADMITTED:
            reservation.verdicts = self._admission.child_verdicts(reservation.child, leg)
            self._send_reply(leg, reservation)
        elif decision.state is ReservationState.WITHDRAWN:
            self._remove(leg)
            lost = (self._name, *(each.node for each in reservation.verdicts or ()))
            kept = RefreshAck(
                leg[0], reservation.round, leg[1], reservation.path, 0, tuple(dict.fromkeys(lost))
            )
            self.sends.append((reservation.child, kept))
        else:
            reservation.is_reserved = False
            own = [each for each in decision.refusals if each.node == self._name]
            others = [each for each in decision.refusals if each.node != self._name]
            reservation.verdicts = (*(own or [NodeVerdict(self._name)]), *others)
            self._send_reply(leg, reservation)

    def _send_reply(self, leg: Leg, reservation: _ChildReservation) -> None:
        if reservation.verdicts is None:
            return
        self._update_verdicts(leg, reservation)
        request, number = leg
        answer = ReserveReply(
            request,
            reservation.round,
            number,
            reservation.path,
            reservation.flow_spec.is_full,
            reservation.verdicts,
            self._rate(leg, reservation),
        )
        self.sends.append((reservation.child, answer))

    def _on_refresh(self, leg: Leg, refresh: Refresh) -> None:
        reservation = self._reservations.get(leg)
        if reservation is not None and reservation.round > refresh.round:
            return
        lost, rate = refresh.nodes, -1
        if (
            reservation is not None
            and reservation.round == refresh.round
            and reservation.is_reserved
            and reservation.verdicts
        ):
            reservation.expires_us = max(
                reservation.expires_us, self._now_us + self._timing.lease_us
            )
            self._update_verdicts(leg, reservation)
            promised = {each.node for each in reservation.verdicts if each.is_agreed}
            lost = tuple(node for node in refresh.nodes if node not in promised)
            rate = self._rate(leg, reservation)
        kept = RefreshAck(
            refresh.request, refresh.round, refresh.leg, refresh.path, refresh.sequence, lost, rate
        )
        self.sends.append((refresh.path[0], kept))

    def _update_verdicts(self, leg: Leg, reservation: _ChildReservation) -> None:
        """Update the verdicts; while a new round is under way the previous ones stay."""
        if reservation.is_reserved:
            reservation.verdicts = (
                self._admission.child_verdicts(reservation.child, leg) or reservation.verdicts
            )

    def _rate(self, leg: Leg, reservation: _ChildReservation) -> int:
        return self._admission.child_rate(reservation.child, leg) if reservation.is_reserved else -1

    def _refuse_over_quota(self, reserve: Reserve) -> None:
        """Refuse: the child has used up its quota."""
        whose = f"secondary node {reserve.path[0]}"
        full = (NodeVerdict(self._name, MEMORY.resource, whose, _size(reserve), 0),)
        answer = ReserveReply(
            reserve.request,
            reserve.round,
            reserve.leg,
            reserve.path,
            reserve.flow_spec.is_full,
            full,
        )
        self.sends.append((reserve.path[0], answer))

    def _release(self, leg: Leg) -> None:
        """Release a leg permanently: not even a late `Reserve` revives it."""
        self._drop(leg)
        self._released.add(leg)

    def _drop(self, leg: Leg) -> None:
        reservation = self._remove(leg)
        if reservation is not None and reservation.is_reserved:
            self._admission.unsubscribe_child(reservation.child, leg)

    def _remove(self, leg: Leg) -> _ChildReservation | None:
        reservation = self._reservations.pop(leg, None)
        if reservation is not None:
            self._quota.release(reservation.child, reservation.size)
        return reservation

    def _is_current(self, child: str, incarnation: int) -> bool:
        """Check that it is of the child's newest incarnation; drop reservations of earlier ones."""
        known = self._incarnations.get(child, -1)
        if incarnation > known:
            self._incarnations[child] = incarnation
            old = [
                leg
                for leg, reservation in self._reservations.items()
                if reservation.child == child and leg[0].incarnation < incarnation
            ]
            for leg in old:
                self._drop(leg)
        return incarnation >= known


def _size(reserve: Reserve) -> int:
    return _OVERHEAD + len(reserve.flow_spec.channel) + len(reserve.flow_spec.where)

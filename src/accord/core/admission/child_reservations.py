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
from accord.core.admission.released_legs import Leg, ReleasedLegs
from accord.core.admission.reservation import ReservationDecision, ReservationState
from accord.core.admission.resources import MEMORY
from accord.core.admission.transit_reservations import Sent, is_replacing
from accord.core.model.bounded import FairQuota
from accord.core.model.errors import AccordError

MAX_CHILD_RESERVATIONS: Final = MAX_REQUESTS // 2  # the rest is for clients of this node
MAX_BYTES: Final = 64 << 20  # of flow specs
_OVERHEAD: Final = 1_000


class _ChildReservation:
    """One leg of a child; `verdicts` is None until decided.

    `is_there` is true while `Admission` carries the subscription.
    """

    __slots__ = ("dies_us", "is_there", "path", "round", "size", "verdicts", "wish")

    def __init__(self, ask: Reserve) -> None:
        self.path = ask.path
        self.wish = ask.wish
        self.size = _size(ask)
        self.round = 0
        self.dies_us = 0
        self.is_there = False
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
        self._guests: dict[Leg, _ChildReservation] = {}
        self._shares = FairQuota(MAX_CHILD_RESERVATIONS, MAX_BYTES)
        self._released = ReleasedLegs()
        self._incarnations: dict[str, int] = {}
        self._now_us = 0
        self._sweep_us = 0  # nothing expires earlier

    def __len__(self) -> int:
        return len(self._guests)

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
                self._ask(leg, message)
            case Refresh():
                self._keep(leg, message)
            case Release():
                self._release(leg)

    def left(self, child: str) -> None:
        """Drop everything of a node that is no longer a child."""
        for leg in [leg for leg, guest in self._guests.items() if guest.child == child]:
            self._drop(leg)
        self._incarnations.pop(child, None)

    def advance(self, now_us: int) -> None:
        """Expire reservations that were not refreshed."""
        self._now_us = now_us
        if now_us < self._sweep_us:
            return
        for leg in [leg for leg, guest in self._guests.items() if guest.dies_us <= now_us]:
            self._drop(leg)
        dies_us = (guest.dies_us for guest in self._guests.values())
        self._sweep_us = min(dies_us, default=now_us + self._timing.hold_us)

    def next_due_us(self) -> int | None:
        return self._sweep_us if self._guests else None

    def check_invariants(self) -> None:
        assert len(self._guests) == self._shares.count
        assert sum(guest.size for guest in self._guests.values()) == self._shares.bytes
        self._shares.check_invariants()
        assert not any(leg in self._released for leg in self._guests)
        for leg, guest in self._guests.items():
            assert guest.is_there == self._admission.is_carried(guest.child, leg)
            assert guest.is_there or guest.verdicts is not None
            assert self._sweep_us <= guest.dies_us

    def _ask(self, leg: Leg, ask: Reserve) -> None:
        for other in ask.replaces:
            self._release((ask.request, other))
        if leg in self._released:
            return
        guest = self._guests.get(leg)
        if guest is None:
            if not self._shares.has_room(ask.path[0], _size(ask)):
                self._say_full(ask)
                return
            guest = self._guests[leg] = _ChildReservation(ask)
            self._shares.take(guest.child, guest.size)
        elif guest.round > ask.round:
            return
        is_again = guest.round == ask.round
        guest.round = ask.round
        guest.dies_us = max(guest.dies_us, self._now_us + self._timing.hold_us)
        self._sweep_us = min(self._sweep_us, guest.dies_us)
        if guest.is_there or is_again:
            self._answer(leg, guest)
        else:
            self._carry(leg, guest)

    def _carry(self, leg: Leg, guest: _ChildReservation) -> None:
        guest.is_there, guest.verdicts = True, None
        try:
            self._admission.carry(
                guest.child,
                leg,
                guest.wish,
                lambda decision: self._decided(leg, decision),
                now_us=self._now_us,
            )
        except AccordError:  # the flow spec is invalid here
            self.dropped += 1
            self._forget(leg)

    def _decided(self, leg: Leg, decision: ReservationDecision) -> None:
        guest = self._guests.get(leg)
        if guest is None:
            return
        if decision.state is ReservationState.ADMITTED:
            guest.verdicts = self._admission.carried_by(guest.child, leg)
            self._answer(leg, guest)
        elif decision.state is ReservationState.WITHDRAWN:
            self._forget(leg)
            lost = (self._name, *(each.node for each in guest.verdicts or ()))
            kept = RefreshAck(
                leg[0], guest.round, leg[1], guest.path, 0, tuple(dict.fromkeys(lost))
            )
            self.sends.append((guest.child, kept))
        else:
            guest.is_there = False
            own = [each for each in decision.refusals if each.node == self._name]
            others = [each for each in decision.refusals if each.node != self._name]
            guest.verdicts = (*(own or [NodeVerdict(self._name)]), *others)
            self._answer(leg, guest)

    def _answer(self, leg: Leg, guest: _ChildReservation) -> None:
        if guest.verdicts is None:
            return
        self._look(leg, guest)
        request, number = leg
        answer = ReserveReply(
            request,
            guest.round,
            number,
            guest.path,
            guest.wish.is_full,
            guest.verdicts,
            self._rate(leg, guest),
        )
        self.sends.append((guest.child, answer))

    def _keep(self, leg: Leg, keep: Refresh) -> None:
        guest = self._guests.get(leg)
        if guest is not None and guest.round > keep.round:
            return
        lost, rate = keep.nodes, -1
        if guest is not None and guest.round == keep.round and guest.is_there and guest.verdicts:
            guest.dies_us = max(guest.dies_us, self._now_us + self._timing.lease_us)
            self._look(leg, guest)
            promised = {each.node for each in guest.verdicts if each.is_yes}
            lost = tuple(node for node in keep.nodes if node not in promised)
            rate = self._rate(leg, guest)
        kept = RefreshAck(keep.request, keep.round, keep.leg, keep.path, keep.sequence, lost, rate)
        self.sends.append((keep.path[0], kept))

    def _look(self, leg: Leg, guest: _ChildReservation) -> None:
        """Update the verdicts; while a new round is under way the previous ones stay."""
        if guest.is_there:
            guest.verdicts = self._admission.carried_by(guest.child, leg) or guest.verdicts

    def _rate(self, leg: Leg, guest: _ChildReservation) -> int:
        return self._admission.carried_rate(guest.child, leg) if guest.is_there else -1

    def _say_full(self, ask: Reserve) -> None:
        """Refuse: the child has used up its quota."""
        whose = f"secondary node {ask.path[0]}"
        full = (NodeVerdict(self._name, MEMORY.resource, whose, _size(ask), 0),)
        answer = ReserveReply(ask.request, ask.round, ask.leg, ask.path, ask.wish.is_full, full)
        self.sends.append((ask.path[0], answer))

    def _release(self, leg: Leg) -> None:
        """Release a leg permanently: not even a late `Reserve` revives it."""
        self._drop(leg)
        self._released.add(leg)

    def _drop(self, leg: Leg) -> None:
        guest = self._forget(leg)
        if guest is not None and guest.is_there:
            self._admission.drop(guest.child, leg)

    def _forget(self, leg: Leg) -> _ChildReservation | None:
        guest = self._guests.pop(leg, None)
        if guest is not None:
            self._shares.give_back(guest.child, guest.size)
        return guest

    def _is_current(self, child: str, incarnation: int) -> bool:
        """Check that it is of the child's newest incarnation; drop reservations of earlier ones."""
        known = self._incarnations.get(child, -1)
        if incarnation > known:
            self._incarnations[child] = incarnation
            old = [
                leg
                for leg, guest in self._guests.items()
                if guest.child == child and leg[0].incarnation < incarnation
            ]
            for leg in old:
                self._drop(leg)
        return incarnation >= known


def _size(ask: Reserve) -> int:
    return _OVERHEAD + len(ask.wish.channel) + len(ask.wish.where)

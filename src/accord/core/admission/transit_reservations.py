"""Reservations that a node holds for requests of other nodes: soft state with leases, as in RSVP.

A reservation is for one leg of one request. `Reserve` creates it with a short timeout; each
`Refresh` extends it by a longer lease. Only `Reserve` creates one, so a late message cannot revive
a released reservation; released legs are remembered for a while, so not even a late `Reserve` can.
A new incarnation of an origin removes all reservations of its earlier ones.

Each neighbour has a fair quota of the table: requests through one cannot exhaust it for others.

Legs of requests that were released, remembered so that late messages do not revive them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.admission.messages import (
    AdmissionMessage,
    FlowSpec,
    NodeVerdict,
    Refresh,
    RefreshAck,
    Release,
    ReservationId,
    Reserve,
    ReserveReply,
)
from accord.core.admission.resources import MEMORY, Amounts, Pool, ReservationTable, Shortage
from accord.core.model.bounded import FairQuota
from accord.core.model.errors import AccordError

_REMEMBERED: Final = 50_000

Leg = tuple[ReservationId, int]


class ReleasedLegs:
    """Bounded set of the most recently released legs."""

    def __init__(self) -> None:
        self._legs: OrderedDict[Leg, None] = OrderedDict()

    def __contains__(self, leg: Leg) -> bool:
        return leg in self._legs

    def add(self, leg: Leg) -> None:
        self._legs[leg] = None
        self._legs.move_to_end(leg)
        if len(self._legs) > _REMEMBERED:
            self._legs.popitem(last=False)


MAX_PATH: Final = 64
MAX_LEGS: Final = 1_024  # per request
MAX_HOLDS: Final = 100_000
MAX_BYTES: Final = 128 << 20  # of flow specs
_OVERHEAD: Final = 500
_ORIGINS: Final = 10_000

Sent = tuple[str, AdmissionMessage]
# What a node needs for a flow spec whose events come from `source` and go on to `towards`.
Assess = Callable[[FlowSpec, str, str], Amounts]


class _TransitReservation:
    __slots__ = ("expires_us", "flow_spec", "is_refreshed", "round", "source", "towards")

    def __init__(self, reserve: Reserve, at: int, expires_us: int) -> None:
        self.round = reserve.round
        self.flow_spec = reserve.flow_spec
        self.towards = reserve.path[at - 1]
        self.source = reserve.path[-1]
        self.expires_us = expires_us
        self.is_refreshed = False

    @property
    def size(self) -> int:
        return _size(self.flow_spec)


class TransitReservations:
    """All transit reservations of one node; the driver drains `sends`."""

    def __init__(
        self, name: str, table: ReservationTable, assess: Assess, *, hold_us: int, lease_us: int
    ) -> None:
        self.name = name
        self.sends: list[Sent] = []
        self.dropped = 0  # invalid messages
        self._table = table
        self._assess = assess
        self._hold_us = hold_us
        self._lease_us = lease_us
        self._reservations: dict[Leg, _TransitReservation] = {}
        self._quota = FairQuota(MAX_HOLDS, MAX_BYTES)  # per neighbour
        self._released = ReleasedLegs()
        self._incarnations: OrderedDict[str, int] = OrderedDict()
        self._sweep_us = 0

    def __len__(self) -> int:
        return len(self._reservations)

    def refreshed(self) -> list[Leg]:
        """Return the legs whose reservation has been refreshed."""
        return [leg for leg, reservation in self._reservations.items() if reservation.is_refreshed]

    def all(self) -> list[Leg]:
        return list(self._reservations)

    def reevaluate(self, leg: Leg) -> None:
        """Adjust a reservation to its present demand; drop it if that is not available.

        The origin learns of the drop from the reply to its next refresh.
        """
        reservation = self._reservations.get(leg)
        if reservation is None:
            return
        amounts = self._assess(reservation.flow_spec, reservation.towards, reservation.source)
        if amounts != self._table.amounts(leg) and self._table.reserve(leg, amounts) is not None:
            self._drop(leg)

    def on_reserve(self, neighbour: str, reserve: Reserve, now_us: int) -> None:
        at = self._index_on_path(neighbour, reserve, is_outward=True)
        leg = (reserve.request, reserve.leg)
        is_sane = len(reserve.verdicts) == at - 1 and is_replacing(reserve)
        if at == 0 or not is_sane or not self._is_current(reserve.request):
            self.dropped += 1
            return
        if leg in self._released:
            return
        reservation = self._reservations.get(leg)
        if reservation is not None and reservation.round > reserve.round:
            return
        for other in reserve.replaces:
            self._release((reserve.request, other))
        try:
            verdicts = (*reserve.verdicts, self._decide(leg, reserve, at, now_us))
        except AccordError:  # the flow spec is invalid here
            self.dropped += 1
            return
        is_end = at == len(reserve.path) - 1
        if is_end or (reserve.flow_spec.is_full and not verdicts[-1].is_agreed):
            answer = ReserveReply(
                reserve.request,
                reserve.round,
                reserve.leg,
                reserve.path,
                reserve.flow_spec.is_full,
                verdicts,
            )
            self.sends.append((neighbour, answer))
        else:
            forward = msgspec.structs.replace(reserve, verdicts=verdicts)
            self.sends.append((reserve.path[at + 1], forward))

    def on_reply(self, neighbour: str, reply: ReserveReply) -> None:
        """Forward a reply towards the origin; a refusal frees what was held in vain."""
        at = self._index_on_path(neighbour, reply, is_outward=False)
        if at == 0:
            self.dropped += 1
            return
        leg = (reply.request, reply.leg)
        reservation = self._reservations.get(leg)
        is_refused = reply.is_full and not all(each.is_agreed for each in reply.verdicts)
        if (
            is_refused
            and reservation is not None
            and reservation.round == reply.round
            and not reservation.is_refreshed
        ):
            self._drop(leg)
        self.sends.append((reply.path[at - 1], reply))

    def on_refresh(self, neighbour: str, refresh: Refresh, now_us: int) -> None:
        at = self._index_on_path(neighbour, refresh, is_outward=True)
        if at == 0 or not self._is_current(refresh.request):
            self.dropped += 1
            return
        leg = (refresh.request, refresh.leg)
        reservation = self._reservations.get(leg)
        lost = refresh.missing
        if reservation is not None and reservation.round > refresh.round:
            return
        if self.name not in refresh.nodes:
            # It refused, then agreed to a retransmission, but that reply never reached the origin.
            if reservation is not None:
                self._drop(leg)
        elif reservation is None or reservation.round < refresh.round:
            lost = (*lost, self.name)
        else:
            reservation.is_refreshed = True
            reservation.expires_us = max(reservation.expires_us, now_us + self._lease_us)
        if at == len(refresh.path) - 1:
            kept = RefreshAck(
                refresh.request, refresh.round, refresh.leg, refresh.path, refresh.sequence, lost
            )
            self.sends.append((neighbour, kept))
        else:
            self.sends.append(
                (refresh.path[at + 1], msgspec.structs.replace(refresh, missing=lost))
            )

    def on_refresh_ack(self, neighbour: str, ack: RefreshAck) -> None:
        at = self._index_on_path(neighbour, ack, is_outward=False)
        if at == 0:
            self.dropped += 1
        else:
            self.sends.append((ack.path[at - 1], ack))

    def on_release(self, neighbour: str, release: Release) -> None:
        at = self._index_on_path(neighbour, release, is_outward=True)
        if at == 0:
            self.dropped += 1
            return
        self._release((release.request, release.leg))
        if at + 1 < len(release.path):
            self.sends.append((release.path[at + 1], release))

    def advance(self, now_us: int) -> None:
        """Expire reservations that were not refreshed."""
        if now_us < self._sweep_us:
            return
        for leg, reservation in list(self._reservations.items()):
            if reservation.expires_us <= now_us:
                self._drop(leg)
        self._sweep_us = min(
            (reservation.expires_us for reservation in self._reservations.values()),
            default=now_us + self._lease_us,
        )

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
        for request, leg in self._reservations:
            assert (request, leg) in self._table
            assert self._incarnations.get(request.origin, 0) <= request.incarnation
        assert all(
            self._sweep_us <= reservation.expires_us for reservation in self._reservations.values()
        )
        held = sum(isinstance(key, tuple) and key in self._reservations for key in self._table)
        assert held == len(self._reservations)

    # ------------------------------------------------------------------------------------- inside

    def _decide(self, leg: Leg, reserve: Reserve, at: int, now_us: int) -> NodeVerdict:
        """Reserve what is needed; a retransmission within a round gets the same verdict."""
        reservation = self._reservations.get(leg)
        if reservation is None or reservation.round < reserve.round:
            short = self._reserve(leg, reserve, at)
            if short is not None:
                if reservation is not None:
                    self._drop(leg)
                resource, of = short.pool
                return NodeVerdict(self.name, resource, of, short.requested, short.free)
        if reservation is None:
            reservation = self._reservations[leg] = _TransitReservation(reserve, at, now_us)
            self._quota.take(reservation.towards, reservation.size)
        reservation.round = reserve.round
        reservation.expires_us = max(reservation.expires_us, now_us + self._hold_us)
        self._sweep_us = min(self._sweep_us, reservation.expires_us)
        return NodeVerdict(self.name)

    def _reserve(self, leg: Leg, reserve: Reserve, at: int) -> Shortage | None:
        towards, size = reserve.path[at - 1], _size(reserve.flow_spec)
        if leg not in self._reservations and not self._quota.has_room(towards, size):
            return Shortage(Pool(MEMORY.resource, f"link {towards}"), size, 0)
        return self._table.reserve(leg, self._assess(reserve.flow_spec, towards, reserve.path[-1]))

    def _release(self, leg: Leg) -> None:
        """Release a leg permanently."""
        if leg in self._reservations:
            self._drop(leg)
        self._released.add(leg)

    def _drop(self, leg: Leg) -> None:
        reservation = self._reservations.pop(leg)
        self._quota.release(reservation.towards, reservation.size)
        self._table.release(leg)

    def _index_on_path(self, neighbour: str, message: AdmissionMessage, *, is_outward: bool) -> int:
        """Return this node's index on the path; 0 if path or neighbour are invalid for it."""
        path = message.path
        if not 2 <= len(path) <= MAX_PATH or len(set(path)) != len(path) or self.name not in path:
            return 0
        if path[0] != message.request.origin:
            return 0
        at = path.index(self.name)
        other = at - 1 if is_outward else at + 1
        return at if 0 <= other < len(path) and path[other] == neighbour else 0

    def _is_current(self, request: ReservationId) -> bool:
        """Check that the origin's incarnation is the newest; drop reservations of earlier ones."""
        known = self._incarnations.get(request.origin, -1)
        if request.incarnation > known:
            self._incarnations[request.origin] = request.incarnation
            for leg in list(self._reservations):
                other = leg[0]
                if other.origin == request.origin and other.incarnation < request.incarnation:
                    self._drop(leg)
            if len(self._incarnations) > _ORIGINS:
                self._incarnations.popitem(last=False)
        return request.incarnation >= known


def is_replacing(reserve: Reserve) -> bool:
    """Check that it replaces only other legs than itself, and at most `MAX_LEGS`."""
    return len(reserve.replaces) <= MAX_LEGS and reserve.leg not in reserve.replaces


def _size(flow_spec: FlowSpec) -> int:
    return _OVERHEAD + len(flow_spec.channel) + len(flow_spec.where)

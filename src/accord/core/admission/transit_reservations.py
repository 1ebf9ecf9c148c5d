"""Reservations that a node holds for requests of other nodes: soft state with leases, as in RSVP.

A reservation is for one leg of one request. `Reserve` creates it with a short timeout; each
`Refresh` extends it by a longer lease. Only `Reserve` creates one, so a late message cannot revive
a released reservation; released legs are remembered for a while, so not even a late `Reserve` can.
A new incarnation of an origin removes all reservations of its earlier ones.

Each neighbour has a fair quota of the table: requests through one cannot exhaust it for others.
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
from accord.core.admission.released_legs import Leg, ReleasedLegs
from accord.core.admission.resources import MEMORY, Amounts, Pool, ReservationTable, Shortage
from accord.core.model.bounded import FairQuota
from accord.core.model.errors import AccordError

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
    __slots__ = ("dies_us", "is_kept", "round", "source", "towards", "wish")

    def __init__(self, ask: Reserve, at: int, dies_us: int) -> None:
        self.round = ask.round
        self.wish = ask.wish
        self.towards = ask.path[at - 1]
        self.source = ask.path[-1]
        self.dies_us = dies_us
        self.is_kept = False

    @property
    def size(self) -> int:
        return _size(self.wish)


class TransitReservations:
    """All transit reservations of one node; the driver drains `sends`."""

    def __init__(
        self, name: str, books: ReservationTable, assess: Assess, *, hold_us: int, lease_us: int
    ) -> None:
        self.name = name
        self.sends: list[Sent] = []
        self.dropped = 0  # invalid messages
        self._books = books
        self._assess = assess
        self._hold_us = hold_us
        self._lease_us = lease_us
        self._holds: dict[Leg, _TransitReservation] = {}
        self._shares = FairQuota(MAX_HOLDS, MAX_BYTES)  # per neighbour
        self._released = ReleasedLegs()
        self._incarnations: OrderedDict[str, int] = OrderedDict()
        self._sweep_us = 0

    def __len__(self) -> int:
        return len(self._holds)

    def kept(self) -> list[Leg]:
        """Return the legs whose reservation has been refreshed."""
        return [leg for leg, hold in self._holds.items() if hold.is_kept]

    def all(self) -> list[Leg]:
        return list(self._holds)

    def look_again(self, leg: Leg) -> None:
        """Adjust a reservation to its present demand; drop it if that is not available.

        The origin learns of the drop from the reply to its next refresh.
        """
        hold = self._holds.get(leg)
        if hold is None:
            return
        amounts = self._assess(hold.wish, hold.towards, hold.source)
        if amounts != self._books.amounts(leg) and self._books.book(leg, amounts) is not None:
            self._drop(leg)

    def ask(self, neighbour: str, ask: Reserve, now_us: int) -> None:
        at = self._place(neighbour, ask, is_outward=True)
        leg = (ask.request, ask.leg)
        is_sane = len(ask.verdicts) == at - 1 and is_replacing(ask)
        if at == 0 or not is_sane or not self._is_current(ask.request):
            self.dropped += 1
            return
        if leg in self._released:
            return
        hold = self._holds.get(leg)
        if hold is not None and hold.round > ask.round:
            return
        for other in ask.replaces:
            self._end((ask.request, other))
        try:
            verdicts = (*ask.verdicts, self._decide(leg, ask, at, now_us))
        except AccordError:  # the flow spec is invalid here
            self.dropped += 1
            return
        is_end = at == len(ask.path) - 1
        if is_end or (ask.wish.is_full and not verdicts[-1].is_yes):
            answer = ReserveReply(
                ask.request, ask.round, ask.leg, ask.path, ask.wish.is_full, verdicts
            )
            self.sends.append((neighbour, answer))
        else:
            forward = msgspec.structs.replace(ask, verdicts=verdicts)
            self.sends.append((ask.path[at + 1], forward))

    def answer(self, neighbour: str, answer: ReserveReply) -> None:
        """Forward a reply towards the origin; a refusal frees what was held in vain."""
        at = self._place(neighbour, answer, is_outward=False)
        if at == 0:
            self.dropped += 1
            return
        leg = (answer.request, answer.leg)
        hold = self._holds.get(leg)
        is_refused = answer.is_full and not all(each.is_yes for each in answer.verdicts)
        if is_refused and hold is not None and hold.round == answer.round and not hold.is_kept:
            self._drop(leg)
        self.sends.append((answer.path[at - 1], answer))

    def keep(self, neighbour: str, keep: Refresh, now_us: int) -> None:
        at = self._place(neighbour, keep, is_outward=True)
        if at == 0 or not self._is_current(keep.request):
            self.dropped += 1
            return
        leg = (keep.request, keep.leg)
        hold = self._holds.get(leg)
        lost = keep.lost
        if hold is not None and hold.round > keep.round:
            return
        if self.name not in keep.nodes:
            # It refused, then agreed to a retransmission, but that reply never reached the origin.
            if hold is not None:
                self._drop(leg)
        elif hold is None or hold.round < keep.round:
            lost = (*lost, self.name)
        else:
            hold.is_kept = True
            hold.dies_us = max(hold.dies_us, now_us + self._lease_us)
        if at == len(keep.path) - 1:
            kept = RefreshAck(keep.request, keep.round, keep.leg, keep.path, keep.sequence, lost)
            self.sends.append((neighbour, kept))
        else:
            self.sends.append((keep.path[at + 1], msgspec.structs.replace(keep, lost=lost)))

    def pass_back(self, neighbour: str, kept: RefreshAck) -> None:
        at = self._place(neighbour, kept, is_outward=False)
        if at == 0:
            self.dropped += 1
        else:
            self.sends.append((kept.path[at - 1], kept))

    def release(self, neighbour: str, release: Release) -> None:
        at = self._place(neighbour, release, is_outward=True)
        if at == 0:
            self.dropped += 1
            return
        self._end((release.request, release.leg))
        if at + 1 < len(release.path):
            self.sends.append((release.path[at + 1], release))

    def advance(self, now_us: int) -> None:
        """Expire reservations that were not refreshed."""
        if now_us < self._sweep_us:
            return
        for leg, hold in list(self._holds.items()):
            if hold.dies_us <= now_us:
                self._drop(leg)
        self._sweep_us = min(
            (hold.dies_us for hold in self._holds.values()), default=now_us + self._lease_us
        )

    def next_due_us(self) -> int | None:
        return self._sweep_us if self._holds else None

    def check_invariants(self) -> None:
        assert len(self._holds) == self._shares.count
        assert sum(hold.size for hold in self._holds.values()) == self._shares.bytes
        self._shares.check_invariants()
        assert not any(leg in self._released for leg in self._holds)
        for request, leg in self._holds:
            assert (request, leg) in self._books
            assert self._incarnations.get(request.origin, 0) <= request.incarnation
        assert all(self._sweep_us <= hold.dies_us for hold in self._holds.values())
        held = sum(isinstance(key, tuple) and key in self._holds for key in self._books)
        assert held == len(self._holds)

    # ------------------------------------------------------------------------------------- inside

    def _decide(self, leg: Leg, ask: Reserve, at: int, now_us: int) -> NodeVerdict:
        """Reserve what is needed; a retransmission within a round gets the same verdict."""
        hold = self._holds.get(leg)
        if hold is None or hold.round < ask.round:
            short = self._book(leg, ask, at)
            if short is not None:
                if hold is not None:
                    self._drop(leg)
                resource, of = short.pool
                return NodeVerdict(self.name, resource, of, short.asked, short.free)
        if hold is None:
            hold = self._holds[leg] = _TransitReservation(ask, at, now_us)
            self._shares.take(hold.towards, hold.size)
        hold.round = ask.round
        hold.dies_us = max(hold.dies_us, now_us + self._hold_us)
        self._sweep_us = min(self._sweep_us, hold.dies_us)
        return NodeVerdict(self.name)

    def _book(self, leg: Leg, ask: Reserve, at: int) -> Shortage | None:
        towards, size = ask.path[at - 1], _size(ask.wish)
        if leg not in self._holds and not self._shares.has_room(towards, size):
            return Shortage(Pool(MEMORY.resource, f"link {towards}"), size, 0)
        return self._books.book(leg, self._assess(ask.wish, towards, ask.path[-1]))

    def _end(self, leg: Leg) -> None:
        """Release a leg permanently."""
        if leg in self._holds:
            self._drop(leg)
        self._released.add(leg)

    def _drop(self, leg: Leg) -> None:
        hold = self._holds.pop(leg)
        self._shares.give_back(hold.towards, hold.size)
        self._books.release(leg)

    def _place(self, neighbour: str, message: AdmissionMessage, *, is_outward: bool) -> int:
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
            for leg in list(self._holds):
                other = leg[0]
                if other.origin == request.origin and other.incarnation < request.incarnation:
                    self._drop(leg)
            if len(self._incarnations) > _ORIGINS:
                self._incarnations.popitem(last=False)
        return request.incarnation >= known


def is_replacing(ask: Reserve) -> bool:
    """Check that it replaces only other legs than itself, and at most `MAX_LEGS`."""
    return len(ask.replaces) <= MAX_LEGS and ask.leg not in ask.replaces


def _size(wish: FlowSpec) -> int:
    return _OVERHEAD + len(wish.channel) + len(wish.where)

"""What a node holds for requests of other nodes: soft state, for as long as somebody asks for it.

A hold is for one leg of one request. It begins with an `Reserve` and lasts a short while; `Refresh`
makes it a promise, which lasts longer, and again each time it is said. Only `Reserve` can begin
one, so that nothing that comes late brings a released promise back; and legs that were released are
remembered for a while, so that not even a late `Reserve` does. A new incarnation of an origin ends
all that its earlier ones had.

Whatever comes by way of one neighbour, there is room for what comes by way of others.
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
from accord.core.model.errors import AccordError
from accord.core.model.fair_quota import FairQuota

MAX_PATH: Final = 64
MAX_LEGS: Final = 1_024  # of a request
MAX_HOLDS: Final = 100_000
MAX_BYTES: Final = 128 << 20  # of what they are for
_OVERHEAD: Final = 500
_ORIGINS: Final = 10_000

Sent = tuple[str, AdmissionMessage]
# What a node needs for a wish, whose events it sends on to `towards` and come from `source`.
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
    """Of one node. `sends` collects what is to be said to neighbours."""

    def __init__(
        self, name: str, books: ReservationTable, assess: Assess, *, hold_us: int, lease_us: int
    ) -> None:
        self.name = name
        self.sends: list[Sent] = []
        self.dropped = 0  # messages that made no sense here
        self._books = books
        self._assess = assess
        self._hold_us = hold_us
        self._lease_us = lease_us
        self._holds: dict[Leg, _TransitReservation] = {}
        self._shares = FairQuota(MAX_HOLDS, MAX_BYTES)  # by neighbours
        self._released = ReleasedLegs()
        self._incarnations: OrderedDict[str, int] = OrderedDict()
        self._sweep_us = 0

    def __len__(self) -> int:
        return len(self._holds)

    def kept(self) -> list[Leg]:
        """Legs for which there is a promise."""
        return [leg for leg, hold in self._holds.items() if hold.is_kept]

    def all(self) -> list[Leg]:
        return list(self._holds)

    def look_again(self, leg: Leg) -> None:
        """Hold what is needed by now; where that can't be had, it is lost, as its origin hears."""
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
        except AccordError:  # a wish that can't be understood here
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
        """On its way back: a refusal ends at once what is held in vain."""
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
            # It said no, and yes when asked again, which nobody has heard.
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
        """Forget what nobody asks for any more."""
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
        """Hold what is needed; what was said in this round is said again."""
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
        """For ever."""
        if leg in self._holds:
            self._drop(leg)
        self._released.add(leg)

    def _drop(self, leg: Leg) -> None:
        hold = self._holds.pop(leg)
        self._shares.give_back(hold.towards, hold.size)
        self._books.release(leg)

    def _place(self, neighbour: str, message: AdmissionMessage, *, is_outward: bool) -> int:
        """Where this node is on the path; 0 where it or the neighbour has no business there."""
        path = message.path
        if not 2 <= len(path) <= MAX_PATH or len(set(path)) != len(path) or self.name not in path:
            return 0
        if path[0] != message.request.origin:
            return 0
        at = path.index(self.name)
        other = at - 1 if is_outward else at + 1
        return at if 0 <= other < len(path) and path[other] == neighbour else 0

    def _is_current(self, request: ReservationId) -> bool:
        """Whether it is of the origin's newest incarnation; what earlier ones had goes."""
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
    """Whether it replaces other legs than itself, and not too many."""
    return len(ask.replaces) <= MAX_LEGS and ask.leg not in ask.replaces


def _size(wish: FlowSpec) -> int:
    return _OVERHEAD + len(wish.channel) + len(wish.where)

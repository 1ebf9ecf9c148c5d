"""How nodes agree on carrying a subscription: what a node asks of others, and others of it.

The algorithm travels hop by hop, from the subscriber's node towards the publishers, along the paths
that events take the other way. It is in two halves that meet in the books of one node: `requests`
for what begins here, `hops` for what passes.
"""

from __future__ import annotations

from accord.core.admission.hops import Assess, Hops, Sent
from accord.core.admission.messages import AdmissionMessage, Answer, Ask, Keep, Kept, Release
from accord.core.admission.request import Decision, Timing
from accord.core.admission.requests import Requests
from accord.core.admission.resources import Books


class Protocol:
    """Of one node; `sends` and `decisions` are to be taken out by its driver."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        books: Books,
        assess: Assess,
        timing: Timing | None = None,
    ) -> None:
        timing = Timing() if timing is None else timing
        self.name = name
        self.requests = Requests(name, incarnation, books, timing)
        self.hops = Hops(name, books, assess, hold_us=timing.hold_us, lease_us=timing.lease_us)

    @property
    def sends(self) -> list[Sent]:
        """What is to be said to neighbours."""
        sends = self.requests.sends
        sends += self.hops.sends
        self.hops.sends.clear()
        return sends

    @property
    def decisions(self) -> list[Decision]:
        return self.requests.decisions

    @property
    def dropped(self) -> int:
        """Messages that made no sense here."""
        return self.requests.dropped + self.hops.dropped

    def receive(self, neighbour: str, message: AdmissionMessage, now_us: int) -> None:
        is_here = message.request.origin == self.name
        match message:
            case Ask():
                self.hops.ask(neighbour, message, now_us)
            case Keep():
                self.hops.keep(neighbour, message, now_us)
            case Release():
                self.hops.release(neighbour, message)
            case Answer() if is_here:
                self.requests.answer(neighbour, message, now_us)
            case Answer():
                self.hops.answer(neighbour, message)
            case Kept() if is_here:
                self.requests.kept(neighbour, message, now_us)
            case Kept():
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

"""Origin side of the reservation protocol: requests of a node's own clients.

Reservations are soft state, as in RSVP, set up by a round of requests and a round of confirmations.
A request is admitted when all nodes that agreed have also acknowledged a refresh; the client is
notified only then, so the origin guarantees nothing that others have not. From then on it is
refreshed. While the origin calls it admitted, every node that agreed still holds it: the origin
counts the lease from when it sent the acknowledged refresh, the others from when they received it.
A node that lost the reservation (by a restart) or is unreachable is asked again in a new round. If
too few nodes agree before the lease ends, the request is withdrawn and its client is notified.

```
asking ── all agreed, or enough ────▶ confirming ── all acknowledged ─▶ admitted
  │  ▲                                   │  a node lost it              │
  │  └───────────── a new round ─────────┴──────────────────────────────┘
  └─ a refusal, or too many ──▶ refused (withdrawn, if it was admitted)
```
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final

from accord.core.admission.messages import (
    FlowSpec,
    NodeVerdict,
    Refresh,
    RefreshAck,
    Release,
    ReservationId,
    Reserve,
    ReserveReply,
)
from accord.core.admission.reservation import (
    Leg,
    Reservation,
    ReservationDecision,
    ReservationState,
    ReservationTimers,
)
from accord.core.admission.resources import MEMORY, Amounts, ReservationTable, Shortage
from accord.core.admission.transit_reservations import MAX_LEGS, MAX_PATH, Sent
from accord.core.model.errors import AdmissionError

MAX_REQUESTS: Final = 100_000
_ROUNDS: Final = 3  # before a request is admitted or refused
_SENT: Final = 64  # unacknowledged refreshes of one leg


class OriginReservations:
    """All requests of one origin; the driver drains `sends` and `decisions`.

    The local reservation of a request is booked under its `ReservationId`.
    """

    def __init__(
        self, name: str, incarnation: int, table: ReservationTable, timing: ReservationTimers
    ) -> None:
        self.name = name
        self.timing = timing
        self.sends: list[Sent] = []
        self.decisions: list[ReservationDecision] = []
        self.dropped = 0  # invalid messages
        # Set at a secondary node, whose parent replies for other nodes: maps a request number and
        # the rate that the parent reports to the amounts needed here, None if unchanged.
        self.assess: Callable[[int, int], Amounts | None] | None = None
        self._incarnation = incarnation
        self._table = table
        self._requests: dict[int, Reservation] = {}
        self._last_number = 0
        self._dues: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._requests)

    # --------------------------------------------------------------------------- for its node

    def request(
        self,
        flow_spec: FlowSpec,
        paths: Sequence[tuple[str, ...]],
        amounts: Amounts,
        *,
        percent: float,
        now_us: int,
    ) -> int:
        """Start a request and return its number; `amounts` are needed at this node."""
        if not 0 <= percent <= 100:
            raise AdmissionError("percent", f"expected 0 to 100, got {percent}")
        legs = self._validate_paths(paths)
        self._last_number += 1
        id_ = ReservationId(self.name, self._incarnation, self._last_number)
        request = Reservation(id_, flow_spec, percent, now_us)
        is_full = len(self._requests) >= MAX_REQUESTS
        self._requests[id_.number] = request
        short = Shortage(MEMORY, 1, 0) if is_full else self._table.reserve(id_, amounts)
        if short is not None:
            request.own_verdict = NodeVerdict(self.name, *short.pool, short.requested, short.free)
        if is_full:
            self._refuse(request, now_us)
            return id_.number
        for path in legs:
            request.add_leg(path)
        self._start_round(request, now_us)
        return id_.number

    def reroute(
        self,
        number: int,
        paths: Sequence[tuple[str, ...]] | None,
        now_us: int,
        amounts: Amounts | None = None,
    ) -> None:
        """Move a request to other paths: reserve along the new legs, then release the old ones.

        A node on both moves its reservation, as it may not have capacity for two. `paths` None
        keeps the paths. `amounts`, if given, replace what is needed at this node.
        """
        request = self._requests.get(number)
        if request is None:
            return
        if amounts is not None:
            self._reserve_own(request, amounts)
        if paths is not None:
            self._change_legs(request, self._validate_paths(paths))
        request.rounds = 0
        self._start_round(request, now_us)

    def end(self, number: int) -> bool:
        """Release a request that is no longer wanted; returns whether it existed."""
        request = self._requests.get(number)
        if request is None:
            return False
        self._remove(request)
        return True

    def state(self, number: int) -> ReservationState | None:
        request = self._requests.get(number)
        return None if request is None else request.state

    def id_of(self, number: int) -> ReservationId:
        """Return the key under which a request is booked at this node."""
        return ReservationId(self.name, self._incarnation, number)

    def admitted_legs(self) -> dict[ReservationId, dict[int, tuple[str, ...]]]:
        """Return for each request that was admitted, by leg, the nodes that agreed."""
        return {
            request.id: {
                number: leg.agreed
                for number, leg in request.legs.items()
                if leg.verdicts is not None
            }
            for request in self._requests.values()
            if request.was_admitted
        }

    # -------------------------------------------------------------------------- for its driver

    def on_reply(self, neighbour: str, reply: ReserveReply, now_us: int) -> None:
        found = self._leg(neighbour, reply)
        if found is None:
            return
        request, leg = found
        if not self._matches_path(reply):
            self.dropped += 1
            return
        if request.state is not ReservationState.ASKING or leg.verdicts is not None:
            return
        leg.verdicts = reply.verdicts
        self._on_rate(request, reply.rate)
        is_refused = request.flow_spec.is_full and not all(
            each.is_agreed for each in reply.verdicts
        )
        if is_refused or all(each.verdicts is not None for each in request.legs.values()):
            self._decide(request, now_us)

    def on_refresh_ack(self, neighbour: str, ack: RefreshAck, now_us: int) -> None:
        found = self._leg(neighbour, ack)
        if found is None:
            return
        request, leg = found
        is_asked = ack.sequence in leg.sent
        if request.state is ReservationState.ASKING or not (
            is_asked or (ack.missing and not ack.sequence)
        ):
            return
        was_enough = request.own_verdict.is_agreed
        self._on_rate(request, ack.rate)
        is_lost = any(node in leg.agreed for node in ack.missing)
        if is_lost or request.own_verdict.is_agreed != was_enough:
            leg.mark_missing(ack.missing)
            self._start_round(request, now_us)
            return
        if not is_asked:
            return
        leg.confirmed_us = max(leg.confirmed_us or 0, leg.sent[ack.sequence])
        leg.is_confirmed = True
        leg.sent = {number: at for number, at in leg.sent.items() if number > ack.sequence}
        self._check_confirmed(request, now_us)

    def advance(self, now_us: int) -> None:
        while self._dues and self._dues[0][0] <= now_us:
            due_us, number = heapq.heappop(self._dues)
            request = self._requests.get(number)
            if request is not None and request.due_us == due_us:
                self._on_timer(request, now_us)

    def next_due_us(self) -> int | None:
        while self._dues:
            due_us, number = self._dues[0]
            request = self._requests.get(number)
            if request is not None and request.due_us == due_us:
                return due_us
            heapq.heappop(self._dues)
        return None

    def check_invariants(self) -> None:
        assert len(self._requests) <= MAX_REQUESTS
        dues = set(self._dues)
        for number, request in self._requests.items():
            assert (request.due_us, number) in dues
            assert request.own_verdict.is_agreed == (request.id in self._table)
            assert request.state in (
                ReservationState.ASKING,
                ReservationState.CONFIRMING,
                ReservationState.ADMITTED,
            )
            assert not (request.state is ReservationState.ADMITTED and not request.was_admitted)
            assert not request.legs.keys() & request.superseded.keys()
            assert all(len(leg.sent) <= _SENT for leg in request.legs.values())
            if request.flow_spec.is_full and request.state is not ReservationState.ASKING:
                assert all(verdict.is_agreed for verdict in request.verdicts().values())

    def verdicts(self, number: int) -> tuple[NodeVerdict, ...]:
        """Return the verdicts of all nodes if the request is admitted and no round is under way."""
        request = self._requests.get(number)
        is_settled = request is not None and request.state is ReservationState.ADMITTED
        return tuple(request.verdicts().values()) if is_settled and request is not None else ()

    # ------------------------------------------------------------------------------------- rounds

    def _matches_path(self, reply: ReserveReply) -> bool:
        """Check that the verdicts are of the path's nodes; a parent may add those of others."""
        nodes = tuple(each.node for each in reply.verdicts)
        asked = reply.path[1:]
        if self.assess is not None:
            return nodes[: len(asked)] == asked and len(nodes) <= MAX_LEGS
        return bool(nodes) and nodes == asked[: len(nodes)]

    def _on_rate(self, request: Reservation, rate: int) -> None:
        if self.assess is None or rate < 0:
            return
        amounts = self.assess(request.id.number, rate)
        if amounts is not None:
            self._reserve_own(request, amounts)

    def _reserve_own(self, request: Reservation, amounts: Amounts) -> None:
        short = self._table.reserve(request.id, amounts)
        request.own_verdict = NodeVerdict(self.name)
        if short is not None:
            request.own_verdict = NodeVerdict(self.name, *short.pool, short.requested, short.free)
            self._table.release(request.id)

    def _change_legs(self, request: Reservation, paths: list[tuple[str, ...]]) -> None:
        for leg, each in list(request.legs.items()):
            if each.path not in paths:
                request.superseded[leg] = request.legs.pop(leg)
        present = [each.path for each in request.legs.values()]
        for path in paths:
            if path not in present:
                request.add_leg(path)

    def _start_round(self, request: Reservation, now_us: int) -> None:
        """Start a new round."""
        if request.rounds == _ROUNDS:
            self._refuse(request, now_us)
            return
        request.state = ReservationState.ASKING
        request.round += 1
        request.rounds += 1
        for number, leg in list(request.legs.items()):
            if leg.verdicts is not None and not leg.agreed:
                # A released leg can't be reserved again: replace it by a new one on the same path.
                self._release(request, number, request.legs.pop(number))
                request.add_leg(leg.path)
            leg.verdicts = None
            leg.is_confirmed = False
        request.deadline_us = self._deadline_us(request, self.timing.ask_us, now_us)
        if not request.legs or (request.flow_spec.is_full and not request.own_verdict.is_agreed):
            self._decide(request, now_us)
        else:
            self._send_pending(request, now_us)

    def _decide(self, request: Reservation, now_us: int) -> None:
        """Decide the round: all legs have replied, or the result is certain."""
        is_over = request.flow_spec.is_full and not all(
            verdict.is_agreed for verdict in request.verdicts().values()
        )
        if not is_over:
            for leg in request.legs.values():
                if leg.verdicts is None:
                    leg.mark_unreachable()
        if is_over or not self._is_enough(request):
            self._refuse(request, now_us)
            return
        request.state = ReservationState.CONFIRMING
        request.deadline_us = self._deadline_us(request, self.timing.confirm_us, now_us)
        self._start_refreshing(request)
        self._check_confirmed(request, now_us)
        if request.state is ReservationState.CONFIRMING:
            self._send_pending(request, now_us)

    def _is_enough(self, request: Reservation) -> bool:
        verdicts = request.verdicts().values()
        yes = sum(verdict.is_agreed for verdict in verdicts)
        request.share = yes / len(verdicts)
        if request.flow_spec.is_full:
            return yes == len(verdicts)
        return 100 * yes >= request.percent * len(verdicts)

    def _start_refreshing(self, request: Reservation) -> None:
        for number, leg in request.legs.items():
            leg.is_confirmed = not leg.agreed
            leg.sent.clear()
            if not leg.agreed:
                self._release(request, number, leg)

    def _check_confirmed(self, request: Reservation, now_us: int) -> None:
        """Admit or reschedule once all legs have acknowledged their refresh."""
        if not all(leg.is_confirmed for leg in request.legs.values()):
            return
        if request.state is ReservationState.CONFIRMING:
            self._admit(request, now_us)
        else:
            self._schedule(request, now_us)

    def _admit(self, request: Reservation, now_us: int) -> None:
        has_changed = not request.was_admitted or request.share != request.reported_share
        request.state = ReservationState.ADMITTED
        request.was_admitted = True
        request.rounds = 0
        request.refresh_us = now_us + self.timing.refresh_us
        for number, leg in request.superseded.items():
            self._release(request, number, leg)
        request.superseded.clear()
        if has_changed:
            request.reported_share = request.share
            self._report_decision(request, ReservationState.ADMITTED, now_us)
        self._schedule(request, now_us)

    def _refuse(self, request: Reservation, now_us: int) -> None:
        state = ReservationState.WITHDRAWN if request.was_admitted else ReservationState.REFUSED
        self._is_enough(request)
        self._report_decision(request, state, now_us)
        self._remove(request)

    def _on_timer(self, request: Reservation, now_us: int) -> None:
        """Handle a due timer."""
        if request.state is ReservationState.ADMITTED:
            holds_until_us = request.holds_until_us(self.timing.ack_timeout_us)
            if holds_until_us is not None and holds_until_us <= now_us:
                self._start_round(request, now_us)
                return
            if request.refresh_us <= now_us:
                request.refresh_us = now_us + self.timing.refresh_us
                for leg in request.legs.values():
                    leg.is_confirmed = not leg.agreed
            self._send_pending(request, now_us)
        elif now_us < request.deadline_us:
            self._send_pending(request, now_us)
        elif request.state is ReservationState.ASKING:
            self._decide(request, now_us)
        else:
            self._abandon_unconfirmed(request, now_us)

    def _abandon_unconfirmed(self, request: Reservation, now_us: int) -> None:
        """Abandon legs that did not acknowledge in time, and decide without them."""
        for number, leg in request.legs.items():
            if not leg.is_confirmed:
                leg.mark_unreachable()
                self._release(request, number, leg)
        if self._is_enough(request):
            self._admit(request, now_us)
        else:
            self._refuse(request, now_us)

    # -------------------------------------------------------------------------------------- sending

    def _send_pending(self, request: Reservation, now_us: int) -> None:
        """Send to each leg that has not replied or not acknowledged."""
        for number, leg in request.legs.items():
            if request.state is ReservationState.ASKING:
                if leg.verdicts is None:
                    replaces = tuple(request.superseded)
                    ask = Reserve(
                        request.id, request.round, number, leg.path, request.flow_spec, (), replaces
                    )
                    self.sends.append((leg.path[1], ask))
            elif not leg.is_confirmed:
                request.sequence += 1
                leg.sent[request.sequence] = now_us
                while len(leg.sent) > _SENT:
                    del leg.sent[min(leg.sent)]
                keep = Refresh(
                    request.id, request.round, number, leg.path, request.sequence, leg.agreed
                )
                self.sends.append((leg.path[1], keep))
        self._schedule(request, now_us)

    def _release(self, request: Reservation, number: int, leg: Leg) -> None:
        leg.confirmed_us = None
        self.sends.append((leg.path[1], Release(request.id, number, leg.path)))

    def _report_decision(self, request: Reservation, state: ReservationState, now_us: int) -> None:
        verdicts = request.verdicts().values()
        refusals = tuple(verdict for verdict in verdicts if not verdict.is_agreed)
        took_us = now_us - request.began_us
        self.decisions.append(
            ReservationDecision(
                number=request.id.number,
                state=state,
                share=request.share,
                refusals=refusals,
                took_us=took_us,
            )
        )

    def _remove(self, request: Reservation) -> None:
        for number, leg in (*request.legs.items(), *request.superseded.items()):
            self._release(request, number, leg)
        self._table.release(request.id)
        del self._requests[request.id.number]

    # ------------------------------------------------------------------------------------- inside

    def _schedule(self, request: Reservation, now_us: int) -> None:
        retry_us = now_us + self.timing.retry_us
        if request.state is not ReservationState.ADMITTED:
            due_us = min(request.deadline_us, retry_us)
        else:
            due_us = request.refresh_us
            if not all(leg.is_confirmed for leg in request.legs.values()):
                due_us = min(due_us, retry_us)
            holds_until_us = request.holds_until_us(self.timing.ack_timeout_us)
            if holds_until_us is not None:
                due_us = min(due_us, holds_until_us)
        request.due_us = due_us
        heapq.heappush(self._dues, (due_us, request.id.number))
        if len(self._dues) > 4 * len(self._requests) + 64:
            self._dues = [(each.due_us, number) for number, each in self._requests.items()]
            heapq.heapify(self._dues)

    def _deadline_us(self, request: Reservation, wait_us: int, now_us: int) -> int:
        """Return the deadline, at most the end of the lease that earlier acks guarantee."""
        holds_until_us = request.holds_until_us(self.timing.lease_us)
        deadline_us = now_us + wait_us
        return deadline_us if holds_until_us is None else min(deadline_us, holds_until_us)

    def _leg(
        self, neighbour: str, message: ReserveReply | RefreshAck
    ) -> tuple[Reservation, Leg] | None:
        """Return the request and leg of a message, or None if it is outdated."""
        request = self._requests.get(message.request.number)
        if request is None or request.id != message.request or request.round != message.round:
            return None
        leg = request.legs.get(message.leg)
        if leg is None or leg.path != message.path or leg.path[1] != neighbour:
            return None
        return request, leg

    def _validate_paths(self, paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Validate the paths; remove duplicates and paths of a single node."""
        for path in paths:
            if not path or path[0] != self.name:
                raise AdmissionError("path", f"expected one that begins at {self.name}, got {path}")
            if len(path) > MAX_PATH or len(set(path)) != len(path):
                raise AdmissionError("path", f"expected up to {MAX_PATH} different nodes")
        legs = [path for path in dict.fromkeys(paths) if len(path) > 1]
        if len(legs) > MAX_LEGS:
            raise AdmissionError("path", f"expected at most {MAX_LEGS}, got {len(legs)}")
        return legs

"""State of one request at its origin: its legs, the verdicts of their nodes, and timers.

Paths by which the events of a subscription arrive: one from each node with publishers of them.

Events take the shortest path from there, and reservations are requested along it in reverse. A
known path is kept while its links are up and it is not much longer than the shortest, so that
reservations do not move whenever a latency is measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from accord.core.admission.messages import FlowSpec, NodeVerdict, ReservationId
from accord.core.admission.resources import Resource
from accord.core.model.errors import AdmissionError
from accord.core.overlay.k_shortest_paths import shortest_paths
from accord.core.overlay.link_state import LinkStateMap


class ReservationState(StrEnum):
    ASKING = "asking"
    CONFIRMING = "confirming"
    ADMITTED = "admitted"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class ReservationTimers(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of the protocol; a hold outlasts asking and confirming, a lease several refreshes."""

    retry_us: int = 250_000
    ask_us: int = 2_000_000  # until all nodes have replied
    confirm_us: int = 2_000_000
    refresh_us: int = 5_000_000
    hold_us: int = 6_000_000
    lease_us: int = 20_000_000

    def __post_init__(self) -> None:
        if self.hold_us < self.ask_us + self.confirm_us:
            raise AdmissionError("hold_us", "expected at least ask_us + confirm_us")
        if self.ack_timeout_us < 2 * self.refresh_us:
            raise AdmissionError(
                "lease_us", "expected at least ask_us + confirm_us + 2 * refresh_us"
            )

    def of_child(self) -> ReservationTimers:
        """Return the timers of a secondary node, whose parent must itself wait for replies."""
        ask_us = self.ask_us + self.confirm_us + self.retry_us
        hold_us = max(self.hold_us, ask_us + self.confirm_us)
        return msgspec.structs.replace(self, ask_us=ask_us, hold_us=hold_us)

    @property
    def ack_timeout_us(self) -> int:
        """Time without an ack after which a new round starts, early enough within the lease."""
        return self.lease_us - self.ask_us - self.confirm_us


class ReservationDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request: `share` of its nodes agreed, `refusals` are of the others."""

    number: int
    state: ReservationState
    share: float
    refusals: tuple[NodeVerdict, ...] = ()
    took_us: int = 0


class Leg:
    """One path, along which events arrive from its last node."""

    __slots__ = ("confirmed_us", "is_confirmed", "path", "sent", "verdicts")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.verdicts: tuple[NodeVerdict, ...] | None = None  # None: no reply in this round
        self.is_confirmed = False  # the latest refresh is acknowledged
        self.confirmed_us: int | None = None  # send time of the last acknowledged refresh
        self.sent: dict[int, int] = {}  # unacknowledged refreshes: sequence number to send time

    @property
    def agreed(self) -> tuple[str, ...]:
        return tuple(each.node for each in self.verdicts or () if each.is_agreed)

    def mark_missing(self, nodes: tuple[str, ...]) -> None:
        """Mark nodes that no longer hold the reservation."""
        self.verdicts = tuple(
            NodeVerdict(each.node, Resource.PATH) if each.node in nodes else each
            for each in self.verdicts or ()
        )

    def mark_unreachable(self) -> None:
        """Mark all nodes of the leg as unreachable."""
        self.verdicts = tuple(NodeVerdict(node, Resource.PATH) for node in self.path[1:])
        self.is_confirmed = True


class Reservation:
    """One request of the origin, with its round and deadlines."""

    def __init__(
        self, id_: ReservationId, flow_spec: FlowSpec, percent: float, now_us: int
    ) -> None:
        self.id = id_
        self.flow_spec = flow_spec
        self.percent = percent
        self.state = ReservationState.ASKING
        self.was_admitted = False
        self.share = 0.0
        self.reported_share = 0.0
        self.began_us = now_us
        self.round = 0
        self.rounds = 0  # since it was last admitted
        self.own_verdict = NodeVerdict(id_.origin)
        self.legs: dict[int, Leg] = {}
        self.superseded: dict[int, Leg] = {}  # released once the new legs are admitted
        self.last_leg = 0
        self.sequence = 0
        self.deadline_us = 0
        self.refresh_us = 0
        self.due_us = 0

    def add_leg(self, path: tuple[str, ...]) -> None:
        self.last_leg += 1
        self.legs[self.last_leg] = Leg(path)

    def verdicts(self) -> dict[str, NodeVerdict]:
        """Return one verdict per node: a refusal on any leg is a refusal."""
        found = {self.own_verdict.node: self.own_verdict}
        for leg in self.legs.values():
            for verdict in leg.verdicts or ():
                if verdict.node not in found or found[verdict.node].is_agreed:
                    found[verdict.node] = verdict
        return found

    def holds_until_us(self, lease_us: int) -> int | None:
        """Return the time until which all nodes that agreed are certain to hold it."""
        times = [leg.confirmed_us for leg in self.legs.values() if leg.confirmed_us is not None]
        return min(times) + lease_us if times else None


DETOUR_FACTOR: Final = 1.5

Path = tuple[str, ...]


class SourcePath(NamedTuple):
    """A path from the subscriber's node to one with publishers, and the rate advertised there."""

    path: Path
    rate: int  # in thousandths of a hertz


def path_from(map_: LinkStateMap, source: str, to: str, known: Path | None) -> Path | None:
    """Return the path by which events of `source` arrive, in reverse; None if there is none."""
    shortest = shortest_paths(map_, source, to, 1)
    if not shortest:
        return None
    if known is not None:
        delay_us = map_.delay_us(known[::-1])
        if delay_us is not None and delay_us <= shortest[0].delay_us * DETOUR_FACTOR:
            return known
    return shortest[0].nodes[::-1]

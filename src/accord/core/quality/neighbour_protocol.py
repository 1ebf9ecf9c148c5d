"""Dispatches negotiation messages from neighbours and replies to their demands."""

from __future__ import annotations

from typing import TypeVar

from accord.core.model.units import NEVER_US
from accord.core.quality.decision_engine import DecisionEngine
from accord.core.quality.delta_sync import DeltaReceiver
from accord.core.quality.demands import remote_demand
from accord.core.quality.matching import MatchState
from accord.core.quality.messages import (
    AdaptationDecision,
    ForwardedProfile,
    NegotiationAck,
    NegotiationEntry,
    PropertyInterest,
    QualityMessage,
    QualityRejection,
    QualityRequest,
)
from accord.core.quality.properties import PropertyRegistry
from accord.core.quality.supersets import SuperSets
from accord.core.quality.upstream_requests import NeighbourDemand, UpstreamRequests
from accord.core.quality.validation import Qualities

T = TypeVar("T")


class NeighbourProtocol:
    def __init__(
        self, node: str, registry: PropertyRegistry, supersets: SuperSets, engine: DecisionEngine
    ) -> None:
        self.requests = UpstreamRequests(node, registry, supersets.sender, supersets.qualities)
        self._supersets = supersets
        self._sender = supersets.sender
        self._engine = engine
        self._receivers: dict[str, DeltaReceiver] = {}
        self._sessions = 0

    def link_up(self, neighbour: str, qualities: Qualities, now_us: int) -> None:
        self.link_down(neighbour, now_us)
        self._supersets.link_up(neighbour, qualities)
        self._sender.link_up(neighbour, now_us)
        self._sessions += 1
        session = self._sender.incarnation, self._sessions
        self._receivers[neighbour] = DeltaReceiver(session, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        receiver = self._receivers.pop(neighbour, None)
        if receiver is None:
            return
        for entry in receiver.entries().values():
            if isinstance(entry, (QualityRequest, QualityRejection)):
                self._on_change(neighbour, entry, None, now_us)
        self._sender.link_down(neighbour)
        self._supersets.link_down(neighbour)

    def receive(
        self, neighbour: str, message: QualityMessage, now_us: int
    ) -> NegotiationAck | None:
        """Handles a message; returns the ack to send."""
        receiver = self._receivers.get(neighbour)
        if receiver is None:
            return None
        if isinstance(message, NegotiationAck):
            self._sender.on_ack(neighbour, message, now_us)
            return None
        for before, after in receiver.on_delta(message):
            self._on_change(neighbour, before, after, now_us)
        return receiver.ack()

    def pending_session_opens(self, now_us: int) -> list[tuple[str, NegotiationAck]]:
        """Session opens to send now, by neighbour."""
        found = [
            (neighbour, each.repeat_session_open(now_us))
            for neighbour, each in self._receivers.items()
        ]
        return [(neighbour, ack) for neighbour, ack in found if ack is not None]

    def next_due_us(self) -> int:
        return min((each.next_due_us() for each in self._receivers.values()), default=NEVER_US)

    def neighbour_demands(self) -> list[NeighbourDemand]:
        """All demands of neighbours on this node, including relayed ones."""
        here = [party.remote for party in self._engine.demands if party.remote is not None]
        return [*here, *self.requests.relayed()]

    def update_rejections(self, now_us: int) -> None:
        """Sends or withdraws rejections for demands whose state changed."""
        for id_ in self._engine.pending_replies:
            party = self._engine.demands.get(id_)
            if party is None or party.remote is None or party.reported is None:
                continue
            state, decision = party.reported
            is_open = state is MatchState.SATISFIED or decision is AdaptationDecision.ADAPTING
            reasons = () if is_open else self._engine.reasons(party)
            self.requests.set_rejection(party.remote, reasons[0] if reasons else None, now_us)
        self._engine.pending_replies.clear()

    def check_invariants(self) -> None:
        self._sender.check_invariants()
        self.requests.check_invariants()
        for receiver in self._receivers.values():
            receiver.check_invariants()

    def _on_change(
        self,
        neighbour: str,
        before: NegotiationEntry | None,
        after: NegotiationEntry | None,
        now_us: int,
    ) -> None:
        kinds = {type(before), type(after)}
        if PropertyInterest in kinds:
            self._supersets.update_interest(
                neighbour, _as(PropertyInterest, before), _as(PropertyInterest, after)
            )
        if ForwardedProfile in kinds:
            self._supersets.update_profile(
                neighbour, _as(ForwardedProfile, before), _as(ForwardedProfile, after)
            )
        if QualityRequest in kinds:
            claimed = self.requests.to_demand(neighbour, _as(QualityRequest, before))
            self._on_demand(
                claimed, self.requests.to_demand(neighbour, _as(QualityRequest, after)), now_us
            )
        if QualityRejection in kinds:
            self._on_rejection(
                neighbour, _as(QualityRejection, before), _as(QualityRejection, after), now_us
            )

    def _on_demand(
        self, before: NeighbourDemand | None, after: NeighbourDemand | None, now_us: int
    ) -> None:
        if before is not None and (after is None or after.id != before.id):
            self._engine.remove(before.id)
            self._engine.dependencies.release(before.id)
            self.requests.remove(before, now_us)
        if after is None:
            return
        if after.copy[1]:
            copies = (after.copy,)
            self._engine.dependencies.replace(after.id, copies, after.required, after.utility)
            self.requests.relay(after, now_us)
        else:
            self._engine.remove(after.id)
            self._engine.demands.add(remote_demand(after))
            self._engine.dirty.add_urgent([after.id])

    def _on_rejection(
        self,
        neighbour: str,
        before: QualityRejection | None,
        after: QualityRejection | None,
        now_us: int,
    ) -> None:
        refused = self.requests.on_rejection(neighbour, before, after)
        for entry in (before, after):
            if entry is not None:
                self.requests.relay_rejection((entry.source, entry.path), now_us)
        for copy in refused:
            for who in self._engine.dependencies.dependents(copy):
                party = self._engine.demands.get(who)
                if party is not None and self._engine.state(party) is not MatchState.SATISFIED:
                    self._engine.fail(party, copy, now_us)


def _as(kind: type[T], entry: object) -> T | None:
    return entry if isinstance(entry, kind) else None

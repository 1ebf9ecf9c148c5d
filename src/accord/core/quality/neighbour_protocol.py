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
        self, node: str, registry: PropertyRegistry, supersets: SuperSets, deciding: DecisionEngine
    ) -> None:
        self.asking = UpstreamRequests(node, registry, supersets.saying, supersets.qualities)
        self._supersets = supersets
        self._saying = supersets.saying
        self._deciding = deciding
        self._hearing: dict[str, DeltaReceiver] = {}
        self._sessions = 0

    def link_up(self, neighbour: str, qualities: Qualities, now_us: int) -> None:
        self.link_down(neighbour, now_us)
        self._supersets.link_up(neighbour, qualities)
        self._saying.link_up(neighbour, now_us)
        self._sessions += 1
        session = self._saying.incarnation, self._sessions
        self._hearing[neighbour] = DeltaReceiver(session, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        hearing = self._hearing.pop(neighbour, None)
        if hearing is None:
            return
        for said in hearing.said().values():
            if isinstance(said, (QualityRequest, QualityRejection)):
                self._hear(neighbour, said, None, now_us)
        self._saying.link_down(neighbour)
        self._supersets.link_down(neighbour)

    def receive(
        self, neighbour: str, message: QualityMessage, now_us: int
    ) -> NegotiationAck | None:
        """Handles a message; returns the ack to send."""
        hearing = self._hearing.get(neighbour)
        if hearing is None:
            return None
        if isinstance(message, NegotiationAck):
            self._saying.heard(neighbour, message, now_us)
            return None
        for before, after in hearing.hear(message):
            self._hear(neighbour, before, after, now_us)
        return hearing.answer()

    def greetings(self, now_us: int) -> list[tuple[str, NegotiationAck]]:
        """Session opens to send now, by neighbour."""
        found = [(neighbour, each.greet(now_us)) for neighbour, each in self._hearing.items()]
        return [(neighbour, heard) for neighbour, heard in found if heard is not None]

    def next_due_us(self) -> int:
        return min((each.next_due_us() for each in self._hearing.values()), default=NEVER_US)

    def claims(self) -> list[NeighbourDemand]:
        """All demands of neighbours on this node, including relayed ones."""
        here = [party.claim for party in self._deciding.parties if party.claim is not None]
        return [*here, *self.asking.relayed()]

    def answer_claims(self, now_us: int) -> None:
        """Sends or withdraws rejections for demands whose state changed."""
        for id_ in self._deciding.unanswered:
            party = self._deciding.parties.get(id_)
            if party is None or party.claim is None or party.told is None:
                continue
            state, decision = party.told
            is_open = state is MatchState.SATISFIED or decision is AdaptationDecision.ADAPTING
            reasons = () if is_open else self._deciding.reasons(party)
            self.asking.answer(party.claim, reasons[0] if reasons else None, now_us)
        self._deciding.unanswered.clear()

    def check_invariants(self) -> None:
        self._saying.check_invariants()
        self.asking.check_invariants()
        for hearing in self._hearing.values():
            hearing.check_invariants()

    def _hear(
        self,
        neighbour: str,
        before: NegotiationEntry | None,
        after: NegotiationEntry | None,
        now_us: int,
    ) -> None:
        kinds = {type(before), type(after)}
        if PropertyInterest in kinds:
            self._supersets.want(
                neighbour, _as(PropertyInterest, before), _as(PropertyInterest, after)
            )
        if ForwardedProfile in kinds:
            self._supersets.have(
                neighbour, _as(ForwardedProfile, before), _as(ForwardedProfile, after)
            )
        if QualityRequest in kinds:
            claimed = self.asking.claim(neighbour, _as(QualityRequest, before))
            self._claimed(claimed, self.asking.claim(neighbour, _as(QualityRequest, after)), now_us)
        if QualityRejection in kinds:
            self._answered(
                neighbour, _as(QualityRejection, before), _as(QualityRejection, after), now_us
            )

    def _claimed(
        self, before: NeighbourDemand | None, after: NeighbourDemand | None, now_us: int
    ) -> None:
        if before is not None and (after is None or after.id != before.id):
            self._deciding.forget(before.id)
            self._deciding.reliance.release(before.id)
            self.asking.forget(before, now_us)
        if after is None:
            return
        if after.copy[1]:
            copies = (after.copy,)
            self._deciding.reliance.rely(after.id, copies, after.needs, after.utility)
            self.asking.relay(after, now_us)
        else:
            self._deciding.forget(after.id)
            self._deciding.parties.add(remote_demand(after))
            self._deciding.dirty.add_urgent([after.id])

    def _answered(
        self,
        neighbour: str,
        before: QualityRejection | None,
        after: QualityRejection | None,
        now_us: int,
    ) -> None:
        refused = self.asking.refused(neighbour, before, after)
        for said in (before, after):
            if said is not None:
                self.asking.relay_answer((said.source, said.path), now_us)
        for copy in refused:
            for who in self._deciding.reliance.relying(copy):
                party = self._deciding.parties.get(who)
                if party is not None and self._deciding.state(party) is not MatchState.SATISFIED:
                    self._deciding.fail(party, copy, now_us)


def _as(kind: type[T], said: object) -> T | None:
    return said if isinstance(said, kind) else None

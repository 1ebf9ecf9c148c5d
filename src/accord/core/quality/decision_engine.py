"""Re-evaluates demands, starts and stops reactions, and records dependencies on profiles.

A demand is visited when something that concerns it has changed. A visit computes its state and
brings everything else in line: the copies it depends on, the reactions tried for it, the state
reported to its owner. Visits are idempotent.

If the strategy frees resources, only the best satisfied alternative of a subscription has
dependencies: the others may become unsatisfied without harm, and cost nothing.
"""

from __future__ import annotations

from sys import maxsize
from typing import Final

from accord.core.quality.balancer import MAX_OPTIONS, Balancer, Candidate, UnmetDemand
from accord.core.quality.demands import Demand, DemandQueue, Demands, state_of
from accord.core.quality.dependencies import ProfileDependencies
from accord.core.quality.local_profiles import LocalProfiles
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.messages import AdaptationDecision, Notice, StateChanged
from accord.core.quality.profiles import ScoredCapabilities
from accord.core.quality.reactions import ReactionCoordinator
from accord.core.quality.strategies import AdaptationStrategy, Option

NEAREST: Final = 64  # copies examined: those that lack the fewest properties
_SPARE: Final = 15  # extra copies among which the nearest are chosen


class DecisionEngine:
    def __init__(
        self,
        sources: LocalProfiles,
        coordinator: ReactionCoordinator,
        strategy: AdaptationStrategy,
        *,
        remote_us: int,
        retry_us: int,
    ) -> None:
        self.strategy = strategy
        self.parties = Demands()
        self.reliance = ProfileDependencies()
        self.dirty = DemandQueue()  # demands to visit
        self.decisions = 0
        self.unanswered: dict[str, bool] = {}  # neighbours' demands to reply to
        self.retries: dict[str, int] = {}  # time of the next decision, earliest first
        self.remote_tries: dict[str, bool] = {}  # in order of their timeouts
        self._sources = sources
        self._coordinator = coordinator
        self._remote_us = remote_us
        self._retry_us = retry_us
        self._balancer = Balancer(
            coordinator.repository, self.reliance, self._is_broken, self._utility
        )

    def state(self, party: Demand) -> MatchState:
        if party.group is not None:
            return party.group.state(party.id)
        assert party.claim is not None
        local = self._sources.get(party.claim.copy[0])
        return MatchState.UNSATISFIED if local is None else state_of(party.needs, local.offers)

    def visit(self, party: Demand, now_us: int) -> list[Notice]:
        self.dirty.remove(party.id)
        state = self.state(party)
        notices: list[Notice] = []
        if state is MatchState.SATISFIED:
            self._done(party)
            party.has_failed = False
            self._rely_on_satisfying(party)
        elif state is MatchState.UNSATISFIED:
            self._done(party)
            party.has_failed = False
            self.reliance.release(party.id)
        elif not self._is_trying(party):
            notices = self._decide(party, now_us)
        return notices + self._tell(party, state)

    def fail(self, party: Demand, copy: ProfileCopy, now_us: int) -> None:
        """Records that the attempt with this copy failed, and has another source tried."""
        self._done(party)
        party.avoided[copy[0]] = now_us + self._retry_us
        party.decision = AdaptationDecision.FAILED
        party.has_failed = True
        self.reliance.release(party.id)
        self.dirty.add_urgent([party.id])

    def give_up_remote(self, party: Demand, now_us: int) -> None:
        """Abandons the requests to other nodes that had no effect in time."""
        self.remote_tries.pop(party.id, None)
        for copy in self.reliance.copies(party.id):
            offers = self.offers(party, copy) or {}
            if copy[1] and state_of(party.needs, offers) is not MatchState.SATISFIED:
                self.fail(party, copy, now_us)

    def forget(self, id_: str) -> Demand | None:
        party = self.parties.remove(id_)
        if party is not None:
            self._done(party)
            self.reliance.release(id_)
            self.dirty.remove(id_)
            self.unanswered.pop(id_, None)
            self.dirty.add(other.id for other in self._others(party))
        return party

    def profile_changed(self, source: str, offers: ScoredCapabilities | None) -> None:
        """Handles a change of a profile registered at this node; None: it was removed."""
        self.copy_changed((source, ()), offers)
        self.dirty.add_urgent(party.id for party in self.parties.claims_on(source))

    def copy_changed(self, copy: ProfileCopy, offers: ScoredCapabilities | None) -> None:
        """Queues every demand that depends on the copy for more than it now offers."""
        if offers is None:
            self.dirty.add(self.reliance.relying(copy))
            return
        for name in self.reliance.needs(copy):
            offer = offers.get(name)
            now = float("-inf") if offer is None else offer.current
            self.dirty.add(self.reliance.between(copy, name, now, float("inf")))

    def reasons(self, party: Demand) -> tuple[UnmetReason, ...]:
        """Current value of each property that is not good enough, at the nearest copy."""
        offers: ScoredCapabilities = {}
        if party.group is not None:
            copies = self.reliance.copies(party.id) or party.group.nearest(party.least, 1)
            for copy in copies:
                offers = self.offers(party, copy) or {}
                if state_of(party.needs, offers) is not MatchState.SATISFIED:
                    break
        elif party.claim is not None:
            offers = self.offers(party, party.claim.copy) or {}
        return tuple(
            UnmetReason(party.id, name, _now(offers, name))
            for name, least in party.needs.items()
            if name not in offers or offers[name].current < least
        )

    def offers(self, party: Demand, copy: ProfileCopy) -> ScoredCapabilities | None:
        """Capabilities of a copy, as available to a demand; None if the copy no longer exists."""
        if not copy[1]:
            local = self._sources.get(copy[0])
            return None if local is None else local.offers
        group = party.group
        return group.offers(copy) if group is not None and group.has(copy) else None

    def check_invariants(self) -> None:
        self.dirty.check_invariants()
        self.parties.check_invariants()
        self.reliance.check_invariants()
        for party in self.parties:
            if party.id in self.dirty:
                continue
            state = self.state(party)
            assert party.told == self._to_tell(party, state)
            copies = self.reliance.copies(party.id)
            if state is MatchState.SATISFIED:
                assert party.decision is AdaptationDecision.NONE
                assert bool(copies) != (self.strategy.frees and self._is_outranked(party))
                for copy in copies:
                    offers = self.offers(party, copy)
                    assert offers is not None
                    assert state_of(party.needs, offers) is MatchState.SATISFIED
            else:
                assert self._is_trying(party) == (party.decision is AdaptationDecision.ADAPTING)
                assert bool(copies) == (party.decision is AdaptationDecision.ADAPTING)
            assert len({source for source, _ in copies}) in (0, party.publishers)

    # Satisfied

    def _rely_on_satisfying(self, party: Demand) -> None:
        if self.strategy.frees and self._is_outranked(party):
            self.reliance.release(party.id)
            return
        copies = self._kept(party, MatchState.SATISFIED)
        if len(copies) < party.publishers:
            copies = self._filled(party, copies)
        self.reliance.rely(party.id, tuple(copies), party.needs, party.utility)

    def _is_outranked(self, party: Demand) -> bool:
        return any(
            other.rank < party.rank and self.state(other) is MatchState.SATISFIED
            for other in self.parties.alternatives(party)
        )

    def _kept(self, party: Demand, least: MatchState) -> list[ProfileCopy]:
        """Copies the demand depends on that still reach the state `least`."""
        kept: list[ProfileCopy] = []
        for copy in self.reliance.copies(party.id):
            offers = self.offers(party, copy)
            if offers is not None and state_of(party.needs, offers) >= least:
                kept.append(copy)
        return kept

    def _filled(self, party: Demand, copies: list[ProfileCopy]) -> list[ProfileCopy]:
        """Adds other satisfying copies, fewest hops first."""
        if party.group is None:
            assert party.claim is not None
            return [party.claim.copy]
        found = {copy[0]: copy for copy in copies}
        # All of them only if the first batch is too small: a source may have many copies.
        for most in (party.publishers + _SPARE, maxsize):
            others = party.group.satisfying(party.least, most)
            for copy in sorted(others, key=_distance):
                if len(found) == party.publishers:
                    return list(found.values())
                found.setdefault(copy[0], copy)
        return list(found.values())

    # Satisfiable

    def _is_trying(self, party: Demand) -> bool:
        if party.decision is not AdaptationDecision.ADAPTING:
            return False
        copies = self.reliance.copies(party.id)
        return bool(copies) and all(self._is_tried(party, copy) for copy in copies)

    def _is_tried(self, party: Demand, copy: ProfileCopy) -> bool:
        """Whether the copy satisfies, or all that it lacks now has been requested."""
        offers = self.offers(party, copy) or {}
        state = state_of(party.needs, offers)
        if state is not MatchState.SATISFIABLE:
            return state is MatchState.SATISFIED
        if copy[1]:
            return party.id in self.remote_tries
        return all(
            self._coordinator.is_trying((copy[0], name), least)
            for name, least in party.needs.items()
            if offers[name].current < least
        )

    def _decide(self, party: Demand, now_us: int) -> list[Notice]:
        self.decisions += 1
        self._done(party)
        party.avoided = {s: until for s, until in party.avoided.items() if until > now_us}
        satisfying, candidates = self._candidates(party)
        question = UnmetDemand(
            party.id,
            party.needs,
            party.most,
            party.utility,
            party.publishers - len(satisfying),
            self._other_cost(party),
            self._is_outranked(party),
        )
        verdict = self._balancer.decide(question, candidates, self.strategy)
        party.decision = verdict.decision
        if not verdict.options:
            self.reliance.release(party.id)
            self.retries.pop(party.id, None)
            self.retries[party.id] = now_us + self._retry_us
            return []
        copies = (*satisfying, *(option.copy for option in verdict.options))
        self.reliance.rely(party.id, copies, party.needs, party.utility)
        return [each for option in verdict.options for each in self._start(party, option, now_us)]

    def _candidates(self, party: Demand) -> tuple[list[ProfileCopy], list[Candidate]]:
        """Returns copies that already satisfy (too few of them), and those that could."""
        if party.group is None:
            assert party.claim is not None
            copies = [party.claim.copy]
        else:
            copies = party.group.nearest(party.least, NEAREST)
        satisfying: dict[str, ProfileCopy] = {}
        candidates: list[Candidate] = []
        for copy in copies:
            offers = self.offers(party, copy) or {}
            state = state_of(party.needs, offers)
            if state is MatchState.SATISFIED:
                satisfying.setdefault(copy[0], copy)
            elif state is MatchState.SATISFIABLE and copy[0] not in party.avoided:
                local = self._sources.get(copy[0]) if not copy[1] else None
                couplings = () if local is None else local.profile.couplings
                candidates.append(Candidate(copy, offers, couplings))
            if len(candidates) >= 2 * max(MAX_OPTIONS, party.publishers):
                break  # leaves a margin for candidates that conflict
        others = [each for each in candidates if each.copy[0] not in satisfying]
        return list(satisfying.values())[: party.publishers - 1], others

    def _other_cost(self, party: Demand) -> float | None:
        """Current cost of the alternative that the subscription depends on."""
        for other in self._others(party):
            copies = self.reliance.copies(other.id)
            if copies and self.state(other) is MatchState.SATISFIED:
                found = [self.offers(other, copy) or {} for copy in copies]
                return sum(
                    offers[name].cost(offers[name].current)
                    for offers in found
                    for name in other.needs
                    if name in offers
                )
        return None

    def _start(self, party: Demand, option: Option, now_us: int) -> list[Notice]:
        source, path = option.copy
        if path:
            party.tried_until_us = now_us + self._remote_us
            self.remote_tries.pop(party.id, None)
            self.remote_tries[party.id] = True
            return []
        local = self._sources.get(source)
        assert local is not None
        notices: list[Notice] = []
        for move in option.moves:
            offer = local.offers[move.property]
            notices += self._coordinator.start(local.subject, move, offer, now_us)
        return notices

    def _done(self, party: Demand) -> None:
        """Ends all attempts for the demand."""
        party.decision = AdaptationDecision.NONE
        party.tried_until_us = 0
        self.remote_tries.pop(party.id, None)
        self.retries.pop(party.id, None)

    # Effects on others

    def _tell(self, party: Demand, state: MatchState) -> list[Notice]:
        told = self._to_tell(party, state)
        if told == party.told:
            return []
        was_satisfied = party.told is not None and party.told[0] is MatchState.SATISFIED
        party.told = told
        if was_satisfied != (state is MatchState.SATISFIED):
            self.dirty.add(other.id for other in self._others(party))
        if party.expectation is None:
            self.unanswered[party.id] = True
            return []
        reasons = () if state is MatchState.SATISFIED else self.reasons(party)
        subscription = party.expectation.subscription
        return [StateChanged(subscription, party.id, state, party.decision, reasons)]

    def _to_tell(self, party: Demand, state: MatchState) -> tuple[MatchState, AdaptationDecision]:
        """State to report; a retry after a failure is reported only once it succeeds."""
        failed = MatchState.SATISFIABLE, AdaptationDecision.FAILED
        is_again = party.has_failed and party.told == failed
        if (
            is_again
            and state is MatchState.SATISFIABLE
            and party.decision is AdaptationDecision.ADAPTING
        ):
            return failed
        return state, party.decision

    def _others(self, party: Demand) -> list[Demand]:
        return self.parties.alternatives(party)

    def _is_broken(self, who: str, copy: ProfileCopy) -> bool:
        party = self.parties.get(who)
        if party is None or party.group is None:
            return True
        if party.group.state(who) is not MatchState.SATISFIED:
            return False
        count = party.publishers
        return party.group.others_satisfying(party.least, copy[0], count) < count

    def _utility(self, who: str) -> float:
        party = self.parties.get(who)
        return 0.0 if party is None else party.utility


def _distance(copy: ProfileCopy) -> int:
    return len(copy[1])


def _now(offers: ScoredCapabilities, name: str) -> float | str | None:
    return offers[name].capability.current if name in offers else None

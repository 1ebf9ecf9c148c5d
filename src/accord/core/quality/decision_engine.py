"""Re-evaluates demands, starts and stops reactions, and records dependencies on profiles.

A demand is visited when something that concerns it has changed. A visit computes its state and
brings everything else in line: the copies it depends on, the reactions tried for it, the state
reported to its owner. Visits are idempotent.

If the strategy frees resources, only the best satisfied alternative of a subscription has
dependencies: the others may become unsatisfied without harm, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import maxsize
from typing import Final

from accord.core.quality.balancer import MAX_OPTIONS, Balancer, Candidate, UnmetDemand
from accord.core.quality.demands import Demand, DemandQueue, Demands, state_of
from accord.core.quality.local_profiles import LocalProfiles
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.messages import AdaptationDecision, Notice, StateChanged
from accord.core.quality.profiles import ScoredCapabilities
from accord.core.quality.reactions import ProfileRef, ReactionCoordinator
from accord.core.quality.strategies import AdaptationStrategy, Delivered, Option
from accord.core.quality.upstream_requests import ProfileDependencies

NEAREST: Final = 64  # copies examined: those that lack the fewest properties
_SPARE: Final = 15  # extra copies among which the nearest are chosen


class DecisionEngine:
    def __init__(
        self,
        profiles: LocalProfiles,
        coordinator: ReactionCoordinator,
        strategy: AdaptationStrategy,
        *,
        remote_timeout_us: int,
        retry_us: int,
    ) -> None:
        self.strategy = strategy
        self.demands = Demands()
        self.dependencies = ProfileDependencies()
        self.dirty = DemandQueue()  # demands to visit
        self.decisions = 0
        # What was measured of a profile's publisher on its channel.
        self.delivered_of: Callable[[ProfileRef], Delivered] = lambda _: Delivered()
        self.pending_replies: dict[str, bool] = {}  # neighbours' demands to reply to
        self.retries: dict[str, int] = {}  # time of the next decision, earliest first
        self.remote_tries: dict[str, bool] = {}  # in order of their timeouts
        self._profiles = profiles
        self._coordinator = coordinator
        self._remote_timeout_us = remote_timeout_us
        self._retry_us = retry_us
        self._balancer = Balancer(
            coordinator.repository, self.dependencies, self._is_broken, self._utility
        )

    def state(self, demand: Demand) -> MatchState:
        if demand.group is not None:
            return demand.group.state(demand.id)
        assert demand.remote is not None
        local = self._profiles.get(demand.remote.copy[0])
        return MatchState.UNSATISFIED if local is None else state_of(demand.required, local.offers)

    def visit(self, demand: Demand, now_us: int) -> list[Notice]:
        self.dirty.remove(demand.id)
        state = self.state(demand)
        notices: list[Notice] = []
        if state is MatchState.SATISFIED:
            self._end_attempts(demand)
            demand.has_failed = False
            self._depend_on_satisfying(demand)
        elif state is MatchState.UNSATISFIED:
            self._end_attempts(demand)
            demand.has_failed = False
            self.dependencies.release(demand.id)
        elif not self._is_trying(demand):
            notices = self._decide(demand, now_us)
        return notices + self._report(demand, state)

    def fail(self, demand: Demand, copy: ProfileCopy, now_us: int) -> None:
        """Records that the attempt with this copy failed, and has another source tried."""
        self._end_attempts(demand)
        demand.avoided[copy[0]] = now_us + self._retry_us
        demand.decision = AdaptationDecision.FAILED
        demand.has_failed = True
        self.dependencies.release(demand.id)
        self.dirty.add_urgent([demand.id])

    def abandon_remote(self, demand: Demand, now_us: int) -> None:
        """Abandons the requests to other nodes that had no effect in time."""
        self.remote_tries.pop(demand.id, None)
        for copy in self.dependencies.copies(demand.id):
            offers = self.offers(demand, copy) or {}
            if copy[1] and state_of(demand.required, offers) is not MatchState.SATISFIED:
                self.fail(demand, copy, now_us)

    def remove(self, id_: str) -> Demand | None:
        party = self.demands.remove(id_)
        if party is not None:
            self._end_attempts(party)
            self.dependencies.release(id_)
            self.dirty.remove(id_)
            self.pending_replies.pop(id_, None)
            self.dirty.add(other.id for other in self._others(party))
        return party

    def profile_changed(self, source: str, offers: ScoredCapabilities | None) -> None:
        """Handles a change of a profile registered at this node; None: it was removed."""
        self.copy_changed((source, ()), offers)
        self.dirty.add_urgent(party.id for party in self.demands.remote_on(source))

    def copy_changed(self, copy: ProfileCopy, offers: ScoredCapabilities | None) -> None:
        """Queues every demand that depends on the copy for more than it now offers."""
        if offers is None:
            self.dirty.add(self.dependencies.dependents(copy))
            return
        for name in self.dependencies.required(copy):
            offer = offers.get(name)
            now = float("-inf") if offer is None else offer.current
            self.dirty.add(self.dependencies.between(copy, name, now, float("inf")))

    def reasons(self, demand: Demand) -> tuple[UnmetReason, ...]:
        """Current value of each property that is not good enough, at the nearest copy."""
        offers: ScoredCapabilities = {}
        if demand.group is not None:
            copies = self.dependencies.copies(demand.id) or demand.group.nearest(demand.least, 1)
            for copy in copies:
                offers = self.offers(demand, copy) or {}
                if state_of(demand.required, offers) is not MatchState.SATISFIED:
                    break
        elif demand.remote is not None:
            offers = self.offers(demand, demand.remote.copy) or {}
        return tuple(
            UnmetReason(demand.id, name, _now(offers, name))
            for name, least in demand.required.items()
            if name not in offers or offers[name].current < least
        )

    def offers(self, demand: Demand, copy: ProfileCopy) -> ScoredCapabilities | None:
        """Capabilities of a copy, as available to a demand; None if the copy no longer exists."""
        if not copy[1]:
            local = self._profiles.get(copy[0])
            return None if local is None else local.offers
        group = demand.group
        return group.offers(copy) if group is not None and group.has(copy) else None

    def check_invariants(self) -> None:
        self.dirty.check_invariants()
        self.demands.check_invariants()
        self.dependencies.check_invariants()
        for party in self.demands:
            if party.id in self.dirty:
                continue
            state = self.state(party)
            assert party.reported == self._state_to_report(party, state)
            copies = self.dependencies.copies(party.id)
            if state is MatchState.SATISFIED:
                assert party.decision is AdaptationDecision.NONE
                assert bool(copies) != (self.strategy.frees and self._is_outranked(party))
                for copy in copies:
                    offers = self.offers(party, copy)
                    assert offers is not None
                    assert state_of(party.required, offers) is MatchState.SATISFIED
            else:
                assert self._is_trying(party) == (party.decision is AdaptationDecision.ADAPTING)
                assert bool(copies) == (party.decision is AdaptationDecision.ADAPTING)
            assert len({source for source, _ in copies}) in (0, party.publishers)

    # Satisfied

    def _depend_on_satisfying(self, demand: Demand) -> None:
        if self.strategy.frees and self._is_outranked(demand):
            self.dependencies.release(demand.id)
            return
        copies = self._kept(demand, MatchState.SATISFIED)
        if len(copies) < demand.publishers:
            copies = self._fill(demand, copies)
        self.dependencies.replace(demand.id, tuple(copies), demand.required, demand.utility)

    def _is_outranked(self, demand: Demand) -> bool:
        return any(
            other.rank < demand.rank and self.state(other) is MatchState.SATISFIED
            for other in self.demands.alternatives(demand)
        )

    def _kept(self, demand: Demand, least: MatchState) -> list[ProfileCopy]:
        """Copies the demand depends on that still reach the state `least`."""
        kept: list[ProfileCopy] = []
        for copy in self.dependencies.copies(demand.id):
            offers = self.offers(demand, copy)
            if offers is not None and state_of(demand.required, offers) >= least:
                kept.append(copy)
        return kept

    def _fill(self, demand: Demand, copies: list[ProfileCopy]) -> list[ProfileCopy]:
        """Adds other satisfying copies: fewest hops first, then most in time."""
        if demand.group is None:
            assert demand.remote is not None
            return [demand.remote.copy]
        found = {copy[0]: copy for copy in copies}
        # All of them only if the first batch is too small: a source may have many copies.
        for most in (demand.publishers + _SPARE, maxsize):
            others = demand.group.satisfying(demand.least, most)
            for copy in sorted(others, key=self._preference):
                if len(found) == demand.publishers:
                    return list(found.values())
                found.setdefault(copy[0], copy)
        return list(found.values())

    # Satisfiable

    def _is_trying(self, demand: Demand) -> bool:
        if demand.decision is not AdaptationDecision.ADAPTING:
            return False
        copies = self.dependencies.copies(demand.id)
        return bool(copies) and all(self._is_tried(demand, copy) for copy in copies)

    def _is_tried(self, demand: Demand, copy: ProfileCopy) -> bool:
        """Whether the copy satisfies, or all that it lacks now has been requested."""
        offers = self.offers(demand, copy) or {}
        state = state_of(demand.required, offers)
        if state is not MatchState.SATISFIABLE:
            return state is MatchState.SATISFIED
        if copy[1]:
            return demand.id in self.remote_tries
        return all(
            self._coordinator.is_trying((copy[0], name), least)
            for name, least in demand.required.items()
            if offers[name].current < least
        )

    def _decide(self, demand: Demand, now_us: int) -> list[Notice]:
        self.decisions += 1
        self._end_attempts(demand)
        demand.avoided = {s: until for s, until in demand.avoided.items() if until > now_us}
        satisfying, candidates = self._candidates(demand)
        question = UnmetDemand(
            demand.id,
            demand.required,
            demand.most,
            demand.utility,
            demand.publishers - len(satisfying),
            self._other_cost(demand),
            self._is_outranked(demand),
        )
        verdict = self._balancer.decide(question, candidates, self.strategy)
        demand.decision = verdict.decision
        if not verdict.options:
            self.dependencies.release(demand.id)
            self.retries.pop(demand.id, None)
            self.retries[demand.id] = now_us + self._retry_us
            return []
        copies = (*satisfying, *(option.copy for option in verdict.options))
        self.dependencies.replace(demand.id, copies, demand.required, demand.utility)
        return [each for option in verdict.options for each in self._start(demand, option, now_us)]

    def _candidates(self, demand: Demand) -> tuple[list[ProfileCopy], list[Candidate]]:
        """Returns copies that already satisfy (too few of them), and those that could."""
        if demand.group is None:
            assert demand.remote is not None
            copies = [demand.remote.copy]
        else:
            copies = demand.group.nearest(demand.least, NEAREST)
        satisfying: dict[str, ProfileCopy] = {}
        candidates: list[Candidate] = []
        for copy in copies:
            offers = self.offers(demand, copy) or {}
            state = state_of(demand.required, offers)
            if state is MatchState.SATISFIED:
                satisfying.setdefault(copy[0], copy)
            elif state is MatchState.SATISFIABLE and copy[0] not in demand.avoided:
                local = self._profiles.get(copy[0]) if not copy[1] else None
                couplings = () if local is None else local.profile.couplings
                candidates.append(Candidate(copy, offers, couplings, self._delivered(copy)))
            if len(candidates) >= 2 * max(MAX_OPTIONS, demand.publishers):
                break  # leaves a margin for candidates that conflict
        others = [each for each in candidates if each.copy[0] not in satisfying]
        return list(satisfying.values())[: demand.publishers - 1], others

    def _other_cost(self, demand: Demand) -> float | None:
        """Current cost of the alternative that the subscription depends on."""
        for other in self._others(demand):
            copies = self.dependencies.copies(other.id)
            if copies and self.state(other) is MatchState.SATISFIED:
                found = [self.offers(other, copy) or {} for copy in copies]
                return sum(
                    offers[name].cost(offers[name].current)
                    for offers in found
                    for name in other.required
                    if name in offers
                )
        return None

    def _start(self, demand: Demand, option: Option, now_us: int) -> list[Notice]:
        source, path = option.copy
        if path:
            demand.tried_until_us = now_us + self._remote_timeout_us
            self.remote_tries.pop(demand.id, None)
            self.remote_tries[demand.id] = True
            return []
        local = self._profiles.get(source)
        assert local is not None
        notices: list[Notice] = []
        for move in option.moves:
            offer = local.offers[move.property]
            notices += self._coordinator.start(local.subject, move, offer, now_us)
        return notices

    def _end_attempts(self, demand: Demand) -> None:
        """Ends all attempts for the demand."""
        demand.decision = AdaptationDecision.NONE
        demand.tried_until_us = 0
        self.remote_tries.pop(demand.id, None)
        self.retries.pop(demand.id, None)

    # Effects on others

    def _report(self, demand: Demand, state: MatchState) -> list[Notice]:
        reported = self._state_to_report(demand, state)
        if reported == demand.reported:
            return []
        was_satisfied = demand.reported is not None and demand.reported[0] is MatchState.SATISFIED
        demand.reported = reported
        if was_satisfied != (state is MatchState.SATISFIED):
            self.dirty.add(other.id for other in self._others(demand))
        if demand.expectation is None:
            self.pending_replies[demand.id] = True
            return []
        reasons = () if state is MatchState.SATISFIED else self.reasons(demand)
        subscription = demand.expectation.subscription
        return [StateChanged(subscription, demand.id, state, demand.decision, reasons)]

    def _state_to_report(
        self, demand: Demand, state: MatchState
    ) -> tuple[MatchState, AdaptationDecision]:
        """State to report; a retry after a failure is reported only once it succeeds."""
        failed = MatchState.SATISFIABLE, AdaptationDecision.FAILED
        is_again = demand.has_failed and demand.reported == failed
        if (
            is_again
            and state is MatchState.SATISFIABLE
            and demand.decision is AdaptationDecision.ADAPTING
        ):
            return failed
        return state, demand.decision

    def _others(self, demand: Demand) -> list[Demand]:
        return self.demands.alternatives(demand)

    def _is_broken(self, who: str, copy: ProfileCopy) -> bool:
        party = self.demands.get(who)
        if party is None or party.group is None:
            return True
        if party.group.state(who) is not MatchState.SATISFIED:
            return False
        count = party.publishers
        return party.group.others_satisfying(party.least, copy[0], count) < count

    def _preference(self, copy: ProfileCopy) -> tuple[int, float]:
        return len(copy[1]), -self._delivered(copy).in_time

    def _delivered(self, copy: ProfileCopy) -> Delivered:
        """Nothing is known of profiles at other nodes: their publishers are not named."""
        local = self._profiles.get(copy[0]) if not copy[1] else None
        return Delivered() if local is None else self.delivered_of(local.subject)

    def _utility(self, who: str) -> float:
        party = self.demands.get(who)
        return 0.0 if party is None else party.utility


def _now(offers: ScoredCapabilities, name: str) -> float | str | None:
    return offers[name].capability.current if name in offers else None

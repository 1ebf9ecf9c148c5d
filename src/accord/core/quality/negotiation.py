"""Quality negotiation at one node: profiles and expectations in, notices out.

Every input is a call with the time, and every effect is a returned notice. The demands that a
change concerns are visited at once, up to a limit; the rest follow with `advance`, which is then
due immediately. So no single call takes long.

Usage reports to publishers: the latest usage of each profile, rate-limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

import msgspec

from accord.core.model.units import NEVER_US
from accord.core.quality.decision_engine import DecisionEngine
from accord.core.quality.delta_sync import DeltaSender
from accord.core.quality.demands import Demand, local_demand
from accord.core.quality.expectations import (
    Expectation,
    ExpectationTable,
    Lifecycle,
    RegisteredExpectation,
    score_expectation,
)
from accord.core.quality.local_profiles import LocalProfile, LocalProfiles
from accord.core.quality.match_groups import ProfileCopy, Scope
from accord.core.quality.matching import MatchState, UnmetReason
from accord.core.quality.measurements import Measurement
from accord.core.quality.mechanisms import MechanismRepository
from accord.core.quality.messages import (
    AdaptationDecision,
    Notice,
    QualityMessage,
    SendToNeighbour,
    UsageChanged,
)
from accord.core.quality.neighbour_protocol import NeighbourProtocol
from accord.core.quality.profiles import Profile, ScoredCapabilities, ScoredCapability
from accord.core.quality.properties import (
    MAX_PROPERTIES,
    Property,
    PropertyRegistry,
    QualityError,
    shown,
)
from accord.core.quality.reactions import REACTION_TIMEOUT_US, ProfileRef, ReactionCoordinator
from accord.core.quality.strategies import AdaptationStrategy, strategy_named
from accord.core.quality.supersets import SuperSets
from accord.core.quality.validation import Qualities

Usage = tuple[int, float]  # number of expectations, and their total utility

_NONE: Usage = (0, 0.0)


class UsageReports:
    def __init__(self, every_us: int) -> None:
        self.due_us = NEVER_US
        self._every_us = every_us
        self._reported: dict[str, Usage] = {}  # by source; without unused ones
        self._changed: dict[str, tuple[ProfileRef, Usage]] = {}

    def update(self, subject: ProfileRef, usage: Usage, now_us: int) -> None:
        self._changed[subject.source] = subject, usage
        self.due_us = min(self.due_us, now_us + self._every_us)

    def remove(self, source: str) -> None:
        self._reported.pop(source, None)
        self._changed.pop(source, None)

    def take(self, now_us: int) -> list[Notice]:
        """Returns the reports due now."""
        if now_us < self.due_us:
            return []
        notices: list[Notice] = []
        for source, (subject, usage) in self._changed.items():
            if self._reported.pop(source, _NONE) != usage:
                notices.append(UsageChanged(subject.publisher, subject.channel, *usage))
            if usage != _NONE:
                self._reported[source] = usage
        self._changed.clear()
        self.due_us = NEVER_US
        return notices

    def check_invariants(self) -> None:
        assert bool(self._changed) <= (self.due_us < NEVER_US)
        assert _NONE not in self._reported.values()


T = TypeVar("T")


class NegotiationOptions(msgspec.Struct, frozen=True, kw_only=True):
    strategy: str = "pareto"
    mechanism_timeout_us: int = REACTION_TIMEOUT_US  # timeout of a mechanism
    remote_timeout_us: int = 20_000_000  # timeout of a request to other nodes
    retry_us: int = 30_000_000  # delay before a declined or failed demand is decided again
    usage_us: int = 1_000_000  # minimum interval between usage reports
    visits: int = 4  # per call
    decisions: int = 1  # per call: most visits are short, these are not
    remeasured: int = 256  # profiles per call


class ExpectationReport(msgspec.Struct, frozen=True):
    """State of one expectation, for operators."""

    expectation: Expectation
    lifecycle: Lifecycle
    state: MatchState | None = None  # None while suspended
    decision: AdaptationDecision = AdaptationDecision.NONE
    reasons: tuple[UnmetReason, ...] = ()
    depends_on: tuple[ProfileCopy, ...] = ()


class Negotiation:
    """The negotiation of one node; `incarnation` is larger at each start.

    A node that `is_leaf` forwards nothing from one neighbour to another.
    """

    def __init__(
        self,
        node: str,
        *,
        incarnation: int = 1,
        registry: PropertyRegistry | None = None,
        options: NegotiationOptions | None = None,
        is_leaf: bool = False,
    ) -> None:
        self.options = options or NegotiationOptions()
        self.registry = registry or PropertyRegistry()
        self.repository = MechanismRepository(self.registry)
        self.expectations = ExpectationTable(self.registry)
        self.profiles = LocalProfiles(node, self.registry)
        self.supersets = SuperSets(node, self.registry, DeltaSender(incarnation), is_leaf=is_leaf)
        self.coordinator = ReactionCoordinator(self.repository, self.options.mechanism_timeout_us)
        self.engine = DecisionEngine(
            self.profiles,
            self.coordinator,
            strategy_named(self.options.strategy),
            remote_timeout_us=self.options.remote_timeout_us,
            retry_us=self.options.retry_us,
        )
        self.protocol = NeighbourProtocol(node, self.registry, self.supersets, self.engine)
        self._stale: dict[str, bool] = {}  # sources with new measurements
        self._usages = UsageReports(self.options.usage_us)
        self._last_number = 0

    # Properties and strategy

    def define(self, *properties: Property, now_us: int) -> list[Notice]:
        """Defines all of them or none; a property in use cannot be changed."""
        known = {each.name: each for each in self.registry}
        for each in properties:
            if known.get(each.name, each) != each:
                self._check_unused(each.name)
            known[each.name] = each
        if len(known) > MAX_PROPERTIES:
            problem = f"{MAX_PROPERTIES} are accepted, {len(known)} would be defined"
            raise QualityError("properties", problem)
        for each in properties:
            self.registry.define(each)
            self.supersets.property_defined(each.name)
        return self._finish(now_us)

    def set_strategy(self, strategy: AdaptationStrategy, *, now_us: int) -> list[Notice]:
        """Switches to another strategy and re-evaluates everything."""
        self.engine.strategy = strategy
        self.engine.dirty.add(party.id for party in self.engine.demands)
        return self._finish(now_us)

    # Profiles

    def register_profile(self, profile: Profile, *, now_us: int) -> list[Notice]:
        return self._profile_changed(self.profiles.register(profile), [], now_us)

    def update_profile(self, profile: Profile, *, now_us: int) -> list[Notice]:
        before = list(self.profiles.find(profile.publisher, profile.channel).offers)
        local = self.profiles.update(profile)
        return self._profile_changed(local, [n for n in before if n not in local.offers], now_us)

    def revoke_profile(self, publisher: str, channel: str, *, now_us: int) -> list[Notice]:
        return self._revoke(publisher, channel) + self._finish(now_us)

    def on_publisher_gone(self, publisher: str, *, now_us: int) -> list[Notice]:
        notices: list[Notice] = []
        for channel in self.profiles.channels_of(publisher):
            notices += self._revoke(publisher, channel)
        return notices + self._finish(now_us)

    def measure(self, measurement: Measurement, *, now_us: int) -> list[Notice]:
        for source in self.profiles.measure(measurement):
            self._stale[source] = True
        return self._finish(now_us)

    # Expectations

    def register(self, expectation: Expectation, *, now_us: int) -> list[Notice]:
        self._check_room(expectation)
        return self._finish(now_us, self._activate(self.expectations.register(expectation)))

    def update(self, expectation: Expectation, *, now_us: int) -> list[Notice]:
        self._check_room(expectation)
        held = self.expectations.update(expectation)
        self._deactivate(expectation.id)
        party = self._activate(held) if held.lifecycle is Lifecycle.ACTIVE else None
        return self._finish(now_us, party)

    def suspend(self, id_: str, *, now_us: int) -> list[Notice]:
        self.expectations.suspend(id_)
        self._deactivate(id_)
        return self._finish(now_us)

    def resume(self, id_: str, *, now_us: int) -> list[Notice]:
        self._check_room(self.expectations.get(id_).expectation)
        return self._finish(now_us, self._activate(self.expectations.resume(id_)))

    def revoke(self, id_: str, *, now_us: int) -> list[Notice]:
        self.expectations.revoke(id_)
        self._deactivate(id_)
        return self._finish(now_us)

    def unsubscribe(self, subscription: str, *, now_us: int) -> list[Notice]:
        for held in self.expectations.alternatives(subscription):
            self.expectations.revoke(held.expectation.id)
            self._deactivate(held.expectation.id)
        return self._finish(now_us)

    # Neighbours

    def link_up(self, neighbour: str, qualities: Qualities, *, now_us: int) -> list[Notice]:
        """`qualities`: what the link adds (latency) or preserves (reliability), by property."""
        self.protocol.link_up(neighbour, qualities, now_us)
        return self._finish(now_us)

    def link_changed(self, neighbour: str, qualities: Qualities, *, now_us: int) -> list[Notice]:
        self.supersets.link_changed(neighbour, qualities)
        return self._finish(now_us)

    def link_down(self, neighbour: str, *, now_us: int) -> list[Notice]:
        self.protocol.link_down(neighbour, now_us)
        return self._finish(now_us)

    def receive(self, neighbour: str, message: QualityMessage, *, now_us: int) -> list[Notice]:
        answer = self.protocol.receive(neighbour, message, now_us)
        notices = self._finish(now_us)
        return notices if answer is None else [SendToNeighbour(neighbour, answer), *notices]

    # Time

    def next_due_us(self) -> int:
        deciding = self.engine
        if deciding.dirty or self._stale:
            return 0
        due = [
            self.coordinator.next_due_us(),
            self.supersets.sender.next_due_us(),
            self.protocol.next_due_us(),
            self._usages.due_us,
        ]
        due += _first(deciding.retries.values())
        tried = [deciding.demands.get(id_) for id_ in _first(deciding.remote_tries)]
        return min(due + [party.tried_until_us for party in tried if party is not None])

    def advance(self, *, now_us: int) -> list[Notice]:
        notices = self._abandon_overdue(now_us)
        deciding = self.engine
        while deciding.retries and min(_first(deciding.retries.values())) <= now_us:
            id_ = next(iter(deciding.retries))
            del deciding.retries[id_]
            deciding.dirty.add([id_])
        return notices + self._finish(now_us) + self._usages.take(now_us)

    # Inspection

    def report(self, id_: str) -> ExpectationReport:
        held = self.expectations.get(id_)
        party = self.engine.demands.get(id_)
        if party is None:
            return ExpectationReport(held.expectation, held.lifecycle)
        state = self.engine.state(party)
        reasons = () if state is MatchState.SATISFIED else self.engine.reasons(party)
        relies_on = self.engine.dependencies.copies(id_)
        return ExpectationReport(
            held.expectation, held.lifecycle, state, party.decision, reasons, relies_on
        )

    def skyline(self, scope: Scope) -> list[ProfileCopy]:
        """Copies on the skyline of a channel filter and expected properties, sorted by name."""
        group = self.supersets.groups.get(scope)
        return [] if group is None else list(group.skyline.members())

    def usage(self, publisher: str, channel: str) -> tuple[int, float]:
        """Number of expectations that depend on a profile, and the sum of their utilities."""
        source = self.profiles.find(publisher, channel).subject.source
        return self.engine.dependencies.usage((source, ()))

    def nearest(self, id_: str) -> tuple[ProfileCopy, ScoredCapabilities] | None:
        """The copy that an active expectation depends on, else the nearest one; None if none is."""
        party = self.engine.demands.get(id_)
        if party is None or party.group is None:
            return None
        for copy in self.engine.dependencies.copies(id_) or party.group.nearest(party.least, 1):
            offers = self.engine.offers(party, copy)
            if offers is not None:
                return copy, offers
        return None

    def offer(self, publisher: str, channel: str, name: str) -> ScoredCapability | None:
        """A capability of a local profile."""
        local = self.profiles.look_up(publisher, channel)
        return None if local is None else local.offers.get(name)

    def check_invariants(self) -> None:
        for part in (
            self.registry,
            self.expectations,
            self.profiles,
            self.supersets,
            self.coordinator,
            self.engine,
            self.protocol,
            self._usages,
        ):
            part.check_invariants()
        for held in self.expectations:
            party = self.engine.demands.get(held.expectation.id)
            assert (party is not None) == (held.lifecycle is Lifecycle.ACTIVE)
            if party is not None and party.group is not None:
                assert self.supersets.groups[party.group.scope] is party.group
                party.group.check_counts(party.id, party.least)
        for local in self.profiles:
            for name in local.offers:
                reaction = self.coordinator.get((local.subject.source, name))
                level = self.engine.dependencies.level((local.subject.source, ()), name)
                if reaction is not None and reaction.due_us:
                    assert level is not None
                    assert level >= reaction.level
                if level is not None:
                    assert level <= self.coordinator.released((local.subject.source, name))

    # Helpers

    def _profile_changed(self, local: LocalProfile, lost: list[str], now_us: int) -> list[Notice]:
        notices = self.coordinator.remove(local.subject.source, lost)
        return notices + self._publish_profile(local) + self._finish(now_us)

    def _publish_profile(self, local: LocalProfile) -> list[Notice]:
        """Publishes a profile as it is declared and measured now."""
        source = local.subject.source
        self.supersets.set_local(local.subject.channel, source, local.offers)
        self.engine.profile_changed(source, local.offers)
        return self.coordinator.observed(source, local.offers)

    def _revoke(self, publisher: str, channel: str) -> list[Notice]:
        local = self.profiles.revoke(publisher, channel)
        source = local.subject.source
        self.supersets.remove_local(channel, source)
        self.engine.profile_changed(source, None)
        self._usages.remove(source)
        return self.coordinator.remove(source, list(local.offers))

    def _activate(self, registered: RegisteredExpectation) -> Demand:
        expectation = registered.expectation
        scope = expectation.channel, registered.scored.names
        group = self.supersets.group(scope, expectation.publishers)
        group.add(expectation.id, registered.scored.least, expectation.publishers)
        self._last_number += 1
        party = local_demand(registered, group, self._last_number)
        self.engine.demands.add(party)
        return party

    def _deactivate(self, id_: str) -> None:
        party = self.engine.remove(id_)
        if party is not None and party.group is not None:
            party.group.remove(id_)
            self.supersets.release(party.group.scope)

    def _check_room(self, expectation: Expectation) -> None:
        if not self.supersets.is_full:
            return
        scope = expectation.channel, score_expectation(expectation, self.registry).names
        if scope not in self.supersets.groups:
            problem = "too many sets of channels and properties are in use already"
            raise QualityError(f"expectation {shown(expectation.id)}", problem)

    def _check_unused(self, name: str) -> None:
        is_used = (
            any(name in local.offers for local in self.profiles)
            or any(name in held.scored.names for held in self.expectations)
            or any(name in names for _, names in self.supersets.groups)
        )
        if is_used:
            problem = "is in use; its meaning can't change before nobody uses it any more"
            raise QualityError(shown(name), problem)

    def _finish(self, now_us: int, first: Demand | None = None) -> list[Notice]:
        """Visits the demands concerned, and sends what follows."""
        notices = self._remeasure()
        deciding = self.engine
        deciding.dirty.add_urgent(self.supersets.propagate(now_us))
        for copy, offers in self.supersets.take_changed():
            deciding.copy_changed(copy, offers)
        if first is not None:
            notices += deciding.visit(first, now_us)
        notices += self._visit(now_us) + self._propagate_requirements(now_us)
        self.protocol.update_rejections(now_us)
        notices += [
            SendToNeighbour(*greeting) for greeting in self.protocol.pending_session_opens(now_us)
        ]
        return notices + [SendToNeighbour(*send) for send in self.supersets.sender.take(now_us)]

    def _visit(self, now_us: int) -> list[Notice]:
        notices: list[Notice] = []
        deciding = self.engine
        most = deciding.decisions + self.options.decisions
        for _ in range(self.options.visits):
            id_ = deciding.dirty.take()
            if id_ is None:
                break
            party = deciding.demands.get(id_)
            if party is not None:
                notices += deciding.visit(party, now_us)
            if deciding.decisions >= most:
                break
        return notices

    def _remeasure(self) -> list[Notice]:
        notices: list[Notice] = []
        for source in _first(self._stale, self.options.remeasured):
            del self._stale[source]
            local = self.profiles.refresh(source)
            if local is not None:
                notices += self._publish_profile(local)
        return notices

    def _propagate_requirements(self, now_us: int) -> list[Notice]:
        """Passes changed requirements on to local publishers and to neighbours."""
        notices: list[Notice] = []
        reliance = self.engine.dependencies
        for copy in reliance.take_changed():
            source, path = copy
            if path:
                self.protocol.requests.request(copy, reliance, now_us)
                continue
            local = self.profiles.get(source)
            if local is None:
                continue
            for name, offer in local.offers.items():
                level = reliance.level(copy, name)
                frees = self.engine.strategy.frees
                notices += self.coordinator.adjust((source, name), level, offer, frees)
            self._usages.update(local.subject, reliance.usage(copy), now_us)
        return notices

    def _abandon_overdue(self, now_us: int) -> list[Notice]:
        """Abandons reactions and remote requests that timed out."""
        notices: list[Notice] = []
        deciding = self.engine
        for place in self.coordinator.overdue(now_us):
            source, name = place
            local = self.profiles.get(source)
            assert local is not None
            offer = local.offers[name]
            more, is_tried = self.coordinator.abandon(place, offer, now_us)
            notices += more
            if not is_tried:
                self._fail_dependents((source, ()), name, offer.current, now_us)
        while deciding.remote_tries:
            party = deciding.demands.get(next(iter(deciding.remote_tries)))
            assert party is not None
            if party.tried_until_us > now_us:
                break
            deciding.abandon_remote(party, now_us)
        return notices

    def _fail_dependents(self, copy: ProfileCopy, name: str, now: float, now_us: int) -> None:
        for who in self.engine.dependencies.between(copy, name, now, float("inf")):
            party = self.engine.demands.get(who)
            if party is not None:
                self.engine.fail(party, copy, now_us)


def _first(values: Iterable[T], most: int = 1) -> list[T]:
    return list(islice(values, most))

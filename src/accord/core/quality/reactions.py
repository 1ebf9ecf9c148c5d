"""Coordinates reactions: starts, verifies, replaces and withdraws mechanisms.

A reaction moves one property of one profile to a level. Its mechanisms are tried in turn: each has
a timeout within which the declared or measured value must reach the level; otherwise it is
withdrawn and the next one is tried. When all have failed, the failure is reported. A reaction that
succeeded is held as long as a demand needs it.

When no demand needs it any more, the node's own steps are withdrawn. A publisher is advised to do
less only if the strategy frees resources: down to what is still needed, or to its value before the
reaction. If that is cheaper, the node instead caps the excess until it is needed.

A publisher follows such a release with a delay. Meanwhile new demands may come to depend on what it
still provides; then it is advised again. So the last advice is never below what is needed: earlier
demands are included in it, and later ones cause a new advice.
"""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from accord.core.model.units import NEVER_US
from accord.core.quality.mechanisms import Mechanism, MechanismRepository, advises, worse_direction
from accord.core.quality.messages import (
    Advice,
    ApplyMechanism,
    MechanismStep,
    Notice,
    WithdrawMechanism,
)
from accord.core.quality.profiles import ScoredCapabilities, ScoredCapability
from accord.core.quality.strategies import PropertyMove

REACTION_TIMEOUT_US: Final = 5_000_000

PropertyRef = tuple[str, str]  # a source and a property


class ProfileRef(msgspec.Struct, frozen=True):
    """A profile registered at this node."""

    source: str
    publisher: str
    channel: str


class Reaction:
    """An effort to move one property of a profile; `due_us` is its timeout, 0 once successful."""

    __slots__ = (
        "baseline",
        "capped",
        "due_us",
        "level",
        "mechanisms",
        "number",
        "released",
        "subject",
        "target",
    )

    def __init__(self, subject: ProfileRef, baseline: float) -> None:
        self.subject = subject
        self.baseline = baseline
        self.level = baseline
        self.target = baseline
        self.mechanisms: tuple[Mechanism, ...] = ()  # the first is in effect
        self.number = 0  # of the steps applied by the node, 0: none
        self.due_us = 0
        self.capped = 0  # number of the mechanism that caps the excess, 0: none
        self.released = inf  # advised target of a release that is not followed yet

    @property
    def advises(self) -> bool:
        return any(advises(each) for each in self.mechanisms[:1])


class ReactionCoordinator:
    def __init__(
        self, repository: MechanismRepository, timeout_us: int = REACTION_TIMEOUT_US
    ) -> None:
        self.repository = repository
        self._timeout_us = timeout_us
        self._reactions: dict[PropertyRef, Reaction] = {}
        self._trying: dict[PropertyRef, bool] = {}  # in order of their timeouts
        self._ended: dict[PropertyRef, Reaction] = {}  # released, but not followed yet
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._reactions)

    def get(self, ref: PropertyRef) -> Reaction | None:
        return self._reactions.get(ref)

    def released(self, ref: PropertyRef) -> float:
        """Advised target of a release that the publisher has not followed yet."""
        reaction = self._reactions.get(ref) or self._ended.get(ref)
        return inf if reaction is None else reaction.released

    def is_trying(self, ref: PropertyRef, level: float) -> bool:
        """Whether an attempt to reach at least `level` is under way."""
        return ref in self._trying and self._reactions[ref].level >= level

    def in_effect(self) -> list[int]:
        """Numbers of all mechanisms applied by the node and not withdrawn."""
        reactions = self._reactions.values()
        return [n for each in reactions for n in (each.number, each.capped) if n]

    def start(
        self, subject: ProfileRef, move: PropertyMove, offer: ScoredCapability, now_us: int
    ) -> list[Notice]:
        """Starts the mechanisms of a decided move."""
        place = subject.source, move.property
        reaction = self._reactions.get(place)
        if reaction is None:
            reaction = self._ended.pop(place, None) or Reaction(subject, offer.current)
            self._reactions[place] = reaction
        elif place in self._trying and move.level <= reaction.level:
            return []  # already requested
        reaction.baseline = min(reaction.baseline, offer.current)
        notices = self._uncap(reaction)
        if reaction.mechanisms[:1] != move.mechanisms[:1]:
            notices += self._withdraw(reaction)
        reaction.level = max(reaction.level, move.level) if reaction.due_us else move.level
        reaction.target = move.target
        reaction.released = inf
        reaction.mechanisms = move.mechanisms
        return notices + self._try(place, reaction, offer, now_us)

    def adjust(
        self, ref: PropertyRef, level: float | None, offer: ScoredCapability, frees: bool
    ) -> list[Notice]:
        """Adjusts a reaction to the level that all demands together need now."""
        reaction = self._reactions.get(ref) or self._restore(ref, level, offer)
        if reaction is None:
            return []
        goal = reaction.baseline if level is None else max(level, reaction.baseline)
        if goal >= reaction.level:
            notices = self._uncap(reaction) if goal > reaction.level else []
            if offer.current >= goal:
                reaction.level = goal
                notices += self._revise_release(reaction, offer) if goal > reaction.released else []
            return notices
        reaction.level = goal
        self._hold(ref, reaction, offer)
        notices = self._reduce(reaction, offer) if frees and reaction.advises else []
        if goal <= reaction.baseline and not reaction.capped:
            notices += self._withdraw(reaction)
            self._end(ref)
            if reaction.released < inf:
                self._ended[ref] = reaction
        return notices

    def observed(self, source: str, offers: ScoredCapabilities) -> list[Notice]:
        """Checks a profile's new values; reactions that reached their level are held."""
        notices: list[Notice] = []
        for name, offer in offers.items():
            place = source, name
            if place in self._ended and offer.current <= self._ended[place].released:
                del self._ended[place]
            reaction = self._reactions.get(place)
            if reaction is None:
                continue
            if offer.current <= reaction.released:
                reaction.released = inf
            # A publisher that does less by itself is not advised to do more when less is needed.
            reaction.baseline = min(reaction.baseline, offer.current)
            self._hold(place, reaction, offer)
            if reaction.capped and offer.current <= reaction.level:
                notices += self._uncap(reaction)
                if reaction.level <= reaction.baseline:
                    self._end(place)
        return notices

    def remove(self, source: str, names: list[str]) -> list[Notice]:
        """Ends the reactions of a removed profile, or of these capabilities of it."""
        notices: list[Notice] = []
        for name in names:
            self._ended.pop((source, name), None)
            reaction = self._reactions.get((source, name))
            if reaction is not None:
                notices += self._uncap(reaction) + self._withdraw(reaction)
                self._end((source, name))
        return notices

    def next_due_us(self) -> int:
        for place in self._trying:
            return self._reactions[place].due_us
        return NEVER_US

    def overdue(self, now_us: int) -> list[PropertyRef]:
        """Reactions that timed out, earliest first."""
        found: list[PropertyRef] = []
        for place in self._trying:
            if self._reactions[place].due_us > now_us:
                break
            found.append(place)
        return found

    def abandon(
        self, ref: PropertyRef, offer: ScoredCapability, now_us: int
    ) -> tuple[list[Notice], bool]:
        """Abandons the current mechanism; False if none is left to try."""
        reaction = self._reactions[ref]
        following = reaction.mechanisms[1:]
        notices = self._withdraw(reaction)
        if following:
            reaction.mechanisms = following
            return notices + self._try(ref, reaction, offer, now_us), True
        if offer.current > reaction.baseline and reaction.advises:
            reaction.level = offer.current  # as far as it came: released later
            self._hold(ref, reaction, offer)
        else:
            self._end(ref)
        return notices, False

    def check_invariants(self) -> None:
        for place, reaction in self._reactions.items():
            assert (place in self._trying) == (reaction.due_us > 0)
            assert reaction.mechanisms
            assert reaction.level > reaction.baseline or reaction.capped
            assert place[0] == reaction.subject.source
            assert place not in self._ended
            assert reaction.level <= reaction.released
        for reaction in self._ended.values():
            assert reaction.level <= reaction.released < inf
            assert not reaction.number
            assert not reaction.capped
        due = [self._reactions[place].due_us for place in self._trying]
        assert due == sorted(due)

    def _try(
        self, ref: PropertyRef, reaction: Reaction, offer: ScoredCapability, now_us: int
    ) -> list[Notice]:
        reaction.due_us = now_us + self._timeout_us
        self._trying.pop(ref, None)
        self._trying[ref] = True
        if not reaction.number and set(reaction.mechanisms[0].steps) != {MechanismStep.ADVISE}:
            reaction.number = self._next_number()
        mechanism, score = reaction.mechanisms[0], max(reaction.level, reaction.target)
        return _to_notices(mechanism, reaction.subject, reaction.number, offer, score)

    def _reduce(self, reaction: Reaction, offer: ScoredCapability) -> list[Notice]:
        """Reduces the value to the level in the cheapest way: by advice or by a cap."""
        for mechanism in self.repository.of(offer.property, worse_direction(offer.property))[:1]:
            if not advises(mechanism):
                reaction.capped = reaction.capped or self._next_number()
            else:
                reaction.released = reaction.level
            subject, level = reaction.subject, min(reaction.level, offer.best)
            return _to_notices(mechanism, subject, reaction.capped, offer, level, is_release=True)
        return []

    def _revise_release(self, reaction: Reaction, offer: ScoredCapability) -> list[Notice]:
        """Advises a smaller reduction than the last release."""
        reaction.released = reaction.level
        who, target = reaction.subject, offer.property.from_score(reaction.level)
        return [Advice(who.publisher, who.channel, offer.property.name, target, is_release=True)]

    def _restore(
        self, ref: PropertyRef, level: float | None, offer: ScoredCapability
    ) -> Reaction | None:
        """Restores a released reaction if its effect is still present and needed again."""
        reaction = self._ended.get(ref)
        if reaction is None or level is None or not reaction.level < level <= offer.current:
            return None
        self._reactions[ref] = self._ended.pop(ref)
        return reaction

    def _hold(self, ref: PropertyRef, reaction: Reaction, offer: ScoredCapability) -> None:
        if offer.current >= reaction.level:
            reaction.due_us = 0
            self._trying.pop(ref, None)

    def _uncap(self, reaction: Reaction) -> list[Notice]:
        capped, reaction.capped = reaction.capped, 0
        return [WithdrawMechanism(capped)] if capped else []

    def _withdraw(self, reaction: Reaction) -> list[Notice]:
        number, reaction.number = reaction.number, 0
        return [WithdrawMechanism(number)] if number else []

    def _end(self, ref: PropertyRef) -> None:
        self._reactions.pop(ref).due_us = 0
        self._trying.pop(ref, None)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number


def _to_notices(  # noqa: PLR0913
    mechanism: Mechanism,
    subject: ProfileRef,
    number: int,
    offer: ScoredCapability,
    score: float,
    *,
    is_release: bool = False,
) -> list[Notice]:
    """Converts the steps of a mechanism to notices."""
    who, channel, name = subject.publisher, subject.channel, offer.property.name
    target = offer.property.from_score(score)
    return [
        Advice(who, channel, name, target, is_release)
        if step is MechanismStep.ADVISE
        else ApplyMechanism(number, step, who, channel, name, target)
        for step in mechanism.steps
    ]

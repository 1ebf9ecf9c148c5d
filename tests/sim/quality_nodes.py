"""Nodes for the simulator that negotiate quality, with their clients and what they can do.

A client's view is kept apart from what its node knows, and compared with it: what a subscriber was
told last, what the node was ordered to do and not to do any more, what a publisher was advised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final

from accord.core.channels.channels import Channels
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.tier_links import TierLinks
from accord.core.quality.expectations import Expectation, Lifecycle
from accord.core.quality.measurements import Measurement
from accord.core.quality.messages import (
    Advice,
    ApplyMechanism,
    Notice,
    StateChanged,
    WithdrawMechanism,
)
from accord.core.quality.negotiation import Negotiation, NegotiationOptions
from accord.core.quality.overlay_negotiation import SERVICE, OverlayNegotiation, TierNegotiation
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import SHIPPED, Property, PropertyRegistry
from accord.sim.machine import Start

MS: Final = 1_000

Key = tuple[str, str]  # a publisher and its channel


@dataclass
class Publisher:
    """What it can do, and whether it does as advised; a node's own measures help it, or not."""

    profile: Profile
    latency_ms: float
    obeys: bool
    is_helped: bool


@dataclass
class Home:
    """The clients of one node: they come back when it does."""

    publishers: dict[Key, Publisher] = field(default_factory=dict)
    expectations: dict[str, Expectation] = field(default_factory=dict)
    suspended: dict[str, bool] = field(default_factory=dict)
    properties: dict[str, Property] = field(default_factory=dict)


class QualityNode:
    is_leaf = False

    def __init__(
        self,
        start: Start,
        home: Home,
        options: OverlayOptions,
        quality_options: NegotiationOptions,
        counts: dict[str, int],
    ) -> None:
        self.name = start.name
        self.home = home
        self.random: Random = start.random
        self.now_us = start.now_us
        self.told: dict[str, StateChanged] = {}
        self.acts: dict[int, ApplyMechanism] = {}
        self.released: dict[tuple[str, str, str], Advice] = {}  # and not followed yet
        self.counts = counts
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.quality = Negotiation(
            start.name,
            incarnation=start.incarnation,
            registry=PropertyRegistry((*SHIPPED, *home.properties.values())),
            options=quality_options,
            is_leaf=self.is_leaf,
        )
        self.exchange = self._join(start, options)
        for key in home.publishers:
            self.publish(key)
        for id_, expectation in home.expectations.items():
            self.tell(self.quality.register(expectation, now_us=self.now_us))
            if id_ in home.suspended:
                self.suspend(id_)

    def _join(self, start: Start, options: OverlayOptions) -> TierNegotiation:
        """Become one of many."""
        self.overlay = Overlay(
            start.name, start.incarnation, options, start.random.random, lambda *_: None
        )
        self.channels = Channels(self.overlay)
        self.tiers = TierLinks()
        return self.channels.serve(
            SERVICE, lambda context: OverlayNegotiation(context, self.quality, self.tiers)
        )

    @property
    def is_busy(self) -> bool:
        """Clients are about to do something."""
        return bool(self._later)

    # As a machine of the simulator

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return self.overlay.sends

    @property
    def ready(self) -> list[str]:
        return self.overlay.ready

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:  # noqa: ARG002
        return []

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.now_us = now_us
        self._receive(neighbour, message)
        self._hand_out()

    def advance(self, now_us: int) -> None:
        self.now_us = now_us
        while self._later and self._later[0][0] <= now_us:
            heappop(self._later)[2]()
        self._advance()
        self._hand_out()

    def next_due_us(self) -> int:
        due_us = self._next_due_us()
        return min(due_us, self._later[0][0]) if self._later else due_us

    def _receive(self, neighbour: str, message: Any) -> None:
        self.overlay.receive(neighbour, message, self.now_us)

    def _advance(self) -> None:
        self.channels.advance(self.now_us)

    def _next_due_us(self) -> int:
        return self.channels.next_due_us()

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        self.overlay.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        self.overlay.link_down(neighbour, now_us)

    def check_invariants(self) -> None:
        self._check_net()
        assert sorted(self.acts) == sorted(self.quality.coordinator.in_effect())
        for id_ in self.told:
            assert id_ in self.quality.expectations, "told of what there is not"
        for held in self.quality.expectations:
            id_ = held.expectation.id
            if held.lifecycle is Lifecycle.ACTIVE and id_ not in self.quality.engine.dirty:
                standing, told = self.quality.report(id_), self.told[id_]
                assert told.state is standing.state
                assert told.expectation == id_
        for advice in self.released.values():
            self._check_advice(advice)

    def _check_net(self) -> None:
        self.channels.check_invariants()

    # What clients do

    def tell(self, notices: list[Notice]) -> None:
        self.exchange.dispatch(notices)
        self._hand_out()

    def publish(self, key: Key) -> None:
        """A publisher comes, or is different."""
        publisher = self.home.publishers[key]
        is_known = key[1] in self.quality.profiles.channels_of(key[0])
        change = self.quality.update_profile if is_known else self.quality.register_profile
        self.tell(change(publisher.profile, now_us=self.now_us))
        self._drop_followed(key)
        self._measure(key)

    def leave(self, key: Key) -> None:
        self.tell(self.quality.revoke_profile(*key, now_us=self.now_us))
        self._drop_followed(key)

    def suspend(self, id_: str) -> None:
        self.told.pop(id_, None)
        self.tell(self.quality.suspend(id_, now_us=self.now_us))

    def revoke(self, id_: str) -> None:
        self.told.pop(id_, None)
        self.tell(self.quality.revoke(id_, now_us=self.now_us))

    # What is told

    def _hand_out(self) -> None:
        advised: dict[tuple[str, str, str], Advice] = {}
        for notice in self.exchange.take_notices():
            if isinstance(notice, StateChanged):
                assert (
                    self.quality.expectations.get(notice.expectation).lifecycle is Lifecycle.ACTIVE
                )
                self.told[notice.expectation] = notice
            elif isinstance(notice, Advice):
                self.counts["advice"] += 1
                advised[notice.publisher, notice.channel, notice.property] = notice
            elif isinstance(notice, ApplyMechanism):
                self.counts["acts"] += 1
                self.acts[notice.reaction] = notice
                self._soon(lambda act=notice: self._remeasure(act))  # type: ignore[misc]
            elif isinstance(notice, WithdrawMechanism):
                self.counts["withdrawn"] += 1
                act = self.acts.pop(notice.reaction)  # what is not in effect can't be withdrawn
                self._soon(lambda act=act: self._remeasure(act))  # type: ignore[misc]
        for what, advice in advised.items():
            self._check_advice(advice)
            self.released.pop(what, None)
            if advice.is_release:
                self.released[what] = advice
            self._soon(lambda advice=advice: self._obey(advice))  # type: ignore[misc]

    def _check_advice(self, advice: Advice) -> None:
        """Nobody is advised to do less than is needed, nor what it can't do."""
        local = self.quality.profiles.find(advice.publisher, advice.channel)
        offer = local.offers[advice.property]
        score = offer.property.score(advice.target)
        assert score <= offer.best
        deciding = self.quality.engine
        for who in deciding.dependencies.dependents((local.subject.source, ())):
            party = deciding.demands.get(who)
            if party is not None and who not in deciding.dirty:
                least = party.required.get(advice.property, -inf)
                assert score >= min(least, offer.best), f"{who} needs more than is advised"

    def _drop_followed(self, key: Key) -> None:
        is_there = key[1] in self.quality.profiles.channels_of(key[0])
        offers = self.quality.profiles.find(*key).offers if is_there else {}
        for what, advice in list(self.released.items()):
            offer = offers.get(what[2])
            is_less = offer is None or offer.current <= offer.property.score(advice.target)
            if what[:2] == key and is_less:
                del self.released[what]

    def _soon(self, do: Callable[[], None]) -> None:
        self._number += 1
        at_us = self.now_us + self.random.randrange(1, 400 * MS)
        heappush(self._later, (at_us, self._number, do))

    def _obey(self, advice: Advice) -> None:
        key = advice.publisher, advice.channel
        publisher = self.home.publishers.get(key)
        if publisher is None or not publisher.obeys:
            return
        capabilities = [
            Capability(each.property, each.lower, each.upper, advice.target, each.cost)
            if each.property == advice.property
            and float(each.lower) <= float(advice.target) <= float(each.upper)
            else each
            for each in publisher.profile.capabilities
        ]
        publisher.profile = Profile(
            publisher=key[0], channel=key[1], capabilities=tuple(capabilities)
        )
        self.publish(key)

    def _remeasure(self, act: ApplyMechanism) -> None:
        self._measure((act.publisher, act.channel))

    def _measure(self, key: Key) -> None:
        """The latency of what somebody publishes: half where the node does something about it."""
        publisher = self.home.publishers.get(key)
        if publisher is None or key[1] not in self.quality.profiles.channels_of(key[0]):
            return
        is_acting = any((act.publisher, act.channel) == key for act in self.acts.values())
        best = publisher.latency_ms / 2
        value = best if is_acting and publisher.is_helped else publisher.latency_ms
        found = Measurement(
            channel=key[1], property="latency", value=value, best=best, publisher=key[0]
        )
        self.tell(self.quality.measure(found, now_us=self.now_us))

"""Demands (active local expectations, neighbours' requests for one profile), and their queue.

Demands to re-evaluate form a FIFO: urgent ones first, each at most once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from accord.core.quality.expectations import Expectation, RegisteredExpectation
from accord.core.quality.match_groups import MatchGroup
from accord.core.quality.matching import MatchState
from accord.core.quality.messages import AdaptationDecision
from accord.core.quality.profiles import ScoredCapabilities, Vector
from accord.core.quality.upstream_requests import NeighbourDemand, RequiredScores


class Demand:
    """Either a local expectation, matched by a group, or a neighbour's request for one profile."""

    __slots__ = (
        "avoided",
        "decision",
        "expectation",
        "group",
        "has_failed",
        "id",
        "least",
        "most",
        "number",
        "publishers",
        "remote",
        "reported",
        "required",
        "tried_until_us",
        "utility",
    )

    def __init__(self, id_: str, required: RequiredScores, least: Vector, utility: float) -> None:
        self.id = id_
        self.required = required
        self.least = least
        self.most: RequiredScores = {}
        self.utility = utility
        self.publishers = 1
        self.number = 0  # in the order of registration
        self.expectation: Expectation | None = None
        self.group: MatchGroup | None = None
        self.remote: NeighbourDemand | None = None
        self.decision = AdaptationDecision.NONE
        self.reported: tuple[MatchState, AdaptationDecision] | None = None
        self.has_failed = False  # an attempt has failed since the state last changed
        self.avoided: dict[str, int] = {}  # sources that did not help, and until when to avoid them
        self.tried_until_us = 0

    @property
    def rank(self) -> tuple[float, int]:
        """Sort key among the alternatives of a subscription, highest utility first."""
        return -self.utility, self.number


def local_demand(registered: RegisteredExpectation, group: MatchGroup, number: int) -> Demand:
    expectation, wanted = registered.expectation, registered.scored
    needs = dict(zip(wanted.names, wanted.least, strict=True))
    party = Demand(expectation.id, needs, wanted.least, expectation.utility)
    party.most = dict(zip(wanted.names, wanted.most, strict=True))
    party.publishers = expectation.publishers
    party.number = number
    party.expectation = expectation
    party.group = group
    return party


def remote_demand(remote: NeighbourDemand) -> Demand:
    party = Demand(remote.id, remote.required, tuple(remote.required.values()), remote.utility)
    party.remote = remote
    return party


def state_of(required: RequiredScores, offers: ScoredCapabilities) -> MatchState:
    """State of one profile; see `matching`."""
    states = [MatchState.SATISFIED]
    for name, least in required.items():
        offer = offers.get(name)
        if offer is None or offer.best < least:
            return MatchState.UNSATISFIED
        if offer.current < least:
            states.append(MatchState.SATISFIABLE)
    return min(states)


class Demands:
    def __init__(self) -> None:
        self._demands: dict[str, Demand] = {}
        self._subscriptions: dict[str, dict[str, Demand]] = {}
        self._remote: dict[str, dict[str, Demand]] = {}  # by source

    def __len__(self) -> int:
        return len(self._demands)

    def __iter__(self) -> Iterator[Demand]:
        return iter(self._demands.values())

    def get(self, id_: str) -> Demand | None:
        return self._demands.get(id_)

    def add(self, demand: Demand) -> None:
        self._demands[demand.id] = demand
        if demand.expectation is not None:
            subscription = demand.expectation.subscription
            self._subscriptions.setdefault(subscription, {})[demand.id] = demand
        if demand.remote is not None:
            self._remote.setdefault(demand.remote.copy[0], {})[demand.id] = demand

    def remove(self, id_: str) -> Demand | None:
        party = self._demands.pop(id_, None)
        if party is not None and party.expectation is not None:
            _drop(self._subscriptions, party.expectation.subscription, id_)
        if party is not None and party.remote is not None:
            _drop(self._remote, party.remote.copy[0], id_)
        return party

    def alternatives(self, demand: Demand) -> list[Demand]:
        """The other demands of its subscription."""
        if demand.expectation is None:
            return []
        known = self._subscriptions.get(demand.expectation.subscription, {})
        return [each for each in known.values() if each is not demand]

    def remote_on(self, source: str) -> list[Demand]:
        return list(self._remote.get(source, {}).values())

    def check_invariants(self) -> None:
        listed = [id_ for of in self._subscriptions.values() for id_ in of]
        listed += [id_ for of in self._remote.values() for id_ in of]
        assert sorted(listed) == sorted(self._demands)
        assert all(self._subscriptions.values())
        assert all(self._remote.values())


def _drop(index: dict[str, dict[str, Demand]], key: str, id_: str) -> None:
    del index[key][id_]
    if not index[key]:
        del index[key]


class DemandQueue:
    def __init__(self) -> None:
        self._urgent: dict[str, bool] = {}
        self._others: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._urgent or id_ in self._others

    def add(self, ids: Iterable[str]) -> None:
        """Appends demands at the end."""
        others = dict.fromkeys(ids, True)  # thousands may depend on one profile
        for id_ in self._urgent.keys() & others.keys():
            del others[id_]
        self._others |= others

    def add_urgent(self, ids: Iterable[str]) -> None:
        """Inserts demands before all that are not urgent."""
        for id_ in ids:
            self._others.pop(id_, None)
            self._urgent[id_] = True

    def remove(self, id_: str) -> None:
        self._urgent.pop(id_, None)
        self._others.pop(id_, None)

    def take(self) -> str | None:
        for ids in (self._urgent, self._others):
            for id_ in ids:
                del ids[id_]
                return id_
        return None

    def check_invariants(self) -> None:
        assert not self._urgent.keys() & self._others.keys()

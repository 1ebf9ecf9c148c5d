"""Who waits for a decision: expectations that are active here, and what neighbours ask."""

from __future__ import annotations

from collections.abc import Iterator

from accord.core.negotiation.asking import Claim
from accord.core.negotiation.expectations import Expectation, Held
from accord.core.negotiation.groups import Group
from accord.core.negotiation.matching import State
from accord.core.negotiation.notices import Decision
from accord.core.negotiation.profiles import Offers, Vector
from accord.core.negotiation.reliance import Needs


class Party:
    """Either an expectation, which a group matches, or the claim of a neighbour on one profile."""

    __slots__ = (
        "avoided",
        "claim",
        "decision",
        "expectation",
        "group",
        "has_failed",
        "id",
        "least",
        "most",
        "needs",
        "number",
        "publishers",
        "told",
        "tried_until_us",
        "utility",
    )

    def __init__(self, id_: str, needs: Needs, least: Vector, utility: float) -> None:
        self.id = id_
        self.needs = needs
        self.least = least
        self.most: Needs = {}
        self.utility = utility
        self.publishers = 1
        self.number = 0  # in the order of registration
        self.expectation: Expectation | None = None
        self.group: Group | None = None
        self.claim: Claim | None = None
        self.decision = Decision.NONE
        self.told: tuple[State, Decision] | None = None
        self.has_failed = False  # something was tried and did not help, since it stands as it does
        self.avoided: dict[str, int] = {}  # sources that did not help, and until when
        self.tried_until_us = 0

    @property
    def rank(self) -> tuple[float, int]:
        """Among the alternatives of its subscription, the one that is wanted most first."""
        return -self.utility, self.number


def expecting(held: Held, group: Group, number: int) -> Party:
    expectation, wanted = held.expectation, held.wanted
    needs = dict(zip(wanted.names, wanted.least, strict=True))
    party = Party(expectation.id, needs, wanted.least, expectation.utility)
    party.most = dict(zip(wanted.names, wanted.most, strict=True))
    party.publishers = expectation.publishers
    party.number = number
    party.expectation = expectation
    party.group = group
    return party


def claiming(claim: Claim) -> Party:
    party = Party(claim.id, claim.needs, tuple(claim.needs.values()), claim.utility)
    party.claim = claim
    return party


def state_of(needs: Needs, offers: Offers) -> State:
    """Of one profile; see `matching`."""
    states = [State.SATISFIED]
    for name, least in needs.items():
        offer = offers.get(name)
        if offer is None or offer.best < least:
            return State.UNSATISFIED
        if offer.current < least:
            states.append(State.SATISFIABLE)
    return min(states)


class Parties:
    def __init__(self) -> None:
        self._parties: dict[str, Party] = {}
        self._subscriptions: dict[str, dict[str, Party]] = {}
        self._claims: dict[str, dict[str, Party]] = {}  # by source

    def __len__(self) -> int:
        return len(self._parties)

    def __iter__(self) -> Iterator[Party]:
        return iter(self._parties.values())

    def get(self, id_: str) -> Party | None:
        return self._parties.get(id_)

    def add(self, party: Party) -> None:
        self._parties[party.id] = party
        if party.expectation is not None:
            subscription = party.expectation.subscription
            self._subscriptions.setdefault(subscription, {})[party.id] = party
        if party.claim is not None:
            self._claims.setdefault(party.claim.copy[0], {})[party.id] = party

    def remove(self, id_: str) -> Party | None:
        party = self._parties.pop(id_, None)
        if party is not None and party.expectation is not None:
            _drop(self._subscriptions, party.expectation.subscription, id_)
        if party is not None and party.claim is not None:
            _drop(self._claims, party.claim.copy[0], id_)
        return party

    def alternatives(self, party: Party) -> list[Party]:
        """The others of its subscription."""
        if party.expectation is None:
            return []
        known = self._subscriptions.get(party.expectation.subscription, {})
        return [each for each in known.values() if each is not party]

    def claims_on(self, source: str) -> list[Party]:
        return list(self._claims.get(source, {}).values())

    def check_invariants(self) -> None:
        listed = [id_ for of in self._subscriptions.values() for id_ in of]
        listed += [id_ for of in self._claims.values() for id_ in of]
        assert sorted(listed) == sorted(self._parties)
        assert all(self._subscriptions.values())
        assert all(self._claims.values())


def _drop(index: dict[str, dict[str, Party]], key: str, id_: str) -> None:
    del index[key][id_]
    if not index[key]:
        del index[key]

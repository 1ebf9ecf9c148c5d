"""Who gets what: routes, groups, grants. Receivers are sessions here."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from accord.core.broker.broker import make_message
from accord.core.broker.broker_context import BrokerContext, ConnectionPort
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.channels import filter_selects
from accord.core.mqtt.codes import V5
from accord.core.mqtt.properties import Properties
from accord.core.policy.policies import DEFAULT_GRANT, Entity, Grant, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.predicates.predicate import parse
from accord.core.router.fan_out import FanOut, MessageOverride, PublisherFanOut, RouterSubscription
from accord.core.router.limits import Limits
from accord.core.router.router import Router


class Copy(NamedTuple):
    """What one receiver got of a message."""

    qos: int
    is_retained: bool
    identifiers: tuple[int, ...]


class Place:
    """A router and those who receive from it."""

    def __init__(self, *names: str, kept: list[str] | None = None) -> None:
        self.router = Router(kept or [], Policies(PolicySet()))
        self.hub = BrokerContext(Limits(), self.router, is_durable=False, now_ms=1)
        self.sessions = {name: MqttSession(name, self.hub) for name in names}
        for session in self.sessions.values():
            # With aliases, so that each message is made for it and nothing forwarded.
            session.attach(ConnectionPort(), V5, window=65_535, packet_limit=0, alias_limit=1)

    def subscribe(
        self,
        name: str,
        pattern: str,
        *,
        group: str = "",
        qos: int = 0,
        no_local: bool = False,
        keeps_retained_flag: bool = False,
        identifier: int = 0,
        where: str = "",
    ) -> RouterSubscription:
        subscription = RouterSubscription(
            self.sessions[name],
            pattern,
            group=group,
            qos=qos,
            is_local_excluded=no_local,
            keeps_retained_flag=keeps_retained_flag,
            identifier=identifier,
            predicate=parse(where) if where else None,
        )
        self.sessions[name].subscriptions[f"{group} {pattern}"] = subscription
        self.router.add(subscription)
        return subscription

    def publish(self, message: MqttMessage) -> dict[str, list[Copy]]:
        """Who got what."""
        way = PublisherFanOut(Entity(message.publisher), self.router.fan_out(message.channel))
        reached = self.router.publish(message, way)
        got = {name: copies(session) for name, session in self.sessions.items()}
        assert sum(map(len, got.values())) == reached
        return {name: some for name, some in got.items() if some}


def is_valid(route: FanOut) -> bool:
    return route.is_valid


def copies(session: MqttSession) -> list[Copy]:
    taken = session.outbox.take(1 << 30, 1 << 16)
    assert all(isinstance(each, ClientDelivery) for each in taken)
    return [
        Copy(each.qos, each.is_retained, each.identifiers)
        for each in taken
        if isinstance(each, ClientDelivery)
    ]


def message(
    channel: str,
    qos: int = 0,
    *,
    is_retained: bool = False,
    publisher: str = "",
    user: tuple[tuple[str, str], ...] = (),
) -> MqttMessage:
    return make_message(channel, b"", qos, is_retained, publisher, 1, Properties(user=user))


def test_one_copy_at_the_highest_qos_of_overlapping_subscriptions() -> None:
    place = Place("ada", "bob")
    place.subscribe("ada", "uav/+", qos=1, identifier=1)
    place.subscribe("ada", "uav/#", qos=2, identifier=2)
    place.subscribe("bob", "ship/#")
    (only,) = place.publish(message("uav/imagery", qos=2))["ada"]
    assert only.qos == 2
    assert sorted(only.identifiers) == [1, 2]
    assert place.publish(message("uav", qos=1)) == {"ada": [Copy(1, False, (2,))]}
    assert place.publish(message("car")) == {}


def test_the_retained_flag_is_for_those_who_asked_to_keep_it() -> None:
    place = Place("ada", "bob")
    place.subscribe("ada", "a", keeps_retained_flag=True)
    place.subscribe("bob", "a")
    assert place.publish(message("a", is_retained=True)) == {
        "ada": [Copy(0, True, ())],
        "bob": [Copy(0, False, ())],
    }


def test_a_publisher_that_excludes_itself_gets_what_its_other_subscriptions_want() -> None:
    place = Place("ada")
    place.subscribe("ada", "a/#", qos=2, no_local=True, identifier=1, keeps_retained_flag=True)
    assert place.publish(message("a/b", qos=2, publisher="ada")) == {}
    assert place.publish(message("a/b", qos=2, publisher="bob")) == {"ada": [Copy(2, False, (1,))]}
    place.subscribe("ada", "a/b", qos=0, identifier=2)
    own = message("a/b", qos=2, is_retained=True, publisher="ada")
    assert place.publish(own) == {"ada": [Copy(0, False, (2,))]}
    (other,) = place.publish(message("a/b", qos=2, is_retained=True, publisher="bob"))["ada"]
    assert (other.qos, other.is_retained, sorted(other.identifiers)) == (2, True, [1, 2])


def test_members_of_a_group_take_turns() -> None:
    place = Place("ada", "bob", "cyn")
    for name in place.sessions:
        place.subscribe(name, "jobs", group="workers", qos=1)
    place.subscribe("ada", "jobs", group="others", qos=1)
    got = [place.publish(message("jobs", qos=1)) for _ in range(6)]
    assert [sum(len(each.get(name, [])) for each in got) for name in ("bob", "cyn")] == [2, 2]
    assert sum(len(each["ada"]) for each in got) == 6 + 2, "each group has its own copy"


def test_a_group_prefers_members_who_are_there() -> None:
    place = Place("ada", "bob")
    for name in place.sessions:
        place.subscribe(name, "jobs", group="workers", qos=1)
    place.sessions["ada"].is_connected = False
    assert [place.publish(message("jobs", qos=1)) for _ in range(3)] == [
        {"bob": [Copy(1, False, ())]}
    ] * 3
    place.sessions["bob"].is_connected = False
    assert len(place.publish(message("jobs", qos=1))) == 1, "one of them will have it later"


def test_a_predicate_decides_message_by_message() -> None:
    place = Place("ada", "bob")
    place.subscribe("ada", "uav/+", where="altitude_m > 300")
    place.subscribe("bob", "uav/+", group="g", where="altitude_m <= 300")
    assert list(place.publish(message("uav/1", user=(("altitude_m", "420"),)))) == ["ada"]
    assert list(place.publish(message("uav/1", user=(("altitude_m", "80"),)))) == ["bob"]
    assert place.publish(message("uav/1")) == {}


def test_attributes_that_are_bad_match_no_predicate_and_keep_nothing_from_others() -> None:
    place = Place("ada", "bob")
    place.subscribe("ada", "a", where="n > 1")
    place.subscribe("bob", "a")
    assert list(place.publish(message("a", user=(("metadata", "<open>"),)))) == ["bob"]
    assert place.router.unreadable == 1


def test_a_remembered_route_ends_with_a_subscription_it_would_miss() -> None:
    place = Place("ada", "bob")
    route = place.router.fan_out("a/b")
    other = place.router.fan_out("a/c")
    subscription = place.subscribe("ada", "a/b")
    assert not is_valid(route)
    assert is_valid(other), "another channel is not concerned"
    place.subscribe("bob", "a/+")
    assert not is_valid(other)
    route = place.router.fan_out("a/b")
    place.router.remove(subscription)
    assert not is_valid(route)
    assert place.publish(message("a/b")) == {"bob": [Copy(0, False, ())]}


def test_the_route_of_a_very_long_channel_is_good_for_one_message() -> None:
    place = Place("ada")
    channel = "x" * 1_025
    assert not place.router.fan_out(channel).is_valid
    place.subscribe("ada", channel)
    assert list(place.publish(message(channel))) == ["ada"]


def test_routes_are_forgotten_when_they_are_too_many() -> None:
    place = Place("ada")
    place.subscribe("ada", "+")
    first = place.router.fan_out("c0")
    for number in range(10_000):
        place.router.fan_out(f"c{number}")
    assert is_valid(first)
    place.router.fan_out("one too many")
    assert not is_valid(first)
    place.router.check_invariants()


@pytest.mark.parametrize(
    ("channel", "options", "has_runs"),
    [
        ("a", {}, True),
        ("a", {"qos": 2}, True),
        ("a", {"keeps_retained_flag": True}, True),
        ("a", {"identifier": 1}, True),
        ("a", {"no_local": True}, True),
        ("a", {"where": "n > 1"}, True),
        ("a", {"group": "g"}, True),
        ("kept", {}, True),
        ("$a", {}, False),
    ],
)
def test_what_travels_in_runs(channel: str, options: dict[str, object], has_runs: bool) -> None:
    place = Place("ada", kept=["kept"])
    session = place.sessions["ada"]
    session.attach(ConnectionPort(), V5, window=1, packet_limit=0, alias_limit=0)
    place.subscribe("ada", channel, **options)  # type: ignore[arg-type]
    way = PublisherFanOut(Entity("cyn"), place.router.fan_out(channel))
    assert way.has_runs is has_runs
    assert (place.router.fixed_selection(way) is None) is ("where" in options)


def test_a_change_of_subscriptions_is_seen_by_who_remembers_routes() -> None:
    place = Place("ada")
    place.router.fan_out("a")
    before = place.router.changes
    place.router.fan_out("a")
    assert place.router.changes == before
    place.subscribe("ada", "a")
    assert place.router.changes > before


class ExpectedMatch(NamedTuple):
    subscription: RouterSubscription
    where: str
    no_local: bool


CHANNELS: Final = ("a", "b", "a/a", "a/b", "a/", "/", "$x", "$x/a", "a/a/b")
PATTERNS: Final = (*CHANNELS, "#", "+", "+/+", "a/#", "a/+", "+/b", "$x/#", "$x/+", "/#", "a/+/b")
WHERES: Final = ("", "", "n > 2", "n < 4 AND s = 'x'", "s LIKE 'x%' OR n = 0", "n IS NULL")
USERS: Final = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 5).map(str), "s": st.sampled_from(["x", "xy", "z"])}
)
NAMES: Final = ("ada", "bob", "cyn")


class Subscribing(RuleBasedStateMachine):
    """Whatever is subscribed and published, the right receivers get the right copies."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Place(*NAMES)
        self.wishes: dict[tuple[str, str, str], ExpectedMatch] = {}
        self.identifiers = 0

    @rule(
        name=st.sampled_from(NAMES),
        pattern=st.sampled_from(PATTERNS),
        group=st.sampled_from(["", "", "g", "h"]),
        qos=st.integers(0, 2),
        no_local=st.booleans(),
        keeps=st.booleans(),
        where=st.sampled_from(WHERES),
    )
    def subscribe(
        self,
        *,
        name: str,
        pattern: str,
        group: str,
        qos: int,
        no_local: bool,
        keeps: bool,
        where: str,
    ) -> None:
        known = self.wishes.pop((name, group, pattern), None)
        if known is not None:
            self.place.router.remove(known.subscription)
        self.identifiers += 1
        subscription = self.place.subscribe(
            name,
            pattern,
            group=group,
            qos=qos,
            no_local=no_local and not group,
            keeps_retained_flag=keeps,
            identifier=self.identifiers,
            where=where,
        )
        self.wishes[name, group, pattern] = ExpectedMatch(
            subscription, where, no_local and not group
        )

    @precondition(lambda self: self.wishes)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.wishes)))
        self.place.router.remove(self.wishes.pop(key).subscription)

    @rule(name=st.sampled_from(NAMES))
    def come_or_go(self, name: str) -> None:
        # For groups only: it gets its copies either way, so that they can be counted.
        session = self.place.sessions[name]
        session.is_connected = not session.is_connected

    @rule(
        channel=st.sampled_from(CHANNELS),
        qos=st.integers(0, 2),
        is_retained=st.booleans(),
        publisher=st.sampled_from([*NAMES, ""]),
        user=USERS,
    )
    def publish(
        self, channel: str, qos: int, is_retained: bool, publisher: str, user: dict[str, str]
    ) -> None:
        sent = message(
            channel, qos, is_retained=is_retained, publisher=publisher, user=tuple(user.items())
        )
        got = self.place.publish(sent)
        wanting = [
            wish.subscription
            for wish in self.wishes.values()
            if filter_selects(wish.subscription.pattern, channel)
            and (not wish.where or parse(wish.where).matches(sent.event()))
            and not (wish.no_local and wish.subscription.receiver.name == publisher)
        ]
        for name in NAMES:
            self._check(name, sent, got.get(name, []), wanting)
        self._check_groups(got, wanting)

    def _check(
        self, name: str, sent: MqttMessage, got: list[Copy], wanting: list[RouterSubscription]
    ) -> None:
        """Of all that is not shared there is one copy, for all that wanted it."""
        own = [each for each in wanting if each.receiver.name == name]
        shared = {each.identifier: each for each in own if each.group}
        plain = [each for each in own if not each.group]
        expected: list[Copy] = []
        if plain:
            expected.append(
                Copy(
                    min(sent.qos, max(each.qos for each in plain)),
                    sent.is_retained and any(each.keeps_retained_flag for each in plain),
                    tuple(sorted(each.identifier for each in plain)),
                )
            )
        for copy in got:
            if copy.identifiers[0] in shared:
                each = shared[copy.identifiers[0]]
                keeps = sent.is_retained and each.keeps_retained_flag
                expected.append(Copy(min(sent.qos, each.qos), keeps, (each.identifier,)))
        sorted_got = [copy._replace(identifiers=tuple(sorted(copy.identifiers))) for copy in got]
        assert sorted(sorted_got) == sorted(expected)

    def _check_groups(self, got: dict[str, list[Copy]], wanting: list[RouterSubscription]) -> None:
        """Of each group one member has a copy, somebody who is there if there is one."""
        had = {copy.identifiers[0] for some in got.values() for copy in some}
        groups: dict[tuple[str, str], list[RouterSubscription]] = {}
        for each in wanting:
            if each.group:
                groups.setdefault((each.pattern, each.group), []).append(each)
        for members in groups.values():
            chosen = [each for each in members if each.identifier in had]
            assert len(chosen) == 1
            is_any_there = any(each.receiver.is_connected for each in members)
            assert chosen[0].receiver.is_connected or not is_any_there

    @invariant()
    def routes_are_fresh(self) -> None:
        self.place.router.check_invariants()
        assert self.place.router.size == len(self.wishes)
        assert self.place.router.predicates == sum(
            bool(each.where) for each in self.wishes.values()
        )


Subscribing.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSubscribing = Subscribing.TestCase


def test_a_message_may_pass_over_some_and_be_lifted_for_others() -> None:
    place = Place("ada", "bob")
    for name in ("ada", "bob"):
        place.subscribe(name, "a", qos=1)
    place.router.watched["a"] = True
    place.router.invalidate("a")
    route = place.router.fan_out("a")
    assert (route.is_watched, route.has_runs) == (True, False)
    special = MessageOverride()
    special.skipped[place.sessions["ada"]] = True
    special.adjust_grant = lambda grant: Grant(grant.importance + 1, 0, "", 0, 0, True, "")
    way = PublisherFanOut(Entity("cyn"), route)
    message = make_message("a", b"x", 1, False, "cyn", 1, Properties())
    assert place.router.publish(message, way, special) == 2
    (delivery,) = place.sessions["bob"].unacknowledged.values()
    assert delivery.importance == DEFAULT_GRANT.importance + 1
    assert not place.sessions["ada"].unacknowledged
    place.router.check_invariants()

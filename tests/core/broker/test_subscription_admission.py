"""Subscriptions at the door of a broker, with another node behind it that may be slow to answer."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant
from tests.core.broker.dialogue import Peer, Table
from tests.core.broker.world import World

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Measured
from accord.core.admission.filter_index.filters import Filter as Advertised
from accord.core.admission.options import AdmissionOptions, Mode
from accord.core.admission.reservation import SourcePath
from accord.core.admission.resources import MEMORY, link
from accord.core.broker.subscription_admission import (
    RETRY_US,
    SubscriptionAdmission,
    channels_of,
    is_exempt,
)
from accord.core.model.channels import filter_selects
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.predicates.predicate import parse

FAR = "far/+"
OPTIONS = AdmissionOptions(mode=Mode.ENFORCE, event_bytes=1_000)


class Gate(Table):
    """Node `here`, whose neighbour `there` carries what is published under `far/`."""

    def __init__(self, options: AdmissionOptions = OPTIONS, *, is_durable: bool = False) -> None:
        super().__init__(is_durable=is_durable)
        self.now_us = 0
        self.here = Admission("here", 1, options)
        self.there = Admission("there", 1, options)
        self.here.find_source_paths = lambda filter_, _: (
            (SourcePath(("here", "there"), 1),) if filter_selects(FAR, filter_.channel) else ()
        )
        for admission in (self.here, self.there):
            for name in ("near/a", "near/b", "far/a", "far/b"):
                self.advertise(admission, name, 10)
        self.admitting = SubscriptionAdmission(
            self.broker, self.here, lambda: self.now_us, lambda *_: Measured()
        )
        self.broker.admission = self.admitting

    @staticmethod
    def advertise(admission: Admission, channel: str, rate_hz: float) -> None:
        filter_ = Advertised(channel, parse("TRUE"))
        node = "there" if channel.startswith("far") else "here"
        if admission.name == node:
            admission.advertise("source", channel, filter_, rate_hz, 0)
        else:
            admission.advertise_remote(node, "source", channel, filter_, rate_hz)

    def talk(self) -> None:
        """Let the two nodes hear each other, and clients what came of it."""
        while self.here.sends or self.there.sends:
            for one, other in ((self.here, self.there), (self.there, self.here)):
                for _, message in [*one.sends]:
                    other.receive(one.name, message, self.now_us)
                one.sends.clear()
        self.settle()

    def settle(self) -> None:
        self.admitting.notify_decisions()
        self.commit()

    def pass_us(self, us: int) -> None:
        self.now_us += us
        for one in (self.here, self.there):
            one.advance(self.now_us)
        self.admitting.advance()
        self.talk()

    def promised(self) -> int:
        """How many subscriptions hold something."""
        state = self.here.reservations.state().get(MEMORY)
        return 0 if state is None else state.reservations


def suback(peer: Peer, *patterns: str, packet_id: int = 1) -> list[Suback]:
    peer.send(Subscribe(packet_id, tuple(TopicFilter(each, 0) for each in patterns)))
    return [each for each in peer.hear() if isinstance(each, Suback)]


def test_what_is_decided_here_is_answered_at_once() -> None:
    table = Gate()
    table.here.set_capacity(MEMORY, 20_000)
    ann = table.join("ann")
    assert suback(ann, "near/a") == [Suback(1, (0,))]
    (refused,) = suback(ann, "near/b", packet_id=2)
    assert refused.reasons == (Reason.QUOTA_EXCEEDED,)
    assert dict(refused.properties.user) == {
        "node": "here",
        "resource": "memory",
        "asked": "14096",
        "free": "5904",
    }
    assert refused.properties.reason_string == (
        "node here lacks memory: 14.1 KB asked, 5.904 KB free"
    )
    assert table.promised() == 1


def test_of_several_filters_each_has_its_answer() -> None:
    table = Gate()
    table.here.set_capacity(MEMORY, 20_000)
    (answer,) = suback(table.join("ann"), "near/a", "near/b", "$SYS/x", "near/c")
    assert answer.reasons == (0, Reason.QUOTA_EXCEEDED, 0, 0)
    assert answer.properties.user[0] == ("filter", "near/b")


def test_an_old_client_hears_no_more_than_no() -> None:
    table = Gate()
    table.here.set_capacity(MEMORY, 5_000)
    assert suback(table.join("ann", V311), "near/a") == [Suback(1, (0x80,))]


def test_a_client_that_wants_no_explanations_gets_none() -> None:
    table = Gate()
    table.here.set_capacity(MEMORY, 5_000)
    ann = table.join("ann", properties=Properties(request_problem_information=False))
    assert suback(ann, "near/a") == [Suback(1, (Reason.QUOTA_EXCEEDED,))]


def test_the_answer_waits_for_other_nodes() -> None:
    table = Gate()
    ann = table.join("ann")
    assert suback(ann, "near/a", "far/a") == []
    assert "near/a" not in table.session("ann").subscriptions
    table.talk()
    ann.expect(Suback(1, (0, 0)))
    assert table.there.reservations.state()[link("here")].reserved == 80_000
    bob = table.join("bob")
    bob.publish("near/a", b"x")
    ann.expect(Publish("near/a", b"x"))


def test_what_is_retained_comes_after_the_answer() -> None:
    table = Gate()
    table.join("bob").publish("far/a", b"kept", retain=True)
    ann = table.join("ann")
    suback(ann, "far/a")
    table.talk()
    ann.expect(Suback(1, (0,)), Publish("far/a", b"kept", retain=True))


def test_another_node_refuses() -> None:
    table = Gate()
    table.there.set_capacity(link("here"), 50_000)
    ann = table.join("ann")
    suback(ann, "far/a")
    table.talk()
    (answer,) = ann.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons == (Reason.QUOTA_EXCEEDED,)
    assert ("of", "link here") in answer.properties.user
    assert table.promised() == 0
    assert "far/a" not in table.session("ann").subscriptions


def test_a_node_that_does_not_answer_refuses() -> None:
    table = Gate()
    ann = table.join("ann")
    suback(ann, "far/a")
    for _ in range(100):
        table.now_us += 100_000
        table.here.advance(table.now_us)
        table.here.sends.clear()
        table.settle()
    (answer,) = ann.hear()
    assert isinstance(answer, Suback)
    assert answer.properties.reason_string == "node there does not answer"
    assert table.promised() == 0


def test_shares_are_said() -> None:
    table = Gate()
    table.there.set_capacity(link("here"), 50_000)
    book = parse_policy_set('[[policies]]\nname = "x"\nguarantee = 0.5\n')
    table.broker.switch(book, Policies(book))
    ann = table.join("ann")
    suback(ann, "far/a")
    table.talk()
    ann.expect(Suback(1, (0,), Properties(user=(("admitted", "0.5"),))))


def test_unsubscribing_gives_back_also_what_is_not_decided() -> None:
    table = Gate()
    ann = table.join("ann")
    suback(ann, "far/a")
    ann.send(Unsubscribe(2, ("far/a",)))
    first, second = ann.hear()
    assert isinstance(first, Suback)
    assert first.reasons == (Reason.UNSPECIFIED_ERROR,)
    assert isinstance(second, Unsuback)
    table.talk()
    ann.expect()
    assert table.promised() == 0
    assert not list(table.there.reservations)


def test_the_last_of_several_wishes_counts() -> None:
    table = Gate()
    ann = table.join("ann")
    suback(ann, "far/a")
    (first,) = suback(ann, "far/a", packet_id=2)
    assert (first.packet_id, first.reasons) == (1, (Reason.UNSPECIFIED_ERROR,))
    table.talk()
    ann.expect(Suback(2, (0,)))
    assert table.promised() == 1


@pytest.mark.parametrize("stays", [False, True])
def test_a_client_that_goes_meanwhile_holds_nothing(stays: bool) -> None:
    table = Gate(is_durable=True)
    ann = table.join("ann", expiry_s=60 if stays else 0)
    suback(ann, "far/a")
    ann.drop()
    table.talk()
    assert table.promised() == 0
    assert ("ann" in table.broker.sessions) is stays
    table.here.check_invariants()


def test_a_wish_that_is_refused_leaves_the_subscription_before_it() -> None:
    table = Gate()
    ann = table.join("ann")
    suback(ann, "far/a")
    table.talk()
    ann.hear()
    table.there.set_capacity(link("here"), 50_000)
    where = Properties(user=(("where", "level > 3"),))
    ann.send(Subscribe(2, (TopicFilter("far/a", 0),), where))
    table.talk()
    (answer,) = ann.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons == (Reason.QUOTA_EXCEEDED,)
    assert table.session("ann").subscriptions["far/a"].where == ""
    assert table.promised() == 1


def test_durable_sessions_hold_what_they_have_until_they_end() -> None:
    table = Gate(is_durable=True)
    ann = table.join("ann", expiry_s=60)
    suback(ann, "near/a")
    table.commit()
    ann.send(Disconnect())
    assert table.promised() == 1
    table.wait(61_000)
    assert table.promised() == 0


def test_groups_hold_once() -> None:
    table = Gate()
    ann, bob = table.join("ann"), table.join("bob")
    suback(ann, "$share/team/far/a")
    suback(bob, "$share/team/far/a")
    table.talk()
    ann.expect(Suback(1, (0,)))
    bob.expect(Suback(1, (0,)))
    assert table.promised() == 1
    ann.send(Disconnect())
    assert table.promised() == 1
    bob.send(Unsubscribe(2, ("$share/team/far/a",)))
    assert table.promised() == 0


@pytest.mark.parametrize("leaves", [False, True])
def test_a_group_with_another_condition_is_given_back_before_it_is_decided(leaves: bool) -> None:
    table = Gate()
    ann = table.join("ann")
    pattern = "$share/team/far/a"
    for packet_id, where in ((1, "level > 3"), (2, "level > 4")):
        wish = Properties(user=(("where", where),))
        ann.send(Subscribe(packet_id, (TopicFilter(pattern, 0),), wish))
        if packet_id == 1:
            table.talk()
    assert table.promised() == 2, "the one it has, and the one it asks for"
    if leaves:
        ann.drop()
    else:
        ann.send(Unsubscribe(3, (pattern,)))
    table.talk()
    assert table.promised() == 0
    assert not list(table.there.reservations)


def test_what_is_withdrawn_just_before_it_is_given_back_is_forgotten() -> None:
    table = Gate()
    ann = table.join("ann")
    suback(ann, "far/a")
    table.talk()
    table.there.set_capacity(link("here"), 1)
    for each in (table.here, table.there):
        Gate.advertise(each, "far/a", 20)
    while not table.here.decisions:
        table.now_us += 100_000
        for one, other in ((table.here, table.there), (table.there, table.here)):
            one.advance(table.now_us)
            for _, message in one.sends:
                other.receive(one.name, message, table.now_us)
            one.sends.clear()
    ann.send(Unsubscribe(2, ("far/a",)))
    table.settle()
    table.now_us += RETRY_US
    table.admitting.advance()
    assert not table.admitting._withdrawn
    assert table.promised() == 0


def test_what_is_withdrawn_is_told_and_asked_for_again() -> None:
    table = Gate()
    ann = table.join("ann").subscribe("$accord/advice", qos=1)
    suback(ann, "far/a", packet_id=9)
    table.talk()
    ann.hear()
    table.there.set_capacity(link("here"), 50_000)
    table.advertise(table.here, "far/a", 20)
    table.advertise(table.there, "far/a", 20)
    for _ in range(40):
        table.pass_us(100_000)
    (told,) = ann.hear()
    assert isinstance(told, Publish)
    advice = json.loads(told.payload)
    assert (advice["filter"], advice["state"], advice["node"]) == ("far/a", "withdrawn", "there")
    ann.send(Puback(told.packet_id))
    table.there.set_capacity(link("here"), None)
    for _ in range(RETRY_US // 100_000 + 40):
        table.pass_us(100_000)
    (told,) = ann.hear()
    assert isinstance(told, Publish)
    assert json.loads(told.payload)["state"] == "admitted"
    assert "far/a" in table.session("ann").subscriptions


def test_in_report_nobody_waits_and_nothing_is_refused() -> None:
    table = Gate(AdmissionOptions(mode=Mode.REPORT, event_bytes=1_000))
    table.there.set_capacity(link("here"), 50_000)
    table.here.set_capacity(MEMORY, 15_000)
    ann = table.join("ann")
    assert suback(ann, "far/a", "near/a") == [Suback(1, (0, 0))]
    table.talk()
    assert [each.filter for each in table.admitting.recent_refusals] == ["near/a", "far/a"]
    assert not any(each.is_binding for each in table.admitting.recent_refusals)
    assert table.admitting.refused_counts == {"memory": 1, "bandwidth": 1}
    ann.send(Unsubscribe(2, ("far/a", "near/a")))
    assert table.promised() == 0


def test_refusals_are_in_the_ledger() -> None:
    table = Gate()
    table.here.set_capacity(MEMORY, 5_000)
    suback(table.join("ann"), "near/a")
    batch = table.hub.ledger.take()
    assert batch is not None
    details = [row[12] for row in batch.rows if row[5] == "ann"]
    assert details == ["subscription: node here lacks memory: 14.1 KB asked, 5 KB free"]


def test_publishers_that_advertise_nothing_have_runs() -> None:
    table = Gate()
    ann, bob = table.join("ann").subscribe("near/a"), table.join("bob", V5)
    bob.publish("near/a", b"1")

    def has_runs() -> list[bool]:
        publisher = bob.connection.publisher
        assert publisher is not None
        return [way.has_runs for way in publisher._fan_outs.values()]

    assert has_runs() == [True]
    session = table.session("bob")
    table.admitting.advertisements.advertise(session, "x", "near/a", "", 2)
    assert has_runs() == [False]
    for number in range(2, 6):
        bob.publish("near/a", b"%d" % number)
    assert [each.payload for each in ann.hear() if isinstance(each, Publish)] == [b"1", b"2", b"3"]
    assert table.admitting.advertisements.unadvertise(session, "x")
    assert has_runs() == [True]
    bob.publish("near/a", b"6")
    ann.expect(Publish("near/a", b"6"))


def test_which_patterns_need_nothing() -> None:
    assert is_exempt("$SYS/#")
    assert is_exempt("$share/team/$SYS/#")
    assert not is_exempt("$share/team/a/b")
    assert channels_of("$share/team/a/b") == "a/b"
    assert NO_PROPERTIES.user == ()


class AdmittedWorld(World):
    """Clients that do anything at any time, all of whose subscriptions are admitted at once."""

    def __init__(self) -> None:
        super().__init__()
        admission = Admission("here", 1, OPTIONS)
        broker = self.table.broker
        broker.admission = SubscriptionAdmission(
            broker, admission, lambda: 0, lambda *_: Measured()
        )
        broker.admission.restore()

    @invariant()
    def promises_are_those_of_sessions(self) -> None:
        broker = self.table.broker
        assert broker.admission is not None
        admission = broker.admission.admission
        admission.check_invariants()
        held = {
            (session.name, pattern)
            for session in broker.sessions.values()
            for pattern in session.subscriptions
        }
        assert set(admission.subscriptions.all()) == held


TestAdmittedWorld = AdmittedWorld.TestCase
TestAdmittedWorld.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_clients_do_while_others_are_asked_nothing_leaks(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    table = Gate(is_durable=True)
    table.there.set_capacity(link("here"), 200_000)
    peers: dict[str, Peer] = {}
    patterns = ("far/a", "far/b", "far/+", "near/a", "$share/g/far/a", "$share/g/near/b", "$SYS/x")
    packet_ids: dict[str, int] = {}
    for _ in range(60):
        name = random.choice("abc")
        peer = peers.get(name)
        packet_ids[name] = packet_ids.get(name, 0) + 1
        act = random.choice(("subscribe", "subscribe", "unsubscribe", "leave", "talk", "time"))
        if act == "talk":
            table.talk()
        elif act == "time":
            table.pass_us(random.choice((100_000, 1_000_000)))
            table.wait(random.choice((1, 2_000)))
        elif peer is None or peer.is_closed:
            stays = random.random() < 0.5
            is_known = name in table.broker.sessions
            peers[name] = table.connect(name, clean=not is_known, expiry_s=3 if stays else 0)
            table.commit()
        elif act == "subscribe":
            chosen = random.sample(patterns, random.randint(1, 3))
            where = random.choice((NO_PROPERTIES, Properties(user=(("where", "level > 3"),))))
            filters = tuple(TopicFilter(each, 0) for each in chosen)
            peer.send(Subscribe(packet_ids[name], filters, where))
        elif act == "unsubscribe":
            peer.send(Unsubscribe(packet_ids[name], (random.choice(patterns),)))
        else:
            peer.drop()
        table.here.check_invariants()
        table.check_invariants()
    for _ in range(200):
        table.pass_us(100_000)
    held = {
        (name, pattern)
        for name, session in table.broker.sessions.items()
        for pattern in session.subscriptions
        if not is_exempt(pattern)
    }
    groups = {pattern for _, pattern in held if pattern.startswith("$share/")}
    own = {each for each in held if each[1] not in groups}
    known = set(table.here.subscriptions.all())
    assert {each for each in known if not each[0].endswith("\0")} <= own
    assert {each[0].rstrip("\0") for each in known if each[0].endswith("\0")} <= groups
    for peer in peers.values():
        if not peer.is_closed:
            peer.drop()
    table.wait(4_000)
    for _ in range(10):
        table.pass_us(100_000)
    assert not table.broker.sessions
    assert table.promised() == 0
    assert not list(table.here.reservations)
    assert not list(table.there.reservations)

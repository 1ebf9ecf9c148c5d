"""What clients of a broker say and hear of quality: expectations, profiles, advice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.core.broker.dialogue import Peer, Table
from tests.fake_node import FakeNode
from tests.operations import asking

from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.message_shaping import ShapingOrder
from accord.core.broker.quality_status import quality_status, quality_totals
from accord.core.broker.session_recovery import restore, snapshot
from accord.core.monitoring.ledger import OUTCOMES
from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import (
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
    Unsubscribe,
)
from accord.core.mqtt.properties import Properties
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.quality.mechanisms import FILTERED
from accord.core.quality.messages import ApplyMechanism, MechanismStep, WithdrawMechanism
from accord.core.quality.meters import UNORDERED
from accord.core.quality.negotiation import Negotiation
from accord.core.router.rights import (
    ADVICE,
    CAPABILITIES,
    EVERYTHING,
    EXPECTATIONS,
    PROPERTIES,
    Rights,
)
from accord.operations.ports import NodePorts
from accord.testing import MemoryQuality

RATE = {"rate": {"range": [1, 50], "current": 2}}


class QualityTable(Table):
    """A table whose broker negotiates."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.quality = ClientNegotiation(
            self.broker, Negotiation("here"), lambda: self.now_ms * 1_000
        )
        self.broker.quality = self.quality

    def settle(self) -> None:
        """Do all that is due."""
        while self.quality.next_due_us() <= self.now_ms * 1_000:
            self.quality.advance()
        self.turn()
        self.quality.check_invariants()

    def ask(
        self, peer: Peer, topic: str, rights: Rights | None = None, **request: object
    ) -> dict[str, Any]:
        """As if the peer had published it."""
        node = NodePorts(
            view=FakeNode(),
            broker=self.broker,
            quality=MemoryQuality(self.quality, "here"),
            now_ms=lambda: self.now_ms,
        )
        client = peer.connection.client_id
        found = asking.ask(node, topic, request, rights=rights or EVERYTHING, client=client)
        self.settle()
        return found

    def declare(self, peer: Peer, channel: str = "lab/t", current: float = 2, **more: Any) -> None:
        capabilities = {"rate": {"range": [1, 50], "current": current}, **more}
        said = self.ask(
            peer, CAPABILITIES, do="register", channel=channel, capabilities=capabilities
        )
        assert said == {"ok": True}


def told(peer: Peer, topic: str) -> list[dict[str, Any]]:
    packets = peer.hear()
    return [json.loads(p.payload) for p in packets if isinstance(p, Publish) and p.topic == topic]


def expect(peer: Peer, pattern: str, *wishes: dict[str, Any]) -> Peer:
    user = tuple(("expect", json.dumps(each)) for each in wishes)
    return peer.subscribe(pattern, qos=1, properties=Properties(user=user))


def states(peer: Peer) -> list[tuple[str, str]]:
    return [(each["expectation"], each["state"]) for each in told(peer, EXPECTATIONS)]


def test_states_go_to_whom_they_concern_only() -> None:
    table = QualityTable()
    ada = table.join("ada").subscribe(EXPECTATIONS, qos=1)
    bob = table.join("bob").subscribe(EXPECTATIONS, qos=1)
    sensor = table.join("sensor").subscribe(ADVICE, qos=1)
    expect(ada, "lab/+", {"rate": [5, 10]})
    (state,) = told(ada, EXPECTATIONS)
    assert state == {
        "expectation": "ada/lab/+#1",
        "channel": "lab/+",
        "state": "unsatisfied",
        "reasons": [{"property": "rate", "now": None}],
    }
    table.declare(sensor)
    (advice,) = told(sensor, ADVICE)
    assert (advice["kind"], advice["property"], advice["release"]) == ("advice", "rate", False)
    assert states(ada) == [("ada/lab/+#1", "satisfiable")]
    table.ask(sensor, CAPABILITIES, do="update", channel="lab/t", current={"rate": 7})
    assert states(ada) == [("ada/lab/+#1", "satisfied")]
    assert bob.hear() == []


def test_nothing_is_expected_of_the_system() -> None:
    table = QualityTable()
    ada = table.join("ada")
    properties = Properties(user=(("expect", '{"rate": 5}'),))
    ada.subscribe(TopicFilter("lab/+", 1), TopicFilter(EXPECTATIONS, 1), properties=properties)
    assert states(ada) == [("ada/lab/+#1", "unsatisfied")]
    assert [each["channel"] for each in listed(table, ada)] == ["lab/+"]


def test_who_subscribes_to_states_hears_how_they_stand() -> None:
    table = QualityTable()
    ada = table.join("ada")
    expect(ada, "lab/+", {"rate": [5, 10], "id": "a"}, {"trust": "high", "id": "b", "utility": 2})
    assert told(ada, EXPECTATIONS) == []
    ada.subscribe(EXPECTATIONS, qos=1)
    assert states(ada) == [("a", "unsatisfied"), ("b", "unsatisfied")]
    ada.send(Subscribe(9, (TopicFilter(EXPECTATIONS, 1, retain_handling=2),)))
    assert states(ada) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expect: expected JSON"),
        ("[]", "expect: expected an object"),
        ("{}", "expected at least one property"),
        ('{"rate": [1]}', "expect.rate: expected [lower, upper]"),
        ('{"rate": [9, 5]}', "expected lower before upper"),
        ('{"rate": [true, 5]}', "expect.rate[0]: expected a number or a level"),
        ('{"rate": -1}', "expected a number within 0..inf"),
        ('{"colour": "red"}', "no such property"),
        ('{"trust": "some"}', "expected one of none, low, medium, high"),
        ('{"rate": 5, "utility": "much"}', "expect.utility: expected a number"),
        ('{"rate": 5, "utility": 0}', "utility: expected more than 0"),
        ('{"rate": 5, "publishers": 1.5}', "expect.publishers: expected an integer"),
        ('{"rate": 5, "publishers": 99}', "publishers: expected 1 to 16"),
        ('{"rate": 5, "id": 5}', "expect.id: expected at most 200 printable"),
        ('{"rate": 5, "id": "' + "x" * 300 + '"}', "expect.id: expected at most 200"),
        ('{"rate": ' + "[" * 10_000, "expect: JSON is nested"),
        ('{"rate": 1' + "0" * 400 + "}", "expect"),
    ],
)
def test_an_expectation_that_can_not_be_accepted(text: str, words: str) -> None:
    table = QualityTable()
    ada = table.join("ada")
    ada.send(Subscribe(1, (TopicFilter("a", 1),), Properties(user=(("expect", text),))))
    (suback,) = ada.hear()
    assert isinstance(suback, Suback)
    assert suback.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert words in (suback.properties.reason_string or "")
    assert table.session("ada").subscriptions == {}
    table.settle()


def test_an_id_is_one_expectation() -> None:
    table = QualityTable()
    ada = table.join("ada")
    expect(ada, "a", {"rate": 5, "id": "x"})
    for pattern, ids in (("b", ("x",)), ("c", ("y", "y"))):
        user = tuple(("expect", json.dumps({"rate": 5, "id": each})) for each in ids)
        ada.send(Subscribe(8, (TopicFilter(pattern, 1),), Properties(user=user)))
        (suback,) = ada.hear()
        assert isinstance(suback, Suback)
        assert "is another expectation's" in (suback.properties.reason_string or "")
    expect(ada, "a", {"rate": 6, "id": "x"})  # the subscription's own again
    assert table.ask(ada, EXPECTATIONS, do="list")["expectations"][0]["expect"]["rate"] == [6, None]
    bob = table.join("bob")
    expect(bob, "a", {"rate": 5, "id": "x"})  # another client's is another


def test_another_subscription_has_other_expectations() -> None:
    table = QualityTable()
    ada = table.join("ada")
    expect(ada, "a", {"rate": 5, "id": "x"}, {"rate": 3, "id": "y"})
    assert len(table.quality.negotiation.expectations) == 2
    expect(ada, "a", {"rate": 7, "id": "z"})
    assert [each["expectation"] for each in listed(table, ada)] == ["z"]
    ada.subscribe("a")
    assert listed(table, ada) == []
    expect(ada, "a", {"rate": 7, "id": "z"})
    ada.send(Unsubscribe(1, ("a",)))
    table.settle()
    assert len(table.quality.negotiation.expectations) == 0
    assert table.quality.clients == {}


def listed(table: QualityTable, peer: Peer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.ask(peer, EXPECTATIONS, do="list")["expectations"]
    return found


def test_who_is_away_expects_and_offers_nothing() -> None:
    table = QualityTable()
    ada = table.join("ada", expiry_s=100).subscribe(EXPECTATIONS, qos=1)
    sensor = table.join("sensor", expiry_s=100)
    expect(ada, "lab/t", {"rate": 5, "id": "x"}, {"rate": 6, "id": "y"})
    table.declare(sensor, current=9)
    assert table.ask(ada, EXPECTATIONS, do="suspend", id="y")["state"] == "suspended"
    ada.hear()
    sensor.drop()
    table.settle()
    assert states(ada) == [("x", "unsatisfied")]
    ada.drop()
    table.settle()
    assert quality_totals(table.quality).states["suspended"] == 2
    sensor = table.join("sensor", clean=False, expiry_s=100, is_present=True)
    table.settle()
    ada = table.join("ada", clean=False, expiry_s=100, is_present=True)
    table.settle()
    assert states(ada)[-1] == ("x", "satisfied")
    assert table.ask(ada, EXPECTATIONS, do="resume", id="y")["ok"]
    assert states(ada) == [("y", "satisfied")]
    sensor.send(Disconnect(0, Properties(session_expiry_s=0)))
    ada.send(Disconnect(0, Properties(session_expiry_s=0)))
    table.settle()
    assert table.quality.clients == {}
    assert (
        len(table.quality.negotiation.expectations) == len(table.quality.negotiation.profiles) == 0
    )


def test_a_session_that_ends_at_once_takes_everything_along() -> None:
    table = QualityTable()
    ada = table.join("ada")
    expect(ada, "lab/t", {"rate": 5})
    table.declare(ada, "lab/u")
    table.declare(ada, "lab/v")
    ada.drop()
    again = table.join("ada")  # before it is settled that the one before has gone
    expect(again, "lab/t", {"rate": 5})
    table.declare(again, "lab/v")
    table.settle()
    assert [each["expectation"] for each in listed(table, again)] == ["ada/lab/t#1"]
    assert [each.profile.channel for each in table.quality.negotiation.profiles] == ["lab/v"]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_expectations_outlive_a_crash_with_their_session(is_compacted: bool) -> None:
    table = QualityTable(is_durable=True)
    ada = table.join("ada", expiry_s=1_000)
    expect(ada, "lab/+", {"rate": [5, None], "utility": 3, "id": "x"})
    assert table.ask(ada, EXPECTATIONS, do="register", channel="lab/+", expect={"trust": "low"})
    assert table.ask(ada, EXPECTATIONS, do="update", id="x", expect={"rate": 9})["ok"]
    assert table.ask(ada, EXPECTATIONS, do="suspend", id="x")["ok"]
    table.commit()
    records = snapshot(table.broker) if is_compacted else table.log
    after = QualityTable(is_durable=True)
    restore(after.broker, records, now_ms=after.now_ms)
    after.settle()
    back = after.join("ada", clean=False, expiry_s=1_000, is_present=True)
    after.settle()
    found = {each["expectation"]: (each["state"], each["expect"]) for each in listed(after, back)}
    assert found == {
        "x": ("suspended", {"rate": [9, None], "utility": 1, "id": "x"}),
        "ada/lab/+#2": (
            "unsatisfied",
            {"trust": ["low", None], "utility": 1, "id": "ada/lab/+#2"},
        ),
    }


def test_requests_that_can_not_be_met() -> None:
    table = QualityTable()
    ada = table.join("ada").subscribe("a", qos=1)
    narrow = Rights(publish=("mine/#",), subscribe=("#",))
    for topic, request, place, words in (
        (EXPECTATIONS, {}, "do", "expected one of register, update, suspend"),
        (EXPECTATIONS, {"do": "dance"}, "do", "expected one of register"),
        (EXPECTATIONS, {"do": "list", "id": 3}, "request", "unknown field id"),
        (EXPECTATIONS, {"do": "register", "channel": "b", "expect": {}}, "channel", "you have"),
        (EXPECTATIONS, {"do": "register", "channel": "a", "expect": {}}, "expect", "at least one"),
        (EXPECTATIONS, {"do": "register", "channel": "a", "expect": []}, "expect", "at least one"),
        (EXPECTATIONS, {"do": "register", "channel": 3, "expect": []}, "channel", "expected `str`"),
        (EXPECTATIONS, {"do": "suspend", "id": "q"}, "expectation 'q'", "none with this id"),
        (CAPABILITIES, {"do": "usage", "channel": "a"}, "channel", "you have no profile"),
        (CAPABILITIES, {"do": "register", "channel": "a", "capabilities": RATE}, "channel", "may"),
        (CAPABILITIES, {"do": "register", "channel": "$a", "capabilities": RATE}, "channel", "may"),
        (CAPABILITIES, {"do": "register", "channel": "mine/#", "capabilities": RATE}, "", ""),
        (CAPABILITIES, {"do": "register", "channel": "mine/a", "capabilities": {}}, "", "1 to 32"),
        (PROPERTIES, {"do": "define", "text": "name = x"}, "", "you may not use properties.define"),
    ):
        said = table.ask(ada, topic, narrow, **request)
        assert said["ok"] is False, request
        assert place in said.get("place", "")
        assert words.replace("`", "") in said["detail"]
    assert table.quality.clients == {}


@pytest.mark.parametrize(
    ("capabilities", "place"),
    [
        ({"rate": 5}, "capabilities.rate"),
        ({"rate": {"range": 5}}, "capabilities.rate.range"),
        ({"rate": {"range": [1, 5]}}, "capabilities.rate.current"),
        ({"rate": {"range": [1, 5], "current": 9}}, "profile of 'ada', rate"),
        ({"latency": {"range": [1, 5], "current": 3}}, "profile of 'ada', latency"),
        ({"rate": {"range": [1, 5], "current": 3, "cost": "x"}}, "capabilities.rate.cost"),
        ({"rate": {"range": [1, 5], "current": 3, "cost": [1]}}, "capabilities.rate.cost[0]"),
        ({"rate": {"range": [1, 5], "current": 3, "price": 1}}, "capabilities.rate"),
    ],
)
def test_profiles_that_can_not_be_accepted(capabilities: dict[str, Any], place: str) -> None:
    table = QualityTable()
    ada = table.join("ada")
    said = table.ask(ada, CAPABILITIES, do="register", channel="a", capabilities=capabilities)
    assert (said["ok"], said["place"]) == (False, place)
    table.settle()
    assert table.quality.clients == {}


def test_properties_can_be_defined_and_used() -> None:
    table = QualityTable()
    ada = table.join("ada").subscribe("a", qos=1)
    text = "name = colour\nlevels = grey < few < full\nbetter = higher\n"
    assert table.ask(ada, PROPERTIES, do="define", text=text)["properties"] == ["colour"]
    named = [each["name"] for each in table.ask(ada, PROPERTIES, do="list")["properties"]]
    assert named[-1] == "colour"
    assert table.ask(ada, EXPECTATIONS, do="register", channel="a", expect={"colour": "few"})["ok"]
    changed = f"name = new\nrange = 0..1\nbetter = higher\n{text.replace('higher', 'lower')}"
    other = table.ask(ada, PROPERTIES, do="define", text=changed)
    assert "is in use" in other["detail"]
    assert "new" not in table.quality.negotiation.registry, "all of a text, or nothing"
    many = "".join(f"name = p{n}\nrange = 0..1\nbetter = lower\n" for n in range(995))
    other = table.ask(ada, PROPERTIES, do="define", text=many)
    assert "1000 are accepted" in other["detail"]


def test_profiles_are_listed_changed_and_taken_back() -> None:
    table = QualityTable()
    ada = table.join("ada")
    couplings = [{"of": "rate", "on": "confidence", "per_unit": -0.5}]
    cost = [[1, 0], [50, 9]]
    rate = {"range": [1, 50], "current": 2, "cost": cost}
    confidence = {"range": [50, 100], "current": 80, "cost": {"base": 1, "slope": 0.5}}
    said = table.ask(
        ada, CAPABILITIES, do="register", channel="a", couplings=couplings, source="program",
        capabilities={"rate": rate, "confidence": confidence},
    )  # fmt: skip
    assert said["ok"]
    changed = {"rate": {**rate, "range": [1, 60]}}
    table.ask(
        ada, CAPABILITIES, do="update", channel="a", capabilities=changed, current={"rate": 55}
    )
    (profile,) = table.ask(ada, CAPABILITIES, do="list")["profiles"]
    assert profile == {
        "channel": "a",
        "capabilities": {
            "rate": {"range": [1, 60], "current": 55, "cost": cost},
            "confidence": confidence,
        },
        "couplings": couplings,
        "source": "program",
    }
    assert table.ask(ada, CAPABILITIES, do="usage", channel="a")["expectations"] == 0
    assert not table.ask(ada, CAPABILITIES, do="update", channel="a", current={"trust": 1})["ok"]
    assert table.ask(ada, CAPABILITIES, do="revoke", channel="a") == {"ok": True}
    assert table.ask(ada, CAPABILITIES, do="list")["profiles"] == []


def test_only_channels_with_profiles_are_watched() -> None:
    table = QualityTable()
    sensor, ada = table.join("sensor"), table.join("ada").subscribe("lab/+")
    table.declare(sensor)
    router = table.broker.router
    assert not router.fan_out("lab/t").has_runs
    assert router.fan_out("lab/u").has_runs
    for channel in ("lab/t", "lab/u"):
        sensor.publish(channel, b"x")
        assert [each.topic for each in ada.hear() if isinstance(each, Publish)] == [channel]
    sensor.drop()
    table.settle()
    assert router.fan_out("lab/t").has_runs
    router.check_invariants()


def measure(table: QualityTable) -> None:
    for _ in table.quality.monitor.measure():
        pass
    table.settle()


def test_a_rate_is_what_it_is_whatever_is_declared() -> None:
    table = QualityTable()
    sensor = table.join("sensor").subscribe(ADVICE, qos=1)
    ada = table.join("ada").subscribe(EXPECTATIONS, qos=1)
    expect(ada, "lab/t", {"rate": [5, 10], "id": "x"})
    table.declare(sensor, current=8)
    assert states(ada)[-1] == ("x", "satisfied")
    for _ in range(10):
        sensor.publish("lab/t", b"x")
        table.wait(1_000)
        measure(table)
    assert states(ada)[-1] == ("x", "satisfiable")
    assert table.quality.negotiation.profiles.find("sensor", "lab/t").offers["rate"].current == 1
    advised = [each for each in told(sensor, ADVICE) if each["kind"] == "advice"]
    assert advised
    table.ask(sensor, CAPABILITIES, do="update", channel="lab/t", current={"rate": 8})
    for _ in range(40):
        sensor.publish("lab/t", b"x")
        table.wait(125)
    measure(table)
    assert states(ada)[-1] == ("x", "satisfied")


def test_who_declares_something_else_again_and_again_is_measured_all_the_same() -> None:
    table = QualityTable()
    sensor = table.join("sensor")
    confidence = {"range": [0, 100], "current": 1}
    table.declare(sensor, current=8, confidence=confidence)
    for number in range(10):
        sensor.publish("lab/t", b"x")
        table.wait(1_000)
        table.ask(
            sensor, CAPABILITIES, do="update", channel="lab/t", current={"confidence": number}
        )
        measure(table)
    offers = table.quality.negotiation.profiles.find("sensor", "lab/t").offers
    assert (offers["rate"].current, offers["confidence"].current) == (1, 9)


def test_what_is_done_is_done_to_the_events_of_who_publishes() -> None:
    table = QualityTable()
    agent = table.join("agent").subscribe(ADVICE, qos=1)
    table.join("sensor")
    rate = {"rate": {"range": [1, 50], "current": 2}}
    said = table.ask(
        agent, CAPABILITIES, do="register", channel="lab/t", capabilities=rate, source="sensor"
    )
    assert said == {"ok": True}
    acts = table.quality.monitor.mechanisms
    table.quality.handle_notices(
        [ApplyMechanism(7, MechanismStep.RAISE_IMPORTANCE, "agent", "lab/t", "latency", 1.0)]
    )
    assert list(acts.adjustments) == [("lab/t", "sensor")]
    table.quality.handle_notices([WithdrawMechanism(7)])
    assert not acts.adjustments


def test_an_order_is_what_the_channel_gives_now() -> None:
    table = QualityTable()
    sensor = table.join("sensor")
    ada = table.join("ada").subscribe(EXPECTATIONS, qos=1)
    expect(ada, "lab/t", {"order": "publisher", "id": "x"})
    table.declare(sensor)
    assert states(ada)[-1] == ("x", "satisfied")
    table.quality.monitor.order_of = lambda _: UNORDERED
    measure(table)
    assert states(ada)[-1] == ("x", "unsatisfied")


def test_latency_and_reliability_are_measured() -> None:
    table = QualityTable()
    sensor = table.join("sensor")
    ada = table.join("ada").subscribe(EXPECTATIONS, qos=1)
    expect(ada, "lab/t", {"latency": 50, "reliability": 99, "order": "publisher", "id": "x"})
    table.declare(sensor)
    assert states(ada)[-1] == ("x", "satisfied")
    ada.is_slow = True
    sensor.publish("lab/t", b"x", qos=1)
    table.wait(400)
    ada.hears(b"".join(ada.connection.take(10_000)))
    measure(table)
    ada.hears(b"".join(ada.connection.take(10_000)))
    found = {each["expectation"]: each for each in told(ada, EXPECTATIONS)}["x"]
    assert found["state"] == "satisfiable"
    assert found["reasons"] == [{"property": "latency", "now": 400}]
    assert list(
        table.quality.monitor.mechanisms.adjustments["lab/t", "sensor"].raised.values()
    ) == [True]


def act(step: MechanismStep, target: float = 2.0) -> ApplyMechanism:
    return ApplyMechanism(7, step, "sensor", "lab/t", "rate", target)


def test_a_filtered_rate_is_for_those_who_expect_something() -> None:
    table = QualityTable()
    sensor = table.join("sensor")
    ada, bob = table.join("ada"), table.join("bob").subscribe("lab/t", qos=1)
    expect(ada, "lab/+", {"rate": [1, 2]})
    table.declare(sensor, current=10)
    table.quality.handle_notices([act(MechanismStep.FILTER_RATE)])
    for peer in (ada, bob):
        peer.hear()
    for number in range(10):
        sensor.publish("lab/t", str(number).encode(), qos=1)
        table.wait(100)
    heard = [[p.payload for p in peer.hear() if isinstance(p, Publish)] for peer in (ada, bob)]
    assert heard == [[b"0", b"5"], [str(number).encode() for number in range(10)]]
    batch = table.hub.ledger.take()
    assert batch is not None
    filtered = [row for row in batch.rows if row[12] == FILTERED]
    assert [OUTCOMES[row[6]] for row in filtered] == ["shed"] * 8
    assert quality_totals(table.quality).filtered == 8
    table.quality.handle_notices([WithdrawMechanism(7)])
    sensor.publish("lab/t", b"last", qos=1)
    assert any(isinstance(each, Publish) and each.payload == b"last" for each in ada.hear())


def test_what_is_raised_goes_first() -> None:
    table = QualityTable()
    sensor, ada = table.join("sensor"), table.join("ada").subscribe("#", qos=1)
    table.declare(sensor)
    table.quality.handle_notices([act(MechanismStep.RAISE_IMPORTANCE)])
    ada.is_slow = True
    sensor.publish("bulk", b"bulk", qos=1)
    sensor.publish("lab/t", b"raised", qos=1)
    ada.hears(b"".join(ada.connection.take(10_000)))
    payloads = [each.payload for each in ada.hear() if isinstance(each, Publish)]
    assert payloads == [b"raised", b"bulk"]


def test_events_are_made_smaller_to_leave_in_time_where_policies_say_how() -> None:
    table = QualityTable()
    book = parse_policy_set('[[policies]]\nname = "p"\npreferences = { shaping = "scaling" }')
    table.broker.switch(book, Policies(book))
    table.hub.has_workers = True
    sensor, ada = table.join("sensor"), table.join("ada").subscribe("lab/t", qos=1)
    table.declare(sensor)
    ada.connection.link.limit_bps = 800_000
    sensor.publish("lab/t", b"x" * 100_000, qos=1)
    assert table.hub.orders == []
    table.quality.handle_notices([act(MechanismStep.SHAPE, 500.0)])
    sensor.publish("lab/t", b"x" * 100_000, qos=1)
    (order,) = table.hub.orders
    assert isinstance(order, ShapingOrder)
    assert 12_500 <= order.shape.max_bytes <= 40_000  # what goes in 500 ms behind the first
    table.quality.handle_notices([WithdrawMechanism(7)])


def test_the_state_can_be_seen() -> None:
    table = QualityTable()
    sensor, ada = table.join("sensor"), table.join("ada")
    table.declare(sensor, current=2)
    expect(ada, "lab/t", {"rate": [5, 10], "id": "x"})
    expect(ada, "lab/#", {"rate": 1, "id": "y"})
    status = quality_status(table.quality, "here")
    assert [each.channel for each in status.channels] == ["lab/#", "lab/t"]
    wide, exact = status.channels
    assert [each.state for each in wide.expectations] == ["satisfied"]
    assert wide.expectations[0].relies_on == ("sensor",)
    assert [each.members for each in exact.skylines] == [("sensor",)]
    assert (exact.expectations[0].state, exact.expectations[0].reasons) == (
        "satisfiable",
        {"rate": 2},
    )
    names = [each.property for each in exact.profiles[0].capabilities if each.is_measured]
    assert names == ["latency", "reliability", "order"]
    assert quality_status(table.quality, "here", "other/#").channels == ()


def test_without_negotiation_expectations_are_nobodys() -> None:
    table = Table()
    ada = table.join("ada")
    expect(ada, "a", {"rate": 5})
    assert ada.version == V5

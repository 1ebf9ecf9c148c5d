"""What clients advertise, and how their messages are held against it."""

from __future__ import annotations

import pytest
from tests.core.broker.dialogue import Peer, Table

from accord.core.admission.admission import Admission
from accord.core.admission.demand import Measured
from accord.core.admission.options import AdmissionOptions, Mode
from accord.core.admission.status import PublisherStatus
from accord.core.broker.client_advertisements import OVER_RATE
from accord.core.broker.subscription_admission import SubscriptionAdmission
from accord.core.model.errors import AdmissionError
from accord.core.monitoring.ledger import REFUSED, SHED
from accord.core.mqtt.codes import V311, Reason
from accord.core.mqtt.packets import Disconnect, Puback, Publish, Pubrec
from accord.core.mqtt.properties import Properties


class Market(Table):
    def __init__(self, mode: Mode = Mode.ENFORCE) -> None:
        super().__init__()
        self.now_us = 0
        self.admission = Admission("here", 1, AdmissionOptions(mode=mode))
        self.admitting = SubscriptionAdmission(
            self.broker, self.admission, lambda: self.now_us, lambda *_: Measured()
        )
        self.broker.admission = self.admitting
        self.advertising = self.admitting.advertisements

    def advertise(self, client: str, rate_hz: float, where: str = "", channel: str = "a") -> None:
        self.advertising.advertise(self.session(client), "x", channel, where, rate_hz)


def payloads(peer: Peer) -> list[bytes]:
    return [each.payload for each in peer.hear() if isinstance(each, Publish)]


@pytest.mark.parametrize("qos", [1, 2])
def test_beyond_the_rate_is_refused(qos: int) -> None:
    table = Market()
    ann, bob = table.join("ann"), table.join("bob").subscribe("a")
    table.advertise("ann", 2)
    for number in range(3):
        ann.publish("a", b"%d" % number, qos)
    answers = [each for each in ann.hear() if isinstance(each, Puback | Pubrec)]
    assert [each.reason for each in answers] == [0, 0, Reason.QUOTA_EXCEEDED]
    assert answers[-1].properties.reason_string == OVER_RATE
    assert payloads(bob) == [b"0", b"1"]
    table.now_us += 500_000
    ann.publish("a", b"later", qos)
    assert payloads(bob) == [b"later"]
    table.check_invariants()


def test_it_is_counted_and_in_the_ledger() -> None:
    table = Market()
    ann = table.join("ann")
    table.advertise("ann", 2)
    for qos in (0, 0, 0, 1):
        ann.publish("a", b"x", qos)
    assert table.hub.counters.shed_causes.counts[OVER_RATE] == 2
    batch = table.hub.ledger.take()
    assert batch is not None
    assert [row[6] for row in batch.rows if row[12] == OVER_RATE] == [SHED, REFUSED]
    assert table.advertising.advertisements_of("ann") == [
        PublisherStatus(
            client="ann", name="x", channel="a", where="", rate_hz=2, passed=2, limited=2
        )
    ]


def test_an_old_client_is_sent_away() -> None:
    table = Market()
    ann = table.join("ann", V311)
    table.advertise("ann", 0)
    ann.publish("a", b"x", 1)
    assert ann.is_closed


def test_predicates_are_looked_at() -> None:
    table = Market()
    ann, bob = table.join("ann"), table.join("bob").subscribe("a")
    table.advertise("ann", 0, "level > 3")
    ann.publish("a", b"low", properties=Properties(user=(("level", "1"),)))
    ann.publish("a", b"high", properties=Properties(user=(("level", "4"),)))
    assert payloads(bob) == [b"low"]


def test_filters_of_channels() -> None:
    table = Market()
    ann, bob = table.join("ann"), table.join("bob").subscribe("#")
    table.advertise("ann", 2, channel="a/+")
    for channel in ("a/1", "a/2", "a/3", "b"):
        ann.publish(channel, channel.encode())
    assert payloads(bob) == [b"a/1", b"a/2", b"b"]


def test_requests_are_not_held_to_it() -> None:
    table = Market()
    ann = table.join("ann")
    table.hub.request_topics = frozenset({"$accord/advertisements"})
    table.advertise("ann", 0, channel="#")
    ann.publish("$accord/advertisements", b"{}", 1)
    assert len(table.hub.requests) == 1


def test_it_ends_with_the_session_and_outlives_the_connection() -> None:
    table = Market()
    ann = table.join("ann", expiry_s=60)
    table.advertise("ann", 0)
    ann.drop()
    assert table.admission.poset.advertisements == 1
    ann = table.join("ann", clean=False, expiry_s=60, is_present=True)
    bob = table.join("bob").subscribe("a")
    ann.publish("a", b"x")
    assert payloads(bob) == []
    ann.send(Disconnect(properties=Properties(session_expiry_s=0)))
    assert table.admission.poset.advertisements == 0
    table.join("ann").publish("a", b"free")
    assert payloads(bob) == [b"free"]


def test_who_only_reports_lets_pass() -> None:
    table = Market(Mode.REPORT)
    ann, bob = table.join("ann"), table.join("bob").subscribe("a")
    table.advertise("ann", 0)
    ann.publish("a", b"x")
    assert payloads(bob) == [b"x"]
    assert table.advertising.advertisements_of("ann")[0].limited == 1


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 300])
def test_names_are_short_and_printable(name: str) -> None:
    table = Market()
    table.join("ann")
    with pytest.raises(AdmissionError, match="name"):
        table.advertising.advertise(table.session("ann"), name, "a", "", 1)
    assert table.advertising.clients() == []

"""Messages in runs reach the same receivers, in the same order and form, as messages one by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest
from tests.core.broker.dialogue import Peer, Table

from accord.core.broker import publish_handler
from accord.core.broker.runs import MessageRun, Part
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.ledger import DELIVERED
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, V311
from accord.core.mqtt.packets import Packet, Puback, Publish, TopicFilter
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.policy.policies import DEFAULT_GRANT, Policies
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.limits import Limits
from accord.journal.events import decode_event, encode_kept

CHANNELS: Final = ("a/1", "a/2", "b")
WHERES: Final = ("n > 4", "n = 3", "n > 2 AND s = 'x'", "t > TIMESTAMP '2026-01-01T00:00:00Z'")
# Those with conditions on single events leave them in order as long as they matter the same.
BOOKS: Final = (
    "",
    'channel = "a/+"\nimportance = 6\n',
    'channel = "#"\nwhere = "n > 5"\npreferences = { deadline = "60 s" }\n',
    'operation = "publish"\nwhere = "n > 5"\npreferences = { deadline = "60 s" }\n',
    'client = "r1"\nwhere = "s = \'x\'"\npreferences = { deadline = "60 s" }\n',
    'where = "payload_bytes > 3"\npreferences = { deadline = "60 s" }\n',
)
BY_IMPORTANCE: Final = 'where = "n > 5"\nimportance = 6\n'


@dataclass
class Client:
    name: str
    version: int
    expiry_s: int
    filters: list[tuple[TopicFilter, Properties]]


@dataclass
class Plan:
    """What happens, drawn from a seed."""

    book: str
    clients: list[Client] = field(default_factory=list)
    reads: list[tuple[str, list[Publish]]] = field(default_factory=list)


def draw(seed: int, book: str | None = None) -> Plan:
    random = Random(seed)  # noqa: S311
    plan = Plan(random.choice(BOOKS) if book is None else book)
    for number in range(4):
        version = random.choice((V5, V5, V311))
        filters = [
            (_filter(random), _asking(random) if version == V5 else NO_PROPERTIES)
            for _ in range(random.randint(1, 3))
        ]
        plan.clients.append(Client(f"r{number}", version, random.choice((0, 0, 300)), filters))
    for number in range(2):
        shared = TopicFilter("$share/g/a/+", 1)
        plan.clients.append(Client(f"s{number}", V5, 0, [(shared, NO_PROPERTIES)]))
    publishers = [each for each in plan.clients if each.name.startswith("r")][:2]
    packet_id = 0
    aliases: dict[str, dict[str, int]] = defaultdict(dict)
    for _ in range(10):
        client = random.choice(publishers)
        read: list[Publish] = []
        for _ in range(random.choice((1, 2, 5, 20))):
            packet_id += 1
            qos = random.choice((0, 0, 1, 1, 2))
            topic = random.choice(CHANNELS)
            payload = b"%d" % packet_id * random.choice((1, 1, 3))
            properties = NO_PROPERTIES
            if client.version == V5:
                topic, properties = _told(random, topic, aliases[client.name])
            read.append(
                Publish(topic, payload, qos, False, False, packet_id if qos else 0, properties)
            )
        plan.reads.append((client.name, read))
    return plan


def draw_lone(seed: int) -> Plan:
    """Messages that come alone, on channels that few listen to."""
    random = Random(seed)  # noqa: S311
    plan = Plan(random.choice((*BOOKS[:2] * 3, *BOOKS)))
    version = random.choice((V5, V311))
    for name, channels in (("r0", ("a/1", "a/2")), ("r1", ("b",)), ("r2", ())):
        qos = random.choice((0, 1, 1))
        some = channels or random.sample(CHANNELS, random.choice((0, 0, 1)))
        filters = [
            (TopicFilter(channel, qos), _asking(random) if random.random() < 0.1 else NO_PROPERTIES)
            for channel in some
        ]
        other = random.choice((version, version, V5))
        plan.clients.append(Client(name, other, 0, filters))
    aliases: dict[str, dict[str, int]] = defaultdict(dict)
    for packet_id in range(1, 100):
        if packet_id % 8 == 1:  # who publishes does so for a while
            client, channel = random.choice(plan.clients), random.choice(CHANNELS)
        topic, properties = channel, NO_PROPERTIES
        if client.version == V5 and random.random() < 0.3:
            topic, properties = _told(random, topic, aliases[client.name])
        qos = random.choice((0, 1))
        payload = b"%d" % packet_id
        read = Publish(topic, payload, qos, False, False, packet_id if qos else 0, properties)
        plan.reads.append((client.name, [read]))
    return plan


def _filter(random: Random) -> TopicFilter:
    pattern = random.choice(("a/+", "a/1", "#", "b"))
    return TopicFilter(pattern, random.choice((0, 1, 2)), no_local=random.random() < 0.2)


def _asking(random: Random) -> Properties:
    user = (("where", random.choice(WHERES)),) if random.random() < 0.6 else ()
    identifiers = (random.randint(1, 300),) if random.random() < 0.5 else ()
    return Properties(user=user, subscription_identifiers=identifiers)


def _told(random: Random, topic: str, aliases: dict[str, int]) -> tuple[str, Properties]:
    pairs = [("n", str(random.randint(0, 9))), ("s", random.choice("xyz")), ("other", "é")]
    if random.random() < 0.05:
        pairs.append(("t", "2026-03-29T01:30:00Z"))
    alias = None
    if random.random() < 0.3:
        topic, alias = ("", aliases[topic]) if topic in aliases else (topic, len(aliases) + 1)
        aliases.setdefault(topic, alias) if topic else None
    expiry_s = random.choice((None, None, 30))
    user = tuple(random.sample(pairs, random.randint(0, len(pairs))))
    return topic, Properties(user=user, topic_alias=alias, message_expiry_s=expiry_s)


class World:
    """The plan as it was carried out."""

    def __init__(
        self,
        plan: Plan,
        has_runs: bool,
        monkeypatch: pytest.MonkeyPatch,
        *,
        cuts_through: bool = False,
    ) -> None:
        monkeypatch.undo()
        if not has_runs:
            monkeypatch.setattr(publish_handler, "scan", lambda *_: None)
        self.table = Table(is_durable=True, kept=["a/2"])
        self.table.cuts_through = cuts_through
        if plan.book:
            book = parse_policy_set('[[policies]]\nname = "P"\n' + plan.book)
            self.table.broker.switch(book, Policies(book))
        self.runs = 0
        self.qos = {each.payload: each.qos for _, read in plan.reads for each in read}
        self.got: dict[str, list[Publish]] = defaultdict(list)
        self.acks: dict[str, list[Packet]] = defaultdict(list)
        self.kept: list[tuple[object, ...]] = []
        self.ledger: Counter[tuple[object, ...]] = Counter()
        peers: dict[str, Peer] = {}
        for each in plan.clients:
            peer = self.table.join(each.name, each.version, expiry_s=each.expiry_s)
            for wanted, properties in each.filters:
                peer.subscribe(wanted, properties=properties)
            peers[each.name] = peer
        for name, read in plan.reads:
            peers[name].send(*read)
            self._settle(peers)
        self.table.check_invariants()

    def _settle(self, peers: dict[str, Peer]) -> None:
        hub = self.table.hub
        is_settled = False
        while not is_settled:
            is_settled = True
            records = map(decode_event, encode_kept(hub.kept))
            self.kept += [
                (each.channel, each.payload, each.attributes, each.qos) for each in records
            ]
            self.runs += sum(not hasattr(each, "payload") for each in hub.kept)
            hub.kept = []
            self.table.commit()
            for name, peer in peers.items():
                for packet in peer.hear():
                    is_settled = False
                    if isinstance(packet, Publish):
                        self.got[name].append(packet)
                        if packet.qos == 1:
                            peer.send(Puback(packet.packet_id))
                    else:
                        self.acks[name].append(packet)
        self.table.broker.cut_throughs.flush()
        batch = hub.ledger.take()
        for row in [] if batch is None else batch.rows:
            (
                _,
                count,
                _,
                channel,
                publisher,
                destination,
                outcome,
                *_,
                importance,
                policy,
                detail,
                _,
            ) = row
            if destination.startswith("r") or outcome != DELIVERED:
                self.ledger[
                    channel, publisher, destination, outcome, importance, policy, detail
                ] += count

    def ordered(self) -> dict[tuple[object, ...], list[object]]:
        """What each receiver got of a channel and of messages of one QoS; a group as one."""
        found: dict[tuple[object, ...], list[object]] = defaultdict(list)
        for name, packets in self.got.items():
            for packet in packets:
                if name.startswith("s"):
                    found["group", packet.topic].append(packet.payload)
                else:
                    content = (packet.payload, packet.retain, packet.properties)
                    published = self.qos[packet.payload]
                    found[name, packet.topic, published, packet.qos].append(content)
        for key, several in found.items():
            if key[0] == "group":
                several.sort(key=repr)
        return found

    def in_journal(self) -> dict[object, list[tuple[object, ...]]]:
        """The kept events of each channel and QoS."""
        found: dict[object, list[tuple[object, ...]]] = defaultdict(list)
        for each in self.kept:
            found[each[0], each[-1]].append(each)
        return found

    def counts(self) -> dict[str, Any]:
        broker = self.table.broker
        return {
            channel: (counts.published, counts.published_bytes, counts.delivered)
            for channel in CHANNELS
            for counts in [broker.router.fan_out(channel).counts]
        }


@pytest.mark.parametrize("seed", range(150))
def test_runs_change_nothing_for_anybody(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = draw(seed)
    together, single = World(plan, True, monkeypatch), World(plan, False, monkeypatch)
    assert together.ordered() == single.ordered()
    assert {name: Counter(map(repr, acks)) for name, acks in together.acks.items()} == {
        name: Counter(map(repr, acks)) for name, acks in single.acks.items()
    }
    assert together.in_journal() == single.in_journal()
    assert together.counts() == single.counts()
    assert together.ledger == single.ledger
    assert single.runs == 0


@pytest.mark.parametrize("seed", range(60))
def test_cut_through_changes_nothing_for_anybody(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = draw_lone(seed)
    through = World(plan, True, monkeypatch, cuts_through=True)
    single = World(plan, False, monkeypatch)
    assert through.ordered() == single.ordered()
    assert through.acks == single.acks
    assert through.in_journal() == single.in_journal()
    assert through.counts() == single.counts()
    assert through.ledger == single.ledger
    through.table.hub.counters.bytes_sent = 0  # of others, drivers count them
    ours, theirs = (each.table.hub.counters.snapshot(now_ms=0) for each in (through, single))
    assert ours == theirs


def test_many_messages_of_those_worlds_cut_through(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [World(draw_lone(seed), True, monkeypatch, cuts_through=True) for seed in range(10)]
    assert sum(world.table.cut_throughs for world in worlds) > 100


@pytest.mark.parametrize("seed", range(20))
def test_conditions_on_importance_hold_in_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = draw(seed, BY_IMPORTANCE)
    together, single = World(plan, True, monkeypatch), World(plan, False, monkeypatch)
    assert {key: Counter(map(repr, each)) for key, each in together.ordered().items()} == {
        key: Counter(map(repr, each)) for key, each in single.ordered().items()
    }
    assert together.ledger == single.ledger


def test_most_messages_of_these_worlds_travel_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(World(draw(seed), True, monkeypatch).runs for seed in range(10)) > 30


def test_pieces_of_a_run_have_the_numbers_of_their_events() -> None:
    frames = [encode(Publish("a", bytes(size)), V5) for size in (3, 1, 40, 2, 2, 7)]
    run = MessageRun(
        b"".join(frames), 6, DEFAULT_GRANT, 0, 10, "a", "bob", ChannelCounts("a"), is_v5=True
    )
    run.parts = (
        Part("a", ChannelCounts("a"), range(10, 13)),
        Part("b", ChannelCounts("b"), [20, 22]),
        Part("c", ChannelCounts("c"), [31]),
    )
    run.marks = bytes((1, 2, 1, 1, 2, 3))
    whole = list(run.numbered())
    assert whole == [("a", 10, 3), ("b", 20, 1), ("b", 22, 1), ("c", 31, 1)]
    for at in range(1, 6):
        parts = run.split(1 << 40, at)
        assert parts is not None
        first, rest = parts
        assert first.frames + rest.frames == run.frames
        assert (first.count, rest.count) == (at, 6 - at)
        numbered = Counter(_single(first)) + Counter(_single(rest))
        assert numbered == Counter(_single(run))
        assert all(run.has(number) for _, number in numbered)
    (left, first), (_, second), (_, third) = run.pieces(bytes((1, 1, 0, 0, 0, 1)))
    assert (left, list(_single(first))) == (True, [("a", 10), ("b", 20)])
    assert list(_single(second)) == [("a", 11), ("a", 12), ("b", 22)]
    assert list(_single(third)) == [("c", 31)]


def _single(run: MessageRun) -> Iterator[tuple[str, int]]:
    for channel, first, count in run.numbered():
        for number in range(first, first + count):
            yield channel, number


def test_a_client_may_send_more_when_a_piece_of_its_run_is_answered() -> None:
    table = Table(Limits(receive_maximum=10))
    table.join("ada").subscribe("a", properties=Properties(user=(("where", "n > 4"),)))
    bob = table.join("bob")
    bob.publish("a", b"first", 1)
    bob.receive(
        b"".join(encode(Publish("a", b"x", 1, packet_id=each), V5) for each in range(2, 12))
    )
    assert table.broker.run_task(), "some of them are matched"
    bob.receive(
        b"".join(encode(Publish("a", b"y", 1, packet_id=each), V5) for each in range(2, 10))
    )
    table.turn()
    acks = [each.packet_id for each in bob.hear() if isinstance(each, Puback)]
    assert acks == [1, *range(2, 12), *range(2, 10)]


@pytest.mark.parametrize("qos", [0, 1])
def test_nothing_is_kept_while_the_journal_takes_no_more(qos: int) -> None:
    table = Table(is_durable=True, kept=["a"])
    bob = table.join("bob")
    for _ in range(3):
        bob.publish("a", b"x", qos)
    table.commit()
    table.hub.overload_cause = "the disk is full"
    bob.publish("a", b"x", qos)
    assert table.hub.kept_events() == 3
    assert table.hub.counters.shed_causes.counts == {"journal overloaded": 1}


def test_an_acknowledgement_with_a_reason_code_counts_too() -> None:
    table = Table()
    ada, bob = table.join("ada").subscribe("a", qos=1), table.join("bob")
    for number in range(3):
        bob.publish("a", b"%d" % number, 1)
    session = table.session("ada")
    ids = [each.packet_id for each in ada.hear() if isinstance(each, Publish)]
    assert (len(session.sent_runs), session.in_flight) == (2, 3), "the first one came alone"
    for packet_id in ids:
        ada.send_bytes(b"\x40\x03" + packet_id.to_bytes(2, "big") + b"\x10")
    assert (session.in_flight, session.in_flight_bytes) == (0, 0)

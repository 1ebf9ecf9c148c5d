"""Subscriptions that begin in the past: whatever happens meanwhile, nothing is missing or twice."""

from __future__ import annotations

import random
from typing import Final

import pytest
from tests.core.broker.dialogue import START_MS, Peer, Table

from accord.core.broker import catch_up as catch_up_module
from accord.core.broker.catch_up import CatchUp, PageDemand
from accord.core.broker.kept_messages import journal_form
from accord.core.broker.session_recovery import restore
from accord.core.monitoring.ledger import event_id, event_number
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.event_mapping import EVENT_NAMES
from accord.core.mqtt.packets import Puback, Publish, Suback, Subscribe, TopicFilter
from accord.core.mqtt.properties import EVENT, NODE, RECEIVED, Properties
from accord.core.queries.messages import Page, QueryHit
from accord.journal.events import decode_event, encode_kept, kept_message

SINCE: Final = Properties(user=(("since", "-1h"),))
KEPT: Final = "kept/a"
OTHER: Final = "other"


class World:
    """A node whose journal and pipeline are a list; pages come when a test lets them."""

    def __init__(self) -> None:
        self.table = self._table(START_MS)
        self.journal: list[QueryHit | None] = []
        self.committed = 0
        self.asked: list[tuple[CatchUp, PageDemand]] = []
        self.published: list[int] = []

    @staticmethod
    def _table(now_ms: int) -> Table:
        table = Table(is_durable=True, kept=["kept/#"], now_ms=now_ms)
        table.hub.history_problem = ""
        return table

    def turn(self) -> None:
        """What the driver does: append, make cuts, let histories go on."""
        hub = self.table.hub
        self.table.turn()
        first = len(self.journal)
        for record in encode_kept(hub.kept):
            event = decode_event(record)
            self.journal.append(
                QueryHit(
                    len(self.journal),
                    event.number,
                    event.received_ms,
                    event.channel,
                    event.publisher,
                    event.qos,
                    event.attributes,
                    event.payload,
                )
            )
        hub.kept = []
        cuts, hub.cuts = hub.cuts, []
        for cut in cuts:
            cut.set_offset(first + cut.kept)
        self.table.broker.step_catch_ups()
        for catch_up in self.table.broker.catch_ups.values():
            catch_up.check_invariants()
            wanted = catch_up.next_demand(self.committed, self.table.now_ms)
            if wanted is not None:
                self.asked.append((catch_up, wanted))
        self.table.turn()

    def commit(self) -> None:
        self.turn()
        self.table.commit()
        self.committed = len(self.journal)
        self.turn()

    def answer(self, *, fails: bool = False) -> None:
        """Let the oldest page that was asked for come."""
        if self.asked:
            catch_up, wanted = self.asked.pop(0)
            if fails:
                catch_up.on_failure("busy", is_final=False, now_ms=self.table.now_ms)
            else:
                page = self._page(wanted)
                if catch_up.deliver_page(page.events):
                    catch_up.finish_page(page.cursor)
        self.turn()

    def _page(self, wanted: PageDemand) -> Page:
        ask = wanted.query
        assert ask.before_offset is not None
        assert ask.before_offset <= self.committed
        start = int(wanted.cursor) if wanted.cursor else ask.from_offset
        found: list[QueryHit] = []
        for offset in range(start, ask.before_offset):
            event = self.journal[offset]
            if event is None or event.received_ms < (ask.since_ms or 0):
                continue
            if len(found) == wanted.rows:
                return Page(id=1, events=tuple(found), cursor=str(offset))
            found.append(event)
        return Page(id=1, events=tuple(found))

    def publish(self, peer: Peer, channel: str = KEPT, qos: int = 1) -> None:
        """Without a turn: several may come in one read."""
        number = len(self.published)
        packet = Publish(channel, str(number).encode(), qos, packet_id=number + 1 if qos else 0)
        peer.receive(encode(packet, peer.version))
        if channel == KEPT:
            self.published.append(number)
        else:
            self.published.append(-1)

    def settle(self, listeners: list[Listener]) -> None:
        """Until nothing happens any more."""
        for _ in range(10_000):
            self.table.now_ms += 100
            self.commit()
            self.answer()
            for listener in listeners:
                listener.read()
            if not self.table.broker.catch_ups and not self.asked:
                break
        self.commit()
        for listener in listeners:
            listener.read()

    def crash(self) -> None:
        """Lose what is not on disk: of the journal, and of the state."""
        records = self.table.log[: self.table.on_disk()]
        self.journal = self.journal[: self.committed]
        now_ms = self.table.now_ms
        number = self.table.hub.number
        self.table = self._table(now_ms)
        self.table.hub.number = number
        restored = restore(self.table.broker, records, now_ms=now_ms)
        assert restored.problems == []
        self.table.log = list(records)
        self.table.turns.append((0, len(records)))
        self.asked = []


class Listener:
    def __init__(self, world: World, name: str, *, qos: int = 1, expiry_s: int = 1_000) -> None:
        self.world = world
        self.name = name
        self.qos = qos
        self.expiry_s = expiry_s
        self.got: list[int] = []
        self.others: list[int] = []
        self.peer = self._join(is_present=False)
        self.peer.is_slow = True

    def _join(self, *, is_present: bool) -> Peer:
        return self.world.table.join(
            self.name, clean=not is_present, expiry_s=self.expiry_s, is_present=is_present
        )

    def subscribe(self, pattern: str = "#") -> None:
        wish = Subscribe(900, (TopicFilter(pattern, self.qos),), SINCE)
        self.peer.send(wish)

    def read(self, bytes_wanted: int = 1 << 20) -> None:
        """Take what there is, and acknowledge it."""
        self.peer.hears(b"".join(self.peer.connection.take(bytes_wanted)))
        for packet in self.peer.hear():
            if isinstance(packet, Publish):
                got = self.got if packet.topic == KEPT else self.others
                number = int(packet.payload)
                if not (packet.dup and number in got):
                    got.append(number)
                if packet.qos:
                    self.peer.send(Puback(packet.packet_id))

    def back(self) -> None:
        self.peer = self._join(is_present=True)
        self.peer.is_slow = True

    def drop_and_return(self) -> None:
        self.peer.drop()
        self.back()


def expected(world: World) -> list[int]:
    return [number for number in world.published if number >= 0]


def test_history_comes_first_and_says_when_it_was() -> None:
    world = World()
    bob = world.table.join("bob")
    world.publish(bob)
    world.commit()
    ada = Listener(world, "ada")
    ada.subscribe()
    world.commit()
    world.publish(bob)
    world.commit()
    (asked,) = world.asked
    assert asked[1].query.before_offset == 1
    ada.read()
    assert ada.got == []
    world.answer()
    ada.peer.hears(b"".join(ada.peer.connection.take(1 << 20)))
    first, second = (each for each in ada.peer.hear() if isinstance(each, Publish))
    told = dict(first.properties.user)
    past = world.journal[0]
    assert past is not None
    assert (first.payload, told[RECEIVED]) == (b"0", str(past.received_ms))
    assert event_number(told[EVENT]) == past.number
    assert (second.payload, second.properties.user) == (b"1", ())
    assert event_id(past.number) == told[EVENT]


@pytest.mark.parametrize("is_secondary", [False, True])
def test_who_asks_for_names_gets_those_of_the_past_too(is_secondary: bool) -> None:
    """By them copies from several nodes are known, so no name is better than a wrong one."""
    world = World()
    hub = world.table.hub
    hub.node, hub.assigns_event_ids = "b", not is_secondary
    bob = world.table.join("bob")
    asking = Properties(user=(EVENT_NAMES,))
    for _ in range(4):
        world.publish(bob)
    copies = [("", "", 0), ("a", "a", 0), ("a", "x", 7), ("", "y", 8)]  # from, named by, and number
    messages = [kept_message(decode_event(record)) for record in encode_kept(hub.kept)]
    hub.kept = []
    for message, (source, home, number) in zip(messages, copies, strict=True):
        message.event_node, message.event_number = home, number or (message.number if home else 0)
        hub.kept.append(journal_form(message, source))
    first = messages[0].number
    world.commit()
    told = [
        dict(each.properties.user)
        for name in ("ada", "eve")
        for each in history_of(world, name, asking if name == "ada" else None)
    ]
    assert [(each.get(NODE), event_number(each[EVENT])) for each in told] == [
        (None if is_secondary else "b", first),
        ("a", first + 1),
        ("x", 7),
        ("y", 8),
        # Others are told what this node calls them, as ever.
        (None, first),
        ("a", first + 1),
        ("a", first + 2),
        (None, first + 3),
    ]
    assert all(set(each) <= {NODE, EVENT, RECEIVED} for each in told)


def history_of(world: World, name: str, properties: Properties | None) -> list[Publish]:
    peer = world.table.join(name, properties=properties)
    peer.send(Subscribe(900, (TopicFilter("kept/#", 1),), SINCE))
    world.commit()
    world.answer()
    return [each for each in peer.hear() if isinstance(each, Publish)]


def test_channels_that_are_not_kept_have_no_past_and_do_not_wait() -> None:
    world = World()
    bob = world.table.join("bob")
    ada = Listener(world, "ada")
    ada.subscribe()
    world.publish(bob, OTHER)
    world.publish(bob)
    world.commit()
    ada.read()
    assert (ada.got, ada.others) == ([], [0])
    world.settle([ada])
    assert ada.got == [1]


def test_what_comes_meanwhile_may_be_more_than_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up_module, "_WAITING", 5)
    world = World()
    bob = world.table.join("bob")
    for _ in range(20):
        world.publish(bob)
    world.commit()
    ada = Listener(world, "ada")
    ada.subscribe()
    for _ in range(20):
        world.publish(bob)
        world.commit()
    world.settle([ada])
    assert ada.got == list(range(40))
    assert not world.table.broker.catch_ups


@pytest.mark.parametrize(
    ("properties", "pattern", "problem"),
    [
        (Properties(user=(("since", "yesterday"),)), "kept/#", "expected a time such as"),
        (Properties(user=(("since", "-1h"), ("since", "-2h"))), "kept/#", "got several"),
        (SINCE, "$share/g/kept/#", "expected channels that are kept"),
    ],
)
def test_a_past_that_can_not_be_had_is_refused(
    properties: Properties, pattern: str, problem: str
) -> None:
    world = World()
    ada = world.table.join("ada")
    ada.send(Subscribe(7, (TopicFilter(pattern, 1),), properties))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
    assert problem in (answer.properties.reason_string or "")
    assert world.table.session("ada").subscriptions == {}


def test_without_a_pipeline_there_is_no_past() -> None:
    table = Table(is_durable=True, kept=["kept/#"])
    table.hub.history_problem = "the data pipeline is off"
    ada = table.join("ada")
    ada.send(Subscribe(7, (TopicFilter("kept/#", 1),), SINCE))
    (answer,) = ada.hear()
    assert isinstance(answer, Suback)
    assert answer.properties.reason_string == "since: the data pipeline is off"


def test_who_unsubscribes_or_ends_is_not_asked_for_any_more() -> None:
    world = World()
    bob = world.table.join("bob")
    world.publish(bob)
    world.commit()
    ada = Listener(world, "ada", expiry_s=0)
    ada.subscribe()
    world.commit()
    assert len(world.asked) == 1
    ada.peer.drop()
    world.answer()
    assert not world.table.broker.catch_ups


@pytest.mark.parametrize("seed", range(200))
def test_no_gap_and_no_duplicate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages late and failing, slow readers, bursts, clients that go and come back."""
    chance = random.Random(seed)  # noqa: S311
    monkeypatch.setattr(catch_up_module, "_WAITING", chance.choice([1, 3, 10, 1_000]))
    monkeypatch.setattr(catch_up_module, "ROWS", chance.choice([1, 4, 500]))
    world = World()
    bob = world.table.join("bob")
    listeners: list[Listener] = []
    for _ in range(chance.randrange(20)):
        world.publish(bob)
    cut_at = chance.randrange(60)
    for step in range(60):
        if step == cut_at:
            for name in ("ada", "eve")[: chance.randint(1, 2)]:
                listeners.append(Listener(world, name))
                listeners[-1].subscribe(chance.choice(["#", KEPT, "kept/+"]))
        does = chance.random()
        if does < 0.45:
            for _ in range(chance.choice([1, 1, 2, 8])):
                world.publish(bob, chance.choice([KEPT, KEPT, OTHER]), chance.choice([1, 1, 0]))
            if chance.random() < 0.5:
                world.turn()
        elif does < 0.6:
            world.commit()
        elif does < 0.7:
            world.turn()
            world.journal.append(None)  # of the ledger
        elif does < 0.8:
            world.answer(fails=chance.random() < 0.2)
        elif does < 0.95:
            for listener in listeners:
                listener.read(chance.choice([50, 1_000, 1 << 20]))
        elif listeners:
            chance.choice(listeners).drop_and_return()
        world.table.now_ms += chance.choice([0, 1, 2_000])
    if not listeners:
        listeners.append(Listener(world, "ada"))
        listeners[-1].subscribe()
    world.settle(listeners)
    at_qos_0 = {int(each.payload) for each in world.journal if each and each.qos == 0}
    for listener in listeners:
        wanted = expected(world)
        missing = [number for number in wanted if number not in listener.got]
        assert set(missing) <= at_qos_0
        assert len(listener.got) == len(set(listener.got))
        for is_lossy in (False, True):  # MQTT orders what has the same QoS
            got = [number for number in listener.got if (number in at_qos_0) == is_lossy]
            assert got == [number for number in wanted if number in got]
    assert not world.table.broker.catch_ups
    world.table.broker.router.check_invariants()


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_leaves_no_gap(seed: int) -> None:
    """What was acknowledged to the publisher comes, some of it maybe twice."""
    chance = random.Random(seed)  # noqa: S311
    world = World()
    bob = world.table.join("bob")
    for _ in range(chance.randrange(30)):
        world.publish(bob)
    ada = Listener(world, "ada")
    ada.subscribe()
    world.commit()
    acknowledged: set[int] = set()
    for _ in range(chance.randrange(1, 30)):
        does = chance.random()
        if does < 0.4:
            world.publish(bob)
        elif does < 0.6:
            world.commit()
            acknowledged |= {number for number in world.published if number >= 0}
        elif does < 0.8:
            world.answer()
        else:
            ada.read(chance.choice([100, 1 << 20]))
    world.crash()
    ada.back()
    bob = world.table.join("bob")
    world.publish(bob)
    acknowledged.add(len(world.published) - 1)
    world.settle([ada])
    assert acknowledged <= set(ada.got)
    assert not world.table.broker.catch_ups

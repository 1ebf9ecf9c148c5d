"""Some clients of one broker that do anything at any time, and what must come of it.

The clients keep to the standard: they repeat what was not acknowledged, and take a QoS 2 message
once. They acknowledge in any order and as late as they like, vanish, come back, take their own
connections over. The model knows whom each message must reach: from the moment the broker has it;
and, where the broker may crash, from the moment the broker said that it has it.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.core.broker.dialogue import Peer, Table

from accord.core.model.channels import filter_selects
from accord.core.mqtt.codes import V5, V311
from accord.core.mqtt.packets import (
    Connack,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.router.limits import Limits

LIMITS: Final = Limits(inflight=3, session_expiry_s=1_000)
CHANNELS: Final = ("t/1", "t/2")
PATTERNS: Final = (*CHANNELS, "t/+", "t/#")
RETAINED: Final = "r/1"
CLIENTS: Final = ("ada", "bob", "cyn", "dan")
VERSION: Final = {"ada": V5, "bob": V311, "cyn": V5, "dan": V5}
EXPIRY_S: Final = {"ada": 1_000, "cyn": 20, "dan": 0}


class Wanted:
    """A message that one session is to get; `is_safe` once its publisher was told that it will."""

    def __init__(self, publisher: str, channel: str, *, is_late: bool) -> None:
        self.publisher = publisher
        self.channel = channel
        self.is_late = is_late  # a repetition of what it wanted otherwise the first time
        self.levels: set[int] = set()  # of QoS
        self.is_due = True
        self.is_safe = False


class Client:
    """What one client knows, and what the model knows of its session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = VERSION[name]
        self.peer: Peer | None = None
        self.is_welcome = False
        self.is_starting_over = False  # it asked for a clean start and had no answer yet
        # What it published and what it took, until each is done.
        self.unfinished: dict[int, Publish | Pubrel] = {}
        self.taken: set[int] = set()
        self.answers: list[Packet] = []  # to be sent some time
        self.asked: dict[int, tuple[str, int | None]] = {}
        self.delivered: list[tuple[int, str, bytes]] = []  # QoS, channel, payload
        self.sent_before: set[tuple[int, bytes]] = set()
        # Its session: as the broker has it, and as the broker said.
        self.has_session = False
        self.is_session_promised = False
        self.subscriptions: dict[str, int] = {}
        self.promised: dict[str, int | None] = {}
        self.wanted: dict[bytes, Wanted] = {}
        self.expiry_s = 0
        self.welcomed_ms = 0
        self.left_ms = 0
        self.will: Will | None = None
        self.will_due_ms = 0

    def forget_session(self) -> None:
        """Nothing is owed to it any more."""
        self.has_session = False
        self.is_session_promised = False
        self.subscriptions = {}
        self.promised = {}
        self.sent_before = set()
        for wanted in self.wanted.values():
            wanted.is_due = False

    def hang_up(self) -> None:
        self.peer = None
        self.is_welcome = False
        self.answers = []
        self.asked = {}

    def new_packet_id(self) -> int:
        used = self.unfinished.keys() | self.asked.keys()
        return next(number for number in range(1, 1_000) if number not in used)

    def send(self, packet: Packet) -> None:
        assert self.peer is not None
        self.peer.send(packet)


class World(RuleBasedStateMachine):
    is_durable = False
    can_crash = False

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(LIMITS, is_durable=self.is_durable)
        self.clients = {name: Client(name) for name in CLIENTS}
        self.numbers = 0
        self.wills: list[bytes] = []  # those that are to be published
        # What may be retained, the oldest first; and which of it a packet was.
        self.retained: list[tuple[int, bytes]] = [(0, b"")]
        self.retaining: dict[tuple[str, int], int] = {}
        self.watch()

    def watch(self) -> None:
        """A client that hears all wills."""
        self.watcher = self.table.join("watcher").subscribe("will/+")

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Some are there already: there is more to see then."""
        for name in data.draw(st.sets(st.sampled_from(CLIENTS)).map(sorted)):
            self.connect(name, clean=False, delay_s=-1)
            self.table.commit()
            self.settle()
            client = self.clients[name]
            pattern, qos = data.draw(st.sampled_from(PATTERNS)), data.draw(st.integers(0, 2))
            self.ask(client, pattern, qos)
        if data.draw(st.booleans()):
            self.table.commit()
            self.settle()

    # Coming and going.

    @rule(name=st.sampled_from(CLIENTS), clean=st.booleans(), delay_s=st.sampled_from([-1, 0, 5]))
    def connect(self, name: str, clean: bool, delay_s: int) -> None:
        client = self.clients[name]
        if client.peer is not None:
            self.lose(client)
        clean = clean or client.is_starting_over
        if clean:
            self.publish_will(client)
            client.forget_session()
            client.unfinished = {}
            client.taken = set()
            client.is_starting_over = True
        expiry_s = EXPIRY_S.get(name, 0 if clean else LIMITS.session_expiry_s)
        client.has_session = True
        client.expiry_s = expiry_s
        client.will = self.new_will(client, delay_s)
        client.will_due_ms = 0
        client.peer = self.table.connect(
            name, client.version, clean=clean, expiry_s=expiry_s, will=client.will
        )
        self.settle()

    @precondition(lambda self: self.connected())
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        client = self.draw(data, self.connected())
        assert client.peer is not None
        client.peer.drop()
        self.lose(client)
        self.settle()

    @precondition(lambda self: self.welcome())
    @rule(data=st.data())
    def say_goodbye(self, data: st.DataObject) -> None:
        client = self.draw(data, self.welcome())
        client.send(Disconnect())
        assert client.peer is not None
        assert client.peer.is_closed
        self.hear(client)
        client.will = None
        self.lose(client)
        self.settle()

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 15_000]))
    def let_time_pass(self, ms: int) -> None:
        self.table.wait(ms)
        now_ms = self.table.now_ms
        for client in self.clients.values():
            if client.peer is None and client.has_session:
                is_over = client.left_ms + client.expiry_s * 1_000 <= now_ms
                if is_over or 0 < client.will_due_ms <= now_ms:
                    self.publish_will(client)
                if is_over:
                    client.forget_session()
        self.settle()

    # Talking.

    @precondition(lambda self: self.welcome())
    @rule(
        data=st.data(),
        channel=st.sampled_from(CHANNELS),
        levels=st.lists(st.integers(0, 2), min_size=1, max_size=4),
    )
    def publish(self, data: st.DataObject, channel: str, levels: list[int]) -> None:
        client = self.draw(data, self.welcome())
        for qos in levels:
            packet_id = client.new_packet_id() if qos else 0
            packet = Publish(channel, self.new_payload(), qos, packet_id=packet_id)
            if qos:
                client.unfinished[packet_id] = packet
            self.send_publish(client, packet)
        self.settle()

    @precondition(lambda self: self.welcome())
    @rule(data=st.data(), is_cleared=st.booleans())
    def retain(self, data: st.DataObject, is_cleared: bool) -> None:
        client = self.draw(data, self.welcome())
        packet_id = client.new_packet_id()
        payload = b"" if is_cleared else self.new_payload()
        packet = Publish(RETAINED, payload, 1, retain=True, packet_id=packet_id)
        client.unfinished[packet_id] = packet
        self.send_publish(client, packet)
        self.settle()

    @precondition(lambda self: self.welcome())
    @rule(data=st.data(), pattern=st.sampled_from(PATTERNS), qos=st.integers(0, 2))
    def subscribe(self, data: st.DataObject, pattern: str, qos: int) -> None:
        self.ask(self.draw(data, self.welcome()), pattern, qos)
        self.settle()

    @precondition(lambda self: self.welcome())
    @rule(data=st.data(), pattern=st.sampled_from(PATTERNS))
    def unsubscribe(self, data: st.DataObject, pattern: str) -> None:
        self.ask(self.draw(data, self.welcome()), pattern, None)
        self.settle()

    @precondition(lambda self: self.answering())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        client = self.draw(data, self.answering())
        for _ in range(data.draw(st.integers(1, len(client.answers)))):
            client.send(client.answers.pop(data.draw(st.integers(0, len(client.answers) - 1))))
        self.settle()

    @precondition(lambda self: self.table.hub.has_pending())
    @rule(data=st.data())
    def progress_on_disk(self, data: st.DataObject) -> None:
        later = [at for at, _ in self.table.turns if at > self.table.hub.committed]
        self.table.commit(data.draw(st.sampled_from(later)))
        self.settle()

    # What must hold.

    @invariant()
    def nothing_is_inconsistent(self) -> None:
        self.table.check_invariants()
        present = {name for name, client in self.clients.items() if client.has_session}
        assert self.table.broker.sessions.keys() - {"watcher"} == present
        for name in present:
            client, session = self.clients[name], self.table.session(name)
            found = {pattern: each.qos for pattern, each in session.subscriptions.items()}
            assert found == client.subscriptions
            assert session.is_connected is client.is_welcome
        found_retained = self.table.broker.retained.get(RETAINED)
        assert (found_retained.payload if found_retained else b"") == self.retained[-1][1]

    @rule()
    def everybody_comes_back_and_has_all(self) -> None:
        self.table.commit()
        self.settle()
        for name, client in self.clients.items():
            if client.has_session and client.peer is None and not client.is_starting_over:
                self.connect(name, clean=False, delay_s=-1)
                self.table.commit()
                self.settle()
        while self.answering() or self.table.hub.has_pending():
            for client in self.answering():
                client.send(client.answers.pop(0))
            self.table.commit()
            self.settle()
        for client in self.clients.values():
            self.check_deliveries(client)
            if not client.is_starting_over:  # it comes back only to begin anew
                self.check_all_arrived(client)

    def check_deliveries(self, client: Client) -> None:
        counts: dict[tuple[int, bytes], int] = {}
        last: dict[tuple[str, str, int], int] = {}
        for qos, channel, payload in client.delivered:
            if qos == 0:
                continue
            wanted = client.wanted[payload]
            assert wanted.channel == channel
            assert qos in wanted.levels
            count = counts[qos, payload] = counts.get((qos, payload), 0) + 1
            assert qos == 1 or count == 1, f"{payload!r} reached {client.name} twice"
            flow = (wanted.publisher, channel, qos)
            if count == 1 and not wanted.is_late:
                assert last.get(flow, 0) < int(payload), f"{payload!r} out of order"
                last[flow] = int(payload)

    def check_all_arrived(self, client: Client) -> None:
        reached = {payload for qos, _, payload in client.delivered if qos}
        for payload, wanted in client.wanted.items():
            assert payload in reached or not wanted.is_due, f"{client.name} never had {payload!r}"

    # What the clients do of themselves.

    def settle(self) -> None:
        """Everybody hears what there is to hear."""
        while sum(self.hear(client) for client in self.clients.values()):
            pass
        heard = [each.payload for each in self.watcher.hear() if isinstance(each, Publish)]
        if not self.can_crash:
            assert sorted(heard) == sorted(self.wills)
        self.wills = []

    def hear(self, client: Client) -> int:
        packets = [] if client.peer is None else client.peer.hear()
        for packet in packets:
            if isinstance(packet, Connack):
                self.is_let_in(client, packet)
            elif isinstance(packet, Publish):
                self.take(client, packet)
            elif isinstance(packet, Pubrel):
                client.taken.discard(packet.packet_id)
                client.answers.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Puback | Pubrec):
                self.is_acknowledged(client, packet)
            elif isinstance(packet, Pubcomp):
                client.unfinished.pop(packet.packet_id, None)
            else:
                assert isinstance(packet, Suback | Unsuback)
                pattern, qos = client.asked.pop(packet.packet_id)
                if client.subscriptions.get(pattern) == qos:
                    client.promised[pattern] = qos
        return len(packets)

    def is_let_in(self, client: Client, packet: Connack) -> None:
        assert packet.reason == 0
        client.is_welcome = True
        client.is_starting_over = False
        client.is_session_promised = client.expiry_s > 0
        client.welcomed_ms = self.table.now_ms
        if not packet.session_present:
            client.unfinished = {}
            client.taken = set()
        for packet_id, unfinished in list(client.unfinished.items()):
            if isinstance(unfinished, Pubrel):
                client.send(unfinished)
            else:
                topic, payload, qos = unfinished.topic, unfinished.payload, unfinished.qos
                again = Publish(topic, payload, qos, unfinished.retain, True, packet_id)
                self.send_publish(client, again)

    def take(self, client: Client, packet: Publish) -> None:
        assert any(filter_selects(pattern, packet.topic) for pattern in PATTERNS)
        if packet.qos:
            key = (packet.packet_id, packet.payload)
            if not self.can_crash:
                assert packet.dup is (key in client.sent_before)
            client.sent_before.add(key)
        if packet.qos == 1:
            client.answers.append(Puback(packet.packet_id))
        elif packet.qos == 2:
            client.answers.append(Pubrec(packet.packet_id))
            if packet.packet_id in client.taken:
                return
            client.taken.add(packet.packet_id)
        client.delivered.append((packet.qos, packet.topic, packet.payload))

    def is_acknowledged(self, client: Client, packet: Puback | Pubrec) -> None:
        published = client.unfinished.pop(packet.packet_id, None)
        if isinstance(published, Publish):
            for each in self.clients.values():
                if published.payload in each.wanted:
                    each.wanted[published.payload].is_safe = True
            if published.retain:
                self.is_retained(self.retaining.pop((client.name, packet.packet_id)))
        if isinstance(packet, Pubrec):
            client.unfinished[packet.packet_id] = Pubrel(packet.packet_id)
            client.answers.append(Pubrel(packet.packet_id))

    def is_retained(self, token: int) -> None:
        """What was retained before is not any more, for sure."""
        tokens = [each for each, _ in self.retained]
        if token in tokens:
            del self.retained[: tokens.index(token)]

    # What the model knows.

    def ask(self, client: Client, pattern: str, qos: int | None) -> None:
        """Subscribe, or unsubscribe with None."""
        packet_id = client.new_packet_id()
        client.asked[packet_id] = (pattern, qos)
        client.promised.pop(pattern, None)
        if qos is None:
            client.subscriptions.pop(pattern, None)
            client.send(Unsubscribe(packet_id, (pattern,)))
        else:
            client.subscriptions[pattern] = qos
            client.send(Subscribe(packet_id, (TopicFilter(pattern, qos),)))

    def send_publish(self, client: Client, packet: Publish) -> None:
        """Also notes who is to get it."""
        is_known = packet.packet_id in self.table.session(client.name).received
        if packet.retain:
            self.numbers += 1
            self.retained.append((self.numbers, packet.payload))
            self.retaining[client.name, packet.packet_id] = self.numbers
        elif not (packet.qos == 2 and is_known):
            for each in self.clients.values():
                self.note(each, client.name, packet)
        client.send(packet)

    def note(self, client: Client, publisher: str, packet: Publish) -> None:
        granted = [
            qos
            for pattern, qos in client.subscriptions.items()
            if filter_selects(pattern, packet.topic)
        ]
        level = min(packet.qos, max(granted, default=0))
        if level:
            wanted = client.wanted.setdefault(
                packet.payload, Wanted(publisher, packet.topic, is_late=packet.dup)
            )
            wanted.levels.add(level)
            wanted.is_late = wanted.is_late or len(wanted.levels) > 1
            wanted.is_due = True

    def lose(self, client: Client) -> None:
        """The broker notices that the connection of `client` is gone."""
        client.hang_up()
        client.left_ms = self.table.now_ms
        if client.will is not None:
            delay_s = min(client.will.properties.will_delay_s or 0, client.expiry_s)
            client.will_due_ms = self.table.now_ms + delay_s * 1_000
            if not delay_s:
                self.publish_will(client)
        if not client.expiry_s:
            client.forget_session()

    def publish_will(self, client: Client) -> None:
        will, client.will, client.will_due_ms = client.will, None, 0
        if will is not None:
            self.wills.append(will.payload)

    def new_will(self, client: Client, delay_s: int) -> Will | None:
        if delay_s < 0:
            return None
        properties = Properties(will_delay_s=delay_s) if client.version == V5 else NO_PROPERTIES
        return Will(f"will/{client.name}", self.new_payload(), 1, False, properties)

    def new_payload(self) -> bytes:
        self.numbers += 1
        return str(self.numbers).encode()

    # Who can do something.

    def connected(self) -> list[Client]:
        return [each for each in self.clients.values() if each.peer is not None]

    def welcome(self) -> list[Client]:
        return [each for each in self.clients.values() if each.is_welcome]

    def answering(self) -> list[Client]:
        return [each for each in self.clients.values() if each.answers]

    def draw(self, data: st.DataObject, some: list[Client]) -> Client:
        return self.clients[data.draw(st.sampled_from([each.name for each in some]))]

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.channel_nets import CHANNEL, Net

from accord.core.channels import control_unicast as letter_module
from accord.core.channels.control_unicast import ControlUnicast, HopAck, UnicastMessage
from accord.core.channels.template import Context, Template
from accord.core.overlay.link_state import LinkStateMap

S = 1_000_000


class Mail(Template):
    """Sends letters and notes what comes."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.got: list[tuple[str, bytes]] = []
        self.letters = ControlUnicast(
            context.name, context.incarnation, context.map, self._say, self._letter
        )

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = msgspec.msgpack.decode(body, type=UnicastMessage | HopAck)
        if isinstance(message, UnicastMessage):
            self.letters.on_message(neighbour, channel, message, now_us)
        else:
            self.letters.on_ack(neighbour, message)

    def advance(self, now_us: int) -> None:
        self.letters.advance(now_us)

    def next_due_us(self) -> int | None:
        return self.letters.next_due_us()

    def check_invariants(self) -> None:
        self.letters.check_invariants()

    def _say(self, neighbour: str, channel: str, message: UnicastMessage | HopAck) -> None:
        self.context.send_message(neighbour, channel, msgspec.msgpack.encode(message))

    def _letter(self, origin: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        self.got.append((origin, body))


def mail(net: Net, name: str) -> Mail:
    node = net.nodes[name]
    assert isinstance(node, Mail)
    return node


def test_a_letter_goes_over_many_hops_that_lose_half() -> None:
    net = Net(Mail, "ab bc cd de")
    random = Random(1)  # noqa: S311
    net.loses = lambda *_: random.random() < 0.5
    for number in range(10):
        mail(net, "a").letters.send("e", CHANNEL, bytes([number]), net.now_us)
    net.run(3 * S)
    assert sorted(mail(net, "e").got) == [("a", bytes([number])) for number in range(10)]
    assert all(len(mail(net, name).letters) == 0 for name in net.names)


def test_another_way_where_a_link_fails() -> None:
    """Before anybody knows, and after."""
    net = Net(Mail, "ab bd ac cd")
    mail(net, "a").letters.send("d", CHANNEL, b"1", 0)
    way = net.sent[0][1]
    net.loses = lambda source, target, _: way in (source, target)
    net.run(S)
    assert mail(net, "d").got == [("a", b"1")]
    net.break_link("a", way)
    mail(net, "a").letters.send("d", CHANNEL, b"2", net.now_us)
    net.run(100_000)
    assert mail(net, "d").got == [("a", b"1"), ("a", b"2")]


def test_another_way_where_all_links_seem_to_fail_and_one_does_not() -> None:
    net = Net(Mail, "ad ab bd")
    for other in "bd":
        net.contexts["a"].map.set_link("a", other, 10_000, 0.0, False, 0.0)
    net.loses = lambda source, target, _: {source, target} == {"a", "d"}
    mail(net, "a").letters.send("d", CHANNEL, b"1", 0)
    net.run(S)
    assert mail(net, "d").got == [("a", b"1")]


def test_who_gets_no_further_with_a_letter_does_not_end_it() -> None:
    net = Net(Mail, "ab bd ac cb")
    net.loses = lambda _, target, __: target in "bd"
    mail(net, "a").letters.send("d", CHANNEL, b"1", 0)
    net.run(S)
    assert ("c", "a") in {each[:2] for each in net.sent}
    net.loses = lambda source, *_: source == "c"
    net.run(S)
    assert mail(net, "d").got == [("a", b"1")]
    assert len(mail(net, "a").letters) == 0


def test_a_letter_does_not_go_back() -> None:
    net = Net(Mail, "ab bc")
    net.contexts["b"].map.set_link("b", "c", 10_000, 0.0, False, 0.0)
    for source, target in ("ac", "ca"):
        net.contexts["b"].map.set_link(source, target, 10_000, 0.0, True, 0.0)
    mail(net, "a").letters.send("c", CHANNEL, b"1", 0)
    net.run(S)
    assert mail(net, "c").got == [("a", b"1")]


def test_over_a_link_that_does_not_count_where_no_other_leads_there() -> None:
    net = Net(Mail, "ab bc")
    for context in net.contexts.values():
        context.map.set_link("b", "c", 10_000, 0.0, False, 0.0)
    mail(net, "a").letters.send("c", CHANNEL, b"1", 0)
    net.run(S)
    assert mail(net, "c").got == [("a", b"1")]


def test_what_gets_nowhere_is_dropped() -> None:
    net = Net(Mail, "ab")
    mail(net, "a").letters.send("nowhere", CHANNEL, b"1", 0)
    assert len(mail(net, "a").letters) == 1
    net.run(20 * S)
    assert len(mail(net, "a").letters) == 0
    assert net.sent == []


def test_to_oneself() -> None:
    net = Net(Mail, "ab")
    mail(net, "a").letters.send("a", CHANNEL, b"1", 0)
    assert mail(net, "a").got == [("a", b"1")]


def test_so_much_waits_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_module, "MAX_BYTES", 1_000)
    letters = ControlUnicast("a", 1, LinkStateMap(), lambda *_: None, lambda *_: None)
    for number in range(1, 6):
        letters.on_message("b", CHANNEL, UnicastMessage("b", 1, number, "far", bytes(300)), 0)
        letters.check_invariants()
    assert len(letters) == 3
    letters.send("far", CHANNEL, bytes(5_000), 0)
    letters.check_invariants()
    assert len(letters) == 1
    letters.advance(6 * S)
    letters.check_invariants()
    assert len(letters) == 0

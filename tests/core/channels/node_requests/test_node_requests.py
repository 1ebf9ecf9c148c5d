"""Requests between nodes: loss, delay, partition, bounds, and what makes no sense."""

from __future__ import annotations

import zlib
from random import Random

import msgspec
import pytest
from tests.channel_nets import Net

from accord.core.channels.control_unicast import UnicastMessage
from accord.core.channels.node_requests.messages import (
    MAX_ANSWER,
    MAX_REPLY,
    MAX_REQUEST,
    AnswerPending,
    AnswerTooLargeError,
    NodeAnswer,
    NodeQuestion,
    RequestOutcome,
    RequestResult,
    encode,
    pack,
    unpack,
)
from accord.core.channels.node_requests.node_requests import (
    LIMIT_US,
    MAX_PENDING,
    MAX_WORKING,
    REQUESTS,
    SILENCE_US,
    NodeRequests,
)
from accord.core.channels.template import Context

S = 1_000_000
TOPIC = "$accord/status"


class SharedStore:
    """State records that all nodes see at once."""

    def __init__(self) -> None:
        self.answering: set[str] = set()
        self.seen: set[str] = set()

    def of(self, name: str) -> StoreView:
        return StoreView(self, name)


class StoreView:
    def __init__(self, shared: SharedStore, name: str) -> None:
        self._shared = shared
        self._name = name

    def reserve(self, kind: str, size: int) -> None: ...

    def put(self, kind: str, key: str, value: bytes) -> bool:
        assert (kind, key, value) == (REQUESTS, "", b"")
        self._shared.answering.add(self._name)
        self._shared.seen.add(self._name)
        return True

    def get(self, origin: str, kind: str, key: str) -> bytes | None:  # noqa: ARG002
        return b"" if origin in self._shared.answering else None

    def all(self, kind: str) -> list[tuple[str, str, bytes]]:
        assert kind == REQUESTS
        return [(name, "", b"") for name in self._shared.answering]

    def version_of(self, origin: str) -> tuple[int, int]:
        return (1, 1) if origin in self._shared.seen else (0, 0)


class Answering(NodeRequests):
    """A node that answers at once, with the request and its own name."""

    store = SharedStore()
    is_slow = False

    def __init__(self, context: Context) -> None:
        super().__init__(context, self.store.of(context.name))  # type: ignore[arg-type]
        self.performed: list[bytes] = []

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        super().on_message(neighbour, channel, body, now_us)
        if not self.is_slow:
            self.answer(now_us)

    def answer(self, now_us: int) -> None:
        orders, self.orders = self.orders, []
        for each in orders:
            self.performed.append(each.question.body)
            answer = each.question.body + b" at " + self.context.name.encode()
            self.reply(each, pack(answer), now_us, is_done=each.question.rights != b"none")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Answering.store = SharedStore()


def at(net: Net, name: str) -> Answering:
    node = net.nodes[name]
    assert isinstance(node, Answering)
    return node


def ask(net: Net, text: str, to: str = "c", rights: bytes = b"all") -> RequestOutcome | int:
    return at(net, "a").request(to, TOPIC, text.encode(), rights, net.now_us)


def results(net: Net) -> list[tuple[str, RequestResult, bytes]]:
    return [(each.node, each.result, each.body) for each in at(net, "a").outcomes]


def test_a_request_is_performed_at_another_node() -> None:
    net = Net(Answering, "ab bc")
    ask(net, "one")
    ask(net, "two", rights=b"none")
    net.run(S)
    assert results(net) == [
        ("c", RequestResult.ANSWERED, b"one at c"),
        ("c", RequestResult.REFUSED, b"two at c"),
    ]
    assert at(net, "a").nodes() == ["b", "c"]
    assert not any(count for node in net.nodes.values() for count in node.retained_state().values())


@pytest.mark.parametrize("seed", range(5))
def test_over_links_that_lose_half_each_request_has_one_outcome(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    net = Net(Answering, "ab bc cd ad")
    net.loses = lambda *_: random.random() < 0.5
    numbers = [ask(net, str(number), "bcd"[number % 3]) for number in range(30)]
    net.run(LIMIT_US + 5 * S)
    outcomes = at(net, "a").outcomes
    assert sorted(each.id for each in outcomes) == numbers
    assert all(each.result is RequestResult.ANSWERED for each in outcomes)
    assert not any(at(net, "a").retained_state().values())


def test_late_and_reordered_answers_go_to_who_asked() -> None:
    net = Net(Answering, "ab bc")
    net.late_us = 300_000
    numbers = [ask(net, str(number)) for number in range(10)]
    net.late_us = 0
    numbers += [ask(net, str(number)) for number in range(10, 20)]
    net.run(3 * S)
    outcomes = at(net, "a").outcomes
    assert [each.id for each in outcomes] != numbers  # reordered
    assert {each.id: each.body for each in outcomes} == {
        number: f"{text} at c".encode() for text, number in enumerate(numbers)
    }


def test_what_is_being_performed_is_performed_once_and_waited_for() -> None:
    net = Net(Answering, "ab bc")
    at(net, "c").is_slow = True
    ask(net, "slow")
    net.run(SILENCE_US + 4 * S)  # repeated meanwhile, and each time it says that it works on it
    assert results(net) == []
    assert len(at(net, "c").orders) == 1
    at(net, "c").answer(net.now_us)
    net.run(S)
    assert results(net) == [("c", RequestResult.ANSWERED, b"slow at c")]


def test_what_takes_too_long_times_out() -> None:
    net = Net(Answering, "ab bc")
    at(net, "c").is_slow = True
    ask(net, "slow")
    net.run(LIMIT_US - 1)
    assert results(net) == []
    net.run(1)
    assert results(net) == [("c", RequestResult.TIMED_OUT, b"")]
    at(net, "c").answer(net.now_us)  # too late: nobody waits
    net.run(S)
    assert len(at(net, "a").outcomes) == 1


def test_a_partition_ends_in_a_clear_outcome() -> None:
    net = Net(Answering, "ab bc")
    net.loses = lambda _, target, __: target == "c"  # nobody knows yet
    ask(net, "lost")
    net.run(SILENCE_US)
    assert results(net) == [("c", RequestResult.TIMED_OUT, b"")]
    net.break_link("b", "c")
    refused = ask(net, "now known")
    assert isinstance(refused, RequestOutcome)
    assert refused.result is RequestResult.UNREACHABLE
    assert at(net, "a").nodes() == ["b"]
    assert at(net, "a").known_nodes() == ["b", "c"]


def test_after_a_short_partition_the_request_is_answered() -> None:
    net = Net(Answering, "ab bc")
    net.loses = lambda _, target, __: target == "c"
    ask(net, "patience")
    net.run(2 * S)
    net.loses = lambda *_: False
    net.run(S)
    assert results(net) == [("c", RequestResult.ANSWERED, b"patience at c")]


def test_a_node_that_restarts_performs_the_repetition() -> None:
    net = Net(Answering, "ab bc")
    at(net, "c").is_slow = True
    ask(net, "again")
    net.run(500_000)
    net.start("c", 2)
    net.run(2 * S)
    assert results(net) == [("c", RequestResult.ANSWERED, b"again at c")]


def test_unknown_and_old_nodes_are_told_apart() -> None:
    net = Net(Answering, "ab bc")
    unknown = ask(net, "x", "atlantis")
    assert isinstance(unknown, RequestOutcome)
    assert unknown.result is RequestResult.UNKNOWN
    Answering.store.answering.discard("c")
    old = ask(net, "x")
    assert isinstance(old, RequestOutcome)
    assert old.result is RequestResult.TOO_OLD
    Answering.store.seen.discard("c")  # its records have not come yet
    assert isinstance(ask(net, "x"), int)


def test_requests_are_bounded() -> None:
    net = Net(Answering, "ab bc")
    at(net, "b").is_slow = at(net, "c").is_slow = True
    for number in range(MAX_PENDING):
        assert isinstance(ask(net, str(number), "bc"[number % 2]), int)
    more = ask(net, "more")
    large = at(net, "c").request("b", TOPIC, bytes(MAX_REQUEST), b"all", 0)
    assert isinstance(more, RequestOutcome)
    assert isinstance(large, RequestOutcome)
    assert (more.result, large.result) == (RequestResult.BUSY, RequestResult.TOO_LARGE)
    net.run(S // 2)
    for name in "bc":
        assert len(at(net, name).orders) == MAX_WORKING // 2
        assert at(net, name).refused == MAX_PENDING // 2 - MAX_WORKING // 2
    assert {each.result for each in at(net, "a").outcomes} == {RequestResult.BUSY}


def test_nobody_waits_for_what_was_cancelled() -> None:
    net = Net(Answering, "ab bc")
    number = ask(net, "x")
    assert isinstance(number, int)
    at(net, "a").cancel(number)
    net.run(SILENCE_US)
    assert results(net) == []
    assert not any(at(net, "a").retained_state().values())


def hear(net: Net, message: object, origin: str = "c") -> None:
    Net.heard = getattr(Net, "heard", 1_000) + 1  # type: ignore[attr-defined]
    body = message if isinstance(message, bytes) else encode(message)
    unicast = UnicastMessage(origin, 1, Net.heard, "a", body)  # type: ignore[attr-defined]
    at(net, "a").on_message("b", "", encode(unicast), net.now_us)
    at(net, "a").check_invariants()


def test_answers_of_others_than_who_was_asked_count_for_nothing() -> None:
    net = Net(Answering, "ab bc")
    at(net, "c").is_slow = True
    number = ask(net, "x")
    assert isinstance(number, int)
    hear(net, NodeAnswer(number, is_done=True, packed=pack(b"forged")), "b")
    hear(net, NodeAnswer(number + 1, is_done=True, packed=pack(b"forged")))
    assert results(net) == []
    hear(net, NodeAnswer(number, is_done=True, packed=b"not compressed"))
    assert results(net) == [("c", RequestResult.UNREADABLE, b"")]


def test_nonsense_is_counted() -> None:
    net = Net(Answering, "ab bc")
    node = at(net, "a")
    node.on_message("b", "", b"\xc1", 0)
    for nonsense in (
        b"\xc1",
        msgspec.msgpack.encode(["ask", 1]),
        NodeQuestion(-1, TOPIC, b"", b""),
        NodeQuestion(1, "x" * 1_000, b"", b""),
        NodeQuestion(1, TOPIC, bytes(MAX_REQUEST), b"x"),
    ):
        hear(net, nonsense)
    hear(net, AnswerPending(77))  # never asked
    assert node.dropped == 6
    assert node.orders == []


def test_answers_are_compressed_and_bounded() -> None:
    body = b'{"rows":["the same","the same"]}' * 10_000
    packed = pack(body)
    assert len(packed) < MAX_REPLY < len(body)
    assert unpack(packed) == body
    noise = Random(1).randbytes(MAX_REPLY + 1)  # noqa: S311
    for large in (bytes(MAX_ANSWER + 1), noise):
        with pytest.raises(AnswerTooLargeError):
            pack(large)
    for damaged in (b"", b"\x00", packed[:-1], packed + b"x"):
        assert unpack(damaged) is None
    bomb = pack(bytes(MAX_ANSWER))
    assert unpack(bomb) == bytes(MAX_ANSWER)
    assert unpack(zlib.compress(bytes(MAX_ANSWER + 1))) is None

"""Why an event arrived as it did: from this node's ledger, other nodes and the archive."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from accord.core.monitoring.ledger import (
    DELIVERED,
    EXPIRED,
    LATE,
    LedgerEntry,
    deadline_detail,
    event_id,
    hop_detail,
)
from accord.core.monitoring.outcomes import DeliveryOutcomes, outcome_of
from accord.core.queries.messages import Page, QueryHit
from accord.core.router.rights import EVERYTHING, Rights
from accord.journal.ledger_records import ArchivedEntry
from accord.operations.event_sources import EventHere, FindEventHere
from accord.operations.operation import Asker, Request, RequestError
from accord.operations.ports import NodePorts
from accord.operations.status import ListOutcomes
from tests.fake_ledger import FIRST, START_MS, FakeLedger
from tests.fake_node import FakeNode
from tests.operations.asking import ask

NUMBER = FIRST + 1_000
EVENT = event_id(NUMBER)


def entry(to: str, outcome: int = DELIVERED, **facts: Any) -> LedgerEntry:
    usual = {
        "number": NUMBER, "channel": "uav/imagery", "publisher": "raven-7", "destination": to,
        "outcome": outcome, "received_ms": START_MS, "queued_ms": START_MS, "done_ms": START_MS + 3,
        "size": 100, "importance": 3,
    }  # fmt: skip
    return msgspec.convert({**usual, **facts}, LedgerEntry)


def add(view: FakeLedger, one: LedgerEntry) -> None:
    view.ledger.add(
        one.number, one.count, one.channel, one.publisher, one.destination, one.outcome,
        one.received_ms, one.queued_ms, one.done_ms, one.size, one.importance, one.policy,
        one.detail, one.sending_us,
    )  # fmt: skip


class Others:
    """Other nodes with what they know; `silent` ones never answer."""

    def __init__(self, known: dict[str, list[LedgerEntry]], silent: tuple[str, ...] = ()) -> None:
        self.known = known
        self.silent = silent
        self.asked: list[str] = []

    def nodes(self) -> list[str]:
        return [*self.known, *self.silent]

    async def ask(self, name: str, request: Request[Any], _asker: Asker) -> Any:
        self.asked.append(name)
        if name not in self.known:
            raise RequestError(504, f"node {name} does not answer", "node")
        found = tuple(outcome_of(each, name) for each in self.known[name])
        if isinstance(request, FindEventHere):
            return EventHere(node=name, outcomes=found)
        assert isinstance(request, ListOutcomes)
        left = entry("node washington", number=NUMBER + 7, policy="", importance=7)
        return DeliveryOutcomes(outcomes=(outcome_of(left, name),), is_complete=True)


class Pipeline:
    def __init__(self, archived: list[LedgerEntry], kept: tuple[QueryHit, ...] = ()) -> None:
        self.archived = archived
        self.kept = kept

    async def net_records(self, since_ms: int, until_ms: int, most: int) -> bytes:
        raise NotImplementedError(since_ms, until_ms, most)

    async def ledger(self, number: int, most: int) -> bytes:
        assert (number, most) == (NUMBER, 10_000)
        return msgspec.msgpack.encode([ArchivedEntry("here", each) for each in self.archived])

    async def page(self, query: Any, **_: Any) -> Page:
        assert query.number == NUMBER
        return Page(id=1, events=self.kept)


def node(view: FakeLedger, **parts: Any) -> NodePorts:
    return NodePorts(view=FakeNode(), ledger=view, **parts)


def why(of: NodePorts, rights: Rights = EVERYTHING, **fields: Any) -> dict[str, Any]:
    request = {"do": "get", "event": EVENT, **fields}
    return ask(of, "$accord/events", request, rights=rights)


HERE = FakeNode().name
ACROSS = [("seattle", 0), ("denver", 90_000)]


def across() -> tuple[FakeLedger, Others]:
    """An event that came by denver, which was slow, and was late here."""
    view = FakeLedger()
    add(
        view,
        entry(
            f"node {HERE}",
            queued_ms=START_MS + 300,
            done_ms=START_MS + 300,
            detail=hop_detail(ACROSS, 0),
        ),
    )
    add(
        view,
        entry(
            "ops-dc",
            LATE,
            queued_ms=START_MS + 300,
            done_ms=START_MS + 301,
            detail=deadline_detail(200),
        ),
    )
    sent = entry(
        f"node {HERE}",
        queued_ms=START_MS + 90,
        done_ms=START_MS + 270,
        detail=hop_detail(ACROSS, 0),
    )
    other_event = entry("intruder", publisher="someone else")
    first = entry("node denver", done_ms=START_MS + 20, detail=hop_detail(ACROSS[:1], 0))
    return view, Others({"denver": [sent, other_event], "seattle": [first]})  # fmt: skip


def test_other_nodes_say_where_the_time_went() -> None:
    view, others = across()
    found = why(node(view, others=others))
    assert found["verdict"]["sentence"].startswith(
        f"101 ms late at ops-dc: it waited 180 ms at denver for the link to {HERE}"
    )
    assert (found["nodes"], found["unanswered"]) == ([HERE, "seattle", "denver"], [])
    assert [each["node"] for each in found["path"]["hops"]] == ["seattle", "denver", HERE]
    assert "intruder" not in {each["destination"] for each in found["outcomes"]}
    assert sorted(set(others.asked)) == ["denver", "seattle"]


def test_a_node_that_does_not_answer_is_named() -> None:
    view, others = across()
    del others.known["denver"]
    found = why(node(view, others=others))
    assert found["unanswered"] == ["denver"]
    assert "it took 210 ms at denver and on the link to" in found["verdict"]["sentence"]


def test_a_node_that_never_saw_it_answers_as_well() -> None:
    found = why(node(FakeLedger(), others=Others({"seattle": [entry("desk")]}, ("denver",))))
    assert found["verdict"]["sentence"] == "Delivered to desk after 3 ms."
    assert (found["nodes"], found["unanswered"]) == (["seattle"], ["denver"])


def test_the_archive_has_what_the_ledger_has_no_more() -> None:
    archived = [entry("desk", EXPIRED, detail=deadline_detail(2))]
    found = why(node(FakeLedger(), pipeline=Pipeline(archived)))
    assert found["is_archived"]
    assert found["verdict"]["sentence"].startswith("Expired for desk, due within 2 ms: ")


def test_a_kept_event_that_nobody_wanted() -> None:
    kept = QueryHit(1, NUMBER, START_MS, "uav/imagery", "raven-7", 1, b"", b"x")
    pipeline = Pipeline([], (kept,))
    found = why(node(FakeLedger(), pipeline=pipeline))
    assert found["verdict"]["cause"] == "nobody subscribed"
    assert found["publisher"] == "raven-7"
    hidden = why(
        node(FakeLedger(), pipeline=pipeline), Rights(subscribe=("cas/#",), statistics=True)
    )
    assert hidden["status"] == 404
    assert why(node(FakeLedger(), pipeline=Pipeline([])))["status"] == 404


def test_the_path_of_another_destination() -> None:
    view = FakeLedger()
    add(view, entry("desk"))
    add(view, entry("b", LATE, done_ms=START_MS + 50, detail=deadline_detail(20)))
    assert why(node(view))["path"]["destination"] == "b"
    assert why(node(view), destination="desk")["path"]["destination"] == "desk"
    refused = why(node(view), destination="nobody")
    assert (refused["status"], refused["place"]) == (404, "destination")


def test_behind_what_may_not_be_seen() -> None:
    view = FakeLedger()
    add(view, entry("b", LATE, done_ms=START_MS + 50, detail=deadline_detail(20)))
    for number in range(3):
        add(view, entry("b", number=NUMBER + 9 + 5 * number, channel="cas/secret", importance=7,
                        policy="Secret", done_ms=START_MS + 40))  # fmt: skip
    told = f"it waited 50 ms at {HERE} behind "
    assert f"{told}policy Secret (3 events)" in why(node(view))["verdict"]["sentence"]
    found = why(node(view), Rights(subscribe=("uav/#",), statistics=True))
    assert f"{told}3 events, importance 7" in found["verdict"]["sentence"]
    assert "ecret" not in msgspec.json.encode(found).decode()


def test_what_may_not_be_seen_stays_hidden() -> None:
    view = FakeLedger()
    add(view, entry("b", LATE, done_ms=START_MS + 50, detail=deadline_detail(20)))
    add(view, entry("b", LATE, number=NUMBER + 5, channel="cas/secret", done_ms=START_MS + 51,
                    detail=deadline_detail(20)))  # fmt: skip
    assert why(node(view))["same"]["events"] == 1
    some = Rights(subscribe=("uav/#",), statistics=True)
    found = why(node(view), some)
    assert found["same"]["events"] == 0
    assert "secret" not in msgspec.json.encode(found).decode()
    assert why(node(view), Rights(subscribe=("cas/#",), statistics=True))["status"] == 404
    assert why(node(view), Rights(subscribe=("#",), statistics=False))["status"] == 403


@pytest.mark.parametrize("event", ["", "hello!", "Z" * 14])
def test_ids_that_are_none(event: str) -> None:
    assert why(node(FakeLedger()), event=event)["status"] == 400


def test_a_silent_network_is_not_waited_for() -> None:
    class Hanging(Others):
        async def ask(self, _name: str, _request: Request[Any], _asker: Asker) -> Any:
            await asyncio.sleep(60)

    view, _ = across()
    found = why(node(view, others=Hanging({})))
    assert set(found["unanswered"]) == {"seattle", "denver"}

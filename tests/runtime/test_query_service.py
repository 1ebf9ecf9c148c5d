"""`$accord/query` and `since`: a real client and a real node, with a pipeline that pretends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import fake_pipeline

import accord
from accord.client.errors import QueryError, RefusedError
from accord.client.messages import ReceivedEvent
from accord.client.session import Session
from accord.core.mqtt.properties import CHANNEL, END, PAGE
from accord.core.queries.messages import EventQuery, encode_token
from accord.core.router.rights import EVERYTHING, Rights
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.pipeline import PipelineOptions
from accord.runtime.users import Users

FORGED = encode_token(EventQuery(channel="a", from_offset=10**15, before_offset=2**62), "x")

Check = Callable[[Node, Session], Awaitable[None]]


@asynccontextmanager
async def opened(
    folder: Path,
    *lives: dict[str, Any],
    rights: Rights = EVERYTHING,
    pipeline: PipelineOptions | None = None,
) -> AsyncIterator[tuple[Node, Session]]:
    if lives:
        pipeline = PipelineOptions(command=fake_pipeline.command(*lives))
    settings = Settings(
        name="n",
        data=folder,
        kept=("a",),
        listeners=(ListenerSettings(SocketAddress("127.0.0.1", 0)),),
        pipeline=pipeline,
    )
    async with (
        Node(settings, Users((), anonymous=rights)) as node,
        accord.connect(f"mqtt://{node.addresses[0]}") as session,
    ):
        yield node, session


def run(check: Check, folder: Path, *lives: dict[str, Any], **options: Any) -> None:
    async def scene() -> None:
        async with opened(folder, *lives, **options) as (node, session):
            await check(node, session)

    asyncio.run(scene())


async def ask(session: Session, **question: Any) -> list[ReceivedEvent]:
    """The messages of one page, as any client gets them, the last one its end."""
    async with session.subscribe("answers") as answers:
        await session.publish(
            "$accord/query",
            json.dumps(question),
            response_topic="answers",
            correlation_data=b"me",
        )
        came = []
        async for each in answers:
            assert each.properties.correlation_data == b"me"
            came.append(each)
            if (PAGE, END) in each.properties.user:
                break
        return came


def test_a_page_is_a_message_for_each_event_and_one_that_ends_it(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        *events, end = await ask(session, do="find", channel="a", order="oldest", page=3)
        assert [each.payload for each in events] == [b"0", b"1", b"2"]
        assert all((CHANNEL, "a") in each.properties.user for each in events)
        told = json.loads(end.payload)
        assert (told["ok"], told["count"], told["files"]) == (True, 3, 3)
        *events, end = await ask(session, do="next", cursor=told["cursor"], page=3)
        assert [each.payload for each in events] == [b"3", b"4"]
        assert json.loads(end.payload)["cursor"] is None

    run(check, tmp_path, {"events": 5})


@pytest.mark.parametrize(
    ("question", "place", "error"),
    [
        ({}, "do", "expected one of find, next, cancel"),
        ({"do": "find"}, "channel", "expected a filter of channels"),
        ({"do": "find", "channel": "a/#/b"}, "channel", "#"),
        ({"do": "find", "channel": "a", "where": "x >"}, "where", "ends too early"),
        ({"do": "find", "channel": "a", "since": "soon"}, "since", "expected a time"),
        ({"do": "find", "channel": "a", "since": "now", "until": "-1h"}, "since", "before"),
        ({"do": "find", "channel": "a", "limit": 0}, "limit", "expected 1 to"),
        ({"do": "find", "channel": "a", "page": 5_000}, "page", "1 to 1000"),
        ({"do": "find", "channel": "a", "colour": 1}, "request", "unknown field colour"),
        ({"do": "find", "channel": "a", "limit": 10**30}, "limit", "expected 1 to"),
        ({"do": "find", "event": "0", "where": "x > 1"}, "channel", "with a predicate"),
        ({"do": "find", "event": "?"}, "event", ""),
        ({"do": "next", "cursor": FORGED}, "cursor", "just as it was given"),
        ({"do": "next", "cursor": "?"}, "cursor", "just as it was given"),
        ({"do": "find", "channel": "secret"}, "channel", "may not subscribe"),
    ],
)
def test_a_bad_question_is_answered_with_what_is_wrong(
    question: dict[str, Any], place: str, error: str, tmp_path: Path
) -> None:
    async def check(_: Node, session: Session) -> None:
        (end,) = await ask(session, **question)
        told = json.loads(end.payload)
        assert (told["ok"], told["place"]) == (False, place)
        assert error in told["detail"]

    rights = Rights(publish=("#",), subscribe=("a", "answers", "a/#"))
    run(check, tmp_path, {"events": 1}, rights=rights)


def test_one_event_is_found_by_its_id_only_by_who_may_see_its_channel(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        *events, end = await ask(session, do="find", event="0")
        told = json.loads(end.payload)
        assert (events, told["ok"], told["count"]) == ([], True, 0)

    run(check, tmp_path, {"events": 1}, rights=Rights(publish=("#",), subscribe=("answers",)))


def test_who_is_not_subscribed_to_the_response_topic_is_told(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        with pytest.raises(RefusedError, match="expected a response topic that you are subscribed"):
            await session.publish("$accord/query", "{}", response_topic="elsewhere")

    run(check, tmp_path, {"events": 1})


def test_more_events_than_a_queue_holds_come_page_by_page(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        numbers = [int(event.payload) async for event in session.query("a", newest_first=False)]
        assert numbers == list(range(2_500))

    run(check, tmp_path, {"events": 2_500})


def test_a_query_goes_on_when_the_pipeline_died_of_it(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        numbers = [int(event.payload) async for event in session.query("a", newest_first=False)]
        assert numbers == [0, 1]

    run(check, tmp_path, {"exit": 1, "on": "query"}, {"events": 2})


def test_without_a_pipeline_queries_say_why_there_is_no_answer(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        with pytest.raises(QueryError, match="switched off"):
            [event async for event in session.query("a")]
        with pytest.raises(RefusedError, match="there is no data pipeline: it is switched off"):
            async with session.subscribe("a", since="-1h"):
                pass

    run(check, tmp_path)


def test_without_java_past_and_queries_come_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is the real one, which does without Spark."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    async def check(node: Node, session: Session) -> None:
        await session.publish("a", "kept", qos=1)
        async with asyncio.timeout(60):
            async with session.subscribe("a", since="-1h") as events:
                assert (await anext(events)).text == "kept"
            assert [event.text async for event in session.query("a")] == ["kept"]
            while "install one" not in node.pipeline.status().problem:
                await asyncio.sleep(0.01)
        status = node.pipeline.status()
        assert (status.state, status.restarts, status.events) == ("partial", 0, 0)

    run(check, tmp_path, pipeline=PipelineOptions())


def test_a_past_that_began_before_java_was_found_lacking_ends_with_the_reason(
    tmp_path: Path,
) -> None:
    async def check(_: Node, session: Session) -> None:
        async with asyncio.timeout(30):
            with pytest.raises(RefusedError, match=r"there is no data pipeline: .*; install one"):
                # A busy machine may find out before it subscribes, and refuses it then.
                async with session.subscribe("a", since="-1h") as events:
                    await anext(events)

    run(check, tmp_path, {"exit": 2, "problem": "Spark needs Java 17; install one"})


def test_a_past_that_ends_the_pipeline_is_not_asked_for_for_ever(tmp_path: Path) -> None:
    """The subscription ends with the reason, and the pipeline goes on with its work."""
    life = {"exit": 9, "on": "query", "of": "a", "prints": "Killed", "events": 1}

    async def check(node: Node, session: Session) -> None:
        async with asyncio.timeout(60):
            for _ in range(2):  # also for who comes again
                with pytest.raises(RefusedError, match="ended with code 9: Killed"):
                    async with session.subscribe("a", since="-1h") as events:
                        await anext(events)
            assert [event.text async for event in session.query("b")] == ["0"]
        assert node.pipeline.status().restarts == 2

    run(check, tmp_path, life)


def test_history_and_then_live(tmp_path: Path) -> None:
    async def check(_: Node, session: Session) -> None:
        async with session.subscribe("a", since="-1h") as events:
            await session.publish("a", "live")
            came = [await anext(events) for _ in range(601)]
        assert [event.text for event in came] == [*map(str, range(600)), "live"]

    run(check, tmp_path, {"events": 600})


def test_a_past_that_can_not_be_read_ends_the_subscription(tmp_path: Path) -> None:
    async def check(node: Node, session: Session) -> None:
        with pytest.raises(RefusedError, match=r"of a can't be read: .*no such column"):
            async with session.subscribe("a", since="-1h") as events:
                await anext(events)
        await session.publish("b", "back again")  # its connection was ended
        (found,) = (each for each in node.broker.sessions.values())
        assert "a" not in found.subscriptions

    run(check, tmp_path, {"fails": ["no such column", "where"]})

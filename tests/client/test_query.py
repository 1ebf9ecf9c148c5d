"""Queries, with an archive that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest

from accord.client.errors import QueryError, SessionClosedError
from accord.client.messages import ReceivedEvent
from accord.client.query import Query
from accord.core.model.errors import EventError
from tests.client.fake_archive import FIRST_MS, FakeArchive


def play(test: Callable[[], Coroutine[None, None, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


def numbers(events: list[ReceivedEvent]) -> list[object]:
    return [event.attributes["n"] for event in events]


def test_events_come_as_they_were() -> None:
    async def test() -> None:
        archive = FakeArchive(3)
        async with archive.connected() as session:
            query = session.query("uav/#", where="n >= 0", since="-24h", newest_first=False)
            events = [event async for event in query]
        assert numbers(events) == [0, 1, 2]
        event = events[2]
        assert (event.channel, event.id, event.source) == ("uav/imagery", "2", "camera")
        assert event.received_ms == event.published_ms == FIRST_MS + 2000
        assert event.attributes == {"n": 2}
        assert event.is_kept
        assert archive.asked == [
            {
                "do": "find",
                "channel": "uav/#",
                "where": "n >= 0",
                "since": "-24h",
                "order": "oldest",
                "page": 200,
            }
        ]
        stats = query.stats
        assert (stats.events, stats.pages, stats.files, stats.files_skipped) == (3, 1, 2, 5)
        assert (stats.bytes, stats.tail, stats.took_ms, stats.missing) == (1000, 1, 3, 0)

    play(test)


def test_page_after_page() -> None:
    async def test() -> None:
        archive = FakeArchive(25)
        async with archive.connected() as session:
            query = session.query("uav/#", page=10)
            assert numbers([event async for event in query]) == list(range(24, -1, -1))
        assert archive.asked[1:] == [
            {"do": "next", "cursor": "10", "page": 10},
            {"do": "next", "cursor": "20", "page": 10},
        ]
        assert query.stats.pages == 3

    play(test)


async def _all(query: Query) -> list[ReceivedEvent]:
    return [event async for event in query]


def test_two_queries_at_once_get_their_own() -> None:
    async def test() -> None:
        archive = FakeArchive(30)
        async with archive.connected() as session:
            one, other = session.query("a", page=7), session.query("b", page=5)
            async with one, other:
                first, second = await asyncio.gather(*(_all(each) for each in (one, other)))
        assert numbers(first) == numbers(second) == list(range(29, -1, -1))

    play(test)


def test_a_slow_consumer_has_at_most_two_pages_wait() -> None:
    async def test() -> None:
        archive = FakeArchive(100)
        async with archive.connected() as session, session.query("a", page=10) as query:
            await anext(query)
            await archive.until_asked(2)
            for _ in range(200):  # whatever else might be asked for
                await asyncio.sleep(0)
            assert len(archive.asked) == 2
            for _ in range(8):
                await anext(query)
            assert len(archive.asked) == 2
            await anext(query)
            await archive.until_asked(3)
            assert len([event async for event in query]) == 90

    play(test)


@pytest.mark.parametrize("is_resumed", [True, False])
@pytest.mark.parametrize("cut_at", [24, 20, 15, 14, 3, 0])
def test_a_broken_connection_costs_nothing_and_repeats_nothing(
    cut_at: int, is_resumed: bool
) -> None:
    async def test() -> None:
        archive = FakeArchive(25)
        archive.cut_at = cut_at
        archive.is_resumed = is_resumed
        async with archive.connected() as session:
            query = session.query("uav/#", page=10)
            assert numbers([event async for event in query]) == list(range(24, -1, -1))
        asked = [each for each in archive.asked if each["do"] != "cancel"]
        assert len(asked) == 4
        assert query.stats.missing == 0
        if cut_at in (20, 15):  # newer events must not come in between
            moment = datetime.fromtimestamp(FIRST_MS / 1000 + 24, UTC)
            assert datetime.fromisoformat(asked[1]["until"]) == moment + timedelta(milliseconds=1)

    play(test)


@pytest.mark.parametrize("gone_at", [0, 10, 20])
def test_that_we_were_gone_is_no_answer(gone_at: int) -> None:
    async def test() -> None:
        archive = FakeArchive(25)
        archive.gone_at = gone_at
        async with archive.connected() as session:
            events = [event async for event in session.query("uav/#", page=10)]
        assert numbers(events) == list(range(24, -1, -1))

    play(test)


def test_a_limit_holds_whatever_comes() -> None:
    async def test() -> None:
        archive = FakeArchive(25)
        async with archive.connected() as session:
            query = session.query("uav/#", limit=12, page=10)
            assert numbers([event async for event in query]) == list(range(24, 12, -1))
            assert archive.asked[0]["limit"] == 12
            assert len([event async for event in session.query("uav/#", limit=3)]) == 3
            assert archive.asked[-1]["page"] == 3

    play(test)


def test_what_policies_dropped_is_counted() -> None:
    async def test() -> None:
        archive = FakeArchive(25)
        archive.dropped = {3, 4, 24}
        async with archive.connected() as session:
            query = session.query("uav/#", page=10)
            assert len([event async for event in query]) == 22
        assert query.stats.missing == 3

    play(test)


async def _leave(archive: FakeArchive, query: Query, how: str) -> None:
    if how == "with":
        async with query:
            await anext(query)
            await archive.until_asked(2)
        return
    async for _ in query:
        await archive.until_asked(2)
        if how == "break":
            break
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["break", "with", "error"])
def test_leaving_early_tells_the_node(how: str) -> None:
    async def test() -> None:
        archive = FakeArchive(50)
        archive.holds_after = 1
        async with archive.connected() as session:
            with suppress(ZeroDivisionError):
                await _leave(archive, session.query("uav/#", page=10), how)
            await archive.until_asked(3)
        assert [each["do"] for each in archive.asked] == ["find", "next", "cancel"]

    play(test)


def test_leaving_while_the_node_works_cancels() -> None:
    async def test() -> None:
        archive = FakeArchive(50)
        archive.holds_after = 0
        async with archive.connected() as session:
            async with session.query("uav/#") as query:
                waiting = asyncio.create_task(anext(query))
                await archive.until_asked(1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await archive.until_asked(2)
        assert archive.asked[1] == {"do": "cancel"}

    play(test)


def test_the_nodes_refusal_has_its_place() -> None:
    async def test() -> None:
        archive = FakeArchive(5)
        archive.failure = {"ok": False, "detail": "unexpected '>'", "place": "where"}
        async with archive.connected() as session:
            with pytest.raises(QueryError, match="where: unexpected") as caught:
                async for _ in session.query("uav/#"):
                    pass
            assert (caught.value.problem, caught.value.place) == ("unexpected '>'", "where")
            archive.failure = {"strange": 1}
            with pytest.raises(QueryError, match="invalid reply"):
                await anext(session.query("uav/#"))

    play(test)


def test_a_node_that_says_nothing() -> None:
    async def test() -> None:
        archive = FakeArchive(5)
        archive.holds_after = 0
        async with archive.connected() as session:
            with pytest.raises(QueryError, match=r"no answer for 0\.01 s"):
                await anext(session.query("uav/#", timeout_s=0.01))

    play(test)


def test_a_closed_session_is_no_end_of_the_results() -> None:
    async def test() -> None:
        archive = FakeArchive(5)
        archive.holds_after = 0
        async with archive.connected() as session:
            query = session.query("uav/#")
            waiting = asyncio.create_task(anext(query))
            await archive.until_asked(1)
        with pytest.raises(SessionClosedError):
            await waiting

    play(test)


def test_moments_in_many_forms() -> None:
    async def test() -> None:
        archive = FakeArchive(1)
        noon = datetime(2026, 11, 16, 13, tzinfo=timezone(timedelta(hours=1)))
        async with archive.connected() as session:
            async for _ in session.query("a", since=timedelta(hours=1), until=noon, event="-2-"):
                pass
        assert archive.asked[0]["since"] == "-3600000ms"
        assert archive.asked[0]["until"] == "2026-11-16T12:00:00Z"
        assert archive.asked[0]["event"] == "2"

    play(test)


def test_mistakes_show_at_once() -> None:
    async def test() -> None:
        archive = FakeArchive(1)
        async with archive.connected() as session:
            for message, arguments in (
                ("channel: expected '#' as the last", {"channel": "a/#/b"}),
                ("one of where and xpath", {"where": "a", "xpath": "b"}),
                ("since: expected a time such as", {"since": "yesterday"}),
                ("until: expected a time with its", {"until": datetime(2026, 1, 1)}),
                ("limit: expected at least 1", {"limit": 0}),
                ("page: expected at least 1", {"page": 0}),
            ):
                with pytest.raises(ValueError, match=message):
                    session.query(**{"channel": "a", **arguments})  # type: ignore[arg-type]
            with pytest.raises(EventError, match="event id"):
                session.query("a", event="!")
        assert archive.asked == []

    play(test)

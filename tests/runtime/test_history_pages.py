"""Pages of the past from a real journal, with records of other kinds, damage and retirement."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from accord.core.broker.broker import make_message
from accord.core.broker.kept_messages import journal_form
from accord.core.channels.channels import Channels
from accord.core.channels.history.messages import (
    PERSISTENT,
    HistoryPage,
    HistorySelector,
    PageRequest,
)
from accord.core.mqtt.properties import Properties
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.queries.messages import EventQuery, QueryHit
from accord.core.queries.messages import Page as ArchivePage
from accord.journal.events import encode_event
from accord.journal.options import JournalOptions
from accord.journal.retention import Retention
from accord.journal.writer import Journal
from accord.runtime import history_pages
from accord.runtime.history_pages import HistoryPages, PageUnavailableError
from accord.runtime.pipeline import Pipeline

NOW_MS = 1_750_000_000_000
DAY_MS = 86_400_000


class Shelf:
    """A journal that is being written, and what is read from it."""

    def __init__(self, folder: Path, segment_bytes: int = 64 << 20) -> None:
        self.folder = folder
        retention = Retention(max_bytes=1)
        self.journal = Journal.open(
            folder,
            JournalOptions(segment_bytes=segment_bytes, retention=retention, is_threaded=False),
            on_commit=lambda _: None,
            on_failure=lambda _: None,
        )
        self.channels = Channels(Overlay("me", 1, OverlayOptions(), lambda: 0.5, lambda *_: None))
        for name, text in (("chat/#", "true"), ("week/#", "7d")):
            definition = ChannelDefinition(name=name, options={PERSISTENT: text})
            self.channels.overlay.directory.create(definition)
        self.pipeline = Pipeline(None, node="me", data=folder)
        self.pages = HistoryPages(
            folder,
            self.channels,
            self.pipeline,
            committed=lambda: self.journal.status().committed_offset,
            now_ms=lambda: NOW_MS,
        )

    def keep(
        self, channel: str, text: str, *, ago_ms: int = 0, node: str = "", **user: str
    ) -> None:
        at_ms = NOW_MS - ago_ms
        properties = Properties(user=tuple(user.items()))
        message = make_message(channel, text.encode(), 1, False, "bob", at_ms, properties)
        self.journal.append([encode_event(journal_form(message, node))])
        self.journal.work()

    def retire(self) -> None:
        """Let go of all files but the last."""
        done = self.journal.retire()
        while not done.done():
            self.journal.work()

    def read(
        self, wanted: HistorySelector, cursor: str = "", rows: int = 100, start: int = 0
    ) -> HistoryPage:
        before = self.journal.status().committed_offset
        asked = PageRequest(1, wanted, start, before, cursor, rows, 1 << 20)
        return asyncio.run(self.pages.read(asked))

    def all(self, wanted: HistorySelector, rows: int = 100) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = self.read(wanted, cursor, rows)
            assert len(page.events) <= rows
            found += [each.payload.decode() for each in page.events]
            cursor = page.cursor
            if not cursor:
                return found


def test_pages_follow_each_other_and_have_only_what_is_wanted(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for number in range(25):
        shelf.keep("chat/a", str(number), level=str(number))
        shelf.keep("other", "no")
        shelf.keep("chat/b", "no", node="elsewhere")
        shelf.journal.append([b"something else"])
    numbers = [str(number) for number in range(25)]
    assert shelf.all(HistorySelector("chat/#")) == numbers
    assert shelf.all(HistorySelector("#"), rows=3) == numbers
    assert shelf.all(HistorySelector("chat/#", where="level >= 20"), rows=2) == numbers[20:]
    assert shelf.all(HistorySelector("chat/b")) == []


def test_events_of_secondary_nodes_have_their_names(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("chat/a", "1", level="3")
    for number, text in ((17, "2"), (18, "3")):
        user = Properties(user=(("level", "4"),))
        message = make_message("chat/a", text.encode(), 1, False, "cy", NOW_MS, user)
        message.event_node, message.event_number = "x@1", number
        shelf.journal.append([encode_event(journal_form(message))])
        shelf.journal.work()
    found = shelf.read(HistorySelector("chat/#", where="level = 4")).events
    assert [(each.origin, each.original) for each in found] == [("x@1", 17), ("x@1", 18)]
    assert shelf.read(HistorySelector("chat/#")).events[0].origin == ""


def test_a_look_goes_no_further_than_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "_RECORDS", 10)
    shelf = Shelf(tmp_path)
    for _ in range(25):
        shelf.keep("other", "no")
    shelf.keep("chat/a", "yes")
    first = shelf.read(HistorySelector("chat/#"))
    assert (first.events, first.cursor) == ((), "j10")
    assert shelf.all(HistorySelector("chat/#")) == ["yes"]


def test_a_look_takes_no_longer_than_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "_SCAN_S", 0.0)
    shelf = Shelf(tmp_path)
    for number in range(5):
        shelf.keep("other", "no")
        shelf.keep("chat/a", str(number))
    first = shelf.read(HistorySelector("chat/#"))
    assert (first.events, first.cursor) == ((), "j1"), "one record at least"
    assert shelf.all(HistorySelector("chat/#")) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("cursor", ["x1", "j", "j-1", "jä", "j" + "9" * 5_000, "a1.5:x"])
def test_cursors_that_nobody_was_given(tmp_path: Path, cursor: str) -> None:
    with pytest.raises(PageUnavailableError, match="none of this node's"):
        Shelf(tmp_path).read(HistorySelector("chat/#"), cursor)


def test_moments_and_spans_leave_out_what_is_older(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("week/a", "old", ago_ms=8 * DAY_MS)
    shelf.keep("chat/a", "any", ago_ms=8 * DAY_MS)
    shelf.keep("week/a", "new", ago_ms=DAY_MS)
    assert shelf.all(HistorySelector("#")) == ["any", "new"]
    assert shelf.all(HistorySelector("#", since_ms=NOW_MS - 2 * DAY_MS)) == ["new"]


def test_channels_from_before_count_until_it_is_known_what_is_defined(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("room/a", "1")
    assert shelf.all(HistorySelector("#")) == []
    shelf.channels.remembered = ("room/#",)
    assert shelf.all(HistorySelector("#")) == ["1"]


def test_what_was_retired_is_gone_and_told_to_who_had_begun(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=4_096)
    for number in range(200):
        shelf.keep("chat/a", str(number).zfill(100))
    shelf.retire()
    first = shelf.journal.status().first_offset
    assert first > 10
    assert shelf.read(HistorySelector("chat/#")).missing == 0
    assert [int(each) for each in shelf.all(HistorySelector("chat/#"))] == list(range(first, 200))
    assert shelf.read(HistorySelector("chat/#"), start=10).missing == first - 10


def test_the_archive_has_what_the_journal_has_not_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(tmp_path, segment_bytes=4_096)
    for number in range(200):
        shelf.keep("chat/a", str(number).zfill(100))
    shelf.retire()
    first = shelf.journal.status().first_offset
    asked: list[EventQuery] = []

    async def page(ask: EventQuery, *, cursor: str, rows: int, bytes_: int) -> ArchivePage:
        asked.append(ask)
        start = int(cursor or 0)
        end = min(start + 5, ask.before_offset or 0)
        events = tuple(
            QueryHit(at, at, NOW_MS, "chat/a", "bob", 1, b"", str(at).encode())
            for at in range(start, end)
        )
        return ArchivePage(id=1, events=events, cursor="" if end == ask.before_offset else str(end))

    monkeypatch.setattr(shelf.pipeline, "is_enabled", True)
    monkeypatch.setattr(shelf.pipeline, "page", page)
    assert [int(each) for each in shelf.all(HistorySelector("chat/#"))] == list(range(200))
    assert {each.before_offset for each in asked} == {first}


def test_questions_that_can_not_be_answered_say_why(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.keep("chat/a", "1")
    with pytest.raises(PageUnavailableError, match="cursor"):
        shelf.read(HistorySelector("chat/#"), "x12")
    with pytest.raises(PageUnavailableError, match="character"):
        shelf.read(HistorySelector("chat/#", where="level > >"))
    asked = PageRequest(1, HistorySelector("chat/#"), 0, 99, "", 10, 1_000)
    with pytest.raises(PageUnavailableError, match="not on disk"):
        asyncio.run(shelf.pages.read(asked))


def test_events_too_large_for_a_page_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "MAX_EVENT", 10)
    shelf = Shelf(tmp_path)
    shelf.keep("chat/a", "x" * 11)
    shelf.keep("chat/a", "small")
    page = shelf.read(HistorySelector("chat/#"))
    assert ([each.payload for each in page.events], page.missing) == ([b"small"], 1)

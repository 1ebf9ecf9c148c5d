from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.merge_patch import apply_patch
from accord.core.monitoring.viewers import (
    HEARTBEAT_MS,
    MAX_STATE_BYTES,
    MAX_WATCHES,
    Feed,
    StateTooLargeError,
    Viewer,
)


class Page:
    """What a page makes of the messages it gets."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.states: dict[int, Any] = {}
        self.kinds: list[str] = []

    def read(self, most: int = 100) -> None:
        for _ in range(most):
            text = self.viewer.next_message(0)
            if text is None:
                return
            message = msgspec.json.decode(text)
            (kind,) = message.keys() & {"state", "patch", "problem"}
            self.kinds.append(kind)
            number = message["id"]
            if kind == "patch":
                self.states[number] = apply_patch(self.states[number], message["patch"])
            else:
                self.states[number] = message[kind]


def made(*feeds: Feed) -> Page:
    viewer = Viewer(now_ms=0)
    for number, feed in enumerate(feeds, start=1):
        viewer.watch(number, feed)
    return Page(viewer)


def test_first_the_whole_state_and_then_differences() -> None:
    feed = Feed()
    page = made(feed)
    assert page.viewer.next_message(0) is None
    feed.publish({"a": 1, "text": "x" * 100, "none": None}, now_ms=5)
    assert page.viewer.next_message(0) == (
        '{"id":1,"at_ms":5,"state":{"a":1,"text":"' + "x" * 100 + '"}}'
    )
    assert not feed.publish({"a": 1, "text": "x" * 100}, now_ms=6)
    assert page.viewer.next_message(0) is None
    feed.publish({"a": 2, "text": "x" * 100}, now_ms=7)
    assert page.viewer.next_message(0) == '{"id":1,"at_ms":7,"patch":{"a":2}}'


def test_a_viewer_that_missed_something_gets_the_whole_state() -> None:
    feed = Feed()
    page = made(feed)
    for number in range(4):
        feed.publish({"n": number, "text": "x" * 100}, now_ms=number)
        if number != 1:
            page.read()
    assert page.kinds == ["state", "state", "patch"]
    assert page.states[1]["n"] == 3


def test_a_difference_that_is_longer_than_the_state_is_not_sent() -> None:
    feed = Feed()
    page = made(feed)
    feed.publish({"a": 1}, now_ms=0)
    page.read()
    feed.publish({"b": 1}, now_ms=0)
    page.read()
    assert page.kinds == ["state", "state"]


def test_a_problem_replaces_the_state_and_is_sent_once() -> None:
    feed = Feed()
    page = made(feed)
    feed.publish({"a": 1}, now_ms=0)
    page.read()
    assert feed.fail({"status": 404}, now_ms=0)
    assert not feed.fail({"status": 404}, now_ms=0)
    page.read()
    feed.publish({"a": 1}, now_ms=0)
    page.read()
    assert page.kinds == ["state", "problem", "state"]


def test_what_is_too_large_is_refused() -> None:
    feed = Feed()
    with pytest.raises(StateTooLargeError):
        feed.publish({"a": "x" * MAX_STATE_BYTES}, now_ms=0)
    assert feed.version == 0


def test_only_so_many_watches() -> None:
    viewer = Viewer(now_ms=0)
    feed = Feed()
    for number in range(MAX_WATCHES):
        assert viewer.can_watch(number)
        viewer.watch(number, feed)
    assert not viewer.can_watch(MAX_WATCHES)
    assert viewer.can_watch(0)
    assert viewer.watch(0, feed) is feed
    assert feed.watches == MAX_WATCHES
    assert viewer.stop(0) is feed
    assert viewer.stop(0) is None
    assert feed.watches == MAX_WATCHES - 1
    assert viewer.can_watch(MAX_WATCHES)


def test_only_so_many_problems_wait() -> None:
    viewer = Viewer(now_ms=0)
    for number in range(1_000):
        viewer.notify(number, {"status": 400})
    messages = []
    while (text := viewer.next_message(0)) is not None:
        messages.append(msgspec.json.decode(text))
    assert [each["id"] for each in messages] == list(range(984, 1_000))


def test_a_silent_node_sends_its_heartbeat() -> None:
    viewer = Viewer(now_ms=0)
    assert not viewer.has_message(HEARTBEAT_MS - 1)
    assert viewer.has_message(HEARTBEAT_MS)
    assert viewer.next_message(HEARTBEAT_MS) == f'{{"at_ms":{HEARTBEAT_MS}}}'
    assert viewer.next_message(HEARTBEAT_MS) is None
    assert viewer.has_message(0)  # the clock stepped back


def test_a_busy_watch_does_not_starve_the_others() -> None:
    busy, quiet = Feed(), Feed()
    page = made(busy, quiet)
    quiet.publish({"n": 0}, now_ms=0)
    for number in range(3):
        busy.publish({"n": number}, now_ms=0)
        page.read(1)
    assert page.states[2] == {"n": 0}


@given(st.data())
def test_every_viewer_that_reads_has_the_last_state(data: st.DataObject) -> None:
    """However states change, and however seldom a viewer reads."""
    feeds = [Feed(), Feed()]
    pages = [made(*feeds) for _ in range(3)]
    rows = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2) | st.none(), max_size=3)
    last: list[Any] = [None, None]
    for _ in range(data.draw(st.integers(1, 12))):
        which = data.draw(st.integers(0, 1))
        state = {"rows": data.draw(rows), "text": "long enough for differences to be shorter"}
        feeds[which].publish(state, now_ms=0)
        last[which] = state
        page = pages[data.draw(st.integers(0, 2))]
        page.read(data.draw(st.integers(0, 2)))
    for page in pages:
        page.read()
        for number, state in enumerate(last, start=1):
            if state is not None:
                kept = {name: n for name, n in state["rows"].items() if n is not None}
                assert page.states[number]["rows"] == kept


def test_a_viewer_holds_no_text() -> None:
    """A viewer that never reads keeps a version for each watch, and nothing else."""
    feed = Feed()
    page = made(feed)
    for number in range(1_000):
        feed.publish({"n": number}, now_ms=number)
    page.read()
    assert page.kinds == ["state"]

"""Resume point of a subscription that began with history.

A server tracks this itself. Only when it has lost the session is the subscription requested again,
and it must then start at its present position instead of its original one.

During replay the position is the time stamp of the last event of the history. Live events carry no
such time, and the clocks of client and server may differ; so the position is then relative: the age
of the last event plus `LATE_MS`, because the server received an event some time before it arrived
here. Duplicates that this causes are dropped: events of the history by event ID, and events that
arrived live by content, one for each earlier arrival. Only live events that certainly lie after the
resume point are remembered for this, so that another event with the same content is not mistaken
for one of them.

Nothing is lost as long as an event takes less than `LATE_MS` to arrive, and at most the events that
arrived between `LATE_MS` and `SURE_MS` before the last one are delivered twice.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from typing import Final

from accord.core.model.units import parse_time
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import EVENT, NODE, OWN_PREFIX, RECEIVED

SINCE: Final = "since"  # a user property of SUBSCRIBE

LATE_MS: Final = 2_000
SURE_MS: Final = 1_000
# Channels that are not kept have no history: their events arrive live during the replay. The replay
# counts as over after this time without an event of the history.
QUIET_MS: Final = 10_000
MAX_REMEMBERED: Final = 10_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_AGO_MS: Final = 10**12 - 1


def iso_text(moment_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=moment_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago_text(ago_ms: int) -> str:
    return f"-{min(max(ago_ms, 0), _LONG_AGO_MS)}ms"


class ResumePoint:
    """The resume point of one subscription; `since` is the value to subscribe with now."""

    def __init__(self, since: str, now_ms: int) -> None:
        self.since = since
        self._requested_ms = now_ms
        self._ago_ms = _ago_ms(since)
        self._replayed_ms = (
            now_ms  # arrival of the last event of the history; at first, the request
        )
        self._position_ms: int | None = None  # when the server received that event
        self._live_ms: int | None = None
        self._seen_ids: dict[tuple[str, str], None] = {}
        self._contents: deque[tuple[int, int]] = deque()
        self._repeats: Counter[int] = Counter()

    def accept(self, message: Publish, now_ms: int) -> bool:
        """Record a message; returns whether it is new."""
        if message.retain:
            return True  # retained messages have any age, and no bearing on the position
        name, received_ms = _identify(message)
        if received_ms is None:
            self._accept_live(message, now_ms)
            return True
        self._replayed_ms, self._position_ms = now_ms, max(received_ms, self._position_ms or 0)
        if name in self._seen_ids:
            return False
        self._seen_ids[name] = None
        if len(self._seen_ids) > MAX_REMEMBERED:
            del self._seen_ids[next(iter(self._seen_ids))]
        return not self._is_duplicate(message)

    def resume(self, now_ms: int) -> None:
        """Set `since` for a new request."""
        # These lie after the resume point and will be repeated, in this replay or, if it is
        # interrupted, in the next.
        self._repeats.update(content for _, content in self._contents)
        self._contents.clear()
        if self._is_live():
            assert self._live_ms is not None
            self.since = ago_text(now_ms - self._live_ms + LATE_MS)
        elif self._position_ms is not None:
            self.since = iso_text(max(self._position_ms - SURE_MS, 0))
        elif self._ago_ms is not None and now_ms > self._requested_ms:
            self.since = ago_text(self._ago_ms + now_ms - self._requested_ms)

    def _is_live(self) -> bool:
        return self._live_ms is not None and self._live_ms - self._replayed_ms >= QUIET_MS

    def _accept_live(self, message: Publish, now_ms: int) -> None:
        self._live_ms = now_ms
        contents = self._contents
        contents.append((now_ms, _content(message)))
        while len(contents) > MAX_REMEMBERED:
            contents.popleft()
        if self._is_live():
            self._repeats.clear()
            while contents[0][0] < now_ms - SURE_MS:
                contents.popleft()

    def _is_duplicate(self, message: Publish) -> bool:
        content = _content(message)
        if not self._repeats[content]:
            return False
        self._repeats[content] -= 1
        return True


def _ago_ms(since: str) -> int | None:
    """The age that `since` states, if it is relative."""
    try:
        first, later = (parse_time(since, now_ms=now) for now in (2**60, 2**60 + 1))
    except ValueError:
        return None  # left to the server to refuse
    return 2**60 - first if later > first else None


def _identify(message: Publish) -> tuple[tuple[str, str], int | None]:
    """The event ID, with the node where several have a history, and when that node received it."""
    node, event, received_ms = "", "", None
    for key, value in message.properties.user:
        if key == EVENT:
            event = value
        elif key == NODE:
            node = value
        elif key == RECEIVED and value.isascii() and value.isdecimal() and len(value) < 16:
            received_ms = int(value)
    return (node, event), received_ms


def _content(message: Publish) -> int:
    user = tuple(pair for pair in message.properties.user if not pair[0].startswith(OWN_PREFIX))
    return hash((message.topic, message.payload, user))

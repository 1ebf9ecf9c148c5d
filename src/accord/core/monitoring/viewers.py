"""Fan-out of states to viewers without queues.

A feed holds one state, its text, and the text of the difference from the state before; all viewers
that watch it share them. A viewer remembers only which version of each feed it was sent, and is
asked for its next message when its connection can take one. If it missed no version it gets the
difference, otherwise the whole state: a slow viewer gets fewer messages, and costs no memory.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from accord.core.monitoring.merge_patch import Object, diff, without_nulls

HEARTBEAT_MS: Final = 1_000
MAX_WATCHES: Final = 16
MAX_STATE_BYTES: Final = 524_288
_MAX_NOTICES: Final = 16


class StateTooLargeError(ValueError):
    """A state of more than `MAX_STATE_BYTES`."""


class Feed:
    """A state that is shared by the viewers who watch it; `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.at_ms = 0
        self.watches = 0
        self._state: Object | None = None
        self._whole = ""  # the member of messages, as JSON
        self._patch = ""  # from the version before, empty if that was no state

    @property
    def size(self) -> int:
        return len(self._whole)

    def publish(self, state: Any, *, now_ms: int) -> bool:
        """Take a new state, of structs, objects and lists; returns whether it changed."""
        after: Object = without_nulls(msgspec.to_builtins(state))
        whole = msgspec.json.encode(after)
        if len(whole) > MAX_STATE_BYTES:
            raise StateTooLargeError(f"{len(whole)} bytes")
        before = self._state
        patch = None if before is None else diff(before, after)
        if patch == {}:
            return False
        self._whole = f'"state":{whole.decode()}'
        self._patch = "" if patch is None else f'"patch":{msgspec.json.encode(patch).decode()}'
        if len(self._patch) >= len(self._whole):
            self._patch = ""
        self._state = after
        self._advance(now_ms)
        return True

    def fail(self, problem: Any, *, now_ms: int) -> bool:
        """Replace the state by a problem; returns whether it is a new one."""
        whole = f'"problem":{msgspec.json.encode(problem).decode()}'
        if whole == self._whole:
            return False
        self._state, self._whole, self._patch = None, whole, ""
        self._advance(now_ms)
        return True

    def text_since(self, version: int) -> str:
        """Return the member of a message to a viewer that was sent `version` last."""
        return self._patch if self._patch and version == self.version - 1 else self._whole

    def _advance(self, now_ms: int) -> None:
        self.version += 1
        self.at_ms = now_ms


class _Watch:
    """A feed that a viewer watches, and the version that it was sent last."""

    __slots__ = ("feed", "sent")

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.sent = 0


class Viewer:
    """What one viewer watches, and was sent of it."""

    def __init__(self, *, now_ms: int) -> None:
        self._watches: dict[int, _Watch] = {}  # by the viewer's number, longest unserved first
        self._notices: deque[str] = deque(maxlen=_MAX_NOTICES)
        self._sent_ms = now_ms

    @property
    def feeds(self) -> list[Feed]:
        return [each.feed for each in self._watches.values()]

    def can_watch(self, number: int) -> bool:
        return number in self._watches or len(self._watches) < MAX_WATCHES

    def watch(self, number: int, feed: Feed) -> Feed | None:
        """Watch `feed` as `number`; returns the feed that was watched as this before."""
        before = self.stop(number)
        self._watches[number] = _Watch(feed)
        feed.watches += 1
        return before

    def stop(self, number: int) -> Feed | None:
        """Stop to watch `number`; returns its feed."""
        watch = self._watches.pop(number, None)
        if watch is None:
            return None
        watch.feed.watches -= 1
        return watch.feed

    def notify(self, number: int | None, problem: Any) -> None:
        """Have a problem with a request sent; of too many, the oldest are dropped."""
        name = "" if number is None else f'"id":{number},'
        self._notices.append(f'{{{name}"problem":{msgspec.json.encode(problem).decode()}}}')

    def has_message(self, now_ms: int) -> bool:
        return (
            bool(self._notices)
            or any(each.sent != each.feed.version for each in self._watches.values())
            or self._is_silent(now_ms)
        )

    def next_message(self, now_ms: int) -> str | None:
        """Return what is to be sent next; None if there is nothing for now."""
        text = self._next_text(now_ms)
        if text is not None:
            self._sent_ms = now_ms
        return text

    def _next_text(self, now_ms: int) -> str | None:
        if self._notices:
            return self._notices.popleft()
        for number, watch in self._watches.items():
            feed = watch.feed
            if watch.sent != feed.version:
                member = feed.text_since(watch.sent)
                watch.sent = feed.version
                self._watches[number] = self._watches.pop(number)  # after those yet unserved
                return f'{{"id":{number},"at_ms":{feed.at_ms},{member}}}'
        return f'{{"at_ms":{now_ms}}}' if self._is_silent(now_ms) else None

    def _is_silent(self, now_ms: int) -> bool:
        return not 0 <= now_ms - self._sent_ms < HEARTBEAT_MS  # also if the clock stepped back

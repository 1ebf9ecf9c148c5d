"""Fault isolation for templates that raise an exception.

In a simulation the exception propagates. A live node continues. A third-party template is in an
unknown state then: it is not called again, and publishing to its channels is refused with the
exception's text. A template that ships with Accord stays in use, after a pause if its timers
failed: otherwise one malformed message of a neighbour would end all channels of a kind. Either way
the driver finds the exception in `new` and reports it.
"""

from __future__ import annotations

from typing import Final

FAILED: Final = "template failed"
PAUSE_US: Final = 1_000_000
UNLOADED: Final = "it can't be loaded, its log says why"
_NEW: Final = 100  # failures held for the driver
_TEXT: Final = 200


class TemplateFailures:
    """`off` maps disabled templates to the text of what they raised."""

    def __init__(self, *, contains: bool) -> None:
        self.new: list[tuple[str, Exception]] = []
        self.off: dict[str, str] = {}
        self._contains = contains
        self._paused: dict[str, int] = {}  # until when

    def note(self, template: str, error: Exception, *, ends: bool) -> None:
        """Record `error`, and disable the template if `ends`; re-raise without fault isolation."""
        if not self._contains:
            raise error
        if len(self.new) < _NEW:
            self.new.append((template, error))
        if ends:
            self.off[template] = f"{type(error).__name__}: {error}"[:_TEXT].removesuffix(": ")

    def pause(self, template: str, now_us: int) -> None:
        self._paused[template] = now_us + PAUSE_US

    def paused_us(self, template: str) -> int:
        """Until when the template's timers are ignored."""
        return self._paused.get(template, 0) if self._paused else 0

    def take(self) -> list[tuple[str, Exception]]:
        """Return and clear the new failures."""
        new, self.new = self.new, []
        return new

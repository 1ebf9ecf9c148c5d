"""What becomes of a template that raises an exception.

In a simulation it is raised: there it is to be found. A live node goes on without it. What somebody
else wrote is in an unknown state then: it is not called any more, and publishing to its channels is
refused with what it raised. What ships with Accord goes on, after a pause if it failed over what
was due: else one odd message of a neighbour would end all channels of a kind. Either way the driver
finds it in `new`, to tell people.
"""

from __future__ import annotations

from typing import Final

FAILED: Final = "template failed"
PAUSE_US: Final = 1_000_000
UNLOADED: Final = "it can't be loaded, its log says why"
_NEW: Final = 100  # kept at a time
_TEXT: Final = 200


class TemplateFailures:
    """`off` has those that are not called any more, each with what it raised."""

    def __init__(self, *, contains: bool) -> None:
        self.new: list[tuple[str, Exception]] = []
        self.off: dict[str, str] = {}
        self._contains = contains
        self._paused: dict[str, int] = {}  # until when

    def note(self, template: str, error: Exception, *, ends: bool) -> None:
        """It has raised `error`, which `ends` it or not; raises it where that is not to be."""
        if not self._contains:
            raise error
        if len(self.new) < _NEW:
            self.new.append((template, error))
        if ends:
            self.off[template] = f"{type(error).__name__}: {error}"[:_TEXT].removesuffix(": ")

    def pause(self, template: str, now_us: int) -> None:
        self._paused[template] = now_us + PAUSE_US

    def paused_us(self, template: str) -> int:
        """Until when it is not asked what is due."""
        return self._paused.get(template, 0) if self._paused else 0

    def take(self) -> list[tuple[str, Exception]]:
        """What is new; it is not any more."""
        new, self.new = self.new, []
        return new

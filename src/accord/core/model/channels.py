"""Channel names and channel filters: MQTT topics and their wildcards.

A name is one or more levels separated by `/`. In a filter `+` stands for any one level and a final
`#` for all levels from there on, including none (`a/#` selects `a`). A wildcard in the first level
does not select channels whose first level starts with `$`: those belong to the system.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from accord.core.model.values import problem_with_text

MAX_CHANNEL_BYTES: Final = 65_535
RESPONSES: Final = "accord-response/"  # with a client's name: where replies to it are published

T = TypeVar("T")

_NO_LEVELS: Final[dict[str, Any]] = {}  # below the end of a filter: nothing is ever added


def problem_with_channel(name: str) -> str | None:
    """Why `name` is not a valid channel, or None if it is."""
    if problem := _problem_with_levels(name):
        return problem
    if "+" in name or "#" in name:
        return f"expected a channel without wildcards, got {name!r}"
    return None


def problem_with_filter(pattern: str) -> str | None:
    """Why `pattern` is not a valid channel filter, or None if it is."""
    if problem := _problem_with_levels(pattern):
        return problem
    levels = pattern.split("/")
    for number, level in enumerate(levels, start=1):
        if level == "#" and number < len(levels):
            return f"expected '#' as the last level only, got {pattern!r}"
        if level not in ("+", "#") and ("+" in level or "#" in level):
            return f"expected a wildcard to fill its whole level, got {level!r} in {pattern!r}"
    return None


def filter_selects(pattern: str, channel: str) -> bool:
    """Whether the valid filter `pattern` selects the valid channel name `channel`."""
    wanted, levels = pattern.split("/"), channel.split("/")
    if channel.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def selects_any(patterns: tuple[str, ...], channel: str) -> bool:
    """Whether one of the valid filters `patterns` selects the valid channel name `channel`."""
    return any(filter_selects(pattern, channel) for pattern in patterns)


def is_internal(channel: str) -> bool:
    """Whether the channel serves protocols, not applications: `$…`, and replies to requests."""
    return channel.startswith(("$", RESPONSES))


def filter_shows(pattern: str, channel: str) -> bool:
    """Whether a view of `pattern` shows `channel`: it selects it, and internal ones by name."""
    if is_internal(channel) and pattern.startswith(("+", "#")):
        return False
    return filter_selects(pattern, channel)


def filter_covers(wide: str, narrow: str) -> bool:
    """Whether the valid filter `wide` selects every channel that the valid `narrow` selects."""
    wanted, levels = wide.split("/"), narrow.split("/")
    if wanted[0] in ("+", "#") and levels[0].startswith("$"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or levels[position] == "#":
            return False
        if level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def _problem_with_levels(text: str) -> str | None:
    if not text:
        return "expected at least one character"
    if "\0" in text:
        return "expected no null character"
    if problem := problem_with_text(text):
        return problem
    size = len(text.encode())
    if size > MAX_CHANNEL_BYTES:
        return f"{size} bytes, at most {MAX_CHANNEL_BYTES} accepted"
    return None


class _Level(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Level[T]] = _NO_LEVELS
        self.value: T | None = None

    def child(self, name: str) -> _Level[T]:
        """The level of that name below this one, created if necessary."""
        found = self.children.get(name)
        if found is None:
            if self.children is _NO_LEVELS:
                self.children = {}
            found = self.children[name] = _Level()
        return found


class ChannelMap(Generic[T]):
    """Values by channel filter; finds those whose filter selects a channel."""

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()

    @property
    def is_empty(self) -> bool:
        return not self._root.children

    def get(self, pattern: str) -> T | None:
        level: _Level[T] | None = self._root
        for name in pattern.split("/"):
            level = None if level is None else level.children.get(name)
        return None if level is None else level.value

    def set(self, pattern: str, value: T) -> None:
        level = self._root
        for name in pattern.split("/"):
            level = level.child(name)
        level.value = value

    def remove(self, pattern: str) -> None:
        """Removes the value of `pattern`, which must have one."""
        names = pattern.split("/")
        path = [self._root]
        for name in names:
            path.append(path[-1].children[name])
        path[-1].value = None
        for name, parent, child in zip(
            reversed(names), reversed(path[:-1]), reversed(path), strict=False
        ):
            if child.children or child.value is not None:
                break
            del parent.children[name]

    def select(self, channel: str) -> list[T]:
        """The values of all filters that select `channel`."""
        names = channel.split("/")
        is_system = channel.startswith("$")
        found: list[T] = []
        levels = [self._root]
        for position, name in enumerate(names):
            wildcards = position > 0 or not is_system
            if wildcards:
                found += _values(level.children.get("#") for level in levels)
            wanted = (name, "+") if wildcards else (name,)
            levels = [
                child
                for level in levels
                for each in wanted
                if (child := level.children.get(each)) is not None
            ]
            if not levels:
                return found
        found += _values(level.children.get("#") for level in levels)
        found += _values(levels)
        return found


def _values(levels: Iterable[_Level[T] | None]) -> list[T]:
    return [level.value for level in levels if level is not None and level.value is not None]

"""Channel names and channel filters: MQTT topics and their wildcards.

A name is one or more levels separated by `/`. In a filter `+` stands for any one level and a final
`#` for all levels from there on, including none (`a/#` selects `a`). A wildcard in the first level
does not select channels whose first level starts with `$`: those belong to the system.
"""

from __future__ import annotations

from typing import Final

MAX_CHANNEL_BYTES: Final = 65_535


def problem_with_channel(name: str) -> str | None:
    """Why `name` can't be a channel, or None where it can."""
    if problem := _problem_with_text(name):
        return problem
    if "+" in name or "#" in name:
        return f"expected a channel without wildcards, got {name!r}"
    return None


def problem_with_filter(pattern: str) -> str | None:
    """Why `pattern` can't be a channel filter, or None where it can."""
    if problem := _problem_with_text(pattern):
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


def _problem_with_text(text: str) -> str | None:
    if not text:
        return "expected at least one character"
    if "\0" in text:
        return "expected no null character"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "expected Unicode text, got a lone surrogate"
    if size > MAX_CHANNEL_BYTES:
        return f"{size} bytes, at most {MAX_CHANNEL_BYTES} accepted"
    return None

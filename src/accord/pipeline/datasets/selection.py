"""Row selection for analyses: by channel filter and time range."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.channels import RESPONSES, problem_with_filter

CHANNEL: Final = "channel"
_LEVEL: Final = "[^/]*"


def selects(pattern: str, column: str = CHANNEL) -> Column:
    """Whether the channel filter `pattern` selects `column`; ValueError if it is invalid."""
    if problem := problem_with_filter(pattern):
        raise ValueError(f"channel: {problem}")
    channel = F.col(column)
    levels = pattern.split("/")
    is_open = levels[-1] == "#"
    fixed = levels[:-1] if is_open else levels
    if "+" in fixed:
        selected = channel.rlike(_regex(fixed, is_open))
    elif not is_open:
        return channel == pattern
    elif fixed:
        above = "/".join(fixed)
        return channel.startswith(above + "/") | (channel == above)
    else:
        selected = F.lit(True)
    # System channels are only selected by an explicit first level.
    return selected & ~channel.startswith("$") if levels[0] in ("+", "#") else selected


def shows(pattern: str, column: str = CHANNEL) -> Column:
    """Whether a view of `pattern` shows `column`: internal channels only by name."""
    shown = selects(pattern, column)
    is_named = not pattern.startswith(("+", "#"))
    return shown if is_named else shown & ~F.col(column).startswith(RESPONSES)


def _regex(levels: list[str], is_open: bool) -> str:
    parts = (_LEVEL if level == "+" else re.escape(level) for level in levels)
    return rf"(?s)\A{'/'.join(parts)}{'(/.*)?' if is_open else ''}\z"


def between(frame: DataFrame, column: str, since_ms: int, until_ms: int) -> DataFrame:
    """Rows whose timestamp in `column` is in [`since_ms`, `until_ms`)."""
    since, until = (F.timestamp_millis(F.lit(ms)) for ms in (since_ms, until_ms))
    return frame.where((F.col(column) >= since) & (F.col(column) < until))


def of_channels(ledger: DataFrame, pattern: str) -> DataFrame:
    """Entries for channels that `pattern` shows; entries for several channels always count."""
    return ledger.where(shows(pattern) | (F.col(CHANNEL) == ""))

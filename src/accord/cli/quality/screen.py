"""Output of negotiated quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.quantities import count_text
from accord.cli.screen import safe
from accord.cli.table import Table, figures
from accord.core.quality.status import (
    CapabilityStatus,
    ChannelQuality,
    ExpectationStatus,
    ProfileStatus,
    PropertyStatus,
    QualityStatus,
)

_STYLES: Final = {
    "satisfied": "green",
    "satisfiable": "yellow",
    "unsatisfied": "red",
    "suspended": "dim",
}
_ABOUT: Final = ("utility", "publishers", "id")


def draw_quality(status: QualityStatus) -> RenderableType:
    parts: list[RenderableType] = [_summary(status)]
    for channel in status.channels:
        parts += ["", *_channel(channel)]
    if status.left_off:
        parts += ["", f"… and {status.left_off:,} more: name a channel to see them"]
    return Group(*parts)


def draw_properties(properties: Sequence[PropertyStatus]) -> Table:
    table = Table("property", "values", "better", "unit", "over hops", "by")
    for each in properties:
        table.add_row(
            each.name,
            " < ".join(each.levels) if each.levels else _range(each.range or (None, None)),
            each.better,
            each.unit,
            each.over_hops,
            "nodes" if each.measured else "publishers",
        )
    return table


def _summary(status: QualityStatus) -> Text:
    totals = status.totals
    counted = [f"{count:,} {state}" for state, count in totals.states.items() if count]
    text = Text(f"node {safe(status.node)}, strategy {status.strategy}: ")
    expectations = count_text(sum(totals.states.values()), "expectation")
    text.append(f"{count_text(totals.profiles, 'profile')}, {expectations}")
    text.append(f" ({', '.join(counted)})" if counted else "")
    advised = f"advised {count_text(totals.advice, 'time')}"
    text.append(f"; {advised}, {count_text(totals.reactions, 'reaction')}")
    return text


def _channel(channel: ChannelQuality) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(safe(channel.channel), "bold")]
    if channel.profiles:
        table = Table("publisher", "offers", *figures("used by", "utility"), indent=2)
        for profile in channel.profiles:
            table.add_row(*_profile(profile))
        parts.append(table)
    for skyline in channel.skylines:
        members = ", ".join(map(safe, skyline.members)) or "nobody"
        parts.append(Text(f"  best of {', '.join(skyline.properties)}: {members}", "dim"))
    if channel.expectations:
        table = Table("expectation", "of", "expects", "state", "why", indent=2)
        for expectation in channel.expectations:
            table.add_row(*_expectation(expectation))
        parts.append(table)
    return parts


def _profile(profile: ProfileStatus) -> tuple[str, ...]:
    offers = ", ".join(map(_capability, profile.capabilities))
    used = f"{profile.expectations:,}"
    return profile.publisher, offers, used, f"{profile.utility:g}"


def _capability(capability: CapabilityStatus) -> str:
    now = _value(capability.current)
    if capability.is_measured:
        return f"{capability.property} {now} (measured)"
    return f"{capability.property} {now} of {_range((capability.lower, capability.upper))}"


def _expectation(expectation: ExpectationStatus) -> tuple[str | Text, ...]:
    why = [f"{name} is {_value(now)}" for name, now in expectation.reasons.items()]
    if expectation.decision:
        why.append(expectation.decision)
    return (
        expectation.id,
        expectation.client,
        _wanted(expectation.expect),
        Text(expectation.state, _STYLES.get(expectation.state, "")),
        "; ".join(why),
    )


def _wanted(expect: dict[str, Any]) -> str:
    parts = [
        f"{safe(name)} {_range(bounds)}" for name, bounds in expect.items() if name not in _ABOUT
    ]
    if expect.get("publishers", 1) != 1:
        parts.append(f"of {expect['publishers']}")
    return f"{', '.join(parts)} (worth {expect.get('utility', 1):g})"


def _range(bounds: Sequence[Any]) -> str:
    low, high = ("" if each is None else _value(each) for each in bounds)
    return f"{low}–{high}" if low and high else f"≥ {low}" if low else f"≤ {high}"


def _value(value: object) -> str:
    if value is None:
        return "unknown"
    return safe(value) if isinstance(value, str) else f"{value:.4g}"

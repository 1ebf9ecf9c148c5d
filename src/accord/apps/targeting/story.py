"""The phases: what is changed in each, and what is to be said of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from accord.apps.targeting.cast import CAS_IMAGE, IMAGERY, REPORT
from accord.apps.targeting.meters import Line, Phase

LIMIT_KBPS: Final = 800


@dataclass(frozen=True)
class Change:
    """A request to the node's API for policies: at the path below it, with this body."""

    method: str
    path: str
    body: Mapping[str, object] | str


@dataclass(frozen=True)
class Act:
    """A phase: `words` say what is done, before it is known what comes of it."""

    name: str
    words: str
    changes: tuple[Change, ...]


def opening_policies() -> str:
    """The policies that the story begins with, as TOML."""
    return files("accord.apps.targeting").joinpath("policies.toml").read_text("utf-8")


def acts() -> list[Act]:
    return [
        Act(
            "1 · no limit",
            "Aircraft, patrols and command publish; one display receives everything. Nothing "
            "limits what the node sends.",
            (Change("PUT", "", opening_policies()),),
        ),
        Act(
            f"2 · {LIMIT_KBPS} kbit/s",
            f"The node may send {LIMIT_KBPS} kbit/s, less than is published. Images are wanted "
            "whole, and within 5 s.",
            (Change("PATCH", "", {"bandwidth": f"{LIMIT_KBPS} kbit/s"}),),
        ),
        Act(
            "3a · preferences",
            "Who receives uav/imagery now prefers GeneralSurv: smaller images rather than none, "
            "within 5 s. Nothing else changes.",
            (_put("UASImgSub", operation="subscribe", channel=IMAGERY, preferences="GeneralSurv"),),
        ),
        Act(
            "3b · importances",
            "The target is found. What aircraft see becomes important (2 → 6), and what PATROL-1 "
            "reports (4 → 7); images of close air support don't matter now (3 → 1).",
            (
                _put("AllUAS", operation="publish", client="UAV-*", importance=6),
                _put("CASImage", channel=CAS_IMAGE, importance=1, preferences="FullImageDrop"),
                _put("Patrol-1-Report", operation="publish", channel=REPORT, client="PATROL-1",
                     importance=7),
            ),
        ),
    ]  # fmt: skip


def _put(name: str, **fields: object) -> Change:
    return Change("PUT", f"/{name}", fields)


def narrate(phase: Phase, before: Phase | None) -> list[str]:
    """What was measured in the phase, and against the one before, in words."""
    groups = _by_channel(phase)
    old = {} if before is None else {group.channel: group for group in _by_channel(before)}
    return [
        *_totals(phase, groups),
        *_losses(groups),
        *_shapes(groups),
        *_turns(groups, old),
        *_rivals(phase),
    ]


def _by_channel(phase: Phase) -> list[Line]:
    """The sources of a channel together."""
    groups: dict[str, Line] = {}
    for line in phase.lines.values():
        group = groups.setdefault(line.channel, Line(line.channel, ""))
        group.add(line)
    return [group for group in groups.values() if group.offered]


def _totals(phase: Phase, groups: list[Line]) -> Iterator[str]:
    lost = sum(group.lost for group in groups)
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    events = "event" if lost == 1 else "events"
    fate = f"{lost:,} {events} dropped" if lost else "nothing dropped"
    known = [group for group in groups if group.p95_s is not None]
    if not known:
        yield f"{rates}, {fate}."
        return
    known.sort(key=lambda group: group.p95_s or 0.0)
    ends = f"{_time(known[0].p95_s)} ({known[0].channel}) to {_time(known[-1].p95_s)}"
    yield f"{rates}, {fate}; p95 from {ends} ({known[-1].channel})."


def _losses(groups: list[Line]) -> Iterator[str]:
    """Who loses and why, and who does not."""
    losers = sorted((group for group in groups if group.lost), key=lambda group: -group.lost)
    for group in losers:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in group.dropped.most_common())
        yield f"{group.channel} loses {group.lost:,} of {group.offered:,}: {causes}{_by(group)}."
    spared = [group for group in groups if not group.lost]
    if losers and spared:
        lowest = min((group.importance or 0) for group in spared)
        yield f"The other {len(spared)} channels, importance {lowest} and above, lose nothing."


def _shapes(groups: list[Line]) -> Iterator[str]:
    for group in groups:
        if group.shaped:
            sizes = (size / group.shaped / 1_000 for size in (group.shaped_from, group.shaped_to))
            whole, small = (f"{size:,.0f} KB" for size in sizes)
            made = f"{group.shaped:,} of {group.received:,} images that arrived"
            yield f"{group.channel}: {made} were made smaller, on average from {whole} to {small}."


def _turns(groups: list[Line], before: Mapping[str, Line]) -> Iterator[str]:
    """Who is clearly better or worse off than in the phase before."""
    times = []
    for group in groups:
        old = before.get(group.channel)
        if old is None or old.share is None or group.share is None:
            continue
        if abs(group.share - old.share) >= 0.1:
            yield f"{group.channel} gets {group.share:.0%} through, after {old.share:.0%}."
        if _has_turned(old.p95_s, group.p95_s):
            times.append(f"{group.channel} {_time(group.p95_s)} after {_time(old.p95_s)}")
    if times:
        yield f"p95: {', '.join(times)}."


def _rivals(phase: Phase) -> Iterator[str]:
    """Sources of one channel that do not fare alike."""
    lines = sorted(phase.lines.values(), key=lambda line: line.p95_s or 0.0)
    for place, fast in enumerate(lines):
        for slow in lines[place + 1 :]:
            is_told = fast.importance != slow.importance and fast.channel == slow.channel
            if is_told and _has_turned(fast.p95_s, slow.p95_s):
                ahead = f"{fast.source} (importance {fast.importance}) p95 {_time(fast.p95_s)}"
                behind = f"{slow.source} (importance {slow.importance}) p95 {_time(slow.p95_s)}"
                yield f"On {fast.channel}: {ahead}, {behind}."


def _has_turned(one_s: float | None, other_s: float | None) -> bool:
    """A factor of two, where anybody would notice."""
    low_s, high_s = sorted((one_s or 0.0, other_s or 0.0))
    return high_s > 0.25 and high_s > 2 * low_s


def _by(line: Line) -> str:
    if line.importance is None:
        return ""
    policy = f", policy {line.policy}" if line.policy else ""
    return f" (importance {line.importance}{policy})"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"

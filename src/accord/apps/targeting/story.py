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
            "3a · other preferences",
            "Who receives uav/imagery now prefers GeneralSurv: smaller images rather than none, "
            "within 5 s. Nothing else changes.",
            (_put("UASImgSub", operation="subscribe", channel=IMAGERY, preferences="GeneralSurv"),),
        ),
        Act(
            "3b · other importances",
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
    return [
        *_totals(phase),
        *_losses(phase),
        *_shapes(phase),
        *([] if before is None else _turns(phase, before)),
    ]


def _totals(phase: Phase) -> Iterator[str]:
    lines = list(phase.lines.values())
    lost = sum(line.lost for line in lines)
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    slowest = max(lines, key=lambda line: line.p95_s or 0.0)
    fate = f"{lost:,} events dropped" if lost else "nothing dropped"
    latency = "" if slowest.p95_s is None else f"; slowest: {_called(slowest)}, {_p95(slowest)}"
    yield f"{rates}, {fate}{latency}."


def _losses(phase: Phase) -> Iterator[str]:
    """Who loses most and why, and who does not."""
    losers = sorted((line for line in phase.lines.values() if line.lost), key=lambda one: -one.lost)
    if not losers:
        return
    for line in losers[:3]:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in line.dropped.most_common())
        yield f"{_called(line)} loses {line.lost:,} of {line.offered:,}: {causes}{_by(line)}."
    spared = [line for line in phase.lines.values() if line.offered and not line.lost]
    if spared:
        worst = max(spared, key=lambda line: line.p95_s or 0.0)
        slowest = f"the slowest of them, {_called(worst)}, {_p95(worst)}"
        yield f"The other {len(spared)} lose nothing; {slowest}."


def _shapes(phase: Phase) -> Iterator[str]:
    for line in phase.lines.values():
        if line.shaped:
            sizes = (size / line.shaped / 1_000 for size in (line.shaped_from, line.shaped_to))
            whole, small = (f"{size:,.0f} KB" for size in sizes)
            yield (
                f"{_called(line)}: {line.shaped:,} of {line.received:,} images were made smaller, "
                f"on average from {whole} to {small}."
            )


def _turns(phase: Phase, before: Phase) -> Iterator[str]:
    """Who is clearly better or worse off than in the phase before."""
    for key, line in phase.lines.items():
        old = before.lines[key]
        was, now = old.share, line.share
        if was is None or now is None:
            continue
        if abs(now - was) >= 0.15:
            yield f"{_called(line)} gets {now:.0%} of its events through, after {was:.0%}."
        elif _has_turned(old.p95_s or 0.0, line.p95_s or 0.0):
            yield f"{_called(line)}: {_p95(line)}, after {_time(old.p95_s or 0.0)}."


def _has_turned(was_s: float, now_s: float) -> bool:
    """A factor of two, where anybody would notice."""
    return max(was_s, now_s) > 0.25 and not 0.5 < now_s / was_s < 2.0


def _called(line: Line) -> str:
    return f"{line.channel} of {line.source}"


def _by(line: Line) -> str:
    if line.importance is None:
        return ""
    policy = f" by policy {line.policy}" if line.policy else ""
    return f" (importance {line.importance}{policy})"


def _p95(line: Line) -> str:
    return "has none" if line.p95_s is None else f"p95 {_time(line.p95_s)}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"

"""Summary of a phase in sentences, compared with the phase before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accord.apps.demonstrations.meters import PhaseStats, SourceStats


def summarise_phase(phase: PhaseStats, before: PhaseStats | None) -> list[str]:
    """Sentences on what was measured in the phase, and on changes from the one before."""
    groups = _by_channel(phase)
    old = {} if before is None else {group.channel: group for group in _by_channel(before)}
    return [
        *_totals(phase, groups),
        *_drops(groups),
        *_shapes(groups),
        *_changes(groups, old),
        *_differences(phase),
    ]


def _by_channel(phase: PhaseStats) -> list[SourceStats]:
    """The sources of each channel combined."""
    groups: dict[str, SourceStats] = {}
    for line in phase.sources.values():
        group = groups.setdefault(line.channel, SourceStats(line.channel, ""))
        group.add(line)
    return [group for group in groups.values() if group.offered]


def _totals(phase: PhaseStats, groups: list[SourceStats]) -> Iterator[str]:
    lost = sum(group.drops for group in groups)
    rates = f"{phase.offered_kbps:,.0f} kbit/s offered, {phase.received_kbps:,.0f} received"
    events = "event" if lost == 1 else "events"
    outcome = f"{lost:,} {events} dropped" if lost else "nothing dropped"
    if waiting := sum(group.waiting for group in groups):
        outcome += f" so far, {waiting:,} still queued"
    known = [group for group in groups if group.p95_s is not None]
    if not known:
        yield f"{rates}, {outcome}."
        return
    known.sort(key=lambda group: group.p95_s or 0.0)
    ends = f"{_time(known[0].p95_s)} ({known[0].channel}) to {_time(known[-1].p95_s)}"
    yield f"{rates}, {outcome}; p95 from {ends} ({known[-1].channel})."


def _drops(groups: list[SourceStats]) -> Iterator[str]:
    """Which channels lose events and why, and which do not."""
    losers = sorted((group for group in groups if group.drops), key=lambda group: -group.drops)
    for group in losers:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in group.dropped.most_common())
        yield f"{group.channel} loses {group.drops:,} of {group.offered:,}: {causes}{_by(group)}."
    spared = [group for group in groups if not group.drops]
    if losers and spared:
        lowest = min((group.importance or 0) for group in spared)
        yield f"The other {len(spared)} channels, importance {lowest} and above, lose nothing."


def _shapes(groups: list[SourceStats]) -> Iterator[str]:
    for group in groups:
        if group.shaped:
            sizes = (size / group.shaped / 1_000 for size in (group.shaped_from, group.shaped_to))
            whole, small = (f"{size:,.0f} KB" for size in sizes)
            made = f"{group.shaped:,} of {group.received:,} images that arrived"
            yield f"{group.channel}: {made} were made smaller, on average from {whole} to {small}."


def _changes(groups: list[SourceStats], before: Mapping[str, SourceStats]) -> Iterator[str]:
    """Which channels do clearly better or worse than in the phase before."""
    times = []
    for group in groups:
        old = before.get(group.channel)
        if old is None or old.share is None or group.share is None:
            continue
        if 4 * group.waiting > group.offered:
            continue  # too little is known yet; the summary of all phases includes it
        if abs(group.share - old.share) >= 0.1:
            yield f"{group.channel} gets {group.share:.0%} through, after {old.share:.0%}."
        if _has_changed(old.p95_s, group.p95_s):
            times.append(f"{group.channel} {_time(group.p95_s)} after {_time(old.p95_s)}")
    if times:
        yield f"p95: {', '.join(times)}."


def _differences(phase: PhaseStats) -> Iterator[str]:
    """Sources of one channel with different results."""
    lines = sorted(phase.sources.values(), key=lambda line: line.p95_s or 0.0)
    for place, fast in enumerate(lines):
        for slow in lines[place + 1 :]:
            is_explained = fast.importance != slow.importance and fast.channel == slow.channel
            if is_explained and _has_changed(fast.p95_s, slow.p95_s):
                ahead = f"{fast.source} (importance {fast.importance}) p95 {_time(fast.p95_s)}"
                behind = f"{slow.source} (importance {slow.importance}) p95 {_time(slow.p95_s)}"
                yield f"On {fast.channel}: {ahead}, {behind}."


def _has_changed(one_s: float | None, other_s: float | None) -> bool:
    """Whether latency changed by a factor of two, at a noticeable magnitude."""
    low_s, high_s = sorted((one_s or 0.0, other_s or 0.0))
    return high_s > 0.25 and high_s > 2 * low_s


def _by(line: SourceStats) -> str:
    if line.importance is None:
        return ""
    policy = f", policy {line.policy}" if line.policy else ""
    return f" (importance {line.importance}{policy})"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"

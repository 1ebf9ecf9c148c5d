"""Whether all is well at a node, in one sentence; and what is not, the worst first.

The rates are those of the last samples, and each problem has a threshold below. What is known to be
a problem stays one until it is well below its threshold. One that is gone for a moment and comes
back is the same: its beginning stays. One that gets worse has a new beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.recent_changes import page_of
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus
from accord.core.monitoring.top import ChannelActivity, ClientActivity, Management, NodeLoad

WARN: Final = "warn"
BAD: Final = "bad"

LOST_SHARE: Final = 0.05  # late, expired, shed or refused, of what was due
BAD_LOST_SHARE: Final = 0.25
_LEAST_HZ: Final = 0.3  # one in the three seconds of a rate
STAYS: Final = 0.4  # of its threshold, until a known problem is over
BEHIND_MS: Final = 5_000  # the age of the oldest event that waits for a client
BAD_BEHIND_MS: Final = 30_000
SATURATED: Final = 0.9
CPU_PERCENT: Final = 85.0
BAD_CPU_PERCENT: Final = 97.0
LAG_MS: Final = 60_000
BAD_LAG_MS: Final = 600_000
DISK_SHARE: Final = 0.1
BAD_DISK_SHARE: Final = 0.03
DISK_BYTES: Final = 20_000_000_000  # with this much free, a full disk is far away
BAD_DISK_BYTES: Final = 2_000_000_000
_MAX_OF_A_KIND: Final = 20
_REMEMBERED_MS: Final = 10_000


class NodeProblem(Struct, frozen=True, kw_only=True):
    """Something that is not well: since when, and the page that shows why."""

    key: str
    severity: str
    subject: str
    sentence: str
    page: str
    since_ms: int = 0
    channel: str = ""  # whose readers may see it; empty if all may
    weight: float = 0  # of those with the same severity, greatest first


class NetFaults(Struct, frozen=True, kw_only=True):
    """What fails in the network, as far as the node knows."""

    links_down: Sequence[tuple[str, str]] = ()  # neighbours without a link, and why
    unreachable: Sequence[str] = ()
    failed_links: Sequence[tuple[str, str]] = ()  # others, between nodes that are reachable


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What the verdict is about; channels and clients are the busiest."""

    load: NodeLoad
    management: Management = Management()
    channels: Sequence[ChannelActivity] = ()
    clients: Sequence[ClientActivity] = ()
    journal: JournalStatus | None = None
    pipeline: PipelineStatus | None = None
    net: NetFaults = NetFaults()


def find_problems(facts: NodeFacts, known: Collection[str] = ()) -> list[NodeProblem]:
    """Return what is not well, the worst first; `known` are the keys of problems so far."""
    found = [
        *_journal(facts.journal),
        *_net(facts.net),
        *_worst(_channel(each, known) for each in facts.channels),
        *_worst(_client(each, known) for each in facts.clients),
        *_node(facts.load, facts.management, known),
        *_pipeline(facts.pipeline),
    ]
    return sorted(found, key=lambda each: (each.severity != BAD, -each.weight, each.key))


class ProblemLog:
    """Since when there is which problem."""

    def __init__(self) -> None:
        self.problems: tuple[NodeProblem, ...] = ()
        self._seen: dict[str, _Seen] = {}

    @property
    def keys(self) -> Collection[str]:
        """Problems there are, or were a moment ago."""
        return self._seen.keys()

    def update(self, found: Iterable[NodeProblem], *, now_ms: int) -> None:
        problems = []
        seen = {
            key: each for key, each in self._seen.items() if now_ms - each.last_ms <= _REMEMBERED_MS
        }
        for problem in found:
            before = seen.get(problem.key)
            was_bad = before is not None and before.is_bad
            is_bad = was_bad or problem.severity == BAD
            since_ms = now_ms if before is None or is_bad != was_bad else before.since_ms
            seen[problem.key] = _Seen(is_bad, since_ms, now_ms)
            problems.append(replace(problem, since_ms=since_ms))
        self._seen = seen
        self.problems = tuple(problems)


class _Seen(NamedTuple):
    is_bad: bool  # or was, while it was known
    since_ms: int
    last_ms: int


def verdict(
    name: str, problems: Sequence[NodeProblem], delivery: Delivery, *, is_ready: bool
) -> str:
    """Return the sentence: that all is well, or the worst problem and how many more there are."""
    if not is_ready:
        return f"{name} is starting or stopping, and serves no clients."
    if problems:
        more = len(problems) - 1
        others = f", and {more} more problem{'s' if more > 1 else ''}" if more else ""
        worst = problems[0].sentence
        if worst.startswith("the "):
            worst = f"T{worst[1:]}"
        return f"{worst}{others}."
    if delivery.in_time is None:
        return f"All is well at {name}: nothing to deliver now."
    how = "in time" if delivery.deadline_hz else "delivered; none has a deadline"
    share = f"{_percent(delivery.in_time)} of {delivery.delivered_hz:,.0f} events/s {how}"
    return f"All is well at {name}: {share}."


def _channel(line: ChannelActivity, known: Collection[str]) -> NodeProblem | None:
    causes = (
        ("late", line.late_hz),
        ("expired", line.expired_hz),
        ("shed", line.shed_hz),
        ("refused", line.refused_hz),
    )
    key = f"channel/{line.channel}"
    lost_hz = sum(rate for _, rate in causes)
    due_hz = line.delivered_hz + line.expired_hz + line.shed_hz + line.refused_hz
    least = STAYS if key in known else 1
    if lost_hz < least * max(_LEAST_HZ, LOST_SHARE * due_hz) or not due_hz:
        return None
    share = lost_hz / due_hz
    cause, rate = max(causes, key=lambda each: each[1])
    main = f"{_percent(rate / due_hz)} {cause}"
    total = "" if rate == lost_hz else f", {_percent(share)} not in time"
    return NodeProblem(
        key=key,
        severity=BAD if share >= BAD_LOST_SHARE else WARN,
        subject=line.channel,
        sentence=f"{line.channel}: {main}{total}",
        page=page_of("channels", line.channel),
        channel=line.channel,
        weight=lost_hz,
    )


def _client(line: ClientActivity, known: Collection[str]) -> NodeProblem | None:
    """A client that is connected and behind, or misses events.

    A momentary rate says little: large events leave one by one. What waits has added up.
    """
    if not line.is_connected:
        return None
    key = f"client/{line.client}"
    least = STAYS if key in known else 1
    is_behind = line.waiting_ms >= least * BEHIND_MS
    is_shedding = line.shed_hz >= least * _LEAST_HZ
    if not is_behind and not is_shedding:
        return None
    waiting = line.queued_messages
    parts = [_bottleneck(line)] if is_behind else []
    if is_shedding:
        parts.append(f"{line.shed_hz:,.1f} events/s dropped")
    if waiting:
        parts.append(f"{waiting:,} event{'s' if waiting > 1 else ''} waiting")
    if is_behind:
        parts.append(f"{line.waiting_ms / 1_000:,.0f} s behind")
    return NodeProblem(
        key=key,
        severity=BAD if is_shedding or line.waiting_ms >= BAD_BEHIND_MS else WARN,
        subject=line.client,
        sentence=f"{line.client}: {', '.join(part for part in parts if part)}",
        page=page_of("clients", line.client),
        weight=line.shed_hz + line.waiting_ms / BEHIND_MS,
    )


def _bottleneck(line: ClientActivity) -> str:
    """What a client that is behind waits for, as far as it is known."""
    limit, link = line.limit_kbps, line.link_kbps
    if limit and not (link and link < SATURATED * limit):
        return f"at its limit of {limit:,.0f} kbit/s"
    if link and line.sent_kbps >= SATURATED * link:
        return f"its link is full at {link:,.0f} kbit/s"
    return ""


def _node(load: NodeLoad, management: Management, known: Collection[str]) -> Iterator[NodeProblem]:
    if load.cpu_percent >= CPU_PERCENT:
        yield NodeProblem(
            key="cpu",
            severity=BAD if load.cpu_percent >= BAD_CPU_PERCENT else WARN,
            subject="CPU",
            sentence=f"the node is overloaded: {load.cpu_percent:.0f} % of a core",
            page="/internals",
            weight=1,
        )
    limit_bps = management.bandwidth_bps
    full_bps = (limit_bps or 0) * SATURATED * (STAYS if "limit" in known else 1)
    if limit_bps and load.queued_messages and load.sent_kbps * 1_000 >= full_bps:
        yield NodeProblem(
            key="limit",
            severity=WARN,
            subject="limit of the node",
            sentence=f"the node is at its limit of {limit_bps / 1_000:,.0f} kbit/s: "
            f"{load.queued_messages:,} events waiting",
            page="/policies",
        )


def _net(net: NetFaults) -> Iterator[NodeProblem]:
    for neighbour, problem in net.links_down[:_MAX_OF_A_KIND]:
        yield NodeProblem(
            key=f"link/{neighbour}",
            severity=BAD,
            subject=neighbour,
            sentence=f"the link to {neighbour} is down" + (f": {problem}" if problem else ""),
            page="/network",
            weight=1_000,
        )
    for node in net.unreachable[:_MAX_OF_A_KIND]:
        yield NodeProblem(
            key=f"node/{node}",
            severity=BAD,
            subject=node,
            sentence=f"{node} is not reachable",
            page=f"/network?{urlencode({'node': node})}",
            weight=500,
        )
    for source, target in net.failed_links[:_MAX_OF_A_KIND]:
        yield NodeProblem(
            key=f"link/{source}/{target}",
            severity=WARN,
            subject=f"{source} – {target}",
            sentence=f"the link {source} – {target} failed",
            page=f"/network?{urlencode({'link': f'{source} {target}'})}",
            weight=500,
        )


def _journal(journal: JournalStatus | None) -> Iterator[NodeProblem]:
    if journal is None:
        return
    if journal.failure:
        yield NodeProblem(
            key="journal",
            severity=BAD,
            subject="journal",
            sentence=f"the journal failed: {journal.failure}",
            page="/internals",
            weight=1e9,
        )
    free, total = journal.disk_free_bytes, journal.disk_total_bytes
    if free is not None and total and free < DISK_BYTES and free < DISK_SHARE * total:
        is_bad = free < BAD_DISK_SHARE * total or free < BAD_DISK_BYTES
        yield NodeProblem(
            key="disk",
            severity=BAD if is_bad else WARN,
            subject="disk",
            sentence=f"the disk is nearly full: {free / 1e9:.1f} of {total / 1e9:.1f} GB free",
            page="/internals",
            weight=1e8,
        )


def _pipeline(pipeline: PipelineStatus | None) -> Iterator[NodeProblem]:
    if pipeline is None or pipeline.state == "off":
        return
    severity = WARN
    if pipeline.state != "ready":
        severity = BAD if pipeline.state == "failed" else WARN
        problem = f": {pipeline.problem}" if pipeline.problem else ""
        sentence = f"the pipeline is {pipeline.state}{problem}"
    elif pipeline.lag_ms >= LAG_MS:
        severity = BAD if pipeline.lag_ms >= BAD_LAG_MS else WARN
        seconds = f"{pipeline.lag_ms / 1_000:,.0f} s"
        sentence = f"the pipeline is {seconds} behind, by {pipeline.lag_records:,} records"
    elif pipeline.problem:
        sentence = f"the pipeline has a problem: {pipeline.problem}"
    else:
        return
    yield NodeProblem(
        key="pipeline",
        severity=severity,
        subject="pipeline",
        sentence=sentence,
        page="/internals",
    )


def _worst(found: Iterable[NodeProblem | None]) -> list[NodeProblem]:
    problems = [each for each in found if each is not None]
    problems.sort(key=lambda each: (each.severity != BAD, -each.weight, each.key))
    return problems[:_MAX_OF_A_KIND]


def _percent(share: float) -> str:
    """A share in percent; only all is 100 %, only nothing is 0 %."""
    percent = 100 * share
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.1f} %".replace(".0 %", " %")

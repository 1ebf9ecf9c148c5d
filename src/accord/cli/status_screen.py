"""A node's status on a screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.quantities import count_text, duration_text, rate_text, size_text
from accord.cli.screen import safe
from accord.cli.status_client import ClientRates
from accord.cli.table import NOTHING, Column, Table, fields, figures
from accord.core.monitoring.statistics import (
    JournalStatus,
    PipelineStatus,
    Queue,
    Shed,
    Statistics,
)
from accord.http.schemas import NodeSummary

MAX_CLIENTS: Final = 10


def draw_status(status: NodeSummary, rates: ClientRates) -> Group:
    statistics = status.statistics
    parts: list[RenderableType] = [_headline(status), Text(), _traffic(statistics, rates)]
    parts += [Text(), fields(_facts(statistics))]
    used = [queue for queue in statistics.queues if queue.messages or queue.waits.count]
    if used:
        parts += [Text(), _queues(used)]
    if statistics.shed.total:
        parts += [Text(), _shed(statistics.shed)]
    return Group(*parts)


def _headline(status: NodeSummary) -> Text:
    uptime = duration_text(status.statistics.uptime_ms / 1000)
    state = ("ready", "green") if status.is_ready else ("not ready", "bold yellow")
    rest = (f"  accord {safe(status.version)} ({safe(status.build)}), up for {uptime}", "dim")
    return Text.assemble((safe(status.name), "bold"), "  ", state, rest)


def _traffic(statistics: Statistics, rates: ClientRates) -> Table:
    received, sent = statistics.received, statistics.sent
    table = Table(Column("", least=13), *figures("in", "out"), "", has_rule=False)
    for name, came, went, remark in (
        (
            "events/s",
            Text(rate_text(rates.received_events), "bold"),
            Text(rate_text(rates.sent_events), "bold"),
            f"over {duration_text(rates.seconds)}",
        ),
        ("bytes/s", size_text(rates.received_bytes), size_text(rates.sent_bytes), ""),
        (
            "events",
            f"{received.publishes.total:,}",
            f"{sent.publishes.total:,}",
            "since the start",
        ),
        ("bytes", size_text(received.bytes), size_text(sent.bytes), ""),
    ):
        table.add_row(Text(name, "dim"), came, went, Text(remark, "dim"))
    return table


def _facts(statistics: Statistics) -> Iterator[tuple[str, Text]]:
    connected = f"{statistics.connections:,} connected, {statistics.connections_peak:,} at most"
    yield "clients", Text(f"{connected}; {count_text(statistics.sessions, 'session')}")
    predicates = f", {statistics.predicates:,} with a predicate" if statistics.predicates else ""
    yield "subscriptions", Text(f"{statistics.subscriptions:,}{predicates}")
    events = statistics.matched + statistics.unmatched
    if events:
        reached = f"{statistics.unmatched:,} of {count_text(events, 'event')} reached nobody"
        yield "unmatched", Text(reached)
    retained = count_text(statistics.retained_messages, "event")
    yield "retained", Text(f"{retained}, {size_text(statistics.retained_bytes)}")
    waiting = (
        f"{count_text(statistics.queued_messages, 'event')}, {size_text(statistics.queued_bytes)}"
    )
    yield "waiting", Text(waiting)
    yield (
        "shed",
        Text(count_text(statistics.shed.total, "event"), "yellow" if statistics.shed.total else ""),
    )
    yield "journal", _journal(statistics.journal)
    if statistics.pipeline is not None:
        yield "pipeline", _pipeline(statistics.pipeline)
        if statistics.pipeline.state == "ready" and statistics.pipeline.problem:
            yield "", Text(safe(statistics.pipeline.problem), "yellow")
        yield from (("", line) for line in _last_end(statistics.pipeline))


def _journal(journal: JournalStatus | None) -> Text:
    if journal is None:
        return Text("none, nothing is kept on disk")
    if journal.failure:
        return Text(f"failed: {safe(journal.failure)}", "bold red")
    records = count_text(journal.next_offset - journal.first_offset, "record")
    where = f"{size_text(journal.bytes)} in {count_text(journal.segments, 'segment')}"
    state = f"{journal.unsynced:,} not on disk yet" if journal.unsynced else "all on disk"
    return Text(f"{records}, {where}, {state}")


def _pipeline(pipeline: PipelineStatus) -> Text:
    problem = safe(pipeline.problem)
    if pipeline.state == "off":
        return Text(f"off: {problem}", "dim")
    if pipeline.state != "ready":
        words = f"{safe(pipeline.state)}: {problem}" if problem else safe(pipeline.state)
        return Text(words, "bold red" if pipeline.state == "failed" else "yellow")
    behind = f"{duration_text(pipeline.lag_ms / 1_000)} behind ({pipeline.lag_records:,} records)"
    lag = behind if pipeline.lag_records else "all archived"
    archive = f"{size_text(pipeline.bytes)} in {count_text(pipeline.files, 'file')}"
    rates = f"{rate_text(pipeline.rows_per_s)} rows/s"
    words = f"ready ({safe(pipeline.build)}), {lag}, {rates}; archive {archive}; "
    words += f"{pipeline.queries:,} answered"
    return Text(words)


def _last_end(pipeline: PipelineStatus) -> Iterator[Text]:
    """Why its process last ended, and its last output."""
    if not pipeline.last_end_ms:
        return
    at = datetime.fromtimestamp(pipeline.last_end_ms / 1_000, UTC).astimezone()
    restarts = count_text(pipeline.restarts, "restart")
    text = Text(f"{restarts}; its process ended last at {at:%Y-%m-%d %H:%M:%S}")
    if pipeline.last_end != pipeline.problem:
        text.append(f": {safe(pipeline.last_end)}", "yellow")
    yield text
    for line in pipeline.last_output:
        yield Text(f"  {safe(line)}", "dim")


def _queues(queues: list[Queue]) -> Table:
    table = Table("importance", *figures("waiting", "bytes", "half waited", "99 % waited"))
    for queue in reversed(queues):
        bounds = [queue.waits.quantile_ms(share) for share in (0.5, 0.99)]
        waits = [f"< {bound:,} ms" if bound else NOTHING for bound in bounds]
        table.add_row(str(queue.importance), f"{queue.messages:,}", size_text(queue.bytes), *waits)
    return table


def _shed(shed: Shed) -> Table:
    table = Table("shed because of", *figures("events"), "for client")
    shown = sorted(shed.clients, key=lambda each: -each.count)
    for each in shown[:MAX_CLIENTS]:
        table.add_row(each.cause, f"{each.count:,}", each.client)
    if rest := sum(each.count for each in shown[MAX_CLIENTS:]):
        table.add_row("", f"{rest:,}", Text("others", "dim"))
    return table

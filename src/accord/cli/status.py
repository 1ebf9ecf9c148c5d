"""`accord status`: a node's state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import read_duration_s
from accord.cli.connection import UnreachableError
from accord.cli.http_client import AnyNodeHttpClient, NodeHttpClient
from accord.cli.options import Output, command
from accord.cli.parameters import flag, option
from accord.core.monitoring.rates import ClientRates
from accord.core.monitoring.statistics import (
    JournalStatus,
    PipelineStatus,
    Queue,
    Shed,
    Statistics,
)
from accord.core.monitoring.verdict import BAD
from accord.operations.status import GetStatus, NodeSummary
from accord.terminal.amounts import count_text, duration_text, moment_text, rate_text, size_text
from accord.terminal.rows import NOTHING, Cell, Column, Figure, Table, fields, table
from accord.terminal.screen import open_console, safe

PATH: Final = "/api/v1/status"
MAX_CLIENTS: Final = 10
MAX_PROBLEMS: Final = 6

_SHARES: Final = (0.5, 0.99)
_WAIT_S: Final = 0.2  # between two polls


@command
def status(
    *,
    wait: str | None = option("TIME", "Wait up to TIME until the node is ready."),
    needs_pipeline: bool = flag("With --wait: wait for the pipeline, too.", "--pipeline"),
    output: Output,
    node: AnyNodeHttpClient,
) -> None:
    """Show what a node does: clients, rates, queues, what was shed, the journal."""
    if wait is not None:
        _wait(node, read_duration_s(wait, "--wait"), needs_pipeline=needs_pipeline)
    # Watching on a terminal, the first picture comes at once, with rates since the start.
    is_live = output.is_watching and not output.is_json and open_console().is_terminal
    samples = StatusSamples(node, 0.0 if is_live else output.every_s)
    output.show(
        samples.take,
        lambda found: draw_status(*found),
        lambda found: (to_fields(*found),),
        is_full_screen=False,
    )


def _wait(node: NodeHttpClient, wait_s: float, *, needs_pipeline: bool) -> None:
    """Wait until ready; UnreachableError on timeout."""
    until = time.monotonic() + wait_s
    while True:
        try:
            lacking = _lacking(node.call(GetStatus()), needs_pipeline=needs_pipeline)
        except UnreachableError as error:
            lacking = str(error)
        if not lacking:
            return
        if time.monotonic() >= until:
            raise UnreachableError(f"not ready after {wait_s:g} s: {lacking}")
        time.sleep(_WAIT_S)


def _lacking(status: NodeSummary, *, needs_pipeline: bool) -> str:
    """Why it is not ready; empty if it is."""
    if not status.is_ready:
        return f"node {status.name} starts or stops"
    pipeline = status.statistics.pipeline
    if not needs_pipeline or (pipeline is not None and pipeline.state == "ready"):
        return ""
    state, problem = ("off", "") if pipeline is None else (pipeline.state, pipeline.problem)
    return f"the pipeline is {state}" + (f", {problem}" if problem else "")


class StatusSamples:
    """The status, with rates since the previous sample; the first is taken `first_s` apart."""

    def __init__(self, node: NodeHttpClient, first_s: float) -> None:
        self._node = node
        self._first_s = first_s
        self._before: Statistics | None = None

    def take(self) -> tuple[NodeSummary, ClientRates]:
        now = self._node.call(GetStatus())
        if self._before is None and self._first_s:
            self._before = now.statistics
            time.sleep(self._first_s)
            return self.take()
        rates = ClientRates.between(self._before, now.statistics)
        self._before = now.statistics
        return now, rates


def to_fields(status: NodeSummary, rates: ClientRates) -> dict[str, Any]:
    """The API's fields, and rates."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {**fields, "rates": msgspec.to_builtins(rates)}


def _bound(limit_ms: int) -> str:
    return f"< {limit_ms:,} ms" if limit_ms else NOTHING


def draw_status(status: NodeSummary, rates: ClientRates) -> Group:
    statistics = status.statistics
    parts: list[RenderableType] = [_verdict(status), *_other_problems(status), Text()]
    parts += [_headline(status), Text(), _traffic(statistics, rates)]
    parts += [Text(), fields(_facts(statistics))]
    used = [queue for queue in statistics.queues if queue.messages or queue.waits.count]
    if used:
        parts += [Text(), _queues(used)]
    if statistics.shed.total:
        parts += [Text(), _shed(statistics.shed)]
    return Group(*parts)


def _verdict(status: NodeSummary) -> Text:
    is_bad = any(each.severity == BAD for each in status.problems)
    style = "bold red" if is_bad else "yellow" if status.problems else "bold"
    return Text(safe(status.verdict), style if status.is_ready else "bold yellow")


def _other_problems(status: NodeSummary) -> Iterator[Text]:
    """The problems after the first, which is the verdict."""
    for each in status.problems[1:MAX_PROBLEMS]:
        yield Text(f"  {safe(each.sentence)}", "red" if each.severity == BAD else "yellow")
    if rest := len(status.problems[MAX_PROBLEMS:]):
        yield Text(f"  {count_text(rest, 'more problem')}", "dim")


def _headline(status: NodeSummary) -> Text:
    uptime = duration_text(status.statistics.uptime_ms / 1000)
    state = ("ready", "green") if status.is_ready else ("not ready", "bold yellow")
    rest = (f"  accord {safe(status.version)} ({safe(status.build)}), up for {uptime}", "dim")
    return Text.assemble((safe(status.name), "bold"), "  ", state, rest)


class TrafficRow(msgspec.Struct, frozen=True):
    what: Annotated[Cell, Column("", least=13)]
    received: Annotated[Figure, Column("in", is_number=True)]
    sent: Annotated[Figure, Column("out", is_number=True)]
    remark: Annotated[Cell, Column("")] = ""


class QueueRow(msgspec.Struct, frozen=True):
    importance: Annotated[int, Column(unit=str)]
    waiting: int
    bytes: Annotated[int, Column(unit=size_text)]
    half_waited: Annotated[int, Column(unit=_bound)]
    most_waited: Annotated[int, Column("99 % waited", _bound)]


class ShedRow(msgspec.Struct, frozen=True):
    cause: Annotated[str, Column("shed because of")]
    events: int
    client: Annotated[Cell, Column("for client")]


def _traffic(statistics: Statistics, rates: ClientRates) -> Table:
    came, went = statistics.received, statistics.sent
    received, sent = (
        Text(rate_text(each), "bold") for each in (rates.received_events, rates.sent_events)
    )
    sizes = size_text(rates.received_bytes), size_text(rates.sent_bytes)
    totals = f"{came.publishes.total:,}", f"{went.publishes.total:,}"
    over = Text(f"over {duration_text(rates.seconds)}", "dim")
    rows = (
        TrafficRow(Text("events/s", "dim"), received, sent, over),
        TrafficRow(Text("bytes/s", "dim"), *sizes),
        TrafficRow(Text("events", "dim"), *totals, Text("since the start", "dim")),
        TrafficRow(Text("bytes", "dim"), size_text(came.bytes), size_text(went.bytes)),
    )
    return table(TrafficRow, rows, has_rule=False)


def _facts(statistics: Statistics) -> Iterator[tuple[str, Cell]]:
    connected = f"{statistics.connections:,} connected, {statistics.connections_peak:,} at most"
    yield "clients", f"{connected}; {count_text(statistics.sessions, 'session')}"
    predicates = f", {statistics.predicates:,} with a predicate" if statistics.predicates else ""
    yield "subscriptions", f"{statistics.subscriptions:,}{predicates}"
    if events := statistics.matched + statistics.unmatched:
        reached = f"{statistics.unmatched:,} of {count_text(events, 'event')} reached nobody"
        yield "unmatched", reached
    for name, messages, size in (
        ("retained", statistics.retained_messages, statistics.retained_bytes),
        ("waiting", statistics.queued_messages, statistics.queued_bytes),
    ):
        yield name, f"{count_text(messages, 'event')}, {size_text(size)}"
    shed = statistics.shed.total
    yield "shed", Text(count_text(shed, "event"), "yellow" if shed else "")
    yield "journal", _journal(statistics.journal)
    if statistics.pipeline is not None:
        yield "pipeline", _pipeline(statistics.pipeline)
        if statistics.pipeline.state == "ready" and statistics.pipeline.problem:
            yield "", Text(safe(statistics.pipeline.problem), "yellow")
        yield from (("", line) for line in _spark_links(statistics.pipeline))
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
    if pipeline.state == "partial":
        why = problem or "Spark is starting: reports and large queries have to wait"
        return Text(f"partial: {why}", "yellow")
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


def _spark_links(pipeline: PipelineStatus) -> Iterator[Text]:
    for name, link in (("page", pipeline.spark_ui), ("event logs", pipeline.event_log)):
        if link and pipeline.state == "ready":
            yield Text(f"Spark's {name}: {safe(link)}")


def _last_end(pipeline: PipelineStatus) -> Iterator[Text]:
    """Why its process last ended, and its last output."""
    if not pipeline.last_end_ms:
        return
    restarts, at = count_text(pipeline.restarts, "restart"), moment_text(pipeline.last_end_ms)
    text = Text(f"{restarts}; its process ended last at {at}")
    if pipeline.last_end != pipeline.problem:
        text.append(f": {safe(pipeline.last_end)}", "yellow")
    yield text
    for line in pipeline.last_output:
        yield Text(f"  {safe(line)}", "dim")


def _queues(queues: list[Queue]) -> Table:
    rows = (
        QueueRow(each.importance, each.messages, each.bytes, *map(each.waits.quantile_ms, _SHARES))
        for each in reversed(queues)
    )
    return table(QueueRow, rows)


def _shed(shed: Shed) -> Table:
    clients = sorted(shed.clients, key=lambda each: -each.count)
    rows = [ShedRow(each.cause, each.count, each.client) for each in clients[:MAX_CLIENTS]]
    if rest := sum(each.count for each in clients[MAX_CLIENTS:]):
        rows.append(ShedRow("", rest, Text("others", "dim")))
    return table(ShedRow, rows)

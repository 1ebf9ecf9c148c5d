"""`accord top`: a node's busiest channels, clients and queues.

The picture is fitted to the terminal: the essentials fit 24 lines of 80 characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import read_duration_s
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import Every, IsJson, Output, command
from accord.cli.parameters import flag
from accord.core.monitoring.outcomes import rate_text
from accord.core.monitoring.top import ClientActivity, Management, Top
from accord.operations.status import GetTop
from accord.terminal.amounts import count_text, duration_text, size_text
from accord.terminal.amounts import rate_text as number_text
from accord.terminal.rows import (
    NOTHING,
    Cell,
    Column,
    Table,
    count,
    milliseconds,
    rate,
    size,
    table,
    warned,
)
from accord.terminal.screen import open_console, safe

_LINES: Final = 100
_LINES_IN_A_PIPE: Final = 60  # of a full screen
_TIMEOUT_S: Final = 30.0
_DOT: Final = " · "
_MIN_ROWS: Final = 2  # of channels and of clients, whatever the terminal


@command
def top(
    *,
    every: Every = "1s",
    is_once: bool = flag("Print one sample and exit.", "--once"),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Watch a node: channels, clients and their links, queues, what policies decide."""
    console = open_console()
    height = console.height - 1 if console.is_terminal else _LINES_IN_A_PIPE
    output = Output(is_json, not is_once, read_duration_s(every, "--every"))
    output.show(
        lambda: node.call(GetTop(limit=_LINES), _TIMEOUT_S),
        lambda now: draw_top(now, width=console.width, height=height),
    )


# Least widths: columns stay where they are between refreshes.


class BinRow(msgspec.Struct, frozen=True):
    importance: Annotated[int, Column(unit=str, least=16)]
    messages: Annotated[int, Column("waiting", count, least=5)]
    bytes: Annotated[int, Column(unit=size, least=5)]
    tasks: Annotated[int, Column(unit=count, least=5)]
    wait_p50_ms: Annotated[float | None, Column("half waited", milliseconds, least=5)]
    wait_p95_ms: Annotated[float | None, Column("95 % waited", milliseconds, least=5)]


class ChannelActivityRow(msgspec.Struct, frozen=True):
    channel: Annotated[str, Column(least=16)]
    published_hz: Annotated[float, Column("in/s", rate, least=5)]
    delivered_hz: Annotated[float, Column("out/s", rate, least=5)]
    delivered_kbps: Annotated[float, Column("kbit/s", rate, least=5)]
    latency_ms: Annotated[float | None, Column("latency", milliseconds, least=5)]
    latency_p95_ms: Annotated[float | None, Column("95 %", milliseconds, least=5)]
    shaped_hz: Annotated[float, Column("shaped/s", rate, least=5)]
    dropped_hz: Annotated[float, Column("lost/s", warned(rate), least=5)]
    late_hz: Annotated[float, Column("late/s", rate, weight=0, least=5)]
    expired_hz: Annotated[float, Column("expired/s", rate, weight=0, least=5)]
    replaced_hz: Annotated[float, Column("replaced/s", rate, weight=0, least=5)]


class ClientActivityRow(msgspec.Struct, frozen=True):
    client: Annotated[Cell, Column(of=_client, least=16)]
    user: Annotated[str, Column(unit=_or_nothing, least=5, is_number=True)]
    sent_hz: Annotated[float, Column("out/s", rate, least=5)]
    sent_kbps: Annotated[float, Column("kbit/s", rate, least=5)]
    link_kbps: Annotated[float | None, Column("link", rate, least=5)]
    rtt_ms: Annotated[float | None, Column("rtt", milliseconds, least=5)]
    queued_bytes: Annotated[int, Column("queue", size, least=5)]
    shed_hz: Annotated[float, Column("shed/s", warned(rate), least=5)]
    limit_kbps: Annotated[float | None, Column("limit", rate, weight=0, least=5)]
    queued_messages: Annotated[int, Column("waiting", count, weight=0, least=5)]


def draw_top(now: Top, *, width: int, height: int) -> Group:
    """As many channels and clients as there are lines for."""
    parts: list[RenderableType] = [
        line for facts in _head(now) for line in _filled(filter(None, facts), width)
    ]
    if now.bins:
        parts += [Text(), table(BinRow, reversed(now.bins), has_rule=False)]
    free = height - len(parts) - 2 - len(now.bins)
    channels = _fitted(_channels, now, len(now.channels), width, free * 3 // 5)
    clients = _fitted(_clients, now, len(now.clients), width, free - channels.height(width))
    channels = _fitted(_channels, now, len(now.channels), width, free - clients.height(width))
    return Group(*parts, Text(), channels, Text(), clients)


def _fitted(
    draw: Callable[[Top, int], Table], now: Top, rows: int, width: int, lines: int
) -> Table:
    shown = min(rows, max(lines, _MIN_ROWS))
    while (over := (table := draw(now, shown)).height(width) - lines) > 0 and shown > _MIN_ROWS:
        shown = max(_MIN_ROWS, shown - max(1, over // 2))
    return table


def _head(now: Top) -> Iterator[Iterable[str | Text]]:
    load = now.load
    up = duration_text(now.uptime_ms / 1_000)
    yield (
        Text.assemble((safe(now.name), "bold"), (f"  up {up}", "dim")),
        f"cpu {load.cpu_percent:.0f} %",
        f"{load.memory_mb:,.0f} MB",
        count_text(load.connections, "client"),
        f"{load.backlog:,} tasks waiting" if load.backlog else "",
    )
    yield (
        f"in {number_text(load.received_hz)}/s {rate_text(load.received_kbps * 1e3)}",
        f"out {number_text(load.sent_hz)}/s {rate_text(load.sent_kbps * 1e3)}",
        f"queues {size_text(load.queued_bytes)}",
        Text(f"shed {number_text(load.shed_hz)}/s" if load.shed_hz else "", "yellow"),
    )
    yield _decided(now.management)
    missed = now.ledger.missed
    yield (
        Text("" if now.ledger.is_on else "the ledger is off", "yellow"),
        Text(f"the ledger missed {count_text(missed, 'event')}" if missed else "", "yellow"),
    )


def _decided(management: Management) -> Iterator[str]:
    if management.strategy:
        yield safe(management.strategy)
    yield f"shaping {'on' if management.is_shaping else 'off'}"
    policies = f"{management.policies:,} {'policy' if management.policies == 1 else 'policies'}"
    yield f"{policies} (version {management.version})" if management.version else policies
    limits = []
    if management.bandwidth_bps is not None:
        limits.append(f"{rate_text(management.bandwidth_bps)} in all")
    if management.client_bandwidth_bps is not None:
        limits.append(f"{rate_text(management.client_bandwidth_bps)} each")
    if management.limited_clients:
        limits.append(f"{count_text(management.limited_clients, 'client')} limited")
    yield ", ".join(limits) or "no limits"


def _channels(now: Top, shown: int) -> Table:
    title = _title("channel", shown, now.channels_total)
    return table(ChannelActivityRow, now.channels[:shown], has_rule=False, title=title)


def _clients(now: Top, shown: int) -> Table:
    title = _title("client", shown, now.clients_total)
    return table(ClientActivityRow, now.clients[:shown], has_rule=False, title=title)


def _client(line: ClientActivity) -> Text:
    return Text(safe(line.client), "" if line.is_connected else "dim")


def _or_nothing(user: str) -> str:
    return user or NOTHING


def _title(noun: str, shown: int, total: int) -> str:
    return f"{noun} ({shown:,} of {total:,})" if total > shown else noun


def _filled(facts: Iterable[str | Text], width: int) -> list[Text]:
    """Lines with as many values as fit."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + len(_DOT) + len(fact) <= width:
            lines[-1] = Text.assemble(lines[-1], _DOT, fact)
        else:
            lines.append(Text.assemble(fact))
    return lines

"""Output of `accord top`, fitted to the terminal: the essentials fit 24 lines of 80 characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.quantities import count_text, duration_text, latency_text, size_text
from accord.cli.quantities import rate_text as number_text
from accord.cli.screen import safe
from accord.cli.table import NOTHING, Column, Table, figures
from accord.core.monitoring.top import BinActivity, Management, Top
from accord.http.ledger_schemas import rate_text

_DOT: Final = " · "
_MIN_ROWS: Final = 2  # of channels and of clients, whatever the terminal


def draw_top(now: Top, *, width: int, height: int) -> Group:
    """As many channels and clients as there are lines for."""
    parts: list[RenderableType] = [
        line for facts in _head(now) for line in _filled(filter(None, facts), width)
    ]
    if now.bins:
        parts += [Text(), _bins(now.bins)]
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


def _bins(bins: Sequence[BinActivity]) -> Table:
    table = _table("importance", "waiting", "bytes", "tasks", "half waited", "95 % waited")
    for line in reversed(bins):
        table.add_row(
            str(line.importance),
            _count(line.messages),
            size_text(line.bytes) if line.bytes else NOTHING,
            _count(line.tasks),
            _time(line.wait_p50_ms),
            _time(line.wait_p95_ms),
        )
    return table


def _channels(now: Top, shown: int) -> Table:
    table = _table(
        _title("channel", shown, now.channels_total),
        *("in/s", "out/s", "kbit/s", "latency", "95 %", "shaped/s", "lost/s"),
        extra=("late/s", "expired/s", "replaced/s"),
    )
    for line in now.channels[:shown]:
        table.add_row(
            line.channel,
            _rate(line.published_hz),
            _rate(line.delivered_hz),
            _rate(line.delivered_kbps),
            _time(line.latency_ms),
            _time(line.latency_p95_ms),
            _rate(line.shaped_hz),
            Text(_rate(line.dropped_hz), "yellow" if line.dropped_hz else ""),
            *map(_rate, (line.late_hz, line.expired_hz, line.replaced_hz)),
        )
    return table


def _clients(now: Top, shown: int) -> Table:
    table = _table(
        _title("client", shown, now.clients_total),
        *("user", "out/s", "kbit/s", "link", "rtt", "queue", "shed/s"),
        extra=("limit", "waiting"),
    )
    for line in now.clients[:shown]:
        table.add_row(
            Text(safe(line.client), "" if line.is_connected else "dim"),
            line.user or NOTHING,
            _rate(line.sent_hz),
            _rate(line.sent_kbps),
            NOTHING if line.link_kbps is None else _rate(line.link_kbps),
            _time(line.rtt_ms),
            size_text(line.queued_bytes) if line.queued_bytes else NOTHING,
            Text(_rate(line.shed_hz), "yellow" if line.shed_hz else ""),
            NOTHING if line.limit_kbps is None else _rate(line.limit_kbps),
            _count(line.queued_messages),
        )
    return table


def _table(first: str, *others: str, extra: Sequence[str] = ()) -> Table:
    """Widths that stay constant between refreshes."""
    return Table(
        Column(first, least=16),
        *figures(*others, least=5),
        *figures(*extra, weight=0, least=5),
        has_rule=False,
    )


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


def _count(count: int) -> str:
    return f"{count:,}" if count else NOTHING


def _rate(rate: float) -> str:
    return number_text(rate) if rate else NOTHING


def _time(time_ms: float | None) -> str:
    if time_ms is None:
        return NOTHING
    return latency_text(time_ms / 1_000) if time_ms else "0 ms"

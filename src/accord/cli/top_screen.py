"""What `accord top` draws, to fit a terminal: 24 lines of 80 characters say what matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accord.api.outcomes import rate_text
from accord.cli.quantities import count_text, duration_text, latency_text, size_text
from accord.cli.quantities import rate_text as number_text
from accord.cli.screen import safe
from accord.core.monitoring.top import BinLine, ChannelLine, ClientLine, Management, Top

_NOTHING: Final = "–"
_LEAST_LINES: Final = 3  # of channels and of clients, whatever the terminal
_WIDE: Final = 100


def draw_top(now: Top, *, width: int, height: int) -> Group:
    is_wide = width >= _WIDE
    parts: list[RenderableType] = [line for line in _head(now) if line]
    used = len(parts)
    if now.bins:
        parts += [Text(), _bins(now.bins)]
        used += len(now.bins) + 2
    free = max(height - used - 4, 2 * _LEAST_LINES)  # two tables with a line above and a title
    clients = min(len(now.clients), max(free * 2 // 5, free - len(now.channels)))
    channels = min(len(now.channels), free - clients)
    parts += [Text(), _channels(now.channels[:channels], now.channels_total, is_wide=is_wide)]
    parts += [Text(), _clients(now.clients[:clients], now.clients_total, is_wide=is_wide)]
    return Group(*parts)


def _head(now: Top) -> Iterator[Text]:
    load = now.load
    up = duration_text(now.uptime_ms / 1_000)
    yield _line(
        Text.assemble((safe(now.name), "bold"), (f"  up {up}", "dim")),
        f"cpu {load.cpu_percent:.0f} %",
        f"{load.memory_mb:,.0f} MB",
        count_text(load.connections, "client"),
        f"{load.backlog:,} tasks waiting" if load.backlog else "",
    )
    shed = f"shed {number_text(load.shed_hz)}/s" if load.shed_hz else ""
    yield _line(
        f"in {number_text(load.received_hz)}/s {rate_text(load.received_kbps * 1e3)}",
        f"out {number_text(load.sent_hz)}/s {rate_text(load.sent_kbps * 1e3)}",
        f"queues {size_text(load.queued_bytes)}",
        Text(shed, "yellow"),
    )
    yield _line(*_decided(now.management))
    missed = now.ledger.missed
    yield _line(
        Text("the ledger is off", "yellow") if not now.ledger.is_on else "",
        Text(f"the ledger missed {count_text(missed, 'event')}", "yellow") if missed else "",
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


def _bins(bins: Sequence[BinLine]) -> Table:
    table = _table("importance", "waiting", "bytes", "tasks", "half waited", "95 % waited")
    for line in reversed(bins):
        table.add_row(
            str(line.importance),
            _count(line.messages),
            size_text(line.bytes) if line.bytes else _NOTHING,
            _count(line.tasks),
            _time(line.wait_p50_ms),
            _time(line.wait_p95_ms),
        )
    return table


def _channels(lines: Sequence[ChannelLine], total: int, *, is_wide: bool) -> Table:
    more = ("late/s", "expired/s", "replaced/s") if is_wide else ()
    table = _table(
        _title("channel", len(lines), total),
        *("in/s", "out/s", "kbit/s", "latency", "95 %", "shaped/s", "lost/s", *more),
    )
    for line in lines:
        lost = Text(_rate(line.dropped_hz), "yellow" if line.dropped_hz else "")
        table.add_row(
            safe(line.channel),
            _rate(line.published_hz),
            _rate(line.delivered_hz),
            _rate(line.delivered_kbps),
            _time(line.latency_ms),
            _time(line.latency_p95_ms),
            _rate(line.shaped_hz),
            lost,
            *(map(_rate, (line.late_hz, line.expired_hz, line.replaced_hz)) if is_wide else ()),
        )
    return table


def _clients(lines: Sequence[ClientLine], total: int, *, is_wide: bool) -> Table:
    more = ("limit", "waiting", "user") if is_wide else ()
    table = _table(
        _title("client", len(lines), total),
        *("out/s", "kbit/s", "link", "rtt", "queue", "shed/s", *more),
    )
    for line in lines:
        name = Text(safe(line.client), "" if line.is_connected else "dim")
        table.add_row(
            name,
            _rate(line.sent_hz),
            _rate(line.sent_kbps),
            _NOTHING if line.link_kbps is None else _rate(line.link_kbps),
            _time(line.rtt_ms),
            size_text(line.queued_bytes) if line.queued_bytes else _NOTHING,
            Text(_rate(line.shed_hz), "yellow" if line.shed_hz else ""),
            *(_more(line) if is_wide else ()),
        )
    return table


def _more(line: ClientLine) -> Iterator[str]:
    yield _NOTHING if line.limit_kbps is None else _rate(line.limit_kbps)
    yield _count(line.queued_messages)
    yield safe(line.user)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    first, *others = columns
    table.add_column(first, no_wrap=True, overflow="ellipsis", ratio=1)
    for name in others:
        width = max(len(name), 8)
        table.add_column(name, justify="right", no_wrap=True, overflow="ellipsis", width=width)
    return table


def _title(noun: str, shown: int, total: int) -> str:
    return f"{noun} ({shown:,} of {total:,})" if total > shown else noun


def _line(*parts: str | Text) -> Text:
    line = Text(" · ", no_wrap=True, overflow="ellipsis")
    return line.join(part if isinstance(part, Text) else Text(part) for part in parts if part)


def _count(count: int) -> str:
    return f"{count:,}" if count else _NOTHING


def _rate(rate: float) -> str:
    return number_text(rate) if rate else _NOTHING


def _time(time_ms: float | None) -> str:
    if time_ms is None:
        return _NOTHING
    return latency_text(time_ms / 1_000) if time_ms else "0 ms"

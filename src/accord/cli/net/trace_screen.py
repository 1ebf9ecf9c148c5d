"""Output of `accord net trace`: the routes of a channel, hop by hop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.net.route_trace import FlowTrace, RouteTrace
from accord.cli.net.text import required_text, time_text
from accord.cli.screen import safe
from accord.cli.table import NOTHING, Table, figures
from accord.core.overlay.status import IN_USE


def draw_traces(channel: str, traces: Sequence[FlowTrace]) -> Group:
    parts: list[RenderableType] = []
    for trace in traces:
        if parts:
            parts.append(Text())
        parts += _flow(channel, trace)
    return Group(*parts)


def _flow(channel: str, trace: FlowTrace) -> Iterator[RenderableType]:
    required = required_text(trace.max_delay_us, trace.paths, trace.resiliency)
    state = (f"lacking: {trace.lacks}", "yellow") if trace.lacks else ("as required", "green")
    yield Text.assemble(
        (safe(channel), "bold"),
        safe(f" from {trace.source} to {trace.destination}, {required}: "),
        state,
        f", resiliency {trace.reached:.4g}" if trace.routes else "",
    )
    if not trace.is_named:
        yield Text("uncertain: this flow carries more channels than its source announces", "yellow")
    elif trace.channels != (channel,):
        yield Text(safe(f"carries {', '.join(trace.channels)}"), "dim")
    for number, route in enumerate(trace.routes, start=1):
        yield _headline(number, route, trace.max_delay_us)
        yield _hops(route)


def _headline(number: int, route: RouteTrace, max_delay_us: int) -> Text:
    line = Text(f"  route {number}, ")
    line.append(route.state, "" if route.state == IN_USE else "yellow")
    line.append(f": {time_text(route.delay_us)}")
    if route.margin_us is not None:
        line.append(f" of {time_text(max_delay_us)}, ")
        if route.margin_us >= 0:
            line.append(f"{time_text(route.margin_us)} to spare", "green")
        else:
            line.append(f"{time_text(-route.margin_us)} too long", "red")
    return line


def _hops(route: RouteTrace) -> Table:
    table = Table("hop", *figures("link", "node", "so far", "slack", "loss"), indent=4)
    for hop in route.hops:
        table.add_row(
            f"{hop.source} → {hop.target}",
            time_text(hop.latency_us) if hop.is_up else Text("down", "red"),
            time_text(hop.processing_us) if hop.processing_us else NOTHING,
            time_text(hop.so_far_us),
            NOTHING if hop.slack_us is None else time_text(hop.slack_us),
            f"{100 * hop.loss:.1f} %",
        )
    return table

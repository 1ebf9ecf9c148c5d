"""The plots of a report, as SVG.

They are designed for a narrow page: readable on a phone, and scaled to the width of the page. Text
stays text, in the page's own font.
"""

# matplotlib is loaded only where it is used: it is large, and may not be installed.
# ruff: noqa: PLC0415

from __future__ import annotations

import importlib.util
import io
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from accord.cli.errors import InputError
from accord.cli.report_tables import SEVERAL
from accord.cli.screen import safe
from accord.core.queries.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CAUSES: Final = 8
_LABEL_LENGTH: Final = 44
_SIZE: Final = (6.4, 2.6)  # in inches of 72 points
_BLUE, _ORANGE, _RED, _GREEN = "#2563eb", "#d97706", "#dc2626", "#15803d"
_NAMES: Final = re.compile(r' id="(?![a-z][0-9a-f]{10}")[^"]*"')  # unreferenced ones
_FACTS: Final = ("Creator", "Date", "Format", "Type")  # omitted from the picture
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#94a3b8",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e8f0",
    "xtick.color": "#475569",
    "ytick.color": "#475569",
    "legend.frameon": False,
    "text.parse_math": False,
}


def check_plotting() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        problem = "expected matplotlib to be installed: pip install 'accord[pipeline]'"
        raise InputError("--html", problem)


def plots(report: Report) -> Iterator[tuple[str, str]]:
    """Titles and SVG elements."""
    if any(each.events for each in report.series):
        yield "Events per second", _svg(report, _draw_rates)
        yield "Latency", _svg(report, _draw_latency)
        yield "In time", _svg(report, _draw_in_time)
    if report.losses:
        height = 0.9 + 0.34 * min(len(report.losses), CAUSES)
        yield "Causes of loss", _svg(report, _draw_causes, height)


def _svg(report: Report, draw: Callable[[Axes, Report], None], height: float = _SIZE[1]) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Salt of the ids, which must differ between pictures on one page.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": draw.__name__}):
        figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
        draw(figure.subplots(), report)
        sink = io.StringIO()
        figure.savefig(sink, format="svg", transparent=True, metadata=dict.fromkeys(_FACTS))
    text = sink.getvalue()
    text = _NAMES.sub("", text[text.index("<svg") :])
    head, _, rest = text.partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    return f'{head} role="img">{rest}'


def _moments(report: Report) -> list[Any]:
    return [datetime.fromtimestamp(each.at_ms / 1_000).astimezone() for each in report.series]


def _draw_rates(axes: Axes, report: Report) -> None:
    moments = _moments(report)
    bucket_s = max(report.bucket_ms, 1) / 1_000
    arrived = [each.arrived / bucket_s for each in report.series]
    lost = [each.undelivered / bucket_s for each in report.series]
    axes.fill_between(moments, arrived, step="post", color=_BLUE, alpha=0.15, linewidth=0)
    axes.step(moments, arrived, where="post", color=_BLUE, label="arrived")
    if any(lost):
        axes.step(moments, lost, where="post", color=_RED, label="lost")
    axes.set_ylim(0, 1.25 * max(*arrived, *lost, 0.1))
    axes.legend(loc="upper left", ncols=2)
    _time_axis(axes)


def _draw_latency(axes: Axes, report: Report) -> None:
    moments = _moments(report)
    series = report.series
    lines = (
        ("half", [each.latency_p50_ms for each in series], _GREEN),
        ("95 %", [each.latency_p95_ms for each in series], _BLUE),
        ("99 %", [each.latency_p99_ms for each in series], _ORANGE),
    )
    for name, values, color in lines:
        known = [math.nan if value is None else max(value, 0.01) for value in values]
        axes.plot(moments, known, color=color, label=f"{name} within", marker=".", markersize=3)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} ms" if value < 1_000 else
                                   f"{value / 1_000:g} s")  # fmt: skip
    axes.legend(loc="upper left", ncols=3)
    axes.margins(y=0.25)
    _time_axis(axes)


def _draw_in_time(axes: Axes, report: Report) -> None:
    shares = [math.nan if each.in_time is None else each.in_time * 100 for each in report.series]
    moments = _moments(report)
    axes.plot(moments, shares, color=_GREEN, marker=".", markersize=4)
    known = [share for share in shares if not math.isnan(share)]
    axes.set_ylim(max(0.0, min(known, default=0.0) - 5), 101)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    _time_axis(axes)


def _draw_causes(axes: Axes, report: Report) -> None:
    losses = report.losses[:CAUSES][::-1]
    labels = []
    for each in losses:
        words = f"{each.outcome}, {each.cause}" if each.cause else each.outcome
        labels.append(_short(safe(f"{words}: {each.channel or SEVERAL}")))
    places = range(len(losses))
    bars = axes.barh(places, [each.events for each in losses], color=_RED, alpha=0.75, height=0.6)
    axes.bar_label(bars, [f" {each.events:,}" for each in losses], color="#475569")
    axes.set_yticks(places, labels)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.12)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_LENGTH else f"{text[: _LABEL_LENGTH - 1]}…"


def _time_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = datetime.now().astimezone().tzinfo
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.margins(x=0.01)

"""A report as one self-contained HTML page with plots, for screens and paper.

Plots are SVG, designed for a narrow page: readable on a phone, and scaled to the width of the page.
Text stays text, in the page's own font.
"""

# matplotlib is loaded only where it is used: it is large, and may not be installed.
# ruff: noqa: PLC0415

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from accord.apps.report.sections import SEVERAL, Section, headline, sections, totals
from accord.core.model.errors import InputError, file_problem
from accord.core.queries.report import Report
from accord.terminal.amounts import moment_text
from accord.terminal.screen import safe

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


_CSS: Final = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: #0f172a;
  background: #fff; max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; } .quiet { color: #475569; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0; }
dt { color: #475569; } dd { margin: 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem 2rem; }
figure { margin: 0; break-inside: avoid; min-width: 0; }
figcaption { font-weight: 600; } svg { width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #e2e8f0;
  vertical-align: top; }
th { color: #475569; font-weight: 500; white-space: nowrap; }
td { overflow-wrap: anywhere; min-width: 6rem; }
.number { text-align: right; white-space: nowrap; min-width: 0; }
tr { break-inside: avoid; }
@media print { body { max-width: none; padding: 0; font-size: 10px; } .scroll { overflow: visible; }
  h2 { break-after: avoid; } thead { display: table-header-group; }
  .plots { grid-template-columns: 1fr 1fr; } }
"""


def write_page(report: Report, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(page(report), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise InputError("--html", f"{path}: {file_problem(error)}") from None


def page(report: Report) -> str:
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    title = _text(f"Delivered quality, {report.node}" if report.node else "Delivered quality")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # Whatever names the report contains: nothing is executed, nothing is loaded.
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    yield f"<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n<body>"
    yield f'<h1>{title}</h1>\n<p class="quiet">{_text(headline(report))}</p>\n<dl>'
    for name, value in totals(report):
        yield f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>"
    yield '</dl>\n<div class="plots">'
    for caption, picture in plots(report):
        yield f"<figure><figcaption>{_text(caption)}</figcaption>\n{picture}</figure>"
    yield "</div>"
    for section in sections(report):
        yield from _section(section)
    made = f"made for the time until {moment_text(report.until_ms)}, in {report.took_ms:,} ms"
    yield f'<p class="quiet">{_text(made)}</p>\n</body>\n</html>'


def _section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{_text(section.title)}</h2>"
    table = section.table
    if table.rows:
        yield '<div class="scroll"><table>\n<thead><tr>'
        for column in table.columns:
            yield f"<th{_class(column.is_number)}>{_text(column.title or '')}</th>"
        yield "</tr></thead>\n<tbody>"
        for row in table.rows:
            pairs = zip(table.columns, row, strict=True)
            cells = (f"<td{_class(col.is_number)}>{_text(cell.plain)}</td>" for col, cell in pairs)
            yield f"<tr>{''.join(cells)}</tr>"
        yield "</tbody></table></div>"
    if section.remark:
        yield f'<p class="quiet">{_text(section.remark)}</p>'
    yield "</section>"


def _class(is_number: bool | None) -> str:
    return ' class="number"' if is_number else ""


def _text(text: str) -> str:
    return escape(safe(text))

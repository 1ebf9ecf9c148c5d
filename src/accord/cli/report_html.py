"""A report as one self-contained HTML page with plots, for screens and paper."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from accord.cli.errors import InputError
from accord.cli.report_plots import plots
from accord.cli.report_tables import Section, headline, moment_text, sections, totals
from accord.cli.screen import safe
from accord.core.model.errors import file_problem
from accord.core.queries.report import Report

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
            yield f"<th{_class(column.is_number)}>{_text(column.title)}</th>"
        yield "</tr></thead>\n<tbody>"
        for row in table.rows:
            pairs = zip(table.columns, row, strict=True)
            cells = (f"<td{_class(col.is_number)}>{_text(cell.plain)}</td>" for col, cell in pairs)
            yield f"<tr>{''.join(cells)}</tr>"
        yield "</tbody></table></div>"
    if section.remark:
        yield f'<p class="quiet">{_text(section.remark)}</p>'
    yield "</section>"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _text(text: str) -> str:
    return escape(safe(text))

"""Results as rows, for tables on the screen and files: CSV, JSON, and Parquet with pyarrow.

Each kind of row has its own table: `channels`, `links`, `findings`, and `run` with one row. Each
row has the seed of its run, so that several runs can be compared.
"""

# pyarrow is loaded only where it is used: it is large, and may not be installed.
# ruff: noqa: PLC0415

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from accord.core.model.errors import file_problem
from accord.sim.run import Outcome
from accord.sim.trace import SimulationError

Cell = int | float | str | None
Row = dict[str, Cell]

TABLES: Final = ("run", "channels", "links", "findings")
FORMATS: Final = ("csv", "json", "parquet")

# Column types, which can't be inferred from a column of only None.
_COUNTS: Final = (
    "nodes", "happened", "breaks", "crashes", "unpublished", "overdue", "found",
    "published", "wanted", "delivered", "in_time", "late", "lost", "excused", "unreachable",
    "duplicates", "p50_us", "p95_us", "p99_us", "max_us", "messages", "bytes", "data_bytes",
    "arrived", "blocked", "overflowed", "unconnected", "duplicated", "retried",
    "most_queued_bytes", "at_us", "until_us", "seed",
)  # fmt: skip
_FLOATS: Final = ("in_time_share", "delivered_share", "mean_us", "sent_bytes_per_delivery")


def rows(outcome: Outcome, table: str) -> list[Row]:
    """The rows of one of the `TABLES`."""
    return [{"seed": outcome.seed, **row} for row in _MAKERS[table](outcome)]


def merged(outcomes: Iterable[Outcome], table: str) -> list[Row]:
    """The rows of several runs, concatenated."""
    return [row for outcome in outcomes for row in rows(outcome, table)]


def _run_rows(outcome: Outcome) -> list[Row]:
    sent = sum(counts.bytes for counts in outcome.links.values())
    delivered = sum(tally.delivered for tally in outcome.channels.values())
    return [
        {
            "topology": outcome.topology,
            "nodes": outcome.nodes,
            "until_us": outcome.until_us,
            "happened": outcome.happened,
            "breaks": outcome.breaks,
            "crashes": outcome.crashes,
            "unpublished": outcome.unpublished,
            "overdue": outcome.overdue,
            "messages": sum(counts.messages for counts in outcome.links.values()),
            "bytes": sent,
            "data_bytes": sum(counts.data_bytes for counts in outcome.links.values()),
            "sent_bytes_per_delivery": sent / delivered if delivered else None,
            "found": outcome.found,
            "trace": outcome.trace,
            "replay": outcome.replay,
        }
    ]


def _channel_rows(outcome: Outcome) -> list[Row]:
    found: list[Row] = []
    for name, tally in outcome.channels.items():
        latency = tally.latency_us
        found.append(
            {
                "channel": name,
                "published": tally.published,
                "wanted": tally.wanted,
                "delivered": tally.delivered,
                "in_time": tally.in_time,
                "late": tally.late,
                "lost": tally.lost,
                "excused": tally.excused,
                "unreachable": tally.unreachable,
                "duplicates": tally.duplicates,
                "delivered_share": tally.delivered_share,
                "in_time_share": tally.in_time_share,
                "mean_us": latency.mean,
                "p50_us": latency.quantile(0.5),
                "p95_us": latency.quantile(0.95),
                "p99_us": latency.quantile(0.99),
                "max_us": latency.most if latency.count else None,
            }
        )
    return found


def _link_rows(outcome: Outcome) -> list[Row]:
    return [
        {
            "source": source,
            "target": target,
            **{name: getattr(counts, name) for name in counts.__struct_fields__},
        }
        for (source, target), counts in outcome.links.items()
    ]


def _finding_rows(outcome: Outcome) -> list[Row]:
    return [
        {"at_us": each.at_us, "node": each.node, "checker": each.checker, "problem": each.problem}
        for each in outcome.findings
    ]


_MAKERS: Final[dict[str, Callable[[Outcome], list[Row]]]] = {
    "run": _run_rows,
    "channels": _channel_rows,
    "links": _link_rows,
    "findings": _finding_rows,
}


def write(outcomes: Sequence[Outcome], folder: str | Path, kind: str) -> list[Path]:
    """Write a file per table to `folder`, created if needed; none for tables without rows."""
    if kind not in FORMATS:
        raise SimulationError(f"expected {', '.join(FORMATS)} as the format, got {kind!r}")
    if kind == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise SimulationError("expected pyarrow to be installed: pip install 'accord[pipeline]'")
    place = Path(folder)
    written = []
    try:
        place.mkdir(parents=True, exist_ok=True)
        for table in TABLES:
            found = merged(outcomes, table)
            if found:
                written.append(place / f"{table}.{kind}")
                _WRITERS[kind](found, written[-1])
    except OSError as error:
        raise SimulationError(f"{place}: {file_problem(error)}") from None
    return written


def _write_csv(found: list[Row], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(found[0]))
        writer.writeheader()
        writer.writerows(found)


def _write_json(found: list[Row], file: Path) -> None:
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_parquet(found: list[Row], file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    def type_of(name: str) -> Any:
        if name in _COUNTS:
            return pa.int64()
        return pa.float64() if name in _FLOATS else pa.string()

    schema = pa.schema([(name, type_of(name)) for name in found[0]])
    pyarrow.parquet.write_table(pa.Table.from_pylist(found, schema), file)


_WRITERS: Final[dict[str, Callable[[list[Row], Path], None]]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}

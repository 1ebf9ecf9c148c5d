"""The archive read by DataFusion, inside delta-rs and this process: for small questions.

SQL finds rows that may match, and `core.predicates` decides each of them by its properties, as in
the journal's tail. So there is no third meaning of a predicate, and the condition may be any that
every match satisfies (`datafusion_predicate`).

Memory is bounded. Rows are cut off at a limit, after which the next lookup continues. Payloads come
with them only if all are small in the files concerned, and are otherwise fetched a page at a time:
Parquet decodes a column a batch of rows at a time, whatever is wanted of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from accord.core.queries.messages import EngineName
from accord.journal.events import KeptEvent
from accord.pipeline.data_skipping import complete_columns
from accord.pipeline.delta_log import TableSnapshot
from accord.pipeline.query import datafusion_predicate as sql
from accord.pipeline.query.checks import CheckedQuery, seen
from accord.pipeline.query.chunks import NO_ROWS, ROW, times_ms
from accord.pipeline.query.engine import (
    CONTENTS,
    NO_CONTENTS,
    OUTCOME,
    Check,
    FoundRows,
    Lookup,
    StaleError,
    is_missing,
)
from accord.pipeline.query.scan_ranges import SortRank, rank_of
from accord.pipeline.tables import ATTRIBUTES, EVENTS, LEDGER, TableFile, arrow_ledger

EXAMINED: Final = 20_000  # rows of a lookup, where most may not match
INLINE_BYTES: Final = 16 << 10  # payloads up to this size come with their rows
_PROPERTY_BYTES: Final = 32 << 20  # in a lookup
_PROPERTY_SIZE: Final = "octet_length(encode(properties, 'hex')) / 2"  # it counts texts only
_PIECE: Final = 500  # rows whose contents are fetched, or decided, at once
_DECIDING: Final = ("channel", "received", "publisher", "qos")
_UNREAD: Final = "is_unread"


class DataFusionEngine:
    """Answers lookups in this process; thread-safe."""

    name: EngineName = "datafusion"

    def find(self, lookup: Lookup, most: int, check: Check) -> FoundRows:
        question = lookup.question
        limit = most if _is_exact(question) else max(most, EXAMINED)
        order = "DESC" if question.is_newest_first else "ASC"
        found = _table(
            lookup.snapshot,
            _query(
                EVENTS,
                _selected(lookup, limit),
                _conditions(lookup),
                f'ORDER BY received {order}, "offset" {order} LIMIT {limit}',
            ),
            check,
        )
        if found is None:
            return FoundRows(NO_ROWS, None)
        end = _last_rank(question, found) if len(found) == limit else None
        rows = self._matches(lookup, found, check)
        if len(rows) > most:
            rows = rows.slice(0, most)
            end = _last_rank(question, rows)
        return FoundRows(rows.select(ROW), end)

    def counts(self, lookup: Lookup, width_ms: int, check: Check) -> list[tuple[int, int]]:
        at = f"CAST(received AS BIGINT) / {width_ms * 1_000} AS at"
        conditions = _conditions(lookup)
        if lookup.question.has_predicate:
            names = (*_DECIDING, *_unread(lookup), "properties", at, "1 AS count")
            query = _query(EVENTS, names, conditions)
        else:
            names = ("channel", at, "count(*) AS count")
            query = _query(EVENTS, names, conditions, "GROUP BY channel, at")
        counts: Counter[int] = Counter()
        for batch in _run(lookup.snapshot, query, check):
            rows = self._matches(lookup, pa.Table.from_batches([batch]), check)
            for place, count in zip(rows["at"].to_pylist(), rows["count"].to_pylist(), strict=True):
                counts[place] += count
        return list(counts.items())

    def contents(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],  # noqa: ARG002 (it finds them by their statistics)
        offsets: Sequence[int],
        check: Check,
    ) -> pa.Table:
        found = [NO_CONTENTS]
        for first in range(0, len(offsets), _PIECE):
            piece = offsets[first : first + _PIECE]
            low, high = min(piece), max(piece)
            where = [_of_node(node), _between("offset", low, high)]
            if high - low >= len(piece):
                where.append(f'"offset" IN ({", ".join(map(str, piece))})')
            rows = _table(snapshot, _query(EVENTS, _named(CONTENTS), where), check)
            found += [] if rows is None else [rows]
        return pa.concat_tables(found)

    def outcomes(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],
        number: int,
        most: int,
    ) -> pa.Table:
        low = min(file.first_offset for file in files)
        high = max(file.last_offset for file in files)
        where = [
            _of_node(node),
            _between("offset", low, high),
            _between("number", 1, number),
            f"number + count > {number}",
        ]
        query = _query(LEDGER, _named(OUTCOME), where, f"LIMIT {most}")
        rows = _table(snapshot, query, lambda: None)
        return arrow_ledger().empty_table().select(OUTCOME) if rows is None else rows

    def _matches(self, lookup: Lookup, rows: pa.Table, check: Check) -> pa.Table:
        """Those of the rows that match."""
        selects = lookup.question.selects
        rows = rows.filter(pa.array([selects(each) for each in rows["channel"].to_pylist()]))
        if not lookup.question.has_predicate:
            return rows
        found: list[bool] = []
        for first in range(0, len(rows), _PIECE):
            check()
            found += self._decide(lookup, rows.slice(first, _PIECE), check)
        return rows.filter(pa.array(found, pa.bool_()))

    def _decide(self, lookup: Lookup, rows: pa.Table, check: Check) -> list[bool]:
        evaluate = lookup.question.predicate.evaluate
        events = zip(
            times_ms(rows["received"]),
            *(rows[name].to_pylist() for name in ("channel", "publisher", "qos")),
            self._properties(lookup, rows, check),
            strict=True,
        )
        contents = [
            seen(KeptEvent(ms, channel, publisher, qos, -1, properties, b""))
            for ms, channel, publisher, qos, properties in events
        ]
        if _UNREAD in rows.column_names:
            unread = rows[_UNREAD].to_pylist()
            contents = [
                ({}, None) if no else each for no, each in zip(unread, contents, strict=True)
            ]
        return [evaluate(values, document) is True for values, document in contents]

    def _properties(self, lookup: Lookup, rows: pa.Table, check: Check) -> list[bytes]:
        """Those of each row, also if they were too large to come with it."""
        found: list[bytes | None] = rows["properties"].to_pylist()
        if None not in found:
            return [each for each in found if each is not None]
        offsets: list[int] = rows["offset"].to_pylist()
        lacking = [at for at, each in zip(offsets, found, strict=True) if each is None]
        more = self.contents(lookup.snapshot, lookup.node, lookup.range.files, lacking, check)
        by_offset = dict(
            zip(more["offset"].to_pylist(), more["properties"].to_pylist(), strict=True)
        )
        return [by_offset[at] if e is None else e for at, e in zip(offsets, found, strict=True)]


def _is_exact(question: CheckedQuery) -> bool:
    """Whether most rows that the condition lets through match."""
    ask = question.query
    if question.has_predicate and not sql.is_tight(question.predicate):
        return False
    return ask.number is not None or not (ask.without or "+" in ask.channel.split("/"))


def _selected(lookup: Lookup, limit: int) -> list[str]:
    most = _PROPERTY_BYTES // limit
    is_small = all(file.largest <= INLINE_BYTES for file in lookup.range.files)
    return [
        *_named(("received", "offset", "number", "channel", "publisher", "qos")),
        f"{_PROPERTY_SIZE} AS properties_bytes",
        "payload_bytes",
        f"CASE WHEN {_PROPERTY_SIZE} < {most} THEN properties END AS properties",
        "payload" if is_small else "CAST(NULL AS BYTEA) AS payload",
        "payload_ref",
        *_unread(lookup),
    ]


def _unread(lookup: Lookup) -> tuple[str, ...]:
    """Which rows can't be decoded: their times and channels may have been changed to fit."""
    has_unread = any(file.unread for file in lookup.range.files)
    return (f"{ATTRIBUTES} IS NULL AS {_UNREAD}",) if has_unread else ()


def _query(table: str, columns: Sequence[str], where: Sequence[str], rest: str = "") -> str:
    return " ".join(
        ("SELECT", ", ".join(columns), "FROM", table, "WHERE", " AND ".join(where), rest)
    )


def _conditions(lookup: Lookup) -> list[str]:
    question, part, files = lookup.question, lookup.part, lookup.range.files
    low, high = (sql.moment(1_000 * ms) for ms in (lookup.range.low_ms, lookup.range.high_ms))
    found = [_of_node(lookup.node), f"received >= {low}", f"received < {high}"]
    if any(file.first_offset < part.first or file.last_offset >= part.before for file in files):
        found.append(_between("offset", part.first, part.before - 1))
    if question.query.number is not None:
        found.append(f"number = {question.query.number}")
    if part.after is not None:
        ms, offset = map(abs, part.after)
        sign = "<" if question.is_newest_first else ">"
        at = sql.moment(1_000 * ms)
        found.append(f'(received {sign} {at} OR (received = {at} AND "offset" {sign} {offset}))')
    if channels := sql.channels(question):
        found.append(channels)
    if question.has_predicate:
        columns = lookup.snapshot.columns
        complete = complete_columns(files, columns)
        if condition := sql.superset(question.predicate, columns, complete):
            found.append(condition)
    return found


def _between(name: str, low: int, high: int) -> str:
    return f"{sql.named(name)} BETWEEN {low} AND {high}"


def _of_node(node: str) -> str:
    """The table may have the events of other nodes, in other files, at the same offsets."""
    return f"node = {sql.quoted(node)}"


def _named(columns: Sequence[str]) -> list[str]:
    return list(map(sql.named, columns))


def _last_rank(question: CheckedQuery, rows: pa.Table) -> SortRank:
    last = rows.slice(len(rows) - 1)
    place = times_ms(last["received"])[0], last["offset"][0].as_py()
    return rank_of(place, is_newest_first=question.is_newest_first)


def _table(snapshot: TableSnapshot, query: str, check: Check) -> pa.Table | None:
    batches = list(_run(snapshot, query, check))
    return pa.Table.from_batches(batches) if batches else None


def _run(snapshot: TableSnapshot, query: str, check: Check) -> Iterator[pa.RecordBatch]:
    """Batches that are not empty."""
    check()
    try:
        for batch in pa.RecordBatchReader.from_stream(snapshot.engine.execute(query)):
            check()
            if len(batch):
                yield _plain(batch)
    except Exception as error:
        if is_missing(error):
            raise StaleError from error
        raise


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without views of other buffers, which would keep these in memory."""
    kinds = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    schema = pa.schema([(f.name, kinds.get(f.type, f.type)) for f in batch.schema])
    return batch.cast(schema)

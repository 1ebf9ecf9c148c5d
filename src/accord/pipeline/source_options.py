"""Options of the format `accord`, parsed and validated once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

import msgspec

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import AccordError
from accord.core.model.units import parse_time
from accord.journal.record import MAX_OFFSET
from accord.pipeline.spark_tables import spark_events, spark_ledger
from accord.pipeline.tables import EVENTS, LEDGER, TablesError, check_declared

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LATEST: Final = "latest"
DEFAULT_NODE: Final = "local"


class OptionError(AccordError):
    """An invalid option of the format `accord`."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"option {name}: {problem}")


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which journals to read, and what of them.

    `journals`: location of each node's journal: a directory, or
    `http(s)://user:password@host:port`. `declared`: attributes with columns of their own, and their
    types. `columns`: those wanted; Spark does not inform a Python source which it needs. `channel`:
    a filter such as `uav/#`; `since_ms`, `until_ms`: time of receipt. `from_offset` is None for the
    journal's start; a stream may start at the `latest` offset. `piece_rows`: approximate size of
    one task. `is_strict`: retired or damaged records fail the read; otherwise they are skipped.
    `is_pushed`: use a query's conditions to read less; see `spark_source.PushedReader`.
    """

    journals: dict[str, str]
    table: str = EVENTS
    declared: dict[str, str] = {}
    columns: tuple[str, ...] | None = None
    from_offset: int | None = None
    before_offset: int = MAX_OFFSET
    is_latest: bool = False
    max_rows: int = 1_000_000
    piece_rows: int = 100_000
    piece_bytes: int = 32 << 20
    is_strict: bool = True
    is_pushed: bool = False
    channel: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, now_ms: int) -> Self:
        """Parse options; OptionError names the wrong one."""
        table = options.get("table", EVENTS)
        if table not in (EVENTS, LEDGER):
            raise OptionError("table", f"expected {EVENTS} or {LEDGER}, got {table!r}")
        start = options.get("from_offset")
        return cls(
            journals=_journals(options),
            table=table,
            declared=_declared(options),
            columns=_columns(options),
            from_offset=None if start in (None, LATEST) else _number(options, "from_offset", 0, 0),
            before_offset=_number(options, "before_offset", MAX_OFFSET, 0),
            is_latest=start == LATEST,
            max_rows=_number(options, "maxRowsPerTrigger", 1_000_000, 1),
            piece_rows=_number(options, "rowsPerTask", 100_000, 1),
            is_strict=_truth(options, "failOnLoss", "true"),
            is_pushed=_truth(options, "pushFilters", "false"),
            channel=_channel(options, table),
            since_ms=_moment(options, "since", table, now_ms),
            until_ms=_moment(options, "until", table, now_ms),
        )

    def schema(self) -> StructType:
        """The wanted columns, in the order of the table."""
        whole = spark_events(self.declared) if self.table == EVENTS else spark_ledger()
        if self.columns is None:
            return whole
        known = whole.fieldNames()
        for name in self.columns:
            if name not in known:
                raise OptionError("columns", f"expected some of {', '.join(known)}, got {name!r}")
        return type(whole)([field for field in whole.fields if field.name in self.columns])


def _journals(options: Mapping[str, str]) -> dict[str, str]:
    place, text = options.get("path", ""), options.get("journals")
    if text is None:
        if not place:
            raise OptionError("path", "expected a journal's folder or a node's URL, as in load(…)")
        return {options.get("node", ""): place}
    if place:
        raise OptionError("journals", "expected either this or a path, got both")
    journals = _object(text, "journals")
    if not journals or not all(journals) or not all(journals.values()):
        raise OptionError("journals", 'expected {"node": "folder or URL", …}')
    return journals


def _declared(options: Mapping[str, str]) -> dict[str, str]:
    declared = _object(options.get("declared", "{}"), "declared")
    try:
        check_declared(declared)
    except TablesError as error:
        raise OptionError("declared", str(error)) from None
    return declared


def _object(text: str, name: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise OptionError(name, f"expected a JSON object of strings: {error}") from None


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    text = options.get("columns")
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = options.get(name, "").strip() or str(default)
    if not text.isdecimal() or not least <= int(text) <= MAX_OFFSET:
        raise OptionError(name, f"expected a whole number from {least} on, got {text!r}")
    return int(text)


def _channel(options: Mapping[str, str], table: str) -> str | None:
    text = options.get("channel")
    if text is not None:
        _check_table("channel", table)
        if problem := problem_with_filter(text):
            raise OptionError("channel", problem)
    return text


def _moment(options: Mapping[str, str], name: str, table: str, now_ms: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    _check_table(name, table)
    try:
        return parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise OptionError(name, str(error)) from None


def _check_table(name: str, table: str) -> None:
    if table != EVENTS:
        raise OptionError(name, f"is for the table {EVENTS}; use a condition on a column instead")


def _truth(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name, default).lower()
    if text not in ("true", "false"):
        raise OptionError(name, f"expected true or false, got {text!r}")
    return text == "true"

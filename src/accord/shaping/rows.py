"""Splits payloads into rows of readings, without changing a byte of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from accord.shaping.content import ShapingError

JSON: Final = "json"
LINES: Final = "lines"
CSV: Final = "csv"
COLUMNS: Final = "columns"

MAX_COLUMNS: Final = 16  # columns considered

TYPES: Final = {
    "application/json": JSON,
    "text/json": JSON,
    "application/x-ndjson": LINES,
    "application/ndjson": LINES,
    "application/jsonl": LINES,
    "application/x-jsonlines": LINES,
    "application/jsonlines": LINES,
    "text/csv": CSV,
    "application/csv": CSV,
}

Numbers = list[float]

_SPACE: Final = b" \t\r\n"
_SAMPLE: Final = 100  # rows from which the columns are determined
_READ_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_READ_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_READ: Final = msgspec.json.Decoder()


class Rows:
    """The rows of a payload as they are encoded, with the text around them.

    `columns` returns their numbers, a list per column with one entry per row; columns without
    numbers are omitted.
    """

    def __init__(self, texts: Sequence[bytes], before: bytes, between: bytes, after: bytes) -> None:
        self.texts = texts
        self._before = before
        self._between = between
        self._after = after

    @property
    def overhead(self) -> int:
        return len(self._before) + len(self._after)

    def columns(self) -> list[Numbers]:
        raise NotImplementedError

    def encode(self, places: list[int]) -> bytes:
        """The payload with only these rows."""
        rows = self._between.join([self.texts[place] for place in places])
        return self._before + rows + self._after


class _JsonRows(Rows):
    def columns(self) -> list[Numbers]:
        values = [_READ.decode(text) for text in self.texts]
        sample = values[:_SAMPLE]
        columns: list[list[object]] = [values]
        if any(isinstance(value, dict) for value in sample):
            names = dict.fromkeys(name for row in sample if isinstance(row, dict) for name in row)
            columns = [
                [row.get(name) if isinstance(row, dict) else None for row in values]
                for name in list(names)[:MAX_COLUMNS]
            ]
        elif any(isinstance(value, list) for value in sample):
            width = max(len(row) for row in sample if isinstance(row, list))
            columns = [
                [row[at] if isinstance(row, list) and at < len(row) else None for row in values]
                for at in range(min(width, MAX_COLUMNS))
            ]
        return [filled for column in columns if (filled := _filled(column))]


class _CsvRows(Rows):
    def columns(self) -> list[Numbers]:
        separator = _separator(self._before or self.texts[0])
        split = [text.split(separator, MAX_COLUMNS) for text in self.texts]
        width = min(MAX_COLUMNS, max(map(len, split[:_SAMPLE])))
        columns = [
            [_number(row[at]) if at < len(row) else None for row in split] for at in range(width)
        ]
        return [filled for column in columns if (filled := _filled(column))]


class _ColumnRows(Rows):
    """An object with parallel arrays; a row is one entry of each array."""

    def __init__(self, fields: dict[str, msgspec.Raw], length: int) -> None:
        self._fields = {name: bytes(raw) for name, raw in fields.items()}
        self._arrays: dict[str, list[msgspec.Raw]] = {}
        for name, raw in self._fields.items():
            if raw.startswith(b"["):
                items = _READ_LIST.decode(raw)
                if len(items) == length:
                    self._arrays[name] = items
        others = sum(len(raw) for name, raw in self._fields.items() if name not in self._arrays)
        names = sum(len(name) + 6 for name in self._fields)
        super().__init__([b""] * length, b"\0" * (others + names), b"", b"")

    def columns(self) -> list[Numbers]:
        columns = [_READ.decode(self._fields[name]) for name in list(self._arrays)[:MAX_COLUMNS]]
        return [filled for column in columns if (filled := _filled(column))]

    def encode(self, places: list[int]) -> bytes:
        parts: list[bytes] = []
        for name, raw in self._fields.items():
            items = self._arrays.get(name)
            kept = raw if items is None else _array([bytes(items[place]) for place in places])
            parts.append(msgspec.json.encode(name) + b":" + kept)
        return b"{" + b",".join(parts) + b"}"


def sniff_rows(head: bytes) -> str:
    """The probable kind of rows; "" if none."""
    text = head.lstrip(_SPACE)
    if text.startswith(b"["):
        return LINES if _is_line(text) else JSON
    if text.startswith(b"{"):
        return LINES if _is_line(text) else COLUMNS
    return CSV if _looks_like_csv(text) else ""


def _is_line(text: bytes) -> bool:
    """Whether the first line is a complete JSON value and another line follows."""
    line, _, rest = text.partition(b"\n")
    if not rest.strip(_SPACE):
        return False
    try:
        _READ.decode(line)
    except (ValueError, RecursionError):
        return False
    return True


def _looks_like_csv(text: bytes) -> bool:
    line, ended, _ = text.partition(b"\n")
    if not line or not ended or any(octet < 32 and octet not in _SPACE for octet in line):
        return False
    return any(separator in line for separator in (b",", b";", b"\t"))


def parse_rows(payload: bytes, kind: str) -> Rows:
    """The rows of `payload`; raises the decoder's error if it is not of this `kind`."""
    if kind == JSON:
        text = payload.lstrip(_SPACE)
        return _object_rows(text) if text.startswith(b"{") else _array_rows(text)
    if kind == COLUMNS:
        return _object_rows(payload)
    if kind == LINES:
        return _line_rows(payload)
    if kind == CSV:
        return _csv_rows(payload)
    raise ShapingError("expected a series of readings: a JSON array, lines of JSON, or CSV")


def _array_rows(payload: bytes) -> Rows:
    return _JsonRows([bytes(raw) for raw in _READ_LIST.decode(payload)], b"[", b",", b"]")


def _object_rows(payload: bytes) -> Rows:
    """The arrays of the greatest length."""
    fields = _READ_OBJECT.decode(payload)
    lengths = [
        len(_READ_LIST.decode(raw)) for raw in fields.values() if bytes(raw).startswith(b"[")
    ]
    if not lengths:
        raise ShapingError("expected a series of readings, got a JSON object without arrays")
    return _ColumnRows(fields, max(lengths))


def _line_rows(payload: bytes) -> Rows:
    lines = [line for line in payload.splitlines() if line.strip(_SPACE)]
    return _JsonRows(lines, b"", b"\n", b"\n" if payload.endswith(b"\n") else b"")


def _csv_rows(payload: bytes) -> Rows:
    end = b"\r\n" if b"\r\n" in payload else b"\n"
    lines = _csv_lines(payload, end)
    header = b""
    if lines and not any(
        _number(cell) is not None for cell in lines[0].split(_separator(lines[0]))
    ):
        header = lines.pop(0) + end
    return _CsvRows(lines, header, end, end if payload.endswith(end) else b"")


def _csv_lines(payload: bytes, end: bytes) -> list[bytes]:
    """Lines, where a quoted cell may span several."""
    lines: list[bytes] = []
    open_parts: list[bytes] = []
    for line in payload.split(end):
        is_odd = line.count(b'"') % 2 == 1
        if open_parts:
            open_parts.append(line)
            if is_odd:
                lines.append(end.join(open_parts))
                open_parts = []
        elif is_odd:
            open_parts = [line]
        elif line.strip(_SPACE):
            lines.append(line)
    if open_parts:
        lines.append(end.join(open_parts))
    return lines


def _separator(line: bytes) -> bytes:
    return max((b",", b";", b"\t"), key=line.count)


def _array(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _filled(column: Sequence[object]) -> Numbers:
    """The numbers of a column, each gap filled with the previous number; empty without numbers."""
    if all(type(value) is int or type(value) is float for value in column):
        return list(column)  # type: ignore[arg-type]
    known = next((value for value in column if _is_number(value)), None)
    if known is None:
        return []
    filled: Numbers = []
    for value in column:
        if _is_number(value):
            known = value
        filled.append(known)  # type: ignore[arg-type]
    return filled


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


def _number(cell: bytes) -> float | None:
    try:
        number = float(cell.strip(b'" '))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

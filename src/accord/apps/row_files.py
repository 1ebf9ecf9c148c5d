"""Rows of Arrow as files and as JSON lines: what `accord sql` finds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from accord.apps.event_files.files import NewFile
from accord.core.model.errors import InputError

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def open_rows(path: Path) -> RowFile:
    """A new file, in the format of its name."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise InputError("--output", f"expected a name that ends in {', '.join(_WRITERS)}")
    return RowFile(path, write)


class RowFile(NewFile):
    """`write_all`, then `close`; it appears when it is complete."""

    def __init__(self, path: Path, write: Callable[[Any, pa.RecordBatch], Any]) -> None:
        super().__init__(path)
        self._write = write

    def write_all(self, rows: pa.RecordBatchReader) -> int:
        count = 0

        def counted() -> Iterable[pa.RecordBatch]:
            nonlocal count
            for batch in rows:
                count += len(batch)
                yield batch

        self._write(self.stream, pa.RecordBatchReader.from_batches(rows.schema, counted()))
        self.finish()
        return count


def json_lines(rows: pa.RecordBatch) -> str:
    return "".join(f"{_encode(_plain(row)).decode()}\n" for row in rows.to_pylist())


def cell(value: Any) -> str:
    """A value as a text."""
    match _plain(value):
        case None:
            return ""
        case str() as text:
            return text
        case bool() | dict() | list() as other:
            return _encode(other).decode()
        case number:
            return str(number)


def _plain(value: Any) -> Any:
    """As JSON has it: texts of bytes where they are some, maps as objects, without null fields."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case dict():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case [(str(), _), *_]:  # a map
            return {name: _one(each) for name, each in value}
        case list():
            return [_plain(each) for each in value]
    return value


def _one(value: Any) -> Any:
    """The value of an attribute: the field that is set."""
    plain = _plain(value)
    return next(iter(plain.values())) if isinstance(plain, dict) and len(plain) == 1 else plain


def _write_parquet(sink: Any, rows: pa.RecordBatchReader) -> None:
    with pyarrow.parquet.ParquetWriter(sink, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)


def _write_arrow(sink: Any, rows: pa.RecordBatchReader) -> None:
    with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


def _write_csv(sink: Any, rows: pa.RecordBatchReader) -> None:
    flat = pa.schema([(field.name, _flat(field.type)) for field in rows.schema])
    with pyarrow.csv.CSVWriter(sink, flat) as writer:
        for batch in rows:
            columns = [
                column if field.type == column.type else _texts(column)
                for field, column in zip(flat, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))


def _flat(kind: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind)
    return pa.string() if is_text or "view" in str(kind) else kind


def _texts(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return pa.array([None if each is None else cell(each) for each in values], pa.string())


def _write_json(sink: Any, rows: pa.RecordBatchReader) -> None:
    for batch in rows:
        sink.write(json_lines(batch).encode())


_WRITERS: Final[dict[str, Callable[[Any, Any], None]]] = {
    ".parquet": _write_parquet,
    ".arrow": _write_arrow,
    ".csv": _write_csv,
    ".jsonl": _write_json,
    ".json": _write_json,
}

"""Converts an archive of the former format to Delta tables, where it is.

Until now a manifest of our own said which Parquet files were part of the tables. Those files stay
as they are: each table is made by one commit that adds them, with the archived offsets. Only a file
with a column of a type that another file gave to another attribute type is written again. A crash
between the two tables leaves the other to be made at the next start; the manifest is renamed last.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.transaction import Transaction, create_table_with_add_actions

from accord.core.model.errors import AccordError
from accord.pipeline.delta_log import (
    CONFIGURATION,
    CREATING,
    LOG,
    DeltaLog,
    WrittenFile,
    add_action,
    commit_properties,
    lost_of,
    schema_of,
)
from accord.pipeline.durable_files import sync_file
from accord.pipeline.parquet_files import renamed, write_file
from accord.pipeline.storage import Storage
from accord.pipeline.tables import EVENTS, LEDGER, PARTITION, UNREAD, Columns, columns_for

MANIFEST: Final = "_manifest"
CONVERTED: Final = "_manifest.converted"
_FORMER_UNREAD: Final = "unread"
_NAME: Final = re.compile(r"([0-9]{16})(\.checkpoint)?\.json")
_log: Final = logging.getLogger(__name__)


class ConversionError(AccordError):
    """An archive of the former format can't be read."""


class FormerFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table, as the manifest had it; `path` is relative to the archive."""

    table: str
    path: str
    day: str
    rows: int
    bytes: int
    node: str
    first_ms: int = 0
    last_ms: int = 0
    first_offset: int
    last_offset: int
    first_number: int = 0
    last_number: int = 0
    channels: tuple[str, ...] | None = None
    declared: dict[str, str] = {}
    unread: int = 0


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    added: tuple[FormerFile, ...] = ()
    removed: dict[str, int] = {}
    archived: dict[str, int] = {}
    lost: dict[str, int] = {}


class _Checked(msgspec.Struct, frozen=True):
    crc32: int
    entry: msgspec.Raw


class _Former:
    """The sum of all entries of a manifest."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, FormerFile] = {}
        self.archived: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        names = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        base = max((int(name[1]) for name in names if name[2]), default=0)
        if base:
            self._apply(_read(folder / f"{base:016d}.checkpoint.json"))
        newest = max((int(name[1]) for name in names), default=0)
        for version in range(base + 1, newest + 1):
            self._apply(_read(folder / f"{version:016d}.json"))

    def _apply(self, entry: _Entry) -> None:
        for path in entry.removed:
            self.files.pop(path, None)
        self.files |= {file.path: file for file in entry.added}
        self.archived |= entry.archived
        self.lost |= entry.lost


def _read(path: Path) -> _Entry:
    try:
        checked = msgspec.json.decode(path.read_bytes(), type=_Checked)
        if crc32(checked.entry) != checked.crc32:
            raise ConversionError(f"{path}: its checksum is wrong")
        return msgspec.json.decode(checked.entry, type=_Entry)
    except FileNotFoundError:
        problem = "is missing: what is part of the tables would be unknown"
        raise ConversionError(f"{path} {problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConversionError(f"{path} is damaged: {error}") from None


def convert(storage: Storage) -> int:
    """Make Delta tables of a former archive, if this is one; returns the number of its files."""
    if not storage.is_local or not (storage.root / MANIFEST).is_dir():
        return 0
    former = _Former(storage.root / MANIFEST)
    files = sorted(former.files.values(), key=lambda file: (file.last_ms, file.last_offset))
    columns = _columns(files)
    for name in (EVENTS, LEDGER):
        if DeltaLog(storage, name, ()).exists():
            continue
        (storage.root / name).mkdir(parents=True, exist_ok=True)
        own = columns if name == EVENTS else ()
        added = [_new(storage, file, own) for file in files if file.table == name]
        offsets = [Transaction(node, end) for node, end in former.archived.items()]
        lost = [Transaction(lost_of(node), count) for node, count in former.lost.items()]
        create_table_with_add_actions(
            storage.uri_of(name),
            Schema.from_arrow(schema_of(name, own)),
            [add_action(file) for file in added],
            partition_by=[PARTITION],
            name=name,
            configuration=dict(CONFIGURATION),
            commit_properties=commit_properties(CREATING + len(added), offsets + lost),
        )
        log = storage.root / name / LOG
        for path in (*log.glob("*.json"), log):
            sync_file(path)
    if (storage.root / _FORMER_UNREAD).is_dir() and not (storage.root / UNREAD).exists():
        (storage.root / _FORMER_UNREAD).rename(storage.root / UNREAD)
    (storage.root / MANIFEST).rename(storage.root / CONVERTED)
    _log.info("the archive has Delta tables now, with its %d files", len(files))
    return len(files)


def _columns(files: Iterable[FormerFile]) -> Columns:
    """Columns for all attributes of all files; the first type of one has its plain name."""
    found: Columns = ()
    for file in files:
        if file.table == EVENTS:
            found += tuple(each for each in columns_for(file.declared, found) if each not in found)
    return found


def _new(storage: Storage, file: FormerFile, columns: Columns) -> WrittenFile:
    own = columns_for(file.declared, columns)
    if any(each.name != each.attribute for each in own):
        with pq.ParquetFile(storage.root / file.path) as source:
            rows = source.read()
        kept = [name for name in rows.column_names if name not in ("day", "group")]
        return write_file(
            storage,
            renamed(rows.select(kept), own),
            table=file.table,
            day=file.day,
            node=file.node,
            columns=columns,
        )
    return WrittenFile(
        table=file.table,
        path=file.path.removeprefix(f"{file.table}/"),
        day=file.day,
        rows=file.rows,
        bytes=file.bytes,
        stats=_stats(file),
    )


def _stats(file: FormerFile) -> str:
    """What the manifest knew; whether the map has values of declared attributes is not known."""
    first, last = _time(file.first_ms), _time(file.last_ms, 999)
    low: dict[str, Any] = {"node": file.node, "offset": file.first_offset}
    high: dict[str, Any] = {"node": file.node, "offset": file.last_offset}
    if file.table == EVENTS:
        times: tuple[str, ...] = ("received",)
        low["number"], high["number"] = file.first_number, file.last_number
    else:
        times = ("received", "queued", "done")
        low["number"] = 0  # of entries that are of no event
        high["number"] = high["last_number"] = file.last_number
    low |= dict.fromkeys(times, first)
    high |= dict.fromkeys(times, last)
    if file.channels:
        low["channel"], high["channel"] = file.channels[0], file.channels[-1]
    nulls = {"attributes": file.unread} if file.table == EVENTS else {}
    stats = {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return msgspec.json.encode(stats).decode()


def _time(ms: int, micros: int = 0) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}{micros:03d}Z"

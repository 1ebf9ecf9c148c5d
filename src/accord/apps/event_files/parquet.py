"""Exports events to a Parquet file, with the columns of `accord.client.event_table`."""

# pyarrow is loaded only where it is used: it is large, and may not be installed.
# ruff: noqa: PLC0415

from __future__ import annotations

import importlib.util
from pathlib import Path

from accord.apps.event_files.files import NewFile
from accord.client.event_table import to_table
from accord.client.messages import ReceivedEvent
from accord.core.model.errors import InputError


class ParquetFile(NewFile):
    """Written after the last event: the columns are known only then."""

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            problem = "expected pyarrow to be installed: pip install 'accord[pipeline]'"
            raise InputError("--format parquet", problem)
        super().__init__(path)
        self._events: list[ReceivedEvent] = []

    def put(self, event: ReceivedEvent) -> None:
        self._events.append(event)

    def finish(self) -> None:
        import pyarrow.parquet

        table = to_table(self._events)
        pyarrow.parquet.write_table(table, self.stream, compression="zstd")
        super().finish()

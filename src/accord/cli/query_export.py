"""`accord query --output FILE`: all events that a query finds, part by part."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from accord.apps.event_files.files import NewFile
from accord.cli.connection import ConnectionTarget, open_session
from accord.core.model.errors import InputError, file_problem
from accord.operations.event_export import ExportEvents, FileFormat, ParquetParts

_PART_S: Final = 120.0  # for a part; one that must wait for Spark takes a while


class EventExport:
    """Asks for parts, and writes each before it asks for the next."""

    def __init__(self, output: Path, form: FileFormat, **question: Any) -> None:
        if form == "parquet" and find_spec("pyarrow") is None:
            problem = "expected pyarrow to be installed: pip install 'accord[pipeline]'"
            raise InputError("--format parquet", problem)
        self.found = 0
        self._parquet = ParquetParts() if form == "parquet" else None
        self._ask = ExportEvents(format="arrow" if form == "parquet" else form, **question)
        try:
            self._file = NewFile(output)
        except OSError as error:
            raise InputError("--output", f"{output}: {file_problem(error)}") from None

    async def run(
        self,
        target: ConnectionTarget,
        notify: Callable[[str], None],
        show_progress: Callable[[int], object],
    ) -> None:
        ask = self._ask
        async with open_session(target, notify) as session:
            while True:
                part = await session.call(ask, timeout_s=_PART_S)
                is_last = part.cursor is None
                body = part.body
                if self._parquet is not None:
                    body = self._parquet.put(body, is_last=is_last)
                self._file.stream.write(body)
                self.found += part.events
                show_progress(self.found)
                if part.cursor is None:
                    break
                ask = msgspec.structs.replace(ask, cursor=part.cursor)
        self._file.finish()

    def close(self) -> None:
        self._file.close()

"""Files that appear only when they are complete."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class NewFile:
    """Write to `stream`, then `finish`; `close` in any case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self.stream = self._part.open("wb")

    def finish(self) -> None:
        self.stream.close()
        os.replace(self._part, self._path)

    def close(self) -> None:
        self.stream.close()
        with suppress(OSError):
            self._part.unlink()

"""Files of events that appear only when they are complete."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from accord.client.event_json import json_line
from accord.client.messages import ReceivedEvent


class NewFile:
    """`put` the events, then `finish`; `close` in any case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self.stream = self._part.open("wb")

    def put(self, event: ReceivedEvent) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stream.close()
        os.replace(self._part, self._path)

    def close(self) -> None:
        self.stream.close()
        with suppress(OSError):
            self._part.unlink()


class JsonFile(NewFile):
    """A JSON object per line."""

    def put(self, event: ReceivedEvent) -> None:
        self.stream.write(json_line(event) + b"\n")

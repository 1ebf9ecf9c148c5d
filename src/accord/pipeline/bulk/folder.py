"""A folder of predicates: versions of a set, the latest of which counts.

Whoever registers predicates publishes a new version; whoever matches looks between two batches
whether there is one. The folder must be seen by all workers under one path, as the archive is.
Versions are written aside and get their names when they are whole, so a reader finds all of one or
nothing. Workers execute what is in it: only those who may run code on them may write there.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.core.model.errors import AccordError
from accord.pipeline import durable_files
from accord.pipeline.bulk.compiling import PredicateSet
from accord.pipeline.bulk.storing import pack, unpack_file

_SUFFIX: Final = ".predicates"
_KEPT: Final = 3  # versions, because somebody may be about to open one


class FolderError(AccordError):
    """No predicates where they should be."""


class PredicateFolder:
    """Versions of a set of predicates in the folder at `path`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def publish(self, predicates: PredicateSet) -> int:
        """Make `predicates` the latest version; returns its number."""
        durable_files.make_folder(self.path)
        data = pack(predicates)
        number = self._latest() + 1
        while not durable_files.create(self._file(number), data):
            number += 1
        self._tidy(number)
        return number

    def latest(self) -> int:
        """The number of the latest version; FolderError where there is none."""
        if number := self._latest():
            return number
        raise FolderError(
            f"no predicates in {self.path}: expected a folder that all workers see, "
            "with a version published"
        )

    def read(self, number: int) -> PredicateSet:
        return unpack_file(self._file(number))

    def _latest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return [int(stem) for stem in stems if stem.isdigit()]

    def _tidy(self, latest: int) -> None:
        for number in self._numbers():
            if number <= latest - _KEPT:
                with suppress(FileNotFoundError):
                    self._file(number).unlink()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:016d}{_SUFFIX}"

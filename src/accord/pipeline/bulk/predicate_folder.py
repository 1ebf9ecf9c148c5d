"""A directory of predicates: versions of a set, of which the latest applies.

To register predicates, publish a new version; matchers check for one between batches. All workers
must see the directory under the same path, as with the archive. A version is written to a temporary
name and renamed when complete, so a reader finds all of it or nothing. Workers execute its
contents: write access must be limited to those who may run code on the workers.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.core.model.errors import AccordError
from accord.pipeline import durable_files
from accord.pipeline.bulk.packed_sets import PackError, pack, unpack_file
from accord.pipeline.bulk.predicate_compiler import PredicateSet

_SUFFIX: Final = ".predicates"
_MAX_VERSIONS: Final = 3  # versions; a reader may be about to open an older one


class FolderError(AccordError):
    """The directory holds no predicates, or some that can't be read."""


class PredicateFolder:
    """Versions of a set of predicates in the directory `path`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def publish(self, predicates: PredicateSet) -> int:
        """Publish `predicates` as the latest version; returns its number."""
        durable_files.make_directory(self.path)
        data = pack(predicates)
        number = self._latest() + 1
        while not durable_files.create(self._file(number), data):
            number += 1
        self._remove_old(number)
        return number

    def latest(self) -> int:
        """Return the number of the latest version; FolderError if there is none."""
        if number := self._latest():
            return number
        raise FolderError(
            f"no predicates in {self.path}: expected a folder that all workers see, "
            "with a version published"
        )

    def read(self, number: int) -> PredicateSet:
        try:
            return unpack_file(self._file(number))
        except PackError as error:
            raise FolderError(f"{self._file(number)}: {error}") from None

    def _latest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return [int(stem) for stem in stems if stem.isdigit()]

    def _remove_old(self, latest: int) -> None:
        for number in self._numbers():
            if number <= latest - _MAX_VERSIONS:
                with suppress(FileNotFoundError):
                    self._file(number).unlink()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:016d}{_SUFFIX}"

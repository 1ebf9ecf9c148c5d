"""Stores the versions of a node's policies, one file each.

A version is written to a temporary file, synced and then renamed, so a crash leaves it complete or
absent. The first line holds the version number, the author and a digest of the rest: disks lose
more than they should, and a file truncated between two policies is still valid TOML. A damaged
version is skipped, and the one before it counts. Version numbers are never reused, even if the file
is damaged.

Without a disk, versions are kept in memory and lost when the node stops.
"""

from __future__ import annotations

import errno
import hashlib
import re
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.journal.disk import Disk
from accord.operations.policies import Version
from accord.runtime.logs import get_log

log = get_log(__name__)

KEPT: Final = 50
MAX_BYTES: Final = 50_000_000

_MARK: Final = b"# accord policies: "
_NAME: Final = re.compile(r"(\d{10})\.toml")
_UNFINISHED: Final = ".new"
_MAX_HEADER: Final = 8_192
_MAX_WORDS: Final = 200


class _Header(Struct, frozen=True, kw_only=True):
    version: Version
    digest: str  # of all that follows
    source: str = ""  # digest of the configured file when it was last loaded


class PolicyStoreError(AccordError):
    """Versions can't be read or written: where and why."""

    status = 503

    def __init__(self, location: str, problem: str) -> None:
        self.location = location
        self.problem = problem
        super().__init__(f"policies {location}: {problem}")


class UnknownVersionError(AccordError):
    """The version never existed, or is no longer stored."""

    status = 404

    def __init__(self, number: int, kept: str) -> None:
        super().__init__(f"there is no version {number} of the policies; kept are {kept}")


class PolicyStore:
    """Reads the existing versions on creation; `close` releases the directory."""

    def __init__(self, disk: Disk | None = None, *, kept: int = KEPT) -> None:
        self._disk = disk
        self._kept = kept
        self._headers: dict[int, _Header] = {}
        self._texts: dict[int, str] = {}  # without a disk
        self.last_number = 0
        if disk is not None:
            disk.lock()
            try:
                self._scan(disk)
            except OSError as error:
                disk.unlock()
                raise _from_os(error, "can't be read", disk.location) from error
            except BaseException:
                disk.unlock()
                raise

    @property
    def location(self) -> str:
        return "in memory" if self._disk is None else self._disk.location

    @property
    def source(self) -> str:
        """Digest of the configured file according to the newest version; empty for none."""
        return self._headers[max(self._headers)].source if self._headers else ""

    def history(self) -> list[Version]:
        """All versions, newest first."""
        return [self._headers[number].version for number in sorted(self._headers, reverse=True)]

    def newest(self) -> tuple[Version, str] | None:
        """The newest undamaged version, with its text; later ones are dropped from the history."""
        for number in sorted(self._headers, reverse=True):
            try:
                return self._headers[number].version, self.read(number)
            except PolicyStoreError as error:
                self.skip(number, error.problem)
        return None

    def skip(self, number: int, problem: str) -> None:
        """Skip a version from now on, because it is unusable."""
        log.warning("policy version: skipped", version=number, problem=problem)
        self._headers.pop(number, None)

    def read(self, number: int) -> str:
        """The text of a version. Raises `UnknownVersionError`, or PolicyStoreError if damaged."""
        header = self._headers.get(number)
        if header is None:
            kept = f"{min(self._headers)} to {max(self._headers)}" if self._headers else "none"
            raise UnknownVersionError(number, kept)
        if self._disk is None:
            return self._texts[number]
        try:
            data = _read(self._disk, _name(number), MAX_BYTES)
        except OSError as error:
            raise _from_os(error, f"version {number} can't be read", self.location) from error
        body = data.partition(b"\n")[2]
        if _digest(body) != header.digest:
            raise PolicyStoreError(self.location, f"version {number} is not what was written")
        return body.decode()

    def write(self, version: Version, text: str, *, source: str | None = None) -> None:
        """Make a version durable; `source` is the digest of the file it was loaded from, if any."""
        assert version.version > self.last_number, "versions only grow"
        version = msgspec.structs.replace(
            version, who=version.who[:_MAX_WORDS], what=version.what[:_MAX_WORDS]
        )
        body = text.encode()
        if len(body) > MAX_BYTES - _MAX_HEADER:
            problem = f"version {version.version} has {len(body)} bytes, more than can be kept"
            raise PolicyStoreError(self.location, problem)
        header = _Header(
            version=version,
            digest=_digest(body),
            source=self.source if source is None else source,
        )
        if self._disk is None:
            self._texts[version.version] = text
        else:
            try:
                _write(self._disk, version.version, _encode(header) + body)
            except OSError as error:
                doing = f"version {version.version} can't be written"
                raise _from_os(error, doing, self.location) from error
        self._headers[version.version] = header
        self.last_number = version.version
        self._remove_old()

    def close(self) -> None:
        if self._disk is not None:
            self._disk.unlock()

    def _scan(self, disk: Disk) -> None:
        for name in disk.names():
            if name.endswith(_UNFINISHED):
                disk.remove(name)
            elif found := _NAME.fullmatch(name):
                number = int(found[1])
                self.last_number = max(self.last_number, number)
                header = _decode(_read(disk, name, _MAX_HEADER))
                if header is not None and header.version.version == number:
                    self._headers[number] = header
                else:
                    self.skip(number, "its first line can't be read")

    def _remove_old(self) -> None:
        """Remove by number, so that damaged files are removed as well; a failure does no harm."""
        oldest = self.last_number - self._kept + 1
        for number in [number for number in self._headers if number < oldest]:
            del self._headers[number]
            self._texts.pop(number, None)
        if self._disk is None:
            return
        try:
            for name in self._disk.names():
                found = _NAME.fullmatch(name)
                if found and int(found[1]) < oldest:
                    self._disk.remove(name)
        except OSError as error:
            log.warning("old policy version: not removed", place=self.location, problem=str(error))


def _write(disk: Disk, number: int, data: bytes) -> None:
    unfinished = _name(number) + _UNFINISHED
    if unfinished in disk.names():  # left by a failed attempt
        disk.remove(unfinished)
    file = disk.create(unfinished)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    disk.rename(unfinished, _name(number))
    try:
        disk.sync_names()
    except OSError:
        # The version was refused, so the next start must not find it.
        with suppress(OSError):
            disk.remove(_name(number))
        raise


def _read(disk: Disk, name: str, size: int) -> bytes:
    source = disk.source(name)
    try:
        return source.read(0, size)
    finally:
        source.close()


def _name(number: int) -> str:
    return f"{number:010}.toml"


def _encode(header: _Header) -> bytes:
    return _MARK + msgspec.json.encode(header) + b"\n"


def _decode(data: bytes) -> _Header | None:
    line, newline, _ = data.partition(b"\n")
    if not newline or not line.startswith(_MARK):
        return None
    try:
        return msgspec.json.decode(line[len(_MARK) :], type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _from_os(error: OSError, doing: str, place: str) -> PolicyStoreError:
    why = (error.strerror or errno.errorcode.get(error.errno or 0, str(error))).lower()
    return PolicyStoreError(place, f"{doing}: {why}")

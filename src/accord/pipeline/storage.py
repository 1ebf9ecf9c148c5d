"""Where an archive is: a directory, or a place on an object store that delta-rs can write to.

What is written to a directory is synced to disk when a function returns. An object store needs no
more than its own put. Credentials and endpoints of object stores come from the environment, by the
names that delta-rs and pyarrow read (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, ...).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from accord.pipeline.durable_files import make_directory, replace, sync_directory
from accord.pipeline.tables import TablesError, is_payload_ref

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+://")
_FILE: Final = "file://"


def is_local(archive: str | Path) -> bool:
    text = str(archive)
    return text.startswith(_FILE) or not _SCHEME.match(text)


class Storage:
    """The files of one archive, by their path relative to it."""

    def __init__(self, archive: str | Path) -> None:
        text = str(archive)
        self.is_local = is_local(text)
        if self.is_local:
            self.root = Path(text.removeprefix(_FILE)).absolute()
            self.uri = str(self.root)
        else:
            self.uri = text.rstrip("/")

    @cached_property
    def filesystem(self) -> pafs.FileSystem:
        """Rooted at the archive."""
        if self.is_local:
            return pafs.SubTreeFileSystem(self.uri, pafs.LocalFileSystem())
        files, path = _remote(self.uri)
        return pafs.SubTreeFileSystem(path, files)

    def uri_of(self, path: str) -> str:
        return f"{self.uri}/{path}"

    @contextmanager
    def output(self, path: str) -> Iterator[Any]:
        """A file to write, durable at the end."""
        if not self.is_local:
            with self.filesystem.open_output_stream(path) as stream:
                yield stream
            return
        place = self.root / path
        make_directory(place.parent)
        try:
            stream = place.open("xb")
        except FileNotFoundError:  # the directory was empty and has just been removed
            make_directory(place.parent)
            stream = place.open("xb")
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(place.parent)

    def write(self, path: str, data: bytes) -> None:
        """Write a small file, or replace it by the same."""
        if self.is_local:
            make_directory((self.root / path).parent)
            replace(self.root / path, data)
            return
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_file(path) as stream:
            data: bytes = stream.read()
            return data

    def read_payload(self, ref: str) -> bytes:
        """Read the payload at `payload_ref`; TablesError if it does not exist (any more)."""
        if not is_payload_ref(ref):
            raise TablesError(f"expected a reference to a payload, got {ref[:80]!r}")
        try:
            return self.read(ref)
        except (FileNotFoundError, pa.ArrowException):
            raise TablesError(f"{ref}: the payload is not kept any more") from None

    def exists(self, path: str) -> bool:
        return bool(self.filesystem.get_file_info(path).type != pafs.FileType.NotFound)

    def size(self, path: str) -> int:
        size: int = self.filesystem.get_file_info(path).size
        return size

    def folders(self, path: str) -> list[str]:
        """The names of the folders in one; none if it does not exist."""
        selector = pafs.FileSelector(path, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(each.base_name for each in found if each.type == pafs.FileType.Directory)

    def remove_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(path)


def _remote(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of an object store, and the path there."""
    scheme, _, path = uri.partition("://")
    if scheme not in ("s3", "s3a"):
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(uri)
        return found
    options: dict[str, Any] = {"allow_delayed_open": True}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        place = urlsplit(endpoint)
        options |= {"endpoint_override": place.netloc, "scheme": place.scheme}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        options["region"] = region
    return pafs.S3FileSystem(**options), path

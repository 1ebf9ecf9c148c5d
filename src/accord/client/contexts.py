"""Nodes by name, for MQTT and HTTP, in the user's configuration directory."""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from accord.core.model.errors import InputError, file_problem


class NodeContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A node's MQTT address, and what else is needed to reach it."""

    url: str
    http: str = ""
    user: str = ""
    ca: str = ""

    @property
    def http_url(self) -> str:
        return self.http or http_url_of(self.url)


class ContextFile(msgspec.Struct, forbid_unknown_fields=True):
    """All contexts; `current` is in use."""

    current: str = ""
    contexts: dict[str, NodeContext] = {}


def http_url_of(url: str) -> str:
    """The HTTP address of a node that is known by its MQTT address: same host, default port."""
    host = urlsplit(url).hostname or ""
    return f"http://[{host}]:8080" if ":" in host else f"http://{host}:8080"


def path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "accord" / "contexts.toml"


def load() -> ContextFile:
    """All contexts; InputError if the file is damaged."""
    file = path()
    try:
        found = msgspec.convert(tomllib.loads(file.read_text("utf-8")), ContextFile)
    except FileNotFoundError:
        return ContextFile()
    except OSError as error:
        raise InputError(str(file), file_problem(error)) from None
    except (ValueError, msgspec.ValidationError) as error:
        problem = f"the file of contexts is damaged: {error}; correct or delete it"
        raise InputError(str(file), problem) from None
    return found


def save(found: ContextFile) -> None:
    """Write all contexts: atomically, and readable by this user only (URLs may have passwords)."""
    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, part = tempfile.mkstemp(dir=file.parent, prefix=".contexts-")  # mode 0600
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.writelines(f"{line}\n" for line in _lines(found))
                stream.flush()
                os.fsync(descriptor)
            os.replace(part, file)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
    except OSError as error:
        raise InputError(str(file), file_problem(error)) from None


def chosen(name: str | None) -> NodeContext | None:
    """The context of that name, or the one in use."""
    if name is None and not path().exists():
        return None
    found = load()
    wanted = name or found.current
    if not wanted:
        return None
    if wanted not in found.contexts:
        raise InputError("--context", unknown_context(wanted, found))
    return found.contexts[wanted]


def _lines(found: ContextFile) -> Iterator[str]:
    # A JSON string is a TOML string.
    yield f"current = {json.dumps(found.current)}"
    for name, context in sorted(found.contexts.items()):
        yield f"\n[contexts.{name}]"
        fields: dict[str, Any] = msgspec.to_builtins(context)
        yield from (f"{key} = {json.dumps(value)}" for key, value in fields.items())


def unknown_context(name: str, found: ContextFile) -> str:
    known = ", ".join(sorted(found.contexts)) or "none"
    return f"there is no context {name!r} (there are: {known}); `accord context add` makes one"

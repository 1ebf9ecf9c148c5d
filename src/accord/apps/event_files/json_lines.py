"""Events from JSON lines: one object per line, with the fields of an event.

    {"channel": "uav/imagery", "attributes": {"altitude_m": 420}, "payload": "text"}

Attribute values keep their JSON type, so a string stays a string even if it looks like a time;
`{"timestamp": "2026-03-14T06:12:30Z"}` is a timestamp. Other fields: `metadata` (XML),
`payload_base64` in place of `payload`, `key`, `deadline_ms`, `published_ms`, `received_ms`,
`source`, `sequence`, and `id`, the event ID at its node.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import IO, Any, Final, NoReturn

from accord.core.model.document import Document
from accord.core.model.errors import EventError, InputError, file_problem
from accord.core.model.event import Event
from accord.core.model.values import Value, parse_timestamp
from accord.terminal.stdin import MAX_LINE_BYTES

STDIN: Final = "-"

_TYPES: Final[Mapping[str, type]] = {
    "channel": str,
    "attributes": dict,
    "metadata": str,
    "payload": str,
    "payload_base64": str,
    "key": str,
    "deadline_ms": int,
    "published_ms": int,
    "received_ms": int,
    "source": str,
    "sequence": int,
    "id": str,
}
_JSON_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a float",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """An event and the line it was read from."""

    line: int
    text: str
    event: Event


def read_events(source: str | None) -> Iterator[ReadEvent]:
    """The events of the file `source`, of standard input for `-`, of the sample for None.

    Raises InputError at the first problem, with its location.
    """
    name = {None: "sample events", STDIN: "standard input"}.get(source, source)
    assert name is not None
    try:
        with _opened(source) as stream:
            for number, text in read_lines(stream, name):
                if text.strip():
                    yield _read_event(text, name, number)
    except OSError as error:
        raise InputError(name, file_problem(error)) from None


def read_lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without line ends; none longer than `MAX_LINE_BYTES` is held in memory."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            problem = f"expected at most {MAX_LINE_BYTES} bytes in a line"
            raise InputError(f"{name}:{number}", problem)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"expected UTF-8 text, byte {error.start + 1} of the line is not"
            raise InputError(f"{name}:{number}", problem) from None
        yield number, text.rstrip("\r\n")


def parse_event(text: str) -> Event:
    """Parse one line of JSON as an event; raises EventError."""
    fields = _parse_object(text)
    for name, value in fields.items():
        _check_field(name, value)
    if "channel" not in fields:
        raise EventError("channel", "expected, but missing")
    if "payload" in fields and "payload_base64" in fields:
        raise EventError("payload", "expected once, got payload_base64 as well")
    return Event(
        channel=fields["channel"],
        attributes={
            name: _value(name, value) for name, value in fields.get("attributes", {}).items()
        },
        payload=_payload(fields),
        metadata=Document(_encoded("metadata", fields)) if "metadata" in fields else None,
        key=fields.get("key"),
        deadline_ms=fields.get("deadline_ms"),
        published_ms=fields.get("published_ms", 0),
        received_ms=fields.get("received_ms", 0),
        source=fields.get("source", ""),
        sequence=fields.get("sequence", 0),
    )


@contextmanager
def _opened(source: str | None) -> Iterator[IO[bytes]]:
    if source == STDIN:
        yield sys.stdin.buffer
    elif source is None:
        with files(__package__).joinpath("sample_events.jsonl").open("rb") as sample:
            yield sample
    else:
        with open(source, "rb") as file:
            yield file


def _read_event(text: str, name: str, number: int) -> ReadEvent:
    try:
        return ReadEvent(number, text, parse_event(text))
    except EventError as error:
        problem = f"{error.field}: {error.problem}" if error.field else error.problem
        raise InputError(f"{name}:{number}", problem) from None


def _parse_object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise EventError("", f"not JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise EventError("", "nested too deeply") from None
    except ValueError as error:
        raise EventError("", f"not acceptable JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise EventError("", f"expected an object, got {_json_name(parsed)}")
    return parsed


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise EventError(name, "expected once, given twice")
        fields[name] = value
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise EventError("", f"expected a finite number, got {name}")


def _check_field(name: str, value: object) -> None:
    expected = _TYPES.get(name)
    if expected is None:
        raise EventError(name, f"unknown field, expected one of {', '.join(_TYPES)}")
    # By exact type, because Python's booleans are integers.
    if type(value) is not expected:
        raise EventError(name, f"expected {_JSON_NAMES[expected]}, got {_json_name(value)}")


def _value(name: str, value: object) -> Value:
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, dict) and list(value) == ["timestamp"]:
        given = value["timestamp"]
        moment = parse_timestamp(given) if isinstance(given, str) else None
        if moment is None:
            expected = "ISO 8601 such as 2026-01-31T12:00:00Z"
            raise EventError(f"attributes.{name}.timestamp", f"expected {expected}, got {given!r}")
        return moment
    expected = 'a string, a number, a boolean or {"timestamp": "…"}'
    raise EventError(f"attributes.{name}", f"expected {expected}, got {_json_name(value)}")


def _payload(fields: Mapping[str, Any]) -> bytes:
    if "payload_base64" not in fields:
        return _encoded("payload", fields)
    try:
        return base64.b64decode(fields["payload_base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise EventError("payload_base64", f"expected base64: {error}") from None


def _encoded(name: str, fields: Mapping[str, Any]) -> bytes:
    text: str = fields.get(name, "")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        position = error.start + 1
        raise EventError(
            name, f"expected Unicode text, got a lone surrogate at character {position}"
        ) from None


def _json_name(value: object) -> str:
    return _JSON_NAMES[type(value)]

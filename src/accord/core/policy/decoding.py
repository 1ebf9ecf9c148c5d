"""Decodes TOML and JSON text to a document of plain values; problems carry their location."""

from __future__ import annotations

import re
import tomllib
from typing import Final

import msgspec

from accord.core.model.errors import PolicyError

MAX_CHARACTERS: Final = 64 * 2**20

_LINE: Final = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


def decode(text: str, *, is_json: bool) -> object:
    if len(text) > MAX_CHARACTERS:
        raise PolicyError("policies", f"more than {MAX_CHARACTERS} characters")
    return _decoded_json(text) if is_json else _decoded_toml(text)


def _decoded_toml(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _LINE.search(str(error))
        problem = _LINE.sub("", str(error))
        raise PolicyError(place[1] if place else "policies", f"not TOML: {problem}") from None
    except (RecursionError, ValueError) as error:
        raise PolicyError("policies", f"not TOML: {_first_line(error)}") from None


def _decoded_json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise PolicyError("policies", f"not JSON: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

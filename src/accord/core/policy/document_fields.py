"""Values in policy documents: decoding of TOML and JSON, parsers of fields, settings in words.

Problems carry their location, and what was expected. The words of settings serve explanations and
dry runs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Final

import msgspec

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import PolicyError
from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS, SIZES, parse, render
from accord.core.model.values import problem_with_text
from accord.core.policy.contexts import UNSET, PolicyContext
from accord.core.policy.grants import Grant

MAX_TEXT: Final = 16_384
MAX_NAME: Final = 256
MAX_NAMES: Final = 1_000
MIN_BANDWIDTH_BPS: Final = 1_000
MAX_BANDWIDTH_BPS: Final = 10**12
MAX_DURATION_MS: Final = 30 * DURATIONS_MS["d"]
MAX_SIZE: Final = 256 * SIZES["MiB"]
NOTHING: Final = "none"

_MAX_SHOWN: Final = 60
_KINDS: Final = {dict: "a table", list: "a list", type(None): "null"}


def table(value: object, known: Collection[str], place: str) -> Mapping[str, object]:
    """The fields that are present in a table; null counts as absent."""
    if not isinstance(value, dict):
        raise PolicyError(place or "policies", f"expected a table, got {shown(value)}")
    for name in value:
        if name not in known:
            raise PolicyError(under(place, shown_key(name)), _unknown(str(name), known))
    return {name: each for name, each in value.items() if each is not None}


def items(value: object, place: str, most: int) -> list[object]:
    if not isinstance(value, list):
        raise PolicyError(place, f"expected a list, got {shown(value)}")
    if len(value) > most:
        raise PolicyError(place, f"{len(value)}, at most {most} accepted")
    return value


def text(value: object, place: str, most: int = MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise PolicyError(place, f"expected a text, got {shown(value)}")
    if len(value) > most:
        raise PolicyError(place, f"{len(value)} characters, at most {most} accepted")
    if problem := problem_with_text(value):
        raise PolicyError(place, problem)
    return value


def name(value: object, place: str, most: int = MAX_NAME) -> str:
    found = text(value, place, most)
    if not found.strip() or not found.isprintable():
        raise PolicyError(place, f"expected printable characters, got {shown(value)}")
    return found


def names(value: object, place: str, read: Callable[[object, str], str]) -> tuple[str, ...]:
    """One name, or a list of names."""
    if not isinstance(value, list):
        return (read(value, place),)
    if not value:
        raise PolicyError(place, "expected at least one name, or nothing at all")
    listed = items(value, place, MAX_NAMES)
    read_ones = (read(each, f"{place}[{number}]") for number, each in enumerate(listed))
    return tuple(dict.fromkeys(read_ones))


def pattern(value: object, place: str) -> str:
    """A name in which `*` stands for any text."""
    found = text(value, place, MAX_NAME)
    if not found:
        raise PolicyError(place, "expected a name or a pattern, got ''")
    return found


def channel_filter(value: object, place: str) -> str:
    found = text(value, place)
    if problem := problem_with_filter(found):
        raise PolicyError(place, problem)
    return found


def choice(value: object, choices: Collection[str], place: str) -> str:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{each}"' for each in choices)
        raise PolicyError(place, f"expected one of {listed}, got {shown(value)}")
    return value


def boolean(value: object, place: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(place, f"expected true or false, got {shown(value)}")
    return value


def integer(value: object, least: int, most: int, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(place, f"expected an integer, got {shown(value)}")
    if not least <= value <= most:
        raise PolicyError(place, f"expected {least} to {most}, got {value}")
    return value


def bandwidth(value: object, place: str) -> int | None:
    """Bits per second; None for an explicit "no limit"."""
    if value is None or value == NOTHING:
        return None
    expected = f'a bandwidth such as 300000, "300 kbit/s" or "2 Mbit/s", or "{NOTHING}"'
    return _quantity(value, BANDWIDTHS_BPS, (MIN_BANDWIDTH_BPS, MAX_BANDWIDTH_BPS), expected, place)


def duration(value: object, place: str) -> int:
    """Milliseconds; 0 for an explicit "no deadline"."""
    if value == NOTHING:
        return 0
    expected = f'a duration such as 200, "200 ms", "5 s" or "1 min", or "{NOTHING}"'
    return _quantity(value, DURATIONS_MS, (0, MAX_DURATION_MS), expected, place)


def size(value: object, place: str) -> int:
    """Bytes."""
    expected = 'a size such as 40000, "40 KB" or "64 KiB"'
    return _quantity(value, SIZES, (1, MAX_SIZE), expected, place)


def _quantity(
    value: object, units: Mapping[str, int], bounds: tuple[int, int], expected: str, place: str
) -> int:
    number = parse(value, units) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise PolicyError(place, f"expected {expected}, got {shown(value)}")
    least, most = bounds
    if not least <= number <= most:
        between = f"{render(least, units)} to {render(most, units)}"
        raise PolicyError(place, f"expected {between}, got {shown(value)}")
    return number


def under(place: str, field: str) -> str:
    return f"{place}.{field}" if place else field


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) in _KINDS:
        return _KINDS[type(value)]
    found = repr(value) if isinstance(value, str) else str(value)
    return found if len(found) <= _MAX_SHOWN else f"{found[:_MAX_SHOWN]}…"


def shown_key(key: object) -> str:
    return str(key) if str(key).isidentifier() and len(str(key)) <= _MAX_SHOWN else shown(key)


def _unknown(found: str, known: Collection[str]) -> str:
    close = get_close_matches(found[:_MAX_SHOWN], known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"expected some of {', '.join(known)}"
    return f"unknown; {hint}"


GUARANTEE: Final = "guarantee"  # of subscriptions, if a policy decides it
SETTINGS: Final = ("importance", "deadline", "shaping", "replacement")


def settings_of(context: PolicyContext) -> dict[str, str]:
    """Each setting that a policy decides, in words."""
    settings: dict[str, str] = {}
    if context.importance != UNSET:
        settings["importance"] = str(context.importance)
    if context.deadline_ms != UNSET:
        settings["deadline"] = _deadline(context.deadline_ms)
    if context.shaping is not None:
        settings["shaping"] = _shaping(context.shaping, context.max_bytes, context.max_pixels)
    if context.replacement != UNSET:
        settings["replacement"] = _replacement(context.replacement == 1)
    if context.guarantee is not None:
        settings[GUARANTEE] = guarantee_text(context.guarantee)
    return settings


def granted_by(grant: Grant) -> dict[str, str]:
    return {
        "importance": str(grant.importance),
        "deadline": _deadline(grant.deadline_ms),
        "shaping": _shaping(grant.shaping, grant.max_bytes, grant.max_pixels),
        "replacement": _replacement(grant.is_replacing),
    }


def guarantee_text(guarantee: str | float) -> str:
    return guarantee if isinstance(guarantee, str) else f"{100 * guarantee:g} %"


def _deadline(deadline_ms: int) -> str:
    return render(deadline_ms, DURATIONS_MS) if deadline_ms else "none"


def _shaping(shaping: str, max_bytes: int, max_pixels: int) -> str:
    targets = [f"{max_bytes} bytes"] * bool(max_bytes) + [f"{max_pixels} pixels"] * bool(max_pixels)
    to = f", to at most {' and '.join(targets)}" if targets else ""
    return f"{shaping or 'none'}{to}"


def _replacement(is_replacing: bool) -> str:
    return "on" if is_replacing else "off"


MAX_CHARACTERS: Final = 64 * 2**20

_MAX_KEY_PARTS: Final = 32
_PART: Final = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
# tomllib takes time and memory by the square of the parts of a key.
_LONG_KEY: Final = re.compile(
    rf"(?:^|[\[{{,])[ \t]*+{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{_MAX_KEY_PARTS}}}", re.MULTILINE
)
_LINE: Final = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


def decode(text: str, *, is_json: bool) -> object:
    if len(text) > MAX_CHARACTERS:
        raise PolicyError("policies", f"more than {MAX_CHARACTERS} characters")
    return _decoded_json(text) if is_json else _decoded_toml(text)


def _decoded_toml(text: str) -> object:
    if _LONG_KEY.search(text):
        raise PolicyError("policies", f"a key has more than {_MAX_KEY_PARTS} parts")
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

"""Text format of property definitions: one `key = value` per line; `name` starts a property.

    # Maximum age of the information in an event
    name = freshness
    range = 0..inf
    better = lower
    unit = ms
    over hops = add

    name = trust
    levels = none < low < medium < high
    better = higher

Empty lines and lines that start with `#` are ignored.
"""

from __future__ import annotations

import enum
from typing import Final, TypeVar

from accord.core.quality.properties import (
    MAX_PROPERTIES,
    Better,
    HopEffect,
    Property,
    QualityError,
    read_number,
    shown,
)

MAX_CHARACTERS: Final = 2**20
KEYS: Final = ("name", "better", "range", "levels", "unit", "over hops", "measured")

_Lines = dict[str, tuple[int, str]]  # by key: line number and value
_E = TypeVar("_E", bound=enum.Enum)


def parse_properties(text: str) -> list[Property]:
    """Raises QualityError with the line of the first problem and what was expected."""
    if len(text) > MAX_CHARACTERS:
        problem = f"{len(text)} characters, at most {MAX_CHARACTERS} accepted"
        raise QualityError("the definitions", problem)
    blocks: list[_Lines] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            _add_line(number, line, blocks)
    found: dict[str, Property] = {}
    for block in blocks:
        each = _property(block)
        if each.name in found:
            raise _problem(block["name"][0], f"name: {each.name} is defined above already")
        found[each.name] = each
    return list(found.values())


def render_properties(properties: list[Property]) -> str:
    """Renders text that parses to equal properties."""
    return "\n".join("".join(f"{key} = {value}\n" for key, value in _fields(p)) for p in properties)


def _add_line(number: int, line: str, blocks: list[_Lines]) -> None:
    """Adds one line to the property it belongs to."""
    key, equals, value = (part.strip() for part in line.partition("="))
    if not equals:
        raise _problem(number, f"expected key = value, got {shown(line.strip())}")
    if key not in KEYS:
        raise _problem(number, f"expected one of {', '.join(KEYS)}, got {shown(key)}")
    if key == "name":
        if len(blocks) >= MAX_PROPERTIES:
            raise _problem(number, f"more than {MAX_PROPERTIES} properties")
        blocks.append({})
    elif not blocks:
        raise _problem(number, f"expected name = … first, got {shown(key)}")
    if key in blocks[-1]:
        raise _problem(number, f"{key}: said in line {blocks[-1][key][0]} already")
    blocks[-1][key] = number, value


def _property(block: _Lines) -> Property:
    first, name = block["name"]
    if "better" not in block:
        raise _problem(first, f"{shown(name)}: expected better = higher or better = lower")
    if ("range" in block) == ("levels" in block):
        raise _problem(first, f"{shown(name)}: expected either range or levels")
    lowest, highest = _range(*block["range"]) if "range" in block else (0.0, float("inf"))
    try:
        return Property(
            name=name,
            better=_choice(Better, block, "better", Better.HIGHER),
            levels=_levels(*block["levels"]) if "levels" in block else (),
            lowest=lowest,
            highest=highest,
            unit=block["unit"][1] if "unit" in block else "",
            over_hops=_choice(HopEffect, block, "over hops", HopEffect.KEEP),
            is_measured=_choice(_YesNo, block, "measured", _YesNo.NO) is _YesNo.YES,
        )
    except QualityError as error:
        if error.place.startswith("line "):
            raise
        raise _problem(first, str(error)) from None


class _YesNo(enum.Enum):
    YES = "yes"
    NO = "no"


def _choice(kind: type[_E], block: _Lines, key: str, default: _E) -> _E:
    if key not in block:
        return default
    number, text = block[key]
    choices = [str(each.value) for each in kind]
    if text not in choices:
        raise _problem(number, f"{key}: expected {' or '.join(choices)}, got {shown(text)}")
    return kind(text)


def _range(number: int, text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    bounds = read_number(low), read_number(high)
    if not dots or bounds[0] is None or bounds[1] is None:
        problem = f"range: expected two numbers such as 0..100 or 0..inf, got {shown(text)}"
        raise _problem(number, problem)
    return bounds[0], bounds[1]


def _levels(number: int, text: str) -> tuple[str, ...]:
    levels = tuple(level.strip() for level in text.split("<"))
    if len(levels) < 2 or not all(levels):
        raise _problem(number, f"levels: expected such as none < low < high, got {shown(text)}")
    return levels


def _fields(property_: Property) -> list[tuple[str, str]]:
    fields = [("name", property_.name)]
    fields.append(("levels" if property_.levels else "range", property_.domain))
    fields.append(("better", property_.better.value))
    if property_.unit:
        fields.append(("unit", property_.unit))
    if property_.over_hops is not HopEffect.KEEP:
        fields.append(("over hops", property_.over_hops.value))
    if property_.is_measured:
        fields.append(("measured", "yes"))
    return fields


def _problem(number: int, problem: str) -> QualityError:
    return QualityError(f"line {number}", problem)

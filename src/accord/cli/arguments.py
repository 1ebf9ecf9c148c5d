"""Values of options and arguments: amounts, times, predicates, filters, pairs, files.

A reader raises InputError at `where`, the name of the option.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import typer

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError, InputError, file_problem
from accord.core.model.units import parse_time
from accord.core.monitoring.ledger import event_id, event_number
from accord.predicates import Predicate, PredicateError, parse, parse_xpath

MAX_DURATION_S: Final = 30 * 86_400.0

_UNITS_S: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(B|[KMG]B|)", re.ASCII | re.IGNORECASE)
_SIZES: Final = {"GB": 10**9, "MB": 10**6, "KB": 10**3}
_PREFIX: Final = re.compile(r"[^\W\d][\w.-]*")


def read_duration_s(text: str, where: str, *, needs_unit: bool = False) -> float:
    """Seconds, by default also without a unit; `where` names the option."""
    found = _DURATION.fullmatch(text.strip())
    unit_s = _UNITS_S.get(found[2]) if found else None
    if found is None or unit_s is None:
        raise InputError(where, f"expected a duration such as 500ms, 10s or 2min, got {text!r}")
    if needs_unit and not found[2]:
        units = ", ".join(unit for unit in _UNITS_S if unit)
        raise InputError(where, f"expected a unit ({units}), as in {text.strip()}ms, got {text!r}")
    duration_s = float(found[1]) * unit_s
    if not 0 < duration_s <= MAX_DURATION_S:
        raise InputError(where, f"expected more than nothing and at most 30 days, got {text!r}")
    return duration_s


def read_choice(text: str, choices: Sequence[str], where: str) -> str:
    if text not in choices:
        raise InputError(where, f"expected one of {', '.join(choices)}, got {text[:80]!r}")
    return text


def read_size(text: str, where: str) -> int:
    """Bytes, by default without a unit; `where` names the option."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(where, f"expected a size such as 100, 10 KB or 1 MB, got {text!r}")
    return round(float(found[1]) * _SIZES.get(found[2].upper(), 1))


def read_pairs(texts: Iterable[str], where: str) -> Iterator[tuple[str, str]]:
    """Parse NAME=VALUE; `where` names the option."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(where, f"expected NAME=VALUE, got {text!r}")
        yield name.strip(), value


def read_predicate(
    text: str, *, is_xpath: bool = False, namespaces: Mapping[str, str] | None = None
) -> Predicate:
    """Parse `text` as a selector or as an XPath condition."""
    # A shell passes bytes that are not UTF-8 as lone surrogates.
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise PredicateError("not Unicode text", text=text, position=position)
    return parse_xpath(text, namespaces) if is_xpath else parse(text)


def check_predicate(where: str | None, xpath: str | None) -> None:
    """Report a problem with its location before a node is contacted."""
    if where is not None and xpath is not None:
        raise typer.BadParameter("give one of --where and --xpath")
    if where is not None or xpath is not None:
        read_predicate(where or xpath or "", is_xpath=where is None)


def read_since(text: str, where: str) -> int:
    """Parse a time, in milliseconds; `where` names the option in errors."""
    try:
        return parse_time(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise InputError(where, str(error)) from None


def read_namespaces(bindings: Iterable[str]) -> dict[str, str]:
    """Parse `prefix=uri` pairs; the last one of a prefix counts."""
    namespaces = {}
    for binding in bindings:
        prefix, _, uri = binding.partition("=")
        if not _PREFIX.fullmatch(prefix.strip()) or not uri.strip():
            raise InputError("--namespace", f"expected prefix=uri, got {binding!r}")
        namespaces[prefix.strip()] = uri.strip()
    return namespaces


def check_filter(pattern: str, where: str = "--channel") -> str:
    if problem := problem_with_filter(pattern):
        raise InputError(where, problem)
    return pattern


def read_file(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise InputError(str(path), file_problem(error)) from None
    if len(data) > max_bytes:
        raise InputError(str(path), f"expected at most {max_bytes} bytes")
    return data


def read_event_id(text: str, where: str) -> str:
    """The ID of an event as the node writes it."""
    try:
        return event_id(event_number(text))
    except EventError as error:
        raise InputError(where, error.problem) from None

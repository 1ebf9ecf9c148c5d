"""Parses predicates and related options typed by a user."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from accord.cli.errors import InputError
from accord.core.model.channels import problem_with_filter
from accord.core.model.units import parse_time
from accord.predicates import Predicate, PredicateError, parse, parse_xpath

_PREFIX: Final = re.compile(r"[^\W\d][\w.-]*")


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

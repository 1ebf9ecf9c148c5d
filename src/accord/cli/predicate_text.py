"""Predicates and what goes with them, as typed by a user."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from accord.cli.errors import InputError
from accord.core.model.channels import problem_with_filter
from accord.core.model.times import parse_time
from accord.predicates import Predicate, PredicateError, parse, parse_xpath

_PREFIX: Final = re.compile(r"[^\W\d][\w.-]*")


def read_predicate(
    text: str, *, is_xpath: bool = False, namespaces: Mapping[str, str] | None = None
) -> Predicate:
    """The predicate that `text` says, as a selector or as an XPath condition."""
    # A shell hands over bytes that are not UTF-8 as lone surrogates.
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise PredicateError("not Unicode text", text=text, position=position)
    return parse_xpath(text, namespaces) if is_xpath else parse(text)


def check_predicate(where: str | None, xpath: str | None) -> None:
    """A mistake shows here, with its place, before a node is asked."""
    if where is not None or xpath is not None:
        read_predicate(where or xpath or "", is_xpath=where is None)


def read_since(text: str, where: str) -> int:
    """The moment that `text` says, in milliseconds; `where` names the option in the error."""
    try:
        return parse_time(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise InputError(where, str(error)) from None


def read_namespaces(bindings: Iterable[str]) -> dict[str, str]:
    """`prefix=uri` each; a later one of the same prefix counts."""
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

"""Files of policies, with the line of a mistake."""

from __future__ import annotations

import re
import sys
import tomllib
from typing import Any, Final

import msgspec

from accord.config.toml_lines import Path as KeyPath
from accord.config.toml_lines import TomlLines
from accord.core.model.errors import InputError, PolicyError, file_problem
from accord.core.policy.policy import Policy
from accord.core.policy.policy_parser import policy_from
from accord.core.policy.policy_set import (
    PolicySet,
    parse_policy_set,
    policy_document,
    render_policy_set,
)
from accord.operations.policies import MAX_TEXT
from accord.shaping.shaper_checks import check_shapers

_PART: Final = re.compile(r"([A-Za-z0-9_-]+)|\[(\d+)\]")
_LINE: Final = re.compile(r"line (\d+)\b.*")
_NAMED: Final = re.compile(r'policy "(.*)", (\w+)', re.DOTALL)
_ONE: Final = "policy"  # location of a single policy without a list


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_TEXT + 1)
        else:
            with open(file, "rb") as stream:
                data = stream.read(MAX_TEXT + 1)
    except OSError as error:
        raise InputError(file, file_problem(error)) from None
    if len(data) > MAX_TEXT:
        raise InputError(file, f"expected at most {MAX_TEXT} bytes")
    try:
        return data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{line}", "expected UTF-8 text") from None


def read_policies(file: str, text: str) -> PolicySet:
    """Read a whole file, TOML or (by its name) JSON."""
    try:
        policy_set = parse_policy_set(text, is_json=_is_json(file))
        check_shapers(policy_set)
    except PolicyError as error:
        raise _located(error, file, text) from None
    return policy_set


def read_some(file: str, text: str) -> tuple[Policy, ...]:
    """The policies of a file that has nothing else: a list of them, or the fields of one."""
    table = _parse(text, is_json=_is_json(file))
    if table is None or "policies" in table:
        policies = read_policies(file, text).policies
        for name in table or ():
            if name not in ("policies", "version"):
                problem = "expected policies only; `accord policy apply` takes all"
                raise _located(PolicyError(name, problem), file, text)
        return policies
    try:
        return (policy_from(table, _ONE),)
    except PolicyError as error:
        raise _located(error, file, text) from None


def policy_toml(policy: Policy) -> str:
    _, heading, text = render_policy_set(PolicySet(policies=(policy,))).partition("[[policies]]")
    return (heading + text).rstrip()


def policy_json(policy: Policy) -> str:
    return msgspec.json.encode(policy_document(policy)).decode()


def _is_json(file: str) -> bool:
    return file.endswith(".json")


def _parse(text: str, *, is_json: bool) -> dict[str, Any] | None:
    """Return None for a syntax error, which is reported elsewhere."""
    try:
        table = msgspec.json.decode(text) if is_json else tomllib.loads(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


def _located(error: PolicyError, file: str, text: str) -> InputError:
    """The same problem with its line, if the text is TOML."""
    if found := _LINE.fullmatch(error.place):
        return InputError(f"{file}:{found[1]}", error.problem)
    if error.place == "end of document":
        return InputError(f"{file}:{text.rstrip().count(chr(10)) + 1}", error.problem)
    if _is_json(file) or _parse(text, is_json=False) is None:
        return InputError(file, str(error))
    return InputError(f"{file}:{TomlLines(text).find(_path(error.place, text))}", str(error))


def _path(place: str, text: str) -> KeyPath:
    """Key path of `policies[3].where`, or `policy "X", where`, in the document."""
    if named := _NAMED.fullmatch(place):
        names = [each.get("name") for each in tomllib.loads(text).get("policies", [])]
        return ("policies", names.index(named[1]), named[2]) if named[1] in names else (named[2],)
    path: KeyPath = tuple(found[1] or int(found[2]) for found in _PART.finditer(place))
    return path[1:] if path[:1] == (_ONE,) else path

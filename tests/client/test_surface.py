"""What `import accord` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import accord
from accord.client.session import connect
from accord.client.sync import connect_sync
from accord.core.model.event import Event


def test_names_are_found_where_they_are() -> None:
    assert accord.connect is connect
    assert accord.connect_sync is connect_sync
    assert accord.Event is Event
    name = "nothing"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(accord, name)


def test_every_name_is_listed_found_and_documented() -> None:
    assert set(accord.__all__) <= set(dir(accord))
    assert accord.__all__ == sorted(accord.__all__)
    for name in accord.__all__:
        assert inspect.getdoc(getattr(accord, name)), f"{name} has no documentation"


def test_errors_are_called_that() -> None:
    for name in accord.__all__:
        found = getattr(accord, name)
        is_error = isinstance(found, type) and issubclass(found, Exception)
        assert is_error == name.endswith("Error")


def signatures(found: Any) -> Iterator[tuple[str, Any]]:
    """Of a function, or all public methods and properties of a class."""
    if not isinstance(found, type):
        yield found.__name__, inspect.unwrap(found)
        return
    for name, member in inspect.getmembers_static(found):
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function) and (not name.startswith("_") or name == "__anext__"):
            yield f"{found.__name__}.{name}", inspect.unwrap(function)


def classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("accord."):
        yield hint
    for part in get_args(hint):
        for each in part if isinstance(part, list) else [part]:
            yield from classes_in(each)


def test_what_signatures_name_can_be_named_by_users() -> None:
    public = {getattr(accord, name) for name in accord.__all__}
    for name in accord.__all__:
        for place, function in signatures(getattr(accord, name)):
            hints = get_type_hints(function)
            hints.pop("transport", None)  # one's own network: `accord.testing` has one
            for hint in hints.values():
                unnamed = [each for each in classes_in(hint) if each not in public]
                assert not unnamed, f"{place} has {unnamed}"


def loaded_by(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(result.stdout.split())


def test_nothing_is_loaded_before_it_is_used() -> None:
    assert not loaded_by("import accord") & {"asyncio", "msgspec", "lxml", "accord.client"}
    assert not loaded_by("import accord; accord.connect") & {"websockets", "lark", "fastapi"}

"""What `import accord` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

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

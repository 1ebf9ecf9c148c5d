"""Nothing that users could do is lost: the interfaces contain those recorded in interfaces.json.

`python -m tests.scenarios.test_interfaces` records the present ones: with a change that
is meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import typer

from accord.cli.main import app
from accord.operations.catalog import OPERATIONS
from tests.brokers import accord_only, start_with_http

RECORDED: Final = Path(__file__).with_name("interfaces.json")
RENAMED: Final = {("$accord/policies get", "name"): ("$accord/policies get policy", "name")}


def http_operations(url: str) -> dict[str, list[str]]:
    """Parameters by method and path."""
    document = httpx.get(f"{url}/openapi.json", timeout=30).json()
    return {
        f"{method.upper()} {path}": sorted(each["name"] for each in operation.get("parameters", ()))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def mqtt_requests() -> dict[str, list[str]]:
    """Fields by topic and action."""
    return {f"{each.topic} {each.action}": sorted(each.fields) for each in OPERATIONS}


def commands() -> dict[str, list[str]]:
    """Options and arguments by command."""
    found: dict[str, list[str]] = {}

    def walk(command: Any, path: str) -> None:
        found[path] = sorted(name for each in command.params for name in each.opts)
        for name, below in getattr(command, "commands", {}).items():
            walk(below, f"{path} {name}")

    walk(typer.main.get_command(app), "accord")
    return found


def interfaces(url: str) -> dict[str, dict[str, list[str]]]:
    return {"http": http_operations(url), "mqtt": mqtt_requests(), "commands": commands()}


@pytest.fixture(scope="module")
def now() -> Iterator[dict[str, dict[str, list[str]]]]:
    with start_with_http() as (_, url):
        yield interfaces(url)


@accord_only
@pytest.mark.parametrize("kind", ["http", "mqtt", "commands"])
def test_nothing_is_lost(now: dict[str, dict[str, list[str]]], kind: str) -> None:
    recorded, present = json.loads(RECORDED.read_text())[kind], now[kind]
    assert recorded.keys() <= present.keys()
    lost = [
        (each, name)
        for each, names in recorded.items()
        for name in names
        if name not in present[each]
    ]
    for each in lost:
        operation, name = RENAMED.get(each, each)
        assert name in present.get(operation, ()), each


if __name__ == "__main__":
    with start_with_http() as (_, running):
        made = interfaces(running)
    RECORDED.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")

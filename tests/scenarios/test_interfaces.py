"""Nothing that users could do is lost: the interfaces contain those recorded in interfaces.json.

`python -m tests.scenarios.test_interfaces` records the present ones: with a change that
is meant.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
import typer
from benchmarks.ports import free_port

from accord.cli.main import app
from accord.core.broker import quality_requests
from accord.core.router import rights
from accord.runtime import admission_requests, channel_requests, policy_requests, query_service
from tests.brokers import HOST, accord_only, start_accord

RECORDED: Final = Path(__file__).with_name("interfaces.json")
_REQUESTS: Final[dict[str, Any]] = {
    rights.POLICIES: policy_requests.Request,
    rights.CHANNELS: channel_requests.Request,
    rights.QUERIES: query_service.Find | query_service.Next | query_service.Stop,
    rights.ADVERTISEMENTS: admission_requests.AdmissionRequest,
    rights.EXPECTATIONS: quality_requests.ExpectationRequest,
    rights.CAPABILITIES: quality_requests.CapabilityRequest,
    rights.PROPERTIES: quality_requests.PropertyRequest,
}


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
    found = {}
    for topic, kinds in _REQUESTS.items():
        inspected = msgspec.inspect.type_info(kinds)
        for each in inspected.types if hasattr(inspected, "types") else [inspected]:
            assert isinstance(each, msgspec.inspect.StructType)
            found[f"{topic} {each.tag}"] = sorted(field.encode_name for field in each.fields)
    return found


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


@contextmanager
def node() -> Iterator[str]:
    """The HTTP address of a node with all its parts, but for a pipeline that runs."""
    port = free_port()
    with start_accord(extra=["--http", f"{HOST}:{port}"]):
        url = f"http://{HOST}:{port}"
        for _ in range(300):
            with suppress(httpx.TransportError):
                httpx.get(f"{url}/health")
                break
            time.sleep(0.1)
        yield url


@pytest.fixture(scope="module")
def now() -> Iterator[dict[str, dict[str, list[str]]]]:
    with node() as url:
        yield interfaces(url)


@accord_only
@pytest.mark.parametrize("kind", ["http", "mqtt", "commands"])
def test_nothing_is_lost(now: dict[str, dict[str, list[str]]], kind: str) -> None:
    recorded, present = json.loads(RECORDED.read_text())[kind], now[kind]
    assert recorded.keys() <= present.keys()
    lost = {each: set(names) - set(present[each]) for each, names in recorded.items()}
    assert not {each: names for each, names in lost.items() if names}


if __name__ == "__main__":
    with node() as running:
        made = interfaces(running)
    RECORDED.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")

"""`accord clients ls` and `accord channel activity`, against the API over a fake node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.ledger_server import run, serving
from tests.fake_ledger import FakeLedger


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(FakeLedger()) as url:
        yield url


def names(text: str, field: str) -> list[str]:
    return [json.loads(line)[field] for line in text.splitlines()]


def test_clients_are_searched_and_sorted(url: str) -> None:
    shown = run(url, "clients", "ls", "--sort", "client", "--descending", "--json")
    assert names(shown.output, "client") == ["client-2", "client-1", "client-0"]
    found = run(url, "clients", "ls", "--search", "ENT-1", "--json")
    assert names(found.output, "client") == ["client-1"]
    more = run(url, "clients", "ls", "--search", "client", "--limit", "2")
    assert "and 1 more: --offset 2" in more.output


def test_channels_are_searched_and_sorted(url: str) -> None:
    shown = run(url, "channel", "activity", "--json")
    found = names(shown.output, "channel")
    assert found == sorted(found)
    assert "idle/one" in found
    table = run(url, "channel", "activity", "--search", "idle").output
    assert "idle/one" in table
    assert "in/s" in table
    more = run(url, "channel", "activity", "--limit", "1")
    assert "more: --offset 1" in more.output


@pytest.mark.parametrize("command", ["clients ls", "channel activity"])
def test_an_unknown_field(url: str, command: str) -> None:
    refused = run(url, *command.split(), "--sort", "colour")
    assert refused.exit_code != 0
    assert "--sort: expected one of" in str(refused.output) + str(refused.exception)

"""Each operation can be done by a command, where a person would want that."""

from __future__ import annotations

from typing import Any, Final

import pytest
import typer

from accord.cli.main import app
from accord.operations.catalog import OPERATIONS
from accord.operations.operation import Operation

COMMANDS: Final = {
    "clients.list": "clients ls",
    "clients.get": "clients show",
    "clients.disconnect": "clients disconnect",
    "clients.forget": "clients forget",
    "retained.list": "retained ls",
    "retained.remove": "retained rm",
    "admission.get": "admission",
    "admission.check": "admission check",
    "admission.book": "admission books",  # of each node
    "admission.books": "admission books",
    "net.get": "net",
    "channels.list": "channel ls",
    "channels.get": "channel show",
    "channels.create": "channel create",
    "channels.delete": "channel rm",
    "policies.get": "policy list",
    "policies.get_policy": "policy show",
    "policies.put": "policy apply",
    "policies.patch": "policy strategy",
    "policies.limit": "policy limit",
    "policies.put_policy": "policy put",
    "policies.remove_policy": "policy remove",
    "policies.rollback": "policy rollback",
    "policies.history": "policy history",
    "policies.dry_run": "policy apply",
    "policies.explain": "policy explain",
    "quality.get": "quality",
    "quality.convert": "quality convert",
    "properties.define": "quality define",
    "properties.list": "quality properties",
    "query.find": "query",
    "query.next": "query",
    "query.cancel": "query",
    "export.export": "query",  # --output
    "report.get": "report",
    "status.get": "status",
    "top.get": "top",
    "events.get": "why",
    "ledger.list": "why",
    "clients.channels": "clients show",
    "channels.activity": "channel activity",
    "predicates.check": "predicate explain",  # by the same parser, without a node
    # of one client, and shown for all clients
    "advertisements.list": "admission",
    "expectations.list": "quality",
    "expectations.register": "sub",
    "capabilities.list": "quality",
    "capabilities.usage": "quality",
}
BY_PROGRAMS: Final = {
    "advertisements.advertise": "a publisher promises its own rate",
    "advertisements.unadvertise": "a publisher promises its own rate",
    "expectations.update": "a subscriber changes its own expectation",
    "expectations.suspend": "a subscriber changes its own expectation",
    "expectations.resume": "a subscriber changes its own expectation",
    "expectations.revoke": "a subscriber changes its own expectation",
    "capabilities.register": "a publisher, or `accord agent` for it",
    "capabilities.update": "a publisher, or `accord agent` for it",
    "capabilities.revoke": "a publisher, or `accord agent` for it",
    "events.get_here": "nodes ask each other; `accord why` shows what all of them know",
    "journal.get": "Spark reads journals",
    "journal.read": "Spark reads journals",
    "series.list": "displays draw series; the last values are in `accord top`",
    "series.history": "displays draw series; the last values are in `accord top`",
    "histogram.count": "displays draw it",
    "attributes.list": "query says it where nothing is found",
    "changes.list": "displays list them; the log and `accord policy history` have them",
    "net.history": "the console draws its time line of it; `accord net` shows the network of now",
    "net.archive": "the console draws its time line of it; `accord net` shows the network of now",
    "series.get": "displays draw series; the last values are in `accord top`",
    "registry.list": "schedulers read measured values; they are in `accord net` and `accord top`",
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_each_operation_has_a_command_or_a_reason(operation: Operation) -> None:
    assert (operation.name in COMMANDS) != (operation.name in BY_PROGRAMS)
    command: Any = typer.main.get_command(app)
    for word in COMMANDS.get(operation.name, "").split():
        command = command.commands[word]


def test_only_operations_are_listed() -> None:
    assert {*COMMANDS, *BY_PROGRAMS} == {each.name for each in OPERATIONS}

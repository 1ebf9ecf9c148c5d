from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from accord.core.channels.channels import SHIPPED
from accord.core.channels.template import problem_with_options
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.status import ChannelStatus, NetStatus
from accord.core.overlay.status_snapshot import channel_statuses
from accord.core.router.rights import CHANNELS, EVERYTHING
from accord.operations.operation import MAX_BYTES
from accord.operations.ports import NodePorts
from tests.fake_node import FakeNode
from tests.operations import asking


class View:
    """One node's channels, without links."""

    templates = ["local", "routed", "total_order"]  # noqa: RUF012
    problem = ""  # with defining anything here
    net_map = net_history = None

    def __init__(self) -> None:
        self.overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)

    def channel_statuses(self) -> list[ChannelStatus]:
        return channel_statuses(self.overlay)

    def status(self) -> NetStatus:
        raise NotImplementedError

    def is_configured(self, name: str) -> bool:
        del name
        return False

    def problem_with_defining(self) -> str:
        return self.problem

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        return problem_with_options(definition.options, SHIPPED[definition.template].options)

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        return self.overlay.directory.create(definition, replace=replace)

    def delete_channel(self, name: str) -> str | None:
        return self.overlay.directory.delete(name)


def ask(
    view: View, request: object, *, may_see: bool = True, may_change: bool = True
) -> dict[str, Any]:
    rights = replace(EVERYTHING, statistics=may_see, policies=may_change)
    node = NodePorts(view=FakeNode(), net=view)
    return asking.ask(node, CHANNELS, request, rights=rights, user="bob")


def test_where_nothing_can_be_defined_that_is_said_first() -> None:
    view = View()
    view.problem = "x is a secondary node"
    refused = ask(view, {"do": "create", "name": "queue", "template": "nobody's"})
    assert refused["detail"] == view.problem
    assert not ask(view, {"do": "list"})["channels"]


def test_channels_are_defined_listed_and_deleted() -> None:
    view = View()
    wanted = {
        "name": "standup/queue",
        "template": "total_order",
        "options": {"slow_members": "wait"},
    }
    made = ask(view, {"do": "create", **wanted})
    assert made["ok"] is True
    assert made["node"] == "a"
    (listed,) = ask(view, {"do": "list"})["channels"]
    assert {name: listed[name] for name in wanted} == wanted
    again = ask(view, {"do": "create", "name": "standup/queue", "template": "local"})
    assert "delete it first" in again["detail"]
    replaced = {"do": "create", "name": "standup/queue", "template": "local", "replaces": True}
    assert ask(view, replaced)["template"] == "local"
    assert ask(view, {"do": "delete", "name": "standup/queue"}) == {
        "ok": True,
        "name": "standup/queue",
        "comes_back": False,
    }
    assert ask(view, {"do": "list"})["channels"] == []


def test_options_are_text_booleans_or_numbers() -> None:
    options = {"slow_members": "wait", "stall_timeout_ms": 500, "spanner": 1.5, "persistent": True}
    made = ask(View(), {"do": "create", "name": "x", "template": "total_order", "options": options})
    told = {
        "slow_members": "wait",
        "stall_timeout_ms": "500",
        "spanner": "1.5",
        "persistent": "true",
    }
    assert made["options"] == told


@pytest.mark.parametrize(
    ("request_", "place", "problem"),
    [
        ({"do": "create", "name": "x", "template": "telepathy"}, "template", "expected one of"),
        ({"do": "create", "name": "a/#/b"}, "", "name: "),
        ({"do": "create", "name": "x", "paths": 99}, "paths", "expected"),
        ({"do": "create", "nome": "x"}, "request", "nome"),
        ({"do": "create", "name": "$x"}, "name", "stay on their node"),
        (
            {"do": "create", "name": "x", "options": {"persistent": [7]}},
            "options.persistent",
            "expected text, true, false or a number",
        ),
        (
            {"do": "create", "name": "x", "options": {"persistent": 7}},
            "options.persistent",
            "expected true, or how far",
        ),
        ({"do": "create", "name": "x", "options": {"hops": 3}}, "options.hops", "no such option"),
        (b'{"do": "create"', "request", "expected a JSON object"),
        (b"", "request", "expected a JSON object"),
        (b"[]", "request", "expected object, got array"),
        ({"do": "delete", "name": "x"}, "name", "not defined"),
        ({"do": "explode"}, "do", "expected one of list, get, create, delete, activity"),
        ({}, "do", "expected one of"),
        (b"[" * 20_000, "request", "expected"),
        (b"\xff", "request", ""),
        (b" " * (MAX_BYTES + 1), "request", "expected at most"),
    ],
)
def test_what_is_wrong_is_said(request_: object, place: str, problem: str) -> None:
    told = ask(View(), request_)
    assert (told["ok"], told.get("place", "")) == (False, place)
    assert problem in told["detail"]


def test_who_may_not() -> None:
    create = {"do": "create", "name": "x"}
    assert "bob may not use channels.create" in ask(View(), create, may_change=False)["detail"]
    assert ask(View(), {"do": "list"}, may_change=False)["ok"] is True, "as over HTTP"
    told = ask(View(), {"do": "list"}, may_see=False, may_change=False)
    assert "bob may not use channels.list" in told["detail"]

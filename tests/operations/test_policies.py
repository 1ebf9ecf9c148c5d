"""Requests to `$accord/policies`: what any MQTT 5 client can ask, and hears."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.policies import Entity
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import PolicySet, policy_set_from
from accord.core.router.rights import EVERYTHING, POLICIES, Rights
from accord.operations.policies import MAX_TEXT
from accord.operations.ports import NodePorts
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore
from tests.fake_node import FakeNode
from tests.operations import asking

REPORT = Policy(name="Report", channel=("patrol/#",), importance=6)


def new_administration() -> PolicyAdmin:
    desk = Entity("desk-1", "ann", ("analysts",), "alpha")
    around = PolicyHost(open_=lambda: [OpenOperation("subscribe", "patrol/report", desk)])
    return PolicyAdmin(PolicySet(version=7, policies=(REPORT,)), PolicyStore(), around)


def ask(
    request: object, administration: PolicyAdmin | None = None, *, may_change: bool = True
) -> dict[str, Any]:
    node = NodePorts(view=FakeNode(), policies=administration or new_administration())
    rights = EVERYTHING if may_change else Rights()
    return asking.ask(node, POLICIES, request, rights=rights, user="ann")


def test_seeing() -> None:
    heard = ask({"do": "get"})
    assert (heard["ok"], heard["version"]) == (True, 7)
    assert policy_set_from(heard["policy_set"]) == new_administration().policy_set
    one = ask({"do": "get policy", "name": "Report"})
    assert one["policy"] == {"name": "Report", "channel": "patrol/#", "importance": 6}


def test_a_conversation() -> None:
    admin = new_administration()
    policy = {"name": "Images", "importance": 1}
    assert ask({"do": "put policy", "policy": policy}, admin) == {"ok": True, "version": 8}
    assert ask({"do": "patch", "settings": {"strategy": "strict"}}, admin)["version"] == 9
    assert ask({"do": "remove policy", "name": "Report"}, admin)["version"] == 10
    assert [policy.name for policy in admin.policy_set.policies] == ["Images"]
    assert ask({"do": "put", "policy_set": {"shaping": False}}, admin)["version"] == 11
    assert ask({"do": "put", "toml": "strategy = 'laxity'"}, admin)["version"] == 12
    assert ask({"do": "rollback", "version": 9}, admin)["version"] == 13
    assert len(admin.policy_set.policies) == 2
    history = ask({"do": "history"}, admin)["history"]
    assert [each["version"] for each in history] == [13, 12, 11, 10, 9, 8]
    assert history[0]["who"] == "ann"


def test_questions_change_nothing() -> None:
    admin = new_administration()
    result = ask({"do": "dry run", "policy_set": {}}, admin)
    assert (result["total"], result["affected"][0]["client"]) == (1, "desk-1")
    question = {"do": "explain", "operation": "subscribe", "channel": "patrol/report"}
    explanation = ask({**question, "client": "desk-1", "attributes": {"a": 1}}, admin)
    assert explanation["granted"]["policy"] == "Report"
    assert admin.policy_set.version == 7


def test_a_change_for_another_version() -> None:
    admin = new_administration()
    late = {"do": "patch", "settings": {"shaping": False}, "if_version": 6}
    heard = ask(late, admin)
    assert not heard["ok"]
    assert "version 7 is current" in heard["detail"]
    assert ask({**late, "if_version": 7}, admin)["ok"]


def test_limits_of_several_clients() -> None:
    admin = new_administration()
    asked = {"do": "limit", "clients": ["p-1", "p-2"], "bandwidth": "300 kbit/s"}
    assert ask(asked, admin)["version"] == 8
    assert ask({"do": "limit", "clients": ["p-3"], "bandwidth": 1_000}, admin)["version"] == 9
    assert ask({"do": "limit", "clients": ["p-1"], "bandwidth": None}, admin)["version"] == 10
    limits = {each.client: each.bandwidth_bps for each in admin.policy_set.limits}
    assert limits == {"p-2": 300_000, "p-3": 1_000}
    assert ask({**asked, "bandwidth": "much"}, admin)["place"] == "limits[1].bandwidth"


@pytest.mark.parametrize("do", ["get", "history"])
def test_who_may_not(do: str) -> None:
    assert ask({"do": do}, may_change=False) == {
        "ok": False,
        "status": 403,
        "title": "Forbidden",
        "detail": f"ann may not use policies.{do}",
        "remedy": "it takes the right may.policies",
    }


@pytest.mark.parametrize(
    ("request_", "place", "words"),
    [
        (b"", "request", "expected a JSON object"),
        (b"[]", "request", "expected object, got array"),
        (b"[" * 100_000, "request", "expected object, got array"),
        (b'{"do": "patch", "settings": {"a": ' + b"[" * 100_000, "request", "nested too deeply"),
        (b'{"do": "get policy", "name": "\xff"}', "request", "utf-8"),
        ({}, "do", "expected one of get, get policy, put, patch, limit, put policy, remove"),
        ({"do": "dance"}, "do", "expected one of get"),
        ({"do": 3}, "do", "expected one of get"),
        ({"do": "get", "nme": "x"}, "request", "object contains unknown field nme"),
        ({"do": "get policy", "name": "x"}, "", "there is no policy 'x'"),
        ({"do": "put"}, "policy_set", "expected either policy_set or toml"),
        (
            {"do": "put", "policy_set": {}, "toml": ""},
            "policy_set",
            "expected either policy_set or toml",
        ),
        ({"do": "put", "toml": "strategy ="}, "end of document", "not TOML"),
        ({"do": "put", "policy_set": {"strategy": 1}}, "strategy", 'expected one of "strict"'),
        ({"do": "put policy", "policy": {"name": "a"}}, "policy", "decides nothing"),
        ({"do": "patch"}, "request", "missing required field settings"),
        ({"do": "patch", "settings": {"policies": []}}, "policies", "unknown"),
        ({"do": "rollback", "version": 1}, "", "no version 1"),
        ({"do": "rollback", "version": "1"}, "version", "expected int, got str"),
        ({"do": "explain", "operation": "publish", "channel": "#"}, "channel", ""),
    ],
)
def test_mistakes_say_where_and_what(request_: object, place: str, words: str) -> None:
    heard = ask(request_)
    assert not heard["ok"]
    assert heard.get("place", "") == place
    assert words.lower() in heard["detail"].lower()


def test_too_much() -> None:
    assert ask(b" " * (MAX_TEXT + 1))["detail"] == "expected at most 5000000 bytes, got 5000001"


@given(st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_nothing_breaks_it(body: bytes) -> None:
    assert ask(body)["ok"] is False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
ACTIONS = ["get", "put", "patch", "put policy", "remove policy", "rollback", "explain", "dry run"]
NAMES = ["name", "policy_set", "toml", "settings", "policy", "version", "operation", "channel"]


@given(st.sampled_from(ACTIONS), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
def test_nor_do_requests_that_are_almost_right(do: str, fields: dict[str, object]) -> None:
    assert "ok" in ask({"do": do, **fields})

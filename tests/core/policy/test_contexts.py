from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.policy.contexts import Names, PolicyContext, Specificity
from accord.core.policy.policy_set import policy_from

TEXTS = st.text("ab%_\\*.\n", max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=3), st.text("ab%_\\.\n", max_size=8))
def test_a_star_stands_for_any_text(patterns: list[str], name: str) -> None:
    given_ = tuple(pattern for pattern in patterns if pattern)
    expected = any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
        for pattern in given_
    )
    names = Names(given_)
    assert names.select(name) is (expected and bool(name))
    if names.select(name):
        assert name in names.exact or any(name.startswith(each) for each in names.prefixes)


def specificity(**fields: object) -> Specificity:
    return PolicyContext(policy_from({"name": "x", "importance": 3, **fields})).specificity


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({}, {"client": "*"}),
        ({"client": "patrol-1"}, {"client": "*", "operation": "publish"}),
        ({"client": "*"}, {"client": ["a", "b"]}),
        ({"client": ["a", "b"]}, {"client": "a"}),
        ({"client": ["a", "b*"]}, {"client": ["a", "b"]}),
        ({"channel": "uav/+"}, {"channel": "uav/1"}),
        ({"channel": "uav/#"}, {"channel": "uav/1/#"}),
        ({"channel": ["uav/1/#", "#"]}, {"channel": ["uav/1/#", "uav/#"]}),
        ({"where": "a = 1"}, {"where": "a = 1 AND b = 2"}),
        ({"client": "a"}, {"who": "client = 'a' AND node = 'n'"}),
        ({"when": "backlog > 1"}, {"when": "backlog > 1", "user": "ann"}),
    ],
)
def test_which_context_is_more_specific(less: dict[str, object], more: dict[str, object]) -> None:
    assert specificity(**less) < specificity(**more)


def test_specificity_can_be_counted_by_hand() -> None:
    assert specificity(
        operation="subscribe",
        channel="uav/+/imagery",
        client=["a", "b"],
        where="speed > 3 AND platform = 'UAV'",
        when="link_kbps < 500",
    ) == (6, 1, 1, 2)

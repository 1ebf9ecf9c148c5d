from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.channels import filter_selects
from accord.core.router.rights import EVERYTHING, NO_RIGHTS, Allowed, Denied, Rights, filter_covers

LEVELS = st.sampled_from(["a", "b", "", "$s", "+"])
FILTERS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(LEVELS, min_size=1, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")
# A level that no filter names, and more levels than any has: enough to tell filters apart.
CHANNELS = [
    name
    for count in range(1, 6)
    for levels in product(["a", "b", "", "$s", "z"], repeat=count)
    if (name := "/".join(levels))
]


@pytest.mark.parametrize("rights", [NO_RIGHTS, Rights(), EVERYTHING])
def test_everybody_may_speak_of_quality_and_hear_what_concerns_them(rights: Rights) -> None:
    for topic in ("$accord/expectations", "$accord/capabilities", "$accord/properties"):
        assert rights.may_publish(topic)
    for topic in ("$accord/expectations", "$accord/advice"):
        assert rights.may_subscribe(topic)
    is_all = rights is EVERYTHING
    assert rights.may_subscribe("$accord/#") is is_all
    assert rights.may_publish("$accord/advice")  # the node's reply names the topics of requests


@given(FILTERS, FILTERS)
def test_covering_says_what_selecting_says(pattern: str, other: str) -> None:
    selected = (name for name in CHANNELS if filter_selects(other, name))
    assert filter_covers(pattern, other) is all(filter_selects(pattern, name) for name in selected)


@pytest.mark.parametrize(
    ("pattern", "other", "is_covered"),
    [
        ("#", "#", True),
        ("#", "uav/+/x/#", True),
        ("+/#", "#", True),
        ("uav/#", "uav", True),
        ("uav/#", "#", False),
        ("uav/+", "uav/#", False),
        ("uav/+", "uav/+", True),
        ("uav/+/#", "uav/#", False),
        ("#", "$accord/x", False),
        ("$accord/#", "$accord/+", True),
        ("+/x", "$accord/x", False),
    ],
)
def test_which_filters_cover_which(pattern: str, other: str, is_covered: bool) -> None:
    assert filter_covers(pattern, other) is is_covered


def test_rights_of_a_client() -> None:
    rights = Rights(publish=("uav/+/position",), subscribe=("report/#", "uav/#"))
    assert rights.may_publish("uav/7/position")
    assert not rights.may_publish("uav/7/imagery")
    assert rights.may_subscribe("report/+/today")
    assert rights.may_subscribe("$share/readers/uav/#")
    assert not rights.may_subscribe("#")
    assert not rights.may_subscribe("$share/readers/#")


@pytest.mark.parametrize("rights", [EVERYTHING, Rights(publish=("$SYS/#", "#"), subscribe=("#",))])
def test_statistics_are_read_and_never_written(rights: Rights) -> None:
    assert rights.may_subscribe("$SYS/#")
    assert rights.may_subscribe("$SYS")
    assert rights.may_subscribe("$share/readers/$SYS/broker/+")
    assert not rights.may_publish("$SYS/broker/uptime")
    assert not rights.may_publish("$SYS")


def test_statistics_can_be_kept_from_a_client() -> None:
    rights = Rights(subscribe=("#", "$SYS/#"), statistics=False)
    assert not rights.may_subscribe("$SYS/broker/uptime")
    assert rights.may_subscribe("#")  # which does not select them


def test_other_system_channels_need_a_filter_that_names_them_or_a_right_to_all() -> None:
    plain = Rights(publish=("#",), subscribe=("#", "+/x"))
    assert not plain.may_publish("$system/x")
    assert not plain.may_subscribe("$accord/#")
    assert not plain.may_subscribe("$accord/x")
    assert EVERYTHING.may_publish("$accord/query")
    assert EVERYTHING.may_subscribe("$accord/#")
    assert EVERYTHING.may_publish("$SYSTEM/x")
    assert not EVERYTHING.may_publish("$SYS/x")


def test_nothing_is_allowed_to_nobody() -> None:
    assert not NO_RIGHTS.may_publish("a")
    assert not NO_RIGHTS.may_subscribe("a")
    assert not NO_RIGHTS.may_subscribe("$SYS/#")


def test_names_are_filled_in() -> None:
    rights = Rights(publish=("home/%u/%c/#", "x-%u"), subscribe=("all/%d%", "#"))
    bound = rights.for_client(user="ann", client="phone-1")
    assert bound == Rights(publish=("home/ann/phone-1/#", "x-ann"), subscribe=("all/%d%", "#"))
    assert bound.may_publish("home/ann/phone-1/battery")


def test_a_user_called_like_a_placeholder_stays_itself() -> None:
    assert Rights(publish=("home/%u",)).for_client(user="%c", client="x").publish == ("home/%c",)


@pytest.mark.parametrize("name", ["", "#", "+", "a/b", "$SYS"])
def test_names_can_not_widen_rights(name: str) -> None:
    rights = Rights(publish=("%u/#",), subscribe=("%c/#",), statistics=False)
    bound = rights.for_client(user=name, client=name)
    assert bound.publish == ()
    assert not any(map(bound.may_subscribe, ("a", "#", "a/b/#", "$SYS/#", "accord-response/x/#")))


def test_replies_reach_a_client_whatever_else_it_may_subscribe_to() -> None:
    bound = Rights(subscribe=("uav/#",)).for_client(user="ann", client="phone")
    assert bound.may_subscribe("accord-response/phone/1")
    assert not bound.may_subscribe("accord-response/other/1")


def test_a_system_channel_may_carry_a_name() -> None:
    bound = Rights(subscribe=("$accord/advice/%c",)).for_client(user="", client="phone")
    assert bound.may_subscribe("$accord/advice/phone")
    assert not bound.may_subscribe("$accord/advice/+")


def test_the_right_to_policies_reaches_no_further() -> None:
    rights = Rights(policies=True)
    assert rights.may_publish("$accord/policies")
    assert not rights.may_publish("$system/x")
    assert not rights.may_subscribe("$accord/policies")


def test_anybody_may_ask_for_what_they_may_subscribe_to() -> None:
    assert Rights(subscribe=("a",)).may_publish("$accord/query")


def test_what_is_denied_wins() -> None:
    denied = Denied(publish=("alarm/#",), subscribe=("secret/#", "+/private"))
    rights = Rights.combine(EVERYTHING, denied)
    assert rights.may_publish("a")
    assert not rights.may_publish("alarm")
    assert not rights.may_publish("alarm/fire")
    assert rights.may_advertise("#")
    assert not rights.may_advertise("alarm/+")
    for pattern in ("#", "+/+", "+", "$share/g/#", "secre/#"):
        assert rights.may_subscribe(pattern), pattern
    for pattern in ("secret", "secret/#", "secret/+/x", "a/private", "$share/g/secret/x"):
        assert not rights.may_subscribe(pattern), pattern


def test_switches_are_denied_too() -> None:
    rights = Rights.combine(
        Allowed(("#", "$mine/#"), ("#", "$mine/#"), system=True, policies=True),
        Denied(statistics=True, system=True, policies=True),
    )
    assert not rights.may_subscribe("$SYS/#")
    assert not rights.may_publish("$mine/x")
    assert not rights.may_subscribe("$mine/x")
    assert not rights.may_publish("$accord/policies")
    assert rights.may_publish("$accord/query")  # which is everybody's
    assert (rights.statistics, rights.system, rights.policies) == (False, False, False)
    assert not Rights.combine(EVERYTHING, Denied(publish=("$accord/query",))).may_publish(
        "$accord/query"
    )


@pytest.mark.parametrize(
    ("pattern", "user", "client", "filled"),
    [
        ("home/%u/#", "ann", "phone", "home/ann/#"),
        ("home/%u-%c", "ann", "phone", "home/ann-phone"),
        ("home/%u", "a/b", "phone", "home/a/b"),
        ("home/%u/#", "%c", "phone", "home/%c/#"),
        # Rather too much than too little.
        ("home/%u/x", "#", "phone", "home/+/x"),
        ("home/x%c/y", "ann", "", "home/+/y"),
        ("%u", "$SYS", "", "$SYS"),
    ],
)
def test_placeholders_of_what_is_denied(pattern: str, user: str, client: str, filled: str) -> None:
    rights = Rights.combine(EVERYTHING, Denied((pattern,), (pattern,)))
    bound = rights.for_client(user=user, client=client)
    assert bound.denied == Denied((filled,), (filled,))

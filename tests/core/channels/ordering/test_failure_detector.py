from __future__ import annotations

from accord.core.channels.ordering.failure_detector import (
    RECENT_US,
    SUSPECT_AFTER_US,
    VOUCHED_US,
    FailureDetector,
)
from accord.core.overlay.link_state import LinkStateMap


def a_map(*, is_up: bool) -> LinkStateMap:
    net = LinkStateMap()
    for source, target in ("ab", "ba"):
        net.set_link(source, target, 10, 0.0, is_up, 0.0)
    return net


def ask(contacts: FailureDetector, until_us: int, step_us: int = SUSPECT_AFTER_US // 4) -> None:
    for now_us in range(0, until_us + 1, step_us):
        contacts.expect_reply("b", now_us)
    contacts.check_invariants()


def test_who_is_silent_and_can_not_be_reached_is_lost() -> None:
    contacts = FailureDetector("a", a_map(is_up=False))
    assert not contacts.is_suspected("b", 0)
    ask(contacts, SUSPECT_AFTER_US)
    assert not contacts.is_suspected("b", SUSPECT_AFTER_US - 1)
    assert contacts.is_suspected("b", SUSPECT_AFTER_US)
    contacts.expect_reply("b", 10 * SUSPECT_AFTER_US)
    assert contacts.is_suspected("b", 10 * SUSPECT_AFTER_US)  # and stays so
    assert contacts.on_message("b", 10 * SUSPECT_AFTER_US)
    assert not contacts.is_suspected("b", 10 * SUSPECT_AFTER_US)
    assert not contacts.on_message("b", 10 * SUSPECT_AFTER_US)  # it is known to be there
    contacts.check_invariants()


def test_who_is_in_touch_with_whom() -> None:
    near, far = FailureDetector("a", a_map(is_up=True)), FailureDetector("a", a_map(is_up=False))
    assert near.is_in_contact("b", 0)
    assert not far.is_in_contact("b", 0)
    far.on_message("b", 0)
    assert far.is_in_contact("b", RECENT_US - 1)
    assert not far.is_in_contact("b", RECENT_US)
    assert far.is_in_contact("a", 0)


def test_whom_another_is_in_touch_with_has_some_more_time() -> None:
    contacts = FailureDetector("a", a_map(is_up=False))
    ask(contacts, SUSPECT_AFTER_US)
    assert contacts.is_suspected("b", SUSPECT_AFTER_US)
    contacts.clear_suspicion("b", SUSPECT_AFTER_US)
    contacts.clear_suspicion("a", SUSPECT_AFTER_US)
    contacts.check_invariants()
    assert not contacts.is_suspected("b", SUSPECT_AFTER_US + VOUCHED_US - 1)
    contacts.expect_reply("b", SUSPECT_AFTER_US + VOUCHED_US)
    assert contacts.is_suspected("b", SUSPECT_AFTER_US + VOUCHED_US)


def test_who_can_be_reached_is_not_lost() -> None:
    net = a_map(is_up=True)
    contacts = FailureDetector("a", net)
    ask(contacts, 2 * SUSPECT_AFTER_US)
    assert not contacts.is_suspected("b", 2 * SUSPECT_AFTER_US)
    net.set_link("b", "a", 10, 0.0, False, 0.0)
    assert contacts.is_suspected("b", 2 * SUSPECT_AFTER_US)
    net.set_link("b", "a", 10, 0.0, True, 0.0)
    assert not contacts.is_suspected("b", 2 * SUSPECT_AFTER_US)


def test_what_was_asked_long_ago_says_nothing() -> None:
    contacts = FailureDetector("a", a_map(is_up=False))
    contacts.expect_reply("b", 0)
    assert not contacts.is_suspected("b", SUSPECT_AFTER_US)
    contacts.expect_reply("b", 5 * SUSPECT_AFTER_US)
    assert not contacts.is_suspected("b", 6 * SUSPECT_AFTER_US - 1)


def test_what_another_found_counts_where_it_can_not_be_reached_either() -> None:
    near, far = FailureDetector("a", a_map(is_up=True)), FailureDetector("a", a_map(is_up=False))
    for contacts in (near, far):
        contacts.adopt_suspicion("b", 0)
        contacts.adopt_suspicion("a", 0)
        contacts.check_invariants()
    assert not near.is_suspected("b", 0)
    assert far.is_suspected("b", 0)
    assert not far.is_suspected("a", 0)


def test_forgetting() -> None:
    contacts = FailureDetector("a", a_map(is_up=False))
    contacts.expect_reply("c", 0)
    ask(contacts, SUSPECT_AFTER_US)
    assert contacts.is_suspected("b", SUSPECT_AFTER_US)
    contacts.expire(20 * SUSPECT_AFTER_US)
    assert len(contacts) == 1
    contacts.on_message("c", 20 * SUSPECT_AFTER_US)
    contacts.expire(20 * SUSPECT_AFTER_US + 1)
    assert len(contacts) == 2
    contacts.expire(21 * SUSPECT_AFTER_US)
    assert len(contacts) == 1
    contacts.on_message("c", 21 * SUSPECT_AFTER_US)
    contacts.clear()
    assert len(contacts) == 0

"""Events of secondary nodes by what these call them."""

from __future__ import annotations

from accord.core.channels.history.history_replay import ChildEventDedup, ChildEventLog


def test_what_one_got_it_does_not_get_again() -> None:
    met = ChildEventDedup(ChildEventLog())
    assert met.add(("x", 1))
    assert not met.add(("x", 1))
    assert met.add(("y", 1))
    assert met.add(None)  # of no secondary node
    assert met.add(None)


def test_who_is_calm_gets_all_that_comes() -> None:
    originals = ChildEventLog()
    met, later = ChildEventDedup(originals), ChildEventDedup(originals)
    originals.came(("x", 1))
    met.begin_spell()
    met.begin_spell()
    originals.came(("x", 2))
    assert ("x", 2) in met
    met.end_spell()
    met.end_spell()
    originals.came(("x", 3))
    met.begin_spell()
    originals.came(("x", 4))
    met.end_spell()
    assert [("x", number) in met for number in range(1, 6)] == [False, True, False, True, False]
    assert ("x", 2) not in later  # which was not there


def test_the_latest_are_remembered() -> None:
    originals = ChildEventLog(most=2)
    met = ChildEventDedup(originals, most=2)
    for number in (1, 2, 3):
        assert met.add(("x", number))
    assert met.add(("x", 1))
    met.begin_spell()
    for number in (11, 12, 13):
        originals.came(("x", number))
    assert [("x", number) in met for number in (11, 12, 13)] == [False, True, True]

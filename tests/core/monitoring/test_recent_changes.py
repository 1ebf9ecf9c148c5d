from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.recent_changes import (
    BURST,
    CLIENT,
    LINK,
    POLICY,
    RecentChanges,
    page_of,
)


def put_policy(changes: RecentChanges, now_ms: int, subject: str = "Alarms") -> None:
    changes.audited(
        "policies.put_policy",
        who="ann",
        address="10.0.0.9",
        request='{"do":"put","name":"Alarms","policy":{"channel":"grid/#","importance":6}}',
        subject=subject,
        channel="",
        now_ms=now_ms,
    )


def test_a_change_says_who_what_and_where() -> None:
    changes = RecentChanges()
    put_policy(changes, 5)
    (row,) = changes.rows()
    assert (row.at_ms, row.kind, row.who) == (5, POLICY, "ann from 10.0.0.9")
    assert (row.what, row.page) == ("policies: put policy Alarms", "/policies/Alarms")
    assert row.detail == "channel grid/#, importance 6"
    assert row.is_request


def test_settings_and_limits_are_said_in_words() -> None:
    changes = RecentChanges()
    request = (
        '{"do":"patch","settings":{"limits":[{"client":"desk","bandwidth":4000}],'
        '"client_bandwidth":null},"if_version":3}'
    )
    changes.audited(
        "policies.patch",
        who="browser from ::1",
        address="::1",
        request=request,
        subject="",
        channel="",
        now_ms=5,
    )
    (row,) = changes.rows()
    assert row.what == "policies: settings changed"
    assert row.detail == "limits desk 4 kbit/s, client bandwidth none"
    assert row.who == "browser from ::1"


def test_the_clients_of_the_console_are_no_news() -> None:
    changes = RecentChanges()
    changes.client_connected("console-7", "ann", "::1", now_ms=1)
    changes.client_disconnected("console-7", "ann", "closed", now_ms=2)
    assert changes.rows() == []


def test_ten_thousand_clients_leave_the_policy_in_its_place() -> None:
    changes = RecentChanges()
    put_policy(changes, 0)
    changes.link_changed("denver", is_up=True, now_ms=0)
    for number in range(10_000):
        changes.client_connected(f"c-{number}", "", "10.0.0.1", now_ms=number)
        changes.client_disconnected(f"c-{number}", "", "connection lost", now_ms=number)
    rows = changes.rows()
    assert {row.kind for row in rows} == {POLICY, LINK, CLIENT}
    assert len(rows) < 40
    assert sum(row.count for row in rows) == 20_002
    many = [row for row in rows if row.count > 1]
    assert sorted(row.what.partition(" ")[2] for row in many) == [
        "more clients connected",
        "more clients disconnected",
    ]


def test_what_comes_seldom_has_a_row_of_its_own() -> None:
    changes = RecentChanges()
    for number in range(BURST + 2):
        changes.client_connected(f"c-{number}", "", "", now_ms=number)
    assert [row.what for row in changes.rows()][:2] == [
        "2 more clients connected",
        f"c-{BURST - 1} connected",
    ]
    changes.client_connected("late", "", "", now_ms=120_000)
    newest = changes.rows()[0]
    assert (newest.what, newest.page, newest.count) == ("late connected", "/clients/late", 1)


def test_after_a_quiet_time_many_are_counted_anew() -> None:
    changes = RecentChanges()
    for minute in (0, 10):
        for number in range(BURST + 3):
            changes.client_connected(f"c-{number}", "", "", now_ms=minute * 60_000)
    assert [row.what for row in changes.rows() if row.count > 1] == ["3 more clients connected"] * 2


def test_a_request_that_was_cut_is_not_shown() -> None:
    changes = RecentChanges()
    changes.audited(
        "policies.put",
        who="ann",
        address="",
        request='{"do":"put","toml":"strategy = …',
        subject="",
        channel="",
        now_ms=5,
    )
    (row,) = changes.rows()
    assert row.detail == ""


def test_long_names_are_cut() -> None:
    changes = RecentChanges()
    changes.client_connected("x" * 60_000, "", "", now_ms=0)
    (row,) = changes.rows()
    assert max(map(len, (row.who, row.what, row.detail, row.page))) <= 401


def test_pages_of_hostile_names_stay_within_the_console() -> None:
    assert page_of("clients", "a/b c?d#e") == "/clients/a/b%20c%3Fd%23e"
    assert page_of("clients", "<script>") == "/clients/%3Cscript%3E"


@given(
    st.lists(st.tuples(st.sampled_from(["policy", "client", "link"]), st.integers(0, 90_000))),
    st.integers(1, 20),
)
def test_bounded_and_counted(events: list[tuple[str, int]], capacity: int) -> None:
    """Never more rows than fit, numbers without repetition, the newest policies last longest."""
    changes = RecentChanges(capacity)
    now_ms = 0
    for kind, pause_ms in events:
        now_ms += pause_ms
        if kind == "policy":
            put_policy(changes, now_ms)
        elif kind == "client":
            changes.client_connected("c", "", "", now_ms=now_ms)
        else:
            changes.link_changed("n", is_up=False, now_ms=now_ms)
        rows = changes.rows()
        assert len(rows) == len(changes) <= capacity
        numbers = [row.number for row in rows]
        assert numbers == sorted(set(numbers), reverse=True)
    assert changes.version == len(events)
    if len(changes) < capacity:
        assert sum(row.count for row in changes.rows()) == len(events)

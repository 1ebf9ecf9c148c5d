"""Who ought to get what, and what became of it."""

from __future__ import annotations

from accord.sim.delivery_oracle import DeliveryOracle
from accord.sim.machine import Publication, SimSubscription, payload_of

S = 1_000_000


class Places:
    def __init__(self) -> None:
        self.started_us: dict[str, int] = {}
        self.is_parted = False

    def has_run_since(self, node: str, since_us: int) -> bool:
        return self.started_us.get(node, 0) <= since_us

    def is_reachable(self, node: str, other: str) -> bool:  # noqa: ARG002
        return not self.is_parted


class Table:
    """A tally, with what it missed."""

    def __init__(self) -> None:
        self.places = Places()
        self.tally = DeliveryOracle(self.places, settle_us=5 * S, timeout_us=10 * S)
        self.missed: list[tuple[int, str]] = []
        self.number = 0

    def publish(self, now_us: int, channel: str = "a/b", **facts: object) -> list[str]:
        self.number += 1
        number = self.number
        publication = Publication(
            number,
            "p",
            "n0",
            channel,
            number,
            now_us,
            payload_of(number, 8),
            **facts,  # type: ignore[arg-type]
        )
        return self.tally.publish(publication, now_us)

    def judge(self, now_us: int, *, is_last: bool = False) -> None:
        self.tally.judge(now_us, self._miss, is_last=is_last)

    def _miss(self, publication: Publication, subscriber: str, node: str) -> None:
        assert node == "n1"
        self.missed.append((publication.number, subscriber))

    def counts(self, channel: str = "a/b") -> dict[str, int]:
        tally = self.tally.channels[channel]
        names = ("wanted", "delivered", "in_time", "lost", "excused", "unreachable", "duplicates")
        return {name: getattr(tally, name) for name in names if getattr(tally, name)}


def wish(subscriber: str, filter_: str = "a/#", where: str = "") -> SimSubscription:
    return SimSubscription(subscriber, "n1", filter_, where)


def test_filters_predicates_and_time_decide_who_ought_to_get_it() -> None:
    table = Table()
    table.tally.subscribe(wish("all"), 0)
    table.tally.subscribe(wish("other", "b/#"), 0)
    table.tally.subscribe(wish("high", where="height > 5"), 0)
    table.tally.subscribe(wish("new"), 8 * S)
    assert table.publish(10 * S, attributes={"height": 9}) == ["all", "high"]
    assert table.publish(10 * S, attributes={"height": 3}) == ["all"]
    assert table.publish(14 * S) == ["all", "new"]


def test_xpath_looks_at_metadata() -> None:
    table = Table()
    table.tally.subscribe(SimSubscription("x", "n1", "a/#", xpath="/report[height > 5]"), 0)
    assert table.publish(10 * S, attributes={"metadata": "<report><height>9</height></report>"})
    assert not table.publish(10 * S, attributes={"metadata": "<report><height>1</height></report>"})
    assert not table.publish(10 * S)


def test_delivered_in_time_late_or_lost() -> None:
    table = Table()
    table.tally.subscribe(wish("s"), 0)
    for _ in range(3):
        table.publish(10 * S, deadline_us=2 * S)
    assert table.tally.deliver(1, "s", 12 * S)[1:] == (True, True)
    table.tally.deliver(2, "s", 12 * S + 1)
    table.judge(20 * S - 1)
    assert table.missed == []
    table.judge(20 * S)
    assert table.missed == [(3, "s")]
    assert table.counts() == {"wanted": 3, "delivered": 2, "in_time": 1, "lost": 1}
    tally = table.tally.channels["a/b"]
    assert (tally.delivered_share, tally.in_time_share) == (2 / 3, 1 / 3)
    assert tally.late == 1
    assert table.tally.is_empty


def test_again_is_a_duplicate() -> None:
    table = Table()
    table.tally.subscribe(wish("s"), 0)
    table.publish(10 * S)
    assert table.tally.deliver(1, "s", 11 * S)[1:] == (True, True)
    assert table.tally.deliver(1, "s", 11 * S)[1:] == (False, True)
    assert table.counts()["duplicates"] == 1


def test_what_comes_after_it_was_given_up_is_overdue_and_what_nobody_published_unknown() -> None:
    table = Table()
    table.tally.subscribe(wish("s"), 0)
    table.publish(10 * S)
    table.judge(20 * S)
    assert table.tally.deliver(1, "s", 21 * S) == (None, False, True)
    assert table.tally.deliver(99, "s", 21 * S) == (None, False, False)
    assert (table.tally.overdue, table.tally.unknown) == (1, 1)


def test_who_leaves_or_crashes_is_excused() -> None:
    table = Table()
    table.tally.subscribe(wish("leaves"), 0)
    table.tally.subscribe(wish("stays"), 0)
    table.publish(10 * S)
    table.tally.unsubscribe(wish("leaves"), 12 * S)
    table.judge(20 * S)
    assert table.missed == [(1, "stays")]
    table.publish(20 * S)
    table.places.started_us["n1"] = 21 * S
    table.judge(30 * S)
    table.publish(30 * S)
    table.places.started_us["n0"] = 31 * S
    table.judge(40 * S)
    assert table.counts() == {"wanted": 4, "lost": 1, "excused": 3}


def test_where_no_way_leads_it_is_not_lost() -> None:
    table = Table()
    table.tally.subscribe(wish("s"), 0)
    table.places.is_parted = True
    table.publish(10 * S)
    table.places.is_parted = False
    table.judge(20 * S)
    assert table.counts() == {"wanted": 1, "unreachable": 1}


def test_only_what_was_wished_for_may_come() -> None:
    table = Table()
    table.tally.subscribe(wish("high", where="height > 5"), 0)
    table.tally.subscribe(wish("leaves"), 0)
    table.tally.subscribe(wish("new"), 9 * S)
    table.publish(10 * S, attributes={"height": 1})
    table.tally.unsubscribe(wish("leaves"), 11 * S)
    wanted = {who: table.tally.deliver(1, who, 12 * S)[2] for who in ("high", "leaves", "new", "x")}
    assert wanted == {"high": False, "leaves": True, "new": True, "x": False}


def test_a_wish_that_had_ended_before_counts_no_more() -> None:
    table = Table()
    table.tally.subscribe(wish("gone"), 0)
    table.tally.unsubscribe(wish("gone"), 9 * S)
    table.publish(10 * S)
    assert table.tally.deliver(1, "gone", 11 * S)[2] is False


def test_what_is_open_at_the_end_is_excused() -> None:
    table = Table()
    table.tally.subscribe(wish("s"), 0)
    table.publish(10 * S)
    table.publish(19 * S)
    table.judge(20 * S, is_last=True)
    assert table.missed == [(1, "s")]
    assert table.counts() == {"wanted": 2, "lost": 1, "excused": 1}

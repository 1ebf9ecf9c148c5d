from __future__ import annotations

from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.overlay.tier_links import TierDeltaSender, TierLink, TierLinks

AGAIN_US = 1_000
LINK = TierLink(1_000, is_active=True)


class Told:
    """A log with two neighbours, `a` and `b`."""

    def __init__(self, gone: int = 100) -> None:
        self.log: ChangeLog[str, int] = ChangeLog(DeltaLimits(2, 1_000, gone), lambda *_: 1)
        self.links = TierLinks()
        self.readers = TierDeltaSender(self.log, self.links, AGAIN_US)
        for name in "ab":
            self.links.set(name, LINK)

    def due(self, now_us: int) -> list[tuple[str, int, int]]:
        self.readers.check_invariants()
        due = self.readers.next_due_us() <= now_us
        found = [(name, each.session, each.version) for name, each in self.readers.due(now_us)]
        assert due or not found
        return found


def test_who_is_behind_is_told_until_it_has_heard() -> None:
    told = Told()
    assert told.due(0) == []
    told.log.put("key", 1)
    assert told.due(10) == [("a", 1, 0), ("b", 2, 0)]
    assert told.due(11) == []
    told.readers.on_ack("a", 1, 20)
    assert told.due(10 + AGAIN_US) == [("b", 2, 0)]
    told.readers.on_ack("b", 1, 30)
    assert told.readers.next_due_us() > 1 << 60
    told.log.put("key", 2)
    assert told.due(40) == [("a", 1, 1), ("b", 2, 1)]


def test_who_knows_less_than_before_or_begins_anew_is_told_that() -> None:
    told = Told()
    for key in "klm":
        told.log.put(key, 1)
    told.due(0)
    told.readers.on_ack("a", 3, 10)
    told.readers.on_ack("a", 1, 20)
    told.readers.on_ack("a", -1, 20)
    told.readers.on_ack("a", 4, 20)
    assert told.due(20) == [("a", 1, 1)]
    told.links.drop("a")
    told.links.set("a", LINK)
    told.readers.on_ack("a", 3, 30)
    assert told.due(30) == [("a", 3, 0)]


def test_what_all_know_to_be_gone_is_forgotten() -> None:
    told = Told()
    told.log.put("k", 1)
    told.due(0)
    told.log.put("k", None)
    told.readers.on_ack("a", 2, 10)
    assert told.log.floor == 0
    told.links.drop("b")
    told.due(20)
    assert told.log.floor == 2


def test_who_may_have_what_is_gone_begins_anew() -> None:
    told = Told(gone=1)
    for key in "klmno":
        told.log.put(key, 1)
    told.due(0)
    told.readers.on_ack("a", 2, 10)
    told.readers.on_ack("b", 5, 10)
    for key in "kl":
        told.log.put(key, None)
    assert told.due(20) == [("a", 3, 0), ("b", 4, 0)]
    for name in "ab":
        told.readers.on_ack(name, 4, 30)  # half of it
    assert told.due(30) == [("a", 3, 4), ("b", 4, 4)]

"""Sightings: since when and until when links and nodes were up or down, as entries of the ledger.

An entry says that `destination` was up or down, as seen by `publisher`, from `received` to `done`:
a link's far end as seen by its near end (channel LINKS), or a node as seen by the one that records
it (NODES). It is about 0 events. Entries of length 0 begin a state: counting those that are down
counts failures, and they are the changes of a time line. A state that lasts is recorded every few
minutes, so a crash of the recording node loses that much at most.

What changes too often is summed: beyond `turns` changes in a period, one entry per state has the
time spent in it, not when that was.
"""

from __future__ import annotations

from typing import Final

from accord.core.monitoring.ledger import DOWN, UP, LedgerBatch, Row, stored_name

LINKS: Final = "$accord/net/links"
NODES: Final = "$accord/net/nodes"
PERIOD_MS: Final = 300_000
TURNS: Final = 20
MOST: Final = 10_000

Subject = tuple[str, str, str]  # LINKS or NODES, who sees it, what is seen


class _Sight:
    """The state of a subject since its last entry."""

    __slots__ = ("is_up", "since_ms", "spent_ms", "summed_ms", "turns")

    def __init__(self, is_up: bool, now_ms: int) -> None:
        self.is_up = is_up
        self.since_ms = now_ms
        self.turns = 1  # entries that began a state, in this period
        self.summed_ms = 0  # when summing began; 0: it did not
        self.spent_ms = {True: 0, False: 0}


class Sightings:
    """Turns changes of links and nodes into ledger entries; holds `most` subjects."""

    def __init__(self, *, period_ms: int = PERIOD_MS, turns: int = TURNS, most: int = MOST) -> None:
        self._period_ms = period_ms
        self._turns = turns
        self._most = most
        self._sights: dict[Subject, _Sight] = {}
        self._rows: list[Row] = []
        self._first_ms = 0  # times of the rows are relative to it
        self._period_from_ms: int | None = None

    def observe(self, subject: Subject, is_up: bool | None, *, now_ms: int) -> None:
        """The subject is up or down from now on; None: nothing is known of it any more."""
        sight = self._sights.get(subject)
        if sight is None:
            if is_up is not None and len(self._sights) < self._most:
                self._sights[subject] = _Sight(is_up, now_ms)
                self._add(subject, is_up, now_ms, now_ms)
        elif is_up is None:
            self._record(subject, sight, now_ms)
            del self._sights[subject]
        elif is_up != sight.is_up:
            self._turn(subject, sight, now_ms)

    def take(self, *, now_ms: int) -> LedgerBatch | None:
        """Return new entries; at the end of a period, also of the states that last."""
        from_ms = now_ms if self._period_from_ms is None else self._period_from_ms
        if not 0 <= now_ms - from_ms < self._period_ms:
            self._record_all(now_ms)
            from_ms = now_ms
        self._period_from_ms = from_ms
        if not self._rows:
            return None
        batch = LedgerBatch(0, self._first_ms)
        batch.rows, self._rows = self._rows, []
        return batch

    def stop(self, *, now_ms: int) -> None:
        """Record all states: this node takes its links down now, which is no failure of theirs."""
        self._record_all(now_ms)
        self._sights.clear()
        self._most = 0

    def check_invariants(self) -> None:
        assert len(self._sights) <= self._most
        assert all(0 < each.turns <= self._turns + 1 for each in self._sights.values())

    def _turn(self, subject: Subject, sight: _Sight, now_ms: int) -> None:
        if sight.turns < self._turns:
            sight.turns += 1
            self._add(subject, sight.is_up, sight.since_ms, now_ms)
            self._add(subject, not sight.is_up, now_ms, now_ms)
        else:
            sight.summed_ms = sight.summed_ms or sight.since_ms
            sight.spent_ms[sight.is_up] += max(now_ms - sight.since_ms, 0)
        sight.is_up = not sight.is_up
        sight.since_ms = now_ms

    def _record_all(self, now_ms: int) -> None:
        for subject, sight in self._sights.items():
            self._record(subject, sight, now_ms)

    def _record(self, subject: Subject, sight: _Sight, now_ms: int) -> None:
        """Add what the subject has been since its last entry."""
        if sight.summed_ms:
            middle_ms = sight.summed_ms + sight.spent_ms[False]
            self._add(subject, False, sight.summed_ms, middle_ms)
            self._add(subject, True, middle_ms, middle_ms + sight.spent_ms[True])
            sight.spent_ms = {True: 0, False: 0}
        if now_ms > sight.since_ms:
            self._add(subject, sight.is_up, sight.since_ms, now_ms)
        sight.since_ms, sight.summed_ms, sight.turns = now_ms, 0, 1

    def _add(self, subject: Subject, is_up: bool, since_ms: int, until_ms: int) -> None:
        if not self._rows:
            self._first_ms = since_ms
        channel, observer, seen = subject
        spent_ms = max(until_ms - since_ms, 0)  # a clock may be set back
        self._rows.append(
            (
                0,
                since_ms - self._first_ms,
                0,
                channel,
                stored_name(observer),
                stored_name(seen),
                UP if is_up else DOWN,
                spent_ms,
                0,
                0,
                0,
                "",
                "",
                0,
            )
        )

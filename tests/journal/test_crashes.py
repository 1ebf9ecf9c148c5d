"""Whatever happens when: what was reported as committed is there afterwards, in order, once.

One life of a journal is a list of actions that ends with a crash, at any operation on the disk; the
next life begins with what is found. The model is the list of all records as they were appended.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.journal.errors import JournalError
from accord.journal.faults import Crash, FaultDisk
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.journal.state_log import StateLog
from accord.journal.writer import Journal
from tests.journal.helpers import records_in

OPTIONS = JournalOptions(segment_bytes=2_000, batch_bytes=700, is_threaded=False)
FAILING = ("append", "sync", "truncate", "create", "remove", "rename", "sync_names", "overwrite")
ERRORS = (errno.EIO, errno.ENOSPC)

ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.sampled_from((0, 9, 60, 700))),
    st.tuples(st.just("work")),
    st.tuples(st.just("work")),
    st.tuples(st.just("retire"), st.integers(0, 5)),
    st.tuples(
        st.just("fail"), st.sampled_from(FAILING), st.sampled_from((errno.EIO, errno.ENOSPC))
    ),
    st.tuples(st.just("read")),
    st.tuples(st.just("compact")),
)
LIVES = st.lists(
    st.tuples(st.lists(ACTIONS, max_size=25), st.integers(0, 60)), min_size=1, max_size=4
)


@dataclass
class Model:
    """What the outside knows: what it appended, and what it was told."""

    appended: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    seen: int = 0
    may_retire: int = 0
    count: int = 0

    def fresh(self, number: int, size: int) -> list[bytes]:
        """Records unlike any before: after a crash offsets come again, records do not."""
        self.count += number
        names = range(self.count - number, self.count)
        return [b"%d=%d:" % (name % 7, name) + b"x" * size for name in names]

    def acknowledge(self, offset: int) -> None:
        assert self.acknowledged <= offset <= len(self.appended)
        self.acknowledged = offset


def live(journal: Journal, model: Model, actions: list[tuple[Any, ...]], disk: FaultDisk) -> None:
    for action, *arguments in actions:
        match action:
            case "append":
                records = model.fresh(*arguments)
                offset = journal.append(records)
                if isinstance(offset, int):  # else the disk has failed for good
                    model.appended += records
                    assert offset == len(model.appended)
            case "work":
                journal.work()
            case "retire":
                before = model.acknowledged - arguments[0]
                model.may_retire = max(model.may_retire, before)
                journal.retire(before)
            case "fail":
                disk.fail(*arguments)
            case "read":
                read(disk, model)


def read(disk: FaultDisk, model: Model) -> None:
    """Another process sees what is durable, and what it has seen never becomes untrue."""
    reader = Reader(disk)
    extent = reader.extent()
    assert extent.next_offset <= len(model.appended)
    offset = extent.first_offset
    for found in reader.read(offset):
        assert isinstance(found, Batch), found
        assert found.records() == model.appended[offset : found.end_offset]
        offset = found.end_offset
    assert offset == extent.next_offset
    model.seen = max(model.seen, offset)


def check_recovered(journal: Journal, disk: FaultDisk, model: Model) -> None:
    log = journal.log
    assert log.recovery.damaged == ()
    assert model.acknowledged <= log.committed <= len(model.appended)
    assert model.seen <= log.committed
    assert log.first_offset <= max(0, model.may_retire)
    del model.appended[log.committed :]
    model.acknowledged = log.committed
    assert records_in(disk, log.first_offset) == model.appended[log.first_offset :]


def end(disk: FaultDisk, random: Random) -> FaultDisk:
    """The end of a life: of the whole machine, or of the program alone."""
    if random.random() < 0.6:
        return disk.crash()
    disk.kill()
    return disk


def run(lives: list[tuple[list[tuple[Any, ...]], int]], random: Random) -> None:
    model = Model()
    disk = FaultDisk(lambda limit: random.randint(0, limit))
    for actions, crash_at in lives:
        disk.crash_at = crash_at
        try:
            journal = Journal.open(disk, OPTIONS, on_commit=model.acknowledge)
            disk.crash_at = disk.operations + crash_at
            live(journal, model, actions, disk)
        except (Crash, JournalError):
            pass
        disk = end(disk, random)
        journal = Journal.open(disk, OPTIONS)
        check_recovered(journal, disk, model)
        disk = end(disk, random)
    check_recovered(Journal.open(disk, OPTIONS), disk, model)


@settings(max_examples=400)
@given(LIVES, st.randoms(use_true_random=False))
def test_what_was_acknowledged_survives_any_crash(
    lives: list[tuple[list[tuple[Any, ...]], int]], random: Random
) -> None:
    run(lives, random)


SCRIPT: list[tuple[Any, ...]] = [
    ("append", 3, 60),
    ("work",),
    ("append", 5, 700),
    ("work",),
    ("read",),
    ("fail", "sync", errno.EIO),
    ("append", 2, 9),
    ("work",),
    ("append", 6, 700),
    ("append", 1, 0),
    ("work",),
    ("fail", "append", errno.ENOSPC),
    ("append", 2, 60),
    ("work",),
    ("work",),
    ("retire", 1),
    ("work",),
    ("append", 4, 60),
    ("work",),
    ("read",),
]


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_every_single_operation(seed: int) -> None:
    disk = FaultDisk()
    model = Model()
    live(Journal.open(disk, OPTIONS, on_commit=model.acknowledge), model, SCRIPT, disk)
    assert model.acknowledged == len(model.appended) == 23
    assert disk.operations > 30
    for crash_at in range(disk.operations + 1):
        run([(SCRIPT, crash_at), (SCRIPT, crash_at)], Random(seed))  # noqa: S311


def folded(records: list[bytes]) -> dict[bytes, bytes]:
    """The state that changes lead to."""
    return dict(record.split(b"=", 1) for record in records)


def bury(journal: Journal) -> None:
    """End what was under way, which can't do anything any more."""
    for job in (*journal._jobs, *journal._backlog.abandon(None)):
        with suppress(Crash):
            job.abandon(JournalError("crashed", location=""))
    journal._jobs.clear()


def run_state(lives: list[tuple[list[tuple[Any, ...]], int]], random: Random) -> None:
    model = Model()
    disk = FaultDisk(lambda limit: random.randint(0, limit))
    state, _ = StateLog.open(FaultDisk(), OPTIONS)
    for actions, crash_at in lives:
        disk.crash_at = crash_at
        try:
            state, records = StateLog.open(disk, OPTIONS, on_commit=model.acknowledge)
            disk.crash_at = disk.operations + crash_at
            for action in actions:
                if action[0] == "compact" and not state.is_compacting:
                    snapshot = folded(model.appended)
                    state.compact(b"=".join(item) for item in snapshot.items())
                elif action[0] in ("append", "work", "fail"):
                    live(state.journal, model, [action], disk)
        except (Crash, JournalError):
            pass
        disk.crash_at = disk.operations
        bury(state.journal)
        disk = end(disk, random)
        state, records = StateLog.open(disk, OPTIONS)
        committed = state.journal.log.committed
        assert state.damaged == state.status().recovery.damaged == ()
        assert model.acknowledged <= committed <= len(model.appended)
        del model.appended[committed:]
        model.acknowledged = committed
        replaced = state.journal.log.snapshot or 0
        snapshot = folded(model.appended[:replaced])
        assert folded(records[: len(snapshot)]) == snapshot
        assert records[len(snapshot) :] == model.appended[replaced:]
        disk = end(disk, random)


@settings(max_examples=400)
@given(LIVES, st.randoms(use_true_random=False))
def test_a_state_survives_any_crash_and_compaction(
    lives: list[tuple[list[tuple[Any, ...]], int]], random: Random
) -> None:
    run_state(lives, random)


STATE_SCRIPT: list[tuple[Any, ...]] = [
    ("append", 6, 60),
    ("work",),
    ("append", 5, 700),
    ("compact",),
    ("append", 3, 60),
    ("work",),
    ("append", 3, 700),
    ("work",),
    ("work",),
    ("work",),
    ("work",),
    ("append", 3, 60),
    ("work",),
    ("compact",),
    *([("work",)] * 30),
    ("append", 1, 0),
    ("work",),
]


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_every_single_operation_of_compaction(seed: int) -> None:
    disk = FaultDisk()
    run_state([(STATE_SCRIPT, 10_000)], Random(seed))  # noqa: S311
    state, _ = StateLog.open(disk, OPTIONS)
    model = Model()
    for action in STATE_SCRIPT:
        if action[0] == "compact":
            state.compact(list(model.appended))
        else:
            live(state.journal, model, [action], disk)
    assert not state.is_compacting
    assert state.journal.log.snapshot == 20
    for crash_at in range(disk.operations + 1):
        run_state([(STATE_SCRIPT, crash_at), (STATE_SCRIPT, crash_at)], Random(seed))  # noqa: S311

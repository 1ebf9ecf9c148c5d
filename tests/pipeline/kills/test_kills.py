from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.archives import slice_job
from tests.pipeline.journals import ledger_record, records, write_journal
from tests.pipeline.kills.driver import BETWEEN, COMPACTING
from tests.pipeline.kills.run import (
    DECLARED,
    JAVA,
    NODE,
    Outcome,
    Plan,
    compare,
    run_kills,
)

from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_sink import SliceDone, commit_batch, write_slice


@pytest.mark.timeout(600)  # Spark is started four times
def test_a_killed_driver_loses_and_repeats_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = run_kills(Plan(kills=3, seed=7, life_s=1.0, rate_hz=500), tmp_path, said.append)
    assert outcome.failures() == [], (said, outcome.problems)
    assert [outcome.kills[each] for each in (BETWEEN, JAVA, COMPACTING)] == [1, 1, 1]
    assert outcome.starts == 4
    assert outcome.events > 1_000
    assert outcome.ledger_rows > 0


def test_what_is_wrong_with_an_archive_is_seen(tmp_path: Path) -> None:
    journal, archive = tmp_path / "journal", tmp_path / "archive"
    write_journal(journal, [records(0, 30), [ledger_record(0, 3)]])
    made = Archive(archive, [NODE])

    def slice_of(first: int, end: int) -> SliceDone:
        return write_slice(slice_job(tmp_path, first, end, archive=made, declared=DECLARED))

    def failures() -> list[str]:
        outcome = Outcome(kills={})
        compare(journal, archive, outcome)
        assert (outcome.records, outcome.events, outcome.ledger_rows) == (31, 30, 3)
        return outcome.failures()

    commit_batch([slice_of(0, 20)], made)
    assert failures() == ["13 rows of the journal are not in the archive"]
    commit_batch([slice_of(20, 31)], made)
    assert failures() == []
    made.events.replace([], slice_of(5, 10).files)
    assert failures() == ["5 rows are in the archive more than once"]

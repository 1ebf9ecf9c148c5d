from __future__ import annotations

from pathlib import Path

import pytest
from accord.pipeline.manifest import Manifest
from accord.pipeline.slices import SliceJob, write_slice
from tests.pipeline.journals import ledger_record, records, write_journal
from tests.pipeline.kills.run import (
    DECLARED,
    JAVA,
    NODE,
    WRITING,
    Outcome,
    Plan,
    compare,
    run_kills,
)

from accord.pipeline.tables import FileEntry


@pytest.mark.timeout(600)  # Spark is started three times
def test_a_killed_driver_loses_and_repeats_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = run_kills(Plan(kills=2, seed=7, life_s=1.0, rate_hz=500), tmp_path, said.append)
    assert outcome.failures() == [], (said, outcome.problems)
    assert (outcome.kills[WRITING], outcome.kills[JAVA]) == (1, 1)
    assert outcome.starts == 3
    assert outcome.events > 1_000
    assert outcome.ledger_rows > 0


def test_what_is_wrong_with_an_archive_is_seen(tmp_path: Path) -> None:
    journal, archive = tmp_path / "journal", tmp_path / "archive"
    write_journal(journal, [records(0, 30), [ledger_record(0, 3)]])
    manifest = Manifest(archive)

    def slice_of(first: int, end: int) -> list[FileEntry]:
        job = SliceJob(
            node=NODE,
            journal=str(journal),
            first=first,
            next=end,
            archive=str(archive),
            declared=DECLARED,
        )
        return write_slice(job)

    def failures() -> list[str]:
        outcome = Outcome(kills={})
        compare(journal, archive, outcome)
        assert (outcome.records, outcome.events, outcome.ledger_rows) == (31, 30, 3)
        return outcome.failures()

    manifest.commit(added=slice_of(0, 20), moved={NODE: (0, 20)})
    assert failures() == ["13 rows of the journal are not in the archive"]
    manifest.commit(added=slice_of(20, 31), moved={NODE: (20, 31)})
    assert failures() == []
    manifest.commit(added=slice_of(5, 10))
    assert failures() == ["5 rows are in the archive more than once"]

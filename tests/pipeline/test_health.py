from __future__ import annotations

from pathlib import Path

from tests.pipeline.archives import log_entries
from tests.pipeline.asking import NODE, World, made
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import Health
from accord.pipeline.delta_log import Archive
from accord.pipeline.health import Counts, HealthProbe
from accord.pipeline.journal_sink import NodeBatch


def test_how_far_the_archive_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    condition = HealthProbe(Archive(world.archive, [NODE]), world.journal, NODE)
    assert condition.sample(Health(state="ready")) == Health(state="ready")
    world.publish([made(n, START_MS, "a") for n in range(5)])
    world.follow(3)
    health = condition.sample(Health())
    assert (health.archived_offset, health.lag_records, health.files) == (3, 2, 1)
    assert health.lag_ms > 0
    assert health.bytes > 0
    world.follow(5)
    health = condition.sample(Health())
    assert (health.lag_records, health.lag_ms) == (0, 0)
    world.close()


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish([made(1, START_MS, "a")])
    world.follow(1)
    first, *_ = log_entries(tmp_path / "archive" / "events")
    first.write_text("{}")
    condition = HealthProbe(Archive(world.archive, [NODE]), world.journal, NODE)
    assert condition.sample(Health()).problem.startswith(f"table {world.archive}/events: ")
    world.close()


def test_rates_are_those_of_the_last_seconds() -> None:
    counts = Counts()
    counts.add(NodeBatch(archived=1, events=100, ledger_rows=50), now_s=0.0)
    counts.add(NodeBatch(archived=2, events=30), now_s=8.0)
    assert counts.rows_per_s(9.0) == 18.0
    assert counts.rows_per_s(11.0) == 3.0
    assert (counts.events, counts.ledger_rows) == (130, 50)

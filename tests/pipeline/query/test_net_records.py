"""Records of the network, from the archive."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.pipeline.archives import NODE, archive_slices
from tests.pipeline.journals import START_MS, ledger_record, write_journal

from accord.core.monitoring.ledger import DELIVERED, Ledger
from accord.core.overlay.net_recorder import NET_CHANNEL
from accord.core.queries.messages import NetLookup
from accord.journal.ledger_records import encode_ledger, record_of
from accord.pipeline.query.net_records import find_net_records


def net_record(*at_ms: int) -> bytes:
    ledger = Ledger()
    for each in at_ms:
        now = START_MS + each
        ledger.add(
            0, 1, NET_CHANNEL, "", "", DELIVERED, now, now, now + 5, 0, 0, "", f"at {each}", 0
        )
    batch = ledger.take()
    assert batch is not None
    return encode_ledger(record_of(batch, newest=0, taken_ms=now))


def test_the_records_of_a_time_and_no_others(tmp_path: Path) -> None:
    written = [[net_record(100, 5_000), ledger_record(7, 20)], [net_record(9_000, 20_000)]]
    write_journal(tmp_path / "journal", written)
    archive = archive_slices(tmp_path, 2, 3)

    def found(since: int, until: int, most: int = 10, node: str = NODE) -> list[str]:
        asked = NetLookup(id=1, since_ms=START_MS + since, until_ms=START_MS + until, most=most)
        body = find_net_records(archive.ledger.snapshot(), node, asked)
        records = msgspec.msgpack.decode(body, type=list[tuple[int, str]])
        assert all(record == f"at {at_ms - START_MS}" for at_ms, record in records)
        return [record for _, record in records]

    assert found(0, 30_000) == ["at 100", "at 5000", "at 9000", "at 20000"]
    assert found(1_000, 10_000) == ["at 5000", "at 9000"]
    assert found(0, 30_000, most=1) == ["at 100"]
    assert found(30_000, 40_000) == []
    assert found(0, 30_000, node="there's none") == []

"""Journals for tests of the pipeline: events that say which they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from accord.core.monitoring.ledger import LedgerBatch
from accord.core.mqtt.properties import Properties, encode_properties
from accord.journal.disk import OsDisk
from accord.journal.events import KeptEvent
from accord.journal.ledger_records import encode_ledger, record_of
from accord.journal.segment_log import SegmentLog

START_MS = 1_763_280_000_000  # 2025-11-16T08:00:00Z


def kept(number: int, *, channel: str = "uav/imagery", size: int = 0) -> KeptEvent:
    """Of an event each, 10 ms apart, whose attributes and payload tell its number."""
    user = (("altitude_m", str(number % 1_000)), ("platform", f"uav-{number % 7}"))
    block = encode_properties(Properties(user=user))[1:]
    assert len(block) < 128
    payload = b"%d:" % number + b"x" * size
    return KeptEvent(START_MS + 10 * number, channel, "camera", 1, -1, block, payload, number)


def record(number: int, *, channel: str = "uav/imagery", size: int = 0) -> bytes:
    return msgspec.msgpack.encode(kept(number, channel=channel, size=size))


def records(first: int, end: int, *, channel: str = "uav/imagery", size: int = 0) -> list[bytes]:
    return [record(number, channel=channel, size=size) for number in range(first, end)]


def ledger_record(first_number: int, rows: int) -> bytes:
    batch = LedgerBatch(first_number, START_MS)
    batch.lowest, batch.highest = first_number, first_number + rows - 1
    batch.rows = [
        (n, 0, 1, "uav/imagery", "camera", "viewer", 0, 1, 2, 100, 3, "", "", 50)
        for n in range(rows)
    ]
    return encode_ledger(record_of(batch, newest=0, taken_ms=START_MS))


def write_journal(
    folder: Path, commits: Sequence[Sequence[bytes]], *, segment_bytes: int = 1 << 20
) -> Path:
    """Adds these commits to the journal there."""
    log = SegmentLog(OsDisk(folder), segment_bytes=segment_bytes)
    try:
        for number, commit in enumerate(commits):
            log.commit(commit, now_ms=START_MS + number)
    finally:
        log.close()
    return folder


def retire(folder: Path, before_offset: int) -> None:
    """Whole segments, as retention does; the last one stays."""
    log = SegmentLog(OsDisk(folder))
    try:
        log.retire(now_ms=START_MS, before_offset=before_offset)
    finally:
        log.close()

"""A journal and its archive for tests of questions, and the answers in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from tests.pipeline.journals import START_MS, ledger_record

from accord.core.model.channels import filter_shows, selects_any
from accord.core.model.errors import AccordError
from accord.core.mqtt.properties import Properties, encode_properties
from accord.core.mqtt.wire import read_varint
from accord.core.predicates.predicate import parse, parse_xpath
from accord.core.queries.messages import EventQuery, Page, PageQuery, QueryHit
from accord.journal.disk import OsDisk
from accord.journal.events import KeptEvent
from accord.journal.segment_log import SegmentLog
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_sink import SliceDone, SliceJob, commit_batch, write_slice
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.tail import Tail

NODE = "n1"
DECLARED = {"altitude_m": "integer", "speed": "float"}
LARGE_BYTES = 3_000
CHANNELS = ("uav/imagery", "uav/track", "uav", "sea/a/b", "$accord/x", "ü/x")
SPAN_MS = 2 * 86_400_000


def made(
    number: int,
    received_ms: int,
    channel: str,
    user: tuple[tuple[str, str], ...] = (),
    payload: bytes = b"",
) -> KeptEvent:
    encoded = encode_properties(Properties(user=user))
    _, start = read_varint(encoded, 0, len(encoded))
    return KeptEvent(received_ms, channel, "camera", 1, -1, encoded[start:], payload, number)


def random_event(rng: random.Random, number: int) -> KeptEvent:
    """Times come in clumps, attributes of any type, now and then none of it can be read."""
    received_ms = START_MS + rng.choice((0, 40_000_000, SPAN_MS)) + rng.randrange(60)
    user = [("altitude_m", str(rng.choice((rng.randrange(1_000), 12.5, 300.0, "high"))))]
    if rng.random() < 0.5:
        user.append(("platform", rng.choice(("uav-1", "uav-2", "boat"))))
    if rng.random() < 0.3:
        user.append(("speed", str(rng.randrange(90) / 2)))
    if rng.random() < 0.2:
        user.append(("metadata", f"<m><site n='{rng.randrange(3)}'>x</site></m>"))
    size = rng.choice((0, 10, 10, 10, 900, LARGE_BYTES + 7))
    event = made(number, received_ms, rng.choice(CHANNELS), tuple(user), b"%d:" % number)
    event = msgspec.structs.replace(event, payload=event.payload + b"x" * size)
    if rng.random() < 0.03:
        event = msgspec.structs.replace(event, attributes=b"\xff damaged")
    return event


class World:
    """A journal that grows, and an archive that follows when it is told to."""

    def __init__(
        self, folder: Path, *, segment_bytes: int = 1 << 20, node: str = NODE, archive: str = ""
    ) -> None:
        self.node = node
        self.journal = str(folder / "journal")
        self.archive = archive or str(folder / "archive")
        self.tables = Archive(self.archive, [self.node])
        self.events: dict[int, KeptEvent] = {}
        self.next = 0
        self.archived = 0
        self._log = SegmentLog(OsDisk(self.journal), segment_bytes=segment_bytes)

    def close(self) -> None:
        self._log.close()

    def publish(self, events: list[KeptEvent], *, ledger_every: int = 0) -> None:
        records: list[bytes] = []
        for event in events:
            if ledger_every and len(records) % ledger_every == ledger_every - 1:
                records.append(ledger_record(1, 3))
            self.events[self.next + len(records)] = event
            records.append(msgspec.msgpack.encode(event))
        self._log.commit(records, now_ms=START_MS)
        self.next += len(records)

    def follow(self, upto: int, declared: dict[str, str] | None = None) -> None:
        """Archive up to this offset."""
        if upto <= self.archived:
            return
        commit_batch([self.slice(upto, DECLARED if declared is None else declared)], self.tables)
        self.archived = upto

    def slice(self, upto: int, declared: dict[str, str]) -> SliceDone:
        columns = self.tables.events.columns(declared)
        job = SliceJob(
            node=self.node,
            journal=self.journal,
            first=self.archived,
            next=upto,
            archive=self.archive,
            columns=self.tables.events.snapshot().columns,
            declared=columns,
            large_bytes=LARGE_BYTES,
        )
        return write_slice(job)

    def retire(self, before_offset: int) -> None:
        self._log.retire(now_ms=START_MS, before_offset=before_offset)

    def queries(self, engine: ArchiveEngine | None = None) -> QueryEngine:
        """As after a start; `engine` answers all, DataFusion by default."""
        archive = Archive(self.archive, [self.node])
        tail = Tail(self.journal)
        planner = planner_of(engine or DataFusionEngine())
        return QueryEngine(archive, tail, planner, node=self.node, journal=self.journal)

    def expected(self, ask: EventQuery) -> list[QueryHit]:
        """All of the answer, found without any of what is tested."""
        found = [
            _found(offset, event)
            for offset, event in self.events.items()
            if offset >= ask.from_offset
            and (ask.before_offset is None or offset < ask.before_offset)
            and (ask.since_ms is None or event.received_ms >= ask.since_ms)
            and (ask.until_ms is None or event.received_ms < ask.until_ms)
            and (ask.number is None or event.number == ask.number)
            and filter_shows(ask.channel, event.channel)
            and not selects_any(ask.without, event.channel)
            and _matches(event, ask)
        ]
        found.sort(key=lambda each: (each.received_ms, each.offset), reverse=ask.is_newest_first)
        return found[: ask.limit]


def _found(offset: int, event: KeptEvent) -> QueryHit:
    return QueryHit(
        offset,
        event.number,
        event.received_ms,
        event.channel,
        event.publisher,
        event.qos,
        event.attributes,
        event.payload,
    )


def _matches(event: KeptEvent, ask: EventQuery) -> bool:
    try:
        read = event.event()
        values, document = dict(read.values), read.metadata
    except (AccordError, ValueError):
        values, document = {}, None
    where = not ask.where or parse(ask.where).evaluate(values, document) is True
    return where and (not ask.xpath or parse_xpath(ask.xpath).evaluate(values, document) is True)


def planner_of(engine: ArchiveEngine) -> Planner:
    """It takes this engine for everything."""
    return Planner(engine, lambda: engine)


def pages(
    queries: QueryEngine, ask: EventQuery, *, rows: int, bytes_: int = 1 << 20
) -> Iterator[Page]:
    cursor = ""
    while True:
        page = queries.page(PageQuery(id=1, ask=ask, cursor=cursor, rows=rows, bytes=bytes_))
        yield page
        cursor = page.cursor
        if not cursor:
            return


def random_ask(rng: random.Random, last: int) -> EventQuery:
    channel = rng.choice(("#", "uav/#", "uav/imagery", "+/a/+", "+", "+/x", "$accord/#", "none"))
    where = rng.choice(
        (
            "",
            "",
            "altitude_m > 300",
            "altitude_m BETWEEN 100 AND 500 AND platform LIKE 'uav%'",
            "speed < 20 OR platform = 'boat'",
            "platform IS NULL AND NOT altitude_m = 12",
        )
    )
    middle = START_MS + 40_000_000
    return EventQuery(
        channel=channel,
        without=rng.choice(((), (), ("uav/#",), ("+/a/b", "uav"))),
        where=where,
        xpath=rng.choice(("", "", "", "/m/site/@n = 1")),
        since_ms=rng.choice((None, None, START_MS + 30, middle)),
        until_ms=rng.choice((None, None, middle + 30)),
        from_offset=rng.choice((0, 0, rng.randrange(last))),
        before_offset=rng.choice((None, None, rng.randrange(last))),
        is_newest_first=rng.random() < 0.5,
        limit=rng.choice((None, None, 1, 37)),
    )

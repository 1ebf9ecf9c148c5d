"""Exported files have what a query finds, in parts of any size."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pytest
from tests.pipeline.asking import DECLARED, World, made, random_ask, random_event
from tests.pipeline.journals import START_MS

from accord.core.monitoring.ledger import event_id
from accord.core.queries.messages import EventQuery, ExportFormat, ExportPart, ExportRequest
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.exports import export
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.scheduler import QueryStoppedError

ALL = EventQuery(channel="#")


def parts(
    queries: QueryEngine,
    ask: EventQuery,
    format_: ExportFormat,
    *,
    rows: int = 50_000,
    bytes_: int = 4 << 20,
) -> Iterator[ExportPart]:
    asked = ExportRequest(id=1, ask=ask, format=format_, rows=rows, bytes=bytes_)
    while True:
        part = export(queries, asked)
        yield part
        if not part.cursor:
            return
        asked = msgspec.structs.replace(asked, cursor=part.cursor, columns=part.columns)


def exported(
    queries: QueryEngine, ask: EventQuery, format_: ExportFormat, rows: int = 50_000
) -> bytes:
    return b"".join(part.body for part in parts(queries, ask, format_, rows=rows))


def table_of(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


def found(world: World, ask: EventQuery) -> list[tuple[str, str, bytes]]:
    return [(event_id(each.number), each.channel, each.payload) for each in world.expected(ask)]


def in_table(table: pa.Table) -> list[tuple[str, str, bytes]]:
    columns = (table[name].to_pylist() for name in ("id", "channel", "payload"))
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_any_parts_are_what_the_query_finds(world: World, engine: ArchiveEngine, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    world.publish([random_event(rng, number) for number in range(120)], ledger_every=7)
    world.follow(50)
    world.follow(90, {**DECLARED, "altitude_m": "float"})
    queries = world.queries(engine)
    for _ in range(4):
        ask = random_ask(rng, world.next)
        rows = rng.choice((1, 7, 30, 1_000))
        bytes_ = rng.choice((1, 2_000, 1 << 20))
        body = b"".join(
            part.body for part in parts(queries, ask, "arrow", rows=rows, bytes_=bytes_)
        )
        assert in_table(table_of(body)) == found(world, ask)


def test_parts_are_bounded(world: World, engine: ArchiveEngine) -> None:
    world.publish([made(n + 1, START_MS + n, "a/b", (), b"x" * 1_000) for n in range(20)])
    world.follow(10)
    queries = world.queries(engine)
    sizes = [part.events for part in parts(queries, ALL, "json", rows=7)]
    assert sizes == [7, 7, 6]
    sizes = [part.events for part in parts(queries, ALL, "json", bytes_=3_500)]
    assert sum(sizes) == 20
    assert max(sizes) == 3
    limited = msgspec.structs.replace(ALL, limit=9)
    assert [part.events for part in parts(queries, limited, "json", rows=7)] == [7, 2]


def test_what_is_archived_between_two_parts_is_there_once(
    world: World, engine: ArchiveEngine
) -> None:
    world.publish([made(n + 1, START_MS + n, "a/b") for n in range(30)])
    world.follow(10)
    queries = world.queries(engine)
    numbers: list[str] = []
    for part in parts(queries, ALL, "json", rows=4):
        numbers += [json.loads(line)["id"] for line in part.body.splitlines()]
        world.follow(min(world.next, world.archived + 7))
        world.publish([made(999, START_MS + 5, "a/b")])
    assert numbers == [event_id(n + 1) for n in range(30)]


def test_attributes_have_columns(world: World, engine: ArchiveEngine) -> None:
    """Those of one type in the first part; what a column can't hold is in the map."""
    world.publish(
        [
            made(1, START_MS, "a/b", (("n", "1"), ("site", "north"), ("Channel", "x"))),
            made(2, START_MS + 1, "a/b", (("n", "2.5"), ("mixed", "1"))),
            made(3, START_MS + 2, "a/b", (("n", "3"), ("mixed", "high"))),
            made(4, START_MS + 3, "a/b", (("n", "low"), ("later", "1"))),
        ]
    )
    world.follow(2)
    queries = world.queries(engine)
    table = table_of(exported(queries, ALL, "arrow", rows=3))
    assert table["n"].to_pylist() == [1.0, 2.5, 3.0, None]
    assert table["site"].to_pylist() == ["north", None, None, None]
    assert {"mixed", "later", "Channel"}.isdisjoint(table.column_names)
    [rest] = table["attributes"].to_pylist()[3:]
    assert {name: value["string"] or value["integer"] for name, value in rest} == {
        "n": "low",
        "later": 1,
    }


def test_lines_of_json(world: World, engine: ArchiveEngine) -> None:
    world.publish(
        [
            made(1, START_MS, "a/b", (("n", "1"), ("at", "2026-11-16T07:30:00Z")), b"text"),
            made(2, START_MS + 5, "a/c", (("metadata", "<m>x</m>"),), b"\xff\x00"),
        ]
    )
    world.follow(1)
    first, second = map(json.loads, exported(world.queries(engine), ALL, "json").splitlines())
    assert first == {
        "channel": "a/b",
        "attributes": {"n": 1, "at": {"timestamp": "2026-11-16T07:30:00Z"}},
        "payload": "text",
        "published_ms": START_MS,
        "received_ms": START_MS,
        "id": "1",
        "source": "camera",
    }
    assert (second["payload_base64"], second["metadata"]) == ("/wA=", "<m>x</m>")


def test_csv(world: World, engine: ArchiveEngine) -> None:
    world.publish(
        [
            made(1, START_MS, "a/b", (("n", "1"), ("note", "=1+1"), ("ok", "true")), b"text"),
            made(2, START_MS + 5, "a/c", (("n", "2.5"),), b"\xff\x00"),
            made(3, START_MS + 9, "a/c", (("n", "high"),), b"-1"),
        ]
    )
    world.follow(1)
    body = exported(world.queries(engine), ALL, "csv", rows=2)
    first, second, third = csv.DictReader(io.StringIO(body.decode()))
    assert (first["channel"], first["payload"], float(first["n"])) == ("a/b", "text", 1.0)
    assert (first["note"], first["ok"]) == ("'=1+1", "true")  # no formula
    assert first["received"].startswith("20")
    assert first["received"].endswith("Z")
    assert (second["payload"], second["payload_base64"]) == ("", "/wA=")
    assert (third["attributes"], third["payload"]) == ("n=high", "'-1")


@pytest.mark.parametrize("format_", ["arrow", "csv", "json"])
def test_nothing_found(world: World, engine: ArchiveEngine, format_: ExportFormat) -> None:
    world.publish([made(1, START_MS, "a/b")])
    world.follow(1)
    ask = EventQuery(channel="none")
    [part] = parts(world.queries(engine), ask, format_)
    assert part.events == 0
    if format_ == "arrow":
        assert len(table_of(part.body)) == 0


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        ({"n": "money"}, "cursor"),
        ({"Payload": "string"}, "cursor"),
        ({f"n{number}": "string" for number in range(300)}, "cursor"),
    ],
)
def test_forged_columns(world: World, columns: dict[str, str], place: str) -> None:
    with pytest.raises(InvalidQueryError) as refused:
        export(world.queries(), ExportRequest(id=1, ask=ALL, format="csv", columns=columns))
    assert refused.value.place == place


def test_an_export_stops_when_told(world: World, engine: ArchiveEngine) -> None:
    world.publish([made(1, START_MS, "a/b")])
    world.follow(1)

    def stop() -> None:
        raise QueryStoppedError

    with pytest.raises(QueryStoppedError):
        export(world.queries(engine), ExportRequest(id=1, ask=ALL, format="csv"), stop)

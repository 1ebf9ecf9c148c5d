from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.pipeline.journal_server import FakeNode, serving
from tests.pipeline.journals import records, retire, write_journal

from accord.core.queries.journal_http import JournalChunk, encode_part
from accord.journal.reader import Extent, Reader, Retired
from accord.journal.record import Batch
from accord.pipeline.remote_journal import RemoteError, RemoteReader


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    commits = [records(n, n + 10, size=50) for n in range(0, 100, 10)]
    return FakeNode(write_journal(tmp_path / "journal", commits, segment_bytes=2_000))


def read_all(reader: RemoteReader, offset: int, **limits: int) -> list[bytes]:
    read: list[bytes] = []
    for found in reader.read(offset, **limits):
        assert isinstance(found, Batch), found
        assert found.first_offset == offset + len(read)
        read += found.records()
    return read


def test_a_node_tells_its_name_and_what_can_be_read(node: FakeNode) -> None:
    with serving(node) as host:
        reader = RemoteReader(f"http://{host}")
        assert reader.node() == "denver"
        assert reader.extent() == Extent(0, 100)


def test_records_are_those_of_the_journal(node: FakeNode) -> None:
    with serving(node) as host:
        reader = RemoteReader(f"http://{host}/")
        assert read_all(reader, 0) == records(0, 100, size=50)
        assert read_all(reader, 13, max_records=30) == records(13, 43, size=50)
        assert read_all(reader, 100) == []
        few = read_all(reader, 95, max_bytes=1)
    assert few == records(95, 96, size=50)


def test_what_was_retired_is_told(node: FakeNode) -> None:
    retire(node.folder, 60)
    with serving(node) as host:
        first = Reader(node.folder).extent().first_offset
        assert 0 < first <= 60
        assert list(RemoteReader(f"http://{host}").read(0)) == [Retired(0, first)]


def test_name_and_password_are_those_of_the_url(node: FakeNode) -> None:
    with serving(node) as host:
        RemoteReader(f"http://ann:p%40ss@{host}").extent()
    expected = base64.b64encode(b"ann:p@ss").decode()
    assert node.named == [f"Basic {expected}"]


def test_what_may_pass_is_tried_again(node: FakeNode) -> None:
    failures = [(503, b"{}"), (500, b"oops")]
    node.before = lambda _: failures.pop() if failures else None
    pauses: list[float] = []
    with serving(node) as host:
        assert RemoteReader(f"http://{host}", pause=pauses.append).extent() == Extent(0, 100)
    assert pauses == [0.1, 0.5]


def test_what_is_refused_is_told_at_once_and_without_the_password(node: FakeNode) -> None:
    node.before = lambda _: (403, b'{"error": "ann may not read everything"}')
    pauses: list[float] = []
    with serving(node) as host:
        reader = RemoteReader(f"http://ann:secret@{host}", pause=pauses.append)
        with pytest.raises(RemoteError) as caught:
            reader.extent()
    told = f"journal of http://{host}: HTTP 403: ann may not read everything"
    assert str(caught.value) == told
    assert pauses == []


def test_a_node_that_is_not_there_is_given_up(node: FakeNode) -> None:
    with serving(node) as host:
        pass
    pauses: list[float] = []
    with pytest.raises(RemoteError, match="unreachable"):
        RemoteReader(f"http://{host}", pause=pauses.append).extent()
    assert len(pauses) == 4


def test_nobody_is_sent_elsewhere_with_the_password(node: FakeNode) -> None:
    node.before = lambda _: (302, b"")
    with serving(node) as host, pytest.raises(RemoteError, match="HTTP 302"):
        RemoteReader(f"http://ann:secret@{host}").extent()


@pytest.mark.parametrize("body", [b"", b"[1, 2]", b'{"node": 1}'])
def test_an_answer_that_is_none_is_an_error(node: FakeNode, body: bytes) -> None:
    node.before = lambda _: (200, body)
    with serving(node) as host:
        reader = RemoteReader(f"http://{host}")
        with pytest.raises(RemoteError, match="invalid reply"):
            reader.extent()


def test_an_answer_without_records_does_not_go_on_forever(node: FakeNode) -> None:
    empty = encode_part(JournalChunk(node="denver", next_offset=5, end_offset=100))
    node.before = lambda path: (200, empty) if "records" in path else None
    with serving(node) as host, pytest.raises(RemoteError, match="nothing at offset 5"):
        list(RemoteReader(f"http://{host}").read(5))


def test_only_http_is_spoken() -> None:
    for url in ("ftp://host", "http://", "data/journal"):
        with pytest.raises(RemoteError, match="expected http"):
            RemoteReader(url)


def test_another_node_than_expected_is_not_read(node: FakeNode) -> None:
    with serving(node) as host:
        assert RemoteReader(f"http://{host}", "denver").extent() == Extent(0, 100)
        reader = RemoteReader(f"http://{host}", "orlando")
        with pytest.raises(RemoteError, match="this is node denver, expected orlando"):
            reader.extent()


def test_without_patience_it_tries_once(node: FakeNode) -> None:
    node.before = lambda _: (503, b"{}")
    with serving(node) as host, pytest.raises(RemoteError, match="503"):
        RemoteReader(f"http://{host}", is_patient=False).extent()
    assert len(node.asked) == 1


def test_for_few_records_few_bytes_are_asked_for(node: FakeNode) -> None:
    with serving(node) as host:
        assert read_all(RemoteReader(f"http://{host}"), 5, max_records=1) == records(5, 6, size=50)
    (asked,) = [path for path in node.asked if "max_bytes" in path]
    assert int(asked.rpartition("=")[2]) < 10_000

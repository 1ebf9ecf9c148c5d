from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.archives import NODE, log_entries, names, new_file, part

from accord.pipeline import delta_log
from accord.pipeline.delta_log import Archive, DeltaLog, DeltaLogError
from accord.pipeline.storage import Storage
from accord.pipeline.tables import EVENTS, LEDGER, AttributeColumn, TableFile


def events(folder: Path, *nodes: str) -> DeltaLog:
    """As somebody new opens it."""
    return DeltaLog(Storage(folder), EVENTS, nodes or (NODE,))


def at_once(*works: Callable[[], object]) -> list[Exception | None]:
    """Do all of them at the same time; what each failed with."""
    failures: list[Exception | None] = [None] * len(works)
    ready = threading.Barrier(len(works))

    def work(index: int) -> None:
        ready.wait()
        try:
            works[index]()
        except Exception as error:
            failures[index] = error

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_without_an_archive_there_is_nothing(tmp_path: Path) -> None:
    table = events(tmp_path / "none")
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.files, snapshot.archived) == (-1, (), {})
    assert (table.exists(), table.archived(NODE), table.vacuum()) == (False, 0, 0)
    assert not (tmp_path / "none").exists()


def test_files_come_and_go_in_one_step(tmp_path: Path) -> None:
    table = events(tmp_path)
    table.append([part(0, 20, "a", "b")])
    assert names(table) == ["a", "b"]
    table.replace(table.snapshot().files, [new_file("c", offset=7)])
    assert names(table) == ["c"]
    read = events(tmp_path).snapshot()
    assert read.files == table.snapshot().files
    assert (read.files[0].node, read.files[0].first_offset) == (NODE, 7)
    assert read.archived == {NODE: 20}
    table.remove(read.files)
    assert names(table) == names(events(tmp_path)) == []


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    table = events(tmp_path)
    assert table.append([part(0, 20, "first")])
    version = table.snapshot().version
    assert not events(tmp_path).append([part(0, 20, "again")])
    assert not table.append([part(5, 15, "within")])
    assert names(table) == ["first"]
    assert table.snapshot().version == version


@pytest.mark.parametrize(("first", "end"), [(21, 30), (19, 30), (30, 40), (0, 30)])
def test_a_batch_that_does_not_follow_is_refused(tmp_path: Path, first: int, end: int) -> None:
    table = events(tmp_path)
    table.append([part(0, 20)])
    with pytest.raises(DeltaLogError, match=r"of 'denver' do not follow .* ends at 20"):
        table.append([part(first, end, "a")])
    assert names(table) == []


def test_of_a_batch_only_what_is_new_is_committed(tmp_path: Path) -> None:
    table = events(tmp_path, "here", "there")
    table.append([part(0, 20, "a", node="here")])
    assert table.append([part(0, 20, "again", node="here"), part(0, 5, "b", node="there")])
    assert names(table) == ["a", "b"]
    assert table.snapshot().archived == {"here": 20, "there": 5}


def test_what_a_journal_has_lost_is_counted(tmp_path: Path) -> None:
    table = events(tmp_path, "here", "there")
    table.append([part(0, 120, node="here", lost=100)])
    table.append([part(120, 10**9 + 140, node="here", lost=10**9)])
    table.append([part(0, 1, node="there")])
    table.append([part(120, 10**9 + 140, node="here", lost=10**9)])
    snapshot = events(tmp_path, "here", "there").snapshot()
    assert snapshot.archived == {"here": 10**9 + 140, "there": 1}
    assert snapshot.lost == {"here": 10**9 + 100}


def test_others_see_what_is_new(tmp_path: Path) -> None:
    one, other = events(tmp_path), events(tmp_path)
    for number in range(5):
        one.append([part(number, number + 1, str(number))])
        assert other.snapshot().files == one.snapshot().files
        assert other.snapshot() is other.snapshot()


def test_an_earlier_version_can_be_read(tmp_path: Path) -> None:
    table = events(tmp_path)
    table.append([part(0, 1, "a")])
    version = table.snapshot().version
    table.append([part(1, 2, "b")])
    assert names(DeltaLog(Storage(tmp_path), EVENTS, [NODE], version=version)) == ["a"]
    assert names(table) == ["a", "b"]


def test_two_drivers_of_one_journal_cannot_both_win(tmp_path: Path) -> None:
    """Each has read the same and commits it as its own; whoever is later is refused or told."""
    drivers = [events(tmp_path) for _ in range(3)]
    drivers[0].create()

    def work(index: int) -> Callable[[], None]:
        def drive() -> None:
            for number in range(12):
                try:
                    drivers[index].append([part(number, number + 1, f"{number}-{index}")])
                except DeltaLogError:
                    drivers[index].append([part(number, number + 1, f"{number}-{index}-again")])

        return drive

    assert at_once(*(work(index) for index in range(3))) == [None] * 3
    found = [int(name.partition("-")[0]) for name in names(events(tmp_path))]
    assert sorted(found) == list(range(12))


def test_a_table_is_made_once(tmp_path: Path) -> None:
    for number in range(10):
        makers = [events(tmp_path / str(number)) for _ in range(3)]
        assert at_once(*(table.create for table in makers)) == [None] * 3
        assert [table.snapshot().version for table in makers] == [0] * 3


def test_many_commit_at_once(tmp_path: Path) -> None:
    """Journals of four nodes; each one compacts what it has added."""
    nodes = ["a", "b", "c", "d"]
    events(tmp_path).create()

    def work(node: str) -> Callable[[], None]:
        def drive() -> None:
            table = events(tmp_path, *nodes)
            for number in range(8):
                table.append([part(number, number + 1, f"{node}{number}", node=node)])
                if number % 4 == 3:
                    files = [file for file in table.snapshot().files if file.node == node]
                    table.replace(files, [new_file(f"{node}-{number}", node=node)])

        return drive

    assert at_once(*map(work, nodes)) == [None] * 4
    table = events(tmp_path, *nodes)
    assert table.snapshot().archived == dict.fromkeys(nodes, 8)
    assert names(table) == [f"{node}-7" for node in nodes]


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What others commit between the moment that the next one has looked and its commit."""
    commit = DeltaTable.create_write_transaction
    acts: list[Callable[[], object]] = []

    def late(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        while acts:
            acts.pop()()
        commit(table, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    return acts


def test_a_batch_that_another_has_just_committed_is_not_repeated(
    tmp_path: Path, faster: list[Callable[[], object]]
) -> None:
    table, other = events(tmp_path), events(tmp_path)
    table.append([part(0, 10, "a")])
    faster.append(lambda: other.append([part(10, 20, "theirs")]))
    assert not table.append([part(10, 20, "mine")])
    faster.append(lambda: other.append([part(20, 25, "theirs-too")]))
    with pytest.raises(DeltaLogError, match=r"do not follow .* ends at 25"):
        table.append([part(20, 30, "mine")])
    assert names(table) == ["a", "theirs", "theirs-too"]


def test_what_others_have_just_committed_is_kept(
    tmp_path: Path, faster: list[Callable[[], object]]
) -> None:
    table, other = events(tmp_path, "here", "there"), events(tmp_path)
    table.append([part(0, 2, "a", "b", node="here")])
    files = table.snapshot().files

    def theirs() -> list[TableFile]:
        return [file for file in other.snapshot().files if file.node == "there"][:1]

    faster.append(lambda: other.append([part(0, 5, "theirs", node="there")]))
    table.append([part(2, 3, "c", node="here")])
    faster.append(lambda: other.append([part(5, 6, "more", node="there")]))
    table.replace(files, [new_file("ab")])
    faster.append(lambda: other.replace(theirs(), [new_file("other")]))
    table.append([part(3, 4, "d", node="here")])
    assert len(names(table)) == 5
    assert {"ab", "d", "other"} < set(names(table))
    assert table.snapshot().archived == {"here": 4, "there": 6}


def test_files_are_replaced_or_removed_once(
    tmp_path: Path, faster: list[Callable[[], object]]
) -> None:
    """Two compactions of the same files, or one and retention: their rows must not come twice."""
    table, other = events(tmp_path), events(tmp_path)
    table.append([part(0, 2, "a", "b")])
    files = table.snapshot().files
    faster.append(lambda: other.replace(files, [new_file("theirs")]))
    with pytest.raises(DeltaLogError):
        table.replace(files, [new_file("mine")])
    with pytest.raises(DeltaLogError, match=r"\.parquet is not part of it any more"):
        table.replace(files, [new_file("mine")])
    with pytest.raises(DeltaLogError, match=r"\.parquet is not part of it any more"):
        table.remove(files)
    assert names(table) == ["theirs"]
    files = table.snapshot().files
    faster.append(lambda: other.remove(files))
    with pytest.raises(DeltaLogError):
        table.replace(files, [new_file("mine")])
    assert names(table) == names(events(tmp_path)) == []


@pytest.mark.parametrize("by", [1, 40, 0.5])
def test_a_log_entry_that_a_power_cut_left_incomplete_is_set_aside(
    tmp_path: Path, by: float, caplog: pytest.LogCaptureFixture
) -> None:
    table = events(tmp_path)
    table.append([part(0, 10, "a")])
    table.append([part(10, 20, "b", "c")])
    *_, newest = log_entries(tmp_path / EVENTS)
    data = newest.read_bytes()
    newest.write_bytes(data[: -by if isinstance(by, int) else int(len(data) * by)])
    again = events(tmp_path)
    assert (names(again), again.archived(NODE)) == (["a"], 10)
    assert "is incomplete, and set aside" in caplog.text
    assert again.append([part(10, 20, "b", "c")])
    assert names(events(tmp_path)) == ["a", "b", "c"]


def test_whatever_is_left_of_a_log_entry_it_counts_whole_or_not_at_all(tmp_path: Path) -> None:
    """Also where it ends at the end of a line, or its blocks are zeros."""
    table = events(tmp_path)
    table.append([part(0, 10, "a")])
    table.append([part(10, 20, "b", "c")])
    *_, newest = log_entries(tmp_path / EVENTS)
    data = newest.read_bytes()
    ends = [index for index, byte in enumerate(data) if byte == ord("\n")]
    cuts = {cut for end in ends for cut in (end, end + 1)} | {0, 1, len(data) // 2}
    for cut in sorted(cuts - {len(data)}):
        for rest in (b"", bytes(len(data) - cut)):
            newest.write_bytes(data[:cut] + rest)
            again = events(tmp_path)
            assert (names(again), again.archived(NODE)) == (["a"], 10), (cut, rest[:1])
    newest.write_bytes(data)
    assert names(events(tmp_path)) == ["a", "b", "c"]


def test_a_complete_log_entry_is_never_set_aside(tmp_path: Path) -> None:
    table = events(tmp_path)
    acts: list[Callable[[], object]] = [
        table.create,
        lambda: table.columns({"a": "integer"}),
        lambda: table.append([part(0, 1, "a", "b")]),
        lambda: table.append([part(1, 2)]),
        lambda: table.replace(table.snapshot().files, [new_file("c")]),
        lambda: table.remove(table.snapshot().files),
        table.vacuum,
    ]
    for act in acts:
        act()
        assert events(tmp_path).snapshot().version == table.snapshot().version
    assert not list(tmp_path.rglob("*.damaged"))


@pytest.mark.parametrize("length", [0, 100, -10])
def test_an_incomplete_checkpoint_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    table = events(tmp_path)
    for number in range(4):
        table.append([part(number, number + 1, str(number))])
    (checkpoint,) = (tmp_path / EVENTS).rglob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:length])
    assert names(events(tmp_path)) == ["0", "1", "2", "3"]


def test_a_damaged_older_entry_is_an_error(tmp_path: Path) -> None:
    table = events(tmp_path)
    table.append([part(0, 10, "a")])
    table.append([part(10, 20, "b")])
    *_, before, _ = log_entries(tmp_path / EVENTS)
    before.write_bytes(before.read_bytes()[:-5])
    with pytest.raises(DeltaLogError, match=str(tmp_path / EVENTS)):
        events(tmp_path).snapshot()
    assert before.exists()


def test_declared_columns_are_added_once(tmp_path: Path) -> None:
    table = events(tmp_path)
    (altitude,) = table.columns({"altitude": "integer"})
    assert altitude == AttributeColumn("altitude", "altitude", "integer")
    version = table.snapshot().version
    assert events(tmp_path).columns({"altitude": "integer"}) == (altitude,)
    assert table.snapshot().version == version


def test_a_retyped_attribute_gets_another_column(tmp_path: Path) -> None:
    table = events(tmp_path)
    table.columns({"altitude": "integer", "an odd `name`": "string"})
    retyped = table.columns({"altitude": "float"})
    assert retyped == (AttributeColumn("altitude", "altitude_float", "float"),)
    assert [each.name for each in events(tmp_path).snapshot().columns] == [
        "altitude",
        "an_odd__name_",
        "altitude_float",
    ]
    assert table.columns({"altitude": "integer"})[0].name == "altitude"


def test_columns_are_added_while_others_append(tmp_path: Path) -> None:
    one, other = events(tmp_path), events(tmp_path)
    one.create()

    def append() -> None:
        for number in range(10):
            one.append([part(number, number + 1, str(number))])

    def declare() -> None:
        for number in range(5):
            other.columns({f"a{number}": "integer"})

    assert at_once(append, declare) == [None, None]
    snapshot = events(tmp_path).snapshot()
    assert len(snapshot.files) == 10
    assert [each.attribute for each in snapshot.columns] == [f"a{n}" for n in range(5)]


def test_the_log_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 5)
    monkeypatch.setitem(delta_log.CONFIGURATION, "delta.logRetentionDuration", "interval 0 hours")
    table, behind = events(tmp_path), events(tmp_path)
    for number in range(43):
        table.append([part(number, number + 1, str(number), lost=1)])
        files = table.snapshot().files
        if len(files) == 4:
            table.replace(files, [new_file(f"to-{number}")])
        if number == 20:
            behind.snapshot()
    assert len(list(log_entries(tmp_path / EVENTS))) <= 12
    for reader in (table, behind, events(tmp_path)):
        snapshot = reader.snapshot()
        assert (snapshot.archived, snapshot.lost) == ({NODE: 43}, {NODE: 43})
        assert snapshot.files == table.snapshot().files


def test_both_tables_must_have_what_the_journal_may_retire(tmp_path: Path) -> None:
    archive = Archive(tmp_path, [NODE])
    archive.events.append([part(0, 10)])
    assert archive.archived(NODE) == 0
    archive.ledger.append([part(0, 7)])
    assert archive.archived(NODE) == 7


class Model:
    """What the two tables must have."""

    def __init__(self) -> None:
        self.reached = {name: dict.fromkeys("ab", 0) for name in (EVENTS, LEDGER)}
        self.files: dict[str, set[str]] = {EVENTS: set(), LEDGER: set()}

    def check(self, archive: Archive) -> None:
        for table in archive.tables:
            assert table.snapshot().archived == self.reached[table.name]
            assert names(table) == sorted(self.files[table.name])


STEPS = st.sampled_from(["batch", "batch", "half", "again", "wrong", "merge", "expire", "column"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(STEPS, st.sampled_from("ab"), st.integers(1, 9), st.sampled_from([0, 1])),
        max_size=14,
    )
)
def test_whatever_happens_each_record_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
) -> None:
    """Random steps of two drivers, some of which end between the two tables, as in a crash."""
    folder = tmp_path_factory.mktemp("model")
    archives = [Archive(folder, ["a", "b"]) for _ in range(2)]
    for table in archives[0].tables:
        table.create()
    model = Model()
    for number, (step, node, count, which) in enumerate(steps):
        archive = archives[which]
        reached = {name: model.reached[name][node] for name in model.reached}
        first, ahead = min(reached.values()), max(reached.values())
        # As the source does: batches end where the table ahead ends.
        end = ahead if first < ahead else first + count
        if step in ("batch", "half"):
            for table in archive.tables[: 1 if step == "half" else 2]:
                batch = part(first, end, f"{table.name}{number}", node=node)
                is_new = reached[table.name] == first
                assert table.append([batch]) is is_new
                if is_new:
                    model.reached[table.name][node] = end
                    model.files[table.name].add(f"{table.name}{number}")
        elif step == "again" and ahead:
            for table in archive.tables:
                assert not table.append([part(0, reached[table.name], "again", node=node)])
        elif step == "wrong":
            for table in archive.tables:
                there = reached[table.name]
                with pytest.raises(DeltaLogError):
                    table.append([part(there + count, there + 10, "wrong", node=node)])
        elif step == "column":
            archive.events.columns({f"a{count}": "integer"})
        else:
            table = archive.tables[count % 2]
            chosen = table.snapshot().files[:count]
            model.files[table.name] -= {Path(file.path).stem for file in chosen}
            if step == "merge" and chosen:
                table.replace(chosen, [new_file(f"merged{number}")])
                model.files[table.name].add(f"merged{number}")
            elif chosen:
                table.remove(chosen)
        model.check(archives[1 - which])
    model.check(Archive(folder, ["a", "b"]))

from __future__ import annotations

from pathlib import Path

import pytest

from accord.pipeline.bulk.predicate_compiler import PredicateSet, Registered, compile_set
from accord.pipeline.bulk.predicate_folder import FolderError, PredicateFolder


def _set(key: str) -> PredicateSet:
    return compile_set([Registered(key=key)])


def test_the_latest_version_counts(tmp_path: Path) -> None:
    folder = PredicateFolder(tmp_path / "predicates")
    assert folder.publish(_set("a")) == 1
    assert folder.publish(_set("b")) == 2
    assert folder.latest() == 2
    assert folder.read(1).keys.to_pylist() == ["a"]
    assert folder.read(2).keys.to_pylist() == ["b"]


def test_there_has_to_be_one(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FolderError, match="expected a folder that all workers see"):
            PredicateFolder(path).latest()


def test_few_versions_are_kept_and_strangers_let_be(tmp_path: Path) -> None:
    (tmp_path / "notes.predicates").write_text("not a version")
    folder = PredicateFolder(tmp_path)
    for number in range(6):
        folder.publish(_set(f"{number}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0000000000000004.predicates",
        "0000000000000005.predicates",
        "0000000000000006.predicates",
        "notes.predicates",
    ]


def test_versions_of_another_format_are_refused(tmp_path: Path) -> None:
    folder = PredicateFolder(tmp_path)
    folder.publish(_set("a"))
    file = tmp_path / "0000000000000001.predicates"
    file.write_bytes(b"accord predicates 1\n" + file.read_bytes()[20:])
    with pytest.raises(FolderError, match=r"0001\.predicates: .* publish them again"):
        folder.read(1)


def test_two_who_publish_at_once_get_a_number_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PredicateFolder(tmp_path)
    folder.publish(_set("a"))
    monkeypatch.setattr(folder, "_latest", lambda: 0)  # as if the other had not been seen
    assert folder.publish(_set("b")) == 2

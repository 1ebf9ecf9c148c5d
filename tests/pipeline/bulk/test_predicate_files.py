from __future__ import annotations

from pathlib import Path

import pytest

from accord.core.model.errors import InputError
from accord.pipeline.bulk.predicate_compiler import PredicateSet, Registered, compile_set
from accord.pipeline.bulk.predicate_files import open_predicates
from accord.pipeline.bulk.predicate_folder import PredicateFolder

EXPECTED = compile_set(
    [
        Registered(key="hot", channel="demo/#", where="temperature_c > 30", importance=5),
        Registered(key="site", xpath="/report/site = 'north'"),
    ]
)


def _open(path: Path, text: str) -> PredicateSet | PredicateFolder:
    path.write_text(text)
    return open_predicates(path)


def _is_expected(found: PredicateSet | PredicateFolder) -> bool:
    return isinstance(found, PredicateSet) and found.version == EXPECTED.version


def test_json_lines(tmp_path: Path) -> None:
    text = """\
{"name": "hot", "channel": "demo/#", "where": "temperature_c > 30", "importance": 5}

{"name": "site", "xpath": "/report/site = 'north'"}
"""
    assert _is_expected(_open(tmp_path / "predicates.jsonl", text))


def test_csv(tmp_path: Path) -> None:
    text = """\
name,importance,channel,where,xpath
hot,5,demo/#,"temperature_c > 30",
site,,,,/report/site = 'north'
"""
    assert _is_expected(_open(tmp_path / "predicates.csv", "\ufeff" + text))


def test_a_folder_has_published_versions(tmp_path: Path) -> None:
    PredicateFolder(tmp_path).publish(EXPECTED)
    found = open_predicates(tmp_path)
    assert isinstance(found, PredicateFolder)
    assert _is_expected(found.read(found.latest()))


@pytest.mark.parametrize(
    ("name", "text", "line", "problem"),
    [
        ("p.jsonl", '{"name": "a"}\n{"name": "b", "where": "x >"}', 2, "'b': .*ends too early"),
        ("p.jsonl", '{"name": "a", "channel": "a/#/b"}', 1, "'a': .*as the last level only"),
        ("p.jsonl", '{"name": "a"}\n\n{"name": "a"}', 3, "another name, 'a' is in line 1"),
        ("p.jsonl", '{"name": "a", "wher": "x"}', 1, "unknown field `wher`"),
        ("p.jsonl", '{"where": "x"}', 1, "missing required field `name`"),
        ("p.jsonl", '{"name": "a"', 1, "expected an object such as"),
        ("p.jsonl", '{"name": "%s"}' % ("a" * (1 << 20)), 1, "at most 1048576 characters"),
        ("p.csv", "", 1, "expected columns among name, channel, .* got nothing"),
        ("p.csv", "where\nx > 1", 1, "expected columns among name, .* got where"),
        ("p.csv", "name,wher\na,b", 1, "expected columns among name, .* got name, wher"),
        ("p.csv", "name,where\na,x > 1\nb,x,1", 3, "2 fields as in the header, got 3"),
        ("p.csv", "name,importance\na,high", 2, "Expected `int`"),
        ("p.csv", 'name\n"a', 2, "unexpected end of data"),
    ],
)
def test_mistakes_have_their_line(
    tmp_path: Path, name: str, text: str, line: int, problem: str
) -> None:
    path = tmp_path / name
    with pytest.raises(InputError, match=problem) as raised:
        _open(path, text)
    assert raised.value.where == f"{path}:{line}"


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="expected text in UTF-8"):
        open_predicates(path)
    with pytest.raises(InputError, match="no such file"):
        open_predicates(tmp_path / "absent")

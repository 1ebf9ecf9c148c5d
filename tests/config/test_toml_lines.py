from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.config.toml_lines import Path, TomlLines

DOCUMENT = '''\
# [not.a.table]
title = "a = 1 # [no]"   # [nor this]
dotted . "quoted key".x = 1

[ server . 'main' ]
hosts = [
  "one", # two = 2
  [ "]" , { deep = 1 } ],
]
inline = { a = 1, b.c = "}", d = [ { e = 2 } ] }
text = """
[fake]
x = \\"""1
ends with quotes"""""
raw = \'\'\'
[fake]\'\'\'
when = 1979-05-27 07:32:00
next = -1.5e3

[[keep]]
channels = "a"
[keep.more]
x = 1

[[keep]]
[[keep.inner]]
y = 1
[[keep.inner]]
y = 2
'''
KEYS = st.text("ab-_1", min_size=1, max_size=3)
SCALARS = st.sampled_from(
    ["1", "true", '"x\\"]}=#"', "'[a'", '"""\n[a]\n"""', "'''\n''q'''", "1.5"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[ {', '.join(items)}\n]")
        | st.dictionaries(KEYS, inner, max_size=3).map(
            lambda table: "{ " + ", ".join(f"{k} = {v}" for k, v in table.items()) + " }"
        )
    ),
    max_leaves=8,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=3).map(
    lambda table: "".join(f"{key} = {value} # [x]\n" for key, value in table.items())
)
DOCUMENTS = st.builds(
    lambda tables, arrays: "".join(
        [f"[t.{name}]\n{body}" for name, body in tables.items()]
        + [f"\n[[k.'{name}']]\n{body}" for name, body in arrays]
    ),
    st.dictionaries(KEYS, TABLES, max_size=3),
    st.lists(st.tuples(KEYS, TABLES), max_size=3),
)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        yield from paths(inner, (*path, key))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("dotted", "quoted key", "x"), 3),
        (("server",), 5),
        (("server", "main"), 5),
        (("server", "main", "hosts"), 6),
        (("server", "main", "hosts", 0), 7),
        (("server", "main", "hosts", 1, 1, "deep"), 8),
        (("server", "main", "inline", "b", "c"), 10),
        (("server", "main", "inline", "d", 0, "e"), 10),
        (("server", "main", "raw"), 15),
        (("server", "main", "next"), 18),
        (("keep",), 20),
        (("keep", 0, "channels"), 21),
        (("keep", 0, "more", "x"), 23),
        (("keep", 1), 25),
        (("keep", 1, "inner", 1, "y"), 29),
        # What is not there has the line of what is around it.
        (("keep", 1, "channels"), 25),
        (("server", "main", "missing"), 5),
        (("missing",), 1),
    ],
)
def test_where_a_key_stands(path: Path, line: int) -> None:
    assert TomlLines(DOCUMENT).find(path) == line


def test_everything_the_parser_finds_has_a_line() -> None:
    assert TomlLines(DOCUMENT).paths() == set(paths(tomllib.loads(DOCUMENT)))


@given(DOCUMENTS)
def test_lines_follow_the_parser(text: str) -> None:
    lines = TomlLines(text)
    assert lines.paths() == set(paths(tomllib.loads(text)))
    written = text.split("\n")
    for path in lines.paths():
        last = path[-1]
        if isinstance(last, str):
            assert last in written[lines.find(path) - 1]

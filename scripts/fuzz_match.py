"""Random predicates and property blocks: the extension beside its twin and naive evaluation.

    gcc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover -shared -fPIC -std=c11 \\
        -I"$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \\
        src/accord/core/native/*.c -o src/accord/core/native/_native.abi3.so
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \\
        ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc python scripts/fuzz_match.py 1000000
"""

# ruff: noqa: S101

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Final

from accord.core.model.values import Value
from accord.core.predicates.compiled import Compiled
from accord.core.predicates.frames import UNDECIDED, attributes
from accord.core.predicates.index import Index
from accord.core.predicates.interpreted import Interpreted
from accord.core.predicates.predicate import Predicate, parse

NAMES: Final = ("a", "b", "c", "s", "t", "é", "key", "a longer name", *(f"n{n}" for n in range(60)))
TEXTS: Final = (
    "", "x", "xy", "xyz", "x💧", "é", "5", " 5 ", "\u00a05", "5\u3000", "-0", "+7", "2.5", "5.",
    ".5", ".", "-", "1e3", "1E-3", "1e", "1e9999", "1e999", "0.1", "123456789.123456789",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "99999999999999999999", "0x5", "true", "false", " true\t", "True", "2026-03-29T01:30:00Z",
    "2026-03-29 01:30+02:00", "2026-13-29T01:30:00Z", "２", "“x”", "1" * 64, "1" * 65, "x" * 3_000,
    "4.9e-324", "1.7976931348623157e308", "0.000000000000000000000000001", "\x1c5\x85",
)  # fmt: skip
CONSTANTS: Final = (
    "0", "1", "2.5", "5", "7", "1000", "9007199254740992", "9007199254740993",
    "9223372036854775807", "1e19", "0.1", "-0.5", "'x'", "'xy'", "'é'", "''", "'x💧'", "TRUE",
    "FALSE", "'5'", "TIMESTAMP '2026-03-29T01:30:00Z'",
)  # fmt: skip
BATCH: Final = 50


def condition(random: Random) -> str:
    name = '"' + random.choice(NAMES if random.random() < 0.3 else NAMES[:6]) + '"'
    constant = random.choice(CONSTANTS)
    choice = random.random()
    if choice < 0.6:
        orders = [] if constant in ("TRUE", "FALSE") else ["<", "<=", ">", ">="]
        return f"{name} {random.choice(['=', '=', '<>', *orders])} {constant}"
    if choice < 0.7:
        return f"{name} {random.choice(['', 'NOT '])}IN ({constant}, {random.choice(CONSTANTS)})"
    if choice < 0.8:
        return (
            f"{name} {random.choice(['', 'NOT '])}LIKE '{random.choice(['x%', '%y%', 'x_z', '%'])}'"
        )
    if choice < 0.9:
        return f"{name} IS {random.choice(['', 'NOT '])}NULL"
    return f"{name} + {random.randrange(9)} > {random.randrange(9)}"


def predicate(random: Random) -> Predicate:
    items = [condition(random) for _ in range(random.choice([1, 1, 2, 3, 5]))]
    joined = " AND ".join(items)
    if random.random() < 0.15:
        joined = f"({joined}) OR ({condition(random)} AND {condition(random)})"
    return parse(joined)


def block(random: Random) -> bytes:
    """Mostly properties, now and then with bytes changed, lost or added."""
    parts = [_property(random) for _ in range(random.choice([0, 1, 2, 3, 4, 8]))]
    found = bytearray(b"".join(parts))
    if random.random() < 0.1:
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(found) + 1)
            found[place : place + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
    return bytes(found)


def _property(random: Random) -> bytes:
    choice = random.random()
    if choice < 0.9:
        name = random.choice(NAMES if random.random() < 0.3 else NAMES[:6])
        if random.random() < 0.03:
            name = random.choice(["metadata", "deadline-ms", "other", ""])
        text = random.choice(TEXTS)
        return b"\x26" + _with_length(name.encode()) + _with_length(text.encode())
    return random.choice(
        [b"\x01\x01", b"\x02\0\0\0\x07", b"\x23\0\x01", b"\x0b\x05", b"\x0b\x80\x01",
         b"\x03" + _with_length(b"text/plain"), b"\x09" + _with_length(b"\xff\0")]
    )  # fmt: skip


def _with_length(octets: bytes) -> bytes:
    return len(octets).to_bytes(2, "big") + octets


def check(random: Random, engines: Sequence[Index], known: dict[int, Predicate]) -> int:
    """A batch of blocks; returns how many of them were decided."""
    blocks = [block(random) for _ in range(BATCH)]
    data = b"".join(blocks)
    spans = array("I")
    place = 0
    for one in blocks:
        spans.extend((place, place + len(one)))
        place += len(one)
    try:
        values = [attributes(one) for one in blocks]
    except UnicodeDecodeError:
        # The edge refuses these before; here they must only do no harm.
        with suppress(UnicodeDecodeError):
            engines[0].match_frames("c", data, spans)
        return 0
    limit = random.choice([None, None, 5, 50])
    answers = [engine.match_frames("c", data, spans, limit=limit) for engine in engines]
    unlimited = [engine.match_frames("c", data, spans) for engine in engines]
    decided = 0
    for number, event in enumerate(values):
        _check_cut(answers[0], unlimited[0], number)
        found, twin = (answer.which[number] for answer in unlimited)
        if event is None:
            assert found == twin == UNDECIDED, blocks[number]
            continue
        expected = _naive(known, event)
        assert set(unlimited[1].answers[twin]) == expected, blocks[number]
        if found == UNDECIDED:
            assert any(
                isinstance(value, datetime) or _looks_timely(value) for value in event.values()
            )
        else:
            keys = unlimited[0].answers[found]
            assert len(keys) == len(set(keys)), blocks[number]
            assert set(keys) == expected, (blocks[number], set(keys) ^ expected)
            decided += 1
        for engine in engines:
            assert set(engine.match_values("c", event).keys) == expected, event
    return decided


def _check_cut(answer: object, full: object, number: int) -> None:
    which, answers = answer.which[number], answer.answers  # type: ignore[attr-defined]
    if which != UNDECIDED:
        assert answers[which] == full.answers[full.which[number]]  # type: ignore[attr-defined]


def _naive(known: dict[int, Predicate], event: dict[str, Value]) -> set[int]:
    return {key for key, predicate in known.items() if predicate.evaluate(event) is True}


def _looks_timely(value: Value) -> bool:
    return isinstance(value, str) and value.strip()[4:5] == "-"


def run(blocks: int, seed: int) -> int:
    random = Random(seed)  # noqa: S311
    done = 0
    while done < blocks:
        pool = [predicate(random) for _ in range(60)]
        # One predicate many times makes lists, nodes and blocks grow, divide and shrink.
        size = random.choice([1, 5, 40, 40, 120, 400])
        engines = Index(Compiled()), Index(Interpreted())
        known: dict[int, Predicate] = {}
        for turn in range(4):
            for key in range(turn * size, (turn + 1) * size):
                known[key] = random.choice(pool)
                for engine in engines:
                    engine.add(key, known[key])
            for key in random.sample(sorted(known), int(len(known) * random.choice([0, 0.3, 0.9]))):
                del known[key]
                for engine in engines:
                    engine.remove(key)
            for _ in range(max(1, 12 if size < 50 else 3)):
                check(random, engines, known)
                done += BATCH
        for key in known:
            for engine in engines:
                engine.remove(key)
    return done


if __name__ == "__main__":
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"{run(count, seed):,} blocks, seed {seed}: no difference")

"""Random and mutated bytes for the extension, beside its twins in Python.

    python scripts/fuzz_native.py frames 300000 --seed 1
    python scripts/fuzz_native.py both 10000000 --alone

`frames`: reads of MQTT bytes for all functions of `core.native`, beside `core.native.reference`.
`match`: property blocks for an index of predicates, beside `Interpreted` and naive evaluation.
`--alone` leaves the twins out, which is much faster: for a build with sanitizers, where what the
extension must not do ends the process:

    gcc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover -shared -fPIC -std=c11 \\
        -I"$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \\
        src/accord/core/native/*.c -o src/accord/core/native/_native.abi3.so
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \\
        ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=src \\
        python scripts/fuzz_native.py both 10000000 --alone

A round has random numbers of its own, and is named when it begins: `--first ROUND` repeats it.
"""

# ruff: noqa: S101

from __future__ import annotations

import argparse
import resource
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.frame_twins import (
    BOTH,
    CLEAN,
    EXTENSION,
    LARGEST,
    OTHERS,
    Read,
    check_runs,
    check_scan,
    make_packet,
    outcome,
    user,
)
from tests.scenarios.fuzzing.corpus import make_corpus
from tests.scenarios.fuzzing.mutations import mutate

from accord.core.model.values import Value
from accord.core.predicates.frames import UNDECIDED, attributes
from accord.core.predicates.index import FrameMatches, Index
from accord.core.predicates.interpreted import Interpreted
from accord.core.predicates.predicate import Predicate, parse

ROUND: Final = 50_000  # inputs
POOL: Final = 1_000  # packets of a round, of each version
NUMBERS: Final = (0, 1, 2, 3, 5, 59, 60, 199, 65_534, 65_535, 65_536, 2**31, 2**32 - 1, 2**32)
STEPS: Final[tuple[list[tuple[int, Any, list[Any]]], ...]] = (
    [], [], [], [(0, 0, ["x"])], [(0, 2, ["x", "y", "z"]), (1, 1, ["x", "y"]), (2, 0, ["w"])],
    [(0, 1, ["x"])], [(0, 0, [])], [(-1, 0, ["x"])], [(9, b"", ["x"])], [(0, bytes(13), ["x"])],
    [(0, b"\xff" * 4, ["x"])], [(2**32, 0, ["x"])],
)  # fmt: skip
ATTRIBUTES: Final = (
    "a", "b", "c", "s", "t", "é", "key", "a longer name", *(f"n{n}" for n in range(60)),
)  # fmt: skip
VALUES: Final = (
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


# ---- frames ----


def pools(random: Random, corpus: list[bytes]) -> Iterator[list[bytes]]:
    """Packets to make reads of: by version and QoS, and of all sorts, mutated and PUBACKs."""
    for is_v5 in (False, True):
        made = [make_packet(random.choice, is_v5) for _ in range(POOL)]
        sorts = [mutate(random, random.choice(made), made) for _ in range(POOL // 2)]
        sorts += [mutate(random, each, corpus) for each in random.sample(corpus, POOL // 10)]
        yield [each for each in made if each[0] == 0x30]
        yield [each for each in made if each[0] == 0x32]
        yield made + sorts + random.sample(corpus, POOL // 10)
        yield [b"\x40\2\0" + bytes((n,)) for n in range(9)] + [
            b"\x40\3\0\4\x10",
            b"\x40",
            b"\xc0\0",
        ]


def fuzz_frames(random: Random, count: int, corpus: list[bytes], alone: bool) -> Iterator[int]:
    """Gives how many frames each read had."""
    modules = (EXTENSION,) if alone else BOTH
    made = list(pools(random, corpus))
    choose, number = random.choice, random.random
    for _ in range(count):
        is_v5 = number() < 0.6
        pool = made[4 * is_v5 + choose((0, 0, 0, 1, 1, 1, 2, 2, 2, 3))]
        data = b"".join(random.choices(pool, k=choose((1, 1, 2, 3, 5, 9))))
        kind = number()
        if kind < 0.15:
            data = data[: int(number() * len(data))]
        elif kind < 0.4:
            place = int(number() * len(data))
            data = (
                data[:place] + random.randbytes(choose((0, 1, 2))) + data[place + choose((0, 1)) :]
            )
        start = 0 if number() < 0.9 else choose((-1, 1, 2, len(data), len(data) + 1))
        limit = LARGEST if number() < 0.9 else choose((-1, 0, 4, 30, 100))
        tables = [b"\1" * 9, random.randbytes(choose((0, 1, 2, 4)))]
        yield check_scan(Read(data, start, is_v5), limit, choose(STEPS), tables, modules)
        three = (choose(NUMBERS), choose(NUMBERS), choose(NUMBERS))
        check_runs(data, is_v5, three, random.randbytes(choose((0, 2, 9))), modules)


# ---- match ----


def condition(random: Random) -> str:
    name = '"' + random.choice(ATTRIBUTES if random.random() < 0.3 else ATTRIBUTES[:6]) + '"'
    constant = random.choice(CONSTANTS)
    choice = random.random()
    if choice < 0.6:
        orders = [] if constant in ("TRUE", "FALSE") else ["<", "<=", ">", ">="]
        return f"{name} {random.choice(['=', '=', '<>', *orders])} {constant}"
    negated = random.choice(["", "NOT "])
    if choice < 0.7:
        return f"{name} {negated}IN ({constant}, {random.choice(CONSTANTS)})"
    if choice < 0.8:
        return f"{name} {negated}LIKE '{random.choice(['x%', '%y%', 'x_z', '%'])}'"
    if choice < 0.9:
        return f"{name} IS {negated}NULL"
    return f"{name} + {random.randrange(9)} > {random.randrange(9)}"


def predicate(random: Random) -> Predicate:
    joined = " AND ".join(condition(random) for _ in range(random.choice([1, 1, 2, 3, 5])))
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
    if random.random() < 0.9:
        name = random.choice(ATTRIBUTES if random.random() < 0.3 else ATTRIBUTES[:6])
        if random.random() < 0.03:
            name = random.choice(["metadata", "deadline-ms", "other", ""])
        return user(name.encode(), random.choice(VALUES).encode())
    return random.choice((*CLEAN[6:], *OTHERS)) if random.random() < 0.3 else b"\x0b\x85\x01"


def match(index: Index, blocks: Sequence[bytes], limit: int | None = None) -> FrameMatches:
    spans = array("I")
    place = 0
    for one in blocks:
        spans.extend((place, place + len(one)))
        place += len(one)
    return index.match_frames("c", b"".join(blocks), spans, limit=limit)


def check_alone(random: Random, index: Index) -> None:
    """Bytes that the edge refuses, as such that are no UTF-8, must only do no harm."""
    blocks = [block(random) for _ in range(BATCH)]
    with suppress(UnicodeDecodeError):
        found = match(index, blocks, random.choice([None, None, 0, 5, 50, -1]))
        assert len(found.which) == BATCH
        assert found.undecided == found.which.tolist().count(UNDECIDED)
        assert all(len(keys) == len(set(keys)) for keys in found.answers)


def check_spans(random: Random, engines: Sequence[Index]) -> None:
    """Half a span, one backwards or one beyond the data is refused alike."""
    spans = array("I", random.choices([0, 1, 2, 5, 6, 2**32 - 1], k=random.choice((1, 2, 2, 4))))
    data = random.randbytes(5)  # no properties
    call = ("c", data, spans if random.random() < 0.8 else spans.tobytes()[:-1])
    found = [outcome(engine.match_frames, *call) for engine in engines]
    is_refused = [each is ValueError for each in found]
    assert is_refused == is_refused[:1] * len(found), call


def check_batch(random: Random, engines: Sequence[Index], known: dict[int, Predicate]) -> None:
    check_alone(random, engines[0])
    blocks: list[bytes] = []
    values: list[dict[str, Value] | None] = []
    while len(blocks) < BATCH:
        one = block(random)
        with suppress(UnicodeDecodeError):
            values.append(attributes(one))
            blocks.append(one)
    limit = random.choice([None, None, 5, 50])
    cut = match(engines[0], blocks, limit)
    unlimited = [match(engine, blocks) for engine in engines]
    for number, event in enumerate(values):
        found, twin = (answer.which[number] for answer in unlimited)
        if cut.which[number] != UNDECIDED:
            assert cut.answers[cut.which[number]] == unlimited[0].answers[found], blocks[number]
        if event is None:
            assert found == twin == UNDECIDED, blocks[number]
            continue
        expected = {key for key, each in known.items() if each.evaluate(event) is True}
        assert set(unlimited[1].answers[twin]) == expected, blocks[number]
        if found == UNDECIDED:
            assert any(map(_is_timely, event.values())), blocks[number]
        else:
            keys = unlimited[0].answers[found]
            assert len(keys) == len(set(keys)), blocks[number]
            assert set(keys) == expected, (blocks[number], set(keys) ^ expected)
        for engine in engines:
            assert set(engine.match_values("c", event).keys) == expected, event


def _is_timely(value: Value) -> bool:
    return isinstance(value, datetime) or (isinstance(value, str) and value.strip()[4:5] == "-")


def fuzz_match(random: Random, count: int, alone: bool) -> Iterator[int]:
    """Gives how many blocks were matched; one predicate many times makes nodes grow and shrink."""
    done = 0
    pool = [predicate(random) for _ in range(120)]
    while done < count:
        size = random.choice([1, 5, 40, 40, 120, 400])
        engines = (Index(),) if alone else (Index(), Index(Interpreted()))
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
            check_spans(random, engines)
            for _ in range(20 if alone else 12 if size < 50 else 3):
                check_alone(random, engines[0]) if alone else check_batch(random, engines, known)
                done += BATCH
                yield BATCH
        for key in known:
            for engine in engines:
                engine.remove(key)


def run(what: str, fuzz: Callable[[Random, int], Iterator[int]], options: Any) -> None:
    began, found = time.monotonic(), 0
    rounds = max(1, options.count // ROUND)
    for number in range(options.first, options.first + rounds):
        print(f"\r{what}: round {number}", end="", flush=True)
        found += sum(fuzz(Random(f"{options.seed}/{number}"), min(options.count, ROUND)))  # noqa: S311
    took_s = time.monotonic() - began
    inputs = rounds * min(options.count, ROUND)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"\r{what}: {inputs:,} inputs ({found:,} {'frames' if what == 'frames' else 'blocks'}), "
        f"seed {options.seed}, {inputs / took_s:,.0f}/s, {memory} MB: nothing found"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="fuzz the extension")
    parser.add_argument("what", choices=("frames", "match", "both"))
    parser.add_argument("count", type=int, help="inputs: reads, or blocks of properties")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="ROUND")
    parser.add_argument("--alone", action="store_true", help="the extension without its twins")
    options = parser.parse_args()
    if EXTENSION is None:
        sys.exit("the extension was not built")
    if options.what == "both":
        options.count //= 2
    corpus = [each for each in make_corpus([]).all() if len(each) < 5_000]
    if options.what != "match":
        run("frames", lambda random, n: fuzz_frames(random, n, corpus, options.alone), options)
    if options.what != "frames":
        run("match", lambda random, n: fuzz_match(random, n, options.alone), options)


if __name__ == "__main__":
    main()

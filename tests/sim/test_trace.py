"""The hash of a trace is that of all its lines, and of nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from accord.sim.trace import Trace

ROOT = Path(__file__).parents[2]


def test_equal_lines_have_equal_hashes_however_they_came() -> None:
    one, other, third = Trace(), Trace(), Trace()
    for number in range(3_000):
        one.note(f"line {number}")
        other.note(f"line {number}")
        third.note(f"line {number}")
        if number % 700 == 0:
            other.digest()
    assert one.digest() == other.digest()
    third.note("one more")
    assert third.digest() != one.digest()
    assert one.length == 3_000


def test_the_last_lines_can_be_looked_at_and_all_be_written() -> None:
    written: list[str] = []
    trace = Trace(keep=2, sink=written.append)
    for line in ("a", "b", "c"):
        trace.note(line)
    assert trace.last() == ["b", "c"]
    assert "".join(written) == "a\nb\nc\n"


def digest(hash_seed: int, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.sim.hash_child", *arguments],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return ran.stdout.strip()


def test_a_run_is_the_same_under_any_hash_seed() -> None:
    found = {digest(hash_seed) for hash_seed in (0, 1, 4_711)}
    assert len(found) == 1
    assert len(found.pop()) == 32


def test_a_machine_that_depends_on_the_order_of_a_set_is_found_out() -> None:
    assert len({digest(hash_seed, "careless") for hash_seed in (0, 1, 4_711)}) > 1

"""`accord demo five-cities` as somebody would run it: five processes, links that fail, and a kill.

Everything is stretched, because a machine that runs tests is busy.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Final

import pytest

PATIENCE_S: Final = 240.0
_PHASES: Final = ("a · normal", "b · link slowdown", "c · link failure", "d · node failure")


@pytest.fixture(scope="module")
def output() -> str:
    command = [sys.executable, "-m", "accord", "demo", "five-cities", "--quick", "--stretch", "4"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"COLUMNS": "80"},
        text=True,
        encoding="utf-8",
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGINT)  # so that it ends its nodes, too
        said, _ = process.communicate()
        pytest.fail(f"not over within {PATIENCE_S:.0f} s: {said}")
    assert process.returncode == 0, said
    assert all(len(line) <= 80 for line in said.splitlines()), said
    return said


def paths(output: str, phase: str) -> dict[str, list[str]]:
    """By channel, those of the table: with `+` and `−` for what is new and what was left."""
    text = output.partition(f"Phase {phase}")[2].partition("\n→ ")[0]
    found: dict[str, list[str]] = {}
    channel = ""
    for line in text.splitlines():
        if row := re.match(r"(seismic/\S+)?\s.*?([+−]?) *(Seattle(?: → \w+(?: [A-Z]\w+)?)+)", line):
            channel = row[1] or channel
            found.setdefault(channel, []).append(f"{row[2]} {row[3]}".strip())
    return found


def test_nothing_is_lost_and_nothing_comes_twice(output: str) -> None:
    totals = re.findall(r"^seismic/\w+: published ([\d,]+), delivered ([\d,]+), late", output, re.M)
    assert len(totals) == 2, output
    for published, delivered in totals:
        assert published == delivered
        assert int(published.replace(",", "")) > 1_000
    assert "lost" not in output
    assert "twice" not in output


def test_paths_avoid_what_has_failed(output: str) -> None:
    """By which paths exactly, and how soon, is told in virtual time by tests/sim."""
    cut, killed = (
        [path for of in paths(output, phase).values() for path in of if not path.startswith("−")]
        for phase in _PHASES[2:]
    )
    assert cut, output
    assert killed, output
    assert not any("Seattle → Denver" in path for path in cut), output
    assert not any("Denver" in path for path in killed), output

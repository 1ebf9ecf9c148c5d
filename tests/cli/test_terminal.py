"""The installed command as a process: pipes, and what it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ACCORD: Final = (sys.executable, "-c", "from accord.cli.main import app; app(prog_name='accord')")
ENVIRONMENT: Final = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def test_a_reader_that_leaves_early_is_no_mistake(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"channel": "a"}\n' * 50_000)
    command = [*ACCORD, "predicate", "match", "TRUE", str(events), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b'{"channel": "a"}\n'
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_reported() -> None:
    with open("/dev/full", "wb") as full:
        heard = subprocess.run(
            [*ACCORD, "--version"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert heard.returncode == 2
    assert heard.stderr == b"error: no space left on device\n"


def test_starting_loads_neither_parsers_nor_spark() -> None:
    program = "import sys, accord.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pyspark", "elementpath", "lark", "lxml", "accord.predicates"} & set(loaded)


def test_ctrl_c_while_modules_are_imported() -> None:
    command = [sys.executable, "-v", "-m", "accord", "--version"]  # which tells of each import
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"accord/cli/main" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert b"Traceback" not in process.stderr.read()
        assert process.wait() == -signal.SIGINT


def test_ctrl_c_while_commands_are_built() -> None:
    program = (
        "import signal, typer.main\n"
        "from accord.__main__ import main\n"
        "typer.main.get_group = lambda _: signal.raise_signal(signal.SIGINT)\n"
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.stderr == b""
    assert ended.returncode == -signal.SIGINT

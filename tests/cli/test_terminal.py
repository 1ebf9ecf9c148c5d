"""The installed command as a process: pipes, a pseudo-terminal, and what it imports."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

RUN: Final = "from accord.cli.main import app; app(prog_name='accord')"
ACCORD: Final = (sys.executable, "-c", RUN)
# A new session's leader owns the terminal it opens: then Ctrl-C is a signal to it.
AT_TERMINAL: Final = (sys.executable, "-c", f"import os; os.open(os.ttyname(0), os.O_RDWR); {RUN}")
ENVIRONMENT: Final = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*ACCORD, *arguments], input=stdin, capture_output=True, env=ENVIRONMENT, check=False
    )


class Terminal:
    """What a person at the keyboard does: read until something appears, type, leave."""

    def __init__(self, controller: int) -> None:
        self._controller = controller
        self._unread = ""

    def expect(self, text: str) -> str:
        while text not in self._unread:
            self._unread += os.read(self._controller, 65_536).decode().replace("\r\n", "\n")
        seen, found, self._unread = self._unread.partition(text)
        return seen + found

    def press(self, keys: str) -> None:
        os.write(self._controller, keys.encode())


@contextmanager
def session() -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    controller, screen = pty.openpty()
    process = subprocess.Popen(
        [*AT_TERMINAL, "predicate", "session"],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    os.close(screen)
    try:
        yield Terminal(controller), process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        os.close(controller)


def test_a_conversation_at_a_terminal() -> None:
    with session() as (terminal, process):
        welcome = terminal.expect("accord> ")
        assert "Type a predicate to see which of these events match it." in welcome
        assert "  12  grid/feeder" in welcome
        assert "platform = 'UAV' AND altitude_m > 300" in welcome
        terminal.press("urgent = TRUE\n")
        assert "1 of 12 events matches" in terminal.expect("accord> ")
        terminal.press("urgent = = TRUE\n")
        assert "  urgent = = TRUE\n           ^\n" in terminal.expect("accord> ")
        terminal.press(":quit\n")
        assert process.wait() == 0


@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["ctrl-d", "ctrl-c"])
def test_leaving_by_a_key(key: str) -> None:
    with session() as (terminal, process):
        terminal.expect("accord> ")
        # Python's prompt can miss an interrupt just before it starts to wait: press again then.
        while process.poll() is None:
            terminal.press(key)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        assert process.returncode == 0


def test_a_pipe_gets_answers_without_prompt() -> None:
    heard = run("predicate", "session", stdin=b"urgent\n")
    assert heard.returncode == 0
    assert heard.stdout.startswith(b"canonical  urgent = TRUE\n")
    assert b"accord>" not in heard.stdout
    assert heard.stderr == b""


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
    assert heard.stderr == b"error: No space left on device\n"


def test_starting_loads_neither_parsers_nor_spark() -> None:
    program = "import sys, accord.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pyspark", "elementpath", "lark", "lxml", "accord.predicates"} & set(loaded)

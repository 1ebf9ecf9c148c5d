"""Commands that show a picture on a terminal again and again, until they are interrupted."""

from __future__ import annotations

import os
import pty
import signal
import struct
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from fcntl import ioctl
from termios import TIOCSWINSZ

from tests.cli.test_terminal import ENVIRONMENT


def watch(
    command: Sequence[str],
    node: AbstractContextManager[str],
    shown: str,
    *,
    lines: int,
    columns: int,
) -> tuple[str, str]:
    """What is there while it shows that three times, and after the node went; Ctrl-C ends it."""
    controller, screen = pty.openpty()
    ioctl(screen, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "COLUMNS"}
    environment["TERM"] = "xterm"
    with node as url:
        process = subprocess.Popen(
            [*command, "--url", url], stdin=screen, stdout=screen, stderr=screen, env=environment
        )
        os.close(screen)
        before = _read_until(controller, shown, times=3)
    try:
        after = _read_until(controller, "no answer: no node answers", times=2)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):
            while os.read(controller, 65_536):
                pass
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    return before, after


def _read_until(controller: int, text: str, *, times: int) -> str:
    seen = ""
    while seen.count(text) < times:
        seen += os.read(controller, 65_536).decode(errors="replace")
    return seen

"""A user's machine: an environment with the wheel installed, a folder to work in, and a shell.

Everything runs as it does for a user who followed the README: the `accord` command from an
environment that holds the wheel and what it needs, started in a folder of its own, on the default
ports. The network is a namespace of the tests' own where the system allows one, so that those
ports are free; nothing of the source tree is on a path.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.java_options import java_options

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = ROOT / "build" / "acceptance"
START_S: Final = 60.0
PATIENCE_S: Final = 120.0
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NEW_NAMESPACES, _NEW_USER = 0x44000000, 0x10000000  # network and host name
_SET_FLAGS, _UP = 0x8914, 0x1


class AcceptanceError(AssertionError):
    """What a user would have seen instead of what the documents promise."""


def isolate() -> None:
    """Give this process a loopback network and a host name of its own, if the system lets it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_NAMESPACES) != 0:
        if libc.unshare(_NEW_NAMESPACES | _NEW_USER) != 0:
            return
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    socket.sethostname("control-room")  # after which nodes call themselves in the documents
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


@dataclass
class Running:
    """A command that goes on while others run; what it prints is in a file."""

    command: str
    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return _ESCAPES.sub("", self.output.read_text(errors="replace"))

    def wait_for(self, found: Callable[[str], bool], what: str, within_s: float) -> None:
        """Until its output is as wanted, or it has ended without."""
        until_s = time.monotonic() + within_s
        while not found(self.text()):
            if self.process.poll() is not None:
                if found(self.text()):
                    return
                raise AcceptanceError(self.report(f"ended without {what}"))
            if time.monotonic() > until_s:
                raise AcceptanceError(self.report(f"shows no {what} within {within_s:.0f} s"))
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it as a user does, with what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise AcceptanceError(self.report(f"does not end after {number.name}")) from None

    def report(self, problem: str) -> str:
        return f"`{self.command}` {problem}. It printed:\n{self.text() or '(nothing)'}"


@dataclass
class Machine:
    """A folder, and the commands that run in it."""

    folder: Path
    running: list[Running] = field(default_factory=list)
    node: Running | None = None
    _count: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "examples", self.folder / "examples", dirs_exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PYTHON", "ACCORD_", "VIRTUAL_ENV", "SPARK_", "COLUMNS"))
        }
        path = f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}:/usr/sbin"
        # The name of this host is known to nobody else, not even to a resolver.
        spark = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        spark["SPARK_SUBMIT_OPTS"] = java_options(ENVIRONMENT)
        return {**kept, **spark, "PATH": path, "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}

    # --------------------------------------------------------------------------------- commands

    def start(self, command: str) -> Running:
        """Run it in a shell, in a group of processes of its own."""
        self._count += 1
        output = self.folder / f".output-{self._count}"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                ["/bin/bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        started = Running(command, process, output)
        self.running.append(started)
        return started

    def run(self, command: str, *, within_s: float = PATIENCE_S, code: int | None = 0) -> str:
        """Run it to its end; `code` is how it must end, None if that does not matter."""
        started = self.start(command)
        try:
            ended = started.process.wait(within_s)
        except subprocess.TimeoutExpired:
            started.stop(signal.SIGKILL)
            raise AcceptanceError(started.report(f"does not end within {within_s:.0f} s")) from None
        text = started.text()
        if "Traceback (most recent call last)" in text:
            raise AcceptanceError(started.report("shows a traceback"))
        if code is not None and ended != code:
            raise AcceptanceError(started.report(f"ends with code {ended} instead of {code}"))
        return text

    def python(self, code: str) -> str:
        """Run a program by the environment's Python."""
        self._count += 1
        file = self.folder / f"program_{self._count}.py"
        file.write_text(code)
        return self.run(f"python {file.name}")

    # ------------------------------------------------------------------------------------- node

    def up(self, options: str = "") -> Running:
        """`accord up`, until it says that it is ready; a node that runs is stopped first."""
        self.down()
        self.node = self.start(f"exec accord up {options}".rstrip())
        self.node.wait_for(lambda text: "is ready\n" in text, "node that is ready", START_S)
        return self.node

    def down(self) -> None:
        if self.node is not None:
            node, self.node = self.node, None
            ended = node.stop(signal.SIGTERM)
            if ended != 0 or "Traceback" in node.text():
                raise AcceptanceError(node.report(f"ended with code {ended}"))

    def stop_rest(self) -> None:
        """Stop all but the node; nobody asks how they ended."""
        for each in reversed(self.running):
            if each is not self.node and each.process.poll() is None:
                with suppress(AcceptanceError):
                    each.stop()

    def close(self) -> None:
        self.stop_rest()
        self.down()


def program(name: str) -> bool:
    """Whether a program that documents use beside ours is there (`make peers` installs them)."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is not None


def mypy(folder: Path) -> str:
    """What `mypy --strict` finds in programs that import the installed package."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--no-error-summary"]
    command += ["--python-executable", str(ENVIRONMENT / "bin" / "python"), "--config-file="]
    command += ["--disable-error-code=import-untyped", "--disable-error-code=import-not-found"]
    done = subprocess.run([*command, "."], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr

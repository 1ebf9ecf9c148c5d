"""Real programs that are adapted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from accord.apps.agent.program import Program
from accord.apps.agent.settings import AgentError, read_settings
from tests.apps.agent.test_settings import GOOD, write

# Writes what it read, again after a signal; says goodbye only if it likes to.
PROGRAM = """
import signal, sys
from pathlib import Path
folder = Path(sys.argv[1])
def say(*_):
    with (folder / "said").open("a") as file:
        file.write((folder / "out").read_text() + "\\n")
signal.signal(signal.SIGHUP, say)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
say()
while True:
    signal.pause()
"""


async def until_said(folder: Path, *lines: str) -> None:
    file = folder / "said"
    async with asyncio.timeout(60):
        while not file.exists() or file.read_text().split("\n")[:-1] != list(lines):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("apply", ["SIGHUP", "restart"])
def test_a_program_gets_its_configuration(tmp_path: Path, apply: str) -> None:
    async def test() -> None:
        settings = read_settings(write(tmp_path, GOOD.replace("SIGHUP", apply)))
        program = Program(settings, [sys.executable, "-c", PROGRAM, str(tmp_path)])
        await program.start()
        first = program.pid
        await until_said(tmp_path, "2 low")
        await program.adapt("rate", 7.5)
        await until_said(tmp_path, "2 low", "7.5 low")
        await program.adapt("trust", "high")
        await until_said(tmp_path, "2 low", "7.5 low", "7.5 high")
        assert program.starts == (1 if apply == "SIGHUP" else 3)
        assert (program.pid == first) is (apply == "SIGHUP")
        await program.stop()
        assert not program.ended.done()

    asyncio.run(test())


def test_a_program_that_runs_so_already_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        settings = read_settings(write(tmp_path, GOOD.replace("SIGHUP", "restart")))
        program = Program(settings, [sys.executable, "-c", PROGRAM, str(tmp_path)])
        await program.start()
        assert await program.adapt("rate", 7.5)
        running = program.pid
        assert await program.adapt("rate", 7.5)
        assert program.pid == running
        assert program.starts == 2
        await program.stop()

    asyncio.run(test())


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async def test() -> None:
        settings = read_settings(write(tmp_path, GOOD.replace("1.5", "0.05")))
        program = Program(settings, [sys.executable, "-c", PROGRAM, str(tmp_path), "stubborn"])
        await program.start()
        await until_said(tmp_path, "2 low")
        await program.stop()
        assert program.pid == 0

    asyncio.run(test())


def test_programs_that_can_not_run(tmp_path: Path) -> None:
    async def test() -> None:
        settings = read_settings(write(tmp_path))
        with pytest.raises(AgentError, match="can't be started: No such file"):
            await Program(settings, [str(tmp_path / "nothing")]).start()
        program = Program(settings, [sys.executable, "-c", "raise SystemExit(5)"])
        await program.start()
        assert await program.ended == 5
        (tmp_path / "out").unlink()
        (tmp_path / "out").mkdir()
        assert not await program.adapt("rate", 3.0)
        assert await program.ended == 5

    asyncio.run(test())


def test_a_program_that_can_not_be_started_anew_is_over(tmp_path: Path) -> None:
    async def test() -> None:
        settings = read_settings(write(tmp_path, GOOD.replace("SIGHUP", "restart")))
        command = tmp_path / "program"
        command.symlink_to(sys.executable)
        program = Program(settings, [str(command), "-c", PROGRAM, str(tmp_path)])
        await program.start()
        await until_said(tmp_path, "2 low")
        command.unlink()
        assert not await program.adapt("rate", 3.0)
        with pytest.raises(AgentError, match="can't be started"):
            await program.ended
        await program.stop()

    asyncio.run(test())

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from accord.cli import user
from accord.config import parse
from accord.core.model.errors import InputError
from accord.core.router.rights import Rights
from accord.runtime.users import Users

ALL = Rights(publish=("#",), subscribe=("#",))


def verify(toml: str, name: str, password: str) -> Rights | None:
    async def main() -> Rights | None:
        users = Users(parse(toml).users)
        try:
            return await users.verify(name, password.encode())
        finally:
            await users.close()

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["ann", "b.c", 'd "e" \\ f', "día"])
def test_the_lines_let_the_user_in(name: str) -> None:
    result = CliRunner().invoke(user.app, ["hash", name], input="día 1\n")
    assert result.exit_code == 0
    assert verify(result.stdout, name, "día 1") == ALL
    assert verify(result.stdout, name, "día 2") is None


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("a:b", "x\n", "NAME: expected printable characters other than a colon"),
        ("a\nb", "x\n", "NAME: expected printable characters"),
        ("ann", "\n", "password: expected at least one character"),
        ("ann", "", "password: expected at least one character"),
        ("ann", "x" * 2_000, "password: expected at most 1024 characters"),
    ],
)
def test_what_can_not_be_taken(name: str, given: str, problem: str) -> None:
    result = CliRunner().invoke(user.app, ["hash", name], input=given)
    assert isinstance(result.exception, InputError)
    assert problem in str(result.exception)
    assert result.stdout == ""


def test_a_terminal_is_asked_twice_and_shows_nothing() -> None:
    terminal, program = pty.openpty()
    command = [sys.executable, "-c", "from accord.cli.user import app; app()", "hash", "ann"]
    process = subprocess.Popen(
        command, stdin=program, stdout=subprocess.PIPE, stderr=program, start_new_session=True
    )
    os.close(program)
    shown = b""
    for asked in (b"Password: ", b"confirmation: "):
        while asked not in shown:
            shown += os.read(terminal, 1_024)
        os.write(terminal, b"secret\n")
    assert process.stdout is not None
    toml = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait() == 0
    os.close(terminal)
    assert b"secret" not in shown
    assert verify(toml, "ann", "secret") == ALL

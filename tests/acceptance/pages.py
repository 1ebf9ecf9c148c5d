"""Documents as programs: their fenced blocks, run in order, with what they show checked.

- `console`: a line that begins with `$ ` is a command (`\\` at its end continues it, `&` leaves it
  running); the lines up to the next one are what it prints. They are compared word by word: any
  number stands for any other, `…` for anything, and rules of tables are passed over. Lines that
  are not shown may stand between those that are. A command that goes on for ever ends when it has
  printed what is shown.
- `python`: all blocks of a page share their names, and may await at the top level.
- `toml`: with `# FILE` as its first line it is written there, and a node with that `accord.toml`
  is started; each is checked by the command for its kind.
- `<!-- not run: why -->` on the line before a block leaves it out. Other languages are only shown.
"""

from __future__ import annotations

import ast
import re
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.acceptance.machine import ENVIRONMENT, ROOT, AcceptanceError, Machine, mypy, program

RUN: Final = ("console", "python", "toml")
SHOWN: Final = ("json", "xml", "text", "properties")
WAIT_S: Final = 120.0
_FENCE: Final = re.compile(r"^```(\S*)\s*$")
_NOT_RUN: Final = re.compile(r"^<!-- not run: (.+) -->$")
_NUMBER: Final = re.compile(r"\d[\d.,:_]*")
_ANY: Final = "…"
_DRIVER: Final = """
import ast, asyncio, inspect, sys
names = {"__name__": "__main__"}
loop = asyncio.new_event_loop()
for line in sys.stdin:
    path, _, first = line.strip().rpartition(":")
    with open(path) as file:
        text = "\\n" * int(first) + file.read()
    code = compile(text, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, names)
    if inspect.iscoroutine(made):
        loop.run_until_complete(made)
    print("\\0", flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is where its text begins, `reason` why it is not run."""

    page: str
    line: int
    language: str
    text: str
    reason: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A command of a console block, and what it prints."""

    command: str
    shown: tuple[str, ...]
    is_left_running: bool


def blocks(page: str) -> Iterator[Block]:
    lines = (ROOT / page).read_text("utf-8").splitlines()
    first, language, reason = 0, "", ""
    for number, line in enumerate(lines, start=1):
        found = _FENCE.match(line.strip())
        if found and not first:
            first, language = number + 1, found[1]
            before = _NOT_RUN.match(lines[number - 2].strip()) if number > 1 else None
            reason = before[1] if before else ""
        elif found:
            text = textwrap.dedent("\n".join(lines[first - 1 : number - 1]))
            yield Block(page, first, language, text, reason)
            first = 0


def steps(text: str) -> list[Step]:
    """The commands of a console block."""
    found: list[tuple[str, list[str]]] = []
    for line in text.replace("\\\n", "").splitlines():
        if line.startswith("$ "):
            found.append((line[2:].strip(), []))
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            raise AcceptanceError(f"a console block begins with a command, not with {line!r}")
    return [
        Step(command.removesuffix("&").strip(), tuple(shown), command.endswith("&"))
        for command, shown in found
    ]


def missing(shown: Sequence[str], printed: str) -> str | None:
    """The first of the lines shown that was not printed behind those before it."""
    lines = [_words(line) for line in printed.splitlines()]
    at = 0
    for line in shown:
        words = _words(line)
        if not words or words == [_ANY]:
            continue
        pattern = re.compile(r"\s".join(_pattern(word) for word in words) + r"\Z", re.DOTALL)
        while at < len(lines) and not pattern.match(" ".join(lines[at])):
            at += 1
        if at == len(lines):
            return line
        at += 1
    return None


def _words(line: str) -> list[str]:
    """Without what only draws a table."""
    return [word for word in line.split() if word.strip("─━│┃—|+-=")]


def _pattern(word: str) -> str:
    if word == _ANY:
        return r".*"
    parts = []
    for part in word.split(_ANY):
        parts.append(_NUMBER.pattern.join(re.escape(text) for text in _NUMBER.split(part)))
    return ".*?".join(parts)


class Runner:
    """Runs the blocks of one page on one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._interpreter: subprocess.Popen[str] | None = None

    def run(self, block: Block) -> None:
        try:
            if block.language == "console":
                for step in steps(block.text):
                    self._step(step)
            elif block.language == "python":
                self._python(block)
            elif block.language == "toml":
                self._toml(block)
        except AcceptanceError as error:
            raise AcceptanceError(f"{block.place}: {error}") from None

    def close(self) -> None:
        if self._interpreter is not None:
            self._interpreter.kill()
            self._interpreter.communicate()
        self._machine.stop_rest()

    def _step(self, step: Step) -> None:
        machine = self._machine
        if step.command == "make up":  # which installs the wheel and does just this
            node = machine.node or machine.up()
            lacking = missing(step.shown, node.text())
            if lacking:
                raise AcceptanceError(node.report(f"shows no line like {lacking!r}"))
            return
        if not step.shown and not step.is_left_running:
            machine.run(step.command, within_s=WAIT_S)
            return
        running = machine.start(step.command)
        if step.shown:
            running.wait_for(
                lambda text: missing(step.shown, text) is None,
                f"line like {missing(step.shown, '')!r} in its place",
                WAIT_S,
            )
        if not step.is_left_running and running.process.poll() is None:
            running.process.wait(WAIT_S) if _ends(step) else running.stop()
        if "Traceback (most recent call last)" in running.text():
            raise AcceptanceError(running.report("shows a traceback"))

    def _python(self, block: Block) -> None:
        if self._interpreter is None:
            self._interpreter = subprocess.Popen(
                [str(ENVIRONMENT / "bin" / "python"), "-u", "-c", _DRIVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self._machine.folder,
                env=self._machine.environment,
            )
        file = self._machine.folder / f"block_{block.line}.py"
        file.write_text(block.text)
        assert self._interpreter.stdin is not None
        assert self._interpreter.stdout is not None
        self._interpreter.stdin.write(f"{file}:{block.line - 1}\n")
        self._interpreter.stdin.flush()
        printed = []
        for line in self._interpreter.stdout:
            if "\0" in line:  # Java writes into the same line
                return
            printed.append(line)
        raise AcceptanceError(f"the program fails:\n{''.join(printed)}")

    def _toml(self, block: Block) -> None:
        machine = self._machine
        first = block.text.partition("\n")[0]
        named = re.fullmatch(r"# (\S+\.toml)", first)
        file = machine.folder / (named[1] if named else f"block_{block.line}.toml")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text)
        machine.run(f"{_checker(block.text)} {file}")
        if named and named[1] == "accord.toml":
            machine.up()


def _ends(step: Step) -> bool:
    """Whether a command ends by itself; what only goes on is ended when it has shown enough."""
    goes_on = r"accord (sub\b(?!.* --count)|(up|top|agent)\b)|.*--watch|mosquitto_sub(?!.* -C)"
    return not re.match(goes_on, step.command)


def _checker(text: str) -> str:
    if re.search(r"^\[\[(policies|limits)\]\]|^(strategy|weights) =", text, re.MULTILINE):
        return "accord policy check"
    return "accord config --check"


def problems(page: str) -> list[str]:
    """Blocks that nobody runs although nothing says why."""
    found = []
    for block in blocks(page):
        if block.language not in (*RUN, *SHOWN) and not block.reason:
            wanted = ", ".join((*RUN, *SHOWN))
            found.append(f"{block.place}: language {block.language!r}, expected one of {wanted}")
    return found


def type_errors(pages: Sequence[str], folder: Path) -> str:
    """What a type checker finds in the Python of pages, each as one program."""
    for page in pages:
        lines = [f"# {page}", "async def page() -> None:", "    pass"]
        for block in blocks(page):
            if block.language == "python" and not block.reason:
                ast.parse(f"async def block():\n{textwrap.indent(block.text, ' ')}\n")
                lines += [f"    # {block.place}", textwrap.indent(block.text, "    ")]
        file = folder / f"{page.removesuffix('.md').replace('/', '_')}.py"
        file.write_text("\n".join(lines) + "\n")
    return mypy(folder)


def starts_nodes(page: str) -> bool:
    """Whether it needs other nodes than the one that `accord up` starts by default."""
    return any(
        not block.reason and re.search(r"\baccord up\b|^# accord\.toml$", block.text, re.MULTILINE)
        for block in blocks(page)
        if block.language in ("console", "toml")
    )


def needs(page: str) -> str | None:
    """A program that a page uses and that is not here."""
    text = "\n".join(block.text for block in blocks(page) if block.language == "console")
    for name in ("mosquitto_sub", "mosquitto_pub", "mosquitto_rr", "openssl", "curl"):
        if name in text and not program(name):
            return name
    return None

"""`accord pub`: publish events, and report the outcome."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer
from rich.text import Text

from accord.cli.arguments import read_duration_s, read_file, read_pairs
from accord.cli.connection import ConnectionTarget, open_session, run_client
from accord.cli.options import command
from accord.cli.parameters import argument, flag, option
from accord.client.errors import ExpiredError, RefusedError
from accord.client.messages import Extras, Outcome, to_message
from accord.client.session import Session
from accord.core.model.errors import InputError
from accord.core.model.event import MAX_PAYLOAD
from accord.core.model.values import Value, infer
from accord.terminal.amounts import count_text, duration_text, rate_text, size_text
from accord.terminal.screen import open_console, print_line, print_problem, safe
from accord.terminal.stdin import read_all, read_payload_lines

STDIN: Final = "-"
INTERRUPTED: Final = 130


@command
def pub(
    channel: str = argument("CHANNEL", "Such as grid/feeder"),
    payload: str | None = argument(
        "PAYLOAD", "Text, or - for standard input; none if left out", default=None
    ),
    *,
    file: Path | None = option("FILE", "Read the payload from FILE.", "--file", "-f"),
    is_lines: bool = flag("Each line of standard input is an event.", "--lines"),
    attribute: list[str] | None = option(
        "NAME=VALUE", "Attribute of the event; may be repeated.", "--attribute", "-a"
    ),
    metadata: Path | None = option("FILE", "An XML document of attributes."),
    qos: int = option(
        "QOS", "0: sent, 1: at least once, 2: once.", "--qos", "-q", min=0, max=2, default=1
    ),
    retain: bool = flag("Retain the event for later subscribers.", "--retain", "-r"),
    deadline_ms: int | None = option(
        "MS", "Drop the event if it cannot be delivered within MS milliseconds.", min=1
    ),
    key: str | None = option("KEY", "Replacement key: a newer event replaces one that waits."),
    count: int | None = option("N", "Publish it N times.", "--count", "-n", min=1),
    every: str | None = option("TIME", "Interval between events, such as 500ms or 2s."),
    target: ConnectionTarget,
) -> None:
    """Publish an event, or many.

    Attributes that look like numbers, booleans or times become such values, others are text.

    Exit code 0 if all were accepted, 1 if any was refused, 2 for a usage error.
    """
    source = _source(payload, file, is_lines=is_lines, count=count, every=every)
    attributes = read_attributes(attribute or ())
    extras = Extras(
        qos=qos,
        retain=retain,
        deadline_ms=deadline_ms,
        key=key,
        metadata=None if metadata is None else read_file(metadata, MAX_PAYLOAD),
    )
    to_message(channel, b"", attributes, extras)  # report problems before connecting
    publishing = PubRunner(channel, attributes, extras, source)
    try:
        run_client(publishing.run(target))
    except KeyboardInterrupt:
        typer.echo(err=True)
        if not publishing.accepted:
            raise typer.Exit(INTERRUPTED) from None
    finally:
        publishing.summarise()
    raise typer.Exit(1 if publishing.refused else 0)


def read_attributes(pairs: Sequence[str]) -> dict[str, Value]:
    """Parse `name=value` pairs; the form of a value gives its type."""
    attributes: dict[str, Value] = {}
    for name, text in read_pairs(pairs, "--attribute"):
        if name in attributes:
            raise InputError("--attribute", f"expected {name!r} once, given twice")
        attributes[name] = infer(text)
    return attributes


def _source(
    payload: str | None, file: Path | None, *, is_lines: bool, count: int | None, every: str | None
) -> PayloadSource:
    """Where payloads come from, and how often."""
    if (payload is not None) + (file is not None) + is_lines > 1:
        raise typer.BadParameter("give one of PAYLOAD, --file and --lines")
    every_s = None if every is None else read_duration_s(every, "--every")
    is_slow = every_s is not None
    if is_lines:
        if count is not None:
            raise typer.BadParameter("give one of --lines and --count")
        is_typed = sys.stdin.isatty()
        return PayloadSource(
            read_payload_lines(), every_s, is_one=False, is_slow=is_slow or is_typed
        )
    if count is None:
        count = 1 if every_s is None else 0  # 0: unlimited
    given: str | bytes | None = None if payload == STDIN else _text(payload or "")
    if file is not None:
        given = read_file(file, MAX_PAYLOAD)
    return PayloadSource(_repeated(given, count), every_s, is_one=count == 1, is_slow=is_slow)


async def _repeated(payload: str | bytes | None, count: int) -> AsyncIterator[str | bytes]:
    """The same payload `count` times, unlimited if 0; None is standard input."""
    payload = await read_all(MAX_PAYLOAD) if payload is None else payload
    for _ in range(count) if count else itertools.count():
        yield payload


def _text(payload: str) -> str | bytes:
    """A shell passes bytes that are not UTF-8 as lone surrogates."""
    try:
        payload.encode()
    except UnicodeEncodeError:
        return payload.encode(errors="surrogateescape")
    return payload


# Unacknowledged publications at the same time.
WINDOW: Final = 256
MAX_COMPLAINTS: Final = 5


@dataclass(frozen=True, slots=True)
class PayloadSource:
    """What is published; `is_slow` if each event is worth a report."""

    payloads: AsyncIterator[str | bytes]
    every_s: float | None
    is_one: bool
    is_slow: bool


class PubRunner:
    """Publishes from a source to one channel, and counts."""

    def __init__(
        self,
        channel: str,
        attributes: Mapping[str, Value],
        extras: Extras,
        source: PayloadSource,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._attributes = attributes
        self._extras = extras
        self._clock = clock
        self._console = open_console()
        self._errors = open_console(stderr=True)
        self._source = source
        self._started_s = clock()
        self.accepted = 0
        self.unmatched = 0
        self.refused = 0

    async def run(self, target: ConnectionTarget) -> None:
        async with open_session(
            target, lambda text: print_line(self._errors, Text(text, "dim"))
        ) as session:
            self._started_s = self._clock()
            await self._publish_all(session)

    async def _publish_all(self, session: Session) -> None:
        mistake: InputError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await self._start_all(session, tasks)
                except InputError as error:
                    mistake = error  # earlier events still await acknowledgement
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        if mistake is not None:
            raise mistake

    async def _start_all(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        room = asyncio.Semaphore(WINDOW)
        is_first = True
        async for payload in self._source.payloads:
            if self._source.every_s is not None and not is_first:
                await asyncio.sleep(self._source.every_s)
            is_first = False
            await room.acquire()
            task = tasks.create_task(self._publish(session, payload))
            task.add_done_callback(lambda _: room.release())

    async def _publish(self, session: Session, payload: str | bytes) -> None:
        try:
            outcome = await session.publish(
                self._channel, payload, attributes=self._attributes, **self._extras
            )
        except (RefusedError, ExpiredError) as error:
            self.refused += 1
            if self.refused <= MAX_COMPLAINTS:
                print_problem(self._errors, error)
            return
        self.accepted += 1
        self.unmatched += not outcome.has_subscribers
        if self._source.is_one or self._source.is_slow:
            self._print_outcome(
                outcome, len(payload.encode() if isinstance(payload, str) else payload)
            )

    def _print_outcome(self, outcome: Outcome, size: int) -> None:
        words, style = self._words, "green"
        if not outcome.has_subscribers:
            words, style = f"{words}, but no one listens", "yellow"
        shown = Text.assemble(
            (words, style), f"  {safe(self._channel)}", (f"  {size_text(size)}", "dim")
        )
        if outcome.event:
            shown.append(f"  event {safe(outcome.event)}", "dim")
        print_line(self._console, shown)

    @property
    def _words(self) -> str:
        return "acknowledged" if self._extras["qos"] else "sent"

    def summarise(self) -> None:
        """Print one line, if there were several."""
        if self._source.is_one or not self.accepted + self.refused:
            return
        spent_s = max(self._clock() - self._started_s, 1e-3)
        line = f"{count_text(self.accepted, 'event')} {self._words} in {duration_text(spent_s)}"
        if not self._source.is_slow:
            line += f", {rate_text(self.accepted / spent_s)}/s"
        if self.unmatched:
            missed = "any" if self.unmatched == self.accepted else self.unmatched
            line += f"; no one listened to {missed}"
        if self.refused:
            line += f"; {self.refused:,} refused"
        print_line(self._console, line)

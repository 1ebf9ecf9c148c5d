"""Publishes one event or many, and reports the outcome."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from accord.cli.connection import ConnectionTarget, open_session
from accord.cli.errors import InputError
from accord.cli.quantities import count_text, duration_text, rate_text, size_text
from accord.cli.screen import open_console, print_line, print_problem, safe
from accord.cli.stdin import read_all, read_payload_lines
from accord.client.errors import ExpiredError, RefusedError
from accord.client.messages import Extras, Outcome
from accord.client.session import Session
from accord.core.model.event import MAX_PAYLOAD
from accord.core.model.values import Value

# Unacknowledged publications at the same time.
WINDOW: Final = 256
MAX_COMPLAINTS: Final = 5


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same payload `count` times, unlimited if 0; None is standard input."""

    payload: str | bytes | None
    count: int
    every_s: float | None

    async def payloads(self) -> AsyncIterator[str | bytes]:
        payload = await read_all(MAX_PAYLOAD) if self.payload is None else self.payload
        number = 0
        while not self.count or number < self.count:
            number += 1
            yield payload

    @property
    def is_one(self) -> bool:
        return self.count == 1

    @property
    def is_slow(self) -> bool:
        """Slow enough to report each event."""
        return self.every_s is not None


@dataclass(frozen=True, slots=True)
class Lines:
    """A payload per line of standard input."""

    every_s: float | None

    async def payloads(self) -> AsyncIterator[str | bytes]:
        async for line in read_payload_lines():
            yield line

    @property
    def is_one(self) -> bool:
        return False

    @property
    def is_slow(self) -> bool:
        return self.every_s is not None or sys.stdin.isatty()


PayloadSource = Repeated | Lines


class PubRunner:
    """Publishes from a source to one channel, and counts."""

    def __init__(
        self,
        channel: str,
        attributes: Mapping[str, Value],
        extras: Extras,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._attributes = attributes
        self._extras = extras
        self._clock = clock
        self._console = open_console()
        self._errors = open_console(stderr=True)
        self._is_one = True
        self._is_slow = False
        self._started_s = clock()
        self.accepted = 0
        self.unmatched = 0
        self.refused = 0

    async def run(self, target: ConnectionTarget, source: PayloadSource) -> None:
        self._is_one, self._is_slow = source.is_one, source.is_slow
        async with open_session(
            target, lambda text: print_line(self._errors, Text(text, "dim"))
        ) as session:
            self._started_s = self._clock()
            await self._publish_all(session, source)

    async def _publish_all(self, session: Session, source: PayloadSource) -> None:
        mistake: InputError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await self._start_all(session, source, tasks)
                except InputError as error:
                    mistake = error  # earlier events still await acknowledgement
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        if mistake is not None:
            raise mistake

    async def _start_all(
        self, session: Session, source: PayloadSource, tasks: asyncio.TaskGroup
    ) -> None:
        room = asyncio.Semaphore(WINDOW)
        is_first = True
        async for payload in source.payloads():
            if source.every_s is not None and not is_first:
                await asyncio.sleep(source.every_s)
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
        if self._is_one or self._is_slow:
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
        if self._is_one or not self.accepted + self.refused:
            return
        spent_s = max(self._clock() - self._started_s, 1e-3)
        line = f"{count_text(self.accepted, 'event')} {self._words} in {duration_text(spent_s)}"
        if not self._is_slow:
            line += f", {rate_text(self.accepted / spent_s)}/s"
        if self.unmatched:
            missed = "any" if self.unmatched == self.accepted else self.unmatched
            line += f"; no one listened to {missed}"
        if self.refused:
            line += f"; {self.refused:,} refused"
        print_line(self._console, line)

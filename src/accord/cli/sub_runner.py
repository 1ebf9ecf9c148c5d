"""Runs all subscriptions of one command, until there is a reason to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from accord.cli.connection import ConnectionTarget, open_session
from accord.cli.errors import InputError
from accord.cli.event_output import Show
from accord.cli.quantities import count_text, duration_text
from accord.cli.screen import open_console, print_line, safe
from accord.client.quality import Expectation, ExpectationState, read_expectation_form
from accord.client.subscription import Subscription
from accord.core.model.channels import is_internal

# MQTT's retain handling: send retained events at subscription, or not at all.
_RETAINED: Final = 0
_NOT_RETAINED: Final = 2


def read_expectation(text: str) -> Expectation:
    try:
        return read_expectation_form(text)
    except ValueError as error:
        raise InputError("--expect", str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubOptions:
    """What to subscribe to, and for how long."""

    filters: tuple[str, ...]
    where: str | None = None
    xpath: str | None = None
    since: str | None = None
    expect: tuple[Expectation, ...] = ()
    qos: int = 1
    has_retained: bool = True
    count: int | None = None
    limit_s: float | None = None


class SubRunner:
    """Shows events, and counts them."""

    def __init__(
        self, options: SubOptions, show: Show, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._show = show
        self._clock = clock
        self._console = open_console(stderr=True)
        self._started_s: float | None = None
        self.shown = 0

    async def run(self, target: ConnectionTarget) -> None:
        options = self._options
        async with open_session(target, self._remark) as session, AsyncExitStack() as stack:
            subscriptions = [
                await stack.enter_async_context(
                    session.subscribe(
                        pattern,
                        where=options.where,
                        xpath=options.xpath,
                        since=options.since,
                        expect=options.expect,
                        qos=options.qos,
                        retain_handling=_RETAINED if options.has_retained else _NOT_RETAINED,
                    )
                )
                for pattern in options.filters
            ]
            for each in subscriptions:
                each.on_state(self._print_state)
                for expected in each.expectations:
                    if expected.state is not None:
                        self._print_state(expected.state)
            self._started_s = self._clock()
            if self._console.is_terminal:
                self._remark(self._banner(target))
            await self._follow(subscriptions)

    def summarise(self) -> None:
        """Print a summary on terminals only."""
        if self._started_s is not None and self._console.is_terminal:
            spent_s = self._clock() - self._started_s
            self._remark(f"{count_text(self.shown, 'event')} in {duration_text(spent_s)}")

    async def _follow(self, subscriptions: list[Subscription]) -> None:
        tasks = [asyncio.create_task(self._show_all(each)) for each in subscriptions]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=self._options.limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show_all(self, subscription: Subscription) -> None:
        names_them = not subscription.pattern.startswith(("+", "#"))
        async for event in subscription:
            if is_internal(event.channel) and not names_them:
                continue
            if self.shown == self._options.count:
                return
            self._show(event)
            self.shown += 1
            if self.shown == self._options.count:
                return

    def _banner(self, target: ConnectionTarget) -> str:
        options = self._options
        condition = options.where if options.xpath is None else options.xpath
        what = ", ".join(options.filters) + (f" where {condition}" if condition else "")
        return f"listening to {what} at {target.address.url}, Ctrl-C ends"

    def _print_state(self, state: ExpectationState) -> None:
        reasons = [
            f"{name} is {'unknown' if now is None else now}" for name, now in state.reasons.items()
        ]
        why = "; ".join([*reasons, state.decision] if state.decision else reasons)
        self._remark(f"{state.expectation}: {state.state}" + (f" ({why})" if why else ""))

    def _remark(self, text: str) -> None:
        print_line(self._console, Text(safe(text), "dim"))

"""`accord sub`: show events as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import typer
from rich.text import Text

from accord.cli.arguments import check_predicate, read_duration_s, read_since
from accord.cli.connection import ConnectionTarget, open_session, run_client
from accord.cli.options import Where, XPathCondition, command
from accord.cli.parameters import argument, flag, option
from accord.client.event_json import json_line
from accord.client.messages import ReceivedEvent
from accord.client.quality import Expectation, ExpectationState, read_expectation_form
from accord.client.subscription import Subscription
from accord.core.model.channels import is_internal
from accord.core.model.errors import InputError
from accord.core.mqtt.codec import problem_with_subscription
from accord.terminal.amounts import count_text, duration_text
from accord.terminal.event_lines import EventPrinter
from accord.terminal.screen import open_console, print_line, safe


@command
def sub(
    filters: list[str] = argument("FILTER...", "Channels, such as demo/feeder/+ or '#'"),
    *,
    where: Where = None,
    xpath: XPathCondition = None,
    since: str | None = option("TIME", "Start with kept events: -24h, 2026-11-16T07:30:00Z, …"),
    expect: list[str] | None = option(
        "JSON", 'Expected quality: {"rate": [5, 10]}; several are alternatives.'
    ),
    qos: int = option(
        "QOS",
        "Maximum QoS of deliveries; QoS 0 may be dropped.",
        "--qos",
        "-q",
        min=0,
        max=2,
        default=1,
    ),
    count: int | None = option("N", "End after N events.", "--count", "-n", min=1),
    limit: str | None = option("TIME", "End after 500ms, 10s, 2min, …", "--for"),
    has_retained: bool = flag(
        "Start with retained events.", "--retained/--no-retained", default=True
    ),
    is_json: bool = flag("A JSON object per line, as `accord predicate` reads.", "--json"),
    is_raw: bool = flag("Payloads only, each with a line end unless --count is 1.", "--raw"),
    target: ConnectionTarget,
) -> None:
    """Show events as they arrive, until Ctrl-C; with --since, kept events first.

    Exit code 0, or 1 if --count was not reached in time; 2 for a usage error.
    """
    if is_json and is_raw:
        raise typer.BadParameter("give one of --json and --raw")
    patterns = tuple(dict.fromkeys(map(_checked, filters)))
    expected = tuple(map(read_expectation, expect or ()))
    limit_s = None if limit is None else read_duration_s(limit, "--for")
    check_predicate(where, xpath)
    if since is not None:
        read_since(since, "--since")
    if is_json:
        show: Show = print_event
    elif is_raw:
        show = partial(_print_payload, has_end=count != 1)
    else:
        show = EventPrinter(open_console(), has_days=since is not None).show
    following = SubRunner(
        patterns,
        show,
        count=count,
        limit_s=limit_s,
        where=where,
        xpath=xpath,
        since=since,
        expect=expected,
        qos=qos,
        retain_handling=_RETAINED if has_retained else _NOT_RETAINED,
    )
    try:
        run_client(following.run(target))
    except KeyboardInterrupt:
        typer.echo(err=True)
    following.summarise()
    raise typer.Exit(0 if count is None or following.shown >= count else 1)


def print_event(event: ReceivedEvent) -> None:
    typer.echo(json_line(event))  # UTF-8 whatever the terminal's encoding


def _print_payload(event: ReceivedEvent, *, has_end: bool) -> None:
    typer.echo(event.payload, nl=has_end)


def _checked(pattern: str) -> str:
    if problem := problem_with_subscription(pattern):
        raise InputError("FILTER", problem)
    return pattern


Show = Callable[[ReceivedEvent], None]

# MQTT's retain handling: send retained events at subscription, or not at all.
_RETAINED: Final = 0
_NOT_RETAINED: Final = 2


def read_expectation(text: str) -> Expectation:
    try:
        return read_expectation_form(text)
    except ValueError as error:
        raise InputError("--expect", str(error)) from None


class SubRunner:
    """Shows events, and counts them; `options` are those of `Session.subscribe`."""

    def __init__(
        self,
        filters: Sequence[str],
        show: Show,
        *,
        count: int | None = None,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._filters = filters
        self._show = show
        self._count = count
        self._limit_s = limit_s
        self._clock = clock
        self._options = options
        self._console = open_console(stderr=True)
        self._started_s: float | None = None
        self.shown = 0

    async def run(self, target: ConnectionTarget) -> None:
        async with open_session(target, self._remark) as session, AsyncExitStack() as stack:
            subscriptions = [
                await stack.enter_async_context(session.subscribe(pattern, **self._options))
                for pattern in self._filters
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
                tasks, timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED
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
            if self.shown == self._count:
                return
            self._show(event)
            self.shown += 1
            if self.shown == self._count:
                return

    def _banner(self, target: ConnectionTarget) -> str:
        condition = self._options.get("where") or self._options.get("xpath")
        what = ", ".join(self._filters) + (f" where {condition}" if condition else "")
        return f"listening to {what} at {target.address.url}, Ctrl-C ends"

    def _print_state(self, state: ExpectationState) -> None:
        reasons = [
            f"{name} is {'unknown' if now is None else now}" for name, now in state.reasons.items()
        ]
        why = "; ".join([*reasons, state.decision] if state.decision else reasons)
        self._remark(f"{state.expectation}: {state.state}" + (f" ({why})" if why else ""))

    def _remark(self, text: str) -> None:
        print_line(self._console, Text(safe(text), "dim"))

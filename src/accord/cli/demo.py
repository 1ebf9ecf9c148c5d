"""`accord demo …`: scenarios that run by themselves."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rich.live import Live

    from accord.apps.targeting.meters import Meters
    from accord.apps.targeting.story import Act

_FILE_WIDTH: Final = 120

app = typer.Typer(no_args_is_help=True, help="Watch a scenario that runs by itself.")


@app.callback()
def demo() -> None:
    """Watch a scenario that runs by itself."""


@app.command("targeting")
def targeting(
    *,
    seconds: Annotated[
        str, typer.Option("--seconds-per-phase", "-s", metavar="TIME", help="Of each phase.")
    ] = "20s",
    is_plain: Annotated[
        bool, typer.Option("--plain", help="A table at the end of each phase, nothing that moves.")
    ] = False,
) -> None:
    """Time-critical targeting: images, reports and tracks share a link that gets too small.

    Starts a node of its own on free ports of this machine, with temporary data, and six clients
    that publish about 1 Mbit/s. Phase 1 has no limit, phase 2 one of 800 kbit/s; then preferences
    change (3a), then importances (3b).
    """
    from accord.cli.quantities import read_duration_s
    from accord.cli.screen import open_console

    seconds_s = read_duration_s(seconds, "--seconds-per-phase")
    is_live = open_console().is_terminal and not is_plain
    try:
        asyncio.run(_play(seconds_s, is_live=is_live))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _play(seconds: float, *, is_live: bool) -> None:
    from accord.apps.targeting.cast import film_for, make_cast
    from accord.apps.targeting.play import Play
    from accord.apps.targeting.story import acts
    from accord.cli.demo_node import start_node
    from accord.cli.screen import open_console, say

    console = open_console()
    say(console, "Starting a node, painting what the cameras will see …")
    story = acts()
    node = await start_node()
    screen = Screen(is_live=is_live)
    try:
        sources = await asyncio.to_thread(make_cast, film_for(len(story) * seconds))
        say(console, f"Node at {node.mqtt_url}, its API at {node.http_url}.\n")
        play = Play(node.mqtt_url, node, sources, on_tick=screen.tick, on_act=screen.end)
        await play.run(story, seconds)
        screen.close(play.meters)
    finally:
        screen.stop()
        await node.stop()


class Screen:
    """A phase moves in its place while it runs, and stays as a table when it is over."""

    def __init__(self, *, is_live: bool) -> None:
        from accord.cli.screen import open_console

        self._console = open_console()
        if not self._console.is_terminal:
            self._console.width = _FILE_WIDTH
        self._is_live = is_live
        self._live: Live | None = None

    def tick(self, act: Act, meters: Meters) -> None:
        from rich.live import Live

        from accord.cli.demo_screen import draw_phase

        if not self._is_live:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(draw_phase(act, meters, self._console.width), refresh=True)

    def end(self, act: Act, meters: Meters) -> None:
        from accord.cli.demo_screen import draw_phase, draw_words

        self.stop()
        self._console.print(draw_phase(act, meters, self._console.width))
        self._console.print(draw_words(meters))

    def close(self, meters: Meters) -> None:
        from accord.cli.demo_screen import draw_summary

        self._console.print(draw_summary(meters, self._console.width))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

"""`accord demo five-cities`: combines network, scenario and screen."""

from __future__ import annotations

from rich.console import Console
from rich.status import Status

from accord.apps.five_cities.cities import CITIES
from accord.apps.five_cities.phases import CityPhase, CityPhasePlan, acts
from accord.apps.five_cities.scenario import FiveCitiesScenario
from accord.cli.five_cities_net import FiveCities
from accord.cli.five_cities_screen import draw_act, draw_phase, draw_summary, draw_total
from accord.cli.screen import print_line


class PhaseReporter:
    """Reports the phases; on a terminal, with a spinner until the result is known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def begin(self, act: CityPhasePlan) -> None:
        self._console.print(draw_act(act))
        self.wait("watching what becomes of the events …")

    def wait(self, words: str) -> None:
        self.stop()
        if self._console.is_terminal:
            self._status = self._console.status(words)
            self._status.start()

    def end(self, phase: CityPhase) -> None:
        self.stop()
        self._console.print(draw_phase(phase))

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


async def play_five_cities(console: Console, net: FiveCities, seconds: float) -> FiveCitiesScenario:
    """Run the whole scenario on `console`."""
    teller = PhaseReporter(console)
    print_line(console, "Starting five nodes, and links between them that take their time …")
    try:
        teller.wait("until all know each other …")
        async with net:
            teller.stop()
            where = (f"  {city:12} {net.nodes[city].http_url}\n" for city in CITIES)
            print_line(console, f"Nodes:\n{''.join(where)}")
            play = FiveCitiesScenario(
                net.urls,
                net,
                paths=net.paths,
                channels=net.channels,
                on_begin=teller.begin,
                on_act=teller.end,
            )
            story = acts(net.stretch)
            await play.run(story, [seconds] * len(story))
    finally:
        teller.stop()
    console.print(draw_summary(play.phases))
    console.print()
    for meter in play.meters.values():
        print_line(console, draw_total(meter))
    return play

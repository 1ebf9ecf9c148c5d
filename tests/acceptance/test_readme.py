"""Every row of the tables of commands, in README and docs/START.md, does what it says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

import pytest

from tests.acceptance.machine import ROOT, Machine, program

Check = Callable[[Machine, str], None]
PAGES: Final = ("README.md", "docs/START.md")


def rows(page: str) -> list[list[str]]:
    """The commands of each row of the table; what is only named, such as `explain`, is not one."""
    text = (ROOT / page).read_text("utf-8")
    lines = text[text.index("| command | shows |") :].split("\n\n")[0].splitlines()[2:]
    return [
        [each for each in re.findall(r"`([^`]+)`", line.split("|")[1]) if " " in each]
        for line in lines
    ]


def prints(*words: str) -> Check:
    """It ends by itself, and shows all of these."""

    def check(machine: Machine, command: str) -> None:
        printed = machine.run(command, within_s=300)
        for word in words:
            assert word in printed, printed

    return check


def shows(*words: str) -> Check:
    """It goes on until it is stopped, and has shown all of these by then."""

    def check(machine: Machine, command: str) -> None:
        running = machine.start(f"exec {command}")
        running.wait_for(lambda text: all(word in text for word in words), f"{words}", 120)
        running.stop()

    return check


def why_of_an_event(machine: Machine, command: str) -> None:
    reader = machine.start("exec accord sub demo/readme")
    while "no one listens" in (said := machine.run("accord pub demo/readme hello --qos 1")):
        pass
    published = re.search(r"event (\w+)", said)
    assert published is not None
    reader.wait_for(lambda text: "hello" in text, "event", 60)
    assert "delivered" in machine.run(command.replace("EVENT", published[1]))
    reader.stop()


def found(machine: Machine, command: str) -> None:
    """There is something to find when the demonstration has run for a moment."""
    machine.run("accord status --wait 2min --pipeline", within_s=150)
    until_s = time.monotonic() + 120
    while "demo/feeder/" not in machine.run(command):
        assert time.monotonic() < until_s


def a_limit(machine: Machine, command: str) -> None:
    """Removed again: pages show the limits of the same node."""
    assert "version" in machine.run(command)
    machine.run("accord policy limit --none")


def a_report(machine: Machine, command: str) -> None:
    machine.run(command)
    assert "<svg" in (machine.folder / "report.html").read_text()


def a_valid_file(machine: Machine, command: str) -> None:
    machine.run(command.replace("accord.toml", "written.toml"))
    assert "good" in machine.run("accord config --check written.toml")


def an_agent(machine: Machine, command: str) -> None:
    """Advised as soon as somebody expects more."""
    agent = machine.start(f"exec {command}")
    agent.wait_for(lambda text: "rate 2" in text, "program that runs", 60)
    machine.start("exec accord sub 'lab/#' --expect '{\"rate\": [10, 20]}'")
    agent.wait_for(lambda text: "rate 10" in text, "advice", 60)
    agent.stop()


# `accord demo …` is in test_demonstrations, and in tests/scenarios.
CHECKS: Final[dict[str, Check]] = {
    "accord pub grid/camera/cedar -f photo.jpg -a substation=cedar": prints("grid/camera/cedar"),
    "mosquitto_sub -V 5 -t 'demo/#' -D subscribe user-property where \"customers > 500\"": shows(
        "customers without supply"
    ),
    "accord policy set Alarms --channel 'grid/+/alarm' --importance 6": prints("version"),
    "accord policy limit --client crew-1 '300 kbit/s'": a_limit,
    "accord query 'demo/feeder/+' --where \"load_mw > 4\" --since -1h": found,
    "accord sub 'demo/#' --since -10min": shows("demo/feeder/", "demo/transformer/"),
    "accord why": prints("demo/"),
    "accord why EVENT": why_of_an_event,
    "accord top": shows("demo/feeder/"),
    "accord status --watch": shows("control-room", "events/s"),
    "accord report --last 1h --html report.html": a_report,
    "accord clients ls --sort queued_bytes --descending": prints("demo-dispatcher", "connected"),
    "accord channel activity --search feeder": prints("demo/feeder/F-21", "demo/feeder/F-34"),
    "accord net": prints("control-room"),
    "accord net trace grid/alarm": prints("grid/alarm"),
    "accord quality": prints("profile"),
    "accord admission": prints("mode off"),
    "accord agent --config examples/agent/agent.toml -- python examples/agent/sensor.py": an_agent,
    "accord sim run examples/scenario.toml --seed 7": prints("uav/imagery", "delivered"),
    "accord bench --spawn": prints("delivered", "per event delivered"),
    "accord config > accord.toml": a_valid_file,
    'accord predicate match "load_mw > 4"': prints("load_mw"),
}
COMMANDS: Final = [
    command
    for page in PAGES
    for row in rows(page)
    for command in row
    if not command.startswith("accord demo ")
]


def test_each_row_has_a_check() -> None:
    assert sorted(COMMANDS) == sorted(CHECKS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command(default: Machine, command: str) -> None:
    if command.startswith("mosquitto_sub") and not program("mosquitto_sub"):
        pytest.skip("mosquitto_sub is not installed (make peers)")
    (default.folder / "photo.jpg").write_bytes(b"\xff\xd8\xff" + bytes(20_000))
    CHECKS[command](default, command)

"""The build that users get: the node and its pipeline say which it is, and answer."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

from tests.acceptance.machine import AcceptanceError, Machine

BUILD = "native extension" if shutil.which("cc") else "no native extension"


def status(machine: Machine) -> Any:
    return json.loads(machine.run("accord status --json"))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > until_s:
            raise AcceptanceError(f"{what} is not as it should be within 120 s")
        time.sleep(0.5)


def test_node_and_pipeline_run_the_installed_build(default: Machine) -> None:
    assert default.node is not None
    assert f"({BUILD}): node " in default.node.text()
    wait_until(
        lambda: status(default)["statistics"]["pipeline"]["state"] == "ready",
        "the pipeline's state",
    )
    said = status(default)
    assert (said["build"], said["statistics"]["pipeline"]["build"]) == (BUILD, BUILD)
    assert default.run("accord status").count(f"({BUILD})") == 2
    place = default.run("python -c 'import accord; print(accord.__file__)'")
    assert "site-packages" in place


def test_query_report_and_history_answer(default: Machine) -> None:
    """All that a pipeline does, as the first release could not."""
    for number in range(3):
        default.run(f"accord pub demo/acceptance/{number} text -a number={number} --qos 1")
    answer = default.run("accord query 'demo/acceptance/+' --where 'number >= 1' --format json")
    assert sorted(json.loads(line)["channel"] for line in answer.splitlines()) == [
        "demo/acceptance/1",
        "demo/acceptance/2",
    ]
    history = default.start("accord sub 'demo/acceptance/+' --since -10min")
    history.wait_for(lambda text: text.count("demo/acceptance/") >= 3, "the three events", 60)
    default.run("accord pub demo/acceptance/live text")
    history.wait_for(lambda text: "demo/acceptance/live" in text, "live event", 60)
    wait_until(lambda: "demo/acceptance" in default.run("accord report --last 1h"), "the report")


def test_persistent_channels_give_the_past_and_go_on_live(default: Machine) -> None:
    default.run("accord channel create 'log/#' --template total_order --persistent")
    default.run("accord pub log/one first --qos 1")
    listener = default.start("accord sub 'log/#'")
    listener.wait_for(lambda text: "first" in text, "past event", 60)
    default.run("accord pub log/one second --qos 1")
    listener.wait_for(lambda text: "second" in text, "live event", 60)
    assert "accord-" not in listener.text()
    default.run("accord channel rm 'log/#'")

"""Quality from end to end: a node, paho clients, and an agent that adapts a real program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ports import free_port
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from typer.testing import CliRunner

from accord.cli.main import app
from tests.brokers import HOST, Broker, accord_only, start_accord
from tests.net_nodes import start_nodes, wait_until
from tests.scenarios.properties import properties_of
from tests.scenarios.test_paho import V5, WAIT_S, Paho

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent"
EXPECTATIONS = "$accord/expectations"

pytestmark = accord_only


@contextmanager
def joined(broker: Broker, name: str, *topics: str) -> Iterator[Paho]:
    paho = Paho(broker, V5, name)
    try:
        for topic in topics:
            paho.subscribed(topic, 1)
        yield paho
    finally:
        paho.leave()


def heard(paho: Paho, topic: str) -> Any:
    """The next message there."""
    while True:
        message: MQTTMessage = paho.messages.get(timeout=WAIT_S)
        if message.topic == topic:
            return json.loads(message.payload)


def expecting(paho: Paho, pattern: str, **expect: object) -> None:
    user = [("expect", json.dumps(expect))]
    paho.subscribed(pattern, 1, properties_of(PacketTypes.SUBSCRIBE, UserProperty=user))


def until_state(paho: Paho, state: str) -> Any:
    while (found := heard(paho, EXPECTATIONS))["state"] != state:
        pass
    return found


@contextmanager
def agent(folder: Path, url: str, apply: str = "restart") -> Iterator[subprocess.Popen[str]]:
    """The example that ships, with the node's address and a program of the test's own Python."""
    for file in EXAMPLE.iterdir():
        if file.is_file():
            text = file.read_text().replace("mqtt://127.0.0.1:1883", url)
            (folder / file.name).write_text(text.replace('apply = "restart"', f'apply = "{apply}"'))
    command = [sys.executable, "-m", "accord", "agent", "--config", str(folder / "agent.toml")]
    command += ["--url", url, "--", sys.executable, str(folder / "sensor.py")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, said
        assert "Traceback" not in said, said
    finally:
        process.kill()
        process.wait()


def period_ms(folder: Path) -> float:
    found: float = json.loads((folder / "sensor.json").read_text())["period_ms"]
    return found


def test_an_agent_adapts_a_sensor_to_what_is_expected(tmp_path: Path) -> None:
    http = f"{HOST}:{free_port()}"
    with start_accord(extra=["--http", http]) as broker:
        url = f"mqtt://{HOST}:{broker.port}"
        with agent(tmp_path, url) as running, joined(broker, "desk", EXPECTATIONS) as desk:
            assert running.stderr is not None
            assert "rate 2 on lab/temperature" in running.stderr.readline()
            assert period_ms(tmp_path) == 500
            expecting(desk, "lab/#", rate=[10, 20], utility=3, id="often")
            assert until_state(desk, "satisfied")["expectation"] == "often"
            assert 50 <= period_ms(tmp_path) <= 100
            assert "advised: rate" in running.stderr.readline()
            while not desk.messages.empty():
                desk.messages.get()
            assert 15 <= heard(desk, "lab/temperature") <= 25  # of the program as it runs now
            wish = ["sub", "lab/#", "--expect", '{"rate": 1, "id": "some"}', "-n", "1"]
            followed = CliRunner().invoke(app, wish, env={"ACCORD_URL": url})
            assert "some: satisfied" in followed.stderr
            said = CliRunner().invoke(
                app, ["quality"], env={"ACCORD_HTTP_URL": f"http://{http}", "COLUMNS": "160"}
            )
            assert said.exit_code == 0
            assert "often" in said.output
            assert "satisfied" in said.output


def test_a_program_that_ends_ends_its_agent(tmp_path: Path) -> None:
    with start_accord() as broker:
        url = f"mqtt://{HOST}:{broker.port}"
        (tmp_path / "agent.toml").write_text((EXAMPLE / "agent.toml").read_text())
        (tmp_path / "sensor.json.in").write_text("{{rate}}")
        command = [sys.executable, "-m", "accord", "agent", "--url", url, "--config"]
        command += [str(tmp_path / "agent.toml"), "--", sys.executable, "-c", "raise SystemExit(3)"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 3, done.stderr
        assert (tmp_path / "sensor.json").read_text() == "2"


def test_advice_crosses_nodes() -> None:
    with (
        start_nodes({"west": (), "east": ("west",)}) as nodes,
        joined(nodes["east"].broker, "desk", EXPECTATIONS) as desk,
    ):
        with joined(nodes["west"].broker, "sensor", "answers", "$accord/advice") as sensor:
            rate = {"range": [1, 50], "current": 2}
            ask(sensor, do="register", channel="lab/t", capabilities={"rate": rate})
            expecting(desk, "lab/t", rate=[10, 20], latency=[None, 10_000], id="often")
            advice = heard(sensor, "$accord/advice")
            assert (advice["property"], advice["channel"]) == ("rate", "lab/t")
            ask(sensor, do="update", channel="lab/t", current={"rate": advice["target"]})
            until_state(desk, "satisfied")
            listed = nodes["east"].accord("quality", "--json")
            (channel,) = json.loads(listed.stdout)["channels"]
            assert [each["state"] for each in channel["expectations"]] == ["satisfied"]
            assert channel["skylines"][0]["members"] != []
        assert until_state(desk, "unsatisfied")["expectation"] == "often"


def test_properties_are_known_at_all_nodes(tmp_path: Path) -> None:
    file = tmp_path / "colour.properties"
    file.write_text("name = colour\nlevels = grey < few < full\nbetter = higher\n")
    with start_nodes({"west": (), "east": ("west",)}) as nodes:
        assert nodes["west"].accord("quality", "define", str(file)).output == "defined: colour\n"
        wait_until(
            lambda: "grey < few < full" in nodes["east"].accord("quality", "properties").output
        )


def ask(paho: Paho, **request: object) -> None:
    """Of the node, and be told that it was done."""
    properties = properties_of(PacketTypes.PUBLISH, ResponseTopic="answers")
    paho._client.publish("$accord/capabilities", json.dumps(request), 1, properties=properties)
    assert heard(paho, "answers")["ok"]

"""The command-line clients that everybody has: mosquitto_pub, mosquitto_sub, mosquitto_rr."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.brokers import Broker, accord_only, deviates

WAIT_S: Final = 20
STDBUF: Final = shutil.which("stdbuf")
VERSIONS: Final = ("mqttv311", "mqttv5")

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None or STDBUF is None,
    reason="mosquitto's clients are not installed",
)


class Listener:
    """A mosquitto_sub and what it prints of messages."""

    def __init__(self, command: list[str]) -> None:
        assert STDBUF is not None
        # Debug lines tell when it is subscribed; stdbuf hands them over one by one.
        self._process = subprocess.Popen(
            [STDBUF, "-oL", *command, "-d"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.lines: list[str] = []

    def wait_until_subscribed(self) -> None:
        for line in self._output:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("Subscribed"):
                return
        pytest.fail("not subscribed:\n" + "\n".join(self.lines))

    def printed(self) -> list[str]:
        """The lines that are messages, once it has ended by itself."""
        self.lines += [line.rstrip("\n") for line in self._output]
        return [line[1:] for line in self.lines if line.startswith(">")]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


Listen = Callable[..., Listener]
Publish = Callable[..., str]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


only_5: Final = pytest.mark.parametrize("version", ["mqttv5"])


def _command(program: str, broker: Broker, version: str, *options: str) -> list[str]:
    return [program, "-h", broker.host, "-p", str(broker.port), "-V", version, *options]


@pytest.fixture
def listen(broker: Broker, version: str) -> Iterator[Listen]:
    """Start mosquitto_sub: it ends after `count` messages."""
    listeners: list[Listener] = []

    def start(
        topic: str, *options: str, count: int = 1, form: str = ">%p", is_new: bool = True
    ) -> Listener:
        limits = ["-C", str(count), "-W", str(WAIT_S), "-F", form]
        command = _command("mosquitto_sub", broker, version, "-t", topic, *limits, *options)
        listener = Listener(command)
        listeners.append(listener)
        if is_new:
            listener.wait_until_subscribed()
        return listener

    yield start
    for listener in listeners:
        listener.kill()


@pytest.fixture
def publish(broker: Broker, version: str) -> Publish:
    """Run mosquitto_pub to its end."""

    def run(topic: str, *options: str) -> str:
        command = _command("mosquitto_pub", broker, version, "-t", topic, *options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_publish_and_subscribe(listen: Listen, publish: Publish, topic: str, qos: str) -> None:
    sub = listen(topic, "-q", qos, count=3, form=">%t %q %p")
    for number in range(3):
        publish(topic, "-q", qos, "-m", str(number))
    assert sub.printed() == [f"{topic} {qos} {number}" for number in range(3)]


@pytest.mark.parametrize(
    ("version", "qos"),
    [
        *((version, qos) for version in VERSIONS for qos in ("0", "1")),
        ("mqttv311", "2"),
        pytest.param("mqttv5", "2", marks=deviates("miscounts its receive maximum")),
    ],
)
def test_many_lines(broker: Broker, version: str, listen: Listen, topic: str, qos: str) -> None:
    """One publisher, many messages: `mosquitto_pub -l`."""
    lines = [f"line {number}" for number in range(500)]
    sub = listen(topic, "-q", qos, count=len(lines))
    command = _command("mosquitto_pub", broker, version, "-t", topic, "-q", qos, "-l")
    subprocess.run(command, input="\n".join(lines), text=True, timeout=WAIT_S, check=True)
    assert sub.printed() == lines


def test_wildcards(listen: Listen, publish: Publish, topic: str) -> None:
    sub = listen(f"{topic}/+/end", "-t", f"{topic}/deep/#", count=3, form=">%t")
    for each in ("a/end", "a/other", "deep", "deep/er"):
        publish(f"{topic}/{each}", "-m", "x")
    assert sub.printed() == [f"{topic}/{each}" for each in ("a/end", "deep", "deep/er")]


def test_retained(listen: Listen, publish: Publish, topic: str) -> None:
    publish(topic, "-m", "kept", "-r", "-q", "1")
    assert listen(topic, form=">%r %p").printed() == ["1 kept"]
    publish(topic, "-n", "-r", "-q", "1")
    sub = listen(topic, form=">%r %p")
    publish(topic, "-m", "new", "-q", "1")
    assert sub.printed() == ["0 new"]


def test_a_will(listen: Listen, topic: str) -> None:
    witness = listen(f"{topic}/will")
    listen(topic, "--will-topic", f"{topic}/will", "--will-payload", "gone").kill()
    assert witness.printed() == ["gone"]


def test_a_session_is_resumed(
    broker: Broker, version: str, listen: Listen, publish: Publish, topic: str
) -> None:
    name = topic.replace("/", "-")
    stays = ["-c", "-i", name, "-q", "1"]
    command = _command("mosquitto_sub", broker, version, "-t", topic, *stays, "-E")
    subprocess.run(command, timeout=WAIT_S, check=True)
    for number in range(5):
        publish(topic, "-q", "1", "-m", str(number))
    sub = listen(topic, *stays, count=5, is_new=False)
    assert sub.printed() == [str(number) for number in range(5)]


def test_a_large_payload(listen: Listen, publish: Publish, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"0123456789abcdef" * 65_536)
    sub = listen(topic, "-q", "1", form=">%l %p")
    publish(topic, "-q", "1", "-f", str(path))
    assert sub.printed() == [f"{1 << 20} {path.read_text()}"]


@only_5
def test_properties_arrive_unchanged(listen: Listen, publish: Publish, topic: str) -> None:
    properties = {
        "content-type": "text/plain",
        "response-topic": f"{topic}/answer",
        "correlation-data": "abc",
        "payload-format-indicator": "1",
        "message-expiry-interval": "1000",
    }
    options = [
        part for name, value in properties.items() for part in ("-D", "publish", name, value)
    ]
    for name, value in (("b", "1"), ("a", "2")):
        options += ["-D", "publish", "user-property", name, value]
    sub = listen(topic, "-q", "1", form=">%j")
    publish(topic, "-q", "1", "-m", "x", *options)
    said: dict[str, Any] = json.loads(sub.printed()[0])["properties"]
    assert 0 < said.pop("message-expiry-interval") <= 1000
    assert said == {
        "content-type": "text/plain",
        "response-topic": f"{topic}/answer",
        "correlation-data": "abc",
        "payload-format-indicator": 1,
        "user-properties": {"b": "1", "a": "2"},
    }


@only_5
def test_a_shared_subscription(listen: Listen, publish: Publish, topic: str) -> None:
    """One takes its message and leaves, so the other gets the next."""
    members = [listen(f"$share/g/{topic}", "-q", "1") for _ in range(2)]
    for number in range(2):
        publish(topic, "-q", "1", "-m", str(number))
    assert sorted(line for member in members for line in member.printed()) == ["0", "1"]


@only_5
def test_request_and_response(
    broker: Broker, version: str, listen: Listen, publish: Publish, topic: str
) -> None:
    answerer = listen(topic, form=">%R %D %p")
    answers = f"{topic}/answers"
    command = _command("mosquitto_rr", broker, version, "-t", topic, "-e", answers)
    command += ["-m", "question", "-D", "publish", "correlation-data", "c1", "-W", str(WAIT_S)]
    asker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert answerer.printed() == [f"{answers} c1 question"]
        publish(answers, "-m", "answer", "-D", "publish", "correlation-data", "c1")
        output, _ = asker.communicate(timeout=WAIT_S)
    finally:
        asker.kill()
        asker.wait()
    assert output.strip() == "answer"


@only_5
@accord_only
def test_a_predicate_selects(listen: Listen, publish: Publish, topic: str) -> None:
    where = ["-D", "subscribe", "user-property", "where", "altitude_m > 300"]
    sub = listen(topic, *where, count=2)
    for altitude_m in ("100", "400", "300", "500"):
        attribute = ["-D", "publish", "user-property", "altitude_m", altitude_m]
        publish(topic, "-m", altitude_m, *attribute)
    assert sub.printed() == ["400", "500"]


@only_5
@accord_only
def test_a_bad_predicate_is_refused(broker: Broker, version: str, topic: str) -> None:
    where = ["-D", "subscribe", "user-property", "where", "altitude_m >"]
    command = _command("mosquitto_sub", broker, version, "-t", topic, *where, "-W", str(WAIT_S))
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "denied" in done.stderr

"""A RabbitMQ of our own: a private node on loopback, in a temporary folder, gone at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pika
from pika.exceptions import AMQPConnectionError

from accord.core.model.event import Event
from accord.core.predicates.tree import Attribute, Compare, Literal, walk
from benchmarks.ports import free_ports
from benchmarks.processes import started
from benchmarks.workloads import Keyed

# More queues would cost the broker more per message, fewer would check less.
QUEUES: Final = 8
_START_S: Final = 60
# Without busy waiting, which counts as CPU time and would be held against the broker.
_ERLANG: Final = (
    "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
)


def missing() -> str | None:
    """Why there is no RabbitMQ to compare with, or None where there is one."""
    for program in ("rabbitmq-server", "epmd"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt-get install rabbitmq-server)"
    return None


class Broker:
    """A running node, and a connection to it."""

    def __init__(self, process_id: int, port: int) -> None:
        self._process_id = process_id
        self._connection = _connect(port)
        self._channel = self._connection.channel()
        for number in range(QUEUES):
            # Nothing reads the queues while time is taken: they must not grow.
            limits = {"x-max-length": 10}
            self._channel.queue_declare(f"queue-{number}", auto_delete=True, arguments=limits)

    def bind(self, exchange: str, predicates: Iterable[Keyed]) -> None:
        """A headers exchange with one binding per predicate, spread over the queues."""
        self._channel.exchange_declare(exchange, "headers", auto_delete=False)
        for key, predicate in predicates:
            arguments: dict[str, Any] = {"x-match": "all", "x-key": key}
            for node in walk(predicate.tree):
                if isinstance(node, Compare):
                    assert isinstance(node.left, Attribute)
                    assert isinstance(node.right, Literal)
                    arguments[node.left.name] = node.right.value
            self._channel.queue_bind(f"queue-{key % QUEUES}", exchange, arguments=arguments)

    def publish(self, exchange: str, events: Sequence[Event]) -> None:
        """Returns when the broker has routed all of them."""
        for event in events:
            properties = pika.BasicProperties(headers=dict(event.attributes))
            self._channel.basic_publish(exchange, "", b"", properties)
        self._channel.queue_declare("queue-0", passive=True)

    def reached(self, exchange: str, event: Event) -> set[int]:
        """The numbers of the queues that `event` is routed to."""
        for number in range(QUEUES):
            self._channel.queue_purge(f"queue-{number}")
        self.publish(exchange, [event])
        return {
            number
            for number in range(QUEUES)
            if self._channel.basic_get(f"queue-{number}", auto_ack=True)[0] is not None
        }

    def cpu_s(self) -> float:
        """CPU time that the node has used so far."""
        fields = Path(f"/proc/{self._process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def running() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as folder:
        mapper_port, distribution_port, port = free_ports(3)
        environment = _environment(Path(folder), mapper_port, distribution_port, port)
        mapper, server = ["epmd"], [_server()]
        with started(mapper, environment), started(server, environment) as process:
            broker = Broker(process.pid, port)
            yield broker
            broker.close()


def _server() -> str:
    # Debian's command is a wrapper that changes user and folder; the server itself lies beside it.
    found = shutil.which("rabbitmq-server")
    assert found is not None
    return str(Path(found).resolve().with_name("rabbitmq-server"))


def _environment(
    folder: Path, mapper_port: int, distribution_port: int, port: int
) -> dict[str, str]:
    ours = {
        "HOME": folder,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": mapper_port,
        "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": distribution_port,
        "RABBITMQ_CONFIG_FILE": folder / "rabbitmq",
        "RABBITMQ_CONF_ENV_FILE": folder / "rabbitmq-env.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "RABBITMQ_MNESIA_BASE": folder / "mnesia",
        "RABBITMQ_LOG_BASE": folder / "log",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
        # Then the script becomes the server instead of starting it, and signals reach it.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    return {**os.environ, **{name: str(value) for name, value in ours.items()}}


def _connect(port: int) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", port)
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return pika.BlockingConnection(parameters)
        except AMQPConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)

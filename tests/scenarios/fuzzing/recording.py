"""What real clients say to a node, heard in between."""

from __future__ import annotations

import asyncio
import shutil

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.brokers import HOST


async def record(port: int) -> list[bytes]:
    """What paho and mosquitto's clients, where there are any, say to the node at `port`."""
    conversations: list[bytearray] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        conversations.append(heard)
        node_reader, node_writer = await asyncio.open_connection(HOST, port)
        async with asyncio.TaskGroup() as both_ways:
            both_ways.create_task(_pass_on(node_reader, writer))
            both_ways.create_task(_pass_on(reader, node_writer, heard))

    async with await asyncio.start_server(relay, HOST, 0) as server:
        relay_port = server.sockets[0].getsockname()[1]
        for version in (paho.MQTTv311, paho.MQTTv5):
            await asyncio.to_thread(_use_paho, relay_port, version)
        await _use_mosquitto(relay_port)
    return [bytes(each) for each in conversations if each]


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: bytearray | None = None
) -> None:
    try:
        while data := await reader.read(65_536):
            if heard is not None:
                heard += data
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


def _use_paho(port: int, version: int) -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, f"paho{version}", protocol=version)  # type: ignore[arg-type]
    client.will_set("fuzz/will", b"gone", 1)
    client.connect(HOST, port)
    client.loop_start()
    client.subscribe([("fuzz/a", 2), ("fuzz/b/#", 1)])
    for qos in (0, 1, 2):
        client.publish("fuzz/a", f"from paho, {qos}", qos).wait_for_publish(10)
    client.unsubscribe("fuzz/a")
    client.publish("fuzz/b", b"last", 2, retain=True).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


async def _use_mosquitto(port: int) -> None:
    program = shutil.which("mosquitto_pub")
    if program is None:
        return
    where = ("-h", HOST, "-p", str(port))
    for version in ("mqttv311", "mqttv5"):
        said = ("-V", version, "-t", "fuzz/b/c", "-q", "2", "-m", "from mosquitto_pub")
        process = await asyncio.create_subprocess_exec(program, *where, *said)
        await asyncio.wait_for(process.wait(), 10)

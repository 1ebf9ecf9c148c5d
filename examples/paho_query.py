"""Ask a node for kept events with Paho, which knows nothing of Accord (`pip install paho-mqtt`).

python examples/paho_query.py 'demo/pump/#' 'temperature_c > 30'
"""

from __future__ import annotations

import json
import sys
from queue import Queue

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def main(channel: str, where: str) -> None:
    answers: Queue[MQTTMessage] = Queue()
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    client.on_message = lambda _client, _data, message: answers.put(message)
    client.connect("localhost")
    client.subscribe("answers/me")
    client.loop_start()
    request = Properties(PacketTypes.PUBLISH)
    request.ResponseTopic = "answers/me"
    request.CorrelationData = b"1"
    question = {"do": "find", "channel": channel, "where": where, "since": "-24h", "page": 1_000}
    client.publish("$accord/query", json.dumps(question), qos=1, properties=request)
    while True:
        answer = answers.get(timeout=60)
        named = dict(answer.properties.UserProperty)
        if named.get("accord-page") == "end":
            print(json.loads(answer.payload))
            break
        print(named["accord-channel"], named["accord-received-ms"], answer.payload)
    client.loop_stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])

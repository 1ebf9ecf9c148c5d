"""A sensor that publishes a temperature as often as its configuration says.

It knows nothing of quality: it is any MQTT program with a configuration file. Run under an agent,
it publishes as often as its subscribers need:

    accord agent --config examples/agent/agent.toml -- python examples/agent/sensor.py
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import accord


def main(file: Path) -> None:
    settings = json.loads(file.read_text())
    started_s = time.monotonic()
    url = os.environ.get("ACCORD_URL", settings["url"])
    with accord.connect_sync(url, client_id=settings["client"]) as session:
        while True:
            celsius = 20 + 5 * math.sin((time.monotonic() - started_s) / 60)
            session.publish(settings["channel"], f"{celsius:.2f}", qos=0, celsius=celsius)
            time.sleep(settings["period_ms"] / 1_000)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("sensor.json"))

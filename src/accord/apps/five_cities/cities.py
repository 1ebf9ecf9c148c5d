"""The cities, the links between them, and the channels of the scenario.

The latencies are chosen so that each failure has a visible consequence. A link takes about as long
as light in a fibre of that length. Seattle has two links. Alerts for Washington must arrive within
90 ms: by way of Denver they take 29 ms, by way of Los Angeles 38; if the link to Denver takes 85 ms
instead of 12, that path takes 102. Waveforms for Orlando have 250 ms, so that change does not
affect them. From Los Angeles one path leads over Denver (38 ms in all), and one over Orlando (53),
which is taken when Denver is down.

On a machine too busy for this precision, everything can be stretched: links, limits and pings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

SEATTLE: Final = "Seattle"
LOS_ANGELES: Final = "Los-Angeles"
DENVER: Final = "Denver"
WASHINGTON: Final = "Washington"
ORLANDO: Final = "Orlando"
CITIES: Final = (SEATTLE, LOS_ANGELES, DENVER, WASHINGTON, ORLANDO)

LOCATIONS: Final[Mapping[str, tuple[float, float]]] = {
    SEATTLE: (47.61, -122.33),
    LOS_ANGELES: (34.05, -118.24),
    DENVER: (39.74, -104.99),
    WASHINGTON: (38.91, -77.04),
    ORLANDO: (28.54, -81.38),
}

Pair = tuple[str, str]

# In milliseconds, one way; the first of each pair dials the second.
LINKS: Final[Mapping[Pair, int]] = {
    (SEATTLE, DENVER): 12,
    (SEATTLE, LOS_ANGELES): 11,
    (LOS_ANGELES, DENVER): 10,
    (LOS_ANGELES, WASHINGTON): 27,
    (LOS_ANGELES, ORLANDO): 30,
    (DENVER, WASHINGTON): 17,
    (DENVER, ORLANDO): 17,
    (WASHINGTON, ORLANDO): 12,
}
JITTER_MS: Final = 1.0
SLOW_LINK: Final[Pair] = (SEATTLE, DENVER)
SLOW_MS: Final = 85

SOURCE: Final = SEATTLE
RATE_HZ: Final = 200
PAYLOAD_BYTES: Final = 100


@dataclass(frozen=True)
class CityChannel:
    """A channel published in Seattle for another city, to arrive within `max_delay_ms`."""

    name: str
    destination: str
    max_delay_ms: int


TIGHT: Final = CityChannel("seismic/alert", WASHINGTON, 90)
LOOSE: Final = CityChannel("seismic/waveform", ORLANDO, 250)
CHANNELS: Final = (TIGHT, LOOSE)


def stretched(channel: CityChannel, stretch: float) -> CityChannel:
    return replace(channel, max_delay_ms=round(channel.max_delay_ms * stretch))


def configuration(
    city: str, dials: Sequence[int], channels: Sequence[CityChannel], *, ping_ms: int, paths: int
) -> str:
    """The accord.toml of a city's node, whose neighbours listen on these ports."""
    neighbours = ", ".join(f'"127.0.0.1:{port}"' for port in dials)
    lines = [
        "[node]",
        f'name = "{city}"',
        f"location = {list(LOCATIONS[city])}",
        'data = ""',
        "[listen]",
        'mqtt = "127.0.0.1:0"',
        'websocket = ""',
        'http = "127.0.0.1:0"',
        "[pipeline]",
        "enabled = false",
        "[net]",
        'listen = "127.0.0.1:0"',
        f"neighbours = [{neighbours}]",
        f"ping_ms = {ping_ms}",
    ]
    if city == SOURCE:  # other nodes receive the definition from there
        for channel in channels:
            lines += [
                f'[channels."{channel.name}"]',
                f"max_delay_ms = {channel.max_delay_ms}",
                f"paths = {paths}",
            ]
    return "\n".join(lines) + "\n"


def city_text(city: str) -> str:
    return city.replace("-", " ")


def path_text(path: tuple[str, ...]) -> str:
    return " → ".join(map(city_text, path))

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from accord.apps.five_cities.cities import (
    CHANNELS,
    CITIES,
    DENVER,
    LINKS,
    LOOSE,
    LOS_ANGELES,
    ORLANDO,
    SEATTLE,
    SLOW_LINK,
    SLOW_MS,
    TIGHT,
    WASHINGTON,
    city_text,
    configuration,
    path_text,
    stretched,
)
from accord.config import load


def delay_ms(*path: str, slow_ms: int = LINKS[SLOW_LINK]) -> int:
    links = {**LINKS, SLOW_LINK: slow_ms}
    return sum(links.get((one, other)) or links[other, one] for one, other in pairwise(path))


def test_the_limits_make_the_story() -> None:
    assert delay_ms(SEATTLE, DENVER, WASHINGTON) < TIGHT.max_delay_ms
    slow_ms = delay_ms(SEATTLE, DENVER, WASHINGTON, slow_ms=SLOW_MS)
    assert TIGHT.max_delay_ms < slow_ms
    assert delay_ms(SEATTLE, DENVER, ORLANDO, slow_ms=SLOW_MS) < LOOSE.max_delay_ms
    over_denver = delay_ms(SEATTLE, LOS_ANGELES, DENVER, WASHINGTON)
    over_orlando = delay_ms(SEATTLE, LOS_ANGELES, ORLANDO, WASHINGTON)
    assert over_denver < over_orlando < TIGHT.max_delay_ms


@pytest.mark.parametrize("city", CITIES)
def test_nodes_take_their_configuration(city: str, tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(configuration(city, [1_001, 1_002], CHANNELS, ping_ms=100, paths=2))
    config = load(file)
    assert config.node.actual_name == city
    assert config.node.directory is None
    assert config.net.ping_ms == 100
    assert [address.port for address in config.net.neighbours] == [1_001, 1_002]
    assert not config.pipeline.enabled
    defined = [(each.name, each.max_delay_ms, each.paths) for each in config.channels]
    wanted = [(TIGHT.name, 90, 2), (LOOSE.name, 250, 2)]
    assert defined == (wanted if city == SEATTLE else [])


def test_a_node_without_anybody_to_dial() -> None:
    assert "neighbours = []" in configuration(ORLANDO, [], CHANNELS, ping_ms=100, paths=2)


def test_stretched_limits() -> None:
    assert stretched(TIGHT, 3.0).max_delay_ms == 270


def test_cities_in_words() -> None:
    assert city_text(LOS_ANGELES) == "Los Angeles"
    assert path_text((SEATTLE, LOS_ANGELES, ORLANDO)) == "Seattle → Los Angeles → Orlando"

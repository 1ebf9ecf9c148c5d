"""What a configuration says about a secondary node."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.config import ConfigError, parse
from accord.config.net import net_options
from accord.runtime.addresses import SocketAddress

SECONDARY = """
[net]
tier = "secondary"
neighbours = ["127.0.0.1:7400", "127.0.0.1:7401"]
"""


def mistakes(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(text, file="a.toml")
    return str(error.value)


def test_a_secondary_node_has_its_neighbours_for_parents() -> None:
    options = net_options(parse(SECONDARY, file="a.toml"))
    assert options.is_secondary
    assert options.neighbours == (
        SocketAddress("127.0.0.1", 7400),
        SocketAddress("127.0.0.1", 7401),
    )


def test_others_are_backbone_nodes() -> None:
    assert not net_options(parse("[net]\nlisten = '127.0.0.1:7400'\n", file="a.toml")).is_secondary


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[net]\ntier = 'secondary'\n", "net.neighbours"),
        (SECONDARY + "listen = '127.0.0.1:7402'\n", "net.listen"),
        (SECONDARY + "discover = true\n", "net.discover"),
        (SECONDARY + "[channels.a]\ntemplate = 'reliable'\n", "channels.a"),
        ("[net]\ntier = 'third'\n", "net.tier"),
    ],
)
def test_what_a_secondary_node_can_not_have_is_a_mistake(text: str, place: str) -> None:
    assert place in mistakes(text)


def test_the_page_says_how(tmp_path: Path) -> None:
    """Its example is a configuration."""
    page = (Path(__file__).parents[2] / "docs" / "TIERS.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    key = tmp_path / "shared.key"
    key.write_text("0123456789abcdef")
    options = net_options(parse(example.replace("shared.key", str(key)), file="a.toml"))
    assert options.is_secondary

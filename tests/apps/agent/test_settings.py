"""What an agent is told, and what is wrong with it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from accord.apps.agent.settings import AgentError, fill, read_settings
from accord.core.quality.costs import LinearCost

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent"
GOOD = """
channel = "lab/t"
[program]
template = "in"
config = "out"
apply = "SIGHUP"
stop_s = 1.5
[capabilities.rate]
range = [1, 50]
current = 2
cost = { slope = 0.5 }
[capabilities.trust]
range = ["low", "high"]
current = "low"
"""


def write(folder: Path, text: str = GOOD, template: str = "{{rate}} {{trust}}") -> Path:
    (folder / "in").write_text(template)
    file = folder / "agent.toml"
    file.write_text(text)
    return file


def test_settings(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path))
    assert (settings.channel, settings.source) == ("lab/t", None)
    assert (settings.apply, settings.stop_s) == (signal.SIGHUP, 1.5)
    assert settings.config == tmp_path / "out"
    assert settings.capabilities[0].cost == LinearCost(0, 0.5)
    assert settings.couplings == ()


def test_the_example_can_be_read() -> None:
    settings = read_settings(EXAMPLE / "agent.toml")
    assert settings.source == "sensor-1"
    assert '"period_ms": 500\n' in fill(settings.template, {"rate": 2.0})


def test_blanks() -> None:
    template = "a={{rate}} b={{ rate.period_ms }} c={{rate.period_s}} d={{my.own}} {rate}"
    filled = fill(template, {"rate": 8.0, "my.own": "low"})
    assert filled == "a=8 b=125 c=0.125 d=low {rate}"
    assert fill("{{rate}} {{rate.period_s}}", {"rate": 3.0}) == "3 0.333333333"
    assert fill("{{rate.period_ms}}", {"rate": 0.0}) == "0"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("channel =", "chanel =", "settings: expected channel, source"),
        ('"lab/t"', '"lab/#"', "channel: "),
        ('"lab/t"', "5", "channel: expected a text, got 5"),
        ("[program]", "[programme]", "settings: expected"),
        ("template =", "temlate =", "program: expected template, config, apply, stop_s"),
        ('"in"', '"./out"', "program.config: expected another file than the template"),
        ('"in"', '"nowhere"', "nowhere: no such file or directory"),
        ("SIGHUP", "SIGKILL", "program.apply: expected restart or one of SIGHUP"),
        ("1.5", "-1", "program.stop_s: expected seconds"),
        ("[1, 50]", "[1]", "capabilities.rate.range: expected [lower, upper]"),
        ("[capabilities.trust]", "[capabilities.rate]", "not TOML"),
        ("[capabilities.trust]", "[capabilities.order]", "{{trust}}: expected one of rate, order"),
        ("{ slope = 0.5 }", "[" * 5_000, "nested too deeply"),
        ("slope", "slop", "capabilities.rate.cost: expected base, slope"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(AgentError) as caught:
        read_settings(write(tmp_path, GOOD.replace(old, new)))
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_template_must_say_each_value(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="nothing would change with advice"):
        read_settings(write(tmp_path, template="{{rate}}"))
    (tmp_path / "agent.toml").write_bytes(b"\xff")
    with pytest.raises(AgentError, match="expected UTF-8"):
        read_settings(tmp_path / "agent.toml")

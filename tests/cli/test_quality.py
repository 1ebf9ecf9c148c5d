"""`accord quality`: files of expectations and profiles, and what a node answers."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from accord.cli.main import app
from accord.cli.quality import draw_properties, draw_quality
from accord.core.quality.status import (
    CapabilityStatus,
    ChannelQuality,
    ExpectationStatus,
    ProfileStatus,
    PropertyStatus,
    QualityStatus,
    QualityTotals,
    SkylineStatus,
)
from accord.terminal.screen import open_console

XML = """<quality>
  <expectation id="X" subscription="s" channel="lab/+" utility="3">
    <requirement property="rate" lower="5" upper="10"/>
    <requirement property="colour" lower="few"/>
  </expectation>
  <profile publisher="sensor" channel="lab/t">
    <capability property="rate" lower="1" upper="50" current="2"><linear base="0" slope="0.5"/>
    </capability>
  </profile>
</quality>
"""
COLOUR = "name = colour\nlevels = grey < few < full\nbetter = higher\n"
STATUS = QualityStatus(
    node="here",
    strategy="pareto",
    totals=QualityTotals(profiles=1, states={"satisfiable": 1, "satisfied": 0}, advice=4),
    channels=(
        ChannelQuality(
            channel="lab/t",
            profiles=(
                ProfileStatus(
                    publisher="sen\x1bsor",
                    capabilities=(
                        CapabilityStatus(property="rate", lower=1.0, upper=50.0, current=2.0),
                        CapabilityStatus(
                            property="latency", lower=1.0, upper=3.0, current=3.0, is_measured=True
                        ),
                    ),
                    expectations=1,
                    utility=3.0,
                ),
            ),
            skylines=(SkylineStatus(properties=("rate",), members=("sensor", "n7 by west")),),
            expectations=(
                ExpectationStatus(
                    client="desk",
                    id="often",
                    expect={"rate": [5, 10], "trust": ["low", None], "utility": 3, "publishers": 2},
                    state="satisfiable",
                    decision="adapting",
                    reasons={"rate": 2.0, "trust": None},
                ),
            ),
        ),
    ),
    left_off=12,
)
PROPERTIES = (
    PropertyStatus(name="rate", better="higher", range=(0.0, None), unit="Hz"),
    PropertyStatus(name="order", better="higher", levels=("a", "b"), measured=True),
)


def accord(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_files_are_converted_both_ways(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(XML)
    (tmp_path / "colour.properties").write_text(COLOUR)
    known = ("--properties", tmp_path / "colour.properties")
    said = accord("quality", "check", tmp_path / "a.xml", *known)
    assert said.output.endswith("a.xml: 1 expectation, 1 profile\n")
    assert (
        accord("quality", "convert", tmp_path / "a.xml", tmp_path / "b.json", *known).output == ""
    )
    assert json.loads((tmp_path / "b.json").read_text())["expectations"][0]["id"] == "X"
    accord("quality", "convert", tmp_path / "b.json", tmp_path / "c.xml", *known)
    accord("quality", "convert", tmp_path / "c.xml", tmp_path / "d.json", *known)
    assert all((tmp_path / name).read_text().endswith(">\n") for name in ("c.xml",))
    assert (tmp_path / "d.json").read_text().endswith("}\n")
    assert (tmp_path / "d.json").read_text() == (tmp_path / "b.json").read_text()


def test_mistakes_in_files_are_placed(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text(XML)
    for arguments, words in (
        (("check", file), "no such property"),
        (("check", tmp_path / "b.txt"), "expected a name that ends with .xml or .json"),
        (("check", tmp_path / "none.json"), "no such file"),
        (("convert", file, tmp_path / "c.yaml"), "expected a name that ends with"),
        (("define", file), "line 1: expected"),
        (("--channel", "a", "properties"), "expected options after properties"),
    ):
        said = accord("quality", *arguments)
        assert said.exit_code == 2
        assert words in said.stderr.replace("\n", " ")
    (tmp_path / "bad.json").write_text('{"expectations": [{"id": 3}]}')
    assert "expectations[0]" in accord("quality", "check", tmp_path / "bad.json").stderr


def test_the_screen() -> None:
    console = open_console()
    console.width = 140
    with console.capture() as captured:
        console.print(draw_quality(STATUS))
        console.print(draw_properties(PROPERTIES))
    text = captured.get()
    assert "\x1b" not in text
    for words in (
        "node here, strategy pareto: 1 profile, 1 expectation (1 satisfiable); advised 4 times",
        "rate 2 of 1–50, latency 3 (measured)",
        "best of rate: sensor, n7 by west",
        "rate 5–10, trust ≥ low, of 2 (worth 3)",
        "rate is 2; trust is unknown; adapting",
        "… and 12 more",
        "a < b",
        "≥ 0",
    ):
        assert words in text


def test_an_expectation_that_is_none() -> None:
    for text in ("", "[]", "{}"):
        said = accord("sub", "a", "--expect", text)
        assert said.exit_code == 2
        assert "--expect: expected" in said.stderr


def test_no_node() -> None:
    said = accord("quality", "--url", "http://127.0.0.1:1")
    assert said.exit_code == 2
    assert "no node answers" in said.stderr

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import structs
from typer.testing import CliRunner

from accord.cli.main import app
from accord.config.scenario import load_scenario
from accord.sim import scenario_settings

ROOT = Path(__file__).parent.parent.parent
SMALL = """
[run]
duration = "30s"
settle = "5s"

[topology]
kind = "ring"
nodes = 5

[publishers.camera]
channel = "uav/imagery"
node = "n0"
qos = 1

[subscribers.control]
filter = "uav/#"
node = "n2"
"""


def run(tmp_path: Path, *options: str, more: str = "") -> tuple[int, str]:
    file = tmp_path / "scenario.toml"
    file.write_text(SMALL + more)
    environment = {"COLUMNS": "140"}
    result = CliRunner().invoke(app, ["sim", "run", str(file), *options], env=environment)
    return result.exit_code, result.output


def test_a_run_is_shown_and_the_same_seed_is_the_same_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--seed", "7")
    assert code == 0, output
    assert re.search(r"uav/imagery +30 +25 +25 +0 +0 +0 +100.000%", output)
    assert run(tmp_path, "--seed", "7") == (code, output)


def test_results_go_to_files(tmp_path: Path) -> None:
    out = tmp_path / "results"
    code, output = run(tmp_path, "--runs", "2", "--out", str(out), "--format", "json")
    assert code == 0, output
    channels = json.loads((out / "channels.json").read_text())
    assert [row["seed"] for row in channels] == [1, 2]
    assert {row["lost"] for row in channels} == {0}


def test_a_failed_check_says_how_to_see_it_again(tmp_path: Path) -> None:
    slow = '[checks]\nin_time = 1.0\n[channels."uav/#"]\nmax_delay = "1 ms"\n'
    code, output = run(tmp_path, "--seed", "3", more=slow)
    assert code == 1, output
    assert "replay with: accord sim run" in output
    assert "--seed 3" in output


def test_mistakes_name_their_line(tmp_path: Path) -> None:
    code, output = run(tmp_path, more="[links]\nloss = 2\n")
    assert code == 2
    assert "scenario.toml:19: links.loss: expected a number" in output


def test_the_example_is_accepted_and_the_document_names_every_setting() -> None:
    load_scenario(ROOT / "examples" / "scenario.toml")
    document = (ROOT / "docs" / "SIMULATOR.md").read_text()
    for section in structs.fields(scenario_settings.ScenarioSettings):
        assert section.name in document
    for settings in vars(scenario_settings).values():
        if isinstance(settings, type) and settings.__name__.endswith(("Settings", "Exception")):
            for field in structs.fields(settings):
                assert f"`{field.name}`" in document or field.name in document, field.name

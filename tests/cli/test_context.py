"""`accord context`, how commands find their node, and what a shell completes."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from accord.cli import main
from accord.cli.main import app
from accord.cli.options import complete_channels, connection_target, http_client
from tests.cli.conftest import Accord, RunningNode

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ACCORD_URL", "ACCORD_HTTP_URL", "ACCORD_CONTEXT", "ACCORD_USER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "accord" / "contexts.toml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})


def test_add_use_ls_rm(place: Path) -> None:
    assert "no contexts" in run("context", "ls").stdout
    made = run("context", "add", "lab", "--url", "mqtt://ann:secret@10.0.0.1:1884", "--user", "ann")
    assert made.stdout == "context lab added, and in use\n"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    run("context", "add", "field", "--url", "mqtts://f.example", "--http", "https://f.example")
    listed = [json.loads(line) for line in run("context", "ls", "--json").stdout.splitlines()]
    assert [(each["name"], each["in_use"], each["http"]) for each in listed] == [
        ("field", "", "https://f.example"),
        ("lab", "yes", "http://10.0.0.1:8080"),
    ]
    assert "secret" not in run("context", "ls").stdout
    assert run("context", "use", "field").stdout == "context field is in use\n"
    assert run("context", "rm", "field").stdout == "context field deleted; none is in use\n"
    assert run("context", "rm", "field").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "a b", "--url", "mqtt://h"), "NAME: expected letters"),
        (("add", "a", "--url", "http://h"), "--url: expected mqtt://HOST:PORT"),
        (("add", "a", "--url", "mqtt://h:x"), "--url: expected mqtt://HOST:PORT"),
        (("add", "a", "--url", "mqtt://h", "--http", "h"), "--http: expected http://HOST:PORT"),
        (("use", "a"), "there is no context 'a' (there are: none)"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], problem: str) -> None:
    heard = run("context", *arguments)
    assert heard.exit_code == 2
    assert problem in heard.stderr


@pytest.mark.parametrize("text", ["current = ", "current = 3\n", "[contexts.a]\nuser = 'b'\n"])
def test_a_damaged_file(place: Path, text: str) -> None:
    place.parent.mkdir()
    place.write_text(text)
    heard = run("status")
    assert heard.exit_code == 2
    assert f"{place}: the file of contexts is damaged" in heard.stderr


def test_which_node_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def addresses(**given: str) -> tuple[str, str]:
        url, name = given.get("url"), given.get("context")
        asked = http_client(given.get("http"), name, None, None)
        return connection_target(url, name, None, None).url, asked.url

    assert addresses() == ("mqtt://127.0.0.1:1883", "http://127.0.0.1:8080")
    run("context", "add", "lab", "--url", "mqtt://lab:1884", "--http", "http://lab:81")
    run("context", "add", "far", "--url", "mqtt://far", "--user", "ann")
    assert addresses() == ("mqtt://lab:1884", "http://lab:81")
    assert addresses(context="far") == ("mqtt://far", "http://far:8080")
    assert connection_target(None, "far", None, None).username == "ann"
    assert connection_target("mqtt://else", "far", None, None).username is None
    monkeypatch.setenv("ACCORD_URL", "mqtt://env:1")
    assert addresses() == ("mqtt://env:1", "http://env:8080")
    assert addresses(context="far") == ("mqtt://far", "http://far:8080")
    monkeypatch.setenv("ACCORD_HTTP_URL", "http://env:2")
    assert addresses() == ("mqtt://env:1", "http://env:2")
    given = addresses(url="mqtt://given:3", http="http://given:4")
    assert given == ("mqtt://given:3", "http://given:4")


def test_one_context_for_both_protocols(node: RunningNode, channel: str) -> None:
    run("context", "add", "here", "--url", node.url, "--http", node.http_url)
    assert run("pub", channel, "x").exit_code == 0
    assert run("channel", "ls").exit_code == 0


def completed(*words: str, **environment: str) -> list[str]:
    line = " ".join(("accord", *words))
    variables = {
        "_ACCORD_COMPLETE": "complete_zsh",
        "_TYPER_COMPLETE_ARGS": line,
        **environment,
    }
    heard = CliRunner().invoke(app, [], prog_name="accord", env=variables)
    return heard.stdout.splitlines()


def test_completion_of_names(accord: Accord, node: RunningNode) -> None:
    assert accord("channel", "create", "completed/#", "--template", "local").exit_code == 0
    assert accord("policy", "set", "Completed", "--importance", "3").exit_code == 0
    there = {"ACCORD_HTTP_URL": node.http_url}
    assert any("completed/#" in line for line in completed("channel", "show", "comp", **there))
    assert any("Completed" in line for line in completed("policy", "remove", "Comp", **there))
    accord("channel", "rm", "completed/#")
    accord("policy", "remove", "Completed")


def test_completion_without_a_node_is_silent(dead_url: str) -> None:
    there = {"ACCORD_HTTP_URL": dead_url.replace("mqtt", "http")}
    assert not any("error" in line for line in completed("channel", "show", "comp", **there))
    assert complete_channels.__doc__


def test_summaries_are_the_first_lines_of_the_commands() -> None:
    group = main.CommandTable()
    for name, summary in main._COMMANDS.items():
        assert (group[name].help or "").split("\n\n")[0] == summary, name

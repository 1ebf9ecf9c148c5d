"""A session, as a conversation; on pipes here, on a terminal in test_terminal."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from accord.cli.conversation import EXAMPLES, PROMPT, QUESTION
from accord.cli.main import app


def say(*lines: str, options: tuple[str, ...] = ()) -> Result:
    typed = "".join(f"{line}\n" for line in lines)
    arguments = ["predicate", "session", *options]
    return CliRunner().invoke(app, arguments, input=typed, env={"COLUMNS": "80"})


def test_a_predicate_shows_its_form_and_the_events() -> None:
    heard = say("speed_kmh > 4 and unit like 'Alpha%'")
    assert heard.exit_code == 0
    canonical, _, header, _, row, _, summary, _ = heard.stdout.splitlines()
    assert canonical == "canonical  speed_kmh > 4 AND unit LIKE 'Alpha%'"
    assert header.split() == ["line", "channel", "attributes"]
    assert row.startswith("   6  blue_force/track  unit='Alpha 2'")
    assert summary == "1 of 12 events matches"


def test_xpath_lines() -> None:
    assert "   9  patrol/report" in say("xpath: /report/sighting > 10").stdout
    assert "none of 12 events match" in say("XPATH: /report/sighting > 99").stdout


def test_xpath_with_a_namespace() -> None:
    heard = say(":namespace i=urn:example:imagery", "xpath: //i:target[@kind = 'building']")
    assert "1 of 12 events matches" in heard.stdout
    bound = ("--namespace", "i=urn:example:imagery")
    assert "1 of 12 events matches" in say("xpath: //i:target", options=bound).stdout


def test_a_mistake_is_pointed_at_and_the_session_goes_on() -> None:
    heard = say("altitude_m >> 3", "xpath: /a[", ":nothing", "urgent")
    assert "1 of 12 events matches" in heard.stdout
    assert "  altitude_m >> 3\n              ^\n" in heard.stderr
    assert "  /a[\n     ^\n" in heard.stderr
    assert "error: :nothing: expected one of :explain, :covers" in heard.stderr
    assert heard.exit_code == 2


def test_relations_have_a_semicolon_between() -> None:
    assert say(":covers a > 1 ; a > 2").stdout.startswith("Yes: every event")
    assert say(":covers a = ';' ; a = ';' AND b").stdout.startswith("Yes: every event")
    assert say(":covers xpath: //a ; xpath: //a = 3").stdout.startswith("Yes: every event")
    assert say(":intersects a > 2 ; a < 1").stdout.startswith("No: no event")
    assert "expected a semicolon between them" in say(":covers a > 1").stderr


def test_explain() -> None:
    assert "all of\n├── a = 1\n└── b = 2" in say(":explain a = 1 and b = 2").stdout


def test_one_event_in_full_and_unchanged_by_it() -> None:
    heard = say(":event 3", ":namespace i=urn:example:imagery", "xpath: i:image = '21'")
    assert "source         heron-2, sequence 903" in heard.stdout
    assert '  <i:target kind="vehicle">2</i:target>' in heard.stdout
    assert "1 of 12 events matches" in heard.stdout
    assert "expected the line of an event, got '99'" in say(":event 99").stderr


def test_help_names_every_command() -> None:
    shown = say(":help").stdout
    refusal = say(":?").stderr
    for command in refusal.partition("one of ")[2].strip().split(", "):
        assert command in shown


def test_quit_leaves_at_once_and_blank_lines_say_nothing() -> None:
    heard = say("", "  ", ":quit", "urgent")
    assert heard.stdout == ""
    assert heard.exit_code == 0


def test_without_any_input_the_examples_are_shown_and_run() -> None:
    heard = say()
    assert heard.exit_code == 0
    for example in (*EXAMPLES, QUESTION):
        assert f"\n  {example}\n" in heard.stdout
        assert f"\n{PROMPT}{example}\n" in heard.stdout
    assert heard.stdout.count("of 12 events match") == len(EXAMPLES)
    assert "none of" not in heard.stdout


def test_events_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = [{"channel": "a", "attributes": {"n": n}} for n in range(30)]
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    welcome = say(options=(str(path),)).stdout
    assert "… and 10 more" in welcome
    assert "For example" not in welcome
    assert "29 of 30 events match" in say("n > 0", options=(str(path),)).stdout


def test_events_and_predicates_can_not_both_be_standard_input() -> None:
    heard = say("urgent", options=("-",))
    assert heard.exit_code == 2
    assert "expected a file: standard input has the predicates" in heard.stderr

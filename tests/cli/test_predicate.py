"""`accord predicate …`, one command at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from accord.cli.main import app


def accord(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "80"})


def predicate(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return accord("predicate", *arguments, stdin=stdin)


def lines(*events: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def test_version() -> None:
    assert accord("--version").stdout.startswith("accord ")


def test_without_arguments_help_is_shown() -> None:
    assert "predicate" in accord().output
    assert "explain" in predicate().output


class TestExplain:
    def test_shows_form_identity_reads_and_tree(self) -> None:
        result = predicate("explain", "NOT (platform <> 'UAV') AND altitude_m > 300")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "canonical   altitude_m > 300 AND platform = 'UAV'",
            "digest      fba78c07b1ae218cdd30b4bf12a64800",
            "attributes  altitude_m, platform",
            "index       narrows by altitude_m, platform",
            "",
            "all of",
            "├── altitude_m > 300",
            "└── platform = 'UAV'",
        ]

    def test_of_xpath_with_namespaces(self) -> None:
        text = "count(//i:target) > 1 and /i:image"
        result = predicate("explain", text, "--xpath", "--namespace", "i=urn:example:imagery")
        assert "XML paths  /{urn:example:imagery}image" in result.stdout
        assert f"XPath      {text}" in result.stdout
        assert "index      narrows by /{urn:example:imagery}image, then evaluates" in result.stdout

    def test_an_index_can_not_narrow_everything(self) -> None:
        assert "for every event" in predicate("explain", "a = 1 OR b + c > 3").stdout
        assert "no event can match" in predicate("explain", "a > 3 AND a < 2").stdout

    def test_of_constants(self) -> None:
        assert "matches every event" in predicate("explain", "").stdout
        assert "matches no event" in predicate("explain", "FALSE").stdout

    def test_points_at_the_mistake(self) -> None:
        result = predicate("explain", "altitude_m >> 3")
        assert result.exit_code == 2
        assert result.stdout == ""
        message, *pointed = result.stderr.splitlines()
        assert message.startswith("error: unexpected '>' at character 13, expected")
        assert pointed == ["  altitude_m >> 3", "              ^"]

    def test_a_long_predicate_is_shown_around_the_mistake(self) -> None:
        text = "aa = 1 AND " * 40 + "bb ! 1" + " AND cc = 1" * 40
        *_, line, caret = predicate("explain", text).stderr.splitlines()
        assert len(line) <= 80
        assert line[caret.index("^")] == "!"

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        assert r"a = '\x1b[31m'" in predicate("explain", "a = '\x1b[31m'").stdout
        assert "\x1b" not in predicate("explain", "'\x1b[31m' a").stderr

    def test_text_that_is_not_unicode(self) -> None:
        result = predicate("explain", "a = '\udcff'")
        assert result.exit_code == 2
        assert "not Unicode text at character 6" in result.stderr

    @pytest.mark.parametrize("binding", ["i", "=urn:x", "i=", "1=urn:x"])
    def test_namespaces_need_prefix_and_uri(self, binding: str) -> None:
        result = predicate("explain", "/i:a", "--xpath", "--namespace", binding)
        assert result.exit_code == 2
        assert "--namespace: expected prefix=uri" in result.stderr


class TestMatch:
    def test_shows_a_table_of_the_sample(self) -> None:
        result = predicate("match", "load_mw / limit_mw > 0.9 OR islanded")
        assert result.exit_code == 0
        assert result.stderr == "using the sample events; give a file, or - for stdin\n"
        shown = [line.rstrip() for line in result.stdout.splitlines()]
        assert [line for line in shown if "──" not in line] == [
            "line  channel      attributes",
            "  11  grid/feeder  feeder='F-12'  load_mw=4.7  limit_mw=5  islanded=FALSE",
            "  12  grid/feeder  feeder='F-14'  load_mw=0.9  limit_mw=3  islanded=TRUE",
            "",
            "2 of 12 events match",
        ]

    def test_exit_code_is_that_of_grep(self) -> None:
        assert predicate("match", "urgent").exit_code == 0
        assert predicate("match", "altitude_m > 100000").exit_code == 1
        assert predicate("match", "altitude_m >").exit_code == 2

    def test_repeated_elements_count_each(self) -> None:
        assert predicate("match", "--xpath", "/report/sighting > 10", "--count").stdout == "1\n"
        assert predicate("match", "sighting > 10", "--count").stdout == "0\n"

    def test_json_lines_come_out_as_they_went_in(self) -> None:
        cold, hot = {"channel": "a", "attributes": {"t": 1}}, {"channel": "b", "payload": "día"}
        events = lines(cold) + "\n" + lines(hot)
        assert predicate("match", "t < 2", "-", "--json", stdin=events).stdout == lines(cold)
        assert predicate("match", "TRUE", "-", "--json", stdin=events).stdout == lines(cold, hot)

    def test_inversion_is_of_the_predicate_on_the_channels_asked_for(self) -> None:
        result = predicate("match", "urgent", "--invert", "--channel", "uav/tasking")
        assert "1 of 2 events does not match" in result.stdout

    def test_channel_filters_are_checked(self) -> None:
        result = predicate("match", "TRUE", "--channel", "uav/#/x")
        assert result.exit_code == 2
        assert "error: --channel: expected '#' as the last level only" in result.stderr

    def test_one_form_of_output_only(self) -> None:
        assert predicate("match", "TRUE", "--json", "--count").exit_code == 2

    def test_matches_before_a_mistake_are_shown(self) -> None:
        result = predicate("match", "TRUE", "-", "--json", stdin=lines({"channel": "a"}) + "{\n")
        assert result.exit_code == 2
        assert result.stdout == lines({"channel": "a"})
        assert result.stderr.startswith("error: standard input:2: not JSON at character 2")

    def test_bad_bytes_on_standard_input(self) -> None:
        result = predicate("match", "TRUE", "-", stdin=b"\xff\n")
        assert result.exit_code == 2
        assert "standard input:1: expected UTF-8 text" in result.stderr

    def test_a_directory_instead_of_a_file(self, tmp_path: Path) -> None:
        result = predicate("match", "TRUE", str(tmp_path))
        assert result.exit_code == 2
        assert "is a directory" in result.stderr

    def test_what_events_say_is_no_markup_and_no_control(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        path.write_text(lines({"channel": "a", "attributes": {"x": "[red]\x1b[31m", "y z": "é"}}))
        shown = predicate("match", "TRUE", str(path)).stdout
        assert r"""x='[red]\x1b[31m'  "y z"='é'""" in shown

    def test_many_and_long_attributes_are_cut(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        attributes: dict[str, object] = {f"a{n}": n for n in range(30)}
        event = {"channel": "a/" + "b" * 99, "attributes": {"long": "x" * 999, **attributes}}
        path.write_text(lines(event))
        shown = predicate("match", "TRUE", str(path)).stdout
        assert "… and 7 more" in shown
        assert all(len(line) <= 80 for line in shown.splitlines())


class TestRelations:
    NARROW = "altitude_m > 300 AND platform = 'UAV'"

    def test_covers(self) -> None:
        result = predicate("covers", "altitude_m > 100", self.NARROW)
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "Yes: every event that matches B matches A.",
            "",
            "A               altitude_m > 100",
            "B               altitude_m > 300 AND platform = 'UAV'",
            "A covers B      yes",
            "B covers A      no",
            "A intersects B  yes",
        ]

    def test_does_not_cover(self) -> None:
        result = predicate("covers", self.NARROW, "altitude_m > 100")
        assert result.exit_code == 1
        assert result.stdout.startswith("No: some events match B but not A.")

    def test_unknown_has_an_exit_code_of_its_own(self) -> None:
        result = predicate("covers", "--xpath", "count(//a) > 1", "count(//a) > 2")
        assert result.exit_code == 3
        assert result.stdout.startswith("Unknown: ")

    def test_intersects(self) -> None:
        assert predicate("intersects", "altitude_m > 100", self.NARROW).exit_code == 0
        assert predicate("intersects", "altitude_m < 100", self.NARROW).exit_code == 1
        assert predicate("intersects", "a + b > 3", "a + b < 3").exit_code == 3

    def test_a_mistake_in_either(self) -> None:
        assert predicate("covers", "a", "b c").exit_code == 2
        assert predicate("intersects", "a b", "c").exit_code == 2

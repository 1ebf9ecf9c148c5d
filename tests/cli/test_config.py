"""`accord config --check`: whether a node could start with a file."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from accord.cli.main import app


def test_a_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(CliRunner().invoke(app, ["config"]).stdout)
    good = CliRunner().invoke(app, ["config", "--check", str(file)])
    assert good.exit_code == 0
    assert good.stdout == f"{file}: good\n"


def test_mistakes_are_told_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text("[node]\nnme = 3\n")
    bad = CliRunner().invoke(app, ["config", "--check", str(file)])
    assert bad.exit_code != 0
    assert f"{file}:2: node.nme: unknown key, did you mean name?" in bad.stderr.replace("\n", "")

"""A template of somebody's own, in a package of its own: tried out, installed, used."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from accord.core.channels.template import Template, problem_with_options
from accord.sim import check_template
from tests.brokers import accord_only
from tests.net_nodes import start_nodes
from tests.scenarios.test_templates import EACH, LINE, converse, defined

EXAMPLE = Path(__file__).parents[2] / "examples" / "flooding"
LINES = 100


def flooded(monkeypatch: pytest.MonkeyPatch) -> type[Template]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    found: type[Template] = import_module("accord_flooding").Flooded
    return found


def test_it_is_short() -> None:
    assert len((EXAMPLE / "accord_flooding.py").read_text().splitlines()) <= LINES


def test_it_keeps_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    check_template(flooded(monkeypatch), loss=0.3, nodes=6, seeds=range(6))


@accord_only
def test_nodes_use_it_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    source, installed = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(EXAMPLE, source)  # building leaves things behind
    subprocess.run([*pip, "--target", str(installed), str(source)], check=True)
    with start_nodes({"z": []}, defined("routed")) as without:
        told = without["z"].accord("channel", "create", "alarms", "--template", "flooded")
        assert told.exit_code == 2
        assert "flooded" in told.stderr
    monkeypatch.setenv("PYTHONPATH", str(installed), prepend=":")
    with start_nodes(LINE, defined("flooded")) as nodes:
        for heard in asyncio.run(converse(nodes, "ac")).values():
            for name in "ac":
                said = [each for each in heard if each.startswith(name)]
                assert said == [f"{name} {number}" for number in range(EACH)]


def test_it_says_what_is_wrong_with_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    options = flooded(monkeypatch).options
    assert problem_with_options({"hops": "8"}, options) is None
    assert problem_with_options({"hops": "abc"}, options) == (
        "hops",
        "expected a whole number from 1 to 255, got 'abc'",
    )

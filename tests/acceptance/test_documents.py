"""What README and docs show is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.machine import ROOT, Machine
from tests.acceptance.pages import Runner, blocks, needs, problems, starts_nodes, type_errors

PAGES: Final = ["README.md", *sorted(f"docs/{each.name}" for each in ROOT.glob("docs/*.md"))]
OWN_NODES: Final = [page for page in PAGES if starts_nodes(page)]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OWN_NODES])
def test_blocks_run_and_show_what_they_say(page: str, default: Machine) -> None:
    run_page(page, default)


def run_page(page: str, machine: Machine) -> None:
    lacking = needs(page)
    if lacking:
        pytest.skip(f"{lacking} is not installed (make peers)")
    runner = Runner(machine)
    try:
        for block in blocks(page):
            if not block.reason:
                runner.run(block)
    finally:
        runner.close()


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_run_or_says_why_not(page: str) -> None:
    assert not problems(page)


def test_programs_pass_a_strict_type_checker(tmp_path: Path) -> None:
    assert not type_errors(PAGES, tmp_path)


@pytest.mark.parametrize("page", OWN_NODES)
def test_blocks_run_with_the_nodes_that_they_start(page: str, machine: Machine) -> None:
    run_page(page, machine)

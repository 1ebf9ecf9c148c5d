"""What README and docs show is what happens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.machine import ROOT, Machine
from tests.acceptance.pages import Runner, blocks, needs, problems, type_errors

PAGES: Final = ["README.md", *sorted(f"docs/{each.name}" for each in ROOT.glob("docs/*.md"))]
# Pages that start nodes of their own.
OWN_NODES: Final = {"docs/NETWORK.md", "docs/QUALITY.md", "docs/TIERS.md", "README.md"}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_and_show_what_they_say(page: str, tmp_path: Path) -> None:
    lacking = needs(page)
    if lacking:
        pytest.skip(f"{lacking} is not installed (make peers)")
    runner = Runner(machine := Machine(tmp_path / "user"))
    try:
        found = [block for block in blocks(page) if not block.reason]
        if page not in OWN_NODES and any(each.language in ("console", "python") for each in found):
            machine.up()
        for block in found:
            runner.run(block)
    finally:
        runner.close()


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_run_or_says_why_not(page: str) -> None:
    assert not problems(page)


@pytest.mark.parametrize("page", PAGES)
def test_programs_pass_a_strict_type_checker(page: str, tmp_path: Path) -> None:
    assert not type_errors(page, tmp_path)

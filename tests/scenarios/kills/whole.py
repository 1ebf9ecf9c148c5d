"""The same with the node's pipeline: either is killed, or both; the archive is looked at, too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.journal.reader import Reader
from accord.pipeline.delta_log import Archive
from accord.pipeline.driver_lock import LOCK, Holder
from tests.pipeline.kills.run import Outcome as Archived
from tests.pipeline.kills.run import compare
from tests.scenarios.kills.node import NAME, MortalNode
from tests.scenarios.kills.outcome import Outcome
from tests.scenarios.kills.run import Killing, Plan

NODE: Final = "the node"
PYTHON: Final = "the pipeline"
JAVA: Final = "its Java"
BOTH: Final = "node and pipeline"
_PATIENCE_S: Final = 300.0


class WholeKilling(Killing):
    """Each in turn; some while what was killed before still starts."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, MortalNode(folder, has_pipeline=True))
        self.kills = dict.fromkeys((BOTH, JAVA, NODE, PYTHON), 0)
        self.archived = Archived(kills={})

    async def _die(self) -> str:
        how = tuple(self.kills)[sum(self.kills.values()) % len(self.kills)]
        if self.random.random() < 0.7:
            await self._until_archiving()
        await asyncio.sleep(self.random.uniform(0, self.plan.life_s))
        if how != NODE:
            await self._kill_pipeline(is_java=how == JAVA)
        if how in (NODE, BOTH):
            self.node.kill()
            self.node.start()
        return how

    async def _kill_pipeline(self, *, is_java: bool) -> None:
        """Whoever of it is there; while it starts there may be no Java yet."""
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until_s:
            with suppress(OSError, ValueError, KeyError):
                holder = Holder(**json.loads((self.node.data / "pipeline" / LOCK).read_bytes()))
                if process := holder.java if is_java else holder.process:
                    os.kill(process, signal.SIGKILL)
                    return
            await asyncio.sleep(0.05)
        raise AssertionError("no pipeline to kill")

    async def _until_archiving(self) -> None:
        before = self._archived_to()
        await self._until(lambda: self._archived_to() > before, "archives nothing")

    async def _drain(self, say: Callable[[str], None]) -> list[str]:
        problems = await super()._drain(say)
        say("waiting for the archive")
        journal = Reader(self.node.data / "journal")
        await self._until(
            lambda: self._archived_to() >= journal.extent().next_offset, "does not catch up"
        )
        return problems

    async def _until(self, is_done: Callable[[], bool], problem: str) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        while not is_done():
            assert time.monotonic() < until_s, f"{problem}:\n{self.node.output()[-4000:]}"
            await asyncio.sleep(0.1)

    def _archived_to(self) -> int:
        return Archive(self.node.data / "archive", [NAME]).archived(NAME)

    def judge(self, retained: dict[str, int], problems: list[str]) -> Outcome:
        outcome = super().judge(retained, problems)
        journal, archive = self.node.data / "journal", self.node.data / "archive"
        compare(journal, archive, self.archived, NAME, {}, has_ledger_end=False)
        outcome.archived = self.archived.events
        outcome.problems += self.archived.failures()
        return outcome


def run_whole_kills(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    return asyncio.run(_run(plan, folder, say))


async def _run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    return await WholeKilling(plan, folder).run(say)

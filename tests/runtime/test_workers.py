from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pictures import decoded, surveillance_jpeg
from tests.plug_ins import install_shapers

from accord.core.model.document import Condition
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.core.scheduling.tasks import WorkerJob
from accord.runtime.worker_jobs import JobFailure, JobPriority, shape_job, xpath_job
from accord.runtime.workers import WorkerLimits, Workers
from accord.shaping.content import Content

NOW_MS = 1_000_000
TERMS = JobPriority(queued_ms=NOW_MS, channel="uav/imagery")
ONE = WorkerLimits(processes=1)
TEXT = Content(b"some text " * 10)
DEEP = b"<r>" + b"<a><b>1</b><c>2</c></a>" * 3_000 + b"</r>"
ENDLESS: Condition = ("count(//*[count(//*[count(//*) > 9]) > 9]) > 9", ())


class Outcomes:
    """Jobs whose outcomes can be waited for."""

    def __init__(self) -> None:
        self.told: list[tuple[object, int]] = []
        self._waiting: asyncio.Queue[tuple[Any, int]] = asyncio.Queue()

    def done(self, outcome: object, spent_us: int) -> None:
        self.told.append((outcome, spent_us))
        self._waiting.put_nowait((outcome, spent_us))

    async def next(self) -> Any:
        return (await self._waiting.get())[0]

    def shape(
        self, content: Content, shape: ShapingTarget, terms: JobPriority = TERMS
    ) -> WorkerJob:
        return shape_job(content, shape, terms, self.done)

    def xpath(self, source: bytes, *conditions: Condition) -> WorkerJob:
        return xpath_job(source, conditions, TERMS, self.done)


def conversation(
    talk: Callable[[Workers, Outcomes], Awaitable[None]], limits: WorkerLimits = ONE
) -> Workers:
    """Runs `talk` with workers, and closes them."""

    async def run() -> Workers:
        workers = Workers(limits, now_ms=lambda: NOW_MS)
        try:
            await talk(workers, Outcomes())
        finally:
            await workers.close()
        return workers

    return asyncio.run(run())


@pytest.fixture
def _plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_shapers(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def test_an_image_is_shaped_and_its_time_is_told() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        content = Content(surveillance_jpeg(), "image/jpeg", (("platform", "UAV"),))
        workers.submit(outcomes.shape(content, ShapingTarget("scaling", 16_384)))
        assert outcomes.told == []
        shaped = await outcomes.next()
        assert len(shaped.payload) <= 16_384
        assert decoded(shaped.payload).format == "JPEG"
        assert shaped.properties == content.properties
        spent_us = outcomes.told[0][1]
        assert spent_us > 0
        assert workers.cost_us("uav/imagery") == spent_us
        assert workers.counts.spent_us == spent_us

    assert conversation(talk).counts.done == 1


def test_nothing_is_started_before_there_is_work() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        assert workers.pids == []
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        await outcomes.next()
        assert len(workers.pids) == 1

    conversation(talk, WorkerLimits(processes=3))


def test_a_process_does_one_job_after_the_other() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        pids = set()
        for _ in range(3):
            workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
            assert await outcomes.next() == TEXT
            pids |= set(workers.pids)
        assert len(pids) == 1

    conversation(talk, WorkerLimits(processes=2))


def test_jobs_run_side_by_side() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        for _ in range(4):
            workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert (workers.busy, workers.waiting) == (2, 2)
        for _ in range(4):
            await outcomes.next()
        assert len(workers.pids) == 2
        assert (workers.busy, workers.waiting) == (0, 0)

    conversation(talk, WorkerLimits(processes=2))


def test_payloads_of_many_megabytes_go_both_ways() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        content = Content(os.urandom(16 * 1024 * 1024), "x/y", (("note", "long"),))
        workers.submit(outcomes.shape(content, ShapingTarget("trimming", argument="other")))
        assert await outcomes.next() == Content(content.payload, "x/y")

    conversation(talk)


def test_more_than_workers_accept_is_refused() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(Content(bytes(101)), ShapingTarget("trimming", 1)))
        failure = await outcomes.next()
        assert failure == JobFailure("failed", "101 bytes, workers accept at most 100")
        assert workers.pids == []

    conversation(talk, WorkerLimits(processes=1, job_bytes=100))


def test_what_can_not_be_shaped_is_a_failure_with_its_reason() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        for content in (TEXT, Content(surveillance_jpeg()[:5_000])):
            workers.submit(outcomes.shape(content, ShapingTarget("scaling", 4_096)))
        assert await outcomes.next() == JobFailure(
            "failed", "scaling can't shape content without a known type"
        )
        broken = await outcomes.next()
        assert broken.kind == "failed"
        assert broken.reason.startswith("a broken JPEG image")

    assert conversation(talk).counts.failed == 2


def test_important_jobs_go_first() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        for importance in (0, 3, 7, 5):
            content = Content(b"", f"importance {importance}")
            terms = JobPriority(queued_ms=NOW_MS, importance=importance)
            workers.submit(outcomes.shape(content, ShapingTarget("trimming", 1), terms))
        found = [(await outcomes.next()).content_type[-1] for _ in range(4)]
        assert found == ["0", "7", "5", "3"]  # the first found an idle worker

    conversation(talk)


def test_the_backlog_is_bounded_and_what_is_shed_is_told() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        for importance in (3, 2, 1, 4):
            content = Content(b"", f"importance {importance}")
            terms = JobPriority(queued_ms=NOW_MS, importance=importance)
            workers.submit(outcomes.shape(content, ShapingTarget("trimming", 1), terms))
        assert outcomes.told == []
        shed = await outcomes.next()
        assert shed == JobFailure("shed", "more work is waiting than is accepted")
        found = [(await outcomes.next()).content_type[-1] for _ in range(3)]
        assert found == ["3", "4", "2"]

    limits = WorkerLimits(processes=1, waiting_jobs=2)
    assert conversation(talk, limits).counts.shed == 1


def test_a_job_whose_deadline_has_passed_is_not_begun() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        for due_ms in (NOW_MS, NOW_MS + 1):
            terms = JobPriority(queued_ms=NOW_MS - 5_000, due_ms=due_ms)
            workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1), terms))
        assert (await outcomes.next()).kind == "expired"
        assert await outcomes.next() == TEXT

    assert conversation(talk).counts.expired == 1


def test_conditions_are_evaluated() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        source = b"<n:r xmlns:n='urn:n'><n:a>1</n:a><n:a>2</n:a></n:r>"
        names = (("x", "urn:n"),)
        conditions = [("sum(//x:a) = 3", names), ("count(//x:a) = 3", names), ("//y:a", names)]
        workers.submit(outcomes.xpath(source, *conditions))
        assert await outcomes.next() == [True, False, None]

    conversation(talk)


def test_a_document_that_is_none_is_a_failure() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.xpath(b"<r>", ("/r", ())))
        failure = await outcomes.next()
        assert failure.kind == "failed"
        assert "not well-formed XML" in failure.reason

    conversation(talk)


def test_what_was_found_before_time_ran_out_counts() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        known = ("count(//a) = 3000", ())
        workers.submit(outcomes.xpath(DEEP, known, ENDLESS, known))
        assert await outcomes.next() == [True, None, None]
        assert workers.pids == []
        workers.submit(outcomes.xpath(b"<r/>", ("/r", ())))
        assert await outcomes.next() == [True]

    counts = conversation(talk, WorkerLimits(processes=1, xpath_time_limit_s=2.0)).counts
    assert (counts.too_long, counts.done) == (1, 1)


@pytest.mark.usefixtures("_plug_ins")
def test_a_job_that_takes_too_long_has_failed_and_its_process_is_replaced(tmp_path: Path) -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        endless = ShapingTarget("endless", argument=str(tmp_path / "begun"))
        workers.submit(outcomes.shape(TEXT, endless))
        workers.submit(outcomes.shape(TEXT, ShapingTarget("halving", 1)))
        await _until(lambda: bool(workers.pids))
        pid = workers.pids[0]
        assert await outcomes.next() == JobFailure("too long", "not done in 2 s")
        assert _has_ended(pid)
        assert (await outcomes.next()).payload == TEXT.payload[:50]
        assert workers.pids != [pid]

    assert conversation(talk, WorkerLimits(processes=1, time_limit_s=2.0)).counts.too_long == 1


@pytest.mark.usefixtures("_plug_ins")
def test_a_process_killed_in_the_middle_is_replaced(tmp_path: Path) -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        begun = tmp_path / "begun"
        workers.submit(outcomes.shape(TEXT, ShapingTarget("endless", argument=str(begun))))
        await _until(begun.exists)
        os.kill(workers.pids[0], signal.SIGKILL)
        assert await outcomes.next() == JobFailure("died", "worker process killed by SIGKILL")
        workers.submit(outcomes.shape(TEXT, ShapingTarget("halving", 1)))
        assert (await outcomes.next()).payload == TEXT.payload[:50]
        assert len(outcomes.told) == 2  # the first was not tried again

    assert conversation(talk).counts.died == 1


def test_a_process_killed_while_idle_costs_no_job() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        await outcomes.next()
        pid = workers.pids[0]
        os.kill(pid, signal.SIGKILL)
        await _until(lambda: workers.pids == [])
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert await outcomes.next() == TEXT
        assert workers.pids != [pid]

    conversation(talk)


@pytest.mark.usefixtures("_plug_ins")
def test_a_crash_in_a_library_is_one_failure() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(TEXT, ShapingTarget("crashing", 1)))
        assert await outcomes.next() == JobFailure("died", "worker process killed by SIGSEGV")
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert await outcomes.next() == TEXT

    conversation(talk)


@pytest.mark.usefixtures("_plug_ins")
@pytest.mark.parametrize("name", ["greedy", "raising"])
def test_a_mistake_in_a_plug_in_does_not_end_the_process(name: str) -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(TEXT, ShapingTarget(name, 1)))
        failure = await outcomes.next()
        pids = workers.pids
        assert failure.kind == "failed"
        assert ("memory" in failure.reason) == (name == "greedy")
        workers.submit(outcomes.shape(TEXT, ShapingTarget("halving", 1)))
        assert (await outcomes.next()).payload == TEXT.payload[:50]
        assert workers.pids == pids

    conversation(talk)


def test_workers_that_can_not_be_started_fail_their_jobs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert (await outcomes.next()).kind == "died"

    for executable in ("/bin/false", str(tmp_path / "missing")):
        monkeypatch.setattr(sys, "executable", executable)
        conversation(talk)


def test_a_process_that_talks_nonsense_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert (await outcomes.next()).kind == "died"
        assert workers.pids == []

    script = tmp_path / "nonsense"
    for said in (r"\000\000\000\003abc", r"\377\377\377\377", r"\000\000\000\002\222\243"):
        script.write_text(f"#!/bin/sh\nprintf '{said}'\nsleep 60\n")
        script.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(script))
        conversation(talk)


@pytest.mark.usefixtures("_plug_ins")
def test_closing_ends_all_processes_and_tells_all_jobs(tmp_path: Path) -> None:
    pids: list[int] = []
    told: list[tuple[object, int]] = []

    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        begun = tmp_path / "begun"
        workers.submit(outcomes.shape(TEXT, ShapingTarget("endless", argument=str(begun))))
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        await _until(begun.exists)
        pids.extend(workers.pids)
        await workers.close()
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        await asyncio.sleep(0)
        told.extend(outcomes.told)

    workers = conversation(talk)
    assert [outcome for outcome, _ in told] == [JobFailure("closed", "the node is stopping")] * 3
    assert workers.pids == []
    assert all(map(_has_ended, pids))


def test_an_outcome_that_can_not_be_used_stops_nobody() -> None:
    async def talk(workers: Workers, outcomes: Outcomes) -> None:
        def done(outcome: object, spent_us: int) -> None:
            raise ValueError(outcome)

        workers.submit(shape_job(TEXT, ShapingTarget("trimming", 1), TERMS, done))
        workers.submit(outcomes.shape(TEXT, ShapingTarget("trimming", 1)))
        assert await outcomes.next() == TEXT

    conversation(talk)


PARENT = """
import asyncio, sys
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.runtime.worker_jobs import JobPriority, shape_job
from accord.runtime.workers import WorkerLimits, Workers
from accord.shaping.content import Content

async def main():
    workers = Workers(WorkerLimits(processes=2, time_limit_s=600))
    done = lambda outcome, spent_us: None
    for argument in sys.argv[1:]:
        shape = ShapingTarget("endless", argument=argument)
        workers.submit(shape_job(Content(b"x"), shape, JobPriority(queued_ms=0), done))
    while len(workers.pids) < 2:
        await asyncio.sleep(0.01)
    print(*workers.pids, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.usefixtures("_plug_ins")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_no_process_outlives_the_node(tmp_path: Path, loop: str) -> None:
    begun = [tmp_path / "first", tmp_path / "second"]
    code = PARENT if loop == "asyncio" else PARENT.replace("asyncio.run(", "uvloop.run(")
    command = [sys.executable, "-c", f"import {loop}\n{code}", *map(str, begun)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pids = [int(pid) for pid in parent.stdout.readline().split()]
            assert len(pids) == 2
            while not all(path.exists() for path in begun):
                time.sleep(0.01)
            assert not any(map(_has_ended, pids))
        finally:
            parent.kill()
    while not all(map(_has_ended, pids)):
        time.sleep(0.01)

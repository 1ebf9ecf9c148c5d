"""The node's end of the data pipeline, with a process that needs no Spark."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import fake_pipeline

from accord.core.monitoring.statistics import PipelineStatus
from accord.core.queries.messages import (
    EventQuery,
    ExportPart,
    HistogramPart,
    Measure,
    MeasuredValues,
    WatchedPredicate,
)
from accord.runtime import pipeline as pipeline_module
from accord.runtime import pipeline_process
from accord.runtime.logs import FIELDS
from accord.runtime.pipeline import (
    MAX_PENDING,
    WORK,
    Pipeline,
    PipelineError,
    PipelineOptions,
    PipelineTimeouts,
    why_off,
)

QUICK = PipelineTimeouts(
    first_pause_s=0.01,
    max_pause_s=0.05,
    settings_pause_s=3_600,
    stop_s=20,
    term_s=0.2,
)
A = EventQuery(channel="a")


@asynccontextmanager
async def a_pipeline(
    folder: Path,
    *lives: dict[str, Any],
    patience: PipelineTimeouts = QUICK,
    timeout_s: float = 60.0,
    on_measured: Callable[[MeasuredValues], None] | None = None,
) -> AsyncIterator[Pipeline]:
    options = PipelineOptions(
        command=fake_pipeline.command(*(lives or ({},))),
        timeouts=patience,
        timeout_s=timeout_s,
        declared={"altitude_m": "float"},
    )
    pipeline = Pipeline(options, node="alpha", data=folder, on_measured=on_measured)
    pipeline.start()
    try:
        yield pipeline
    finally:
        await pipeline.close()


def told(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [each for each in fake_pipeline.told(folder / WORK) if each["type"] == kind]


async def until(is_done: Callable[[], object]) -> None:
    while not is_done():
        await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether it runs: not one that has ended, but whose parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def test_pages_until_there_are_no_more(tmp_path: Path) -> None:
    async def scenario() -> list[bytes]:
        async with a_pipeline(tmp_path, {"events": 5}) as pipeline:
            page = await pipeline.page(A, rows=2)
            payloads = [event.payload for event in page.events]
            while page.cursor:
                page = await pipeline.page(A, rows=2, cursor=page.cursor)
                payloads += [event.payload for event in page.events]
            return payloads

    assert asyncio.run(scenario()) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_it_is_told_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_pipeline(tmp_path) as pipeline:
            await until(lambda: pipeline.health.state == "ready")

    asyncio.run(scenario())
    (start,) = told(tmp_path, "start")
    assert start["node"] == "alpha"
    assert start["journal"] == str(tmp_path.resolve() / "journal")
    assert start["archive"] == str(tmp_path.resolve() / "archive")
    assert start["declared"] == {"altitude_m": "float"}


def test_many_questions_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[int], bytes]:
        async with a_pipeline(tmp_path, {"events": 3}) as pipeline:
            pages = [pipeline.page(A, rows=1 + number % 3) for number in range(50)]
            report = pipeline.report(since_ms=5, until_ms=9, channel="b/#")
            found = await asyncio.gather(*pages)
            return [len(page.events) for page in found], await report

    counts, report = asyncio.run(scenario())
    assert counts == [1 + number % 3 for number in range(50)]
    assert report == b'{"since_ms": 5, "channel": "b/#"}'


def test_histograms_and_files(tmp_path: Path) -> None:
    async def scenario() -> tuple[HistogramPart, ExportPart]:
        async with a_pipeline(tmp_path, {"events": 3}) as pipeline:
            return await asyncio.gather(
                pipeline.histogram(A, until_ms=9, buckets=1),
                pipeline.export(A, format_="csv", cursor="2", columns={"n": "integer"}),
            )

    part, file = asyncio.run(scenario())
    assert (part.counts, part.width_ms, part.cursor) == ((3,), 9, "")
    assert (file.body, file.events, file.cursor) == (b"csv 2 of a", 1, "")


def test_who_goes_away_cancels_a_histogram(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_pipeline(tmp_path, {"mute_on": "histogram"}) as pipeline:
            asking = asyncio.ensure_future(pipeline.histogram(A, until_ms=9))
            await until(lambda: told(tmp_path, "histogram"))
            asking.cancel()
            await until(lambda: told(tmp_path, "cancel"))

    asyncio.run(scenario())
    assert told(tmp_path, "cancel")[0]["id"] == told(tmp_path, "histogram")[0]["id"]


@pytest.mark.parametrize(
    "life",
    [
        {"exit": 1, "on": "query"},
        {"exit": 0, "on": "query"},
        {"garbage_on": "query"},
        {"exit": 1},
    ],
)
def test_a_question_is_asked_again_of_the_next_process(
    tmp_path: Path, life: dict[str, Any]
) -> None:
    async def scenario() -> tuple[int, int, int]:
        async with a_pipeline(tmp_path, life, {"events": 1}) as pipeline:
            page = await pipeline.page(A)
            await until(lambda: pipeline.health.state == "ready")
            return len(page.events), pipeline.health.restarts, pipeline.health.events

    events, restarts, archived = asyncio.run(scenario())
    assert (events, restarts) == (1, 1)
    assert archived == (10 if life == {"exit": 1} else 20)  # of both processes together


def test_a_process_that_hangs_is_replaced(tmp_path: Path) -> None:
    patience = PipelineTimeouts(first_pause_s=0.01, silence_s=0.5, term_s=0.1)

    async def scenario() -> str:
        async with a_pipeline(
            tmp_path, {"hang_on": "query"}, {"events": 1}, patience=patience
        ) as pipeline:
            pid = await _pid(pipeline)
            assert len((await pipeline.page(A)).events) == 1
            assert not is_alive(pid)
            return pipeline.health.state

    assert asyncio.run(scenario()) == "ready"


def test_a_question_that_ends_each_process_is_sent_twice_and_then_refused(tmp_path: Path) -> None:
    life = {"exit": 9, "on": "query", "of": "a", "prints": "Killed by a", "events": 1}

    async def scenario() -> list[PipelineError]:
        errors = []
        async with a_pipeline(tmp_path, life) as pipeline:
            for cursor in ("", "1"):  # the same question again, a page further
                with pytest.raises(PipelineError) as error:
                    await pipeline.page(A, cursor=cursor)
                errors.append(error.value)
            assert len((await pipeline.page(EventQuery(channel="b"))).events) == 1
            assert pipeline.status().restarts == 2
        return errors

    first, again = asyncio.run(scenario())
    assert (first.kind, again.kind) == ("ended", "ended")
    assert str(first) == (
        "the data pipeline exited during this request: it ended with code 9: Killed by a"
    )
    assert "it ended the data pipeline 2 times (it ended with code 9: Killed by a)" in str(again)
    assert again.retry_s > 0
    assert [each["ask"]["channel"] for each in told(tmp_path, "query")] == ["a", "a", "b"]


def test_a_question_that_waits_for_the_start_is_not_what_starts_fail_of(tmp_path: Path) -> None:
    life = {"exit": 1, "problem": "Java ended before Spark was ready"}

    async def scenario() -> int:
        async with a_pipeline(tmp_path, life, life, life, {"events": 1}) as pipeline:
            return len((await pipeline.page(A)).events)

    assert asyncio.run(scenario()) == 1
    assert len(told(tmp_path, "query")) == 1


def test_a_refused_question_is_tried_again_later(tmp_path: Path) -> None:
    patience = PipelineTimeouts(first_pause_s=0.01, refuse_s=0.01)
    dying = {"exit": 9, "on": "query"}

    async def scenario() -> int:
        async with a_pipeline(tmp_path, dying, dying, {"events": 1}, patience=patience) as pipeline:
            with pytest.raises(PipelineError):
                await pipeline.page(A)
            await asyncio.sleep(0.02)
            return len((await pipeline.page(A)).events)

    assert asyncio.run(scenario()) == 1


def test_only_the_question_that_ends_it_fails_of_those_it_worked_on(tmp_path: Path) -> None:
    slow = {"exit": 9, "on": "query", "of": "a", "mute_on": "query"}  # has all of them when it ends
    lives = (slow, {"exit": 9, "on": "query", "of": "a", "events": 1})

    async def scenario() -> list[object]:
        async with a_pipeline(tmp_path, *lives) as pipeline:
            names = ("b", "c", "a", "d")
            asked = [pipeline.page(EventQuery(channel=name)) for name in names]
            return list(await asyncio.gather(*asked, return_exceptions=True))

    answers = asyncio.run(scenario())
    assert [isinstance(each, PipelineError) for each in answers] == [False, False, True, False]


def test_whatever_comes_while_a_question_is_tried_again_is_not_blamed_on_it(tmp_path: Path) -> None:
    dying = {"exit": 9, "on": "query", "of": "a", "events": 1}
    lives = (dying | {"mute_on": "query"}, dying | {"later_s": 0.2})

    async def scenario() -> list[object]:
        async with a_pipeline(tmp_path, *lives) as pipeline:
            asked = [asyncio.create_task(pipeline.page(EventQuery(channel=name))) for name in "ba"]
            await until(lambda: len(told(tmp_path, "query")) > 2)
            asked.append(asyncio.create_task(pipeline.page(A)))
            answers: list[object] = [*await asyncio.gather(*asked, return_exceptions=True)]
            assert pipeline.status().restarts <= 2, "of what is alike, one is enough"
            return answers

    answers = asyncio.run(scenario())
    assert [isinstance(each, PipelineError) for each in answers] == [False, True, True]


def test_what_it_printed_before_it_ended_is_told_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives: tuple[dict[str, Any], ...] = (
        {"exit": 1, "prints": "Traceback\n  frame\nMemoryError: first"},
        {"exit": 1, "prints": "Traceback\n  frame\nMemoryError: second"},
        {},
    )

    async def scenario() -> PipelineStatus:
        async with a_pipeline(tmp_path, *lives) as pipeline:
            await until(lambda: pipeline.health.state == "ready")
            return pipeline.status()

    status = asyncio.run(scenario())
    assert (status.state, status.problem, status.restarts) == ("ready", "", 2)
    assert status.last_end == "it ended with code 1: MemoryError: second"
    assert status.last_output == ("Traceback", "  frame", "MemoryError: second")
    assert status.last_end_ms > 0
    ends = [each for each in caplog.records if each.message == "pipeline: exited"]
    fields = [getattr(each, FIELDS) for each in ends]
    assert [each["output"].splitlines()[-1] for each in fields] == [
        "MemoryError: first",
        "MemoryError: second",
    ]
    assert fields[0]["restart_in_s"] < fields[1]["restart_in_s"]  # it backs off
    kept = (tmp_path / WORK / pipeline_process.OUTPUT).read_text()
    assert kept.index("MemoryError: first") < kept.index("MemoryError: second")


def test_a_lack_that_only_people_can_mend_is_told_at_once(tmp_path: Path) -> None:
    life = {"exit": 2, "problem": "there is no Java: install Java 17"}

    async def scenario() -> list[PipelineError]:
        errors = []
        async with a_pipeline(tmp_path, life) as pipeline:
            for _ in range(2):  # one who waits for the start, one who comes later
                with pytest.raises(PipelineError) as error:
                    await pipeline.page(A)
                errors.append(error.value)
            assert pipeline.status().state == "failed"
            assert pipeline.status().problem == "there is no Java: install Java 17"
        return errors

    for error in asyncio.run(scenario()):
        assert error.kind == "off"
        assert "install Java 17" in error.problem
        assert error.retry_s > 0


def test_what_is_lacking_is_told_until_it_is_there(tmp_path: Path) -> None:
    life = {"exit": 2, "problem": "there is no Java: install Java 17"}
    lacks: list[str] = []

    async def scenario() -> None:
        patience = PipelineTimeouts(settings_pause_s=0.01)
        async with a_pipeline(tmp_path, life, life, {"events": 1}, patience=patience) as pipeline:
            pipeline.watch_lack(lacks.append)
            await until(lambda: pipeline.health.state == "ready")
            assert len((await pipeline.page(A)).events) == 1

    asyncio.run(scenario())
    assert lacks == ["", "there is no Java: install Java 17", ""]


def test_it_falls_behind_while_it_is_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_pipeline(tmp_path, {"exit": 2}) as pipeline:
            await until(lambda: pipeline.health.state == "failed")
            status = pipeline.status(committed_offset=100)
            assert status.lag_records == 100
            await until(lambda: pipeline.status(committed_offset=100).lag_ms > status.lag_ms)
            assert pipeline.status(committed_offset=0).lag_ms == 0

    asyncio.run(scenario())


def test_why_it_ended_is_what_it_wrote_last(tmp_path: Path) -> None:
    async def scenario() -> str:
        options = PipelineOptions(
            command=(sys.executable, "-c", "raise ValueError('no such luck')"), timeouts=QUICK
        )
        pipeline = Pipeline(options, node="alpha", data=tmp_path)
        pipeline.start()
        await until(lambda: pipeline.health.restarts > 1)
        await until(lambda: pipeline.health.problem)
        await pipeline.close()
        return pipeline.health.problem

    assert asyncio.run(scenario()) == "it ended with code 1: ValueError: no such luck"


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    async def scenario() -> str:
        options = PipelineOptions(command=("/no/such/command",), timeouts=QUICK)
        pipeline = Pipeline(options, node="alpha", data=tmp_path)
        pipeline.start()
        await until(lambda: pipeline.health.problem)
        await pipeline.close()
        return pipeline.health.problem

    assert asyncio.run(scenario()).startswith("it could not be started: ")


def test_a_mistake_in_a_question(tmp_path: Path) -> None:
    async def scenario() -> PipelineError:
        async with a_pipeline(tmp_path, {"fails": ["expected a number", "where"]}) as pipeline:
            with pytest.raises(PipelineError) as error:
                await pipeline.page(A)
            return error.value

    error = asyncio.run(scenario())
    assert (error.kind, error.place, error.problem) == ("question", "where", "expected a number")


def test_questions_time_out(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str]:
        async with a_pipeline(tmp_path, {"mute_on": "query"}) as pipeline:
            await until(lambda: pipeline.health.state == "ready")
            with pytest.raises(PipelineError) as unanswered:
                await pipeline.page(A, timeout_s=0.2)
            await until(lambda: told(tmp_path, "cancel"))
        async with a_pipeline(tmp_path, {"starting": True}, timeout_s=0.2) as pipeline:
            with pytest.raises(PipelineError) as not_ready:
                await pipeline.page(A)
        return unanswered.value.kind, not_ready.value.kind

    assert asyncio.run(scenario()) == ("timeout", "unavailable")
    assert len(told(tmp_path, "query")) == 1


def test_who_goes_away_cancels(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with a_pipeline(tmp_path, {"mute_on": "query"}) as pipeline:
            asking = asyncio.create_task(pipeline.page(A))
            await until(lambda: told(tmp_path, "query"))
            asking.cancel()
            await until(lambda: told(tmp_path, "cancel"))
            return pipeline.status().waiting

    assert asyncio.run(scenario()) == 0
    assert told(tmp_path, "cancel")[0]["id"] == told(tmp_path, "query")[0]["id"]


def test_only_so_many_wait(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with a_pipeline(tmp_path, {"mute_on": "query"}) as pipeline:
            waiting = [asyncio.create_task(pipeline.page(A)) for _ in range(MAX_PENDING)]
            await until(lambda: pipeline.status().waiting == MAX_PENDING)
            with pytest.raises(PipelineError) as error:
                await pipeline.page(A)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return error.value.kind

    assert asyncio.run(scenario()) == "busy"


def test_who_waits_when_the_node_stops_is_told(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with a_pipeline(tmp_path, {"mute_on": "query"}) as pipeline:
            asking = asyncio.create_task(pipeline.page(A))
            await until(lambda: told(tmp_path, "query"))
        errors: list[str] = []
        for each in (asking, pipeline.page(A)):
            with pytest.raises(PipelineError) as error:
                await each
            errors.append(error.value.kind)
        return errors

    assert asyncio.run(scenario()) == ["unavailable", "unavailable"]


def test_predicates_are_told_to_each_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_pipeline(tmp_path, {"exit": 1, "on": "query"}, {"events": 1}) as pipeline:
            pipeline.watch([WatchedPredicate("a", "b > 1", "", 2)])
            await until(lambda: told(tmp_path, "watch"))
            pipeline.watch([WatchedPredicate("a", "b > 1", "", 2)])  # as before: nothing to tell
            await pipeline.page(A)
            pipeline.watch([])
            await until(lambda: len(told(tmp_path, "watch")) == 3)

    asyncio.run(scenario())
    first, again, none = (each["predicates"] for each in told(tmp_path, "watch"))
    assert first == again == [["a", "b > 1", "", 2]]
    assert none == []


def test_what_is_measured_is_handed_on(tmp_path: Path) -> None:
    measured: list[MeasuredValues] = []

    async def scenario() -> None:
        life = {"measured": [["channel", "a", "rate_hz", 2.5, 7]]}
        async with a_pipeline(tmp_path, life, on_measured=measured.append):
            await until(lambda: measured)

    asyncio.run(scenario())
    assert measured[0].values == (Measure("channel", "a", "rate_hz", 2.5, 7),)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes through /proc")
@pytest.mark.parametrize("life", [{"child": True}, {"child": True, "stays": True}])
def test_nothing_is_left_of_it(tmp_path: Path, life: dict[str, Any]) -> None:
    patience = PipelineTimeouts(stop_s=0.2, term_s=0.2)

    async def scenario() -> tuple[int, int]:
        async with a_pipeline(tmp_path, life, patience=patience) as pipeline:
            pid = await _pid(pipeline)
            await until(lambda: pipeline.health.state == "ready")
            child = int((tmp_path / WORK / "child").read_text())
            assert is_alive(pid)
            assert is_alive(child)
        return pid, child

    for pid in asyncio.run(scenario()):
        assert not is_alive(pid)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes through /proc")
def test_nothing_of_it_meets_the_next_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_pipeline(tmp_path, {"child": True}, {}) as pipeline:
            pid = await _pid(pipeline)
            await until(lambda: pipeline.health.state == "ready")
            child = int((tmp_path / WORK / "child").read_text())
            os.kill(pid, signal.SIGKILL)
            await until(lambda: pipeline.health.restarts == 1)
            assert not is_alive(child)

    asyncio.run(scenario())


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes through /proc")
def test_it_ends_with_the_node(tmp_path: Path) -> None:
    script = f"""
import asyncio
from pathlib import Path
from tests.runtime.test_pipeline import a_pipeline, until

async def main():
    async with a_pipeline(Path({str(tmp_path)!r})) as pipeline:
        await until(lambda: pipeline.health.state == "ready")
        print(pipeline._process.pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    node = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root
    )
    with node:
        assert node.stdout is not None
        pid = int(node.stdout.readline())
        node.kill()
    while is_alive(pid):
        time.sleep(0.01)


def test_its_output_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_process, "MAX_OUTPUT", 10_000)
    monkeypatch.setattr("accord.runtime.pipeline._CHECK_S", 0.01)
    output = tmp_path / WORK / pipeline_process.OUTPUT

    async def scenario() -> tuple[str, ...]:
        async with a_pipeline(tmp_path, {"floods": 20_000}, {}) as pipeline:
            await until(lambda: pipeline.health.state == "ready")
            await until(lambda: output.stat().st_size == 0)
            os.kill(await _pid(pipeline), signal.SIGKILL)
            await until(lambda: pipeline.health.restarts == 1)
            return pipeline.status().last_output

    (line,) = asyncio.run(scenario())
    assert set(line) == {"x"}
    assert output.with_name(pipeline_process.OLD_OUTPUT).stat().st_size == 10_000


def test_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--no-pipeline" in why_off(None, tmp_path)
    assert "node.data" in why_off(PipelineOptions(), None)
    monkeypatch.setattr(pipeline_module, "find_spec", lambda _: None)
    assert "pip install 'accord[pipeline]'" in why_off(PipelineOptions(), tmp_path)
    monkeypatch.setattr(pipeline_module, "find_spec", lambda _: object())
    assert why_off(PipelineOptions(), tmp_path) == ""


def test_one_that_is_off_says_so() -> None:
    async def scenario() -> PipelineError:
        pipeline = Pipeline(None, node="alpha", data=None)
        pipeline.start()
        with pytest.raises(PipelineError) as error:
            await pipeline.page(A)
        assert pipeline.status().state == "off"
        await pipeline.close()
        return error.value

    error = asyncio.run(scenario())
    assert error.kind == "off"
    assert "--no-pipeline" in error.problem


async def _pid(pipeline: Pipeline) -> int:
    await until(lambda: pipeline._process is not None)
    assert isinstance(pipeline._process, pipeline_process.PipelineProcess)
    return pipeline._process.pid

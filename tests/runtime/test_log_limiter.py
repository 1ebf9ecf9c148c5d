from __future__ import annotations

import io
import logging
import threading

import pytest

from accord.runtime.logs import BoundedHandler, ConsoleFormatter, RepeatLimiter


def record(message: str, level: int = logging.WARNING, *args: object) -> logging.LogRecord:
    return logging.LogRecord("a", level, "", 0, message, args, None)


def shown(records: list[logging.LogRecord]) -> list[str]:
    return [ConsoleFormatter().format(each).split(" ", 1)[1] for each in records]


class Stuck(logging.Handler):
    """A target that takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.is_waiting = threading.Event()
        self.release_all = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.is_waiting.set()
        self.release_all.wait()
        self.taken.append(ConsoleFormatter().format(record).split(" ", 1)[1])


def test_a_flood_is_cut_and_summed_up() -> None:
    now = [0.0]
    repetition = RepeatLimiter(burst=2, period_s=10.0, clock=lambda: now[0])
    assert [repetition.admit(record("bad packet")) for _ in range(5)] == [True, True] + [False] * 3
    assert repetition.admit(record("another"))
    assert repetition.admit(record("bad packet", logging.ERROR))
    now[0] = 9.0
    assert repetition.summaries() == []
    now[0] = 10.0
    assert shown(repetition.summaries()) == ["WARNING bad packet repeated=3 within_s=10.0"]
    assert repetition.admit(record("bad packet"))
    assert repetition.summaries(is_last=True) == []


def test_messages_are_the_same_whatever_their_arguments() -> None:
    repetition = RepeatLimiter(burst=1, clock=lambda: 0.0)
    assert repetition.admit(record("from %s", logging.WARNING, "a"))
    assert not repetition.admit(record("from %s", logging.WARNING, "b"))


def test_messages_that_all_differ_are_cut_too() -> None:
    repetition = RepeatLimiter(burst=5, kinds=10, clock=lambda: 0.0)
    admitted = [repetition.admit(record(f"message {number}")) for number in range(100)]
    assert sum(admitted) == 15
    assert shown(repetition.summaries(is_last=True)) == [
        "WARNING other messages repeated=85 within_s=10.0"
    ]


def test_who_logs_never_waits_for_who_reads() -> None:
    target = Stuck()
    handler = BoundedHandler(target, waiting=3)
    handler.handle(record("first"))
    assert target.is_waiting.wait(60)
    for number in range(10):
        handler.handle(record(f"message {number}"))
    assert handler.dropped == 7
    target.release_all.set()
    handler.close()
    assert [each for each in target.taken if "lost" not in each] == [
        "WARNING first",
        "WARNING message 0",
        "WARNING message 1",
        "WARNING message 2",
    ]
    assert "WARNING log lines lost count=7" in target.taken


def test_closing_ends_a_flood_with_its_sum() -> None:
    stream = io.StringIO()
    target = logging.StreamHandler(stream)
    target.setFormatter(ConsoleFormatter())
    handler = BoundedHandler(target, repetition=RepeatLimiter(burst=1, clock=lambda: 0.0))
    for _ in range(4):
        handler.handle(record("bad packet"))
    handler.close()
    handler.close()
    handler.handle(record("too late"))
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "WARNING bad packet",
        "WARNING bad packet repeated=3 within_s=10.0",
    ]


@pytest.mark.parametrize("args", [(), ("one", "two", "three"), (object(),)])
def test_arguments_that_do_not_fit_do_no_harm(args: tuple[object, ...]) -> None:
    stream = io.StringIO()
    handler = BoundedHandler(logging.StreamHandler(stream))
    handler.handle(record("%d of %d", logging.WARNING, *args))
    handler.close()
    assert stream.getvalue() == "%d of %d\n"


def test_a_message_says_what_was_true_when_it_was_logged() -> None:
    target = Stuck()
    handler = BoundedHandler(target)
    changing = ["before"]
    handler.handle(record("%s", logging.WARNING, changing))
    changing[0] = "after"
    target.release_all.set()
    handler.close()
    assert target.taken == ["WARNING ['before']"]

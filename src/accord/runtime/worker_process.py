"""Main program of a worker process: executes orders from standard input until that ends.

It bounds itself, in case the node no longer can: its memory, and the time of each order by an alarm
that ends it even inside a library. It ends when the node ends, even in the middle of an order,
because a thread polls the pipe to it.

Nothing is imported that orders don't need: no asyncio, no web framework.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Final

from accord.core.model.document import parse_xml
from accord.core.model.errors import AccordError
from accord.core.predicates.xpath import run_xpath
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.runtime.worker_jobs import (
    LENGTH,
    ConditionEvaluated,
    Evaluated,
    Failed,
    Ready,
    Reply,
    Shaped,
    ShapeWork,
    Work,
    XPathWork,
    frame,
    read_work,
)
from accord.shaping import registry
from accord.shaping.content import Content

_GRACE_S: Final = 5.0  # the node's own time limit comes first

SendFn = Callable[[Reply], None]


def main() -> None:
    memory_mb, time_limit_s = int(sys.argv[1]), float(sys.argv[2])
    orders, replies = _private_pipes()
    _bound_memory(memory_mb)
    threading.Thread(target=_end_with_node, args=(orders.fileno(),), daemon=True).start()

    def send(reply: Reply) -> None:
        replies.write(frame(reply))
        replies.flush()

    with suppress(BrokenPipeError, KeyboardInterrupt):
        send(Ready())
        while (body := _read_frame(orders)) is not None:
            _set_alarm(time_limit_s + _GRACE_S)
            run_work(read_work(body), send)
            _set_alarm(0)


def run_work(work: Work, send: SendFn) -> None:
    """Do `work` and send the outcome; an error in it, or in a plug-in, is one failure."""
    started = time.perf_counter()

    def spent_us() -> int:
        return int((time.perf_counter() - started) * 1_000_000)

    try:
        if isinstance(work, ShapeWork):
            send(Shaped(_shape(work), spent_us()))
        else:
            _evaluate(work, send)
            send(Evaluated(spent_us()))
    except BrokenPipeError:
        raise
    except Exception as error:
        send(Failed(_problem(error), spent_us()))


def _shape(work: ShapeWork) -> Content:
    shape = ShapingTarget(work.shaper, work.max_bytes, work.max_pixels, work.argument)
    return registry.shape(work.content, shape)


def _evaluate(work: XPathWork, send: SendFn) -> None:
    root = parse_xml(work.source)
    for condition in work.conditions:
        send(ConditionEvaluated(run_xpath(root, condition)))


def _problem(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than a worker may use"
    return (str(error) if isinstance(error, AccordError) else repr(error))[:500]


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Duplicates standard input and output and replaces them by null: libraries may print."""
    orders, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return orders, replies


def _read_frame(orders: BinaryIO) -> bytes | None:
    length = orders.read(LENGTH)
    if len(length) < LENGTH:
        return None
    wanted = int.from_bytes(length, "big")
    body = orders.read(wanted)
    return body if len(body) == wanted else None


def _end_with_node(pipe: int) -> None:
    """Ends the process when the other end of `pipe` is closed."""
    if not hasattr(select, "poll"):
        return  # it then ends after its order, or by its alarm
    watch = select.poll()
    watch.register(pipe, 0)  # only hang-up is reported
    while not watch.poll():
        pass
    os._exit(0)


def _bound_memory(memory_mb: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - where there is none, the system has no such bounds

        limit = memory_mb * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _set_alarm(seconds: float) -> None:
    """Ends the process after `seconds`; 0 cancels."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


if __name__ == "__main__":
    main()

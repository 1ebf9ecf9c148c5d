"""A process that speaks as the data pipeline does, and behaves as it is told, without Spark.

It is started with a JSON list of behaviours, one for each life, the last of them for all further
ones:

    exit       ends with this code at once, or with `on`, when such a message has come
    of         only by a message about this channel
    prints     printed before that
    problem    told as its health before that
    hang_on    does nothing any more when such a message has come: neither reads nor says anything
    mute_on    does not answer such messages, but lives
    later_s    answers questions so much later
    garbage_on says what makes no sense when such a message has come
    stays      does not end when the node closes the socket, nor by SIGTERM
    child      has started another process, whose id is in the file `child`
    starting   tells for ever that it is starting
    fails      answers questions so, as [problem, place]
    events     how many events there are: channel `a`, payloads b"0", b"1", …
    measured   values it has measured, as rows of Measure
    floods     writes so many bytes to its output

What it is told goes to the file `told` in its work folder, a JSON object per line.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from accord.core.queries.messages import (
    Answerable,
    ExportPart,
    ExportRequest,
    FromNode,
    FromPipeline,
    Health,
    HistogramPart,
    HistogramRequest,
    LedgerLookup,
    LedgerReply,
    Measure,
    MeasuredValues,
    NetLookup,
    NetReply,
    Page,
    PageFrames,
    PageQuery,
    QueryFailure,
    QueryHit,
    ReportReply,
    ReportRequest,
    StartPipeline,
    decode_from_node,
    encode_frame,
)


def command(*lives: dict[str, Any]) -> tuple[str, ...]:
    """To start it with."""
    return sys.executable, "-P", __file__, json.dumps(lives)


def told(work: Path) -> list[dict[str, Any]]:
    """What the processes in this work folder were told, in all their lives."""
    try:
        lines = (work / "told").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


class FakePipeline:
    def __init__(self, line: socket.socket, lives: list[dict[str, Any]]) -> None:
        self._line = line
        self._lives = lives
        self._does: dict[str, Any] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        frames = PageFrames()
        while data := self._line.recv(65_536):
            for body in frames.feed(data):
                self._handle(decode_from_node(body))
        while self._does.get("stays"):
            time.sleep(0.1)

    def _handle(self, message: FromNode) -> None:
        if isinstance(message, StartPipeline):
            self._begin(message)
        with (self._work / "told").open("a") as file:
            file.write(json.dumps(msgspec.to_builtins(message)) + "\n")
        kind = msgspec.to_builtins(message)["type"]
        does = self._does
        if does.get("hang_on") == kind:
            with self._lock:
                time.sleep(3_600)
        if does.get("garbage_on") == kind:
            self._line.sendall(b"\0\0\0\2hm")
        if (
            "exit" in does
            and does.get("on", "start") == kind
            and _is_about(message, does.get("of"))
        ):
            print(does.get("prints", ""), file=sys.stderr, flush=True)
            if "problem" in does:
                self._say(Health(state="failed", problem=does["problem"]))
            os._exit(does["exit"])
        if isinstance(message, StartPipeline) and not does.get("starting"):
            self._say(Health(state="ready", spark="fake", events=10))
            rows = does.get("measured", ())
            self._say(MeasuredValues(tuple(msgspec.convert(row, Measure) for row in rows)))
        if isinstance(message, Answerable) and does.get("mute_on") != kind:
            if later_s := does.get("later_s"):
                threading.Timer(later_s, self._say, [self._answer(message)]).start()
            else:
                self._say(self._answer(message))

    def _begin(self, start: StartPipeline) -> None:
        self._work = Path(start.work)
        lives = self._work / "lives"
        number = len(lives.read_text()) if lives.exists() else 0
        with lives.open("a") as file:
            file.write(".")
        self._does = does = self._lives[min(number, len(self._lives) - 1)]
        if does.get("stays"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if does.get("child"):
            child = subprocess.Popen(["sleep", "3600"])  # noqa: S607
            (self._work / "child").write_text(str(child.pid))
        if does.get("floods"):
            print("x" * does["floods"], flush=True)
        self._say(Health(state="starting"))
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            time.sleep(0.1)
            state = "starting" if self._does.get("starting") else "ready"
            self._say(Health(state=state, spark="fake", events=10))

    def _answer(self, message: Answerable) -> FromPipeline:
        if fails := self._does.get("fails"):
            if fails[1]:
                return QueryFailure(
                    id=message.id, problem=fails[0], place=fails[1], kind="question"
                )
            return QueryFailure(id=message.id, problem=fails[0])
        if isinstance(message, ReportRequest):
            asked = {"since_ms": message.since_ms, "channel": message.channel}
            return ReportReply(id=message.id, body=json.dumps(asked).encode())
        if isinstance(message, HistogramRequest):
            counts = (self._does.get("events", 0),)
            return HistogramPart(
                id=message.id, first_ms=0, width_ms=message.until_ms, counts=counts, read_ms=0
            )
        if isinstance(message, ExportRequest):
            part = int(message.cursor or 0)
            body = f"{message.format} {part} of {message.ask.channel}".encode()
            cursor = str(part + 1) if part < 2 else ""
            columns = {"n": "integer"}
            return ExportPart(id=message.id, body=body, events=1, columns=columns, cursor=cursor)
        if isinstance(message, LedgerLookup):
            return LedgerReply(id=message.id, body=msgspec.msgpack.encode([]))
        if isinstance(message, NetLookup):
            found = [(message.since_ms, str(message.most))]
            return NetReply(id=message.id, body=msgspec.msgpack.encode(found))
        numbers = range(self._does.get("events", 0))
        if message.ask.is_newest_first:
            numbers = numbers[::-1]
        start = int(message.cursor or 0)
        shown = numbers[start : start + message.rows]
        more = start + len(shown)
        return Page(
            id=message.id,
            events=tuple(_event(number) for number in shown),
            cursor=str(more) if more < len(numbers) else "",
            files=3,
        )

    def _say(self, message: FromPipeline) -> None:
        with self._lock:
            self._line.sendall(encode_frame(message))


def _is_about(message: FromNode, channel: str | None) -> bool:
    if channel is None:
        return True
    return isinstance(message, PageQuery) and message.ask.channel == channel


def _event(number: int) -> QueryHit:
    text = str(number).encode()
    return QueryHit(number, number, 1_000 * number, "a", "ann", 1, b"", text)


def main() -> NoReturn:
    lives, fd = json.loads(sys.argv[1]), int(sys.argv[3])
    try:
        FakePipeline(socket.socket(fileno=fd), lives).run()
    except OSError:
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()

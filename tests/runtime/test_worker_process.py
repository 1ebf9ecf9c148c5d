from __future__ import annotations

import subprocess
import sys

from accord.runtime.worker_jobs import (
    ConditionEvaluated,
    Evaluated,
    Reply,
    Shaped,
    ShapeWork,
    XPathWork,
)
from accord.runtime.worker_process import run_work
from accord.shaping.content import Content


def _said(work: ShapeWork | XPathWork) -> list[Reply]:
    said: list[Reply] = []
    run_work(work, said.append)
    return said


def test_each_condition_is_told_as_soon_as_it_is_known() -> None:
    first, second, last = _said(XPathWork(b"<r><a/></r>", (("/r/a", ()), ("/r/b", ()))))
    assert [first, second] == [ConditionEvaluated(True), ConditionEvaluated(False)]
    assert isinstance(last, Evaluated)


def test_shaped_content_comes_with_the_time_it_took() -> None:
    content = Content(b"", "", (("a", "1"), ("b", "2")))
    (reply,) = _said(ShapeWork(content, "trimming", 0, 0, "b"))
    assert isinstance(reply, Shaped)
    assert reply.content.properties == (("b", "2"),)
    assert reply.spent_us >= 0


def test_a_worker_imports_nothing_of_the_node() -> None:
    code = "import sys, accord.runtime.worker_process; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    heavy = {"asyncio", "fastapi", "uvloop", "uvicorn", "numpy", "PIL", "elementpath", "logging"}
    assert not heavy & set(found.stdout.split())
    parts = ("accord.core.broker", "accord.core.links", "accord.core.overlay")
    assert not [name for name in found.stdout.split() if name.startswith(parts)]

"""Shapers of somebody else, as an installed distribution with entry points."""

from __future__ import annotations

from pathlib import Path

SHAPERS = '''
import os, pathlib, signal, sys

from accord.shaping.content import Content


class Shaper:
    def accepts(self, content_type, head):
        return True


class Halving(Shaper):
    name = "halving"
    def shape(self, content, shape):
        print("a plug-in may print", flush=True)
        os.write(1, b"anywhere")
        return Content(content.payload[: len(content.payload) // 2])


class Endless(Shaper):
    """Says that it has begun by making the file its argument names."""
    name = "endless"
    def shape(self, content, shape):
        pathlib.Path(shape.argument).touch()
        while True:
            pass


class Crashing(Shaper):
    name = "crashing"
    def shape(self, content, shape):
        os.kill(os.getpid(), signal.SIGSEGV)


class Greedy(Shaper):
    name = "greedy"
    def shape(self, content, shape):
        return Content(bytes(1 << 34))


class Raising(Shaper):
    name = "raising"
    def shape(self, content, shape):
        raise KeyError("beyond repair")


class Growing(Shaper):
    name = "growing"
    def shape(self, content, shape):
        return Content(content.payload * 2)


class Wrong(Shaper):
    name = "wrong"
    def shape(self, content, shape):
        return content.payload


class Picky(Shaper):
    name = "picky"
    def accepts(self, content_type, head):
        raise TypeError("no idea")


class Unmade:
    def __init__(self, never):
        pass


halving = Halving()
'''

ENTRY_POINTS = """[accord.shapers]
halving = odd_shapers:halving
endless = odd_shapers:Endless
crashing = odd_shapers:Crashing
greedy = odd_shapers:Greedy
raising = odd_shapers:Raising
growing = odd_shapers:Growing
wrong = odd_shapers:Wrong
picky = odd_shapers:Picky
unmade = odd_shapers:Unmade
missing = odd_shapers:Nothing
scaling = odd_shapers:Raising
"""


def install_shapers(folder: Path) -> None:
    """Make `folder`, which is to be on the path, hold the distribution."""
    (folder / "odd_shapers.py").write_text(SHAPERS)
    information = folder / "odd_shapers-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: odd-shapers\nVersion: 1.0\n"
    )
    (information / "entry_points.txt").write_text(ENTRY_POINTS)

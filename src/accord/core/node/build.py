"""Which build of this package runs: nodes and pipelines report it, and tests check it."""

from __future__ import annotations

from typing import Final

from accord.core.node import router

COMPILED: Final = "compiled"
PLAIN: Final = "plain Python"
BUILD: Final = PLAIN if router.__file__.endswith(".py") else COMPILED

"""The running build of this package; reported by nodes and pipelines, and checked by tests."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

NATIVE: Final = "native extension"
WITHOUT: Final = "no native extension"
BUILD: Final = NATIVE if find_spec("accord.core.native._native") else WITHOUT

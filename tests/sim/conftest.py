"""With ACCORD_SEEDS=few, of each test of many seeds only the first ones: where all of them run
elsewhere, on compiled code."""

from __future__ import annotations

import os
from typing import Final

import pytest

# How many of each: of four seeds each makes another kind of world, and a batch is many seeds.
_FEW: Final = {"seed": 4, "batch": 1}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ACCORD_SEEDS") != "few":
        return
    seen: dict[tuple[str, str], int] = {}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if _is_one_too_many(item, seen) else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _is_one_too_many(item: pytest.Item, seen: dict[tuple[str, str], int]) -> bool:
    params = (
        dict(item.callspec.params)
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    for name, few in _FEW.items():
        if params.pop(name, None) is not None:
            key = (item.nodeid.partition("[")[0], repr(params))
            seen[key] = seen.get(key, 0) + 1
            return "/sim/" in item.nodeid and seen[key] > few
    return False

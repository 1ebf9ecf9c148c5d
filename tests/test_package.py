from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accord.core.predicates import grid


@pytest.mark.parametrize("module", ["accord", "accord.predicates", "accord.cli.main"])
def test_importing_does_not_load_what_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & {"pyspark", "pandas", "pyarrow", "elementpath"}


def test_compiled_code_runs_where_it_comes_first_on_the_path() -> None:
    expected = Path(os.environ.get("PYTHONPATH", "src")).resolve()
    assert Path(grid.__file__).resolve().is_relative_to(expected)

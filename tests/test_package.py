from __future__ import annotations

import os
import shutil
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


@pytest.mark.skipif("PYTHONPATH" not in os.environ, reason="runs interpreted")
def test_code_is_compiled_where_there_is_a_compiler() -> None:
    assert Path(grid.__file__).resolve().is_relative_to(Path(os.environ["PYTHONPATH"]).resolve())
    assert Path(grid.__file__).suffix == (".so" if shutil.which("cc") else ".py")

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["accord", "accord.predicates", "accord.cli.main"])
def test_importing_does_not_load_what_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & {"pyspark", "pandas", "pyarrow", "elementpath"}

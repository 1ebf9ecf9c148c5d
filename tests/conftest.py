from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

import accord
from accord.core.router.limits import BUILD, NATIVE
from tests.java_options import java_options

# A shared machine is slow at times: only pytest's own time-out ends a test. The examples are the
# same everywhere, so that a commit passes or fails for good; `make hunt` looks for new ones.
settings.register_profile("accord", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, print_blob=True, max_examples=2_000)
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options(sys.prefix))
settings.load_profile(os.environ.get("ACCORD_EXAMPLES", "accord"))


def pytest_sessionstart() -> None:
    """Tests run what users run: the installed wheel, with its extension if there is a compiler."""
    # Shells start background jobs with Ctrl-C ignored, and nohup with SIGHUP: commands under test
    # would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if os.environ.get("ACCORD_TEST_SOURCE"):
        return
    source = Path(__file__).parents[1] / "src"
    if Path(accord.__file__).is_relative_to(source):
        pytest.exit(
            "tests run on the installed wheel: `make build`, then without PYTHONPATH "
            "(ACCORD_TEST_SOURCE=1 for a quick look at the source tree)",
            4,
        )
    if shutil.which("cc") and BUILD != NATIVE:
        pytest.exit(f"the installed wheel has {BUILD} although there is a compiler", 4)

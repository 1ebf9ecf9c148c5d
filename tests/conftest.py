from __future__ import annotations

import os

from hypothesis import settings

# A shared machine is slow at times: only pytest's own time-out ends a test. The examples are the
# same everywhere, so that a commit passes or fails for good; `make hunt` looks for new ones.
settings.register_profile("accord", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, print_blob=True, max_examples=2_000)
settings.load_profile(os.environ.get("ACCORD_EXAMPLES", "accord"))

from __future__ import annotations

from hypothesis import settings

# A shared machine is slow at times: only pytest's own time-out ends a test.
settings.register_profile("accord", deadline=None)
settings.load_profile("accord")

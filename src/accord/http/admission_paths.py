"""HTTP paths of admission."""

from __future__ import annotations

from typing import Final

ADMISSION: Final = "/api/v1/admission"
NEED: Final = "/api/v1/admission/need"

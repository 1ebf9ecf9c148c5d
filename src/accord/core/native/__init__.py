"""Byte loops over messages: in C if the extension was built, otherwise in Python.

`reference` defines what each function does; `IS_NATIVE` states which of the two is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.core.native import reference as _chosen

    IS_NATIVE: bool
else:
    try:
        from accord.core.native import _native as _chosen

        IS_NATIVE = True
    except ImportError:
        from accord.core.native import reference as _chosen

        IS_NATIVE = False

Frames = _chosen.Frames
acknowledged = _chosen.acknowledged
cut = _chosen.cut
expired = _chosen.expired
number = _chosen.number
records = _chosen.records
rewrite = _chosen.rewrite
scan = _chosen.scan
single = _chosen.single

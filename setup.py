"""Compiles the hot modules where that can be done; everywhere else they run as they are.

Editable installs stay interpreted, so that what is edited is what runs.
"""

import os
import sys

from setuptools import Extension, setup

HOT = [
    f"src/accord/core/predicates/{name}.py"
    for name in ("sets", "terms", "clause", "grid", "partition", "index")
]


def extensions() -> list[Extension]:
    if "editable_wheel" in sys.argv or os.environ.get("ACCORD_PURE"):
        return []
    try:
        from mypyc.build import mypycify  # noqa: PLC0415
    except ImportError:
        return []
    compiled: list[Extension] = mypycify(["--config-file=", "--ignore-missing-imports", *HOT])
    for extension in compiled:
        extension.optional = True  # no compiler is no error
    return compiled


setup(ext_modules=extensions())

"""Builds the one extension, `accord.core.native._native`; without a compiler the wheel has none.

It uses the stable ABI: one wheel serves all versions of Python from 3.11 on.
"""

from setuptools import Extension, setup

NATIVE = "src/accord/core/native"

setup(
    ext_modules=[
        Extension(
            "accord.core.native._native",
            [f"{NATIVE}/{name}.c" for name in ("module", "frames", "match")],
            depends=[f"{NATIVE}/native.h"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            py_limited_api=True,
            optional=True,  # no compiler is no error
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

